"""Questions: shown where somebody looks, answered once."""

from __future__ import annotations

import json
import re

import pytest

from pyagentd.errors import NotFound, StoreError
from pyagentd.events import Event
from pyagentd.runtime.approvals import Answer, Ask, AskBoard, agent_words, client_fields, lines_of


def board() -> tuple[AskBoard, list[Event]]:
    told: list[Event] = []
    return AskBoard(told.append), told


def post(asks: AskBoard, ask_id: str, run: str = "run_1", branches: tuple[str, ...] = ("child", "root")) -> Ask:
    return asks.post(seq=7, run_id=run, branches=branches, row={"id": ask_id})


async def test_an_ask_is_shown_on_its_branch_and_on_the_root_of_the_tree() -> None:
    asks, told = board()
    post(asks, "ask_1")
    assert [(event.kind, event.branch, event.seq) for event in told] == [("ask", "child", 7), ("ask", "root", 0)]
    assert asks.open_for("root") == asks.open_for("child") == asks.all()
    assert [row["id"] for row in asks.all()] == ["ask_1"]


async def test_the_answer_reaches_who_waits_and_everybody_is_told() -> None:
    asks, told = board()
    ask = post(asks, "ask_1")
    assert asks.answer("ask_1", Answer(decision="deny", reason="no", by="Emacs"))
    assert await ask.future == Answer(decision="deny", reason="no", by="Emacs")
    answered = [event for event in told if event.kind == "answered"]
    assert [event.branch for event in answered] == ["child", "root"]
    assert answered[0].args == ({"id": "ask_1", "decision": "deny", "by": "Emacs"},)
    assert asks.all() == []


async def test_only_the_first_answer_counts() -> None:
    asks, _ = board()
    ask = post(asks, "ask_1")
    asks.answer("ask_1", Answer(decision="allow"))
    with pytest.raises(NotFound, match="answered already: allow"):
        asks.answer("ask_1", Answer(decision="deny"))
    assert (await ask.future).decision == "allow"


async def test_asks_are_answered_in_any_order() -> None:
    asks, _ = board()
    first, second = post(asks, "ask_1"), post(asks, "ask_2")
    asks.answer("ask_2", Answer(decision="allow"))
    assert not first.future.done() and second.future.done()


async def test_aborting_a_run_answers_all_its_asks_and_no_others() -> None:
    asks, _ = board()
    mine, other = post(asks, "ask_1"), post(asks, "ask_2", run="run_2")
    asks.abort_run("run_1")
    assert (await mine.future).decision == "abort"
    assert not other.future.done()


async def test_who_answers_an_ask_of_a_run_that_was_stopped_is_told_so() -> None:
    asks, _ = board()
    post(asks, "ask_1")
    asks.abort_run("run_1")
    with pytest.raises(NotFound, match="was stopped"):
        asks.answer("ask_1", Answer(decision="allow"))


async def test_an_answer_is_recorded_before_anybody_learns_of_it() -> None:
    asks, told = board()
    order: list[str] = []
    ask = asks.post(
        seq=1,
        run_id="run_1",
        branches=("root",),
        row={"id": "ask_1"},
        record=lambda answer: order.append(f"{answer.decision} {ask.future.done()} {len(told)}"),
    )
    asks.answer("ask_1", Answer(decision="allow"))
    assert order == ["allow False 1"]


async def test_an_answer_that_cannot_be_recorded_is_an_error_of_the_run() -> None:
    def full(answer: Answer) -> None:
        raise StoreError("no space left")

    asks, _ = board()
    ask = asks.post(seq=1, run_id="run_1", branches=("root",), row={"id": "ask_1"}, record=full)
    asks.answer("ask_1", Answer(decision="allow"))
    with pytest.raises(StoreError):
        await ask.future


async def test_asks_of_a_run_that_is_left_are_open_for_nobody_and_not_settled() -> None:
    asks, told = board()
    ask = post(asks, "ask_1")
    asks.leave_run("run_1")
    assert ask.future.cancelled() and asks.all() == []
    assert not [event for event in told if event.kind == "answered"]


# What a human is shown of a question.

