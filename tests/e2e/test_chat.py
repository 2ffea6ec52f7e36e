"""``pyagentd chat`` on a real terminal, driven by keys, its screen read; the model takes 2 s a turn where it may."""

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.e2e.conftest import System
from tests.e2e.emacs import wait_for
from tests.e2e.test_conversation import open_session, send
from tests.e2e.valve import Valve
from tests.server import ModelServer, answer, text, tool_use

pytest.importorskip("prompt_toolkit")

SLOW_S = 2.0


class Screen:
    """``pyagentd chat`` in tmux."""

    def __init__(self, system: System, *arguments: str, command: Sequence[str] = ()) -> None:
        self._socket = tempfile.mktemp(prefix="t", dir=system.home)  # a server of its own
        self._env = {**system.env, "TERM": "xterm-256color"}
        command = command or system.command("chat", *arguments)
        self._tmux("-f", "/dev/null", "new-session", "-d", "-s", "c", "-x", "100", "-y", "40", "-c",
                   str(system.project), *command)  # fmt: skip
        self._tmux("set-option", "-g", "remain-on-exit", "on")

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(["tmux", "-S", self._socket, *words], env=self._env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def now(self) -> str:
        """Return what the terminal shows, and showed."""
        return self._tmux("capture-pane", "-p", "-S", "-500", "-t", "c")

    def shows(self, *parts: str) -> str:
        """Wait until all of ``parts`` are shown."""

        def seen() -> str:
            now = self.now()
            return now if all(part in now for part in parts) else ""

        try:
            return str(wait_for(seen, f"{parts}"))
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.now()}") from None

    def keys(self, *keys: str) -> None:
        self._tmux("send-keys", "-t", "c", *keys)

    def type(self, said: str) -> None:
        self.keys("-l", said)

    def say(self, said: str) -> None:
        """Type a message and send it."""
        self.type(said)
        self.keys("Enter")

    def resize(self, columns: int, lines: int) -> None:
        self._tmux("resize-window", "-t", "c", "-x", str(columns), "-y", str(lines))

    def paste(self, pasted: str) -> None:
        """Paste, between the marks of a paste if the program on the terminal has asked for them."""
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(pasted)
            file.flush()
            self._tmux("load-buffer", file.name)
        self._tmux("paste-buffer", "-p", "-t", "c")

    def record(self, file: Path) -> None:
        """Write what comes to the terminal from now on to ``file``."""
        self._tmux("pipe-pane", "-t", "c", f"cat > {file}")
        wait_for(file.exists, "the recording")

    def modes(self) -> str:
        """Return the modes of the terminal."""
        terminal = self._tmux("display-message", "-p", "-t", "c", "#{pane_tty}").strip()
        return subprocess.run(["stty", "-a", "-F", terminal], capture_output=True, text=True, check=True).stdout

    def ended(self) -> bool:
        return self._tmux("display-message", "-p", "-t", "c", "#{pane_dead}").strip() == "1"

    def close(self) -> None:
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], capture_output=True)


class Opener:
    def __init__(self, system: System) -> None:
        self._system = system
        self._open: list[Screen] = []

    def __call__(self, *arguments: str, command: Sequence[str] = (), ready: str = "›") -> Screen:
        self.close()
        self._open.append(Screen(self._system, *arguments, command=command))
        self._open[-1].shows("Continue which session?" if "--resume" in arguments else ready)
        return self._open[-1]

    def close(self) -> None:
        for screen in self._open:
            screen.close()
        self._open.clear()


@pytest.fixture
def chat(system: System, model_server: ModelServer) -> Iterator[Opener]:
    system.use_server(model_server.url)
    (system.project / "a.txt").write_text("alpha\n")
    opener = Opener(system)
    yield opener
    opener.close()


WRITE = tool_use("Write", file_path="new.txt", content="one\ntwo\n")
ASK = tool_use(
    "question", questions=[{"question": "Which tea?", "options": [{"label": "Black"}, {"label": "Green"}]}]
)
CHOICES = "y once   s session   p project   n deny   r deny with a reason   e edit   d diff"


