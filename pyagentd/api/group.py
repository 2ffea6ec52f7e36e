"""The base class of all groups of operations: access to the kernel and the registry, and the lookup of branches.

A group is a class whose public methods are operations: they take the calling client and keyword arguments, and
return plain values; ``wire.connection`` converts both for the wire. Errors are those of ``errors.py``.
"""

import asyncio
import inspect
import json
import logging
import os
import secrets
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NotRequired, Protocol, TypedDict, TypeVar, cast

from pyagentd.config.tables import compile_action
from pyagentd.errors import BadRequest, NotASession, NotFound, StoreError
from pyagentd.events import Sink
from pyagentd.features.indexer import Indexer
from pyagentd.features.overview import Overview
from pyagentd.policy.action import under
from pyagentd.policy.presets import Preset
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.feature import BranchWritten
from pyagentd.runtime.kernel import Kernel
from pyagentd.runtime.queue import Receipt
from pyagentd.runtime.settings import SendOptions
from pyagentd.store import metadata, paths, sessions
from pyagentd.store.atomic import make_dirs, write_bytes
from pyagentd.store.metadata import workspace_root
from pyagentd.store.paths import BranchRef
from pyagentd.store.registry import Registry
from pyagentd.wire.connection import Operation, operation

# A reply larger than this is sent as a file, which is kept for a while.
INLINE_LIMIT = 512 * 1024
REPLIES = "replies"  # the directory of these files, in the runtime directory
KEPT_S = 600.0

TITLE_LENGTH = 200  # characters

Followed = Literal["sessions", "tasks", "output", "agents", "queue", "asks"]  # output: of tasks

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""The default of a plist argument."""

Env = Mapping[str, Any]
"""The client's variables; on the wire a plist, ``(:NAME "value" …)``."""

_log = logging.getLogger(__name__)


class Client(Sink, Protocol):
    """The calling client, as operations see it."""

    name: str  # as the client introduced itself
    human: bool  # a human can answer questions there


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """The daemon's process, as operations see it."""

    stop: Callable[[], None]
    clients: Callable[[], int]  # how many are connected
    started: float = field(default_factory=time.monotonic)


class JsonReply(TypedDict):
    """JSON, in the reply or, if large, in a file."""

    json: NotRequired[str]
    path: NotRequired[str]


class Note(TypedDict):
    """A remark, if nothing was done."""

    note: str | None


Other = TypeVar("Other", bound="Group")
Reply = TypeVar("Reply")


