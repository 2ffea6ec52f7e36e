"""The daemon's side of a connection: ``hello`` first, then calls of operations, each answered exactly once by a task.

A peer without a valid ``hello`` in time, with the token where one is needed, is disconnected silently. Afterwards
only a lost frame boundary ends the connection; every other mistake is answered with an error. When a client
disconnects, its calls are still carried out; only their answers are dropped.
"""

import asyncio
import hmac
import inspect
import logging
import os
import socket
import struct
import sys
import typing
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from pyagentd.clock import Pulse
from pyagentd.errors import BadRequest, PyagentdError, WireError, nearest
from pyagentd.events import Event, InsertRole
from pyagentd.log import forward_records
from pyagentd.reader import Misfit, convert, words
from pyagentd.wire.frames import (
    MAX_FRAME,
    PROTOCOL,
    BadHeader,
    FrameReader,
    IncomingMessage,
    Oversized,
    answer,
    check_versions,
    failure,
    frame,
    json_answer,
    parse,
    uid_of,
)
from pyagentd.wire.sexp import SexpError, Symbol, Unencodable, encode, plist_to_dict, to_symbols

# Operations and their arguments: ``(:a-key value …)`` becomes keyword arguments of the declared types, or an error.
#
# A keyword with the value nil counts as left out if the parameter has a default, as is usual in Lisp: a flag is
# declared ``flag: bool = False``, a list ``names: Sequence[str] = ()``, and neither is ever None.

Run = TypeVar("Run", bound=Callable[..., Awaitable[Any]])