def test_markdown_streams_and_stays_as_markdown(chat: Opener, model_server: ModelServer) -> None:
    valve = Valve(answer(text("# Tea\n\nIt is **hot** tea.\n\n- black\n- green\n", chunks=12)))
    model_server.say(valve)
    screen = chat()
    screen.say("What is it?")
    valve.let(6)
    screen.shows("› What is it?", "Tea")
    valve.open()
    done = screen.shows("It is hot tea.", " • black", " • green")
    assert "**" not in done


def test_an_approval_by_letters_and_what_lasts_wants_a_second_key(
    chat: Opener, model_server: ModelServer, system: System
) -> None:
    other = tool_use("Write", file_path="other.txt", content="three\n")
    model_server.say(
        answer("I write.", WRITE, pause_s=SLOW_S / 2),
        answer(other, pause_s=SLOW_S / 2),
        answer(WRITE),
        "All is written.",
    )
    screen = chat()
    screen.say("Write it.")
    screen.shows("Allow Write ", "+one", "+two", CHOICES)
    screen.keys("s")
    screen.shows(
        "From now on, in this session and its agents, this is allowed without asking: ", "any other key: back"
    )
    screen.keys("x")
    screen.shows(CHOICES)
    assert not (system.project / "new.txt").exists()
    screen.keys("s")
    screen.shows("any other key: back")
    screen.keys("y")
    screen.shows("• Write new.txt", "All is written.")
    assert (system.project / "other.txt").read_text() == "three\n"
    assert screen.now().count("Allow Write ") == 1


def test_a_narrow_terminal_shows_all_of_what_is_asked(
    chat: Opener, model_server: ModelServer, system: System
) -> None:
    question = "Which of the two teas that grandmother liked shall it be in the end?"
    asks = tool_use("question", questions=[{"question": question, "options": [{"label": "Green"}]}])
    model_server.say(answer(asks), answer(WRITE), "All is written.")
    screen = chat()
    screen.resize(24, 30)
    screen.say("Write it.")
    screen.shows("Which of the two teas", "shall it be in the end?", "/abort]")
    screen.say("1")
    screen.shows("p project", "e edit   d diff")
    screen.keys("p")
    screen.shows("From now on, in", "without asking: Edit", "any other key: back")
    screen.keys("y")
    screen.shows("All is written.")


def test_a_terminal_that_cannot_show_questions_gets_no_chat(chat: Opener, system: System) -> None:
    screen = chat(command=("env", "TERM=dumb", *system.command("chat")), ready="(TERM=dumb)")
    wait_for(screen.ended, "the chat to end")


def test_a_message_that_is_too_long_is_kept(chat: Opener, model_server: ModelServer, system: System) -> None:
    model_server.say("Short.")
    screen = chat()
    screen.paste("x" * 950_000)
    screen.keys("Enter")
    screen.shows("A message of 950,000 bytes", "name a file that holds it")
    assert system.json("sessions") == []
    screen.keys("Up")
    screen.shows("xxxxx")
    screen.keys("C-u")
    screen.say("Hello?")
    screen.shows("› Hello?", "Short.")


def asked_for_a_reason(chat: Opener, model_server: ModelServer) -> Screen:
    """Return a screen on which the reason of a denial is to be typed."""
    model_server.say(answer("I write.", WRITE), "Then not.")
    screen = chat()
    screen.say("Write it.")
    screen.shows(CHOICES)
    screen.keys("r")
    screen.shows("reason ›")
    return screen


def test_a_denial_with_a_reason(chat: Opener, model_server: ModelServer, system: System) -> None:
    screen = asked_for_a_reason(chat, model_server)
    screen.say("not today")
    screen.shows("Then not.")
    assert not (system.project / "new.txt").exists()
    assert "not today" in str(model_server.last.body)


