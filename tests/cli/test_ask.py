"""A question on the terminal, and what counts as an answer."""

import fcntl
import os
import pty
import resource
import sys
from collections.abc import Iterator

import pytest

from pyagentd.cli import follow
from pyagentd.cli.follow import AskPrompt, Decision, Reply, choices, command, parse_answer, parse_reply, whole
from pyagentd.runtime.approvals import client_fields

ASK = {
    "id": "ask_1",
    "branch": "/s/main",
    "tool": "Bash",
    "detail": "make clean",
    "reason": "commands are confirmed",
    "preview": "$ make clean\n$ ls",
}


def question(ask: dict, branch: str) -> str:
    """Return the text of a question as the daemon tells it."""
    return follow.question({**ask, **client_fields(ask)}, branch)


def test_a_question_names_tool_detail_reason_and_preview() -> None:
    assert question(ASK, "/s/main").splitlines() == [
        "Allow Bash make clean?",
        "  | $ make clean",
        "  | $ ls",
        "  Asked because commands are confirmed",
    ]


def test_an_agents_question_says_that_it_is_an_agents() -> None:
    asked = {**ASK, "agent": "explorer-20260205143052-look-around"}
    assert question(asked, "/s/other").startswith("explorer (look-around) › Allow Bash make clean?\n")


def test_a_long_preview_is_cut_and_says_by_how_much() -> None:
    text = question({**ASK, "preview": "\n".join(map(str, range(100)))}, "/s/main")
    assert "  | 23\n  | … 76 more lines; d shows all\n" in text


def test_what_a_question_cuts_off_is_all_shown_by_d(keyboard: int, capsys: pytest.CaptureFixture[str]) -> None:
    change = {**ASK, "preview": f"--- /x\n+++ /x\n@@ -1 +1 @@\n+{'x' * 200}end"}
    long = {**ASK, "preview": "", "commands": [], "detail": f"echo {'x ' * 3000}; rm -rf end"}
    for row, says in ((change, "d shows all of the lines that end with …"), (long, "more lines; d shows all")):
        ask = {**row, **client_fields(row)}
        prompt = AskPrompt()
        prompt.put(ask, "/s/main")
        told = capsys.readouterr().err
        assert says in told and "end\n" not in told
        os.write(keyboard, b"d\n")
        assert prompt.poll(5) is None
        assert "end\n" in capsys.readouterr().err
    assert not whole({**ASK, "preview": "", **client_fields({**ASK, "preview": ""})})


