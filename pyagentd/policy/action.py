"""What is about to happen, as values: an action, its paths, and every way of writing it down.

An action is written ``tool:<name>:<detail>``. Profiles and grants are regular expressions about that text, and each
may use any name of the tool (DD-42) and, inside the workspace, the path relative to its root.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyagentd.policy.aliases import action_names
from pyagentd.policy.roam import RoamTarget

if TYPE_CHECKING:
    from pyagentd.policy.shell import ShellReading

Kind = Literal["read", "write", "command", "pattern", "net", "mcp", "self", "meta"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPath:
    """A path in both its forms, absolute and without ``.`` or ``..``."""

    lexical: str  # as written
    resolved: str  # with every symbolic link followed; only this one is ever opened

    def __str__(self) -> str:
        same = self.lexical == self.resolved
        return self.lexical if same else f"{self.lexical} (really {self.resolved})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What is about to happen; as text ``tool:<name>:<detail>``, or ``rule``."""

    tool: str
    detail: str
    kind: Kind
    paths: tuple[ResolvedPath, ...] = ()  # used as ``kind`` says; of a command: what it is known to read
    writes: tuple[ResolvedPath, ...] = ()  # what a command is known to write
    command: str | None = None
    shell: ShellReading | None = None  # what the grammar makes of the command
    confined: bool = True  # something keeps the command inside its scope while it runs
    roam: RoamTarget | None = None  # of kind "pattern"
    root: str = ""  # the workspace root, for what a profile says about paths relative to it
    rule: str = ""  # of kind "mcp": the whole text, ``mcp:<server>:<tool>``
    roams: bool = False  # it may change any file of the workspace, and nobody can tell which
    change: str | None = None  # of kind "self": what it was and what it would be, as JSON for the audit

    def __str__(self) -> str:
        return self.rule or f"tool:{self.tool}:{self.detail}"

    @property
    def forms(self) -> tuple[str, ...]:
        """The action as written and as what is really done: the file a link leads to, each command of a line.

        A permission has to hold for all of them: a link that somebody makes must not borrow its name's rights, nor a
        command those of the one before it.
        """
        if self.kind == "command":
            commands = self.shell.commands if self.shell is not None else ()
            return tuple(dict.fromkeys((str(self), *(f"tool:{self.tool}:{each.text}" for each in commands))))
        own = {path.lexical.rstrip("/"): path.resolved.rstrip("/") for path in self.paths}
        really = own.get(self.detail.rstrip("/"))
        if really is None or really == self.detail.rstrip("/"):
            return (str(self),)
        return (str(self), f"tool:{self.tool}:{really or '/'}")

    def spellings(self, form: str) -> Iterator[str]:
        """Yield every way of writing one of ``forms``."""
        if self.rule:
            yield from (self.rule, f"tool:{self.rule}")  # so that ``tool:.*`` is everything
            return
        detail = form.removeprefix(f"tool:{self.tool}:")
        details = [detail]
        if self.root and self.kind in ("read", "write"):
            root = self.root.rstrip("/")
            if detail.rstrip("/") == root:
                details.append(".")
            elif detail.startswith(root + "/"):
                details.append(detail[len(root) + 1 :])
        for name in action_names(self.tool):
            for each in details:
                yield f"tool:{name}:{each}"