_SHOWN = 60  # characters of a value that does not fit


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One argument of an operation."""

    name: str  # as in Python
    type: Any  # the resolved annotation
    default: Any  # ``inspect.Parameter.empty`` where it must be given

    @property
    def key(self) -> str:
        """Its keyword, ``:a-key``."""
        return _key(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method offered to clients."""

    name: str  # as on the wire, kebab-case
    run: Callable[..., Awaitable[Any]]
    human: bool  # whether only a client with a human may call it
    parameters: Mapping[str, Parameter]  # by name
    required: tuple[str, ...]  # names of those that must be given
    reply: Any  # the annotation of what it returns
    doc: str  # the docstring

    @property
    def arguments(self) -> str:
        """The keywords of its plist, for messages: ``(:branch :seq)``."""
        return _keywords(self.parameters)

    async def call(self, client: Any, arguments: object) -> Any:
        """Return the reply to one call.

        Args:
            client: The caller.
            arguments: The argument list of the call.

        Raises:
            BadRequest: The arguments are invalid, or the operation needs a human and the client has none.
            PyagentdError: The operation's own errors.
        """
        arguments_by_name = self.bind(arguments)
        if self.human and not client.human:
            raise BadRequest(f"{self.name} needs a person", hint="Say hello with human t where somebody answers")
        return await self.run(client, **arguments_by_name)

    def bind(self, arguments: object) -> dict[str, Any]:
        """Return the keyword arguments in ``arguments``, the argument list of a call.

        Raises:
            BadRequest: It is not one plist, a keyword is unknown or missing, or a value has the wrong type.
        """
        match arguments:
            case None | []:
                return self.bind_named({})
            case [None | list() as plist]:
                try:
                    return self.bind_named(plist_to_dict(plist))
                except SexpError as error:
                    raise BadRequest(f"{self.name}: {error.message}", hint=f"It takes {self.arguments}.") from error
            case _:
                raise BadRequest(f"{self.name} takes one plist", hint=f"It takes {self.arguments}.")

    def bind_named(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments in ``arguments``, by their names in Python; raises as ``bind``."""
        unknown = arguments.keys() - self.parameters.keys()
        if unknown or not arguments.keys() >= {*self.required}:
            missing = [name for name in self.required if name not in arguments]
            complaints = [
                *(["unknown " + " ".join(map(self._unknown, sorted(unknown)))] if unknown else []),
                *(["missing " + " ".join(map(_key, missing))] if missing else []),
            ]
            raise BadRequest(f"{self.name}: {', '.join(complaints)}", hint=f"It takes {self.arguments}.")
        bound = {}
        for name, value in arguments.items():
            parameter = self.parameters[name]
            if value is None and name not in self.required:
                continue
            if parameter.type is bool and value is None:
                value = False
            try:  # most are plain texts, which are as they should be
                plain = parameter.type is str and type(value) is str
                bound[name] = value if plain else convert(value, parameter.type)
            except Misfit:
                wanted = words(parameter.type, LISP)
                raise BadRequest(f"{self.name}: {parameter.key} must be {wanted}, got {_excerpt(value)}") from None
        return bound

    def _unknown(self, name: str) -> str:
        near = nearest(name, self.parameters)
        return _key(name) + (f" (did you mean {_key(near)}?)" if near else "")


def by_person(run: Run) -> Run:
    """Declare an operation that grants rights: only a client with a human may call it."""
    run.needs_person = True  # type: ignore[attr-defined]  # a function takes any attribute
    return run


def operation(name: str, run: Callable[..., Awaitable[Any]]) -> Operation:
    """Return ``run`` as an operation; its first parameter is the client, the others are keyword-only."""
    hints = typing.get_type_hints(run)
    found = [each for each in inspect.signature(run).parameters.values() if each.kind is each.KEYWORD_ONLY]
    return Operation(
        name=name.replace("_", "-"),
        run=run,
        human=getattr(run, "needs_person", False),
        parameters={
            each.name: Parameter(name=each.name, type=hints.get(each.name, Any), default=each.default)
            for each in found
        },
        reply=hints.get("return", Any),
        required=tuple(each.name for each in found if each.default is each.empty),
        doc=inspect.getdoc(run) or "",
    )


LISP: Mapping[Any, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "t or nil",
    type(None): "nil",
    Any: "anything",
    Mapping: "a plist",
}
"""The names of types in messages about values from Lisp."""


def _excerpt(value: object) -> str:
    """Return a value printed as Lisp, shortened if it is long."""
    text = encode(value).decode()
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _keywords(names: Iterable[str]) -> str:
    return "(" + " ".join(map(_key, names)) + ")"


def _key(name: str) -> str:
    return ":" + name.replace("_", "-")


# Who may talk to the daemon: the user it belongs to, and on TCP whoever holds the token.

# Darwin's <sys/un.h>; the module `socket` does not name them.
_SOL_LOCAL: Final = 0
_LOCAL_PEERCRED: Final = 1
_XUCRED: Final = struct.Struct("=IIh16I")


def new_token() -> str:
    """Return a fresh secret of 256 bits."""
    return os.urandom(32).hex()


def token_matches(expected: str, token: object) -> bool:
    """Compare in constant time; only a string can match."""
    return isinstance(token, str) and hmac.compare_digest(expected.encode(), token.encode("utf-8", "replace"))


def same_user(peer: socket.socket) -> bool:
    """Return whether the process at the other end of a unix socket runs as the user of this one."""
    return _peer_uid(peer) == os.geteuid()


def is_descendant(peer: socket.socket) -> bool:
    """Return whether the daemon started the process at the other end: it is a command of an agent and no client.

    Commands of background tasks that outlived an earlier daemon count, and so do peers that are gone. Peers in a
    container or on macOS cannot be traced and do not count.
    """
    if peer.family != socket.AF_UNIX:
        return _is_held_by_descendant(peer)
    try:
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    except (OSError, AttributeError):
        return False
    pid = int(struct.unpack("3i", credentials)[0])
    while pid > 0:
        if pid == os.getpid() or _runs_a_task(pid):
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return Path("/proc/self/stat").exists()
    return False


_TASK_RUNNER = b"/pyagentd/features/task_runner.py"


def _runs_a_task(pid: int) -> bool:
    try:
        return any(each.endswith(_TASK_RUNNER) for each in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))
    except OSError:
        return False


def _is_held_by_descendant(peer: socket.socket) -> bool:
    """Return whether a descendant of this process holds the other end of a local TCP connection.

    A descendant whose open files cannot be read counts as holding it.
    """
    if not Path("/proc/self/stat").exists():
        return False
    end = _inode_of(peer.getpeername(), peer.getsockname())
    if end is None:
        return True
    for pid in _family():
        try:
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                if str(descriptor.readlink()) == f"socket:[{end}]":
                    return True
        except FileNotFoundError:  # it ended, or closed it
            continue
        except OSError:
            return True
    return False


def _inode_of(own: tuple[str, int], other: tuple[str, int]) -> str | None:
    """Return the inode of the socket that is bound to ``own`` and connected to ``other``; None when it is closed."""
    wanted = (_as_in_proc(own), _as_in_proc(other))
    for table in ("tcp", "tcp6"):  # the second has IPv4 too, of who asked for both; its address ends in the same
        for line in Path("/proc/net", table).read_text("ascii").splitlines()[1:]:
            fields = line.split()
            if (fields[1][-13:], fields[2][-13:]) == wanted and fields[9] != "0":
                return fields[9]
    return None


def _as_in_proc(address: tuple[str, int]) -> str:
    number = struct.unpack("=I", socket.inet_aton(address[0]))[0]
    return f"{number:08X}:{address[1]:04X}"


def _family() -> list[int]:
    """Return the ids of this process, of the processes of background tasks, and of all their descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                parent = int(Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = [os.getpid(), *filter(_runs_a_task, (pid for pids in children.values() for pid in pids))]
    for pid in found:
        found += children.get(pid, [])
    return found


def _peer_uid(peer: socket.socket) -> int | None:
    try:
        if sys.platform == "darwin":
            credentials = peer.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size)
            return int(_XUCRED.unpack(credentials)[1])
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[1])
    except OSError:
        return None


