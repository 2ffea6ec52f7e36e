"""Follows a run to its end: prints events, puts questions to the user, and handles Ctrl-C and time-outs.

One loop without concurrency polls events, the keyboard and Ctrl-C in turn, at least ten times a second.
"""

import contextlib
import json
import os
import re
import select
import shlex
import signal
import sys
import termios
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click
from click import ClickException

from pyagentd.cli.output import dim, note, print_json, text_for
from pyagentd.errors import BadRequest, NotFound, StoreError
from pyagentd.events import Event
from pyagentd.policy import guard
from pyagentd.wire.client import DaemonClient
from pyagentd.words import printable as printable_

if TYPE_CHECKING:
    from rich.status import Status


# Ctrl-C while following a run is counted instead of raised, so that no half-read event is lost.

_PATIENT = 2  # the first detaches, the second aborts


class Interrupts:
    """Counts SIGINT inside its block and raises KeyboardInterrupt on the third; if nested, the outer one counts."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> "Interrupts":
        self._before = signal.getsignal(signal.SIGINT)
        outer = getattr(self._before, "__self__", None)
        if isinstance(outer, Interrupts):
            return outer
        signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count > _PATIENT:  # the loop does not react: the daemon does not answer
            raise KeyboardInterrupt


# A spinner that shows what the run is waiting for.
#
# On stderr and on a terminal only; ``rich`` is imported when the spinner is first shown.

_TEXTS = {"busy": "Waiting for the model…", "waiting": "Waiting for an answer to a question…"}


class Progress:
    """The spinner; hidden while text is being printed."""

    def __init__(self) -> None:
        self._enabled = sys.stdout.isatty() and sys.stderr.isatty()
        self._state = _TEXTS["busy"]
        self._agents: dict[str, str] = {}
        self._todo = ""
        self._status: Status | None = None

    def take(self, event: Event) -> None:
        """Record an event; agents' states use the same words as the overlay in Emacs."""
        match event.kind, event.args:
            case "status", (Mapping() as status,):
                self._take_status(status)
            case "todo", (Mapping() as todo,):
                items = todo.get("items") or ()
                done = sum(item["status"] == "completed" for item in items)
                doing = next((item["active_form"] for item in items if item["status"] == "in_progress"), "")
                self._todo = f"todo {done}/{len(items)}{f': {doing}' if doing else ''}" if items else ""
            case "agent", ({"state": "finished", "id": id},):
                self._agents.pop(str(id), None)
            case "agent", (Mapping() as agent,):
                does = (
                    f"Calling Tools... (+{agent.get('count') or 0})" if agent.get("state") == "tool" else "Waiting..."
                )
                self._agents[str(agent["id"])] = f"{agent.get('preset')}: {agent.get('description')} — {does}"

    def _take_status(self, status: Mapping[str, Any]) -> None:
        state = str(status.get("state"))
        if state == "retrying":
            self._state = retry_status(status)
        elif state == "busy" and status.get("tools"):
            self._state = f"Running {', '.join(status['tools'])}…"
        elif state == "busy" and status.get("phase") == "COMPACT":
            self._state = "Compacting the conversation…"
        else:
            self._state = _TEXTS.get(state, self._state)

    @property
    def text(self) -> str:
        """The text of the spinner: what the run is waiting for, in lines."""
        return "\n".join(filter(None, [self._todo, *(self._agents.values() or [self._state])]))

    def show(self) -> None:
        """Show or update the spinner."""
        if not self._enabled:
            return
        if self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True).status("")
            self._status.start()
        from rich.text import Text

        self._status.update(Text(printable_(self.text)))

    def hide(self) -> None:
        """Remove the spinner."""
        if self._status is not None:
            self._status.stop()
            self._status = None


def retry_status(status: Mapping[str, Any]) -> str:
    """Return a text for the state "retrying": the failed attempt, the time of the next one, and the reason."""
    attempt, most, retry_at = status.get("attempt"), status.get("max_attempts"), status.get("retry_at")
    which = f" ({attempt} of {most} failed)" if attempt and most else ""
    when = ""
    if retry_at:
        due = datetime.fromtimestamp(retry_at / 1000).astimezone()
        when = f" at {due:%H:%M:%S}"
    return " ".join(filter(None, (f"Retrying{which}{when}…", status.get("message"))))


