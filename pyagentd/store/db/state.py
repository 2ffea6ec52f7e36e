"""Opens, migrates and repairs ``state.db``; also settings that are stored there.

It is the only file that SQLite writes and not ``atomic``. All tables but those in ``OWNED`` can be made again from
other files. A damaged file, or one of another program, is moved aside and kept, and a new one is made; if the disk
fails, only search, remembered grants, schedules and the audit are lost. One connection writes and one reads, each
used by one thread at a time, so a search never waits for the indexer.
"""

import contextlib
import dataclasses
import errno
import json
import logging
import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from pyagentd.clock import Clock, SystemClock, stamp
from pyagentd.errors import StoreError
from pyagentd.store.atomic import FILE_MODE

# The tables of ``state.db`` as migrations: version n is reached by running the first n scripts.
#
# A released script is never changed. A later script may drop and recreate tables that are derived from the sessions'
# files, which are filled again automatically, but not ``settings``, ``audit``, ``schedules``, ``agents``,
# ``contexts`` and ``tasks``.
#
# ``chat_sessions``, ``chat_messages`` and ``chat_parts`` have the columns that chat programs on the AI
# SDK use, and some of our own. A row of ``chat_sessions`` is a branch or an agent; its
# ``id`` is the directory below the sessions root (absolute for
# a session elsewhere), because ids of messages and agents repeat in the branches of a session.

