"""Where a program is found in an answer, and where none is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd.mission.response import parse

ADD = "(+ 1 2)"


@pytest.mark.parametrize(
    ("said", "program"),
    [
        (f"```clojure\n{ADD}\n```", ADD),
        (f"```lisp\n{ADD}\n```", ADD),
        (f"```clj\n{ADD}\n```", ADD),
        (f"```Clojure\n{ADD}\n```", ADD),
        (f"```CLOJURE\n{ADD}\n```", ADD),
        (f"```ptc-lisp\n{ADD}\n```", ADD),
        (f"```clojure  \n{ADD}\n```", ADD),
        (f"``` clojure\n{ADD}\n```", ADD),
        (f"```\n{ADD}\n```", ADD),
        (f"~~~clojure\n{ADD}\n~~~", ADD),
        (f"````clojure\n{ADD}\n````", ADD),
        (f"```clojure\r\n{ADD}\r\n```\r\n", ADD),
        (f"  ```clojure\n  {ADD}\n  ```", ADD),
        (f"```clojure {ADD}```", ADD),
        (f"```clojure\n{ADD}```", ADD),
        (f"```clojure\n{ADD}", ADD),
        (f"First I add.\n\n```clojure\n{ADD}\n```\n\nThat is it.", ADD),
        ("```clojure\nctx/orders\n```", "ctx/orders"),
        ("```clojure\n; nothing but\n(f) ; code\n```", "; nothing but\n(f) ; code"),
        ("```\n; first\n(f)\n```", "; first\n(f)"),
        (f"```json\n{{}}\n```\n```clojure\n{ADD}\n```", ADD),
        (f"```clojure\n{ADD}\n```\nwhich gives\n```\n(3)\n```", ADD),
        ("```clojure\n(f)\n```\n```lisp\n(g)\n```", "(do\n(f)\n(g)\n)"),
        ("```clojure\n(f) ; last\n```\n```clj\n(g)\n```", "(do\n(f) ; last\n(g)\n)"),
        ("```\n(f)\n```\n```\n(g)\n```", "(do\n(f)\n(g)\n)"),
        ("```clojure\n(f)\n(g)\n```", "(f)\n(g)"),
        (ADD, ADD),
        (f"  \n{ADD}\n", ADD),
        (f"{ADD}\n\nThis adds (as asked).", ADD),
        ("(f)\n(g)\nDone.", "(f)\n(g)"),
        ('(f ")" ; )\n)\nDone.', '(f ")" ; )\n)'),
        ("(f (g)", "(f (g)"),
        ("(call “search” {:q “a b”})", '(call "search" {:q "a b"})'),
        ('(f "he said “hi”")', '(f "he said “hi”")'),
        ('(f "\N{MAN}\u200d\N{WOMAN}")', '(f "\N{MAN}\u200d\N{WOMAN}")'),
        ("(f\u00a0\u200b1)", "(f 1)"),
        ('```clojure\n(call "return" {:md "```\\n```"})\n```', '(call "return" {:md "```\\n```"})'),
        ('```clojure\n(return "a\n```\nb")\n```', '(return "a\n```\nb")'),
        ('```clojure\n(return "a)\n```\nprose', '(return "a)'),
        (f"<think>maybe ```clojure\n(wrong)\n```</think>\n```clojure\n{ADD}\n```", ADD),
        (f"<thinking>(wrong)</thinking>{ADD}", ADD),
    ],
)
@pytest.mark.spec("004", "LLM Response Parsing Rules")
def test_a_program_is_found(said, program):
    assert parse(said).program == program


@pytest.mark.parametrize(
    "said",
    [
        "",
        "   ",
        "The answer is 3.",
        "The answer (3) is clear.",
        "```clojure\n```",
        "```clojure\n\n```",
        "```clojure\n; only a remark\n```",
        '```json\n{"a": 1}\n```',
        "```python\n(1, 2)\n```",
        "```\nplain text\n```",
        "<think>(wrong)</think> I am not sure.",
    ],
)
def test_no_program_is_found(said):
    assert parse(said).program is None


def test_what_is_said_around_the_program_is_kept():
    response = parse("<think>Hm.</think>Adding.\n```clojure\n(+ 1 2)\n```\nDone.")
    assert response.reasoning == "<think>Hm.</think>Adding.\n\nDone."
    assert parse("(+ 1 2) is it.").reasoning == "is it."
    assert parse("Nothing.").reasoning == "Nothing."


@given(st.text(st.sampled_from('`~\n\r ()[]{}";\\abc“”cljoure<think>/'), max_size=60))
def test_whatever_is_said_can_be_taken_apart(said):
    response = parse(said)
    assert response.program is None or response.program


def test_a_model_that_repeats_itself_is_read_in_linear_time():
    blocks = parse('```clojure\n(f "a" "b")\n```\n' * 5_000)
    assert blocks.blocks == 5_000
    fences = parse('```clojure\n(f "' + "\n```\n" * 5_000 + '" "x")\n```')
    assert fences.blocks == 1 and fences.program.endswith('"x")')
    assert parse("```\n" * 100_000).program is None


@pytest.mark.parametrize("text", [";; Step 1\n(def x 1)\n\n;; Step 2\n(+ x 1)", "; look\n(+ 1 2)"])
def test_a_bare_answer_may_begin_with_a_comment(text):
    assert parse(text).program == text


def test_a_fence_behind_text_on_its_line_opens_a_program() -> None:
    found = parse("Here it is: ```clojure\n(return 1)\n```\nThat is all.")
    assert (found.program, found.reasoning.splitlines()[0]) == ("(return 1)", "Here it is:")
    assert parse("It is not `code` ```text\n(return 1)\n```").program is None
