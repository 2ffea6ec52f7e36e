"""Metadata is read fast where it is as we write it, and always as the YAML library reads it."""

import string
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ruamel.yaml.comments import CommentedMap

from pyagentd.store import yamlfile
from pyagentd.store.yamlfile import Malformed, dump_texts, load_texts

keys = st.sampled_from(["session_id", "created", "null", "yes", "y", "_", "A-b", "é", "1", "<<", "a b"]) | st.text(
    string.ascii_letters + "_-0", min_size=1, max_size=70
)
odd = st.sampled_from(' \t\n"\\:#-\x00\x7f\x85\xa0\u2028\ufeff\ud7ffé😀aZ0')
values = st.text(odd | st.characters(codec="utf-8"))
shown = values.map(lambda text: f'"{text}"') | values
lines = st.builds("{}: {}{}".format, keys, shown, st.sampled_from(["\n", "", " "]))


def slowly(text):
    """What the library makes of a text."""
    try:
        loaded = yamlfile._load(yamlfile.YAML(typ="base", pure=True), text)
    except Malformed as error:
        return str(error)
    if not isinstance(loaded, dict):
        return "no mapping"
    return {key: value for key, value in loaded.items() if isinstance(value, str)}


@given(st.lists(lines, max_size=4).map("".join))
@example('a: "1"\na: "2"\n')
@example("")
@example('a: "x"\nb: [1]\n')
def test_both_ways_of_reading_agree(text):
    expected = slowly(text)
    if isinstance(expected, str):
        with pytest.raises(Malformed):
            load_texts(text)
    else:
        assert load_texts(text) == expected


@given(st.dictionaries(st.text(string.ascii_lowercase + "_", min_size=1, max_size=10), values, min_size=1))
def test_what_is_written_is_read(texts):
    try:
        written = dump_texts(texts)
    except Exception:  # a character that YAML does not have
        return
    expected = slowly(written)
    if isinstance(expected, dict):
        assert load_texts(written) == expected


@given(st.dictionaries(st.sampled_from(["id", "true", "No", "- a", "_", "x" * 70]) | st.text(max_size=4), values))
@example({"id": "plain", "null": "word"})
@example({"id": "x" * 300})
def test_both_ways_of_writing_agree(texts):
    quoted = CommentedMap({key: yamlfile.quoted_text(value) for key, value in texts.items()})
    try:
        expected = yamlfile.dump(quoted)
    except Exception:  # a character that YAML does not have
        return
    assert dump_texts(texts) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: " + "[" * 4_000, "nested deeper than 100"),
        ("a: " + "{b: " * 200 + "}" * 200, "nested deeper than 100"),
        ("a: " + "- " * 3_000 + "x", "nested too deeply|not allowed"),
        ("[" * 50_000, "5,000 lines, commas and brackets"),
        ("a: x\n" * 6_000, "5,000 lines, commas and brackets"),
        ("a: " + "x" * 200_000, "100,000 characters"),
        ("a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 9}]\n" for n in range(1, 3)), "10 aliases"),
    ],
)
@pytest.mark.parametrize("read", [yamlfile.load, yamlfile.load_texts])
def test_what_would_take_long_to_read_is_refused_before(
    read: Callable[[str], object], text: str, problem: str
) -> None:
    with pytest.raises(yamlfile.Malformed, match=problem):
        read(text)


@pytest.mark.parametrize("value", ["!!bool maybe", "!!omap 3", '!!int ""', "!!int x", "2026-13-45"])
def test_a_value_that_is_not_what_its_tag_says_is_malformed_with_its_line(value: str) -> None:
    with pytest.raises(Malformed) as caught:
        yamlfile.load(f"a: 1\nb:\n  c: {value}\n")
    assert caught.value.line == 3
