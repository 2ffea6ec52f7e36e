"""Remembered approvals, the audit log, and trust in presets, hooks and servers of projects."""

import asyncio
import contextlib
import hashlib
import logging
import os
import pwd
import re
import shlex
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyagentd import reader, regularfile
from pyagentd.config.loading import read_toml
from pyagentd.config.tables import HookSettings, ServerSettings, compile_action, read_hooks, read_server
from pyagentd.errors import BadRequest, ConfigError, StoreError
from pyagentd.reader import Source, line_in_json, read
from pyagentd.store import paths, presetfile
from pyagentd.store.db import audit
from pyagentd.store.db.audit import Decided, Entry
from pyagentd.store.db.state import Damaged, State, write_durably
from pyagentd.store.paths import BranchRef
from pyagentd.tools.mcp.connection import fill_root

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel


# Lasting approvals of humans: for a session's whole tree, or permanently for a project.
#
# A grant is a regular expression over whole action strings, exactly as the question showed it. Grants of a session
# are in the row of the session at the root of the tree and apply to its agents too; a branch or copy of the session
# starts without them. Grants of a project are settings of ``state.db``, by workspace root. All are kept in memory
# while the daemon runs, since every decision reads them; only the daemon writes them.


log = logging.getLogger(__name__)

Kind = Literal["session", "project"]

