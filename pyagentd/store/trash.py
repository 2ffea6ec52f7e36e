"""Putting directories where the user's desktop finds what was deleted; deleting them where it has no such place."""

import logging
import os
import secrets
import stat
import sys
from pathlib import Path

from pyagentd.errors import NotFound, StoreError
from pyagentd.store import atomic

_log = logging.getLogger(__name__)

_MEND = "Make the trash usable (its place is ~/.local/share/Trash), or remove the directory yourself"


def move_to_trash(directory: Path) -> None:
    """Move ``directory`` with all that is in it to the system's trash, from where the user can restore it.

    Raises:
        NotFound: It is not there.
        StoreError: There is no trash for this disk, or it refuses; the directory is where it was.
    """
    # Loaded when it is needed: where the desktop's library is installed it takes longer than the rest of us.
    from send2trash import send2trash

    if not directory.is_dir():
        raise NotFound(f"{directory} is gone already")
    try:
        send2trash(str(directory))
    except OSError as error:
        why = error.strerror or str(error)
        raise StoreError(f"{directory} cannot be moved to the trash: {why}", mend=_MEND) from error
    if directory.exists():
        raise StoreError(f"{directory} cannot be moved to the trash: it is still there", mend=_MEND)
    _log.info("Moved to the trash: %s", directory)


def has_trash(directory: Path) -> bool:
    """Return whether what is in ``directory`` can be moved to a trash: to the user's own, or one of its disk."""
    if sys.platform == "darwin":
        return True
    home = Path("~").expanduser()
    place = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share") / "Trash"
    try:
        if directory.lstat().st_dev != home.lstat().st_dev:
            top = next(each for each in (directory, *directory.parents) if each.is_mount())
            place = top / f".Trash-{os.getuid()}"
        there = next(each for each in (place, *place.parents) if each.exists())
    except OSError:
        return False
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def delete(directory: Path) -> None:
    """Remove ``directory`` for good: all of it, or, as far as anybody can see by its name, nothing.

    Raises:
        StoreError: The disk refused; the directory is where it was.
    """
    draft = directory.with_name(f".{directory.name}.{secrets.token_hex(8)}")
    atomic.move(directory, draft)
    discard(draft)


def discard(directory: Path) -> None:
    """Remove as much of ``directory`` as can be, what is read-only too."""
    for place, _, _ in os.walk(directory):
        try:
            Path(place).chmod(stat.S_IRWXU)
        except OSError as error:
            _log.warning("%s stays: %s", place, error)
    atomic.discard(directory)