# The events queued for one client: merged while they wait, bounded when the client is slow.
#
# Adjacent ``insert`` events of a branch with the same role become one; other branches' events in between do not
# matter, the branch's own do, so the order of each branch is exact. Everything leaves in one frame per beat of the
# pulse, or at once with an event that somebody waits for (``_URGENT``). While the socket is full nothing leaves and
# merging goes on; beyond ``BACKLOG`` bytes everything queued is dropped, each branch concerned is told ``resync``
# once and is silent until it is attached anew (``reset``).
#
# The SEQ a client sees means: *with this event, everything up to row SEQ is shown*. Where one row became several
# events (a tool's result, a text longer than ``PIECE``) only the last has its number; the others have the number of
# the row they complete, or 0 when they complete none. A backlog is dropped between rows, never inside one.

EVENTS: Final = "events"
PIECE: Final = 32_768  # characters of one insert, so ≤ 128 kB as UTF-8
BATCH: Final = 256_000  # bytes of one frame; only a single event may be longer
BACKLOG: Final = 8 << 20

_HEAD: Final = f"(call 0 {EVENTS} ((".encode()
_TAIL: Final = b")))"
_LARGEST: Final = MAX_FRAME - len(_HEAD) - len(_TAIL) - 1
_OVERHEAD: Final = 400  # bytes of an entry beside its text
_LATEST: Final = frozenset({"status", "context", "agent"})  # kinds of which the last word before a frame is told
_URGENT: Final = frozenset({"run", "ask", "answered"})  # kinds that somebody waits for, a few of each run


_Subject = tuple[str, str, str, bool]
"""Branch, kind, and of an agent its id and whether it has ended: its end never stands for its beginning."""


_encoded_branch = lru_cache(maxsize=256)(encode)


@lru_cache(maxsize=64)
def _encoded_role(role: InsertRole) -> bytes:
    """Return the role of an insert, with the parenthesis that closes its event."""
    return b" " + encode(to_symbols(role)) + b")"


@dataclass(slots=True, eq=False)
class _Entry:
    """One event to send.

    The text of an insert stays open for merging, and what the next word of its kind replaces is encoded when it
    leaves; everything else is encoded already.
    """

    kind: str
    branch: str
    seq: int  # the last row it completes, 0 for none
    row: int  # the last row it belongs to
    rest: bytes  # the arguments (of an insert: the role) with the closing parenthesis
    size: int
    text: str | None = None  # of an insert
    role: Any = None  # of an insert
    before: int = 0  # the last row it completes before ``row``
    args: tuple[Any, ...] | None = None  # of what is encoded when it leaves
    subject: _Subject | None = None  # of what the next word about the same replaces


