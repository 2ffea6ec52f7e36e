"""The Bash tool: one command in its own session, confined to its agent's scope, and ended with all its processes.

The command gets no terminal and no input. Its output goes through a pipe of ours, so the call ends with the command
even when a child of it still holds the pipe.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyagentd.errors import NotASession, PyagentdError, ToolError
from pyagentd.policy import shell
from pyagentd.policy.action import Target, first_match
from pyagentd.store import paths
from pyagentd.tools.invoke import SHOWN_BYTES, create, head, truncation_notice
from pyagentd.tools.process import Group, child_environment
from pyagentd.tools.sandbox import enclosure
from pyagentd.tools.sandbox.enclosure import Enclosure, Watch, separate
from pyagentd.tools.sandbox.plan import ShellScope
from pyagentd.tools.spec import (
    Args,
    BackgroundCommand,
    Output,
    ToolContext,
    ToolSpec,
    object_schema,
    resolve_as_system,
)

log = logging.getLogger(__name__)

_DEFAULT_MS = 120_000
_MAX_MS = 600_000
_NOT_PREPARED = "[exit code 1]"  # among others: what bubblewrap ends with before it runs anything
_RECORDS = "records and settings of pyagentd, which no tool and no command may write"
_GIT = "what decides which programs git runs, for whoever uses it next"
_LONGEST = 131_071  # bytes of one argument of a program, as Linux has it
_OWN = ("/proc/self", "/proc/thread-self")
_MOST_LINKS = 40  # that the system follows
_ATTEMPTS = 4  # to confine a command while others make and remove files in its scope
_PAUSE_S = 0.5  # before the second attempt; longer before each later one

_DESCRIPTION = """\
Run a command with bash in the workspace root and return its output (stdout and stderr together).
Each call is a new shell: `cd` and variables do not last. There is no terminal and no input. A command that ends with
a code other than 0 is reported as an error together with its output. What a command leaves in the background ends
with it. For servers, watchers and what takes minutes set run_in_background: the call returns a task id at once, which
TaskOutput and KillTask take. A command sees and changes only what you may: other files look
absent or read-only, and there may be no network. For files prefer Read, Edit, Glob and Grep."""

_SCHEMA = object_schema(
    {"command": {"type": "string", "minLength": 1, "description": "The command"}},
    {
        "description": {"type": "string", "description": "What it does, in a few words for the user"},
        "timeout_ms": {
            "type": "integer",
            "minimum": 1,
            "maximum": _MAX_MS,
            "description": "Stop the command after this many milliseconds (default 120000; in the background: none)",
        },
        "run_in_background": {
            "type": "boolean",
            "description": "Return at once; the command goes on as a task, also when your turn is over",
        },
        "wake": {
            "type": "boolean",
            "description": "Of one in the background: have its end come as a message, which begins a turn",
        },
    },
)


# The output of a command: limited, its beginning in memory, all of it in a file once it is long.

_MAX_BYTES = 50_000_000  # a command that prints more is stopped: it would fill the disk
_CHUNK = 65_536
_REST_S = 0.1
_COMMAND_BYTES = SHOWN_BYTES - 1_000  # leaves room for how the command ended


class CommandOutput:
    """The output of a command: the beginning in memory, and all of it in a file once it is too long to show."""

    def __init__(self, spool_dir: Path) -> None:
        self._spool_dir = spool_dir
        self._file: int | None = None
        self._head = bytearray()
        self._size = 0
        self.path: Path | None = None

    def add(self, data: bytes) -> None:
        """Add the next piece; raises ``ToolError`` above the limit, and ``OSError``."""
        self._size += len(data)
        if self._file is None:
            self._head += data
            if self._size > _COMMAND_BYTES:
                self._open()
        else:
            _write(self._file, data)
        if self._size > _MAX_BYTES:
            raise ToolError(f"it printed more than {_MAX_BYTES // 1_000_000} MB")

    def text_for_model(self) -> str:
        """Return the text for the model."""
        whole = bytes(self._head).decode(errors="replace")
        shown = head(whole, _COMMAND_BYTES)
        if shown != whole and self.path is None:
            self._open()  # bytes that are no UTF-8 need more room when shown
        return shown if self.path is None else shown + truncation_notice(shown, self.path)

    def close(self) -> None:
        """Close the file; nothing can be added any more."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        self._file, self.path = create(self._spool_dir, "Bash")
        _write(self._file, self._head)


def _write(descriptor: int, data: bytes | bytearray) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


