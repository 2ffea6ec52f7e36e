"""What a model may read of a value."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyagentd.lisp.values import Keyword, LispSet
from pyagentd.mission.firewall import HIDDEN, Firewall, is_firewalled, model_text, public
from pyagentd.mission.options import PromptLimit
from tests.examples import examples

K = Keyword


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nil"),
        (True, "true"),
        (7, "7"),
        (1.5, "1.5"),
        (float("inf"), "##Inf"),
        (float("nan"), "##NaN"),
        ('a\n"b"\\', '"a\\n\\"b\\"\\\\"'),
        (K("done"), ":done"),
        ([1, [2]], "[1 [2]]"),
        ({K("a"): 1, "b": 2}, '{:a 1, "b" 2}'),
        (LispSet([2, 1]), "#{1 2}"),
        ({K("n"): 1, K("_ids"): [1, 2]}, f"{{:n 1, :_ids {HIDDEN}}}"),
        ([{"_token": "x"}], f'[{{"_token" {HIDDEN}}}]'),
        ([], "[]"),
        ({}, "{}"),
        (len, "#<function>"),
        (object(), "#<object>"),
    ],
)
def test_a_value_is_shown_in_clojure_syntax(value, text):
    assert model_text(value) == text


def test_a_long_list_is_cut_and_says_so():
    text = model_text({K("items"): list(range(40))}, PromptLimit(list=3))
    assert text == "{:items [0 1 2 ...]}\nNote: `items` shows 3 of 40 items; programs see all of it."


def test_a_long_string_is_cut_by_bytes_and_says_so():
    text = model_text("é" * 10, PromptLimit(string=5))
    assert text == '"éé..."\nNote: the value shows the first 5 of 20 bytes; programs see all of it.'


def test_many_cuts_of_one_kind_are_said_once():
    text = model_text([{K("body"): "x" * 2000} for _ in range(4)])
    assert text.count("Note:") == 1
    assert "`[].body` shows the first 1000 of 2000 bytes" in text


def test_a_value_takes_no_more_than_its_room():
    wide: list[object] = ["x" * 900]
    for _ in range(6):
        wide = [wide] * 5
    assert len(model_text(wide)) < 20_000
    assert "too large" in model_text(wide)


def test_a_secret_is_blank_wherever_it_turns_up():
    firewall = Firewall()
    firewall.learn({K("_token"): "tok-12345", K("_id"): 7654321, K("name"): "Ada"})
    assert firewall.text("tok-12345") == HIDDEN
    assert firewall.text({K("t"): ["x tok-12345 y"]}) == f'{{:t ["x {HIDDEN} y"]}}'
    assert firewall.text(7654321) == HIDDEN
    assert firewall.text(76543210) == "76543210"
    assert firewall.words('expects numbers, got "tok-12345"') == f'expects numbers, got "{HIDDEN}"'


def test_a_long_secret_is_blank_though_it_was_cut():
    firewall = Firewall()
    secret = 'the quick "brown" fox jumps over the lazy dog'
    firewall.learn({"_body": secret})
    assert "quick" not in firewall.words(f"got {secret[:30]}...")
    assert "fox" not in firewall.words(f"got {secret[:30]}...")
    assert "fox" not in firewall.text([secret + "!"])


def test_a_secret_collection_is_blank_under_another_name():
    firewall = Firewall()
    context = {K("_ids"): [1, 2, 3], K("_users"): [{K("n"): 1}], K("open"): [4]}
    firewall.learn(context)
    assert firewall.text(context[K("_ids")]) == HIDDEN
    assert firewall.text({K("ids"): context[K("_ids")], K("one"): context[K("_users")][0]}) == (
        f"{{:ids {HIDDEN}, :one {HIDDEN}}}"
    )
    assert firewall.text(context[K("open")]) == "[4]"
    assert firewall.text([1, 2, 3]) == "[1 2 3]"


def test_what_is_public_too_is_no_secret():
    firewall = Firewall()
    firewall.learn({K("customer"): "Acme Corp", K("_audit"): {K("customer"): "Acme Corp"}})
    assert firewall.text("Acme Corp") == '"Acme Corp"'
    firewall.guard({K("x"): "tok-12345"})
    firewall.learn({K("_t"): "tok-12345"})
    assert HIDDEN in firewall.text("tok-12345")


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("name", "Ada", "Ada"),
        ("user._token", "x", HIDDEN),
        ("_user.name", "x", HIDDEN),
        ("user", {K("_t"): 1}, f"{{:_t {HIDDEN}}}"),
        ("n", 3, "3"),
        ("s", K("open"), "open"),
        ("nothing", None, ""),
        ("long", "x" * 5000, "x" * 5000),
    ],
)
def test_a_template_value_passes_the_firewall(path, value, text):
    assert Firewall().template(path, value) == text


def test_the_public_form_is_json():
    value = {K("a"): [LispSet([1])], "_b": {K("c"): 1}, K("k"): K("v"), 3: float("inf")}
    assert public(value) == {"a": [[1]], "_b": HIDDEN, "k": "v", "3": "inf"}


@pytest.mark.parametrize(
    ("key", "answer"), [(K("_a"), True), ("_a", True), (K("a_"), False), (1, False), (None, False)]
)
def test_a_name_says_whether_it_is_firewalled(key, answer):
    assert is_firewalled(key) is answer


_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.builds(K, st.sampled_from("ab"))
)
_KEYS = st.builds(K, st.sampled_from(["a", "b", "_s"])) | st.sampled_from(["c", "_t"])
_VALUES = st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=7) | st.dictionaries(_KEYS, inner, max_size=4))


def _planted(value, secret, hidden=False):
    """Return ``value`` with the secret in the place of everything firewalled."""
    if isinstance(value, dict):
        return {key: _planted(item, secret, hidden or is_firewalled(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_planted(item, secret, hidden) for item in value]
    return secret if hidden else value


@settings(max_examples=examples(50))
@given(_VALUES)
def test_no_text_has_a_firewalled_value(value):
    planted = _planted(value, "S3CRET-VALUE")
    assert "S3CRET" not in model_text(planted)
    assert "S3CRET" not in str(public(planted))