class Group:
    """Operations on one kernel: every public coroutine method that takes a client, see ``wire.connection``."""

    def __init__(self, kernel: Kernel, registry: Registry, indexer: Indexer | None, process: Process) -> None:
        self._kernel = kernel
        self._registry = registry
        self._indexer = indexer
        self._process = process

    def _group(self, kind: type[Other]) -> Other:
        return kind(self._kernel, self._registry, self._indexer, self._process)

    def _ref(self, branch: str) -> BranchRef:
        live = self._kernel.opened(branch)
        return live.ref if live is not None else self._registry.resolve(branch)

    def _directory(self, session: str) -> Path:
        """Return the directory that a name means: the branch's for ID/BRANCH, else the session's or agent's."""
        ref = self._registry.resolve(session)
        named = "/" in session and not session.startswith(("/", "~", "."))
        return ref.branch_dir if named else ref.session_dir

    def _open(self, branch: str) -> LiveBranch:
        live = self._kernel.opened(branch)
        if live is None:
            raise NotFound(f"{branch} is not attached", hint="Attach it first")
        return live

    @property
    def _index(self) -> Indexer:
        if self._indexer is None:
            raise StoreError("There is no index here")
        return self._indexer

    async def _json_reply(self, what: str, text: str) -> JsonReply:
        """Return JSON in the reply, or in a file named after ``what`` if it is too large for a frame."""
        if len(text) < INLINE_LIMIT // 4:  # a character may take four bytes
            return {"json": text}
        return {"path": await self._spill(f"{what}.json", text.encode("utf-8", "replace"))}

    async def _rows_reply(self, what: str, rows: Sequence[Any]) -> Any:
        """Return rows under the key ``what``, or a JSON file with them if they are too large for a frame."""
        # Row by row: one long call would block every other thread.
        data = await asyncio.to_thread(lambda: f'{{"{what}": [{", ".join(map(json.dumps, rows))}]}}'.encode())
        return {what: rows} if len(data) < INLINE_LIMIT else {"path": await self._spill(f"{what}.json", data)}

    async def _spill(self, name: str, data: bytes) -> str:
        """Write a reply that is too large for a frame to a file; it is deleted after ``KEPT_S`` seconds."""
        file = self._kernel.config.runtime_dir / REPLIES / f"{secrets.token_hex(8)}-{name}"
        await asyncio.to_thread(make_dirs, file.parent)
        await asyncio.to_thread(write_bytes, file, data, fsync=False)
        asyncio.get_running_loop().call_later(KEPT_S, lambda: file.unlink(missing_ok=True))
        return str(file)

    async def _root(self, branch: str | None, root: str | None) -> str | None:
        """Return the workspace of ``branch`` if given, else ``root``."""
        if not branch:
            return root
        async with self._kernel.using(self._ref(branch)) as live:
            return str(workspace_of(live))

    async def _template(self, root: str | None, preset: str) -> tuple[Path | None, Preset, str]:
        """Return the project ``root`` (or None), and the preset for a session there, parsed and as text."""
        workspace = project_of(root) if root else None
        of_project = await asyncio.to_thread(self._kernel.presets.for_project, workspace)
        return workspace, *of_project.template(preset)

    async def _create_session(
        self,
        name: str,
        workspace: Path | None,
        facts: Mapping[str, Any],
        *,
        preset_name: str,
        preset_text: str,
        readable: Sequence[str] = (),
        **more: Any,
    ) -> BranchRef:
        """Create a session, like ``sessions.create_session``, that may read and write below ``workspace``."""
        inside = () if workspace is None else (under(str(workspace)),)
        if inside or readable:
            preset_text = await asyncio.to_thread(
                sessions.with_rights, preset_text, preset_name, read=(*inside, *readable), write=inside
            )
        ref = await asyncio.to_thread(
            sessions.create_session,
            self._kernel.config.sessions_dir,
            name,
            preset_name=preset_name,
            preset_text=preset_text,
            clock=self._kernel.clock,
            facts={"workspace_root": str(workspace or Path.home()), **facts},
            **more,
        )
        self._registry.add(ref)
        self._kernel.origins.note_made(ref)
        await self._kernel.hold(ref)  # clients that list sessions are notified
        return ref

    def _touch(self, *branches: BranchRef) -> None:
        """Update the metadata's time of change; a failure is only logged."""
        now = self._kernel.clock.now()
        for ref in branches:
            try:
                metadata.touch_scope_plan(ref.branch_dir, now)
            except StoreError as error:
                _log.warning("%s", error)

    def _follow(self, client: Client, *what: Followed) -> None:
        """Subscribe a client to the events that it follows."""
        if "sessions" in what and (overview := self._kernel.find(Overview)) is not None:
            overview.watchers.add(client)
        if {"tasks", "output", "agents"} & set(what):
            self._kernel.overseers.add(client)

    def _tell_written(self, *branches: BranchRef) -> None:
        """Announce on the bus that the files of branches were written."""
        for ref in branches:
            self._kernel.bus.tell(BranchWritten(ref))


def methods(group: type[Group]) -> Iterator[tuple[str, str]]:
    """Yield for each operation of a class its name on the wire and its method's name.

    A method such as ``import_``, named after a Python keyword, loses its trailing underscore.
    """
    for name, value in vars(group).items():
        if name.startswith("_") or not inspect.iscoroutinefunction(value):
            continue
        if "client" in inspect.signature(value).parameters:
            yield name.rstrip("_").replace("_", "-"), name