class Pipe:
    """Passes output from a pipe to ``printed`` as it comes."""

    def __init__(self, printed: CommandOutput) -> None:
        self._printed = printed
        self._loop = asyncio.get_running_loop()
        self._read, self.write = os.pipe()
        self._eof = asyncio.Event()
        self.refused: asyncio.Future[str] = self._loop.create_future()  # why no more is taken
        os.set_blocking(self._read, False)
        self._loop.add_reader(self._read, self._read_chunk)

    def close_write(self) -> None:
        """Close our copy of the write end, once the command has its own."""
        if self.write >= 0:
            os.close(self.write)
            self.write = -1

    async def read_rest(self) -> None:
        """Read what an ended command left in the pipe, and no more: others may hold it open for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_REST_S):
                await self._eof.wait()

    def close(self) -> None:
        """Stop reading."""
        self.close_write()
        self._loop.remove_reader(self._read)
        os.close(self._read)
        self._printed.close()

    def _read_chunk(self) -> None:
        try:
            data = os.read(self._read, _CHUNK)
            if data:
                self._printed.add(data)
                return
        except BlockingIOError:
            return
        except (OSError, ToolError) as error:
            self.refused.set_result(str(error))
        self._loop.remove_reader(self._read)
        self._eof.set()


# The tool.


async def _run(args: Args, ctx: ToolContext) -> Output:
    if args.get("run_in_background"):
        return await _run_in_background(args, ctx)
    seconds = args.get("timeout_ms", _DEFAULT_MS) / 1000
    scope = ctx.scope()
    for attempt in range(_ATTEMPTS):
        await asyncio.sleep(attempt * _PAUSE_S)
        started = await _prepare_in_thread(args["command"], scope, ctx)
        try:
            output = await _run_watched(started, scope, ctx, seconds)
            if _NOT_PREPARED not in output.text or started.was_run():
                return output
        finally:
            started.close()
    # What was to be kept from it came and went under our hands.
    raise ToolError(f"The command was not run, because it could not be confined: {output.text}", hint="Try again")


async def _run_in_background(args: Args, ctx: ToolContext) -> Output:
    if ctx.tasks is None:
        raise ToolError("Nothing can run in the background here. Run it without run_in_background.")
    wake, limit_ms = bool(args.get("wake")), args.get("timeout_ms")
    started = await _prepare_in_thread(args["command"], ctx.scope(), ctx)
    try:
        id, path = await ctx.tasks(
            BackgroundCommand(
                command=args["command"],
                enclosure=started,
                cwd=ctx.root,
                call_id=ctx.call_id,
                wake=wake,
                timeout_s=None if limit_ms is None else limit_ms / 1000,
            )
        )
    except PyagentdError as error:
        raise ToolError(f"The command was not run: {error}") from error
    ends = "Its end comes as a message." if wake else "Look at it with TaskOutput."
    text = f"Started in the background as {id}; it prints to {path}. {ends} KillTask ends it."
    return Output(text=text, brief=f"→ in the background as {id}")


async def _prepare_in_thread(command: str, scope: ShellScope, ctx: ToolContext) -> Enclosure:
    """Prepare the command in a thread; if that ends after a cancellation, close the result."""
    preparing = asyncio.ensure_future(asyncio.to_thread(_prepare, command, scope, ctx))
    try:
        return await asyncio.shield(preparing)
    except asyncio.CancelledError:
        preparing.add_done_callback(_close_unused)
        raise


def _close_unused(prepared: asyncio.Future[Enclosure]) -> None:
    if not prepared.cancelled() and prepared.exception() is None:
        prepared.result().close()


def _prepare(command: str, scope: ShellScope, ctx: ToolContext) -> Enclosure:
    env = child_environment(ctx.env)
    made = enclosure.enclose(command, scope, root=ctx.root, spool_dir=ctx.spool_dir, env=env)
    if made.mechanism is not None:
        separate(scope.records)
    return made


async def _run_watched(started: Enclosure, scope: ShellScope, ctx: ToolContext, seconds: float) -> Output:
    records = scope.records if enclosure.is_watched(started, scope) else ()
    watch = await asyncio.to_thread(Watch, records, started.git)
    printed = CommandOutput(ctx.spool_dir)
    pipe = Pipe(printed)
    try:
        status = await _run_to_end(started, ctx, pipe, seconds)
        text = printed.text_for_model()
    finally:
        pipe.close()
        # Protected files that changed while the command ran: the user, the log and the model are told.
        found = await asyncio.shield(asyncio.to_thread(watch.find_changes))
        notes = [
            _change_note(names, what, ctx) for names, what in ((found.records, _RECORDS), (found.git, _GIT)) if names
        ]
    if status:
        text = f"{text}\n[{status}]" if text and not text.endswith("\n") else f"{text}[{status}]"
    return Output(
        text="\n".join(filter(None, (text, *notes))) or "[no output]",
        ok=not status and not notes,
        truncated=printed.path is not None,
        output_path=printed.path,
        brief=f"→ {status.replace('exit code', 'exit')}" if status else "",
    )


def _change_note(changed: list[str], what: str, ctx: ToolContext) -> str:
    names, whose = ", ".join(changed), _session(ctx.branch_dir)
    log.warning("changed while a command of %s ran: %s", whose, names)
    ctx.notify(f"While a command of {whose} ran, {names} changed: {what}")
    return f"[While this command ran, {names} changed: {what}. The user has been told. Do not change it.]"


def _session(branch_dir: Path) -> str:
    """Return the id of the session or agent of ``branch_dir``."""
    try:
        return paths.ref_of(branch_dir).session_id
    except NotASession:  # it was removed
        return paths.session_dir_of(branch_dir).name


async def _run_to_end(started: Enclosure, ctx: ToolContext, pipe: Pipe, seconds: float) -> str:
    """Run the command to its end, or stop it; return what went wrong, or ""."""
    try:
        group = await Group.start(
            *started.argv,
            cwd=ctx.root,
            env=started.env,
            stdout=pipe.write,
            stderr=pipe.write,
            leader=started.leader,
            files=started.files,
        )
    finally:
        started.close_inherited()
    pipe.close_write()
    exited = asyncio.ensure_future(group.process.wait())
    try:
        ends: set[asyncio.Future[Any]] = {exited, pipe.refused}
        await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if exited.done():
            await pipe.read_rest()
            code = exited.result()
            return f"ended by signal {-code}" if code < 0 else f"exit code {code}" if code else ""
        reason = pipe.refused.result() if pipe.refused.done() else f"it did not end within {seconds:g} s"
        return f"the command was stopped: {reason}"
    finally:
        if not exited.done():
            await group.stop()


def describe_command(command: str, root: Path, scope: ShellScope, env: Mapping[str, str]) -> Target:
    """Return the action of a command in ``root`` under ``scope``, with the variables ``env``."""
    if "\0" in command:
        raise ToolError("a command must not contain a NUL character")
    try:
        size = len(os.fsencode(command))
    except UnicodeEncodeError:
        raise ToolError("a command must not contain half of a surrogate pair") from None
    if size > _LONGEST:
        raise ToolError(f"the command has {size:,} bytes, of {_LONGEST:,} at most. Write the long part to a file")
    reading = shell.read(command)
    try:
        confined = enclosure.mechanism_for(scope) is not None
    except ToolError:  # it will not run
        confined = True
    looks: tuple[str, ...] = ()
    if not confined:
        looks = (*reading.looks, *_repositories(reading.repositories, root))
        # A path through /proc/self is another file for the command than for the daemon.
        named = ((each, str(root / os.path.expanduser(each))) for each in (*looks, *reading.reads, *reading.writes))  # noqa: PTH111 - as ``resolve``
        own = next((each for each, whole in named if _is_own(whole)), None)
        reading = replace(
            reading,
            unreadable=reading.unreadable or (own and f"`{own}` is another file for each program"),
            unlisted=reading.unlisted or _planted_program(reading, scope, root, env),
        )
    return Target(
        detail=command,
        command=command,
        shell=reading,
        confined=confined,
        paths=tuple(resolve_as_system(path, root) for path in (*reading.reads, *looks)),
        writes=tuple(resolve_as_system(path, root) for path in reading.writes),
    )


def _is_own(path: str) -> bool:
    """Return whether an absolute path leads through ``/proc/self``, also by links."""
    names, here, links = path.split("/")[::-1], "", 0
    while names and links < _MOST_LINKS:
        name = names.pop()
        if name in ("", "."):
            continue
        above, here = here, f"{here}/{name}" if name != ".." else here.rpartition("/")[0]
        if here in _OWN:
            return True
        with suppress(OSError):
            target = os.readlink(here)  # noqa: PTH115
            names += target.split("/")[::-1]
            here, links = "" if target.startswith("/") else above, links + 1
    return False


def _repositories(places: tuple[str, ...], root: Path) -> tuple[str, ...]:
    """Return the directories that git searches when it runs in ``places``: the repository may begin above them."""
    tops = []
    for place in places:
        there = Path(os.path.realpath(root / os.path.expanduser(place)))  # noqa: PTH111 - as ``resolve``
        tops += [f"{top}/*" for top in (there, *there.parents) if os.path.lexists(top / ".git")][:1]
    return tuple(tops)


def _planted_program(
    reading: shell.ShellReading, scope: ShellScope, root: Path, env: Mapping[str, str]
) -> str | None:
    """Return a reason if `PATH` leads from a command's name to a file that the agent may write, else None."""
    writable = (*scope.write, f"{root}/**")
    for name in {word for command in reading.commands for word in command.all_words if "/" not in word}:
        places = (os.path.join(place, name) for place in env.get("PATH", os.defpath).split(os.pathsep))  # noqa: PTH118
        found = next((place for place in places if os.access(root / place, os.X_OK)), None)
        if found and first_match(writable, os.path.realpath(root / found)) is not None:
            return f"`{name}` is {found}, which this agent may change"
    return None


def _caution(args: Args, ctx: ToolContext) -> str:
    warnings = [enclosure.confinement_warning(ctx.scope())]
    if args.get("run_in_background"):
        wakes = "; its end begins a turn" if args.get("wake") else ""
        warnings.append(f"It goes on in the background when the turn, or the daemon, has ended{wakes}.")
    return " ".join(filter(None, warnings))


BASH = ToolSpec(
    name="Bash",
    description=_DESCRIPTION,
    input_schema=_SCHEMA,
    kind="command",
    run=_run,
    describe=lambda args, ctx: describe_command(args["command"], ctx.root, ctx.scope(), child_environment(ctx.env)),
    caution=_caution,
    confirm=True,
    timeout_s=_MAX_MS / 1000 + 30,  # the command's own limit comes first
)