# A run as text for a terminal: the model's answer, one line per tool call, dim reasoning.
#
# Pure: inserts go in (text and role as in ``pyagentd.events``), pieces to print come out. Markup of the document
# (fences, the next prompt's ``###``) is left out. Neighbouring inserts of one role may arrive merged, so one insert
# can end a block and begin the next.

Style = Literal["plain", "dim"]

_FENCE = re.compile(r"(?:\A|\n)```(?: (?P<kind>tool|reasoning|error|compaction)\b ?(?P<rest>[^\n]*))?(?=\n|\Z)")


class Piece(NamedTuple):
    """A piece of text to print unchanged."""

    text: str
    style: Style = "plain"


class Transcript:
    """Turns the inserts of one run into pieces, with one blank line between blocks.

    Args:
        apart: The dim pieces, which are whole lines, go to another stream than the answer; reasoning is left out.

    Attributes:
        at_line_start: Whether the output so far ends with a newline.
    """

    def __init__(self, *, apart: bool = False) -> None:
        self._apart = apart
        self._last_block: str | None = None  # kind of the last printed block, while it can continue
        self._inside: str | None = None  # kind of the open fence
        self._closer = ""  # a fence that may have closed it: reasoning can contain fences
        self._told = 0  # number of shown calls whose text in the document has not arrived yet
        self._calls: set[str] = set()  # ids of the shown calls
        self._anything = False
        self.at_line_start = True

    def insert(self, text: str, role: Any) -> Iterator[Piece]:
        """Yield what to print for one insert."""
        if role == "ignore":
            yield from self._skip_fences(text)
            return
        self._inside = None
        if role == "response":
            yield from self._say("answer", text)
        elif role is None:
            # Separators and the next prompt are not printed.
            self._last_block = None

    def tool(self, call: Mapping[str, Any]) -> Iterator[Piece]:
        """Yield the line of a finished call; the call's text in the document is then skipped."""
        if (id := str(call.get("id"))) not in self._calls:
            self._calls.add(id)
            self._told += 1
            yield from self._line(str(call.get("summary") or call.get("name")))

    def end(self) -> Iterator[Piece]:
        """Yield a final newline if the last line has none."""
        if not self.at_line_start:
            self.at_line_start = True
            yield Piece("\n")

    def _skip_fences(self, text: str) -> Iterator[Piece]:
        at = 0
        for fence in _FENCE.finditer(text):
            yield from self._content(text[at : fence.start()])
            at = fence.end()
            if fence["kind"]:
                self._inside, self._closer = fence["kind"], ""
                if self._inside == "tool":
                    yield from self._announce(fence["rest"])
                elif self._inside == "compaction":
                    yield from self._divide(fence["rest"])
            elif self._inside == "reasoning":
                self._closer = fence[0]
            else:
                self._inside = None
        yield from self._content(text[at:])

    def _content(self, text: str) -> Iterator[Piece]:
        # Only the contents of reasoning fences are shown: tools have a line, errors are reported at the run's end.
        if self._inside != "reasoning" or self._apart or (self._closer and not text.strip()):
            return
        yield from self._say("reasoning", self._closer + text, "dim")
        self._closer = ""

    def _announce(self, call: str) -> Iterator[Piece]:
        if self._told:
            self._told -= 1
        else:  # no event announced the call: it is being replayed
            yield from self._line(call.removeprefix("(").removesuffix(")"))

    def _line(self, call: str) -> Iterator[Piece]:
        yield from self.end()
        self._last_block = "tool"
        self._anything |= not self._apart
        yield Piece(f"• {call}\n", "dim")

    def _divide(self, what: str) -> Iterator[Piece]:
        yield from self.end()
        if self._anything and not self._apart:
            yield Piece("\n")
        self._last_block = "compaction"
        self._anything |= not self._apart
        yield Piece(f"── compacted {what} ──\n", "dim")

    def _say(self, block: str, text: str, style: Style = "plain") -> Iterator[Piece]:
        if block != self._last_block:
            text = text.lstrip("\n")
            if not text:
                return
            yield from self.end()
            if self._anything:
                yield Piece("\n")
            self._last_block = block
        if text:
            self._anything = True
            self.at_line_start = text.endswith("\n")
            yield Piece(text, style)