_SETTING = "grants:"  # + workspace root
_UNREAD = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One remembered approval."""

    kind: Kind
    action: str  # the regular expression, as it was shown
    at: int  # epoch ms
    ask: str  # the id of the ask it answered
    by: str  # the client that sent the answer
    pattern: re.Pattern[str]  # ``action``, compiled

    def facts(self) -> dict[str, Any]:
        """Return the grant as it is recorded."""
        return {"action": self.action, "at": self.at, "ask": self.ask, "by": self.by}


class Grants:
    """All grants of a kernel.

    Args:
        kernel: Opens the branches whose rows hold the grants of sessions.
        state: The database, which holds the grants of projects.
    """

    def __init__(self, kernel: "Kernel", state: State) -> None:
        self._kernel = kernel
        self._state = state
        self._sessions: dict[str, tuple[object, tuple[Grant, ...]]] = {}  # recorded and compiled, by root's key
        self._projects: dict[str, tuple[Grant, ...]] = {}  # by workspace root
        self._given: set[tuple[str, str]] = set()  # to sessions since the daemon started: root's key and expression
        self._writing = asyncio.Lock()

    async def load(self, root: BranchRef, workspace: Path) -> None:
        """Load the grants of ``root`` and ``workspace``; raises nothing.

        Grants that cannot be read are ignored: a human is asked again.
        """
        if root.key not in self._sessions:
            with contextlib.suppress(StoreError):
                async with self._kernel.using(root):
                    self._of_session(root)
        if str(workspace) not in self._projects:
            try:
                await self._load_project(workspace)
            except StoreError as error:
                log.warning("grants of %s: %s", workspace, error)

    async def _load_project(self, workspace: Path) -> None:
        if str(workspace) not in self._projects:
            self._projects[str(workspace)] = await asyncio.to_thread(self._read, workspace)

    def patterns(self, root: BranchRef, workspace: Path) -> tuple[re.Pattern[str], ...]:
        """Return the patterns of the loaded grants."""
        return tuple(grant.pattern for grant in self.active(root, workspace))

    def active(self, root: BranchRef, workspace: Path) -> tuple[Grant, ...]:
        """Return the loaded grants, those of the session first, each kind oldest first."""
        return (*self._of_session(root), *self._projects.get(str(workspace), ()))

    async def remember(
        self, kind: Kind, root: BranchRef, workspace: Path, actions: Sequence[str], *, ask: str, by: str
    ) -> tuple[str, ...]:
        """Grant ``actions``; return those that were not granted already.

        Raises:
            BadRequest: One is not a regular expression.
            StoreError: The disk refused; nothing is remembered.
        """
        at = self._kernel.clock.now_ms()
        new = [
            Grant(kind=kind, action=action, at=at, ask=ask, by=by, pattern=compile_action(action))
            for action in actions
        ]
        async with self._writing:
            await self.load(root, workspace)
            await self._load_project(workspace)  # raises, so that unreadable grants are not overwritten
            known = [grant for grant in self.active(root, workspace) if grant.kind == kind]
            had = {grant.action for grant in known}
            added = [grant for grant in new if grant.action not in had]
            if added:
                await self._keep(kind, root, workspace, [*known, *added])
        return tuple(grant.action for grant in added)

    async def revoke(self, root: BranchRef, workspace: Path, action: str, kind: Kind | None = None) -> int:
        """Revoke the grants whose expression is ``action``, of both kinds or only ``kind``; return how many.

        Raises:
            StoreError: The disk refused.
        """
        revoked = 0
        async with self._writing:
            await self.load(root, workspace)
            await self._load_project(workspace)
            for each in (kind,) if kind else ("session", "project"):
                known = [grant for grant in self.active(root, workspace) if grant.kind == each]
                left = [grant for grant in known if grant.action != action]
                if len(left) < len(known):
                    await self._keep(each, root, workspace, left)
                    revoked += len(known) - len(left)
        return revoked

    def _of_session(self, root: BranchRef) -> tuple[Grant, ...]:
        """Return the grants of the session, read from its row if the branch is open."""
        recorded, grants = self._sessions.get(root.key, (_UNREAD, ()))
        live = self._kernel.opened(root.key)
        if live is not None and (now := live.conversation.session.get("permissions_json")) is not recorded:
            grants = _compile_grants("session", now)
            self._sessions[root.key] = (now, grants)
        if grants and self._kernel.origins.foreign(root):  # the grants in its log cannot be trusted
            return tuple(grant for grant in grants if (root.key, grant.action) in self._given)
        return grants

    async def _keep(self, kind: Kind, root: BranchRef, workspace: Path, grants: Sequence[Grant]) -> None:
        facts = [grant.facts() for grant in grants]
        if kind == "session":
            async with self._kernel.using(root) as live:
                live.require_writable()
                before, known = live.conversation.session.get("permissions_json"), self._of_session(root)
                live.note_session(permissions_json=facts)
                try:
                    await live.recorder.commit()
                except StoreError:
                    with contextlib.suppress(StoreError):
                        live.note_session(permissions_json=before)
                    self._sessions[root.key] = (live.conversation.session.get("permissions_json"), known)
                    raise
                self._given.update((root.key, grant.action) for grant in grants)
                self._of_session(root)
        else:
            await asyncio.to_thread(write_durably, lambda: self._state.put(f"{_SETTING}{workspace}", facts))
            self._projects[str(workspace)] = tuple(grants)

    def _read(self, workspace: Path) -> tuple[Grant, ...]:
        try:
            return _compile_grants("project", self._state.get(f"{_SETTING}{workspace}"))
        except Damaged:
            return ()


def _compile_grants(kind: Kind, recorded: object) -> tuple[Grant, ...]:
    """Return the recorded grants; malformed ones are ignored, so that a human is asked again."""
    found = []
    for each in recorded if isinstance(recorded, list) else ():
        action = each.get("action") if isinstance(each, Mapping) else None
        if not isinstance(action, str):
            continue
        try:
            pattern = compile_action(action)
        except BadRequest:
            log.warning("ignored a grant that is not a regular expression: %r", action)
            continue
        at, ask, by = each.get("at"), str(each.get("ask") or ""), str(each.get("by") or "")
        at = at if isinstance(at, int) else 0
        found.append(Grant(kind=kind, action=action, at=at, ask=ask, by=by, pattern=pattern))
    return tuple(found)


# Writing the audit: entries are queued in memory and written in batches by a thread.
#
# A decision never waits for the disk, and no entry is lost while the daemon lives: entries that the disk refuses stay
# queued and are retried with the next batch.

BATCH_S = 0.2  # how long entries are gathered for a batch
MOST_WAITING = 100_000  # entries kept in memory while the disk refuses; beyond this the oldest go to the daemon's log


class Ledger:
    """The audit of one daemon.

    Args:
        state: The database; closed by its owner, after a ``flush``.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._waiting: deque[Entry] = deque()
        self._noting = threading.Lock()  # guards the queue; held briefly
        self._writing = threading.Lock()  # held by the thread that writes
        self._timer: threading.Timer | None = None  # of the next batch
        self._problem = ""

    def note(self, entry: Entry) -> None:
        """Queue ``entry``; returns at once."""
        with self._noting:
            self._waiting.append(entry)
            if self._timer is None:
                self._timer = threading.Timer(BATCH_S, self.flush)
                self._timer.name, self._timer.daemon = "audit", True
                self._timer.start()

    def flush(self) -> str:
        """Write all queued entries; return why that failed, or "". Blocks, for a thread."""
        with self._writing:
            with self._noting:
                batch, timer, self._timer = list(self._waiting), self._timer, None
            if timer is not None:
                timer.cancel()
            if not batch:
                return ""
            written = self._write(batch)
            with self._noting:
                for _ in batch if written else ():
                    self._waiting.popleft()
                while len(self._waiting) > MOST_WAITING:
                    log.error("audit entry that could not be written: %s", self._waiting.popleft())
            return self._problem

    def _write(self, batch: list[Entry]) -> bool:
        try:
            write_durably(lambda: audit.append(self._state, batch))
        except StoreError as error:
            self._note_problem(str(error), len(batch))
        except Exception as error:  # one bad entry must not end the audit
            log.exception("the audit could not be written")
            self._note_problem(f"{type(error).__name__}: {error}", len(batch))
        else:
            self._problem = ""
            return True
        return False

    def _note_problem(self, problem: str, entries: int) -> None:
        if problem != self._problem:
            log.error("the audit cannot be written (%d entries wait): %s", entries, problem)
        self._problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWitness:
    """Writes the decisions of one run to the audit log."""

    kernel: "Kernel"
    ref: BranchRef  # the branch of the run
    session: str  # id of the session at the root of the tree
    run_id: str
    user: str | None = None  # the user who started the run; None for a scheduled one

    def __call__(
        self,
        tool: str,
        action: str,
        decision: Decided,
        rule: str,
        reason: str = "",
        by: str | None = None,
        *,
        change: str | None = None,
    ) -> None:
        """Write one decision (see ``audit.Entry``); ``change`` is its ``detail``."""
        entry = Entry(
            at_ms=self.kernel.clock.now_ms(),
            session=self.session,
            branch_dir=self.kernel.projection.key(self.ref.branch_dir),
            agent=self.ref.session_id if self.ref.is_agent else None,
            run_id=self.run_id,
            tool=tool,
            action=action,
            decision=decision,
            rule=rule,
            reason=reason,
            by=by,
            detail=change,
            user=self.user if by is None else local_user(),  # only the daemon's user can answer
        )
        self.kernel.ledger.note(entry)


