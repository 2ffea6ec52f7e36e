"""Slash commands: parsing, arguments, completion, and running them. The built-in ones are in ``api.commands``.

A ``Source`` offers commands: the daemon's own operations, prompts of MCP servers, the user's files. ``Commands`` has
those of all sources; if two have the same name, the first source wins.
"""

import asyncio
import json
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypedDict, runtime_checkable

from pyagentd.clock import new_id
from pyagentd.errors import BadRequest, PyagentdError, UserError, did_you_mean
from pyagentd.runtime import turns
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.document_sync import DocumentVersion
from pyagentd.runtime.feature import BranchWritten, Feature
from pyagentd.runtime.queue import Receipt, Submission, is_persons
from pyagentd.runtime.settings import SendOptions
from pyagentd.runtime.turns import Prompt
from pyagentd.store.document import hidden
from pyagentd.store.document.render import writable
from pyagentd.store.journal import rows_of_message
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel

log = logging.getLogger(__name__)

Values = Literal["", "agents", "keys", "models", "permissions", "contexts", "tasks", "commands"]
"""The kind of completion for an argument: names of agents, keys of ``agent config``, …; "" is none."""

Takes = Literal["word", "rest", "flag"]
"""A word or a quoted text; the rest of the line; or a flag ``--name``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of a command.

    Attributes:
        name: Its name; for a flag with ``_`` for ``-``.
        summary: A description in a few words.
        required: Whether the command fails without it.
        takes: Its syntax.
        values: Its completion.
        choices: Its possible values, if these are few.
        quoted: A text: several words need quotation marks; without them it must be the last word of the line.
    """

    name: str
    summary: str = ""
    required: bool = False
    takes: Takes = "word"
    values: Values = ""
    choices: tuple[str, ...] = ()
    quoted: bool = False

    @property
    def hint(self) -> str:
        """Its form in a synopsis."""
        if self.takes == "flag":
            return f"[--{self.name.replace('_', '-')}]"
        shown = f"<{self.name}>" if self.required else f"[{self.name}]"
        return f"{shown}…" if self.takes == "rest" else shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A command that was typed.

    Attributes:
        command: The command.
        arguments: Its arguments by name; a flag that was given is True.
        ref: The branch in which it was typed.
        options: The client's options, for requests to a model.
        client: The client that sent it, as operations know it.
    """

    command: "Command"
    arguments: Mapping[str, Any]
    ref: BranchRef
    options: SendOptions
    client: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a command; it is never sent to the model.

    Attributes:
        text: For people, in Markdown or as lines; "" if ``prompt`` is answer enough.
        data: The same for programs.
        prompt: A message to send to the model next, as the user's; "" for none.
        prompt_origin: The ``origin`` of its row, if the user is not the author.
        then: Called once the answer is in the document, to add more text below it, say; returns the id of the run
            that it began, or None.
    """

    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    prompt: str = ""
    prompt_origin: str = ""
    then: Callable[[], Awaitable[str | None]] | None = None


