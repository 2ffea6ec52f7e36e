"""What an earlier daemon knew of the files of a workspace, so that the first command need not read them all again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pyagentd import regularfile
from pyagentd.errors import StoreError
from pyagentd.store import atomic
from pyagentd.store.snapshots.scan import Signature
from pyagentd.store.snapshots.tree import Entry

_PLACE = "stats"
_MOST = 8  # workspaces; the one not used for longest goes first


class Stats:
    """Stat and entry of the files of some workspaces.

    Args:
        directory: Of the store of snapshots.
    """

    def __init__(self, directory: Path) -> None:
        self._place = directory / _PLACE

    def load(self, key: str) -> dict[str, tuple[Signature, Entry]]:
        """Return what is known of the workspace ``key`` by path; {} for nothing."""
        try:
            rows = json.loads(regularfile.read_text(self._file(key), limit=regularfile.DOCUMENT))
            return {path: ((a, b, c, d, e), Entry(mode, name)) for path, a, b, c, d, e, mode, name in rows}
        except (OSError, ValueError, TypeError):
            return {}

    def save(self, key: str, known: Iterable[tuple[str, Signature, Entry]]) -> None:
        """Keep what is known of the workspace ``key``; a disk that refuses costs time later and nothing else."""
        rows = [(path, *signature, *entry) for path, signature, entry in known]
        with suppress(StoreError, OSError):
            atomic.make_dirs(self._place)
            atomic.write_text(self._file(key), json.dumps(rows), fsync=False)
            files = sorted(self._place.glob("*.json"), key=lambda file: file.stat().st_mtime)
            for file in files[:-_MOST]:
                file.unlink()

    def clear(self) -> None:
        """Forget everything: objects may be gone."""
        for file in self._place.glob("*.json"):
            with suppress(OSError):
                file.unlink()

    def _file(self, key: str) -> Path:
        return self._place / f"{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()[:32]}.json"
