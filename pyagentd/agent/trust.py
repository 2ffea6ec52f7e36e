"""Which presets of projects the user has agreed to: a project comes from somebody else, and so do its presets.

A preset says what an agent may read and run, so one that lies in a checkout is only used once its user said so, and
again when its name or its content changed. What was agreed to is kept in ``state.db``; when that is lost, the user is
asked again.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable

from pyagentd.store.index.state import State

_KEY = "trusted-presets"


def preset_hash(name: str, data: bytes) -> str:
    """Return what is agreed to: the SHA-256 of a preset's name and content.

    The name counts: a harmless preset must not become the one that new sessions are made from.
    """
    return hashlib.sha256(name.encode() + b"\0" + data).hexdigest()


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