class Outbox:
    """The queue of events of one connection.

    Args:
        write: Sends a frame; may call ``pause`` before it returns.
        request: Schedules ``flush`` at the next beat, or soon; see ``Pulse.request``.
    """

    def __init__(self, write: Callable[[bytes], None], request: Callable[..., None]) -> None:
        self._write = write
        self._request = request
        self._queue: deque[_Entry] = deque()
        self._last: dict[str, _Entry] = {}  # the newest queued entry of each branch
        self._last_row: dict[str, _Entry] = {}  # ... and the newest that has a number
        self._latest: dict[_Subject, _Entry] = {}  # ... and what was said last of each subject
        self._shown: dict[str, int] = {}  # what each branch has been shown, by the client's own account
        self._unfinished: set[str] = set()  # branches with a row of which only a part has left
        self._silent: set[str] = set()  # branches that lost events and were not attached since
        self._size = 0
        self._paused = False
        self.closed = False  # nobody listens any more

    def push(self, event: Event) -> None:
        """Queue ``event``; never blocks and never raises."""
        if self.closed or event.branch in self._silent:
            return
        try:
            if event.kind == "insert":
                self._push_insert(event.branch, event.seq, *event.args)
            elif event.kind in _LATEST:
                agent = event.args[0] if event.kind == "agent" else {}
                subject = (event.branch, event.kind, str(agent.get("id", "")), agent.get("state") == "finished")
                old = self._latest.get(subject)
                if old is not None and self._last.get(event.branch) is old:
                    old.args = event.args
                else:
                    if old is not None:
                        self._queue.remove(old)
                        self._size -= old.size
                    size = 2 * _OVERHEAD
                    entry = _Entry(event.kind, event.branch, 0, 0, b"", size, args=event.args, subject=subject)
                    self._latest[subject] = entry
                    self._enqueue(entry)
            else:
                rest = b" " + encode(event.args)[1:] if event.args else b")"
                self._reopen_row(event.branch, event.seq)
                self._enqueue(_Entry(event.kind, event.branch, event.seq, event.seq, rest, _OVERHEAD + len(rest)))
        except (Unencodable, TypeError):
            _log.exception("An event of kind %s cannot be sent", event.kind)
            return
        if self._size > BACKLOG:
            self._overflow()
        self._wake(urgent=event.kind in _URGENT)

    def reset(self, branch: str, seq: int) -> None:
        """Drop what is queued for ``branch``: the client learns its rows up to ``seq`` in another way.

        For the operation that attaches: its answer covers ``seq``, and is sent before any later event if nothing is
        awaited between this call and the return. It also ends the silence that follows ``resync``.
        """
        self._silent.discard(branch)
        self._unfinished.discard(branch)
        self._forget(branch)
        self._shown[branch] = seq

    def pause(self) -> None:
        """Stop sending: the socket is full."""
        self._paused = True

    def resume(self) -> None:
        """Resume sending."""
        self._paused = False
        self._wake()

    def close(self) -> None:
        """Drop all events from now on: the client is gone."""
        self.closed = True
        self._clear()

    def flush(self) -> None:
        """Send what is queued, until the socket is full."""
        batch: list[bytes] = []
        total = 0
        while self._queue and not self._paused:
            entry = self._queue[0]
            try:
                if entry.args is not None:
                    entry.rest, entry.args = b" " + encode(entry.args)[1:], None
                text = b"" if entry.text is None else b" " + encode(entry.text)
                head = b"(%b %b %d" % (entry.kind.encode(), _encoded_branch(entry.branch), entry.seq)
                encoded = head + text + entry.rest
            except (Unencodable, TypeError):
                _log.exception("An event of kind %s cannot be sent", entry.kind)
                encoded = b""
            if len(encoded) > _LARGEST:
                _log.error("An event of kind %s is too large for a frame", entry.kind)
                self._forget(entry.branch)
                self._resync(entry.branch, self._shown.get(entry.branch, 0))
                continue
            if batch and total + len(encoded) > BATCH:
                self._write(frame(_HEAD + b" ".join(batch) + _TAIL))
                batch, total = [], 0
                continue
            if encoded:
                batch.append(encoded)
                total += len(encoded) + 1
            self._queue.popleft()
            self._size -= entry.size
            for newest in (self._last, self._last_row):
                if newest.get(entry.branch) is entry:
                    del newest[entry.branch]
            if entry.subject is not None:
                self._latest.pop(entry.subject, None)
            if entry.seq:
                self._shown[entry.branch] = entry.seq
            if entry.seq != entry.row:
                self._unfinished.add(entry.branch)
            elif entry.row:
                self._unfinished.discard(entry.branch)
        if batch:
            self._write(frame(_HEAD + b" ".join(batch) + _TAIL))

    def _wake(self, *, urgent: bool = False) -> None:
        if self._queue and not self._paused:
            self._request("show", self.flush, urgent=urgent)

    def _push_insert(self, branch: str, seq: int, text: str, role: Any) -> None:
        if not isinstance(text, str):
            raise TypeError(f"The text of an insert is {type(text).__name__}")
        if not text:
            return
        self._reopen_row(branch, seq)
        for start in range(0, len(text), PIECE):
            piece = text[start : start + PIECE]
            complete = start + PIECE >= len(text)
            last, room = self._last.get(branch), PIECE - len(piece)
            if last is not None and last.text is not None and last.role == role and len(last.text) <= room:
                self._merge(last, piece, seq, complete)
            else:
                size = _OVERHEAD + sys.getsizeof(piece)
                self._enqueue(
                    _Entry("insert", branch, seq if complete else 0, seq, _encoded_role(role), size, piece, role)
                )

    def _reopen_row(self, branch: str, seq: int) -> None:
        """Take the row's number from its last entry, which another one of the same row now follows."""
        last = self._last_row.get(branch)
        if last is not None and last.row == seq:
            last.seq = last.before

    def _merge(self, last: _Entry, piece: str, row: int, complete: bool) -> None:
        text = f"{last.text}{piece}"
        size = _OVERHEAD + sys.getsizeof(text)
        self._size += size - last.size
        last.text, last.size = text, size
        if last.row != row:
            last.row, last.before = row, last.seq
        if complete:
            last.seq = row

    def _enqueue(self, entry: _Entry) -> None:
        self._queue.append(entry)
        self._last[entry.branch] = entry
        if entry.row:
            self._last_row[entry.branch] = entry
        self._size += entry.size

    def _overflow(self) -> None:
        """Drop the backlog; each of its branches starts again after the last row that was shown completely."""
        backlog = tuple(self._queue)
        self._clear()
        reached = dict(self._shown)
        unfinished = set(self._unfinished)
        for entry in backlog:
            if entry.branch in unfinished:
                self._enqueue(entry)
                reached[entry.branch] = entry.seq or reached.get(entry.branch, 0)
                if entry.seq == entry.row != 0:
                    unfinished.discard(entry.branch)
        _log.warning("A client is too slow: %d events dropped", len(backlog) - len(self._queue))
        for branch in dict.fromkeys(entry.branch for entry in backlog):
            self._resync(branch, reached.get(branch, 0))

    def _resync(self, branch: str, seq: int) -> None:
        if not branch:  # events of no branch stand for themselves, and nobody attaches to none
            return
        self._silent.add(branch)
        self._enqueue(_Entry("resync", branch, seq, seq, b")", _OVERHEAD))

    def _forget(self, branch: str) -> None:
        if self._last.pop(branch, None) is not None:
            self._last_row.pop(branch, None)
            self._latest = {key: entry for key, entry in self._latest.items() if entry.branch != branch}
            self._queue = deque(entry for entry in self._queue if entry.branch != branch)
            self._size = sum(entry.size for entry in self._queue)

    def _clear(self) -> None:
        self._queue.clear()
        self._last.clear()
        self._last_row.clear()
        self._latest.clear()
        self._size = 0


