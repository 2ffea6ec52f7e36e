"""Which options prose offers; a table, since the rules are about words."""

from __future__ import annotations

from typing import Any

import pytest

from pyagentd.features.suggestions import NONE, parse_options
from tests.runtime.test_approvals import talking
from tests.runtime.world import World
from tests.server import answer, tool_use

PICKS = (
    "When the agent asks me to pick from options (and I may add free-text follow-up), how does the pick come back?"
)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        # A list after a question.
        ("Which one?\n\n1. Postgres\n2. SQLite", ["Postgres", "SQLite"]),
        ("I looked.\n\nWhich database shall I use?\n- Postgres\n- SQLite\n- None at all", None),
        ("How shall I go on?\n\na) Fix it now\nb) Open an issue", ["Fix it now", "Open an issue"]),
        ("Where to?\n\nA. North\nB. South.", ["North", "South"]),
        ("Choose one of:\n\n* `red`\n* **green**", ["red", "green"]),
        ("What next?\n\n(1) Tests\n(2) Docs", ["Tests", "Docs"]),
        ("What next?\n\n1. Tests\n\n2. Docs\n", ["Tests", "Docs"]),
        ("What next?\n\n1. Tests\n   more about tests\n2. Docs\n   - a detail", ["Tests", "Docs"]),
        # Bold names are the option; what follows describes it.
        ("Which?\n\n1. **Fast** — but it forgets\n2. **Safe**: slower", ["Fast", "Safe"]),
        # A list before a question that lets choose.
        ("I see two ways.\n\n1. Rewrite\n2. Patch\n\nWhich do you prefer?", ["Rewrite", "Patch"]),
        ("Options:\n- Rewrite\n- Patch\n\nPick one, or tell me more?", ["Rewrite", "Patch"]),
        # A sentence.
        ("Shall I use tabs or spaces?", ["Use tabs", "Spaces"]),
        ("It works. Do you want me to commit, push or stop?", ["Commit", "Push", "Stop"]),
        ("Which database: Postgres, MySQL, or SQLite?", ["Postgres", "MySQL", "SQLite"]),
        ("Would you like a plan or should I start?", ["A plan", "Start"]),
        ("Yes or no?", ["Yes", "No"]),
        ("Is it **red** or `blue`?", ["Red", "Blue"]),
        # Nothing is offered.
        ("Done.", []),
        ("", []),
        ("Shall I go on?", []),
        ("Here is what I did:\n\n1. Read it\n2. Changed it", []),
        ("Here is what I did:\n\n1. Read it\n2. Changed it\n\nShall I go on?", []),
        ("I did this:\n- one\n- two\n\nAnything else?", []),
        ("Which?\n\n1. Only this", []),
        ("Which?\n" + "\n".join(f"{n}. Way {n}" for n in range(1, 12)), []),
        ("Which?\n\n1. Same\n2. Same", []),
        ("Is it done or not?", []),
        ("Tea or coffee. I like both.", []),
        ("Do you think that the whole system should be rewritten from scratch some day or that it may stay?", []),
        ("Which is it?\n\n```\n1. a\n2. b\n```", []),
        ("Which?\n\n1. a\n2. b\n\nI have begun with the first.", []),
        ("What does `a or b` mean in this program that you showed me", []),
    ],
)
def test_offered(text: str, options: list[str] | None) -> None:
    wanted = ["Postgres", "SQLite", "None at all"] if options is None else options
    assert [chip["text"] for chip in parse_options(text)["options"]] == wanted


@pytest.mark.parametrize(
    "text",
    [
        " ".join(f"word{number:05}" for number in range(50_000)),
        "[" * 300_000 + "?",
        "a. " * 100_000 + "?",
        "Which?\n- a\n- **" + "b" * 300_000,
        "```\n" * 50_000 + "Which?",
        "\n" * 300_000 + "- a",
    ],
    ids=["one paragraph", "brackets", "stops", "an endless item", "fences", "empty lines"],
)
def test_an_answer_of_any_length_is_looked_through_at_once(text: str) -> None:
    assert len(parse_options(text)["options"]) in (0, 2)


def test_code_long_before_the_question_is_no_option() -> None:
    code = "```\nWhich?\n- a\n- b\n"
    assert parse_options(code + "line\n" * 5_000) == NONE
    assert len(parse_options(code + "line\n" * 5_000 + "```\nWhich?\n- c\n- d")["options"]) == 2


def test_a_button_is_short_and_says_the_name_of_an_option() -> None:
    (first, second) = parse_options(f"Which?\n\n1. Rewrite it - {'slow ' * 10}\n2. {'word ' * 30}")["options"]
    assert first["label"] == "Rewrite it" and first["text"].startswith("Rewrite it - slow slow")
    assert len(second["label"]) <= 60 and second["label"].endswith("…")


@pytest.mark.parametrize(
    ("question", "several"), [("Which ones shall I fix?", True), ("Select all that apply:", True), ("Which?", False)]
)
def test_several(question: str, several: bool) -> None:
    assert parse_options(f"{question}\n\n- a bug\n- another")["several"] is several


@pytest.mark.spec("002", PICKS)
async def test_clients_are_told_at_the_end_of_a_run_and_a_pick_is_a_message(world: World) -> None:
    def last() -> Any:
        return talk.watcher.of("reply-options", talk.branch.key)[-1].args[0]

    async with talking(world, world.service()) as talk:
        await talk.say("Which one?\n\n1. Postgres\n2. SQLite")
        await talk.watcher.until(lambda: talk.watcher.of("reply-options", talk.branch.key))
        assert [option["text"] for option in last()["options"]] == ["Postgres", "SQLite"]
        talk.watcher.events.clear()
        await talk.say("As you like.", text="SQLite\n\nbut in memory")
        await talk.watcher.finished(talk.branch)
        users = [m.text for m in talk.branch.conversation.messages.values() if m.role == "user"]
        assert users == ["Go.", "SQLite\n\nbut in memory"] and len(world.server.requests) == 2


async def test_who_attaches_later_is_told_what_the_last_answer_offers(world: World) -> None:
    from pyagentd.features import suggestions

    async with talking(world, world.service()) as talk:
        await talk.say(answer("Hm.", tool_use("Glob", pattern="*")), "Tea or coffee?")
        await talk.watcher.until(lambda: talk.watcher.of("reply-options", talk.branch.key))
        talk.watcher.events.clear()
        assert [chip["text"] for chip in suggestions.current_options(talk.branch.conversation)["options"]] == [
            "Tea",
            "Coffee",
        ]
        await talk.say("Fine.", text="Tea")
        assert suggestions.current_options(talk.branch.conversation) == NONE
        await talk.watcher.finished(talk.branch)
