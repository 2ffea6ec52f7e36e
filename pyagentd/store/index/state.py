"""``state.db`` in the sessions root: what is derived from the sessions for search and lists, and settings.

The one file that is written by SQLite and not through ``atomic``. Nothing in it but ``settings``, ``audit`` and
``schedules`` is anybody's only copy, so a file that is damaged, foreign or newer is moved aside, kept, and a new one
begun; a disk that refuses costs search, remembered grants, schedules and the audit, and nothing else. One connection
writes and one reads, each used by one thread at a time, so a search never waits for the indexer.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyagentd.clock import Clock, SystemClock, stamp
from pyagentd.errors import StoreError
from pyagentd.store.atomic import FILE_MODE
from pyagentd.store.index.schema import MIGRATIONS

FILE_NAME = "state.db"
APPLICATION_ID = 0x70794167  # "pyAg", in the file's header
BUSY_TIMEOUT_S = 5.0
CACHE_KIB = 8192  # of each connection

_COMPANIONS = ("", "-wal", "-shm")
_BEYOND_USE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
_REFUSALS = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)
_PLANTED = frozenset({errno.ELOOP, errno.EISDIR, errno.ENXIO})  # a link, a directory, a socket or a pipe
_PRIMARY = 0xFF  # of an extended error code

_log = logging.getLogger(__name__)


class StateError(StoreError):
    """The database refused, not a session's file; only search suffers."""


class Damaged(StateError):
    """The file was beyond use and has been moved aside: whatever was in it must be put there again."""


class _Unusable(Exception):
    """The file is no state of ours, or of a later version; the text says which."""


class State:
    """The database of one sessions root; opened when it is first used.

    Args:
        root: The sessions root.
        clock: For the name of a file that is moved aside.
    """

    def __init__(self, root: Path, clock: Clock | None = None) -> None:
        self.path = root / FILE_NAME
        self._clock = clock or SystemClock()
        self._locks = {"read": threading.RLock(), "write": threading.RLock()}
        self._connections: dict[str, sqlite3.Connection] = {}

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Have one transaction: committed at the end, undone by any exception.

        Raises:
            Damaged: The file was beyond use; there is a new and empty one now.
            StateError: The disk refused, or another program holds the file.
        """
        with self._connection("write") as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Have one consistent view, while somebody else may write; raises as ``writing``."""
        with self._connection("read") as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")

    def get(self, key: str, default: Any = None) -> Any:
        """Return a setting, ``default`` when it was never put; raises as ``writing``."""
        with self.reading() as connection:
            row = connection.execute("SELECT value FROM settings WHERE key = ?", (key,)).fetchone()
        return default if row is None else json.loads(row[0])

    def put(self, key: str, value: Any) -> None:
        """Keep a setting, anything JSON can say; raises as ``writing``."""
        with self.writing() as connection:
            connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (key, json.dumps(value)))

    def close(self) -> None:
        """Close the file; using it again opens it again."""
        with self._locks["write"], self._locks["read"]:
            while self._connections:
                with contextlib.suppress(sqlite3.Error):
                    self._connections.popitem()[1].close()

    @contextlib.contextmanager
    def _connection(self, use: str) -> Iterator[sqlite3.Connection]:
        connection: sqlite3.Connection | None = None
        try:
            if use not in self._connections:
                self._open_both()
            with self._locks[use]:
                connection = self._connections.get(use)
                if connection is None:  # moved aside by the other thread just now
                    raise Damaged(f"{self.path} was damaged", mend=_AGAIN)
                yield connection
        except sqlite3.Error as error:
            if _primary(error) in _REFUSALS:
                raise StateError(f"{self.path}: {error}", mend=_MEND) from error
            if _primary(error) not in _BEYOND_USE:
                raise  # not the disk's doing
            self._set_aside(str(error), connection)
            raise Damaged(f"{self.path} was damaged: {error}", mend=_AGAIN) from error

    def _open_both(self) -> None:
        # Both at once: afterwards whoever reads never waits for the lock of who writes.
        with self._locks["write"], self._locks["read"]:
            for use in self._locks:
                if use not in self._connections:
                    self._connections[use] = self._opened()

    def _opened(self) -> sqlite3.Connection:
        for _ in range(2):
            try:
                return self._open()
            except _Unusable as problem:
                self._set_aside(str(problem), None)
            except sqlite3.Error as error:
                if _primary(error) not in _BEYOND_USE:
                    raise
                self._set_aside(str(error), None)
        return self._open()

    def _open(self) -> sqlite3.Connection:
        self._claim()
        connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            connection.execute(f"PRAGMA busy_timeout = {int(1000 * BUSY_TIMEOUT_S)}")
            _check(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            _migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _claim(self) -> None:
        """Make the file if need be, private from its first byte; what others planted in its place is no file."""
        try:
            if not self.path.exists():
                for companion in _COMPANIONS[1:]:  # of a file that was deleted: not to be replayed into a new one
                    Path(f"{self.path}{companion}").unlink(missing_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            if error.errno in _PLANTED:
                raise _Unusable("it is no regular file") from error
            raise StateError(f"{self.path}: {error.strerror}", mend=_MEND) from error
        os.close(descriptor)

    def _set_aside(self, why: str, connection: sqlite3.Connection | None) -> None:
        """Move the file away, unless another thread has done so since ``connection`` was opened."""
        with self._locks["write"], self._locks["read"]:
            if connection is not None and connection not in self._connections.values():
                return
            self.close()
            kept = self._free_name()
            try:
                for companion in _COMPANIONS:
                    with contextlib.suppress(FileNotFoundError):
                        Path(f"{self.path}{companion}").rename(f"{kept}{companion}")
            except OSError as error:
                raise StateError(f"{self.path} cannot be used ({why}) nor moved: {error.strerror}") from error
        _log.warning("%s cannot be used (%s): it is now %s, and the index is built anew", self.path, why, kept)

    def _free_name(self) -> Path:
        stamped = f"{self.path.stem}-{stamp(self._clock.now())}"
        number = 1
        while (kept := self.path.with_name(f"{stamped}{f'-{number}' if number > 1 else ''}.db")).exists():
            number += 1
        return kept


_AGAIN = "It is being built anew; try again in a moment"
_MEND = "Sessions are not affected, only search is; see that the disk has room and may be written"


def _primary(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY


def _check(connection: sqlite3.Connection) -> None:
    """Raise ``_Unusable`` for a database of another program or of a later version."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if tables and application != APPLICATION_ID:
        raise _Unusable("it is another program's")
    if version > len(MIGRATIONS):
        raise _Unusable(f"it is of a later version of this program ({version})")


def _migrate(connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for number, script in enumerate(MIGRATIONS[version:], version + 1):
        connection.executescript(
            f"BEGIN IMMEDIATE; {script};"
            f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {number}; COMMIT;"
        )