HELLO_LIMIT: Final = 1024  # bytes

_EVENTS_WAIT: Final = 256 << 10  # bytes unsent beyond which events wait
_CALLS_WAIT: Final = 8 << 20  # ... and beyond which no more calls are read

_log = logging.getLogger(__name__)


class Client:
    """A connected client after hello, as operations see it; a ``Sink`` of events.

    Attributes:
        name: Its own name, such as ``"emacs 28.2"``.
        human: Whether a person is there to answer questions.
        logs: Whether it shows the session log.
        push: Queues an event for it, see ``Outbox``.
        reset: Drops the events queued for a branch, see ``Outbox``.
    """

    def __init__(self, *, name: str, human: bool, logs: bool, outbox: Outbox) -> None:
        self.name = name
        self.human = human
        self.logs = logs
        self.push = outbox.push
        self.reset = outbox.reset
        self._loop = asyncio.get_running_loop()
        self._outbox = outbox

    def __repr__(self) -> str:
        return f"<Client {self.name!r}{' human' if self.human else ''}>"

    def tell(self, level: str, text: str, session_dir: str) -> None:
        """Show a record of the session log to a client with ``logs``; may be called from any thread."""
        if not self._outbox.closed:
            record = {"level": level, "text": text, "session_dir": session_dir or None}
            self._loop.call_soon_threadsafe(self.push, Event("log", "", 0, (record,)))


