"""``pyagentd chat``: a conversation on the terminal.

Finished text scrolls up; below it are the unfinished text, an open question, and the input line. There is one event
loop: one task handles the daemon's events in order, and prompt_toolkit reads the keys. The command itself is in
``send``, which loads this module when it is needed.
"""

import asyncio
import os
import re
import signal
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Literal

import click
from markdown_it import MarkdownIt
from prompt_toolkit import PromptSession
from prompt_toolkit.application import in_terminal
from prompt_toolkit.buffer import CompletionState
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, get_common_complete_suffix
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import choice
from prompt_toolkit.utils import get_term_environment_variable
from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from pyagentd.acp.wire import Daemon
from pyagentd.cli.follow import (
    Piece,
    Progress,
    QuestionForm,
    Transcript,
    choices,
    edit_arguments,
    lasting_sentence,
    page_events,
    question,
    whole,
)
from pyagentd.cli.link import models_known, run_environment
from pyagentd.cli.output import ExitCode, note
from pyagentd.cli.send import NAME, check_length, mentioned_files, with_files
from pyagentd.clock import new_id
from pyagentd.config import sessions_dir
from pyagentd.errors import PyagentdError, Unreachable
from pyagentd.events import Event
from pyagentd.store.metadata import workspace_root
from pyagentd.tools.process import git_files
from pyagentd.wire.client import CALL_TIMEOUT_S, COMMAND_TIMEOUT_S
from pyagentd.words import printable

_LEAVE_S = 2.0  # time for a second Ctrl-C, which leaves
_TAKEN_S = 5.0  # time for the daemon to accept the last message when the user leaves
_UNARMED_S = 0.7  # time for which keys do not answer a question that has just appeared
_REDRAW_S = 0.05
_TICK_S = 0.5
_SHOWN_ROWS = 60  # rows of the log shown when a session is resumed
_PICKED = 12  # sessions to choose from
_FRESH_S = 10.0  # how long the list of the project's files is cached
_MOST_FILES = 20_000
_MOST_COMPLETIONS = 50
_BOLD, _DIM = "\x1b[1m", "\x1b[2m"
_FIRST_SEND = "send or clear your message, then answer"

LETTERS: Mapping[str, tuple[str, str]] = {
    "y": ("allow", "once"),
    "s": ("session", "session"),
    "p": ("always", "project"),
    "n": ("deny", "deny"),
    "r": ("deny", "deny with a reason"),
    "e": ("edit", "edit"),
    "d": ("diff", "diff"),
}
"""The letters that answer an approval, with the decision and the word of each."""


def letters(ask: Mapping[str, Any]) -> dict[str, str]:
    """Return the letters that answer ``ask``, each with its word."""
    offered = {*choices(ask), "deny", *(["diff"] if whole(ask) else [])}
    return {letter: word for letter, (decision, word) in LETTERS.items() if decision in offered}


class MarkdownBlocks:
    """Splits streamed Markdown into complete blocks and an incomplete rest.

    Attributes:
        rest: The incomplete last block.
    """

    def __init__(self) -> None:
        self._parser = MarkdownIt("commonmark").enable("table")
        self.rest = ""

    def feed(self, text: str) -> str:
        """Add ``text`` and return the blocks that it completes, or ""."""
        self.rest += text
        if "\n" not in self.rest:
            return ""
        starts = [token.map[0] for token in self._parser.parse(self.rest) if token.level == 0 and token.map]
        lines = self.rest.splitlines(keepends=True)
        at = max(starts, default=0)
        self.rest = "".join(lines[at:])
        return "".join(lines[:at])

    def flush(self) -> str:
        """Return the rest at the end of the stream."""
        rest, self.rest = self.rest, ""
        return rest