def test_a_reason_whose_question_is_answered_elsewhere_is_no_message(
    chat: Opener, model_server: ModelServer, system: System
) -> None:
    screen = asked_for_a_reason(chat, model_server)
    screen.type("because it is")
    screen.shows("because it is")
    (ask,) = system.json("asks")
    system.ok("answer", ask["id"], "deny")
    screen.shows("Then not.")
    screen.say("Thank you.")
    screen.shows("› Thank you.")


def test_what_is_being_typed_answers_no_question(chat: Opener, model_server: ModelServer, system: System) -> None:
    valve = Valve(answer(text("I write.", chunks=2), WRITE))
    model_server.say(valve, "Then not.")
    screen = chat()
    screen.say("Write it.")
    screen.shows("Waiting for the model")
    screen.type("yes")
    valve.open()
    screen.shows("send or clear your message, then answer")
    assert not (system.project / "new.txt").exists()
    screen.keys("C-u")
    screen.shows(CHOICES)
    screen.keys("n")
    screen.shows("Then not.")


def test_keys_while_it_prints_are_for_the_line(chat: Opener, model_server: ModelServer) -> None:
    code = "```python\n" + "y = [1, 2]\n" * 200 + "```\n\n"
    valve = Valve(answer(*(text(f"{code}Paragraph {number}\n\n") for number in range(30))))
    model_server.say(valve)
    screen = chat()
    screen.say("Write much.")
    for _ in range(30):
        screen.type("~")
        valve.let(1)
        screen.keys("C-u")
    valve.open()
    screen.shows("Paragraph 29")
    screen.keys("-l", "Done")
    shown = screen.shows("› Done")
    assert "~" not in shown, shown


def test_a_paste_while_it_prints_is_one(chat: Opener, model_server: ModelServer, system: System) -> None:
    valve = Valve(answer(*(text(f"Paragraph {number}\n\n") for number in range(5))))
    model_server.say(valve, "Both lines.")
    screen = chat()
    screen.record(system.home / "recording")
    screen.say("Write.")
    valve.open()
    screen.shows("Paragraph 4")
    screen.paste("one\ntwo")
    screen.shows("› one\n  two")
    screen.keys("Enter")
    screen.shows("Both lines.")
    assert b"\x1b[?2004l" not in (system.home / "recording").read_bytes()  # pastes have marks at every moment
    screen.keys("C-d")
    wait_for(screen.ended, "the chat to end")
    assert b"\x1b[?2004l" in (system.home / "recording").read_bytes()


def test_keys_before_it_is_ready_are_for_the_line(chat: Opener, model_server: ModelServer, system: System) -> None:
    model_server.say("Hello to you.")
    daemon = system.daemon_pid() if system.ok("new", "first") else 0
    os.kill(daemon, signal.SIGSTOP)
    try:
        screen = chat(ready="")
        wait_for(lambda: "-icanon" in screen.modes(), "the keys to be the chat's")
        screen.say("Hello?")
        assert "Hello?" not in screen.now()
    finally:
        os.kill(daemon, signal.SIGCONT)
    screen.shows("› Hello?", "Hello to you.")


def test_ctrl_r_finds_what_was_sent_and_answers_no_question(
    chat: Opener, model_server: ModelServer, system: System
) -> None:
    model_server.say("It is hot.", answer("I write.", WRITE), "Then not.")
    screen = chat()
    screen.say("Tell me, yes, about tea.")
    screen.shows("It is hot.")
    screen.keys("C-r")
    screen.type("yes")
    screen.shows("I-search backward: yes", "› Tell me, yes, about tea.")
    screen.keys("Enter")
    wait_for(lambda: "I-search" not in screen.now(), "the search to end")
    assert len(model_server.requests) == 1
    screen.keys("Enter")
    screen.shows(CHOICES)
    screen.keys("C-r")
    screen.type("yes")
    screen.shows("I-search backward: yes")
    screen.keys("C-c")
    screen.shows(CHOICES)
    assert not (system.project / "new.txt").exists()
    screen.keys("n")
    screen.shows("Then not.")