@cache
def local_user() -> str:
    """Return the login name of the daemon's user, the only one who can connect to it."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def local_subject() -> str:
    """Return the daemon's user as an ``auth_subject``."""
    return f"user:{local_user()}"


# Trust in files that others wrote: presets of a project, and sessions in a checkout.
#
# A preset decides what an agent may read and run, so one from a checkout is used only after the user trusted it, and
# must be trusted again when its name or content changes. Trust is kept in ``state.db``; if that is lost, the user is
# asked again.
#
# A session contains a preset and a log. One that is not below the sessions root and was not made by this daemon is
# foreign until its user trusts it; opening it does not make it trusted.

TRUST = "trusted-presets"  # hashes of presets, hooks and servers that the user trusts
_MADE = "made-sessions"
_SESSIONS = "trusted-sessions"


def preset_hash(name: str, data: bytes, scripts: Iterable[tuple[Path, bytes]] = ()) -> str:
    """Return the hash to be trusted: SHA-256 of a preset's name and content, and of the scripts that its servers run.

    The name is included, so that a trusted preset cannot be renamed to the one that new sessions are made from.
    """
    hashed = hashlib.sha256(name.encode() + b"\0" + data)
    for path, code in scripts:
        hashed.update(b"\0" + os.fsencode(path) + b"\0" + hashlib.sha256(code).digest())
    return hashed.hexdigest()


class KeptSet:
    """A set of strings that is stored as a setting of ``state.db``.

    Args:
        state: The database; None keeps the set in memory.
        key: The name of the setting.
    """

    def __init__(self, state: State | None, key: str) -> None:
        self._state = state
        self._key = key
        self._lock = threading.Lock()
        self._known: frozenset[str] | None = None

    def __contains__(self, text: str) -> bool:
        with self._lock:
            return text in self._read()

    def add(self, texts: Iterable[str]) -> None:
        """Add strings.

        Raises:
            StateError: The set could not be written and is unchanged.
        """
        with self._lock:
            try:
                known = self._read().union(texts)
            except Damaged:  # there is a new file now
                known = frozenset(texts)
            if self._state is not None:
                put = self._state.put
                write_durably(lambda: put(self._key, sorted(known)))
            self._known = known

    def _read(self) -> frozenset[str]:
        if self._known is None:
            kept = [] if self._state is None else self._state.get(self._key, [])
            texts = kept if isinstance(kept, list) else ()
            self._known = frozenset(each for each in texts if isinstance(each, str))
        return self._known