def pick_session(found: Iterable[Mapping[str, Any]], root: Path) -> Path | None:
    """Ask the user to choose a session, those of ``root`` first; return its branch, or None if there are none."""
    rows = [each for each in found if each["current"] and not each["agent"]]
    rows.sort(key=lambda each: str(each["updated"]), reverse=True)
    rows.sort(key=lambda each: workspace_root(Path(each["branch"])) != str(root))
    if not rows:
        note("there is no session yet")
        return None
    options = [(str(each["branch"]), _row(each)) for each in rows[:_PICKED]]
    keys = KeyBindings()

    @keys.add("c-d")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(result="")

    chosen = choice(message="Continue which session?", options=options, key_bindings=keys)
    return Path(chosen) if chosen else None


def _row(session: Mapping[str, Any]) -> str:
    title = printable(str(session["title"] or session["session_id"]))
    return f"{title}  ({str(session['updated'])[:16].replace('T', ' ')}, {session['session_id']})"


_TABLE = re.compile(r"^``` text\n.*?^```$", re.MULTILINE | re.DOTALL)  # the answer of a slash command


def wrap_columns(text: str, width: int) -> str:
    """Wrap ``text`` at ``width`` columns; a continued line is indented to the start of its last column."""
    width = max(1, width)  # a terminal may be narrower than the margins

    def lines() -> Iterator[str]:
        for line in text.split("\n"):
            column = max((found.end() for found in re.finditer("  +", line) if found.end() < width // 2), default=0)
            yield from textwrap.wrap(line, width, subsequent_indent=" " * column) or [""]

    return "\n".join(lines())


class Chat:
    """One chat.

    Args:
        place: The branch's directory; None creates a session with the first message.
        preset: The preset of a new session.
        root: The project of a new session.
    """

    def __init__(self, place: Path | None, *, preset: str | None, root: Path) -> None:
        self._place, self._preset, self._root = place, preset, root
        self._arrivals: asyncio.Queue[Event] = asyncio.Queue()
        self._daemon = Daemon("pyagentd chat", self._arrivals.put_nowait, self._lost)
        self._branch = ""
        self._is_attached = False
        self._known = 0  # the last shown row
        self._settings: Mapping[str, Any] = {}
        self._state = "idle"
        self._began = 0.0  # start of the run by the monotonic clock
        self._queued = 0
        self._title = ""
        self._used = ""  # of the context
        self._asks: dict[str, Mapping[str, Any]] = {}  # the first one is on the screen
        self._form: QuestionForm | None = None  # for questions from a model, if they are on the screen
        self._armed_at = 0.0  # letters typed earlier are not answers
        self._lasting: Literal["session", "always"] | None = None  # the decision that waits for confirmation
        self._reasons = False  # whether the input is the reason of a denial
        self._is_begun = False  # whether the input was begun before the question appeared, so is not an answer
        self._drafts: dict[str, str] = {}  # edited arguments, until the daemon has accepted them
        self._is_lent = False  # whether another program uses the terminal
        self._interrupted_at = float("-inf")
        self._calls: set[str] = set()
        self._transcript, self._progress = Transcript(), Progress()
        self._answer, self._dim = MarkdownBlocks(), ""
        self._tail: tuple[str, list[str]] = ("", [])  # the answer's last block, and its rendered lines
        self._commands: Sequence[Mapping[str, Any]] = ()
        self._working: set[asyncio.Task[None]] = set()

    async def talk(self) -> ExitCode:
        """Chat until the user leaves."""
        self._console = Console(force_terminal=True, highlight=False)
        self._input = self._session()
        telling = asyncio.create_task(self._tell())
        ticking = asyncio.create_task(self._tick())
        try:
            if self._place is not None:
                await self._attach()
            await self._list_commands()
            with suppress(EOFError):
                await self._input.prompt_async()
            if self._working and (await asyncio.wait(self._working, timeout=_TAKEN_S))[1]:
                note("left before the daemon answered; look whether it has what you sent last")
        finally:
            self._is_attached = False  # the link ends because the user leaves
            self._is_lent = True
            self._display.disable_bracketed_paste()
            self._display.flush()
            for task in (telling, ticking, *self._working):
                task.cancel()
            with suppress(PyagentdError):
                await self._daemon.close()
        if self._branch:
            name = self._place and self._place.parent.parent.name
            note(f"{'the run goes on; ' if self._busy else ''}continue with: pyagentd chat {name}")
        return ExitCode.DONE

    # Input

    def _session(self) -> PromptSession[str]:
        keyboard, self._display = _terminal(lambda: self._is_lent)
        session: PromptSession[str] = PromptSession(
            self._above,
            multiline=True,
            history=_History(),
            completer=_Completer(self._root_of, lambda: self._commands),
            complete_while_typing=True,
            bottom_toolbar=self._below,
            key_bindings=self._keys(),
            prompt_continuation="  ",
            reserve_space_for_menu=4,
            erase_when_done=True,
            input=keyboard,
            output=self._display,
        )
        session.app.min_redraw_interval = _REDRAW_S
        session.default_buffer.on_text_changed += lambda line: self._on_text_changed(line.text)
        return session

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        typing = ~is_searching  # a search (Ctrl-R) has its own keys
        asked = typing & Condition(lambda: self._is_asked and not self._input.default_buffer.text)
        empty = typing & Condition(lambda: not self._input.default_buffer.text)

        @keys.add("enter", filter=typing)
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
                buffer.complete_state = None
            elif buffer.document.char_before_cursor == "\\":
                buffer.delete_before_cursor()
                buffer.newline()
            else:
                text, taken = buffer.text, self._line_for()
                buffer.reset(append_to_history=bool(text.strip()) and taken == "message")
                self._is_begun = False  # a reset does not call ``_on_text_changed``
                self._take_line(text, taken)

        @keys.add("escape", "enter", filter=typing)
        @keys.add("c-j", filter=typing)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.newline()

        @keys.add("tab", filter=typing)
        def _(event: KeyPressEvent) -> None:
            _complete(event)

        @keys.add("c-c", filter=typing)
        def _(event: KeyPressEvent) -> None:
            self._interrupt(event)

        @keys.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            if not self._is_lent:  # otherwise the signal is for the editor
                self._interrupt(event)

        @keys.add("c-d", filter=empty)
        def _(event: KeyPressEvent) -> None:
            event.app.exit(exception=EOFError)

        @keys.add("c-z")
        def _(event: KeyPressEvent) -> None:
            self._do(self._suspend())

        @keys.add(Keys.Any, filter=asked)
        def _(event: KeyPressEvent) -> None:
            processor = event.key_processor
            behind = [*processor.key_buffer[len(event.key_sequence) :], *processor.input_queue]
            if all(each.key == Keys.CPRResponse for each in behind):
                self._decide(event.data)
                return
            self._lasting = None  # the key was pasted, or is a part of an unknown key sequence
            self._arm()
            if event.data.isprintable():
                event.current_buffer.insert_text(event.data)

        return keys

    def _line_for(self) -> Literal["reason", "answer", "message"]:
        if self._ask is None:
            return "message"
        return "reason" if self._reasons else "answer" if self._form and not self._is_begun else "message"

    def _take_line(self, text: str, taken: Literal["reason", "answer", "message"]) -> None:
        ask = self._ask
        if taken == "reason" and ask:
            self._reasons = False
            self._do(self._reply(ask, "deny", reason=text.strip()))
        elif text.strip() in ("/quit", "/exit"):
            self._input.app.exit(exception=EOFError)
        elif taken == "answer" and ask and self._form:
            is_meant = text.strip() or time.monotonic() >= self._armed_at
            if is_meant and (reply := self._form.take(text)):
                self._do(self._reply(ask, reply.decision, reason=reply.reason, answers=reply.answers))
        elif text.strip():
            self._do(self._send(text))

    def _on_text_changed(self, text: str) -> None:
        self._arm()
        self._interrupted_at = float("-inf")  # the next Ctrl-C clears the line instead of leaving
        if not text:
            self._is_begun = False

    def _interrupt(self, event: KeyPressEvent) -> None:
        now = time.monotonic()
        buffer = event.current_buffer
        if now - self._interrupted_at < _LEAVE_S:
            event.app.exit(exception=EOFError)
        elif self._lasting or self._reasons:
            self._lasting, self._reasons = None, False
            buffer.reset()
            self._is_begun = False
            return
        elif self._busy:
            self._do(self._daemon.call("abort", branch=self._branch))
        elif buffer.text:
            buffer.reset()
            self._is_begun = False
            return
        self._interrupted_at = now
        asyncio.get_running_loop().call_later(_LEAVE_S, event.app.invalidate)

    # Questions

    @property
    def _ask(self) -> Mapping[str, Any] | None:
        return next(iter(self._asks.values()), None)

    @property
    def _is_asked(self) -> bool:
        """Whether letters answer the question on the screen."""
        return self._ask is not None and self._form is None and not self._reasons

    @property
    def _busy(self) -> bool:
        return self._state in ("busy", "retrying", "waiting")

    def _arm(self) -> None:
        """Ignore letters for a moment, since they may have been typed for something else."""
        self._armed_at = time.monotonic() + _UNARMED_S

    def _decide(self, letter: str) -> None:
        ask = self._ask
        if ask is None or time.monotonic() < self._armed_at:
            return
        if self._lasting:
            kind, self._lasting = self._lasting, None
            if letter == "y":
                self._do(self._reply(ask, kind))
        elif letter in letters(ask):
            decision = LETTERS[letter][0]
            match letter:
                case "s" | "p":
                    self._lasting = "session" if decision == "session" else "always"
                case "r":
                    self._reasons = True
                case "e":
                    self._do(self._edit(ask))
                case "d":
                    self._do(self._print(*_diff(whole(ask))))
                case _:
                    self._do(self._reply(ask, decision))

    async def _reply(self, ask: Mapping[str, Any], decision: str, **more: Any) -> None:
        env = run_environment(os.environ, str(self._settings.get("backend") or ""))
        await self._daemon.call("answer", ask=ask["id"], decision=decision, env=env, **more)
        await self._remove_ask(str(ask["id"]))

    async def _edit(self, ask: Mapping[str, Any]) -> None:
        id = str(ask["id"])
        async with self._lend():
            arguments = await asyncio.to_thread(edit_arguments, ask, self._drafts.get(id, ""))
        if arguments is not None:
            self._drafts[id] = arguments  # kept, in case the daemon rejects them
            await self._reply(ask, "allow", input=arguments)

    async def _suspend(self) -> None:
        async with self._lend():
            os.kill(0, signal.SIGTSTP)

    @asynccontextmanager
    async def _lend(self) -> AsyncIterator[None]:
        """Restore the terminal for another program during the block."""
        self._is_lent = True
        try:
            async with in_terminal():
                yield
        finally:
            self._is_lent = False

    async def _put(self, ask: Mapping[str, Any]) -> None:
        """Add an ask; the first open one is shown."""
        if str(ask["id"]) in self._asks:
            return
        self._asks[str(ask["id"])] = ask
        if len(self._asks) == 1:
            await self._show_ask(ask)

    async def _show_ask(self, ask: Mapping[str, Any]) -> None:
        self._form = QuestionForm(ask) if ask.get("kind") == "question" else None
        self._lasting, self._reasons = None, False
        self._is_begun = bool(self._input.default_buffer.text)
        self._arm()
        asyncio.get_running_loop().call_later(_UNARMED_S + 0.05, self._input.app.invalidate)
        text = question(ask, self._branch)
        await self._finish()
        self._console.bell()
        await self._print(*_diff(text.partition("\n")[0] if self._form else text, mark="  | "))

    async def _remove_ask(self, id: str) -> None:
        shown = self._ask is not None and self._ask["id"] == id
        self._asks.pop(id, None)
        self._drafts.pop(id, None)
        if shown:
            self._end_question()
            if ask := self._ask:
                await self._show_ask(ask)

    def _end_question(self) -> None:
        """Drop an unfinished answer, including the reason that was being typed."""
        if self._reasons:
            self._input.default_buffer.reset()
        self._form, self._lasting, self._reasons = None, None, False

    # Messages to and from the daemon

    def _do(self, work: Awaitable[None]) -> None:
        """Run ``work`` in the background and print its error, if any."""

        async def report() -> None:
            try:
                await work
            except (PyagentdError, click.ClickException, OSError) as error:
                await self._say(str(error))
            self._input.app.invalidate()

        task = asyncio.create_task(report())
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _send(self, text: str) -> None:
        message = new_id("msg")  # with one id, a second attempt does not send it twice
        for attempt in (1, 2):
            try:
                check_length(text, hint="name a file that holds it")
                await self._attach(" ".join(text.split())[:NAME])
                if self._place and attempt == 1 and (shown := mentioned_files(text, self._root_of())):
                    text = with_files(text, shown, self._place)
                env = run_environment(os.environ, str(self._settings.get("backend") or ""))
                limit = COMMAND_TIMEOUT_S if text.startswith("/") else CALL_TIMEOUT_S
                sent = await self._daemon.call("prompt", limit, branch=self._branch, text=text, id=message, env=env)
                break
            except Unreachable:  # the daemon ended unnoticed; the next call starts it
                if attempt == 2:
                    raise
        if command := sent.get("command"):
            if not command["recorded"]:  # a recorded answer arrives as events
                await self._print(wrap_columns(printable(str(command["text"])), self._console.size.width))
            await self._list_commands()

    async def _list_commands(self) -> None:
        found = await self._daemon.call("commands", branch=self._branch or None)
        self._commands = found["commands"]

    async def _attach(self, name: str = "chat") -> None:
        """Attach to the session, creating a new one if needed, and show the events that were missed."""
        if self._is_attached:
            return
        if self._place is None:
            made = await self._daemon.call("create-session", name=name, preset=self._preset, root=str(self._root))
            self._place = Path(made["branch_dir"])
        state = await self._daemon.call("attach", branch=str(self._place))
        self._branch, upto = str(state["branch"]), int(state["seq"])
        self._is_attached = True
        self._settings = state["settings"]
        self._title = str(state.get("title") or "")
        self._asks.clear()
        self._form = None
        events = await self._missed_events(upto)
        for event in events:
            await self._show(event)
        self._known = max(self._known, upto)
        for ask in state.get("asks") or ():
            self._arrivals.put_nowait(Event("ask", self._branch, 0, (ask,)))
        for kind in ("context", "status"):
            if state.get(kind):
                self._arrivals.put_nowait(Event(kind, self._branch, 0, (state[kind],)))
        for line in state.get("notes") or ():
            await self._say(str(line))

    async def _missed_events(self, upto: int) -> list[Event]:
        """Return the events up to row ``upto`` that were not shown; the first time only those of the last turns."""
        first = not self._known
        after = self._known or max(0, upto - _SHOWN_ROWS)
        events: list[Event] = []
        while after < upto:
            page = await self._daemon.call("replay", branch=self._branch, after=after, upto=upto)
            events += [event for event in page_events(page, self._branch) if event.kind not in ("ask", "answered")]
            after = int(page["seq"])
            if page["done"]:
                break
        start = next((at for at, event in enumerate(events) if event.kind in ("prompt", "fired")), 0) if first else 0
        return events[start:]

    def _lost(self) -> None:
        if self._is_attached:
            self._is_attached = False
            self._state = "idle"
            self._asks.clear()
            self._end_question()
            self._do(self._say("the daemon has ended; your next message starts it again"))

    async def _tell(self) -> None:
        while True:
            event = await self._arrivals.get()
            try:
                if event.branch != self._branch or 0 < event.seq <= self._known:
                    continue  # already shown
                await self._show(event)
                self._known = max(self._known, event.seq)
            except PyagentdError:
                pass  # the daemon has ended, which ``_lost`` reports
            if self._arrivals.empty():
                self._input.app.invalidate()

    async def _show(self, event: Event) -> None:
        self._progress.take(event)
        match event.kind, event.args:
            case "insert", (str() as text, role):
                for piece in self._transcript.insert(text, role):
                    await self._write(piece)
            case "prompt", (str() as text, *_):
                await self._show_prompt(text)
            case "fired", ({"text": str(text)},):
                await self._show_prompt(text)
            case "tool", (Mapping() as call,) if call.get("id") not in self._calls:
                self._calls.add(str(call.get("id")))
                for piece in self._transcript.tool(call):
                    await self._write(piece)
            case "run", ({"phase": "started"},):
                self._began = time.monotonic()
            case "run", ({"phase": "finished", "reason": reason, **rest},):
                await self._finish()
                reasons = {"done": "", "aborted": "interrupted", "restart": "the daemon's end cut this off"}
                await self._say(reasons.get(str(reason), str(rest.get("message") or reason)))
            case "status", (Mapping() as status,):
                if status.get("state") != self._state and not self._busy:
                    self._began = time.monotonic()
                self._state, self._queued = str(status.get("state")), int(status.get("queued") or 0)
            case "ask", ({"id": _} as ask,):
                await self._put(ask)
            case "answered", ({"id": str(id)},):
                await self._remove_ask(id)
            case "context", (Mapping() as context,):
                share = f"{100 * int(context['used']) // int(context['window'])}%" if context.get("window") else ""
                self._used = share and f"context {share}"
            case "session", ({"title": str(title)},):
                self._title = title
            case "notice", (Mapping() as notice,):
                await self._say(str(notice.get("text", "")))
            case "resync", _:
                self._is_attached = False
                await self._attach()

    # Output

    async def _show_prompt(self, text: str) -> None:
        await self._finish()
        self._transcript = Transcript()

        first, *more = printable(text.strip()).splitlines() or [""]
        style = "" if first.startswith("/") else "bold"  # below a command is its answer
        await self._print(
            "", Text(f"› {first}", style="bold"), *(Text(f"  {line}", style=style) for line in more), ""
        )

    async def _write(self, piece: Piece) -> None:
        text = printable(piece.text)
        if piece.style == "plain":
            await self._end_dim()
            if complete := self._answer.feed(text):
                await self._print(self._markdown(complete), "")
            return
        await self._end_answer()
        whole, line_end, self._dim = (self._dim + text).rpartition("\n")
        if line_end:
            await self._print(Text(whole, style="dim"))

    async def _end_dim(self) -> None:
        if self._dim:
            rest, self._dim = self._dim, ""
            await self._print(Text(rest, style="dim"))

    async def _end_answer(self) -> None:
        if (rest := self._answer.flush()).strip():
            await self._print(self._markdown(rest), "")

    async def _finish(self) -> None:
        """Print all unfinished output."""
        for piece in self._transcript.end():
            await self._write(piece)
        await self._end_dim()
        await self._end_answer()

    def _draft_lines(self) -> list[str]:
        """Return the rendered lines of the answer's last block."""
        rest = self._answer.rest
        if rest != self._tail[0]:
            with self._console.capture() as drawn:
                self._console.print(self._markdown(rest))
            self._tail = (rest, drawn.get().splitlines() if rest.strip() else [])
        return self._tail[1]

    def _markdown(self, text: str) -> Markdown:
        room = self._console.width - 2  # a block has a space on both sides
        text = _TABLE.sub(lambda block: wrap_columns(block[0], room), text)
        return Markdown(text, code_theme="ansi_dark", hyperlinks=False)

    async def _say(self, text: str) -> None:
        if text:
            await self._print(Text(f"· {printable(text)}", style="yellow"))

    async def _print(self, *parts: Any) -> None:
        with self._console.capture() as drawn:  # render before the input line is hidden
            for part in parts:
                self._console.print(part, markup=False)
        async with in_terminal():
            sys.stdout.write(drawn.get())
            sys.stdout.flush()

    async def _tick(self) -> None:
        while True:  # refresh the seconds that a run has taken
            await asyncio.sleep(_TICK_S)
            if self._busy:
                self._input.app.invalidate()

    def _above(self) -> ANSI:
        """Return the text above the input line, with the mark of that line."""
        room = max(3, self._console.size.height - 10)
        lines = [*self._draft_lines()[-room:], *self._news()]
        mark = "reason › " if self._reasons else "› "
        return ANSI("\n".join([*lines, f"\x1b[1m{mark}\x1b[0m"]))

    def _news(self) -> Iterator[str]:
        ask = self._ask
        if ask is not None and self._form is not None:
            yield from self._wrap_styled(self._form.prompt())
            if self._is_begun:
                yield from self._wrap_styled(_FIRST_SEND, _DIM)
        elif ask is not None and self._lasting:
            yield from self._wrap_styled(lasting_sentence(ask, self._lasting), _BOLD)
            yield from self._key_lines({"y": "allow that", "any other key:": "back"})
        elif ask is not None and self._is_asked:
            if self._input.default_buffer.text:
                yield from self._wrap_styled(_FIRST_SEND, _DIM)
            elif time.monotonic() >= self._armed_at:
                yield from self._key_lines(letters(ask))
            else:
                yield "…"
        elif self._busy and not self._answer.rest:
            waited = int(time.monotonic() - self._began)
            yield from self._wrap_styled(f"{self._progress.text} {waited} s", _DIM)

    def _wrap_styled(self, text: str, style: str = "") -> Iterator[str]:
        """Yield ``text`` wrapped to the terminal's width, since longer lines would be cut."""
        for line in printable(text).splitlines():
            for piece in Text(line).wrap(self._console, self._console.width):
                yield f"{style}{piece.plain}\x1b[0m" if style else piece.plain

    def _key_lines(self, words: Mapping[str, str]) -> Iterator[str]:
        """Yield the keys and their ``words``, wrapped to the terminal's width."""
        line, wide = "", 0
        for key, word in words.items():
            more = len(f"{key} {word}")
            if line and wide + 3 + more > self._console.width:
                yield line
                line, wide = "", 0
            line += f"{'   ' if line else ''}{_BOLD}{key}\x1b[0m {word}"
            wide += more + (3 if wide else 0)
        yield line

    def _below(self) -> str:
        if time.monotonic() - self._interrupted_at < _LEAVE_S:
            return " Ctrl-C again leaves"
        facts = (self._title, self._settings.get("model"), self._used, f"{self._queued} queued" * bool(self._queued))
        line = " · ".join(printable(str(fact)) for fact in facts if fact)
        return f" {line or 'Enter sends · Alt-Enter new line · Tab completes @ and / · Ctrl-D leaves'}"

    def _root_of(self) -> Path:
        return Path((self._place and workspace_root(self._place)) or self._root)


def _terminal(is_lent: Callable[[], bool]) -> tuple[Vt100Input, Vt100_Output]:
    """Return the keyboard and the screen of a chat.

    The terminal stays in raw mode with marked pastes while the chat prints; it is restored only for another program.
    """

    class Keyboard(Vt100Input):
        def cooked_mode(self) -> AbstractContextManager[None]:
            return super().cooked_mode() if is_lent() else nullcontext()

    class Screen(Vt100_Output):
        def disable_bracketed_paste(self) -> None:
            if is_lent():
                super().disable_bracketed_paste()

    return Keyboard(sys.stdin), Screen.from_pty(sys.stdout, term=get_term_environment_variable())


class _History(FileHistory):
    """The history of messages of all chats."""

    def __init__(self) -> None:
        file = sessions_dir() / ".chat-history"
        file.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))  # prompts are private
        super().__init__(str(file))

    def store_string(self, string: str) -> None:
        with suppress(OSError):  # with a full disk a message can still be sent
            super().store_string(string)