COMMAND = {
    "id": "ask_1",
    "tool": "Bash",
    "kind": "tool",
    "detail": "ls",
    "reason": "confirm",
    "choices": ["allow", "session", "always", "deny", "abort"],
    "commands": ["ls"],
    "input": '{"command":"ls"}',
}
SCOPE = {
    **COMMAND,
    "tool": "request_scope_expansion",
    "kind": "scope",
    "for_tool": "Read",
    "patterns": ["/a/**", "/b/*.log"],
    "commands": [],
    "choices": ["allow", "always", "deny", "abort"],
    "input": '{"tool_name":"Read","justification":"the log says why"}',
}
QUESTIONS = {
    "id": "ask_2",
    "tool": "question",
    "kind": "question",
    "detail": "Which database? (and 1 more)",
    "choices": ["answer", "deny", "abort"],
    "questions": [
        {
            "question": "Which database?",
            "options": [
                {"label": "Postgres", "description": "100% a server"},
                {"label": "SQLite", "description": ""},
            ],
            "multi_select": False,
        },
        {"question": "What else?", "options": [{"label": "Types", "description": ""}], "multi_select": True},
    ],
}


def printed(ask: dict, width: int | None = 160) -> list[str]:
    """Return the lines of a question as text; that with a preview is several, and ends with what is left out."""
    found = []
    row = ask if ask.get("kind") == "question" else {**COMMAND, **ask}
    for line in lines_of(row, width=width):
        found += "".join(part if isinstance(part, str) else part.text for part in line.parts).split("\n")
        found += [f"+{part.more}" for part in line.parts if not isinstance(part, str) and part.more]
    return found


@pytest.mark.parametrize(
    ("ask", "lines"),
    [
        ({}, ["Allow Bash ls?"]),
        ({"detail": "rm -rf\nbuild", "commands": []},
         ["Allow Bash rm -rf build?", "rm -rf", "build"]),
        ({"detail": "git log | head", "commands": ["git log", "head"]},
         ["Allow Bash git log | head?", "  runs  git log", "        head"]),
        ({"agent": "explorer-20260205143052-look-around"}, ["explorer (look-around) › Allow Bash ls?"]),
        ({"tool": "Edit", "detail": "/src/a.py", "path": "/src/a.py", "project": "/src", "commands": [],
          "warning": "runs with your rights\n"}, ["Allow Edit a.py?", "runs with your rights"]),
        ({"tool": "PersistentAgent", "detail": "explorer", "commands": [],
          "input": '{"description":"Look around"}'}, ["Allow PersistentAgent explorer: Look around?"]),
        (SCOPE,
         ["Allow more scope: /a/** /b/*.log?", "  Read  /a/**", "        /b/*.log", "  why  the log says why"]),
        ({**SCOPE, "for_tool": "Bash", "patterns": ["make"], "commands": ["make -C /a all"]},
         ["Allow more scope: make?", "  Bash  make", "  why  the log says why", "  runs  make -C /a all"]),
        ({**SCOPE, "patterns": ["make"], "commands": ["make"]},
         ["Allow more scope: make?", "  Read  make", "  why  the log says why"]),
        (QUESTIONS, ["Question Which database? (and 1 more)", "Which database?", "    ( ) Postgres  100% a server",
                     "    ( ) SQLite", "What else?", "    [ ] Types"]),
        ({**QUESTIONS, "questions": QUESTIONS["questions"][:1]},
         ["Question Which database? (and 1 more)", "    ( ) Postgres  100% a server", "    ( ) SQLite"]),
        ({"input": "no JSON"}, ["Allow Bash ls?"]),
    ],
)  # fmt: skip
def test_a_question_is_shown_with_what_decides_about_it(ask: dict, lines: list[str]) -> None:
    assert printed(ask) == lines


def test_no_end_of_a_command_is_out_of_sight() -> None:
    command = f'ls "$HOME" {"a" * 200}; rm -rf "$HOME"'
    head, *whole = printed({"detail": command, "commands": []})
    assert head.endswith("…?") and "rm -rf" not in head
    assert "".join(whole) == command
    assert printed({"detail": "x\n" * 100, "commands": []})[-2:] == ["x", "+76"]
    given = '{"command": "ls ' + "a" * 300 + '; rm -rf b"}'  # of a server's tool
    assert "".join(printed({"tool": "run", "detail": given[:200], "commands": [], "preview": given})[1:]) == given
    url = f"https://example.org/?{'q' * 300}&secret"
    assert printed({"tool": "WebFetch", "detail": url, "commands": []})[-1].endswith("&secret")