class Origins:
    """Decides which sessions are the user's own or trusted, and which are foreign; agents are as their session.

    Args:
        root: The sessions root; sessions below it are the user's own.
        state: The database with trusted sessions, and the user's own outside the root.
    """

    def __init__(self, root: Path, state: State) -> None:
        self._root = root.resolve()
        self._below = f"{self._root}/"
        self._made = KeptSet(state, _MADE)
        self._trusted = KeptSet(state, _SESSIONS)

    def foreign(self, ref: BranchRef) -> bool:
        """Return whether a branch is neither the user's own nor trusted with its current ``preset.md``."""
        if self.is_own(ref):
            return False
        top = paths.root_of(ref)
        try:
            data = presetfile.content(paths.preset_file(top.branch_dir))
        except StoreError:
            return True
        return not _has(self._trusted, _session_hash(top, data))

    def is_own(self, ref: BranchRef) -> bool:
        """Return whether a branch was made here, and needs no trust."""
        if ref.key.startswith(self._below) or ref.branch_dir.resolve().is_relative_to(self._root):
            return True
        return _has(self._made, _place(paths.root_of(ref)))

    def note_made(self, ref: BranchRef) -> None:
        """Record that a session was made here, if it is outside the sessions root."""
        if not ref.branch_dir.resolve().is_relative_to(self._root):
            with contextlib.suppress(StoreError):  # the user can still trust it
                self._made.add([_place(ref)])

    def trust(self, ref: BranchRef, data: bytes) -> None:
        """Trust the session of a branch while its ``preset.md`` has this content; raises ``StateError``."""
        top = paths.root_of(ref)
        self._trusted.add([_session_hash(top, data)])
        log.info("trusted: %s", top.branch_dir)

    @contextlib.contextmanager
    def keep_trust(self, ref: BranchRef) -> Iterator[None]:
        """Keep the trust in a session whose ``preset.md`` the block changes for the user."""
        before = self.foreign(ref)
        yield
        if not before and self.foreign(ref):
            with contextlib.suppress(StoreError):  # the user is asked again
                self.trust(ref, presetfile.content(paths.preset_file(paths.root_of(ref).branch_dir)))

    def notes(self, ref: BranchRef) -> list[str]:
        """Return the notes for clients that open a branch."""
        if not self.foreign(ref):
            return []
        place = shlex.quote(str(paths.root_of(ref).branch_dir))
        return [
            "This session is not from this machine: its profile, its grants and what it says about confinement do "
            f"not count. Read its preset.md, then: pyagentd trust {place} (in Emacs M-x pyagentd-list, trust)"
        ]


def _has(kept: KeptSet, text: str) -> bool:
    """Return whether a set contains a string; an unreadable set counts as empty."""
    try:
        return text in kept
    except StoreError as error:
        log.warning("%s", error)
        return False


def _place(ref: BranchRef) -> str:
    return str(paths.root_of(ref).session_dir.resolve())


def _session_hash(top: BranchRef, data: bytes) -> str:
    return preset_hash(_place(top), data)


# The hooks of a project: ``.pyagentd/hooks.toml``, which is used once the user trusts exactly what would run.
#
# Trust covers the content of the file, the content of the project's programs and scripts that its commands name, and
# the project's path. When any of them changes, no hook runs until the user trusts the project again.

FILE = ".pyagentd/hooks.toml"
DIRECTORY = ".pyagentd/hooks"  # for scripts: no tool writes there

_MOST_BYTES = 1_000_000  # of each file


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectPrograms:
    """The hooks or servers that a project wants to run, as read from its files."""

    root: Path
    hash: str = ""  # of all files and scripts; "" when they cannot be used
    files: tuple[tuple[Path, str], ...] = ()  # the files that declare them, with their text
    hooks: tuple[HookSettings, ...] = ()
    servers: tuple[ServerSettings, ...] = ()
    scripts: tuple[tuple[Path, str], ...] = ()  # the project's own programs, with their text
    error: str = ""  # why some or all of them cannot be used