def operations_of(group: Group) -> dict[str, Operation]:
    """Return the operations of a group by their names on the wire."""
    return {name: operation(name, getattr(group, method)) for name, method in methods(type(group))}


def reply_of(kind: type[Reply], source: object, **more: Any) -> Reply:
    """Return a reply, or a part of one, of type ``kind``, from ``more`` and the attributes of ``source``."""
    names = [name for name in kind.__annotations__ if name in more or name in kind.__required_keys__]  # type: ignore[attr-defined]
    return cast(Reply, {name: more[name] if name in more else getattr(source, name) for name in names})


def name_of(directory: Path) -> str:
    """Return the displayed name of the branch in a directory, or "" if it is deleted."""
    try:
        return paths.ref_of(directory).name
    except NotASession:
        return ""


def typed_title(text: str) -> str:
    """Return a title that a user typed, on one line; raises ``BadRequest`` if it is not valid."""
    wanted = " ".join(text.split())
    if not 0 < len(wanted) <= TITLE_LENGTH or any(unicodedata.category(char) in ("Cc", "Cs") for char in wanted):
        raise BadRequest(f"{text[:40]!r} is not a title", hint=f"Give one line of up to {TITLE_LENGTH} characters")
    return wanted


def workspace_of(live: LiveBranch) -> Path:
    """Return the working directory of a session."""
    return Path(live.conversation.session.get("workspace_root") or Path.home())


def expand_home(path: str) -> Path:
    """Expand ``~`` in ``path`` if that user exists; raises ``BadRequest`` if it is not a path."""
    if "\0" in path:
        raise BadRequest(f"{path!r} is no path", hint="Leave out the zero byte")
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path raises


def directory(path: str) -> Path:
    """Return ``path`` resolved.

    Raises:
        BadRequest: It is not a readable directory.
    """
    if not expand_home(path).is_absolute():  # the daemon's working directory is not the client's
        raise BadRequest(f"{path!r} is not an absolute path of a directory", hint="Name the project's directory")
    place = expand_home(path).resolve()
    try:
        os.close(os.open(place, os.O_RDONLY | os.O_DIRECTORY))
    except (FileNotFoundError, NotADirectoryError):
        raise BadRequest(f"{path} is not a directory", hint="Name the project's directory") from None
    except OSError as error:
        hint = "Name a directory that you may read"
        raise BadRequest(f"{path} cannot be read: {error.strerror}", hint=hint) from None
    return place


def project_of(path: str) -> Path | None:
    """Return the project for ``path``: itself, or for a path inside a branch's directory that session's project.

    A session's directory is not a project, since its rights are stored there. None if that session has no project.

    Raises:
        BadRequest: It is not a directory.
    """
    place = directory(path)
    for each in (place, *place.parents):
        if each.parent.name in (paths.BRANCHES_DIR, paths.AGENTS_DIR) and name_of(each):
            root = workspace_root(each)
            return directory(root) if root and Path(root) != Path.home() else None
    return place


# What a client sends with a message: the run's environment, its key, actions allowed beforehand, preset and model.


def send_options(client: Client, env: Env, allow: Sequence[str]) -> SendOptions:
    """Return the options for a run that a client starts.

    Raises:
        BadRequest: ``allow`` has an invalid regular expression.
    """
    variables = {name: str(value) for name, value in env.items() if value is not None}
    grants = tuple(map(compile_action, allow))
    return SendOptions(interactive=client.human, env=variables, grants=grants)


class PromptReceipt(TypedDict):
    """The outcome of sending a message."""

    run: str | None  # the run that answers it; nil while it is queued
    message: str
    queued: bool
    seq: int
    ended: str | None  # for a message that was sent before and whose run ended: how it ended


def prompt_receipt(made: Receipt) -> PromptReceipt:
    """Return the outcome of sending a message in its wire form."""
    return {
        "run": made.run_id,
        "message": made.message_id,
        "queued": made.queued,
        "seq": made.seq,
        "ended": made.ended or None,
    }