def _diff(text: str, mark: str = "") -> Iterator[Any]:
    """Yield the lines of a text; those that begin with ``mark`` are a diff and get its colours."""
    for line in printable(text).splitlines():
        body = line.removeprefix(mark)
        of_diff = line.startswith(mark) and not body.startswith(("+++", "---"))
        style = {"+": "green", "-": "red", "@": "cyan"}.get(body[:1], "") if of_diff else ""
        yield Text(line, style=style)


# Completion with Tab: the files of the project after @, commands and their arguments after /.


def _complete(event: KeyPressEvent) -> None:
    """Complete at once: Enter may be the next key."""
    buffer = event.current_buffer
    state = buffer.complete_state
    if state is not None and state.current_completion is not None:
        buffer.complete_next()
        return
    document = buffer.document
    found = list(buffer.completer.get_completions(document, CompleteEvent(completion_requested=True)))
    common = get_common_complete_suffix(document, found) if len(found) > 1 else ""
    if common:
        buffer.insert_text(common)
    elif found:
        buffer.complete_state = CompletionState(document, found)
        buffer.go_to_completion(0)
        if len(found) == 1:
            buffer.complete_state = None


class _Completer(Completer):
    """Completes files and commands in a prompt."""

    def __init__(self, root: Callable[[], Path], commands: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        self._root, self._commands = root, commands
        self._files: Sequence[str] = ()
        self._fresh_until = 0.0

    def get_completions(self, document: Document, event: Any) -> Iterator[Completion]:
        before = document.text_before_cursor
        word = before[max(before.rfind(" "), before.rfind("\n")) + 1 :]
        if word.startswith("@"):
            if time.monotonic() > self._fresh_until:
                self._files, self._fresh_until = files(self._root()), time.monotonic() + _FRESH_S
            for name in completions(word[1:], self._files):
                yield Completion(f"@{name}", -len(word))
        elif before.startswith("/") and "\n" not in before:
            for text, about in command_completions(before, self._commands()):
                yield Completion(text, -len(before), display_meta=about)


def command_completions(line: str, commands: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the completions of a slash command, each with a description."""
    for command in commands:
        name = f"/{command['name']}"
        if name.startswith(line):
            yield f"{name} " if command.get("arguments") else name, str(command.get("summary") or "")
        elif line.startswith(f"{name} "):
            *_, word = line.split(" ")
            at = len(line[len(name) + 1 :].split(" ")) - 1
            arguments = [each for each in command.get("arguments") or () if each.get("takes") != "flag"]
            if at < len(arguments):
                about = str(arguments[at].get("summary") or "")
                for value, known in _values(arguments[at], word):
                    yield f"{line[: len(line) - len(word)]}{value}", known or about


def _values(argument: Mapping[str, Any], word: str) -> list[tuple[str, str]]:
    """Return an argument's values that begin with ``word``, each with a description."""
    choices = ((str(each), "") for each in argument.get("choices") or ())
    known = models_known().items() if argument.get("values") == "models" else choices
    return [(value, about) for value, about in known if value.startswith(word)]


def files(root: Path) -> list[str]:
    """Return the relative names of a project's files: those that git knows, without git all files."""
    if (known := git_files(root, _MOST_FILES)) is not None:
        return known
    found: list[str] = []
    for directory, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        found += [os.path.relpath(Path(directory, name), root) for name in sorted(names) if not name.startswith(".")]
        if len(found) > _MOST_FILES:
            break
    return found[:_MOST_FILES]


def completions(word: str, names: Sequence[str]) -> list[str]:
    """Return the names that begin with ``word``, or if none does, those that contain it; the shortest first."""
    lower = word.lower()
    found = [name for name in names if name.startswith(word)] or [name for name in names if lower in name.lower()]
    return sorted(found, key=lambda name: (len(name), name))[:_MOST_COMPLETIONS]