class Connection(asyncio.Protocol):
    """The protocol of one socket.

    Args:
        host: The server.
        token: The token that ``hello`` must have; None if the kernel vouches for the peer.
    """

    def __init__(self, host: "Server", token: str | None) -> None:
        self._host = host
        self._token = token
        self._reader = FrameReader(HELLO_LIMIT)
        self._client: Client | None = None
        self._json = False  # whether answers are JSON
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox(self._write, host.pulse.request)
        self.ended: asyncio.Future[None] = self._loop.create_future()

    @property
    def tasks(self) -> frozenset[asyncio.Task[None]]:
        """Calls that are not answered yet."""
        return frozenset(self._tasks)

    def close(self) -> None:
        """Send what is queued, then close."""
        self._outbox.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close without sending anything more."""
        self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_EVENTS_WAIT, low=_EVENTS_WAIT // 4)
        self._deadline = self._loop.call_later(self._host.hello_timeout_s, self._drop, "said nothing in time")
        # The directory's mode keeps other users out already; this holds where modes are ignored or were changed.
        peer = transport.get_extra_info("socket")
        if self._token is None and not same_user(peer):
            self._drop("is another user")
        elif not self._host.own_children and is_descendant(peer):
            self._drop("was started by this daemon")  # a command must not approve itself

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: D102
        self._deadline.cancel()
        self._outbox.close()
        self._host.closed(self, self._client)
        self.ended.set_result(None)

    def pause_writing(self) -> None:  # noqa: D102
        self._outbox.pause()

    def resume_writing(self) -> None:  # noqa: D102
        self._outbox.resume()
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:  # noqa: D102
        try:
            for item in self._reader.feed(data):
                if self._client is None:
                    self._introduce(item)
                elif isinstance(item, bytes):
                    try:
                        self._handle(parse(item))
                    except WireError as error:
                        self._refuse(uid_of(item), error)
                if self._transport.is_closing():
                    return
        except BadHeader as error:
            self._drop(error.message)

    # Incoming

    def _handle(self, message: IncomingMessage) -> None:
        match message:
            case ("call" | "methods", uid, _) if self._host.operations is None:
                self._tasks.add(self._loop.create_task(self._later(message, uid)))
            case ("call", uid, (str() as method, arguments)):
                if (operation := (self._host.operations or {}).get(method)) is None:
                    hint = "Daemon and client may differ in version."
                    self._refuse(uid, WireError(f"No such method: {method}", hint=hint))
                    return
                self._tasks.add(self._loop.create_task(self._run(uid, operation, arguments)))
            case ("methods", uid, ()):
                self._send(answer, uid, self._methods())
            case ("call" | "methods", uid, _):
                self._refuse(uid, WireError(f"A malformed {message.verb}"))
            case _:  # answers to notifications: stock epc.el sends them
                pass

    async def _later(self, message: IncomingMessage, uid: int) -> None:
        """Handle a message when there are operations."""
        try:
            await asyncio.shield(self._host.offered)
        except PyagentdError as error:
            self._send(failure, uid, error)
        else:
            self._handle(message)
        finally:
            self._tasks.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _run(self, uid: int, operation: Operation, arguments: object) -> None:
        """Run one call; the boundary where every exception becomes an answer."""
        client = cast(Client, self._client)  # nothing is called before it said hello
        if client.logs:
            forward_records(client.tell)
        try:
            result = await operation.call(client, arguments)
        except PyagentdError as error:
            self._send(failure, uid, error)
        except asyncio.CancelledError:
            self._send(failure, uid, PyagentdError(f"{operation.name} was cancelled: the daemon stops"))
            raise
        except (Exception, SystemExit) as error:  # a stray sys.exit must not end the daemon
            _log.exception("%s failed", operation.name)
            self._send(failure, uid, PyagentdError(f"{operation.name}: {type(error).__name__}: {error}"))
        else:
            self._send(json_answer if self._json else answer, uid, result)
        finally:
            # Not by add_done_callback, which costs every call another turn of the loop.
            self._tasks.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    def _methods(self) -> object:
        return [
            (Symbol(operation.name), operation.arguments, operation.doc.partition("\n")[0])
            for operation in (self._host.operations or {}).values()
        ]

    # Introduction

    def _introduce(self, item: bytes | Oversized) -> None:
        try:
            match parse(item if isinstance(item, bytes) else item.head):
                case ("call", uid, ("hello", [list() | None as plist])):
                    self._greet(uid, plist_to_dict(plist))
                case _:
                    self._drop("did not say hello")
        except WireError:
            self._drop("did not say hello")

    def _greet(self, uid: int, hello: Mapping[str, Any]) -> None:
        if self._token is not None and not token_matches(self._token, hello.get("token")):
            self._drop("has no valid token")
            return
        try:
            if hello.get("proto") != PROTOCOL:
                hint = "Install the same version of both, then restart the daemon with `pyagentd stop`."
                versions = f"The daemon speaks protocol {PROTOCOL}, the client {hello.get('proto')}"
                raise WireError(versions, hint=hint)
            check_versions(str(self._host.greeting.get("version", "")), str(hello.get("version", "")))
        except WireError as error:
            self._refuse(uid, error)
            self._transport.close()
            return
        self._deadline.cancel()
        self._reader.limit = MAX_FRAME  # an editor sends whole documents
        name = str(hello.get("client") or "unknown")
        human, logs = bool(hello.get("human")), bool(hello.get("logs"))
        self._client = Client(name=name, human=human, logs=logs, outbox=self._outbox)
        self._json = bool(hello.get("json"))
        self._send(answer, uid, {"proto": PROTOCOL, **({"json": True} if self._json else {}), **self._host.greeting})
        self._host.opened(self._client)

    def _drop(self, reason: str) -> None:
        _log.info("A connection was closed: the peer %s", reason)
        if self._client is None:
            self._transport.abort()
        else:
            self._transport.close()

    # Outgoing

    def _refuse(self, uid: int | None, error: WireError) -> None:
        """Answer a call that reached no operation; without its uid it cannot be answered."""
        _log.info("A call was refused: %s", error.message)
        if uid is not None:
            self._send(failure, uid, error, verb="epc-error")

    def _send(self, build: Callable[..., bytes], uid: int, value: object, **options: str) -> None:
        """Write the answer to call ``uid``; a value that cannot be encoded becomes an error, never silence."""
        if uid == 0:  # a notification
            return
        try:
            message = build(uid, value, **options)
        except WireError as error:
            _log.exception("An answer cannot be sent")
            message = failure(uid, error)
        self._write(message)

    def _write(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(data)
        # No further calls are read from a peer that does not read its answers: this bounds the memory for it.
        if self._transport.get_write_buffer_size() > _CALLS_WAIT:
            self._transport.pause_reading()


# The server: listens, authenticates, and routes calls to operations by name.
#
# Everything happens in one event loop. An operation is ``async def name(client, *, key=…)``; it is offered under its
# name in kebab-case, gets the call's plist as keyword arguments (see ``Operation``), and answers with a value or an
# error of our tree. Blocking work belongs into a thread or a process.

HELLO_TIMEOUT_S: Final = 5.0
GRACE_S: Final = 1.0


class Server:
    """Offers operations to clients.

    Args:
        pulse: Schedules the sending of events.
        greeting: The answer to ``hello``, beside the protocol's number.
        token: The token that a peer on TCP must present.
        hello_timeout_s: How long a peer may take to say hello.
        own_children: Whether a descendant of this process may be a client.
    """

    def __init__(
        self,
        *,
        pulse: Pulse,
        greeting: Mapping[str, Any] | None = None,
        token: str = "",
        hello_timeout_s: float = HELLO_TIMEOUT_S,
        own_children: bool = True,
    ) -> None:
        self.operations: Mapping[str, Operation] | None = None  # None: ``offered`` is waited for
        self.offered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.pulse = pulse
        self.greeting: Mapping[str, Any] = greeting or {}
        self.hello_timeout_s = hello_timeout_s
        self.own_children = own_children  # whether a process that this one started may be a client
        self.clients: set[Client] = set()
        self._token = token
        self._on_disconnect: Callable[[Client], None] | None = None
        self._listeners: list[asyncio.Server] = []
        self._connections: set[Connection] = set()

    def offer(
        self,
        operations: Mapping[str, Callable[..., Awaitable[Any]]],
        *,
        on_disconnect: Callable[[Client], None] | None = None,
    ) -> None:
        """Begin to answer calls; earlier ones, which waited, are answered in order.

        Args:
            operations: Name → ``async def (client, *, …)``.
            on_disconnect: Called with each client when its connection has ended.
        """
        offered = [operation(name, run) for name, run in operations.items()]
        self.operations = {each.name: each for each in offered}
        self._on_disconnect = on_disconnect
        self.offered.set_result(None)

    def refuse(self, error: PyagentdError) -> None:
        """Answer all calls, also those that wait, with an error: there will be no operations."""
        self.offered.set_exception(error)
        self.offered.exception()  # it is no fault that nobody waits for it

    async def listen(self, listener: socket.socket) -> None:
        """Accept connections on a bound socket; on a unix socket from the same user, on TCP with the token."""
        loop = asyncio.get_running_loop()
        if listener.family == socket.AF_UNIX:
            server = await loop.create_unix_server(lambda: self._accept(None), sock=listener)
        else:
            if not self._token:
                raise ValueError("TCP needs a token")
            server = await loop.create_server(lambda: self._accept(self._token), sock=listener)
        self._listeners.append(server)

    async def close(self, grace_s: float = GRACE_S) -> None:
        """Stop listening, let calls and answers finish for ``grace_s``, then end what is left.

        Not for use inside an operation, whose own answer it would wait for.
        """
        for listener in self._listeners:
            listener.close()
        calls = {task for connection in self._connections for task in connection.tasks}
        if calls:
            _, late = await asyncio.wait(calls, timeout=grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        ended = [connection.ended for connection in self._connections]
        for connection in self._connections:
            connection.close()
        if ended:
            await asyncio.wait(ended, timeout=grace_s)
        for connection in tuple(self._connections):
            connection.abort()

    def opened(self, client: Client) -> None:
        """Register a client that said hello."""
        self.clients.add(client)
        _log.info("%r connected", client)

    def closed(self, connection: Connection, client: Client | None) -> None:
        """Remove a connection that has ended."""
        self._connections.discard(connection)
        if client is None:
            return
        self.clients.discard(client)
        _log.info("%r disconnected", client)
        if self._on_disconnect is not None:
            self._on_disconnect(client)

    def _accept(self, token: str | None) -> Connection:
        connection = Connection(self, token)
        self._connections.add(connection)
        return connection
