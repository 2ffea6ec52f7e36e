"""Which branches exist: found by listing directories, held in memory, no metadata cached.

Disk is the source of truth (SPEC 001 Registry and filesystem separation): a scan of the root opens no file, an entry
that has gone is noticed when it is looked up, and one made by somebody else is found by scanning again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyagentd.errors import Ambiguous, NotASession, NotFound
from pyagentd.store import paths
from pyagentd.store.paths import BranchRef

_SHOWN = 8

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A branch or agent with the agents directly under it."""

    ref: BranchRef
    agents: tuple[Entry, ...] = ()

    def walk(self) -> Iterator[BranchRef]:
        """Yield this branch and all agents below it."""
        yield self.ref
        for agent in self.agents:
            yield from agent.walk()


class Registry:
    """The branches of one sessions root, and of sessions elsewhere that it was told about.

    Args:
        root: The sessions root; need not exist.
        elsewhere: Directories of sessions outside the root (DD-41).
    """

    def __init__(self, root: Path, elsewhere: Iterable[Path] = ()) -> None:
        self._root = root
        self._elsewhere = {directory.resolve() for directory in elsewhere}
        self._entries: tuple[Entry, ...] = ()
        self._by_name: dict[str, dict[str, BranchRef]] = {}  # "ID/BRANCH" -> key -> ref

    def scan(self) -> tuple[Entry, ...]:
        """Find everything anew and return it: branches by session id and name, agents inside them."""
        self._entries = tuple(self._scan())
        self._by_name = {}
        for ref in self.refs():
            self._remember(ref)
        _log.info("Initialized registry with %d branches", sum(map(len, self._by_name.values())))
        return self._entries

    def branches(self) -> list[BranchRef]:
        """Return every branch and agent there is now, an agent after the branch it belongs to."""
        self.scan()
        return list(self.refs())

    def refs(self) -> Iterator[BranchRef]:
        """Yield every branch and agent that the last scan found."""
        for entry in self._entries:
            yield from entry.walk()

    def add(self, ref: BranchRef) -> None:
        """Know a branch that was just made or opened; its session is scanned from now on, wherever it is."""
        if not ref.is_agent and ref.session_dir.parent != self._root.resolve():
            self._elsewhere.add(ref.session_dir)
        self._remember(ref)

    def get(self, session_id: str, branch_name: str = paths.MAIN_BRANCH) -> BranchRef | None:
        """Return the branch with exactly these names, in constant time; None when unknown, gone or not unique."""
        known = self._by_name.get(f"{session_id}/{branch_name}", {})
        present = [ref for ref in known.values() if paths.session_file(ref.branch_dir).is_file()]
        return present[0] if len(present) == 1 else None

    def resolve(self, text: str) -> BranchRef:
        """Return what a person means by ``text``.

        Args:
            text: A session's or an agent's id, or the beginning of one; of a session that is its active branch.
                ``ID/BRANCH`` names another. Or a directory or file of a session.

        Raises:
            Ambiguous: Several fit; the message lists them.
            NotFound: None fits.
            NotASession: It is a path, but not of a session.
        """
        if text.startswith(("/", "~", ".")):
            return paths.ref_of(Path(text).expanduser())
        if known := self.get(*text.rsplit("/", 1)):
            return known if "/" in text else paths.ref_of(known.session_dir)
        fitting = _fitting(text, self.branches())
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise Ambiguous(
                f"{text!r} fits {len(fitting)} sessions: {_listed(fitting)}",
                mend="Give more of the id, or a directory",
            )
        if Path(text).exists():
            return paths.ref_of(Path(text))
        raise NotFound(
            f"No session, branch or agent is called {text!r} in {self._root}",
            mend="List them with `pyagentd sessions`; the beginning of an id is enough",
        )

    def _remember(self, ref: BranchRef) -> None:
        self._by_name.setdefault(ref.name, {})[ref.key] = ref

    def _scan(self) -> Iterator[Entry]:
        for name in _subdirectories(self._root):
            yield from _session_entries(self._root.resolve() / name, name)
        for directory in sorted(self._elsewhere):
            try:
                session_id = paths.ref_of(directory).session_id
            except NotASession:
                continue
            yield from _session_entries(directory, session_id)


def _fitting(text: str, refs: list[BranchRef]) -> list[BranchRef]:
    """Return of ``refs`` who has the id ``text``; if nobody, whose id begins with it."""
    wanted, _, branch = text.partition("/")
    named = [ref for ref in refs if ref.session_id == wanted]
    named = named or [ref for ref in refs if wanted and ref.session_id.startswith(wanted)]
    return [ref for ref in named if ref.branch_name == branch] if branch else _one_per_session(named)


def _one_per_session(refs: Iterable[BranchRef]) -> list[BranchRef]:
    """Keep of every session its active branch, and every agent."""
    sessions = dict.fromkeys(ref.session_dir for ref in refs)
    kept = []
    for directory in sessions:
        try:
            kept.append(paths.ref_of(directory))
        except NotASession:  # its link is broken: any branch is better than none
            kept += [ref for ref in refs if ref.session_dir == directory]
    return kept


def _session_entries(session_dir: Path, session_id: str) -> Iterator[Entry]:
    home = paths.branches_dir(session_dir)
    for name in _subdirectories(home):
        branch_dir = home / name
        if not paths.session_file(branch_dir).is_file():
            continue
        ref = BranchRef(session_id=session_id, session_dir=session_dir, branch_name=name, branch_dir=branch_dir)
        yield Entry(ref=ref, agents=tuple(_agent_entries(branch_dir)))


def _agent_entries(branch_dir: Path) -> Iterator[Entry]:
    home = paths.agents_dir(branch_dir)
    for name in _subdirectories(home):
        place = home / name
        if paths.session_file(place).is_file():
            yield Entry(ref=paths.agent_ref(place), agents=tuple(_agent_entries(place)))


def _subdirectories(directory: Path) -> list[str]:
    """Return the names of real directories in ``directory``, sorted, without hidden ones."""
    try:
        with os.scandir(directory) as entries:
            return sorted(e.name for e in entries if not e.name.startswith(".") and e.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _listed(refs: list[BranchRef]) -> str:
    same_id = len({ref.name for ref in refs}) < len(refs)
    names = [ref.key if same_id or ref.is_agent else ref.name for ref in refs]
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
