"""``ToolSpec``: a tool's name and schema, how it describes a call for policy, and how it runs; ``ToolContext``.

A tool never decides whether it may act; it describes the call (``ToolSpec.action``), ``invoke`` asks, and the tool
then acts on exactly the paths that were asked about (``ToolContext.paths``).
"""

import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, fields, replace
from difflib import SequenceMatcher
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from pyagentd.errors import ToolError
from pyagentd.events import truncate
from pyagentd.policy.action import Action, Kind, ResolvedPath, Target
from pyagentd.policy.guard import Confirm
from pyagentd.tools.sandbox.plan import UNCONFINED, ShellScope

if TYPE_CHECKING:
    from pyagentd.tools.sandbox.enclosure import Enclosure

DAY_S = 24 * 60 * 60.0
"""The limit of a tool that waits for an agent."""

FOREVER_S = 10 * 365 * DAY_S
"""The limit of a tool that waits for a human."""

# What surrounds a call besides the decision: snapshots, hooks, and commands that outlive the call.


@dataclass(slots=True)
class KeptFiles:
    """Snapshots before and after a call, as ids of git trees; "" if nothing was kept."""

    before: str = ""
    after: str = ""


class FileKeeper(Protocol):
    """Takes snapshots of the files that calls change."""

    def around(self, action: Action, call_id: str) -> AbstractAsyncContextManager[KeptFiles]:
        """Take snapshots of what ``action`` may change, before and after the block; errors do not fail the call."""
        ...


class CallHooks(Protocol):
    """Asks the hooks about one call."""

    async def before(
        self, tool: str, args: Mapping[str, Any], action_of: Callable[[Mapping[str, Any]], Action], call_id: str
    ) -> Mapping[str, Any] | None:
        """Return the hooks' arguments instead of ``args``, or None; ``action_of`` validates them, too.

        Raises:
            ToolError: A hook forbids the call.
        """
        ...

    async def after(
        self, tool: str, args: Mapping[str, Any], text: str, ok: bool, duration_ms: int, call_id: str
    ) -> str:
        """Return the text that hooks add to the result, or ""."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundCommand:
    """A command that outlives its call."""

    command: str  # as the model gave it
    enclosure: "Enclosure"  # what it has belongs to the task once that begins
    cwd: Path
    call_id: str  # the model's
    wake: bool  # its end begins a turn
    timeout_s: float | None  # None: as long as any task


TaskStarter = Callable[[BackgroundCommand], Awaitable[tuple[str, str]]]
"""Runs a command that outlives its call, and returns its task's id and the path of its output.

It raises ``PyagentdError`` at the limit of running tasks or if the disk fails, ``OSError`` if it cannot start.
"""


# Files that the user has open: what an editor shows of them, and how a change goes through it.
#
# The editor is asked after the decision, about the path that was decided about. Its text is data like that of a
# file. Positions count characters (code points) from 0, ends are exclusive.

_COMPARED_LINES = 2000  # more are replaced as a whole
_REMOTE = re.compile(r"/[A-Za-z][\w-]*:[^/]*:")


class Replacement(NamedTuple):
    """A range of a buffer, and the text that replaces it."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EditorView:
    """An editor's view of a file, or that no editor has it open."""

    buffer: str = ""  # its name, for people; "" when no editor has the file open, or none said so in time
    version: str = ""  # changes with the text; what is changed must still have it
    modified: bool = False  # it has text that is not in the file
    text: str | None = None  # without carriage returns where the file's lines end with them
    crlf: bool = False
    trouble: str = ""  # why it cannot be changed there, as the end of a sentence
    silent: bool = False  # an editor did not answer in time
    source: object = None  # who said it

    @property
    def is_open(self) -> bool:
        """Whether an editor has the file open."""
        return bool(self.buffer)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOutcome:
    """The outcome of a change."""

    outcome: Literal["done", "outdated", "refused", "unknown"]  # "outdated": the text is another by now
    reason: str = ""  # of one that was refused, or whose outcome nobody knows
    saved: bool = True


