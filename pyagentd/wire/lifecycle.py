"""One daemon for each user and sessions root: its locks, its sockets, and the runtime file that clients read.

The runtime directory belongs to the user alone (0700) and holds ``daemon.lock``, ``daemon.sock`` and the runtime file
``daemon.eld``, an Elisp plist that Emacs reads with ``read``. A lock (``flock``), and never a pid, tells whether a
daemon lives: the kernel releases it with its holder. Only files can be left after a crash, and only the holder of the
lock removes them.
"""

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from pyagentd.errors import ConfigError, StoreError, Unreachable, UserError
from pyagentd.wire.frames import PROTOCOL
from pyagentd.wire.sexp import SexpError, decode, encode, plist_to_dict

RUNTIME_FILE: Final = "daemon.eld"
SOCKET: Final = "daemon.sock"
LOG: Final = "daemon.log"
LOCALHOST: Final = "127.0.0.1"

_LOCK: Final = "daemon.lock"
_ROOT_LOCK: Final = ".pyagentd.lock"
_LONGEST_SOCKET: Final = 100  # bytes; the kernel's limit is 108 on Linux and 104 on macOS
_BACKLOG: Final = 128
_READ_ONLY: Final = {errno.EROFS, errno.EACCES, errno.EPERM}


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The content of the runtime file."""

    proto: int
    pid: int
    socket: str | None  # path
    host: str | None = None
    port: int | None = None
    token: str | None = None  # for ``hello`` on TCP
    version: str = ""
    sessions_dir: str = ""


def read_runtime(runtime_dir: Path) -> Runtime:
    """Read the runtime file in ``runtime_dir``.

    Raises:
        Unreachable: There is no such file, or it is unreadable.
    """
    path = runtime_dir / RUNTIME_FILE
    try:
        facts = plist_to_dict(decode(path.read_bytes()))
        known = {field.name for field in fields(Runtime)}
        return Runtime(**{key: value for key, value in facts.items() if key in known})
    except FileNotFoundError:
        raise Unreachable(f"No daemon is running: none has left its address in {path}") from None
    except (OSError, SexpError, TypeError) as error:
        raise Unreachable(f"{path} cannot be read: {error}") from error


def private_directory(path: Path) -> Path:
    """Create the directory ``path`` for the user alone, or check that it is private.

    Raises:
        ConfigError: It belongs to another user, or others may enter it.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError as error:
        raise _no_runtime_dir(path, error.strerror or str(error)) from error
    # In a shared directory such as /tmp, another user may have created it first.
    if status.st_uid != os.geteuid():
        raise _no_runtime_dir(path, "it belongs to another user")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise ConfigError(f"Other users may enter the runtime directory {path}", hint=f"Run `chmod 700 {path}`.")
    return path


def _no_runtime_dir(path: Path, reason: str) -> ConfigError:
    hint = "Set PYAGENTD_RUNTIME_DIR to a directory of your own."
    return ConfigError(f"{path} cannot be the runtime directory: {reason}", hint=hint)