def test_a_paste_without_marks_answers_no_question(chat: Opener, model_server: ModelServer, system: System) -> None:
    model_server.say(answer("I write.", WRITE), "Then not.")
    screen = chat()
    screen.say("Write it.")
    screen.shows(CHOICES)
    screen.type("yes, but later")
    screen.shows("› yes, but later", "send or clear your message, then answer")
    screen.keys("C-u")
    screen.shows(CHOICES)
    screen.keys("n")
    screen.shows("Then not.")
    assert not (system.project / "new.txt").exists()


def test_what_is_being_typed_answers_no_question_of_the_model(chat: Opener, model_server: ModelServer) -> None:
    valve = Valve(answer(text("I ask.", chunks=2), ASK))
    model_server.say(valve, "Green tea.", "And milk.")
    screen = chat()
    screen.say("Ask me.")
    screen.shows("Waiting for the model")
    screen.type("With milk, please.")
    valve.open()
    screen.shows("Which tea?", "send or clear your message, then answer")
    screen.keys("Enter")
    screen.shows("1 queued", "2) Green")
    screen.say("2")
    screen.shows("Green tea.", "› With milk, please.", "And milk.")
    assert "Green" in str(model_server.requests[1].messages[-1])


def test_what_was_sent_just_before_leaving_is_sent(chat: Opener, model_server: ModelServer, system: System) -> None:
    model_server.say("I am here.")
    screen = chat()
    screen.keys("A question", "Enter", "C-d")
    wait_for(screen.ended, "the chat to end")
    name = screen.shows("continue with: pyagentd chat ").rpartition("pyagentd chat ")[2].split()[0]
    assert "A question" in system.ok("show", name)


def test_leaving_a_daemon_that_does_not_answer_says_so(chat: Opener, system: System) -> None:
    screen = chat()
    daemon = system.daemon_pid()
    os.kill(daemon, signal.SIGSTOP)
    try:
        screen.keys("A question", "Enter", "C-d")
        wait_for(screen.ended, "the chat to end")
        screen.shows("left before the daemon answered; look whether it has what you sent last")
    finally:
        os.kill(daemon, signal.SIGCONT)


def test_an_editor_has_the_terminal_and_a_mistake_in_it_is_kept(
    chat: Opener, model_server: ModelServer, system: System
) -> None:
    home = system.home
    editor = home / "editor"
    editor.write_text(f"""#!/bin/sh
trap ': > {home}/interrupted' INT
if [ ! -e {home}/begun ]; then
    : > {home}/begun
    until [ -e {home}/interrupted ]; do sleep 0.05; done
    echo '{{"file_path": "new.txt", "content": "edi' > "$1"
else
    cp "$1" {home}/again
    echo '{{"file_path": "new.txt", "content": "edited"}}' > "$1"
fi
""")
    editor.chmod(0o755)
    system.env["VISUAL"] = str(editor)
    model_server.say(answer("I write.", WRITE), "All is written.")
    screen = chat()
    screen.say("Write it.")
    screen.shows(CHOICES)
    screen.keys("e")
    wait_for((home / "begun").exists, "the editor")
    screen.keys("C-c")
    screen.shows("· ", CHOICES)
    screen.keys("e")
    screen.shows("All is written.")
    assert (home / "again").read_text() == '{"file_path": "new.txt", "content": "edi\n'
    assert (system.project / "new.txt").read_text() == "edited"


def test_ctrl_z_suspends(chat: Opener, model_server: ModelServer, system: System) -> None:
    model_server.say("Here again.")
    screen = chat(command=("bash", "--norc", "-i"), ready="bash-")
    screen.say(f"clear; {shlex.join(system.command('chat'))}")
    screen.shows("›")
    screen.keys("C-z")
    screen.shows("Stopped")
    screen.say("fg")
    screen.shows("Enter sends")
    screen.say("Are you there?")
    screen.shows("› Are you there?", "Here again.")


