"""The workspaces whose files are kept before and after commands, each scanned by one thread at a time.

What does not belong to a workspace, though it lies in it: ``.git``, what ``.gitignore`` files leave out, our own
places, and directories that are denied. Files that may hold secrets are known by name and never by content.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from pyagentd.config import Config
from pyagentd.errors import StoreError
from pyagentd.policy.guard import CREDENTIALS, SESSION_RECORDS
from pyagentd.policy.patterns import first_match_folded
from pyagentd.store.snapshots.objects import Entry, Objects
from pyagentd.store.snapshots.scan import Scan, Stats, TooMuch

SECRETS = ("**/.env", "**/.env.*", "**/*.pem", "**/*.key", "**/id_rsa", "**/id_ed25519", "**/*.kdbx")

_KEPT = 6  # workspaces in memory
_WORTH_SAVING = 200  # files that had to be read


class Workspaces:
    """Takes snapshots of whole workspaces; every method blocks, for a thread.

    Args:
        config: Says where our own places are.
        objects: Where contents go.
        stats: What earlier daemons knew.
    """

    def __init__(self, config: Config, objects: Objects, stats: Stats) -> None:
        self._objects = objects
        self._stats = stats
        own = (config.sessions_dir, config.runtime_dir)
        self._own = frozenset(str(place.resolve()) for place in own)
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[threading.Lock, Scan]] = OrderedDict()

    def snapshot(self, root: Path, denies: tuple[str, ...]) -> Entry:
        """Return the directory ``root`` as it is now, stored.

        Args:
            root: Absolute and resolved.
            denies: Patterns of what is not to be kept.

        Raises:
            TooMuch: It is too large.
            StoreError: The disk refused.
        """
        if root == Path("/"):
            raise TooMuch("All of this machine is no workspace to be kept")
        key = _key(root, denies)
        with self._lock:
            lock, scan = self._known.get(key) or (threading.Lock(), self._new(root, denies, key))
            self._known[key] = lock, scan
            self._known.move_to_end(key)
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        with lock:
            try:
                entry = scan.snapshot()
            except OSError as error:
                raise StoreError(f"{root}: {error.strerror}") from error
            if scan.read >= _WORTH_SAVING:
                self._stats.save(key, scan.known())
        return entry

    def is_known(self, root: Path, denies: tuple[str, ...]) -> bool:
        """Return whether ``root`` was looked at before."""
        return _key(root, denies) in self._known

    def forget(self) -> None:
        """Look at everything anew: objects may be gone."""
        with self._lock:
            self._known.clear()
            self._stats.clear()

    def _new(self, root: Path, denies: tuple[str, ...], key: str) -> Scan:
        secret = secrecy(denies)

        def left_out(path: str, is_directory: bool) -> bool:
            return is_directory and (path in self._own or secret(f"{path}/-"))

        return Scan(str(root), self._objects, left_out=left_out, secret=secret, known=self._stats.load(key))


def _key(root: Path, denies: tuple[str, ...]) -> str:
    return "\n".join((str(root), *denies))


def secrecy(denies: tuple[str, ...]) -> Callable[[str], bool]:
    """Return whether the content of a path is not to be kept."""
    patterns = tuple(dict.fromkeys((*CREDENTIALS, *SECRETS, *SESSION_RECORDS, *denies)))
    return lambda path: first_match_folded(patterns, path) is not None