class Buffers(Protocol):
    """Asks the user's editors about files."""

    async def look(self, path: str, *, whole: bool) -> EditorView:
        """Return the editors' view of the resolved ``path``; with its text if that is newer, or if ``whole``."""
        ...

    def look_now(self, path: str, *, whole: bool) -> EditorView:
        """Do as ``look``, called from a thread."""
        ...

    async def change(self, path: str, seen: EditorView, edits: Sequence[Replacement]) -> ChangeOutcome:
        """Change the buffer of ``seen``, and save it."""
        ...


def is_remote(path: str) -> bool:
    """Return whether ``path`` is on another machine, in the notation of Emacs: ``/ssh:host:/etc/motd``."""
    return _REMOTE.match(path) is not None


def not_open_error(path: str) -> ToolError:
    """Return the error for a file of another machine that no editor has open."""
    return ToolError(
        f"{path} is on another machine, and can be reached only while the user has it open in Emacs",
        hint="Ask the user to open it",
    )


def replacements(before: str, after: str) -> list[Replacement]:
    """Return the replacements from ``before`` to ``after``, in order, as small as is cheap, so that markers stay."""
    lines, others = _lines(before), _lines(after)
    ends, starts = (list(accumulate(map(len, each), initial=0)) for each in (lines, others))
    return [
        _trim(ends[i1], before[ends[i1] : ends[i2]], after[starts[j1] : starts[j2]])
        for i1, i2, j1, j2 in changed_lines(lines, others, _COMPARED_LINES)
    ]


def _trim(start: int, old: str, new: str) -> Replacement:
    head = common_prefix(old, new)
    tail = common_prefix(old[head:][::-1], new[head:][::-1])
    text = new[head : len(new) - tail]
    if not old and start and text.endswith("\n"):
        # New lines are inserted at the end of the line before, so that markers of the line after do not move.
        return Replacement(start - 1, start - 1, f"\n{text[:-1]}")
    return Replacement(start + head, start + len(old) - tail, text)


def _lines(text: str) -> list[str]:
    """Return the lines of ``text`` with their ends; only a newline ends one."""
    return [f"{line}\n" for line in text.split("\n")[:-1]] + ([last] if (last := text.rpartition("\n")[2]) else [])


def changed_lines(old: Sequence[str], new: Sequence[str], most: int) -> list[tuple[int, int, int, int]]:
    """Return the ranges of changed lines in ``old`` and ``new``, in order.

    Comparing is quadratic, so only what lies between the common beginning and the common end is compared, and more
    than ``most`` lines are one change.
    """
    head = common_prefix(old, new)
    tail = common_prefix(old[head:][::-1], new[head:][::-1])
    old_end, new_end = len(old) - tail, len(new) - tail
    if old_end + new_end - 2 * head > most:
        return [(head, old_end, head, new_end)]
    matcher = SequenceMatcher(None, old[head:old_end], new[head:new_end], autojunk=False)
    return [
        (head + i1, head + i2, head + j1, head + j2)
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
    ]


