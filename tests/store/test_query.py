"""What a person types is found where it stands, and is never an error of the index's language."""

import sqlite3

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyagentd.errors import BadRequest
from pyagentd.store.db.projection import parse, segment

FOUND = [
    ("zeppelin", "The Zeppelin flies", "Zeppelin"),
    ("zepp", "The Zeppelin flies", "Zepp"),
    ("flies zepp", "The Zeppelin flies", "Zepp"),
    ("uber", "nur Über alles", "Über"),
    ("über", "nur uber alles", "uber"),
    ("u\u0308ber", "nur über alles", "über"),
    ("naïve", "a nai\u0308ve one", "nai\u0308ve"),
    ('"big red"', "a big, red one", "big, red"),
    ("foo.bar(x)", "call foo.bar(x) now", "foo.bar(x"),
    ("/etc/passwd", "cat /etc/passwd", "etc/passwd"),
    ("snake_case", "a snake_case name", "snake_case"),
    ("case", "a snake_case name", "case"),
    ("--force", "git push --force", "force"),
    ("C++", "in C++ it is", "C"),
    ("東京", "私は東京に住む", "東京"),
    ("京に住", "私は東京に住む", "京に住"),
    ("ไทย", "ภาษาไทยง่าย", "ไทย"),
    ("학교", "학교에서 공부", "학교"),
    ("Tokyo東京", "in Tokyo東京 now", "Tokyo東京"),
    ("a OR b NEAR c NOT d", "a or b near c not d", "a"),
    ("привет", "ПРИВЕТ мир", "ПРИВЕТ"),
    ("zeppelin -balloon", "zeppelin only", "zeppelin"),
    ('-"hot air" zeppelin', "zeppelin, air hot", "zeppelin"),
    ('one"two three"', "one then two three", "one"),
    ("half \ud800 pair", "a half pair", "half"),
    ("nul\0byte", "nul byte", "nul"),
]
NOT_FOUND = [
    ("zepp flies", "The Zeppelin flies"),
    ('"red big"', "a big, red one"),
    ('"zepp"', "The Zeppelin flies"),
    ("zeppelin -flies", "The Zeppelin flies"),
    ("bar.foo", "foo.bar(x)"),
    ("京東", "東京"),
    ("a", "about: one letter is no beginning"),
]


def matches(query, text):
    db = sqlite3.connect(":memory:")
    try:
        db.execute("CREATE VIRTUAL TABLE t USING fts5 (x, content = '', tokenize = 'unicode61 remove_diacritics 2')")
        db.execute("INSERT INTO t (rowid, x) VALUES (1, ?)", (segment(text),))
        return bool(db.execute("SELECT rowid FROM t WHERE t MATCH ?", (query.expression,)).fetchall())
    finally:
        db.close()


@pytest.mark.parametrize(("query", "text", "shown"), FOUND)
def test_a_query_finds_and_shows(query, text, shown):
    parsed = parse(query)
    assert matches(parsed, text)
    preview, spans = parsed.finder().preview(text)
    assert preview == text
    assert shown in [preview[start:end] for start, end in spans]


@pytest.mark.parametrize(("query", "text"), NOT_FOUND)
def test_a_query_does_not_find(query, text):
    assert not matches(parse(query), text)


@pytest.mark.parametrize("query", ["", " ", '""', "-", "-word", '-"a phrase" -b', "* ( ) :", "…", '"'])
def test_a_query_without_words_is_refused(query):
    with pytest.raises(BadRequest, match="no word"):
        parse(query)


syntax = st.sampled_from(
    ['"', "-", "*", "(", ")", "NEAR(", "AND", "OR", "NOT", "^", ":", "+", "{x}", "'", " ", "a", "\0"]
)


@given(st.lists(syntax | st.text(max_size=5), max_size=12).map("".join), st.text(max_size=50))
@example('"' * 99 + "a", "a")
@example("a " * 1000, "a")
def test_no_query_is_an_error_of_the_index(query, text):
    try:
        parsed = parse(query)
    except BadRequest:
        return
    matches(parsed, text)


words = st.sampled_from(["zeppelin", "Über", "foo_bar", "東京", "x1", "ไทย", "naïve", "Ça", "it's", "a.b"])


@given(st.lists(words, min_size=1, max_size=8), st.data())
def test_what_stands_in_a_text_is_found_in_it_and_shown(parts, data):
    text = " ".join(parts)
    start = data.draw(st.integers(0, len(parts) - 1))
    phrase = " ".join(parts[start : start + data.draw(st.integers(1, 3))])
    query = parse(f'"{phrase}"')
    assert matches(query, text)
    preview, spans = query.finder().preview(text)
    assert any(preview[a:b] for a, b in spans)


def test_a_preview_is_one_line_around_the_first_match():
    text = "\n".join(["before"] * 200 + ["the zeppelin\tflies"] + ["after"] * 200)
    preview, ((start, end),) = parse("zeppelin").finder().preview(text)
    assert preview[start:end] == "zeppelin" and "the zeppelin flies after" in preview
    assert preview.startswith("…before ") and preview.endswith("…")
    assert 150 <= len(preview) <= 210
    assert parse("absent").finder().preview("short") == ("short", [])