Run = Callable[[Call], Awaitable[Answer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A slash command.

    Attributes:
        name: The text behind the slash: one word, or several separated by single spaces.
        summary: A description in one line.
        arguments: In order; only the last one may take the rest of the line.
        run: Runs it; a ``PyagentdError`` becomes the answer.
        changed_by: The arguments with which it changes something; empty if it only reads or sends a message to the
            model, None if it always changes something.
        origin: Its source, for people: "pyagentd", a server's or a file's name.
    """

    name: str
    summary: str
    run: Run
    arguments: tuple[Argument, ...] = ()
    changed_by: tuple[str, ...] | None = None
    origin: str = "pyagentd"

    def changes(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether the command changes something with these ``arguments``."""
        return self.changed_by is None or any(name in arguments for name in self.changed_by)

    @property
    def synopsis(self) -> str:
        """The command's syntax."""
        return " ".join([f"/{self.name}", *(argument.hint for argument in self.arguments)])


@runtime_checkable
class Source(Protocol):
    """A provider of commands."""

    async def commands(self, ref: BranchRef | None) -> "Sequence[Command]":
        """Return the commands of a branch, or with None those available anywhere; fast, without requests outside."""
        ...


class Commands(Feature):
    """The commands of all sources."""

    def __init__(self, kernel: "Kernel") -> None:
        super().__init__(kernel)
        self.builtin: Source | None = None  # the daemon's own commands; features offer others

    async def of(self, ref: BranchRef | None) -> "dict[str, Command]":
        """Return the commands available in a branch by name."""
        found: dict[str, Command] = {}
        features = [each for each in self.kernel.features if isinstance(each, Source)]
        for source in (*filter(None, (self.builtin,)), *features):
            for command in await source.commands(ref):
                found.setdefault(command.name, command)
        return found


# Parsing typed text: is it a command, which one, with which arguments.
#
# A command is a prompt that begins with ``/`` and the first word of a known name; everything else is text for the
# model, a path like ``/etc/passwd`` too. Arguments are words, or texts in quotation marks. Pure.

_HEAD = re.compile(r"/([A-Za-z][\w:.-]*)(?!\S)")
_WORD = re.compile(r"""(?s:"((?:[^"\\]|\\.)*)"|'([^']*)')(?!\S)|(\S+)""")
_ESCAPED = re.compile(r'\\(["\\])')


class Token(NamedTuple):
    """A word or a quoted text, with its position in the line."""

    text: str
    start: int
    end: int
    is_quoted: bool


class TypedCommand(NamedTuple):
    """A parsed command with its arguments."""

    command: "Command"
    arguments: Mapping[str, Any]


def parse_typed(text: str, known: "Mapping[str, Command]") -> TypedCommand | None:
    """Parse a prompt as a command; None if it is text for the model.

    Raises:
        BadRequest: It is a command with invalid arguments, or with an unknown second word.
    """
    head = _HEAD.match(text)
    if head is None or not (own := [name for name in known if name.split()[0] == head[1]]):
        return None
    words = list(tokens(text, head.start() + 1))
    spelt = [token.text for token in words]
    name = max((name for name in own if name.split() == spelt[: len(name.split())]), key=len, default="")
    if not name:
        second = {each.split()[1] for each in own}
        near = get_close_matches(spelt[1], second, 1) if len(spelt) > 1 else []
        hint = f"Did you mean /{head[1]} {near[0]}?" if near else f"There is /{head[1]} {'|'.join(sorted(second))}"
        raise BadRequest(f"/{' '.join(spelt[:2])} is not a command", hint=hint)
    command = known[name]
    return TypedCommand(command, arguments_of(command, text, words[len(name.split()) :]))


def tokens(text: str, start: int) -> Iterator[Token]:
    """Yield the words of a text from ``start`` on."""
    for found in _WORD.finditer(text, start):
        double, single, bare = found.groups()
        quoted = single if double is None else _ESCAPED.sub(r"\1", double)
        yield Token(bare if quoted is None else quoted, *found.span(), bare is None)


def arguments_of(command: "Command", text: str, given: list[Token]) -> dict[str, Any]:
    """Return the arguments of a command by name; raises ``BadRequest``."""
    flags = {f"--{each.name.replace('_', '-')}": each for each in command.arguments if each.takes == "flag"}
    expected = [each for each in command.arguments if each.takes != "flag"]
    found: dict[str, Any] = {}
    left = deque(given)
    while left and left[-1].text in flags and not left[-1].is_quoted:  # flags may follow the rest of a line
        found[flags[left.pop().text].name] = True
    end = left[-1].end if left else 0
    while left:
        token = left.popleft()
        if not token.is_quoted and token.text in flags:
            found[flags[token.text].name] = True
        elif not expected:
            raise BadRequest(f"/{command.name} takes no {token.text[:60]!r}", hint=command.synopsis)
        elif expected[0].takes == "rest":
            alone = token.is_quoted and not left
            found[expected.pop(0).name] = token.text if alone else text[token.start : end].strip()
            left.clear()
        elif expected[0].quoted and not token.is_quoted and any(each.text not in flags for each in left):
            text = " ".join([token.text, *(each.text for each in left)])[:60]
            raise BadRequest(
                f"/{command.name}: {expected[0].name} is a text of several words here",
                hint=f'Put it in quotation marks, such as "{text}"',
            )
        else:
            argument = expected.pop(0)
            if argument.choices and token.text not in argument.choices:
                raise BadRequest(
                    f"/{command.name}: {token.text[:60]!r} is not a value of {argument.name}",
                    hint=f"One of {', '.join(argument.choices)}",
                )
            found[argument.name] = token.text
    if missing := next((each for each in expected if each.required), None):
        wanted = missing.summary or f"a {missing.name}"
        raise BadRequest(f"/{command.name} needs {wanted}", hint=command.synopsis)
    return found


# A command and its answer in the conversation where it was typed: recorded and shown, never sent to a model.
#
# In the log both are a turn without a request to a model, hidden from its first row on (``hidden_by`` is
# ``command``); in the document it has the role ``ignore`` and stays readable. While a run is in flight, messages are
# queued or nothing can be written, a command is answered to its client alone.

_SLASH = re.compile(r"^[#* \t]*/[A-Za-z]", re.MULTILINE)
_ALIKE = 0.75  # similarity of a misspelled command
_TICKS = re.compile(r"`{3,}")


_NO_HUMAN = "Type it at a terminal or in Emacs, send it with --command, or use the command line's own command for it"


class NoHuman(UserError):
    """A program sent a command that changes something, without marking it as a command."""

    code = "no-human"


class CommandAnswer(TypedDict):
    """The answer of a slash command, for clients."""

    name: str
    text: str  # for people
    json: str  # for programs
    code: str | None  # error code
    recorded: bool  # command and answer are in the conversation
    began: str | None  # a run that it began, such as a compaction


async def run_if_command(
    kernel: "Kernel", branch: LiveBranch, submission: Submission, client: Any
) -> tuple[Receipt, CommandAnswer] | None:
    """Run a submission that is a command; return None if it is a message for the model.

    Returns the receipt of the command, or of the message that it sent to the model, and its answer.

    Raises:
        PyagentdError: The document above the prompt cannot be read; a message would fail too.
        NoHuman: The command changes something, and the submission is not marked as typed by a human.
    """
    if submission.command == "never" or not is_persons(submission.metadata):
        return None
    if submission.id in branch.conversation.messages:  # the queue handles a repeated submission
        return None
    if submission.text is None:
        live = await branch.document.look()
        doc, end = live.document, live.place(submission.at)
        spans = [span.end for span in doc.spans if span.end <= end]
        may_be = _SLASH.search(doc.body[max(spans, default=0) : end])
    else:
        may_be = _HEAD.match(submission.text.strip())
    if may_be is None or (commands := kernel.find(Commands)) is None:
        return None
    prompt = await _prompt(branch, submission)
    if prompt.message_id:  # it was sent to a model before
        return None
    text = prompt.text.strip()
    known = await commands.of(branch.ref)
    name, code = text.split()[0].removeprefix("/"), ""
    try:
        if (found := parse_typed(text, known)) is None:
            if near := did_you_mean(name, {each.split()[0] for each in known}, shown="/{}", cutoff=_ALIKE):
                branch.say(f"/{name} is not a command, and was sent as it is. {near}")
            return None
        name = found.command.name
        # It may change something if a human typed it, or if it was sent explicitly as a command.
        may_change = submission.options.interactive or submission.command == "always"
        if not may_change and found.command.changes(found.arguments):
            raise NoHuman(f"/{name} changes something, and nobody is there who typed it", hint=_NO_HUMAN)
        call = Call(
            command=found.command,
            arguments=found.arguments,
            ref=branch.ref,
            options=submission.options,
            client=client,
        )
        answer = await found.command.run(call)
    except NoHuman:
        raise
    except PyagentdError as error:
        answer, code = Answer(text=str(error), data={"error": error.message, "hint": error.hint}), error.code
    recorded = await _record_command(kernel, branch, prompt, name, answer.text, submission) if answer.text else None
    command: CommandAnswer = {
        "name": name,
        "text": answer.text,
        "json": json.dumps(answer.data, ensure_ascii=False),
        "code": code or None,
        "recorded": recorded is not None,
        "began": None,
    }
    if answer.then is not None:
        try:
            command["began"] = await answer.then()
        except PyagentdError as error:
            branch.say(str(error))
            command["text"], command["code"] = str(error), error.code
    if answer.prompt:
        origin = {"origin": answer.prompt_origin} if answer.prompt_origin else {}
        sent = await kernel.submit(
            branch, Submission(text=answer.prompt, options=submission.options, metadata=origin)
        )
        return sent, command
    run_id, message_id = recorded or (None, "")
    last = branch.recorder.last_seq
    return Receipt(message_id=message_id, run_id=run_id, queued=False, seq=last, ended="done"), command


async def _prompt(branch: LiveBranch, submission: Submission) -> Prompt:
    """Return the prompt of a submission; while a run is in flight it has no place in the document."""
    if submission.text is not None and (branch.run is not None or branch.queue.waiting):
        return _bare(submission.text)
    if submission.text is not None:
        return await turns.from_client(branch, submission.text)
    if branch.run is not None or branch.queue.waiting:
        return _bare(await turns.text_to_queue(branch, submission.at))
    return await turns.from_document(branch, submission.at)


def _bare(text: str) -> Prompt:
    return Prompt(text=text.strip(), view=(), version=DocumentVersion())


# -- in the conversation ------------------------------------------------------------------------------------------


async def record_command(kernel: "Kernel", branch: LiveBranch, line: str, *, name: str, answer: str) -> None:
    """Record a command that was not typed, with its answer, in a conversation; neither is sent to a model."""
    prompt = await turns.from_client(branch, line)
    await _record_command(kernel, branch, prompt, name, answer, Submission(text=line, options=SendOptions()))


async def _record_command(
    kernel: "Kernel", branch: LiveBranch, prompt: Prompt, name: str, answer: str, submission: Submission
) -> tuple[str, str] | None:
    """Record a command and its answer, if that is possible now; return the ids of its run and message."""
    async with branch.starting:
        if not _may_stand(kernel, branch, prompt):
            return None
        await branch.document.look()
        await branch.look_once()
        again = await _as_it_is(branch, prompt, submission)
        if not _may_stand(kernel, branch, prompt):
            return None
        run_id, now_ms = new_id("run"), branch.recorder.now_ms()
        hiding = {**hidden.mark(hidden.COMMAND, now_ms=now_ms), "command": name}
        sent = {} if submission.id is None else {"payload": submission.payload}  # to recognise a repeated submission
        hinted = replace(again, metadata={**hiding, **sent}, id=submission.id or "")
        part = {"type": "text", "text": writable(_as_markdown(answer)), "state": "done"}
        rows = rows_of_message(
            [part], role="assistant", session_id=branch.ref.session_id, metadata=hiding, now_ms=now_ms
        )
        await branch.record_run(hinted, rows, run_id=run_id, interactive=submission.options.interactive)
        await _give_roles(branch)
    kernel.bus.tell(BranchWritten(branch.ref))
    return run_id, str(branch.conversation.runs[run_id].data["message_id"])


async def _give_roles(branch: LiveBranch) -> None:
    """Set the document's roles for commands and answers, which are hidden from the start."""
    live = await branch.document.look()
    conversation = branch.conversation.snapshot()
    own = [each for each in conversation.messages.values() if each.metadata.get("hidden_by") == hidden.COMMAND]
    before = conversation.with_rows(hidden.show(own, now_ms=branch.recorder.now_ms()))
    version, doc = DocumentVersion(revision=live.revision), live.document
    made = await asyncio.to_thread(hidden.change_roles, doc, before, conversation)
    branch.tell_roles(version, made.spans)
    await branch.secure()


def _may_stand(kernel: "Kernel", branch: LiveBranch, prompt: Prompt) -> bool:
    """Return whether text can be added to a branch now, below the prompt; the branch may have been closed."""
    is_free = branch.run is None and not branch.queue.waiting and not branch.refusal and not kernel.closing
    return is_free and prompt.version.marker is not None and kernel.opened(branch.key) is branch


async def _as_it_is(branch: LiveBranch, prompt: Prompt, submission: Submission) -> Prompt:
    """Return the prompt in the document as the command left it, or the old one if the document cannot be read."""
    try:
        return await _prompt(branch, submission)
    except PyagentdError:
        return replace(prompt, edits=())


def _as_markdown(text: str) -> str:
    """Return an answer as Markdown; several lines are fenced, so that they keep their columns."""
    if "\n" not in text:
        return text
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence} text\n{text}\n{fence}"
