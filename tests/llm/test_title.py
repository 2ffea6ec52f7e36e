"""Asking for a title, and making one line of whatever comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd.llm.offline import offline_backend
from pyagentd.llm.prompts import LONGEST, sanitise_title, title_request
from tests.llm.requests import collect, said


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("Fix the parser", "Fix the parser"),
        ('"Title: Fix the `parser`."', "Fix the parser"),
        ("**Title:** “React refactoring”\nmore", "React refactoring"),
        ("# **Hello World**", "Hello World"),
        ("\n\n  Second   line\t\n", "Second line"),
        ("a\x1b[31mb\u202ec\x00", "a [31mb c"),
        ("1. First [thing](http://x.invalid)", "First thing"),
        ("_A mood_", "A mood"),
        ("__init__ files", "__init__ files"),
        ("C'est la vie?", "C'est la vie?"),
        ("call `\t` it", "call it"),
        ("👩\u200d🚀 in space", "👩\u200d🚀 in space"),
        ("word " * 30, "word " * 11 + "word"),
        ("x" * 100, "x" * 60),
        ("", ""),
        (" \n\t\n", ""),
        ("Title:", ""),
        ("...", ""),
    ],
)
def test_an_answer_becomes_one_plain_line_or_nothing(answer: str, title: str) -> None:
    assert sanitise_title(answer) == title


@given(st.text(max_size=300))
def test_no_answer_makes_a_title_that_a_list_cannot_show(answer: str) -> None:
    title = sanitise_title(answer)
    assert len(title) <= LONGEST
    assert title == title.strip() and len(title.splitlines()) <= 1
    assert not any(ord(c) < 32 for c in title)
    assert sanitise_title(title) == title


async def test_the_offline_stand_in_names_a_conversation_after_its_prompt() -> None:
    backend = offline_backend(pace_s=0.0)
    prompt = "please read presets/*.md with Glob and tell me what the presets are for."
    answer = said(await collect(backend, title_request("offline", prompt, "They are…")))
    assert answer == "Please read presets/*.md with Glob and tell"
    await backend.close()