def common_prefix(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the common prefix of two texts or lists."""
    low, high = 0, min(len(one), len(other))
    while low < high:  # comparing slices is a thousand times faster than comparing characters
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


Args = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """The context of a call: its place, and the little that a tool may know about its run."""

    root: Path  # the workspace root: relative paths and commands start here
    branch_dir: Path
    spool_dir: Path  # where output too long for the model is kept; made on demand
    readable: Callable[[ResolvedPath], bool]  # is this file, found by searching, inside the read scope?
    env: Mapping[str, str] = field(default_factory=dict)  # the client's environment; secrets are never passed on
    paths: tuple[ResolvedPath, ...] = ()  # the paths that were authorised, in the order ``describe`` gave them
    call_id: str = ""  # the model's id of this call
    scope: Callable[[], ShellScope] = lambda: UNCONFINED  # what a command may touch, read anew for each
    notify: Callable[[str], None] = lambda text: None  # shows the user one line
    keeping: FileKeeper | None = None  # None: no files are kept
    hooks: CallHooks | None = None
    tasks: TaskStarter | None = None  # None: nothing runs in the background
    buffers: Buffers | None = None

    def bound_to(self, action: Action) -> "ToolContext":
        """Return this context with the paths of ``action``: the tool opens these and resolves nothing anew."""
        return replace(self, paths=action.paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The result of a tool, if it is more than plain text."""

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
    run: "Callable[[Args, ToolContext], Awaitable[str | Output]]"
    describe: "Callable[[Args, ToolContext], Target]"
    preview: "Callable[[Args, ToolContext], str] | None" = None  # what a human sees before approving; blocks
    caution: "Callable[[Args, ToolContext], str] | None" = None  # what a human should know before, or ""; blocks
    # Raises ``ToolError`` when what they saw holds no more; blocks.
    still: "Callable[[Args, ToolContext], None] | None" = None
    confirm: Confirm = False  # True: ask a human unless a profile or a grant allows it; "always": in any case
    confirming: "Callable[[Args, ToolContext], Awaitable[Confirm]] | None" = None  # where that depends on the call
    acts_as: str = ""  # the name of the tool in the action string, where that is another
    parallel_safe: bool = False  # may run beside other calls of the same answer
    repeatable: bool = False  # a call that the daemon's end cut off may be made again; of what only reads, always
    timeout_s: float = 60.0

    def action(self, args: Args, ctx: "ToolContext") -> Action:
        """Return the call as an action for policy; raises ``ToolError`` for impossible arguments."""
        target = self.describe(args, ctx)
        facts = {each.name: getattr(target, each.name) for each in fields(Target)}
        return Action(tool=self.acts_as or self.name, kind=self.kind, root=str(ctx.root), **facts)


def object_schema(required: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the JSON Schema of an object with required and optional properties, and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def schema_of(spec: ToolSpec) -> dict[str, Any]:
    """Return ``spec`` as providers get it: name, description, input_schema."""
    return {"name": spec.name, "description": spec.description, "input_schema": dict(spec.input_schema)}


# What a path given by a model means: the path as written and the file it really is.
#
# ``lexical`` is absolute, with ``~`` expanded and ``..`` taken away by text alone; ``resolved`` follows every
# symbolic link on the way, also dangling ones and towards what does not exist yet. Both go to policy; only
# ``resolved`` is ever opened, and ``tools.files`` refuses a link that was put in its way since.

_LONGEST = 4095  # bytes of a path that a call of the system takes


def resolve(text: object, root: Path) -> ResolvedPath:
    """Return both forms of ``text``, relative to ``root``.

    Raises:
        ToolError: It is not a path: not a string, empty, with a NUL character, or not encodable.
    """
    if not isinstance(text, str) or not text.strip():
        raise ToolError("a path must be a string that is not empty")
    if "\0" in text:
        raise ToolError("a path must not contain a NUL character")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise ToolError(f"the path {text!r} cannot be the name of a file") from error
    # Leading "//" is special to normpath (POSIX leaves its meaning open); here it is "/".
    whole = os.path.join(root, os.path.expanduser(text))  # noqa: PTH111, PTH118 - Path raises, and costs more
    lexical = "/" + os.path.normpath(whole).lstrip("/")
    if (length := len(os.fsencode(lexical))) > _LONGEST:
        raise ToolError(f"the path has {length:,} bytes, and the system takes {_LONGEST:,} at most: {lexical[:60]}…")
    return ResolvedPath(lexical=lexical, resolved=os.path.realpath(lexical))


def resolve_as_system(text: str, root: Path) -> ResolvedPath:
    """Return both forms of a path that a program opens itself: ``..`` is resolved after links, as the kernel does.

    Raises:
        ToolError: It is not a path.
    """
    as_text = resolve(text, root)
    there = os.path.realpath(root / os.path.expanduser(text))  # noqa: PTH111 - as ``resolve``
    return ResolvedPath(lexical=as_text.lexical, resolved=there)


def describe_file(args: Args, ctx: "ToolContext") -> Target:
    """Return the resolved ``file_path`` of a call, for policy."""
    path = resolve(args["file_path"], ctx.root)
    return Target(detail=path.lexical, paths=(path,))


def file_of(args: Args, ctx: "ToolContext") -> ResolvedPath:
    """Return the file that such a call acts on: the authorised one, if there is one."""
    return ctx.paths[0] if ctx.paths else resolve(args["file_path"], ctx.root)


# One line that says what a tool call did: ``Bash make test → exit 2``, ``Edit main.py +1 −1``.
#
# The same words are used wherever calls are listed: on the command line, in Emacs, in scripts. ``Output.brief`` is
# the tool's summary of its result; the rest is made from its name and arguments.

_LONGEST_LINE = 100  # characters of a line
_REASON = 60  # of the reason for a failure
_NAMES = {"PersistentAgent": "", "task": "", "TodoWrite": "Todo"}  # of those that are called otherwise here


def summary(name: str, args: Args, *, brief: str = "", error: str = "", denied: str = "", root: str = "") -> str:
    """Return the line for a finished call.

    Args:
        name: The tool's name.
        args: Its arguments.
        brief: The tool's summary of its result, see ``Output.brief``.
        error: The error that the model got instead of a result.
        denied: Who denied it: "rule", "user", or "nobody" if nobody could be asked; "" if it was allowed.
        root: The workspace root, which is left out of paths.
    """
    head = " ".join(filter(None, (_NAMES.get(name, name), _object(name, args, root))))
    match denied:
        case "nobody":
            end = "→ denied, nobody could be asked"
        case "user":
            end = "→ denied by you"
        case "rule":
            end = "→ denied"
        case _:
            why = next((line.strip() for line in error.splitlines() if line.strip()), "")
            end = brief or (f"→ failed: {truncate(why, _REASON)}" if error else "")
    room = max(20, _LONGEST_LINE - len(end) - 1)
    return " ".join(filter(None, (truncate(head, room), end)))


def _object(name: str, args: Args, root: str) -> str:
    """Return the subject of a call, on one line."""
    made = _OBJECTS.get(name)
    if made is not None:
        try:
            return " ".join(made(args, root).split())
        except (KeyError, TypeError, AttributeError):  # what a model sent does not fit the tool
            pass
    values = (str(value) for value in args.values() if isinstance(value, str | int | float) and value != "")
    return " ".join(next(values, "").split())


def _path(value: Any, root: str) -> str:
    if isinstance(value, str) and not value.startswith("/"):
        return value
    path = Path(value)
    return str(path.relative_to(root)) if root and path.is_relative_to(root) else str(value)


def _file(args: Args, root: str) -> str:
    return _path(args["file_path"], root)


def _search(args: Args, root: str) -> str:
    where = _path(args.get("path") or "", root)
    what = f'"{args["pattern"]}"'
    return f"{what} in {where.rstrip('/')}/" if where not in ("", ".") else what


def _agent(args: Args, root: str) -> str:
    kind = args.get("preset") or args.get("subagent_type")
    return f"{kind}: {args.get('description') or args['prompt']}"


_OBJECTS: Mapping[str, Callable[[Args, str], str]] = {
    "Read": _file,
    "Write": _file,
    "Edit": _file,
    "Grep": _search,
    "Glob": _search,
    "Bash": lambda args, root: str(args["command"]),
    "PersistentAgent": _agent,
    "task": _agent,
    "mission": lambda args, root: str(args["prompt"]),
    "WebSearch": lambda args, root: f'"{args["query"]}"',
    "TodoWrite": lambda args, root: (
        f"{sum(each['status'] == 'completed' for each in args['todos'])} of {len(args['todos'])} done"
    ),
    "question": lambda args, root: "; ".join(each["question"] for each in args["questions"]),
}


def brief_count(count: int, one: str, many: str, *, more: bool = False) -> str:
    """Return how many were found, as ``Output.brief``: ``· 12 matches``."""
    return f"· {count}{'+' if more else ''} {one if count == 1 and not more else many}"
