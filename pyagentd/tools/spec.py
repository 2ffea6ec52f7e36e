"""What a tool is: a name, a schema, how to describe a call for the one decision, and how to run it.

A tool never decides whether it may act; it describes the call (``ToolSpec.action``), ``invoke`` asks, and the tool
then acts on exactly the paths that were asked about (``ToolContext.paths``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pyagentd.policy.action import Action, ResolvedPath
from pyagentd.policy.guard import Confirm
from pyagentd.policy.shell import ShellReading
from pyagentd.tools.around import Hooking, Keeping, Tasking
from pyagentd.tools.buffers import Buffers
from pyagentd.tools.confine.scope import UNCONFINED, ShellScope

Args = Mapping[str, Any]
Kind = Literal["read", "write", "command", "pattern", "net", "mcp", "self", "meta"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Where a call happens, and the little a tool may know about its run."""

    root: Path  # the workspace root: relative paths and commands start here
    branch_dir: Path
    spool_dir: Path  # where output too long for the model is kept; made on demand
    readable: Callable[[ResolvedPath], bool]  # is this file, found by searching, inside the read scope?
    env: Mapping[str, str] = field(default_factory=dict)  # the client's environment; secrets are never passed on
    paths: tuple[ResolvedPath, ...] = ()  # the paths that were authorised, in the order ``describe`` gave them
    call_id: str = ""  # the model's id of this call
    scope: Callable[[], ShellScope] = lambda: UNCONFINED  # what a command may touch, read anew for each
    notify: Callable[[str], None] = lambda text: None  # shows the user one line
    keeping: Keeping | None = None  # who keeps the files that calls change
    hooks: Hooking | None = None  # who asks the hooks about this call
    tasks: Tasking | None = None  # who runs commands in the background
    buffers: Buffers | None = None  # who asks the user's editors about files

    def bound_to(self, action: Action) -> ToolContext:
        """Return this context with the paths of ``action``: the tool opens these and resolves nothing anew."""
        return replace(self, paths=action.paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a call is about, as policy sees it."""

    detail: str  # the last part of the action string: an absolute path, a command, a name
    paths: tuple[ResolvedPath, ...] = ()  # of a command: what it is known to read
    writes: tuple[ResolvedPath, ...] = ()  # what a command is known to write
    command: str | None = None
    shell: ShellReading | None = None
    confined: bool = True  # something keeps the command inside its scope while it runs
    rule: str = ""  # the whole action as text, where that is not ``tool:<name>:<detail>``
    roams: bool = False  # it may change any file of the workspace, and nobody can tell which
    change: str | None = None  # of a setting: what it was and what it would be, as JSON for the audit


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a tool returns when plain text does not say enough."""

    text: str
    ok: bool = True  # False: the model gets it as an error, for instance a command's non-zero exit
    truncated: bool = False
    full: str | None = None  # the whole output, to be spooled; ``text`` is its head
    output_path: Path | None = None  # ... or the file that already holds it
    brief: str = ""  # for people, how it came out: ``· 12 matches``; see ``summary``


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """One tool, offered to the model under ``name``."""

    name: str
    description: str  # read by the model
    input_schema: Mapping[str, Any]  # the JSON Schema subset of ``schema.py``
    kind: Kind
    run: Callable[[Args, ToolContext], Awaitable[str | Output]]
    describe: Callable[[Args, ToolContext], Target]
    preview: Callable[[Args, ToolContext], str] | None = None  # what a human sees before approving; blocks
    caution: Callable[[ToolContext], str] | None = None  # what a human should know before approving, or ""; blocks
    still: Callable[[Args, ToolContext], None] | None = (
        None  # raises ``ToolError``: what they saw holds no more; blocks
    )
    confirm: Confirm = False  # ask a human unless a profile or a grant allows it; or whatever they allow
    confirming: Callable[[Args, ToolContext], Awaitable[Confirm]] | None = None  # where that depends on the call
    acts_as: str = ""  # the name of the tool in the action string, where that is another
    parallel_safe: bool = False  # may run beside other calls of the same answer
    repeatable: bool = False  # a call that the daemon's end cut off may be made again; of what only reads, always
    timeout_s: float = 60.0

    def action(self, args: Args, ctx: ToolContext) -> Action:
        """Return the call as policy sees it; raises ``ToolError`` when it names something impossible."""
        target = self.describe(args, ctx)
        return Action(
            tool=self.acts_as or self.name,
            detail=target.detail,
            kind=self.kind,
            paths=target.paths,
            writes=target.writes,
            command=target.command,
            shell=target.shell,
            confined=target.confined,
            root=str(ctx.root),
            rule=target.rule,
            roams=target.roams,
            change=target.change,
        )


def schema_of(spec: ToolSpec) -> dict[str, Any]:
    """Return ``spec`` as every provider is told about it: name, description, input_schema."""
    return {"name": spec.name, "description": spec.description, "input_schema": dict(spec.input_schema)}