def project_hooks(root: Path) -> ProjectPrograms | None:
    """Read the hooks of the project ``root``; None when it has none. Blocks."""
    file = root / FILE
    if not os.path.lexists(file):
        return None
    try:
        data = read_project_file(file)
        toml = read_toml(file, data)
        hooks = read_hooks(toml.data, Source(place=toml.place, error=ConfigError))
        words = (word for hook in hooks for word in hook.command)
        scripts = [(path, read_project_file(path)) for path in scripts_of(root, words)]
    except (OSError, ValueError, ConfigError) as error:
        return ProjectPrograms(root=root, files=((file, ""),), error=str(error))
    hashed = hashlib.sha256(b"hooks\0" + os.fsencode(root.resolve()) + b"\0" + hashlib.sha256(data).digest())
    for path, code in scripts:
        hashed.update(os.fsencode(path) + b"\0" + hashlib.sha256(code).digest())
    files, shown = _file_texts([(file, data)]), _file_texts(scripts)
    return ProjectPrograms(root=root, hash=hashed.hexdigest(), files=files, hooks=hooks, scripts=shown)


def hooks_in(root: Path) -> list[str]:
    """Return the paths of a project's hooks that exist."""
    place = os.path.realpath(root)
    return [path for name in (FILE, DIRECTORY) if os.path.lexists(path := f"{place}/{name}")]


def scripts_of(root: Path, words: Iterable[str]) -> Iterator[Path]:
    """Yield the files of a project that words of commands name, and the programs named inside a word."""
    resolved, seen = root.resolve(), set[Path]()
    for whole in words:
        for word in (whole, *_parts(whole)):
            # A word may be a whole program's text, or name a circular link: ``Path`` raises for both.
            path = Path(os.path.realpath(root / os.path.expanduser(word)))  # noqa: PTH111
            if path in seen or not path.is_relative_to(resolved) or not os.path.isfile(path):  # noqa: PTH113
                continue
            if word == whole or _is_program(path):
                seen.add(path)
                yield path


def _parts(word: str) -> list[str]:
    """Return the words inside a word: of a shell command, and the value of an option (``--require=x.js``)."""
    try:
        words = shlex.split(word, comments=True)
    except ValueError:  # a quote that is never closed
        words = word.split()
    return [part for each in words for part in (each, each.partition("=")[2]) if part and part != word]


def read_project_file(path: Path) -> bytes:
    """Return the content of a project's file; raises ``OSError``, or ``ValueError`` when it is too large."""
    try:
        return regularfile.read_bytes(path, limit=_MOST_BYTES)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error


# The servers of a project: ``.mcp.json``, a file of other programs too, and ``.pyagentd/mcp.toml``, our own.
#
# A server is a program that runs as the user, so none is started before the user trusts it. Trust covers the content
# of the files, the content of the project's programs and scripts that their commands name, and the project's path.
# When any of them changes, no server is started until the user trusts the project again. Data that a command names,
# such as a database, may change.

OURS = ".pyagentd/mcp.toml"  # tables [NAME], as [mcp.NAME] of the configuration
OTHERS = ".mcp.json"  # {"mcpServers": {NAME: …}}

_PROGRAMS = re.compile(
    r"\.(pyw?|pyz|[cm]?[jt]s|[jt]sx|sh|bash|zsh|fish|ksh|rb|p[lm]|php|lua|tcl|r|jl|el|clj|cljs|exs?|erl|go|rs|java|jar|class|"
    r"kts|groovy|scala|swift|csx?|fsx|dll|so|dylib|exe|bat|cmd|ps1|wasm|awk|sed|mk)",
    re.IGNORECASE,
)
_INTERPRETER = re.compile(
    r"(python|pypy|node|nodejs|deno|bun|ruby|perl|php|lua|luajit|bash|sh|dash|zsh|ksh|fish|tclsh|Rscript|julia|java|"
    r"groovy|tsx|ts-node|pwsh|emacs|guile|osascript|awk|make)[0-9.]*"
)
_NO_SCRIPT = frozenset(("-m", "-c", "-e", "-p", "--eval", "--print"))  # what follows is not a file