def test_escape_sequences_in_what_the_model_wrote_cannot_rewrite_the_question() -> None:
    text = question({**ASK, "detail": "rm -rf ~\x1b[1A\x1b[2K\recho hi"}, "/s/main")
    assert "rm -rf ~\\x1b[1A\\x1b[2K\\x0decho hi" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("y\n", Reply("allow")),
        ("ALLOW\n", Reply("allow")),
        ("y\n", Reply("allow")),
        ("n\n", Reply("deny")),
        ("deny use the other file\n", Reply("deny", "use the other file")),
        ("k\n", Reply("abort")),
        ("\n", None),
        ("all\n", None),
        ("always\n", None),
    ],
)
def test_only_a_clear_answer_is_an_answer(line: str, reply: Reply | None) -> None:
    assert parse_reply(line) == reply


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The master side of a terminal that is our stdin."""
    master, slave = pty.openpty()
    with os.fdopen(slave, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield master
    os.close(master)


def test_nothing_typed_is_no_reply_and_does_not_block(keyboard: int) -> None:
    assert AskPrompt().poll(0.01) is None


def test_a_typed_line_is_the_reply(keyboard: int) -> None:
    os.write(keyboard, b"n not now\n")
    assert AskPrompt().poll(5) == Reply("deny", "not now")


def test_a_process_may_have_many_files_open(keyboard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if few < 1100:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(1100, most), most))
    high = fcntl.fcntl(sys.stdin.fileno(), fcntl.F_DUPFD_CLOEXEC, 1024)  # more than select() can name
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))
    with os.fdopen(high, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        os.write(keyboard, b"y\n")
        assert AskPrompt().poll(5) == Reply("allow")


def test_an_unclear_line_is_asked_again(keyboard: int, capsys: pytest.CaptureFixture[str]) -> None:
    os.write(keyboard, b"hm\n")
    prompt = AskPrompt()
    assert prompt.poll(5) is None
    assert "y allow once" in capsys.readouterr().err
    os.write(keyboard, b"y\n")
    assert prompt.poll(5) == Reply("allow")


def test_end_of_input_denies(keyboard: int) -> None:
    os.write(keyboard, b"\x04")
    assert AskPrompt().poll(5) == Reply("deny", "no answer: end of input")


FULL = {
    **ASK,
    "detail": "git log; make",
    "preview": "",
    "choices": ["allow", "session", "always", "deny"],
    "commands": ["git log", "make"],
    "remember": ["tool:Bash:git log(?: [^;&|<>()$`\\\\\\n\\r]*)?", "tool:Bash:make"],
    "input": '{"command": "git log; make"}',
    "allows": {
        "session": "From now on, in this session: Bash `git log`.",
        "always": "From now on, in every session of /src: Bash `git log`.",
    },
}
SCOPE = {**ASK, "kind": "scope", "choices": ["allow", "always", "deny"], "input": "{}"}


def test_a_question_shows_every_command_and_exactly_what_would_be_remembered() -> None:
    assert question(FULL, "/s/main").splitlines() == [
        "Allow Bash git log; make?",
        "  runs  git log",
        "        make",
        "  Asked because commands are confirmed",
        "  s and p would allow from now on:",
        "    tool:Bash:git log(?: [^;&|<>()$`\\\\\\n\\r]*)?  Bash `git log` with any arguments",
        "    tool:Bash:make                              Bash `make`, exactly",
    ]


@pytest.mark.parametrize(
    ("ask", "line", "reply"),
    [
        (FULL, "y\n", Reply("allow")),
        (FULL, "n\n", Reply("deny")),
        (FULL, "r use make\n", Reply("deny", "use make")),
        (FULL, "e\n", Reply("edit")),
        (FULL, "k\n", Reply("abort")),
        (FULL, "all\n", None),
        (FULL, "a\n", None),
        (FULL, "d\n", None),
        (SCOPE, "s\n", None),
        (SCOPE, "e\n", None),
        (ASK, "s\n", None),
    ],
)
def test_a_question_takes_the_answers_it_has(
    keyboard: int, capsys: pytest.CaptureFixture[str], ask: dict[str, object], line: str, reply: Reply | None
) -> None:
    prompt = AskPrompt()
    prompt.put(ask, "/s/main")
    shown = capsys.readouterr().err.splitlines()[-1]
    assert ("e edit the arguments" in shown) == (ask is FULL) and shown.endswith("k abort the run: ")
    assert ("add it to the scope" in shown) == (ask is SCOPE)
    os.write(keyboard, line.encode())
    assert prompt.poll(5) == reply


@pytest.mark.parametrize(
    ("ask", "line", "decision", "says"),
    [
        (FULL, "s", "session", "From now on, in this session: Bash `git log`."),
        (FULL, "p", "always", "From now on, in every session of /src: Bash `git log`."),
        (SCOPE, "p", "always", "From now on this is allowed without asking"),
    ],
)
def test_an_answer_that_lasts_says_what_it_allows_and_wants_a_second_key(
    keyboard: int,
    capsys: pytest.CaptureFixture[str],
    ask: dict[str, object],
    line: str,
    decision: Decision,
    says: str,
) -> None:
    prompt = AskPrompt()
    prompt.put(ask, "/s/main")
    for second, reply in (("n", None), ("", None), ("y", Reply(decision))):
        os.write(keyboard, f"{line}\n".encode())
        assert prompt.poll(5) is None
        assert says in capsys.readouterr().err
        os.write(keyboard, f"{second}\n".encode())
        assert prompt.poll(5) == reply


def test_what_was_typed_before_a_question_is_on_the_screen_answers_nothing(keyboard: int) -> None:
    os.write(keyboard, b"y\n")
    prompt = AskPrompt()
    assert prompt.poll(5) == Reply("allow")  # the question that was there
    os.write(keyboard, b"y\ny\n")
    prompt.put(FULL, "/s/main")
    assert prompt.poll(0.01) is None
    os.write(keyboard, b"n\n")
    assert prompt.poll(5) == Reply("deny")


def test_what_is_pasted_decides_nothing(keyboard: int) -> None:
    prompt = AskPrompt()
    prompt.put(FULL, "/s/main")
    os.write(keyboard, b"y\nand more\n")  # by a terminal that does not mark pastes
    assert prompt.poll(5) is None and prompt.poll(0.05) is None
    for line in (b"\x1b[200~y\n", b"y\n", b"y\x1b[201~\n"):
        os.write(keyboard, line)
        assert prompt.poll(5) is None
    os.write(keyboard, b"\x1b[200~y\x1b[201~\n")
    assert prompt.poll(5) is None
    os.write(keyboard, b"n \x1b[200~not now\x1b[201~\n")
    assert prompt.poll(5) == Reply("deny", "not now")


def test_a_paste_that_comes_in_pieces_does_not_take_what_is_typed_after_it(keyboard: int) -> None:
    prompt = AskPrompt()
    prompt.put(FULL, "/s/main")
    os.write(keyboard, b"\x1b[200~y\n")
    assert prompt.poll(5) is None
    os.write(keyboard, b"y\ny\x1b[201~\n")
    assert [prompt.poll(0.1) for _ in range(3)] == [None] * 3
    os.write(keyboard, b"n \x1b[200~since\nit is\x1b[201~\n")  # a reason is one line
    assert [prompt.poll(0.1) for _ in range(3)] == [None] * 3
    os.write(keyboard, b"y\n")
    assert prompt.poll(5) == Reply("allow")


def test_the_terminal_is_told_to_mark_pastes_while_a_question_is_on_the_screen(keyboard: int) -> None:
    controller, screen = pty.openpty()
    with os.fdopen(screen, "w") as stderr, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)
        prompt = AskPrompt()
        prompt.put(ASK, "/s/main")
        prompt.close()
        shown = b""
        while not shown.endswith(b"\x1b[?2004l"):  # a terminal passes it on in pieces
            shown += os.read(controller, 65536)
    os.close(controller)
    assert shown.startswith(b"\x1b[?2004h")


QUESTIONS = {
    "id": "ask_2",
    "branch": "/s/main",
    "kind": "question",
    "choices": ["answer", "deny"],
    "input": None,
    "questions": [
        {
            "question": "Which database?",
            "header": "Database",
            "options": [{"label": "Postgres", "description": "a server"}, {"label": "SQLite", "description": None}],
            "multi_select": None,
        },
        {"question": "What else?", "header": None, "options": None, "multi_select": None},
    ],
}
SEVERAL = {**QUESTIONS["questions"][0], "multi_select": True}


def test_a_models_questions_are_shown_with_their_options() -> None:
    assert question(QUESTIONS, "/s/main").splitlines() == [
        "The model asks:",
        "  1. Database: Which database?",
        "     1) Postgres - a server",
        "     2) SQLite",
        "  2. What else?",
    ]
    assert choices(QUESTIONS) == ["answer", "deny", "abort"]
    assert command(QUESTIONS) == """pyagentd answer ask_2 --answers '[["Postgres"], ["…"]]'"""


@pytest.mark.parametrize(
    ("line", "asked", "answers"),
    [
        ("1\n", QUESTIONS["questions"][0], ["Postgres"]),
        ("2, but in memory\n", QUESTIONS["questions"][0], ["SQLite", "but in memory"]),
        ("mine\n", QUESTIONS["questions"][0], ["mine"]),
        ("3\n", QUESTIONS["questions"][0], ["3"]),
        ("1 2\n", QUESTIONS["questions"][0], ["1 2"]),
        ("1, 2\n", SEVERAL, ["Postgres", "SQLite"]),
        ("2 2 1 and more\n", SEVERAL, ["SQLite", "Postgres", "and more"]),
        ("7 days\n", QUESTIONS["questions"][1], ["7 days"]),
        ("\n", QUESTIONS["questions"][0], []),
    ],
)
def test_a_line_answers_a_question(line: str, asked: dict, answers: list[str]) -> None:
    assert parse_answer(line, asked) == answers


@pytest.mark.parametrize(
    ("lines", "reply"),
    [
        (["2", "nothing"], Reply("answer", answers='[["SQLite"], ["nothing"]]')),
        (["", "", "1", ""], Reply("answer", answers='[["Postgres"], []]')),
        (["1", "/decline you choose"], Reply("deny", "you choose")),
        (["/abort"], Reply("abort")),
    ],
)
def test_questions_are_asked_one_after_the_other(lines: list[str], reply: Reply, monkeypatch, capsys) -> None:
    controller, terminal = pty.openpty()
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        prompt = AskPrompt()
        prompt.put(QUESTIONS, "/s/main")
        for line in lines[:-1]:
            os.write(controller, f"{line}\n".encode())
            assert prompt.poll(5.0) is None
        os.write(controller, f"{lines[-1]}\n".encode())
        assert prompt.poll(5.0) == reply
    os.close(controller)
    shown = capsys.readouterr().err
    assert "The model asks:\n1. Database: Which database?\n   1) Postgres - a server\n" in shown
