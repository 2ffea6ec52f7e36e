"""What a slash command is: its name, its arguments, what it does, what it answers.

Who offers commands is a ``Source``: the daemon's own operations, prompts of servers, the user's files. All of them
are one table, ``Commands``; of two commands with the same name the first source's holds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pyagentd.agent.running.settings import SendOptions
from pyagentd.store.paths import BranchRef

Values = Literal["", "agents", "keys", "models", "permissions", "contexts", "tasks", "commands"]
"""What completes an argument: names of agents, keys of ``agent config``, …; "" when nothing does."""

Takes = Literal["word", "rest", "flag"]
"""A word or a quoted text; all that is left of the line; nothing, and it is written ``--name``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument.

    Attributes:
        name: Under which the command gets it; of a flag with ``_`` for ``-``.
        summary: What it is, in a few words.
        required: Whether the command does nothing without it.
        takes: How it is written.
        values: What completes it.
        choices: All it can be, if that is a few words.
        quoted: It is a text: several words of it are in quotation marks, and one without is the last of the line.
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
        """How it is written in a synopsis."""
        if self.takes == "flag":
            return f"[--{self.name.replace('_', '-')}]"
        shown = f"<{self.name}>" if self.required else f"[{self.name}]"
        return f"{shown}…" if self.takes == "rest" else shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A command that was typed.

    Attributes:
        command: Which.
        arguments: What was given, by name; a flag that was given is True.
        ref: The conversation in which it was typed.
        options: Of the client, for what asks a model.
        client: Who typed it, as operations know it.
    """

    command: Command
    arguments: Mapping[str, Any]
    ref: BranchRef
    options: SendOptions
    client: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command answers; the model never sees it.

    Attributes:
        text: For people, in Markdown or as lines; "" when what follows says it all.
        data: The same for programs.
        prompt: What is sent to the model next, as the user's message; "" for nothing.
        prompt_origin: Who wrote it, as the ``origin`` of its row, where that is not the user.
        then: What is done once the answer stands in the document, such as putting more text below it; returns the run
            that it began, if it did.
    """

    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    prompt: str = ""
    prompt_origin: str = ""
    then: Callable[[], Awaitable[str | None]] | None = None


Run = Callable[[Call], Awaitable[Answer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command.

    Attributes:
        name: What is typed behind the slash: one word, or several with one space between.
        summary: What it does, a line.
        arguments: In their order; at most the last one takes the rest of the line.
        run: Does it; a ``PyagentdError`` is what is answered then.
        changed_by: The arguments with which it changes something; none when it only looks or sends a message to the
            model, and None when it always changes something.
        origin: Whose it is, for people: "pyagentd", a server's or a file's name.
    """

    name: str
    summary: str
    run: Run
    arguments: tuple[Argument, ...] = ()
    changed_by: tuple[str, ...] | None = None
    origin: str = "pyagentd"

    def changes(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether it changes something when it is given ``arguments``."""
        return self.changed_by is None or any(name in arguments for name in self.changed_by)

    @property
    def synopsis(self) -> str:
        """How it is typed."""
        return " ".join([f"/{self.name}", *(argument.hint for argument in self.arguments)])


class Source(Protocol):
    """Who offers commands."""

    async def commands(self, ref: BranchRef | None) -> Sequence[Command]:
        """Return the commands of a conversation, or those that hold anywhere; quick, and asks nobody outside."""
        ...


class Commands:
    """All commands there are, from all sources.

    Attributes:
        sources: Who offers them, the first one first.
    """

    def __init__(self) -> None:
        self.sources: list[Source] = []

    async def of(self, ref: BranchRef | None) -> dict[str, Command]:
        """Return the commands of a conversation by name."""
        found: dict[str, Command] = {}
        for source in self.sources:
            for command in await source.commands(ref):
                found.setdefault(command.name, command)
        return found