# Output of a run's events: text for a terminal or pipe, or one JSON object a line.

_POSITIONAL: Mapping[str, tuple[str, ...]] = {"insert": ("text", "role"), "prompt": ("text", "place")}


class View:
    """Shows a run; this base class prints nothing.

    Attributes:
        denied: Calls denied because no human could be asked, from ``denied`` events.
        message_id: The prompt of the last run that began.
    """

    def __init__(self) -> None:
        self.denied: list[Mapping[str, Any]] = []
        self.message_id: str | None = None

    def show(self, event: Event) -> None:
        """Record one event, and print it in subclasses."""
        match event.kind, event.args:
            case "denied", (Mapping() as call,):
                self.denied.append(call)
            case "run", ({"phase": "started", "message_id": str(message)},):
                self.message_id = message

    def idle(self) -> None:
        """Do nothing; subclasses show that no event has arrived for a moment."""

    def pause(self) -> None:
        """Finish the last line, before other output and at the end."""


class JsonView(View):
    """Prints one event a line."""

    def show(self, event: Event) -> None:
        """Print ``event``."""
        super().show(event)
        print_json(event_object(event))


class TextView(View):
    """Prints the answer on stdout as it arrives, and the spinner on stderr.

    If stdout is a pipe or a file, it gets only the answer; tool calls go to stderr.

    Args:
        known: Notices that the user has read, so that a run does not repeat them.
    """

    def __init__(self, known: Collection[str] = ()) -> None:
        super().__init__()
        self._known = known
        self._terminal = sys.stdout.isatty()
        self._transcript = Transcript(apart=not self._terminal)
        self._progress = Progress()

    def show(self, event: Event) -> None:
        """Print the text that ``event`` adds."""
        super().show(event)
        self._progress.take(event)
        match event.kind, event.args:
            case "insert", (str() as text, role):
                self._write(self._transcript.insert(text, role))
            case "tool", (Mapping() as call,):
                self._write(self._transcript.tool(call))
            case "notice", (Mapping() as notice,) if notice.get("text") not in self._known:
                self.pause()
                note(str(notice.get("text", "")))

    def idle(self) -> None:
        """Show the spinner, unless a line is being written."""
        if self._transcript.at_line_start:
            self._progress.show()

    def pause(self) -> None:
        """Finish the line."""
        self._progress.hide()
        for piece in self._transcript.end():
            sys.stdout.write(piece.text)
        sys.stdout.flush()

    def _write(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self._progress.hide()
            stream = sys.stderr if piece.style == "dim" and not self._terminal else sys.stdout
            if stream is sys.stderr:
                sys.stdout.flush()  # stdout and stderr may be the same pipe
            text = text_for(piece.text, stream)
            stream.write(dim(text, stream) if piece.style == "dim" else text)
        sys.stdout.flush()
        sys.stderr.flush()


def event_object(event: Event) -> dict[str, Any]:
    """Return ``event`` as the object ``--json`` prints: ``kind``, ``branch``, ``seq`` and its arguments by name.

    If an argument has the name of a key of the envelope, that key gets the prefix ``event_``. For example an ask has
    the asking branch, which may be an agent's: ``{"branch": asker, "event_branch": shown on}``.
    """
    envelope: dict[str, Any] = {"kind": str(event.kind), "branch": event.branch, "seq": event.seq}
    if names := _POSITIONAL.get(event.kind):
        return envelope | dict(zip(names, event.args, strict=False))
    arguments: dict[str, Any] = event.args[0] if event.args and isinstance(event.args[0], dict) else {}
    clashes = envelope.keys() & arguments.keys()
    return {(f"event_{name}" if name in clashes else name): value for name, value in envelope.items()} | arguments


def page_events(page: Mapping[str, Any], branch: str) -> Iterator[Event]:
    """Yield the events of a page that the operation ``replay`` returned."""
    for kind, seq, *rest in page["events"]:
        args = rest if kind in ("insert", "prompt") else [json.loads(rest[0])]
        yield Event(kind, branch, seq, tuple(args))


def replay(link: DaemonClient, branch: str, after: int | None, upto: int) -> Iterator[Event]:
    """Yield the events of the rows after ``after`` (None: from the current run on) up to ``upto``."""
    while after is None or after < upto:
        page = link.call("replay", branch=branch, after=after, upto=upto)
        yield from page_events(page, branch)
        after = int(page["seq"])
        if page["done"]:
            return


# Questions from a model on the terminal: asked one after the other, answered by numbers or words; pure.

_PICKS = re.compile(r"\d+(?:[\s,]+\d+)*")

DECLINE, ABORT = "/decline", "/abort"


Decision = Literal["allow", "session", "always", "answer", "deny", "edit", "abort"]


class Reply(NamedTuple):
    """The user's decision; ``edit`` means to edit the arguments."""

    decision: Decision
    reason: str = ""
    answers: str | None = None  # to the model's questions, JSON


class QuestionForm:
    """The questions of an ask, and the answers so far.

    Args:
        ask: The ask from the daemon, of kind "question".
    """

    def __init__(self, ask: Mapping[str, Any]) -> None:
        self._questions: Sequence[Mapping[str, Any]] = ask["questions"]
        self._answers: list[list[str]] = []

    def prompt(self) -> str:
        """Return the next question, with the possible input."""
        place = min(len(self._answers), len(self._questions) - 1)  # stay at the last one until it is answered
        question = self._questions[place]
        lines = question_lines(question, place if len(self._questions) > 1 else None)
        number = "numbers" if question.get("multi_select") else "a number"
        ways = [f"{number} or your words" if question.get("options") else "your words"]
        ways += ["nothing to leave it open"] if len(self._questions) > 1 else []
        return "\n".join([*lines, f"[{', '.join([*ways, f'{DECLINE} [why]', ABORT])}] "])

    def take(self, line: str) -> Reply | None:
        """Record the answer to the current question; return the reply once all are answered or one is refused."""
        word, _, rest = line.strip().partition(" ")
        if word in (DECLINE, ABORT):
            return Reply("deny" if word == DECLINE else "abort", rest.strip())
        if (place := len(self._answers)) < len(self._questions):
            self._answers.append(parse_answer(line, self._questions[place]))
        if len(self._answers) < len(self._questions):
            return None
        if any(self._answers):
            return Reply("answer", answers=json.dumps(self._answers, ensure_ascii=False))
        self._answers.clear()  # all answers are empty: ask again
        return None


def parse_answer(line: str, question: Mapping[str, Any]) -> list[str]:
    """Parse the typed answer to a question: numbers of options, text, or one number and text."""
    text, options = line.strip(), question.get("options") or ()
    labels = [str(option["label"]) for option in options]
    found = _PICKS.match(text)
    if not found or not labels:
        return [text] if text else []
    numbers = [int(each) for each in re.findall(r"\d+", found[0])]
    rest = text[found.end() :].strip(" ,.:")
    if any(not 1 <= number <= len(labels) for number in numbers) or (
        len(numbers) > 1 and not question["multi_select"]
    ):
        return [text]
    return [*(labels[number - 1] for number in dict.fromkeys(numbers)), *filter(None, [rest])]


def question_lines(question: Mapping[str, Any], number: int | None = None) -> list[str]:
    """Return the lines of one question; ``number``, from 0, if there are several."""
    header = f"{question['header']}: " if question.get("header") else ""
    several = "  (several)" if question.get("multi_select") else ""
    lines = [f"{'' if number is None else f'{number + 1}. '}{header}{question['question']}{several}"]
    for place, option in enumerate(question.get("options") or (), 1):
        about = f" - {option['description']}" if option.get("description") else ""
        lines.append(f"   {place}) {option['label']}{about}")
    return lines


def command(ask: Mapping[str, Any]) -> str:
    """Return an example of a command that answers the questions of ``ask``."""
    example = [[str((question.get("options") or [{"label": "…"}])[0]["label"])] for question in ask["questions"]]
    return f"pyagentd answer {ask['id']} --answers {shlex.quote(json.dumps(example, ensure_ascii=False))}"


# A question of the run, asked on the terminal with all its possible answers.
#
# The first answer wins, from whichever client, so the line is read without blocking, and a question that was answered
# elsewhere is withdrawn. Input typed before the question was shown is dropped. Questions go to stderr: stdout gets
# only the model's answer.

_WORDS: Mapping[str, Decision] = {
    "y": "allow", "yes": "allow", "allow": "allow", "once": "allow",
    "s": "session", "session": "session",
    "p": "always", "project": "always", "always": "always",
    "n": "deny", "no": "deny", "deny": "deny", "r": "deny",
    "e": "edit", "edit": "edit",
    "k": "abort", "abort": "abort",
}  # fmt: skip
_TOLD: Mapping[str, str] = {
    "allow": "y allow once",
    "session": "s in this session",
    "always": "p in this project",
    "deny": "n deny, r REASON deny with a reason",
    "edit": "e edit the arguments",
    "abort": "k abort the run",
}
_SCOPE_TOLD: Mapping[str, str] = {**_TOLD, "always": "p add it to the scope"}


def question(ask: Mapping[str, Any], branch: str) -> str:
    """Return the text of ``ask`` for a user who follows ``branch``."""
    if ask.get("kind") == "question":
        return "\n".join(map(printable, _questions(ask, branch)))
    lines = [text for line in ask.get("lines") or () for text in _part_lines(line["parts"])]
    if (reason := ask.get("reason")) and ask.get("kind") != "scope":  # a scope ask has the reason in its lines
        lines.append(f"  Asked because {reason}")
    if patterns := ask.get("remember") or ():  # exactly what "session" and "always" would remember
        lines.append("  s and p would allow from now on:")
        width = max(map(len, patterns))
        lines += [f"    {each:{width}}  {guard.explain_pattern(each)}" for each in patterns]
    return "\n".join(map(printable, lines))


def whole(ask: Mapping[str, Any]) -> str:
    """Return the text that `d` shows: the whole change, or a call that the question cuts; "" if nothing is cut."""
    parts = (part for line in ask.get("lines") or () for part in line["parts"])
    is_cut = any(not isinstance(part, str) and part.get("more") for part in parts)
    return str(ask.get("preview") or (is_cut and ask.get("detail")) or "")


def _part_lines(parts: Sequence[Any]) -> Iterator[str]:
    """Yield the text of one line of a question; a preview takes several lines."""
    for part in parts:
        if not isinstance(part, str) and part["face"] in ("diff", "preview"):
            yield from (f"  | {line}" for line in part["text"].split("\n"))
            if part["more"]:
                yield f"  | … {part['more']} more lines; d shows all"
            elif any(line.endswith("…") for line in part["text"].split("\n")):
                yield "  | d shows all of the lines that end with …"
            return
    yield "".join(part if isinstance(part, str) else part["text"] for part in parts)


def _questions(ask: Mapping[str, Any], branch: str) -> Iterator[str]:
    foreign = ask.get("branch") and ask["branch"] != branch
    yield f"{ask.get('agent') or 'An agent'} asks:" if foreign else "The model asks:"
    several = len(ask["questions"]) > 1
    for number, question in enumerate(ask["questions"]):
        yield from (f"  {line}" for line in question_lines(question, number if several else None))


def lasting_sentence(ask: Mapping[str, Any], decision: Literal["session", "always"]) -> str:
    """Return a sentence about what ``decision`` allows from now on."""
    sentence = (ask.get("allows") or {}).get(decision)  # missing in a question from an older daemon
    return sentence or f"From now on this is allowed without asking: {'; '.join(ask.get('covers') or ())}."


def choices(ask: Mapping[str, Any]) -> list[Decision]:
    """Return the possible answers to ``ask``, including those that every question has."""
    offered: list[Decision] = [each for each in ask.get("choices") or ("allow", "deny") if each != "abort"]
    if ask.get("kind") not in ("scope", "question") and ask.get("input"):
        offered.append("edit")
    return [*offered, "abort"]


def edit_arguments(ask: Mapping[str, Any], draft: str = "") -> str | None:
    """Edit the arguments of ``ask`` in the user's editor; return None if they are unchanged.

    Args:
        ask: The approval.
        draft: The text of an earlier edit that the daemon rejected.

    Raises:
        click.ClickException: There is no editor.
    """
    before = draft or json.dumps(json.loads(str(ask.get("input") or "{}")), ensure_ascii=False, indent=2) + "\n"
    after = click.edit(before, extension=".json")
    return None if after is None or after.strip() == before.strip() else after


def printable(text: str) -> str:
    """Return ``text`` with control characters made visible: escapes in a preview must not change the question."""
    return "".join(char if char.isprintable() or char == "\t" else f"\\x{ord(char):02x}" for char in text)


def parse_reply(line: str, offered: Sequence[str] = ("allow", "deny", "abort")) -> Reply | None:
    """Parse the decision in ``line``; None if it is not one of those ``offered``."""
    word, _, rest = line.strip().partition(" ")
    decision = _WORDS.get(word.lower())
    return Reply(decision, rest.strip()) if decision in offered and decision else None


class AskPrompt:
    """The question on the screen, if any, and the answer being typed."""

    def __init__(self) -> None:
        self._typed = b""
        self._pasting = False  # a paste of several lines is being read
        self._ask: Mapping[str, Any] = {}
        self._lasting: Literal["session", "always"] | None = None  # the decision that waits for confirmation
        self._offered: Sequence[Decision] = ("allow", "deny", "abort")
        self._choices = _line_of(self._offered, _TOLD)
        self._form: QuestionForm | None = None  # for questions from a model

    def put(self, ask: Mapping[str, Any], branch: str) -> None:
        """Print ``ask`` and the choices; drop input that was typed before."""
        self._typed, self._pasting, self._ask, self._lasting = b"", False, ask, None
        _discard_typed()
        _mark_pastes(ask.get("kind") != "question")
        self._form = QuestionForm(ask) if ask.get("kind") == "question" else None
        if self._form is not None:
            who = question(ask, branch).partition("\n")[0]
            print(f"\a{who}\n{_question_text(self._form)}", end="", file=sys.stderr, flush=True)
            return
        self._offered = choices(ask)
        self._choices = _line_of(self._offered, _SCOPE_TOLD if ask.get("kind") == "scope" else _TOLD)
        print(f"\a{question(ask, branch)}\n{self._choices}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Restore the terminal after the last question."""
        _mark_pastes(False)

    def poll(self, timeout_s: float) -> Reply | None:
        """Return the reply once a line was typed; end of input denies, pasted text is ignored."""
        if not _typed_within(timeout_s):
            return None
        data = os.read(sys.stdin.fileno(), 4096)
        if not data:
            return Reply("deny", "no answer: end of input")
        self._typed += data
        if not self._typed.endswith(b"\n"):
            return None
        line, self._typed = self._typed.decode(errors="replace"), b""
        if self._form is not None:
            if (reply := self._form.take(line)) is None:
                print(_question_text(self._form), end="", file=sys.stderr, flush=True)
            return reply
        if self._pasted(line):
            self._lasting = None
            if not self._pasting:
                print(self._choices, end="", file=sys.stderr, flush=True)
            return None
        line = line.replace(_PASTE, "").replace(_PASTE_END, "")
        if self._lasting:
            kind, self._lasting = self._lasting, None
            if line.strip().lower() in ("y", "yes"):
                return Reply(kind)
            print(self._choices, end="", file=sys.stderr, flush=True)
            return None
        if line.strip().lower() in ("d", "diff") and (text := whole(self._ask)):
            shown = "\n".join(map(printable, text.splitlines()))
            print(f"{shown}\n{self._choices}", end="", file=sys.stderr, flush=True)
            return None
        reply = parse_reply(line, self._offered)
        if reply is None:
            print(self._choices, end="", file=sys.stderr, flush=True)
        elif reply.decision in ("session", "always"):
            self._lasting = "session" if reply.decision == "session" else "always"
            sentence = printable(lasting_sentence(self._ask, self._lasting))
            print(f"{sentence}\ny allow that, anything else goes back: ", end="", file=sys.stderr, flush=True)
            return None
        return reply

    def _pasted(self, line: str) -> bool:
        """Return whether ``line`` is pasted text, marked or not, which is not an answer."""
        marked = self._pasting or line.startswith(_PASTE)
        self._pasting = line.rfind(_PASTE) > line.rfind(_PASTE_END) or (self._pasting and _PASTE_END not in line)
        if not marked and _typed_within(0):  # several lines at once are not typed
            _discard_typed()
            self._pasting = False
            return True
        return marked


def _question_text(form: QuestionForm) -> str:
    return "\n".join(map(printable, form.prompt().split("\n")))


def _line_of(offered: Sequence[Decision], keys: Mapping[str, str]) -> str:
    return f"{', '.join(keys[each] for each in offered)}: "


_PASTE = "\x1b[200~"  # the marks of a terminal before and after a paste
_PASTE_END = "\x1b[201~"


def _mark_pastes(on: bool) -> None:
    """Switch the terminal's marking of pastes on or off."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        print(f"\x1b[?2004{'h' if on else 'l'}", end="", file=sys.stderr, flush=True)


def _typed_within(timeout_s: float) -> bool:
    """Wait for input or a hang-up on stdin; return whether there was one."""
    waiting = select.poll()  # select() does not support descriptors above 1023
    waiting.register(sys.stdin, select.POLLIN)
    return bool(waiting.poll(timeout_s * 1000))


def _discard_typed() -> None:
    """Drop unread input of the terminal, unless this process is in the background."""
    if not sys.stdin.isatty():
        return
    fd = sys.stdin.fileno()
    try:
        if os.tcgetpgrp(fd) != os.getpgrp():
            return  # flushing would stop this process
    except OSError:  # not the controlling terminal, so flushing does not stop the process
        pass
    with contextlib.suppress(termios.error):  # the terminal hung up
        termios.tcflush(fd, termios.TCIFLUSH)


_TICK_S = 0.1
_ASKING_TICK_S = 0.01  # short, because waiting for the keyboard comes next
_SECOND_THOUGHTS_S = 2.0  # time for a second Ctrl-C, which aborts the run
_ABORT_S = 5.0

Reason = Literal["done", "error", "aborted", "restart", "detached", "timeout", "canceled"]


class FollowEnd(NamedTuple):
    """Why following ended; ``detached`` and ``timeout`` leave the run going."""

    reason: Reason
    message: str = ""


class Follower:
    """Follows one run.

    Args:
        link: A connection that is attached to the branch, unless ``catch_up`` is called first.
        branch: Its key.
        run_id: The run; None while its message is queued.
        view: Shows the events.
        human: Put asks to the user at this terminal.
        queued: The queued message whose run to follow, while it has none.
        seq: The last row before the followed events; None begins with the current run.
    """

    def __init__(
        self,
        link: DaemonClient,
        branch: str,
        run_id: str | None,
        view: View,
        *,
        human: bool,
        queued: str | None = None,
        seq: int | None = 0,
    ) -> None:
        self._link = link
        self._branch = branch
        self._run_id = run_id
        self._view = view
        self._queued = queued
        self._human = human
        self._asks: deque[Mapping[str, Any]] = deque()  # the first one is on the screen
        self._prompt = AskPrompt()
        self._draft = ""  # the edited arguments of the first ask
        self._seq = seq
        self._known = 0  # the last row that attaching covered

    def follow(self, timeout_s: float | None = None) -> FollowEnd:
        """Show the run until it ends, the user leaves it, or ``timeout_s`` have passed."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            with Interrupts() as interrupts:
                ending = self._until(deadline, lambda: interrupts.count > 0)
                if ending is None and interrupts.count:
                    ending = self._detach(interrupts)
        finally:
            self._view.pause()
            if self._asks:
                self._prompt.close()
        return ending or FollowEnd("timeout", f"No end after {timeout_s:g} s; the run goes on")

    def _until(self, deadline: float | None, stop: Callable[[], bool] = lambda: False) -> FollowEnd | None:
        """Follow until the run's end; return None if the deadline or ``stop`` comes first."""
        while not stop() and (deadline is None or time.monotonic() < deadline):
            if ending := self._turn():
                return ending
        return None

    def _turn(self) -> FollowEnd | None:
        # One event a turn, so that the keyboard is polled during a fast stream.
        event = next(self._link.events(_ASKING_TICK_S if self._asks else _TICK_S), None)
        ending = self._handle_event(event) if event else None
        if self._asks and not ending:
            self._poll_reply()
        elif event is None:
            self._view.idle()
        return ending

    def _handle_event(self, event: Event) -> FollowEnd | None:
        if event.kind == "resync":
            return self.catch_up()
        if event.branch == self._branch and event.seq:
            if event.seq <= self._known:
                return None  # already covered by attaching
            self._seq = event.seq
        if self._queued is not None:
            return self._wait(event, self._queued)
        self._view.show(event)
        match event.kind, event.args:
            case "run", ({"id": run_id, "phase": "finished", "reason": reason, **rest},) if run_id == self._run_id:
                return FollowEnd(reason, str(rest.get("message") or ""))
            case "ask", ({"id": _} as ask,) if self._human:
                self._put(ask)
            case "answered", ({"id": ask_id},):
                self._withdraw(ask_id)
        return None

    def _wait(self, event: Event, queued: str) -> FollowEnd | None:
        """Wait for the run of the queued message; events of other runs are not shown."""
        match event.kind, event.args:
            case "run", ({"id": run_id, "phase": "started", "message_id": message},) if message == queued:
                self._run_id, self._queued = run_id, None
                self._view.show(event)
            case "queue", ({"gone": {"id": message, "why": why} as gone},) if message == queued:
                if why == "canceled":
                    return FollowEnd("canceled")
                self._run_id, self._queued = gone.get("run"), None
            case "status", ({"state": "error", **rest},):
                return FollowEnd("error", str(rest.get("message") or ""))
        return None

    # Asks

    def _put(self, ask: Mapping[str, Any]) -> None:
        if any(known["id"] == ask["id"] for known in self._asks):
            return
        self._asks.append(ask)
        if len(self._asks) == 1:
            self._view.pause()
            self._prompt.put(ask, self._branch)

    def _withdraw(self, ask_id: str) -> None:
        if self._asks and self._asks[0]["id"] == ask_id:
            note("answered elsewhere")
            self._next_ask()
        else:
            self._asks = deque(ask for ask in self._asks if ask["id"] != ask_id)

    def _next_ask(self) -> None:
        self._asks.popleft()
        self._draft = ""
        if self._asks:
            self._prompt.put(self._asks[0], self._branch)
        else:
            self._prompt.close()

    def _poll_reply(self) -> None:
        if reply := self._prompt.poll(_TICK_S):
            try:
                self._answer(self._asks[0], reply)
            except NotFound as error:  # another client answered just now
                note(str(error))
            except (BadRequest, StoreError, ClickException) as error:
                note(str(error))
                self._prompt.put(self._asks[0], self._branch)
                return
            self._next_ask()

    def _answer(self, ask: Mapping[str, Any], reply: Reply) -> None:
        arguments = edit_arguments(ask, self._draft) if reply.decision == "edit" else None
        if reply.decision == "edit" and arguments is None:
            raise BadRequest("The text was not edited")
        self._draft = arguments or ""  # kept, in case the daemon rejects it
        decision = "allow" if reply.decision == "edit" else reply.decision
        self._link.call(
            "answer", ask=ask["id"], decision=decision, reason=reply.reason, input=arguments, answers=reply.answers
        )

    # Leaving

    def _detach(self, interrupts: "Interrupts") -> FollowEnd:
        self._view.pause()
        if self._asks:
            self._prompt.close()
        self._asks.clear()
        self._human = False  # questions wait for another client
        note("detached; the run goes on (Ctrl-C again aborts it)")
        ending = self._until(time.monotonic() + _SECOND_THOUGHTS_S, lambda: interrupts.count > 1)
        if ending is None and interrupts.count > 1:
            self._link.call("abort", branch=self._branch)
            ending = self._until(time.monotonic() + _ABORT_S) or FollowEnd("aborted")
        return ending or FollowEnd("detached")

    def catch_up(self) -> FollowEnd | None:
        """Attach, and show the events so far, including those that the daemon dropped because we were too slow."""
        state = self._link.call("attach", branch=self._branch)
        self._branch, upto = state["branch"], int(state["seq"])
        for event in replay(self._link, self._branch, self._seq, upto):
            if event.kind != "ask" and (ending := self._handle_event(event)):  # open asks follow below
                return ending
        self._seq = self._known = upto
        for ask in state.get("asks") or () if self._human else ():
            self._put(ask)
        match state["status"]:
            case {"state": "idle"}:
                return FollowEnd("done")
            case {"state": "error", **rest}:
                return FollowEnd("error", str(rest.get("message") or ""))
        return None