OWNED = ("settings", "audit", "schedules", "deliveries", "agents", "contexts", "tasks")  # nobody else has their rows

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

    CREATE TABLE chat_sessions (
      id TEXT PRIMARY KEY,
      agent TEXT NOT NULL,
      workspace_root TEXT,
      model_json TEXT NOT NULL,
      parent_id TEXT,
      parent_message_id TEXT,
      permissions_json TEXT NOT NULL DEFAULT '[]',
      metadata_json TEXT NOT NULL DEFAULT '{}',
      prompt_tokens INTEGER NOT NULL DEFAULT 0,
      completion_tokens INTEGER NOT NULL DEFAULT 0,
      reasoning_tokens INTEGER NOT NULL DEFAULT 0,
      cache_read INTEGER NOT NULL DEFAULT 0,
      cache_write INTEGER NOT NULL DEFAULT 0,
      total_tokens INTEGER NOT NULL DEFAULT 0,
      cost_usd REAL NOT NULL DEFAULT 0,
      created_at INTEGER NOT NULL,
      updated_at INTEGER NOT NULL,
      archived_at INTEGER,
      title TEXT NOT NULL,
      session_id TEXT NOT NULL,
      branch_name TEXT NOT NULL,
      is_agent INTEGER NOT NULL,
      preset TEXT,                     -- as the metadata says, like the next
      created TEXT,
      plan_stamp TEXT NOT NULL,        -- the three files as they were read: mtime in ns, size, inode
      journal_stamp TEXT NOT NULL,
      document_stamp TEXT NOT NULL,
      bookmark_json TEXT NOT NULL,     -- how far messages.jsonl was read
      run_json TEXT NOT NULL,          -- the last row of the last run, or null
      reread INTEGER NOT NULL          -- 1: reading what is new is not enough, the log does not have all
    ) WITHOUT ROWID;
    CREATE INDEX chat_sessions_agent ON chat_sessions (agent, updated_at);
    CREATE INDEX chat_sessions_workspace ON chat_sessions (workspace_root, updated_at);
    CREATE INDEX chat_sessions_parent ON chat_sessions (parent_id);
    CREATE INDEX chat_sessions_archived ON chat_sessions (archived_at);

    CREATE TABLE chat_messages (
      session_id TEXT NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
      id TEXT NOT NULL,
      role TEXT NOT NULL,
      metadata_json TEXT NOT NULL,
      created_at INTEGER NOT NULL,
      updated_at INTEGER NOT NULL,
      removed INTEGER NOT NULL,        -- 1: the user removed it from the document
      pieces TEXT NOT NULL,            -- hashes of what the document should show of it
      PRIMARY KEY (session_id, id)
    ) WITHOUT ROWID;
    CREATE INDEX chat_messages_created ON chat_messages (session_id, created_at);

    CREATE TABLE chat_parts (
      session_id TEXT NOT NULL,
      id TEXT NOT NULL,
      message_id TEXT NOT NULL,
      "index" INTEGER NOT NULL,
      type TEXT NOT NULL,
      data_json TEXT NOT NULL,
      tool_call_id TEXT,
      tool_state TEXT,
      created_at INTEGER NOT NULL,
      updated_at INTEGER NOT NULL,
      streamed TEXT NOT NULL,          -- text that came after data_json was recorded
      edited TEXT,                     -- what the user put in its place
      removed INTEGER NOT NULL,
      PRIMARY KEY (session_id, id),
      FOREIGN KEY (session_id, message_id) REFERENCES chat_messages (session_id, id) ON DELETE CASCADE
        DEFERRABLE INITIALLY DEFERRED
    ) WITHOUT ROWID;
    CREATE INDEX chat_parts_message ON chat_parts (session_id, message_id, "index");
    CREATE INDEX chat_parts_call ON chat_parts (tool_call_id);

    CREATE TABLE texts (               -- what can be found; its id is the row of the index
      id INTEGER PRIMARY KEY,
      session_id TEXT NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
      message_id TEXT,                 -- with its part; null: a title, or text that only the document has
      part_id TEXT,
      origin TEXT NOT NULL,            -- the same in every copy of a text
      role TEXT NOT NULL,
      kind TEXT NOT NULL,
      hidden INTEGER NOT NULL,
      created_at INTEGER NOT NULL,
      text TEXT                        -- null: it is that of the part
    );
    CREATE INDEX texts_place ON texts (session_id, message_id);
    CREATE INDEX texts_origin ON texts (origin);

    CREATE VIRTUAL TABLE texts_index USING fts5 (
      text, content = '', tokenize = "unicode61 remove_diacritics 2"
    );
    """,
    """
    CREATE TABLE audit (               -- every decision about a tool call; nobody's copy, and never changed
      id INTEGER PRIMARY KEY,
      at_ms INTEGER NOT NULL,          -- epoch
      session TEXT NOT NULL,           -- id of the session at the root of the tree
      branch_dir TEXT NOT NULL,        -- of the branch or agent that acted, as chat_sessions.id
      agent TEXT,                      -- the agent's id; null: the session itself
      run_id TEXT NOT NULL,
      tool TEXT NOT NULL,
      action TEXT NOT NULL,
      decision TEXT NOT NULL,          -- allow, ask_approved, ask_denied, deny
      rule TEXT NOT NULL,              -- what decided: "scope", "grant REGEX", "protected"...
      reason TEXT NOT NULL,            -- of a denial, as the model was told; what the human said
      by TEXT                          -- the client through which a human decided; null: a rule did
    );
    CREATE INDEX audit_session ON audit (session, id);
    CREATE INDEX audit_branch ON audit (branch_dir, id);

    CREATE TABLE pending (             -- branches with something that waits; found again by opening them
      branch_dir TEXT NOT NULL,        -- as chat_sessions.id
      kind TEXT NOT NULL,              -- ask, background
      id TEXT NOT NULL,
      created_at INTEGER NOT NULL,     -- epoch ms
      data_json TEXT NOT NULL DEFAULT '{}',
      PRIMARY KEY (branch_dir, kind, id)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE schedules (           -- turns that begin by themselves; nobody's copy
      id TEXT PRIMARY KEY,
      branch_dir TEXT NOT NULL,        -- whose turns, as chat_sessions.id
      source TEXT NOT NULL,            -- schedule: a person made it; self-schedule: the agent itself
      text TEXT NOT NULL,              -- what the message says
      reason TEXT NOT NULL,            -- of a self-schedule
      kind TEXT NOT NULL,              -- at, every, cron
      value TEXT NOT NULL,             -- ISO 8601 in UTC, seconds, or a cron expression
      zone TEXT NOT NULL,              -- of a cron expression: an IANA name; "": that of the machine
      auth_subject TEXT NOT NULL,      -- who made it
      options_json TEXT NOT NULL,      -- of the run: {env, allow}
      created_at INTEGER NOT NULL,     -- epoch ms, like the next
      next_at INTEGER NOT NULL,
      expires_at INTEGER,              -- fires once more then, and is gone; null: never
      fired INTEGER NOT NULL DEFAULT 0,
      last_at INTEGER,
      last_error TEXT NOT NULL DEFAULT ''
    ) WITHOUT ROWID;
    CREATE INDEX schedules_next ON schedules (next_at);
    CREATE INDEX schedules_branch ON schedules (branch_dir);

    CREATE TABLE deliveries (          -- what triggers brought, for their limits and against doubles
      source TEXT NOT NULL,
      delivery_id TEXT NOT NULL,
      branch_dir TEXT NOT NULL,
      at_ms INTEGER NOT NULL,
      message_id TEXT NOT NULL,
      PRIMARY KEY (branch_dir, source, delivery_id)
    ) WITHOUT ROWID;
    CREATE INDEX deliveries_at ON deliveries (at_ms);
    """,
    """
    CREATE TABLE agents (              -- named agents, destroyed ones too; nobody's copy, as are the next two
      name TEXT PRIMARY KEY,
      dir TEXT NOT NULL,               -- absolute
      session_id TEXT NOT NULL,
      channel_id TEXT,                 -- of agent.json, like the next two: as it was last read
      model TEXT,
      permissions TEXT NOT NULL,       -- a profile's name, or a profile as JSON
      created_at TEXT NOT NULL,        -- ISO 8601
      status TEXT NOT NULL,            -- created, idle, active, destroyed
      changed_at INTEGER NOT NULL      -- epoch ms, of the status
    ) WITHOUT ROWID;

    CREATE TABLE contexts (            -- conversations that were saved, of named agents and of sessions
      id TEXT PRIMARY KEY,
      agent_name TEXT NOT NULL,        -- or the session's id
      description TEXT NOT NULL,
      saved_at TEXT NOT NULL,          -- ISO 8601
      message_count INTEGER NOT NULL,
      file_path TEXT NOT NULL,         -- absolute
      trigger TEXT NOT NULL,           -- idle_timeout, manual_save, shutdown, context_clear, destroy
      first_seq INTEGER,               -- of earlier versions
      last_seq INTEGER                 -- of messages.jsonl, the last row that it holds
    ) WITHOUT ROWID;
    CREATE INDEX contexts_agent ON contexts (agent_name, saved_at);

    CREATE TABLE tasks (               -- commands that run behind a conversation
      branch_dir TEXT NOT NULL,        -- of the branch or agent that began it, as chat_sessions.id
      id TEXT NOT NULL,                -- task_001, anew in each agent_name
      agent_name TEXT NOT NULL,        -- or the session's id
      command TEXT NOT NULL,
      cwd TEXT NOT NULL,
      started_at TEXT NOT NULL,        -- ISO 8601, like the other time
      pid INTEGER NOT NULL,
      pid_started INTEGER NOT NULL,    -- the kernel's start time of the process, in ticks since boot
      status TEXT NOT NULL,            -- running, completed, failed, killed, lost
      exit_code INTEGER,
      ended_at TEXT,
      output_path TEXT NOT NULL,       -- absolute
      wake INTEGER NOT NULL,           -- 1: its end begins a turn
      tool_call_id TEXT,
      PRIMARY KEY (agent_name, id)
    ) WITHOUT ROWID;
    CREATE INDEX tasks_status ON tasks (status);

    ALTER TABLE audit ADD COLUMN detail TEXT;  -- JSON: what was changed, old and new
    ALTER TABLE audit ADD COLUMN user TEXT;    -- who triggered or approved it, where that is known
    """,
    """
    ALTER TABLE agents ADD COLUMN intent TEXT; -- what was begun and has not ended; null: nothing
    """,
    """
    CREATE TABLE served (              -- who answered; "" is not known
      id INTEGER PRIMARY KEY,
      provider TEXT NOT NULL,
      model TEXT NOT NULL,
      UNIQUE (provider, model)
    );
    CREATE TABLE requests (            -- what the provider counted, of every request of every answer
      at_ms INTEGER NOT NULL,          -- epoch
      origin INTEGER NOT NULL,         -- with at_ms the same in every copy of it
      copied INTEGER NOT NULL,         -- 1: another session has had it first
      session_id TEXT NOT NULL,
      message_id TEXT NOT NULL,
      served INTEGER NOT NULL REFERENCES served (id),
      longer INTEGER NOT NULL,         -- than so many tokens was its prompt
      input INTEGER NOT NULL,
      output INTEGER NOT NULL,
      reasoning INTEGER NOT NULL,
      cache_read INTEGER NOT NULL,
      cache_write INTEGER NOT NULL,
      PRIMARY KEY (at_ms, origin, copied, session_id, message_id),
      FOREIGN KEY (session_id, message_id) REFERENCES chat_messages (session_id, id) ON DELETE CASCADE
        DEFERRABLE INITIALLY DEFERRED
    ) WITHOUT ROWID;
    CREATE INDEX requests_message ON requests (session_id, message_id);
    ALTER TABLE chat_sessions ADD COLUMN spent_json TEXT NOT NULL DEFAULT '[]';  -- sums of its requests
    UPDATE chat_sessions SET journal_stamp = '', reread = 1;  -- all logs are read once more
    """,
)

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
_TAKEN_ALREADY = (sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE)
_PRIMARY = 0xFF  # of an extended error code

_log = logging.getLogger(__name__)

_T = TypeVar("_T")


class StateError(StoreError):
    """The database failed, and not a session's file."""


class Damaged(StateError):
    """The file was unusable and was moved aside; the new one is empty."""


class LaterVersion(StateError):
    """A later version of this program wrote the file, which is left unchanged."""


def write_durably(write: Callable[[], None]) -> None:
    """Call ``write``, and again if the file was damaged, since there is a new one then."""
    try:
        write()
    except Damaged:
        write()


class Table(Generic[_T]):
    """A table with a dataclass of its rows, whose fields are the columns; a mapping is JSON in ``<field>_json``."""

    def __init__(self, name: str, row: Callable[..., _T]) -> None:
        fields = {field.name: field.type for field in dataclasses.fields(row)}  # type: ignore[arg-type]
        self._row = row
        self._names = tuple(fields)
        self._json = frozenset(name for name, kind in fields.items() if kind == Mapping[str, Any])
        self._flags = frozenset(name for name, kind in fields.items() if kind is bool)
        columns = ", ".join(f"{name}_json" if name in self._json else name for name in fields)
        self._insert = f"INTO {name} ({columns}) VALUES ({', '.join('?' * len(fields))})"
        self._select = f"SELECT {columns} FROM {name}"

    def insert(self, db: sqlite3.Connection, rows: Iterable[_T], *, replace: bool = False) -> None:
        """Write rows, inside a transaction; ``replace`` overwrites rows with the same key."""
        db.executemany(f"INSERT {'OR REPLACE ' * replace}{self._insert}", map(self._values, rows))

    def select(self, state: "State", rest: str = "", values: tuple[object, ...] = ()) -> list[_T]:
        """Return rows; ``rest`` is the end of the query, from WHERE on. Raises as ``State.reading``."""
        with state.reading() as db:
            return [self._row_of(found) for found in db.execute(f"{self._select} {rest}", values)]

    def _values(self, row: _T) -> list[Any]:
        return [
            json.dumps(dict(getattr(row, name))) if name in self._json else getattr(row, name) for name in self._names
        ]

    def _row_of(self, values: Iterable[Any]) -> _T:
        found = dict(zip(self._names, values, strict=True))
        found |= {name: json.loads(found[name]) for name in self._json}
        found |= {name: bool(found[name]) for name in self._flags}
        return self._row(**found)


class _Unusable(Exception):
    """The file is no usable ``state.db``; the text says why."""


class State:
    """The database of one sessions root; opened when it is first used."""

    def __init__(self, root: Path, clock: Clock | None = None) -> None:
        self.path = root / FILE_NAME
        self._clock = clock or SystemClock()
        self._locks = {"read": threading.RLock(), "write": threading.RLock()}
        self._connections: dict[str, sqlite3.Connection] = {}
        self._inodes: dict[str, int] = {}  # of the file that is open and its companions
        self._aside: list[Path] = []  # files whose rows are to be taken over

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Run the block in a transaction: committed at the end, rolled back by any exception.

        Raises:
            Damaged: The file was unusable; there is a new and empty one now.
            StateError: The disk failed, or another program holds the file.
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
        """Run the block with one consistent view, during which others may write; raises as ``writing``."""
        with self._connection("read") as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")

    def get(self, key: str, default: Any = None) -> Any:
        """Return a setting, or ``default`` if it was never set; raises as ``writing``."""
        with self.reading() as connection:
            row = connection.execute("SELECT value FROM settings WHERE key = ?", (key,)).fetchone()
        return default if row is None else json.loads(row[0])

    def refuse_later(self) -> None:
        """Raise ``LaterVersion`` if a later version wrote the file; other errors are raised by its first use."""
        try:
            self.get("")
        except LaterVersion:
            raise
        except StateError as error:
            _log.warning("%s", error)

    def put(self, key: str, value: Any) -> None:
        """Set a setting to any JSON value; raises as ``writing``."""
        with self.writing() as connection:
            connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (key, json.dumps(value)))

    def shrink(self) -> None:
        """Free the memory of cached pages, up to ``CACHE_KIB`` for each connection; they are read again on demand."""
        for use, connection in list(self._connections.items()):
            with self._locks[use], contextlib.suppress(sqlite3.Error):  # closed or set aside just now
                connection.execute("PRAGMA shrink_memory")

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._locks["write"], self._locks["read"]:
            while self._connections:
                with contextlib.suppress(sqlite3.Error):
                    self._connections.popitem()[1].close()

    @contextlib.contextmanager
    def _connection(self, use: str) -> Iterator[sqlite3.Connection]:
        connection: sqlite3.Connection | None = None
        self._look_outside()
        try:
            if use not in self._connections:
                self._open_both()
            with self._locks[use]:
                connection = self._connections.get(use)
                if connection is None:  # moved aside by the other thread just now
                    raise Damaged(f"{self.path} was damaged", hint=_AGAIN)
                yield connection
        except sqlite3.Error as error:
            if _primary_code(error) in _REFUSALS:
                raise StateError(f"{self.path}: {error}", hint=_HINT) from error
            if _primary_code(error) not in _BEYOND_USE:
                raise  # not the disk's doing
            self._set_aside(str(error), connection)
            raise Damaged(f"{self.path} was damaged: {error}", hint=_AGAIN) from error

    def _open_both(self) -> None:
        # Both at once: afterwards whoever reads never waits for the lock of who writes.
        with self._locks["write"], self._locks["read"]:
            for use in self._locks:
                if use not in self._connections:
                    connection = self._open_or_replace()
                    while self._aside:
                        _take_over(connection, self._aside.pop())
                    self._connections[use] = connection
            self._inodes = {each: _inode_of(f"{self.path}{each}") for each in _COMPANIONS}

    def _look_outside(self) -> None:
        """Check whether the file was deleted or replaced while open; a deleted file is written again."""
        if not self._connections or not self._is_another():
            return
        held = [lock for lock in self._locks.values() if lock.acquire(blocking=False)]
        try:
            busy = len(held) < len(self._locks) or any(each.in_transaction for each in self._connections.values())
            if not busy and self._connections and self._is_another():  # else the next one sees to it
                self._restore()
        finally:
            for lock in held:
                lock.release()

    def _is_another(self) -> bool:
        return _inode_of(str(self.path)) != self._inodes.get("")

    def _restore(self) -> None:
        """Write the open but deleted file again; if it was replaced, the new file counts."""
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        is_gone = not os.path.lexists(self.path)
        try:
            if is_gone:
                _log.warning("%s was deleted while it was in use: it is written again", self.path)
                draft.unlink(missing_ok=True)
                os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
                with contextlib.closing(sqlite3.connect(draft)) as copy:
                    next(iter(self._connections.values())).backup(copy)
            self.close()  # which removes the log of the old file
            for companion in _COMPANIONS[1:]:  # they are not of the file that is there now
                if is_gone or _inode_of(f"{self.path}{companion}") == self._inodes[companion]:
                    Path(f"{self.path}{companion}").unlink(missing_ok=True)
            if is_gone:
                draft.rename(self.path)
        except (OSError, sqlite3.Error) as error:
            self.close()
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            _log.error("%s could not be written again: %s", self.path, error)

    def _open_or_replace(self) -> sqlite3.Connection:
        for _ in range(2):
            try:
                return self._open()
            except _Unusable as problem:
                self._set_aside(str(problem), None)
            except sqlite3.Error as error:
                if _primary_code(error) not in _BEYOND_USE:
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
            _check_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _claim(self) -> None:
        """Make the file if it is missing, private from its first byte; refuse anything that is no regular file."""
        try:
            if not self.path.exists():
                for companion in _COMPANIONS[1:]:  # of a file that was deleted: not to be replayed into a new one
                    Path(f"{self.path}{companion}").unlink(missing_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            if error.errno in _PLANTED:
                raise _Unusable("it is not a regular file") from error
            raise StateError(f"{self.path}: {error.strerror}", hint=_HINT) from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _Unusable("it is not a regular file")
        finally:
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
            self._aside.append(kept)
        _log.warning("%s cannot be used (%s): it is now %s, and the index is built anew", self.path, why, kept)

    def _free_name(self) -> Path:
        stamped = f"{self.path.stem}-{stamp(self._clock.now())}"
        number = 1
        while (kept := self.path.with_name(f"{stamped}{f'-{number}' if number > 1 else ''}.db")).exists():
            number += 1
        return kept


_AGAIN = "It is being built anew; try again in a moment"
_HINT = "See that the disk has room and may be written"


def _primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY


def _check(connection: sqlite3.Connection) -> None:
    """Raise ``_Unusable`` for a database of another program, ``LaterVersion`` for one of a later version."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if tables and application != APPLICATION_ID:
        raise _Unusable("it is another program's")
    if version > len(MIGRATIONS):
        (_, _, file) = connection.execute("PRAGMA database_list").fetchone()
        raise LaterVersion(
            f"{file} was written by a later version of pyagentd (its format {version}, the latest known here "
            f"{len(MIGRATIONS)})",
            hint="Install that version again (pyagentd upgrade), or use another sessions directory",
        )


def _migrate(connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for number, script in enumerate(MIGRATIONS[version:], version + 1):
        try:
            connection.executescript(
                f"BEGIN IMMEDIATE; {script};"
                f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {number}; COMMIT;"
            )
        except sqlite3.OperationalError as error:
            if _primary_code(error) != sqlite3.SQLITE_ERROR:
                raise
            raise _Unusable(f"its tables are not those of version {version}: {error}") from error


def _columns(connection: sqlite3.Connection) -> dict[str, frozenset[tuple[object, ...]]]:
    """Return name, type and nullability of each column of the tables; an index has no columns."""
    names = connection.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' AND type != 'trigger'")
    query = 'SELECT name, type, "notnull", pk FROM pragma_table_info(?)'
    return {name: frozenset(connection.execute(query, (name,))) for (name,) in names.fetchall()}


@lru_cache(maxsize=1)
def _expected_columns() -> dict[str, frozenset[tuple[object, ...]]]:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        _migrate(connection)
        return _columns(connection)


def _check_tables(connection: sqlite3.Connection) -> None:
    """Raise ``_Unusable`` if a table or an index is missing or differs from what this version makes."""
    found = _columns(connection)
    if wrong := [name for name, columns in _expected_columns().items() if found.get(name) != columns]:
        raise _Unusable(f"it lacks {wrong[0]}" if wrong[0] not in found else f"its table {wrong[0]} is another")


def _take_over(connection: sqlite3.Connection, kept: Path) -> None:
    """Copy every readable row of the ``OWNED`` tables from the file ``kept``; log what cannot be read."""
    taken, lost = dict[str, int](), list[str]()
    try:
        with contextlib.closing(_read_only(kept)) as old:
            if old.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
                return  # another program's
            for table in OWNED:
                taken[table], problem = _copy_rows(old, connection, table)
                lost += [f"{table} ({problem})"] if problem else []
    except (sqlite3.Error, OSError) as error:
        lost.append(f"everything ({error})")
    counts = ", ".join(f"{count} of {table}" for table, count in taken.items() if count)
    _log.warning("Copied from %s: %s rows", kept, counts or "no")
    if lost:
        _log.error("Not all rows of %s could be copied: %s", kept, "; ".join(lost))


def _read_only(path: Path) -> sqlite3.Connection:
    if not stat.S_ISREG(path.lstat().st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    # If there is no write-ahead log beside it, none is made.
    how = "mode=ro" if Path(f"{path}-wal").exists() else "mode=ro&immutable=1"
    return sqlite3.connect(f"file:{quote(str(path))}?{how}", uri=True, isolation_level=None)


def _copy_rows(old: sqlite3.Connection, new: sqlite3.Connection, table: str) -> tuple[int, str]:
    """Copy the rows of ``table`` that can be read and fit; from both ends, if the middle is damaged."""
    try:
        had = {name for (name,) in old.execute("SELECT name FROM pragma_table_info(?)", (table,))}
        columns = [name for (name,) in new.execute("SELECT name FROM pragma_table_info(?)", (table,)) if name in had]
    except sqlite3.Error as error:
        return 0, str(error)
    if not columns:
        return 0, "there is no such table"
    listed = ", ".join(f'"{name}"' for name in columns)
    insert = f"INSERT INTO {table} ({listed}) VALUES ({', '.join('?' * len(columns))})"
    count, problem = 0, ""
    new.execute("BEGIN IMMEDIATE")
    for order in ("ASC", "DESC"):
        try:
            for row in old.execute(f"SELECT {listed} FROM {table} ORDER BY 1 {order}"):
                try:
                    if table == "settings":
                        json.loads(row[columns.index("value")])
                    count += new.execute(insert, row).rowcount
                except (sqlite3.IntegrityError, ValueError, TypeError) as error:
                    if getattr(error, "sqlite_errorcode", 0) not in _TAKEN_ALREADY:
                        problem = f"a row does not fit: {error}"
            break
        except sqlite3.DatabaseError as error:
            problem = str(error)
    new.execute("COMMIT")
    return count, problem


def _inode_of(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_ino  # noqa: PTH116 - before every use
    except OSError:
        return 0