class Instance:
    """The locks of a runtime directory and a sessions root, held inside ``with``; they make a process the daemon.

    Raises:
        UserError: Another daemon holds one of them (on entering).
        ConfigError: The runtime directory is not private (on entering).
    """

    def __init__(self, runtime_dir: Path, sessions_dir: Path) -> None:
        self.runtime_dir = runtime_dir
        self.sessions_dir = sessions_dir
        self._held = ExitStack()

    def __enter__(self) -> Self:
        private_directory(self.runtime_dir)
        try:
            if not self.sessions_dir.exists():
                # Private: names of sessions contain words of the conversation.
                self.sessions_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            next(self.sessions_dir.iterdir(), None)  # it is a directory that can be read
        except OSError as error:
            raise StoreError(
                f"{self.sessions_dir} cannot be the sessions directory: {error.strerror}",
                hint="Set PYAGENTD_SESSIONS_DIR to a directory of your own.",
            ) from error
        with ExitStack() as held:
            held.enter_context(_lock(self.runtime_dir / _LOCK, f"runtime directory {self.runtime_dir}"))
            held.enter_context(
                # Sessions on a read-only medium need no lock against writing.
                _lock(self.sessions_dir / _ROOT_LOCK, f"sessions directory {self.sessions_dir}", readable=True)
            )
            _forget(self.runtime_dir / RUNTIME_FILE)
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for name in (RUNTIME_FILE, SOCKET):
                _forget(self.runtime_dir / name)
        finally:
            self._held.close()

    def bind_unix(self) -> socket.socket:
        """Return a listening unix socket that only this user may connect to.

        Raises:
            ConfigError: Its path is too long for the kernel.
        """
        path = self.runtime_dir / SOCKET
        length = len(os.fsencode(path))
        if length > _LONGEST_SOCKET:
            hint = "Set PYAGENTD_RUNTIME_DIR to a shorter path."
            raise ConfigError(
                f"The socket path {path} is {length} bytes long, at most {_LONGEST_SOCKET} fit", hint=hint
            )
        _forget(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # The socket must be private from the first moment, so the mode is set by the umask and not afterwards.
        mask = os.umask(0o177)
        try:
            listener.bind(os.fspath(path))
        finally:
            os.umask(mask)
        listener.listen(_BACKLOG)
        return listener

    def bind_tcp(self, port: int = 0) -> socket.socket:
        """Return a listening TCP socket on the loopback interface; port 0 takes any.

        Raises:
            UserError: The port is taken or not allowed.
        """
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOCALHOST, port))
            listener.listen(_BACKLOG)
        except (OSError, OverflowError) as error:
            listener.close()
            taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            reason = "it is taken" if taken else str(error)
            raise UserError(f"Port {port} cannot be used: {reason}", hint="Choose another, or 0 for any.") from error
        return listener

    def publish(self, *, version: str, port: int | None = None, token: str | None = None) -> Runtime:
        """Write the runtime file, once all sockets listen.

        Args:
            version: The daemon's version.
            port: The TCP port, if it listens on one.
            token: The token that ``hello`` needs over TCP.
        """
        runtime = Runtime(
            proto=PROTOCOL,
            pid=os.getpid(),
            socket=str(self.runtime_dir / SOCKET),
            host=LOCALHOST if port else None,
            port=port,
            token=token if port else None,
            version=version,
            sessions_dir=str(self.sessions_dir),
        )
        _write_private(self.runtime_dir / RUNTIME_FILE, asdict(runtime))
        return runtime


@contextmanager
def _lock(path: Path, what: str, *, readable: bool = False) -> Iterator[None]:
    """Hold a lock on ``path``; the file stays, or two processes could lock two files of the same name."""
    descriptor = _open_lock(path, readable=readable)
    try:
        if descriptor is not None:
            _take_lock(descriptor, path, what)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _open_lock(path: Path, *, readable: bool) -> int | None:
    """Return a descriptor of the lock file; with ``readable`` None if it is missing and cannot be written."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if not readable or error.errno not in _READ_ONLY:
            raise StoreError(f"{path} cannot be opened: {error.strerror}") from error
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _take_lock(descriptor: int, path: Path, what: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise StoreError(f"{path} cannot be locked: {error.strerror}") from error
        holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
        hint = "Use it, or stop it first: `pyagentd stop`, or if that fails `kill` with its pid."
        raise UserError(f"A daemon already serves the {what} (pid {holder})", hint=hint) from error
    with suppress(OSError):  # a full or read-only disk; the lock holds, only its holder has no name
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())


def _forget(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{path} cannot be removed: {error.strerror}") from error


def _write_private(path: Path, content: Mapping[str, Any]) -> None:
    """Replace ``path`` in one step, readable by the user alone from the first moment."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(encode(content) + b"\n")
        draft.replace(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