def project_servers(root: Path) -> ProjectPrograms | None:
    """Read the servers of the project ``root``; None when it declares none. Blocks."""
    files = [file for name in (OTHERS, OURS) if os.path.lexists(file := root / name)]
    if not files:
        return None
    texts: list[tuple[Path, bytes]] = []
    problems: list[str] = []
    servers: dict[str, ServerSettings] = {}
    for file in files:
        try:
            data = read_project_file(file)
            servers |= {each.name: each for each in _servers(file, data, problems)}  # ours come last and win
        except (OSError, ValueError, ConfigError) as error:
            problems.append(str(error))
        else:
            texts.append((file, data))
    if not texts:
        return ProjectPrograms(root=root, error="; ".join(problems))
    scripts: dict[Path, bytes] = {}
    for each in list(servers.values()):
        try:
            scripts |= server_scripts(root, [each])
        except (OSError, ValueError) as error:
            problems.append(f"{each.source}: the MCP server {each.name}: {error}")
            del servers[each.name]
    if not servers and not problems:
        return None
    hashed = hashlib.sha256(b"mcp\0" + os.fsencode(root.resolve()))
    for path, data in (*texts, *scripts.items()):
        hashed.update(b"\0" + os.fsencode(path) + b"\0" + hashlib.sha256(data).digest())
    return ProjectPrograms(
        root=root,
        hash=hashed.hexdigest(),
        files=_file_texts(texts),
        servers=tuple(servers.values()),
        scripts=_file_texts(scripts.items()),
        error="; ".join(problems),
    )


def server_scripts(root: Path, servers: Iterable[ServerSettings]) -> list[tuple[Path, bytes]]:
    """Return the files of the project ``root`` that the commands of servers name, with their content.

    Raises ``OSError``, or ``ValueError`` when one is too large.
    """
    words = (word for each in servers for word in _words(each, root))
    return [(path, read_project_file(path)) for path in scripts_of(root, words)]


def _servers(file: Path, data: bytes, problems: list[str]) -> Iterator[ServerSettings]:
    """Yield the servers of a file; raises ``ValueError`` or ``ConfigError``.

    The error of a server that cannot be used is added to ``problems``, and the others are still read.
    """
    path: tuple[str, ...] = ()
    if file.name == OTHERS:
        try:
            tables: Any = reader.parse(data)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
        text, path = data.decode(errors="replace"), ("mcpServers",)
        source = Source(place=lambda each: f"{file}:{line_in_json(text, each)}", error=ConfigError, lenient=True)
        tables = read(tables, Mapping[str, Any], source).get("mcpServers", {})
    else:
        toml = read_toml(file, data)
        tables, source = toml.data, Source(place=toml.place, error=ConfigError)
    for name, table in read(tables, Mapping[str, Any], source, path).items():
        try:
            # Trusting a project covers its programs, not what the servers claim about their tools.
            yield replace(read_server(name, table, source, (*path, name)), of_project=True, trusted=False)
        except ConfigError as error:
            problems.append(str(error))


def _words(server: ServerSettings, root: Path) -> Iterator[str]:
    """Yield words that may name a program or script of the project, also relative to the command's directory."""
    place = root / fill_root(server.cwd, root)
    words = [fill_root(each, root) for each in server.command]
    awaited = False  # the script of an interpreter
    for number, word in enumerate(words):
        from_root = root / os.path.expanduser(word)  # noqa: PTH111 - Path raises
        files = [path for path in (from_root, place / word) if os.path.isfile(path)]  # noqa: PTH113 - Path raises
        if files and (number == 0 or awaited or any(map(_is_program, files))):
            awaited = False
            yield from map(str, files)
        elif _INTERPRETER.fullmatch(Path(word).name):
            awaited = True
        else:
            awaited = awaited and word not in _NO_SCRIPT
            named = (path for part in _parts(word) for path in (root / part, place / part))
            yield from map(str, filter(_is_program, filter(os.path.isfile, named)))


def _is_program(file: Path) -> bool:
    """Return whether a file is a program, by its name, its mode or its first bytes."""
    if not file.suffix or _PROGRAMS.fullmatch(file.suffix) or os.access(file, os.X_OK):
        return True
    try:
        return read_project_file(file)[:2] == b"#!"
    except (OSError, ValueError):
        return False


def _file_texts(files: Iterable[tuple[Path, bytes]]) -> tuple[tuple[Path, str], ...]:
    return tuple((path, data.decode(errors="replace")) for path, data in files)
