"""What a model may read of a value."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyagentd import lisp
from pyagentd.lisp.values import Keyword, LispSet
from pyagentd.mission.delegation import delegate
from pyagentd.mission.firewall import HIDDEN, Firewall, is_firewalled, public
from pyagentd.mission.options import PromptLimit
from pyagentd.mission.registry import Scripted
from tests.examples import examples
from tests.mission.answers import RETURN_1, code

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
    assert Firewall().text(value) == text


def test_a_long_list_is_cut_and_says_so():
    text = Firewall(PromptLimit(list=3)).text({K("items"): list(range(40))})
    assert text == "{:items [0 1 2 ...]}\nNote: `items` shows 3 of 40 items; programs see all of it."


def test_a_long_string_is_cut_by_bytes_and_says_so():
    text = Firewall(PromptLimit(string=5)).text("é" * 10)
    assert text == '"éé..."\nNote: the value shows the first 5 of 20 bytes; programs see all of it.'


def test_many_cuts_of_one_kind_are_said_once():
    text = Firewall().text([{K("body"): "x" * 2000} for _ in range(4)])
    assert text.count("Note:") == 1
    assert "`[].body` shows the first 1000 of 2000 bytes" in text


def test_a_value_takes_no_more_than_its_room():
    wide: list[object] = ["x" * 900]
    for _ in range(6):
        wide = [wide] * 5
    assert len(Firewall().text(wide)) < 20_000
    assert "too large" in Firewall().text(wide)


def test_a_secret_is_blank_wherever_it_turns_up():
    firewall = Firewall()
    firewall.learn({K("_token"): "tok-12345", K("_id"): 7654321, K("name"): "Ada"})
    assert firewall.text("tok-12345") == HIDDEN
    assert firewall.text({K("t"): ["x tok-12345 y"]}) == f'{{:t ["x {HIDDEN} y"]}}'
    assert firewall.text(7654321) == HIDDEN
    assert firewall.text(76543210) == "76543210"
    assert firewall.redact('expects numbers, got "tok-12345"') == f'expects numbers, got "{HIDDEN}"'


def test_a_long_secret_is_blank_though_it_was_cut():
    firewall = Firewall()
    secret = 'the quick "brown" fox jumps over the lazy dog'
    firewall.learn({"_body": secret})
    assert "quick" not in firewall.redact(f"got {secret[:30]}...")
    assert "fox" not in firewall.redact(f"got {secret[:30]}...")
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
    firewall.learn_from_program({K("x"): "tok-12345"})
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
    assert Firewall().template(path.split("."), value) == text


def test_the_public_form_is_json():
    value = {K("a"): [LispSet([1])], "_b": {K("c"): 1}, K("k"): K("v"), 3: float("inf")}
    assert public(value) == {"a": [[1]], "_b": HIDDEN, "k": "v", "3": "inf"}


def test_a_collection_that_is_a_key_is_its_text_in_the_public_form():
    value = lisp.run('{["a" 1] 1 [:b 2] 2 {:x 1} 3 #{3} 4 [{:_token "S3CRET"}] 5}').value
    named = {'["a" 1]': 1, "[:b 2]": 2, "{:x 1}": 3, "#{3}": 4, f'[{{:_token "{HIDDEN}"}}]': 5}
    assert public(value) == named


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
    assert "S3CRET" not in Firewall().text(planted)
    assert "S3CRET" not in str(public(planted))


# Whatever a mission does, no text that its model is sent has a firewalled value (SPEC 004 Data Privacy).


SECRET, NUMBER = "S3CR3T-TOKEN", 987654321

CONTEXT = {
    "_token": SECRET,
    "_pin": NUMBER,
    "user": {"name": "Ada", "_token": SECRET, "_deep": [{"x": SECRET}]},
    "rows": [{"id": 1, "_note": f"about {SECRET}"}, {"id": 2, "_note": SECRET}],
}

PROGRAMS = [
    "ctx/_token",
    "ctx/_pin",
    "ctx/user",
    "ctx/rows",
    "(:_token ctx/user)",
    "(+ 1 ctx/_token)",
    "(+ :x ctx/_pin)",
    "(nth ctx/_token ctx/_pin)",
    "(ctx/_token 1)",
    "(call ctx/_token {})",
    '(str "a" ctx/_token "b")',
    "(str ctx/user)",
    "(pr-str ctx/rows)",
    '(join "," (map :_note ctx/rows))',
    "{:shown ctx/_token}",
    "{:shown {:deep [ctx/_pin]}}",
    "{ctx/_token 1}",
    "#{ctx/_token}",
    "{:_kept (str ctx/_token ctx/_token)}",
    "ctx/_kept",
    "(get-in ctx/user [:_deep 0 :x])",
    "(map :_note ctx/rows)",
    "(group-by :_note ctx/rows)",
    '(call "echo" {:text ctx/_token})',
    '(call "echo" {:text ctx/user})',
    '(call "raise" {:text ctx/_token})',
    '(call "private")',
    "(:_secret ctx/private)",
    '(call "child")',
    '(call "broken_child")',
    "(memory/put :_m ctx/_token)",
    "memory/_m",
    "(memory/put :m ctx/_token)",
    "memory/m",
    '(call "return" {:n ctx/_token})',
    '(call "return" {:n {:_t ctx/_token :u ctx/_pin}})',
    '(call "nothing" {:a ctx/_token})',
    '(call "typed" {:n ctx/_token})',
    "(parse-long ctx/_token)",
    "(subs ctx/_token ctx/_token)",
    "(let [{:keys [_token]} ctx/user] (/ _token 2))",
    "(zipmap [ctx/_token] [1])",
    "(assoc ctx/user :copy ctx/_token)",
    "(reduce (fn [a b] (+ a b)) ctx/_token [1])",
]


def raising(text):
    raise ValueError(f"cannot use {text!r}")


def child():
    return delegate(
        "Inner.", llm=Scripted([code('(call "return" {:n 1 :_inner ctx/_own})')]), context={"_own": SECRET + "-INNER"}
    ).unwrap()


def broken_child():
    program = '(call "fail" {:reason :bad :message (str "no: " ctx/_own)})'
    return delegate("Inner.", llm=Scripted([code(program)]), context={"_own": "INNER-" + SECRET}).unwrap()


TOOLS = {
    "echo": lambda args: args["text"],
    "raise": lambda args: raising(args["text"]),
    "private": lambda: {"private": {"_secret": "other-" + SECRET}},
    "child": child,
    "broken_child": broken_child,
    "typed": (lambda args: 1, "(n :int) -> :int"),
}

PROMPT = "Use {{_token}} of {{user.name}}: {{user}} {{user._token}} {{#rows}}{{id}}{{_note}}{{/rows}}."


def leaked(programs: list[str]) -> list[str]:
    llm = Scripted([*map(code, programs), "no program here", code(RETURN_1)])
    delegate(
        PROMPT,
        llm=llm,
        context=CONTEXT,
        tools=TOOLS,
        signature="{n :int}",
        max_turns=60,
        context_signature="{_pin :int}",
    )
    ours = [text for text in llm.texts if not text.startswith("```")]
    assert len(llm.requests) > len(programs) // 3
    return [text for text in ours if "S3CR3T" in text or str(NUMBER) in text]


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_program_brings_a_firewalled_value_before_the_model(program):
    assert leaked([program]) == []


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.sampled_from(PROGRAMS), min_size=1, max_size=8))
def test_no_sequence_of_programs_does_either(programs):
    assert leaked(programs) == []


def test_the_program_has_what_the_model_has_not():
    llm = Scripted([code('(call "return" {:t ctx/_token :n (count ctx/_token)})')])
    step = delegate("Use {{_token}}.", llm=llm, context=CONTEXT)
    assert step.value == {"t": SECRET, "n": len(SECRET)}
    assert llm.requests[0]["messages"][0]["content"] == f"Use {HIDDEN}."
    assert f"`ctx/_token` :string {HIDDEN}" in llm.requests[0]["system"]
