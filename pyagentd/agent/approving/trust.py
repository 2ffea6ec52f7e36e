"""What the user has agreed to of what comes from somebody else: presets of a project, and sessions in a checkout.

A preset says what an agent may read and run, so one that lies in a checkout is only used once its user said so, and
again when its name or its content changed. What was agreed to is kept in ``state.db``; when that is lost, the user is
asked again.

A session brings a preset and a log along. One that is not below the sessions root and was not made by this daemon is
foreign until its user trusts it; merely opening it changes nothing of that.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shlex
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyagentd.errors import StoreError
from pyagentd.store import paths, presetfile
from pyagentd.store.db.state import Damaged, State
from pyagentd.store.paths import BranchRef

_KEY = "trusted-presets"
_MADE = "made-sessions"
_SESSIONS = "trusted-sessions"

_log = logging.getLogger(__name__)


def preset_hash(name: str, data: bytes, scripts: Iterable[tuple[Path, bytes]] = ()) -> str:
    """Return what is agreed to: the SHA-256 of a preset's name and content, and of the scripts that its servers run.

    The name counts: a harmless preset must not become the one that new sessions are made from.
    """
    hashed = hashlib.sha256(name.encode() + b"\0" + data)
    for path, code in scripts:
        hashed.update(b"\0" + os.fsencode(path) + b"\0" + hashlib.sha256(code).digest())
    return hashed.hexdigest()


class Trust:
    """The hashes of presets that the user trusts.

    Args:
        state: Where they are kept; None keeps them in memory.
    """

    def __init__(self, state: State | None = None) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._known: frozenset[str] | None = None

    def __contains__(self, hashed: str) -> bool:
        return hashed in self._trusted()

    def add(self, hashes: Iterable[str]) -> None:
        """Trust presets with these hashes from now on.

        Raises:
            StateError: That could not be kept; nothing is trusted that was not before.
        """
        with self._lock:
            known = self._read() | frozenset(hashes)
            if self._state is not None:
                self._state.put(_KEY, sorted(known))
            self._known = known

    def _trusted(self) -> frozenset[str]:
        with self._lock:
            return self._read()

    def _read(self) -> frozenset[str]:
        if self._known is None:
            kept = [] if self._state is None else self._state.get(_KEY, [])
            self._known = (
                frozenset(each for each in kept if isinstance(each, str)) if isinstance(kept, list) else frozenset()
            )
        return self._known


class Origins:
    """Which sessions are the user's own, or trusted, and which are foreign; an agent is what its session is.

    Args:
        root: The sessions root; what is below it is the user's own.
        state: Has the directories of sessions that were made elsewhere, and what is trusted.
    """

    def __init__(self, root: Path, state: State) -> None:
        self._root = root.resolve()
        self._state = state
        self._lock = threading.Lock()
        self._kept: dict[str, frozenset[str]] = {}  # by key in ``state``

    def foreign(self, ref: BranchRef) -> bool:
        """Return whether a branch is neither the user's own nor trusted as its ``preset.md`` is now."""
        if self.is_own(ref):
            return False
        top = paths.root_of(ref)
        try:
            data = presetfile.content(paths.preset_file(top.branch_dir))
        except StoreError:
            return True
        return _session_hash(top, data) not in self._read(_SESSIONS)

    def is_own(self, ref: BranchRef) -> bool:
        """Return whether a branch was made here, and needs no trust."""
        if ref.branch_dir.is_relative_to(self._root) or ref.branch_dir.resolve().is_relative_to(self._root):
            return True
        return _place(paths.root_of(ref)) in self._read(_MADE)

    def made(self, ref: BranchRef) -> None:
        """Note that a session was made here, wherever it is."""
        if not ref.branch_dir.resolve().is_relative_to(self._root):
            with contextlib.suppress(StoreError):  # its user is asked whether it is to be trusted
                self._add(_MADE, _place(ref))

    def trust(self, ref: BranchRef, data: bytes) -> None:
        """Trust the session of a branch while its ``preset.md`` has this content; raises ``StateError``."""
        top = paths.root_of(ref)
        self._add(_SESSIONS, _session_hash(top, data))
        _log.info("trusted: %s", top.branch_dir)

    @contextlib.contextmanager
    def keeping(self, ref: BranchRef) -> Iterator[None]:
        """Keep the trust in a session whose ``preset.md`` the user has the block change."""
        before = self.foreign(ref)
        yield
        if not before and self.foreign(ref):
            with contextlib.suppress(StoreError):  # the user is asked again
                self.trust(ref, presetfile.content(paths.preset_file(paths.root_of(ref).branch_dir)))

    def notes(self, ref: BranchRef) -> list[str]:
        """Return what whoever opens a branch is told."""
        if not self.foreign(ref):
            return []
        place = shlex.quote(str(paths.root_of(ref).branch_dir))
        return [
            "This session is not from this machine: its profile, its grants and what it says about confinement do "
            f"not count. Read its preset.md, then: pyagentd trust {place} (in Emacs M-x pyagentd-trust-session)"
        ]

    def _read(self, key: str) -> frozenset[str]:
        with self._lock:
            return self._known(key)

    def _known(self, key: str) -> frozenset[str]:
        if key not in self._kept:
            try:
                kept = self._state.get(key, [])
            except StoreError as error:
                _log.warning("%s", error)
                return frozenset()
            self._kept[key] = frozenset(kept if isinstance(kept, list) else ())
        return self._kept[key]

    def _add(self, key: str, value: str) -> None:
        with self._lock:
            known = self._known(key) | {value}
            try:
                self._state.put(key, sorted(known))
            except Damaged:  # there is a new file now
                self._state.put(key, sorted(known))
            self._kept[key] = known


def _place(ref: BranchRef) -> str:
    return str(paths.root_of(ref).session_dir.resolve())


def _session_hash(top: BranchRef, data: bytes) -> str:
    return preset_hash(_place(top), data)