def test_a_long_preview_is_cut_and_says_by_how_much_and_the_details_have_all_of_it() -> None:
    ask = {"preview": "\n".join(map(str, range(1000)))}
    assert printed(ask)[-2:] == ["23", "+976"]
    assert printed(ask, None)[-1] == "999"
    wide = {"preview": "x" * 500, "commands": ["y" * 500] * 20}
    assert max(map(len, printed(wide))) <= 168 and "  … 8 more lines" in printed(wide)


def test_nothing_in_a_question_hides_or_reorders_what_it_says() -> None:
    odd, seen = "a\u202etxt\u2066b\u200b\x1b[2K", "a\\u202etxt\\u2066b\\u200b\\x1b[2K"
    given = json.dumps({"justification": odd, "description": odd}, ensure_ascii=False)
    words = {"reason": odd, "warning": odd, "covers": [odd], "allows": {"session": odd}, "input": given}
    for ask in (
        {**COMMAND, **words, "detail": odd, "commands": [odd, "b"], "preview": f"--- {odd}\n+++ {odd}\n+{odd}"},
        {**COMMAND, **words, "tool": "Write", "detail": f"/p{odd}/{odd}", "path": odd, "project": f"/p{odd}"},
        {**COMMAND, **words, "tool": "task"},
        {**SCOPE, **words, "patterns": [odd, "b"]},
        {**QUESTIONS, "detail": odd, "questions": [{"question": odd, "options": [{"label": odd}]}]},
    ):
        told = client_fields(ask)
        said = json.dumps(told, ensure_ascii=False) + str([line.to_wire() for line in lines_of(ask, width=None)])
        assert not re.search("[\u202e\u2066\u200b\x1b]", said) and json.dumps(seen)[1:-1] in said
        assert told["lines"]
    assert client_fields({**COMMAND, "detail": "echo 👩\u200d💻 שלום"})["what"].endswith("echo 👩\u200d💻 שלום")


def test_a_change_is_told_as_a_diff() -> None:
    *_, line = lines_of({**COMMAND, "preview": "--- /x\n+++ /x\n@@ -1 +1 @@\n-a\n+b\n"})
    assert [(part.face, part.text.count("\n")) for part in line.parts] == [("diff", 4)]


@pytest.mark.parametrize(
    ("ask", "keys"),
    [
        ({}, "yspenrko"),
        ({"preview": "--- a\n+++ a"}, "yspenrkdEo"),
        ({"input": None}, "yspnrko"),
        ({"choices": ["allow", "deny", "abort"]}, "yenrko"),
        ({"choices": None}, "yenrko"),
        (SCOPE, "ypnrko"),
        (QUESTIONS, ""),
    ],
)
def test_a_question_has_the_letters_of_the_answers_that_the_daemon_takes(ask: dict, keys: str) -> None:
    rows = client_fields({**COMMAND, **ask})["keys"]
    assert "".join(key["key"] for row in rows for key in row["keys"]) == keys


def test_letters_say_what_they_do() -> None:
    labels = {key["key"]: key["label"] for row in client_fields(SCOPE)["keys"] for key in row["keys"]}
    assert (labels["p"], labels["k"]) == ("add to the scope", "abort the run")
    assert "abort this agent" in str(client_fields({**COMMAND, "agent": "explorer"})["keys"])


@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("explorer-20260205143052-look-around", "explorer (look-around)"),
        ("general-purpose-20260205143052-x-2", "general-purpose (x-2)"),
        ("explorer-20260205143052", "explorer"),
        ("odd", "odd"),
    ],
)
def test_agents_have_names_for_people(id: str, words: str) -> None:
    assert agent_words(id) == words


@pytest.mark.parametrize(
    "row",
    [{"agent": 1}, {"commands": [1]}, {"questions": [{}, {}]}, {"patterns": 7, "kind": "scope"}],
)
def test_a_row_of_a_log_from_elsewhere_breaks_nothing(row: dict) -> None:
    assert client_fields({**COMMAND, **row})["what"] == "Question"


def test_arguments_that_are_nested_too_deeply_are_passed_over() -> None:
    assert client_fields({**COMMAND, "input": "[" * 100_000})["what"] == client_fields(COMMAND)["what"]