def test_ctrl_c_interrupts_and_twice_leaves_and_the_session_goes_on(
    chat: Opener, model_server: ModelServer, system: System
) -> None:
    valve = Valve(answer(text("".join(f"word{number} " for number in range(50)), chunks=50)))
    model_server.say(valve, "Here again.")
    screen = chat()
    screen.say("Count.")
    valve.let(10)
    screen.shows("word0 ", "word5 ")
    screen.keys("C-c")
    screen.shows("interrupted", "word5 ")
    screen.keys("C-c")
    wait_for(screen.ended, "the chat to end")
    name = screen.shows("continue with: pyagentd chat ").rpartition("pyagentd chat ")[2].split()[0]
    screen = chat("--resume")
    screen.keys("C-d")
    wait_for(screen.ended, "the choice to end")
    screen = chat("--resume")
    screen.shows(f"1. {name}")
    screen.keys("Enter")
    screen.shows("› Count.", "word5")
    screen.say("And now?")
    screen.shows("Here again.")


def test_ctrl_c_after_typing_is_about_the_line(chat: Opener, model_server: ModelServer) -> None:
    valve = Valve(answer(text("One. Two.", chunks=2)))
    model_server.say(valve, "Still here.")
    screen = chat()
    screen.say("Count.")
    valve.let(1)
    screen.shows("One.")
    screen.keys("C-c")
    screen.shows("interrupted")
    screen.keys("a draft", "C-c")
    wait_for(lambda: "a draft" not in screen.now(), "the line to be cleared")
    screen.say("Are you there?")
    screen.shows("› Are you there?", "Still here.")


def test_tab_completes_before_the_next_key(chat: Opener, model_server: ModelServer, system: System) -> None:
    (system.project / "notes-of-tea.md").write_text("tea\n")
    model_server.say("It is about tea.")
    screen = chat()
    screen.keys("-l", "Read @notes\t")
    screen.keys("Enter")
    screen.shows("› Read @notes-of-tea.md", "It is about tea.")
    screen.keys("-l", "/stat\t")
    screen.keys("Enter")
    screen.shows("› /status", "Status: idle", "No running tasks.")
    assert len(model_server.requests) == 1


def test_the_daemon_dies_meanwhile(chat: Opener, model_server: ModelServer, system: System) -> None:
    valve = Valve(answer(text("Half of it and more", chunks=8)))
    model_server.say(valve, answer("Here again.", pause_s=SLOW_S / 2))
    screen = chat()
    screen.say("Tell me.")
    valve.let(3)
    screen.shows("› Tell me.", "Half")
    os.kill(system.daemon_pid(), signal.SIGKILL)
    screen.shows("the daemon has ended; your next message starts it again")
    screen.say("Are you there?")
    screen.shows("the daemon's end cut this off", "› Are you there?", "Here again.")


def test_emacs_has_the_same_session_open(chat: Opener, model_server: ModelServer, system: System) -> None:
    model_server.say("From the terminal.", "From Emacs.")
    id, branch = system.new("both")
    emacs = system.emacs()
    open_session(emacs, branch)
    screen = chat(id)
    screen.say("Who is there?")
    screen.shows("From the terminal.")
    emacs.wait('(string-search "From the terminal." (buffer-string))')
    send(emacs, "And here?")
    screen.shows("› And here?", "From Emacs.")
    shown = chat(id).shows("› Who is there?", "From Emacs.")  # anew, from the log
    assert "› And here?" in shown


def test_a_picture_that_is_mentioned_is_shown_to_the_model(
    chat: Opener, model_server: ModelServer, system: System
) -> None:
    (system.project / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(20))
    model_server.say("A dot.")
    screen = chat()
    screen.say("What is @dot.png?")
    screen.shows("A dot.")
    assert [each["type"] for each in model_server.last.messages[-1]["content"]] == ["image", "text"]
