"""Putting directories where the user's desktop finds what was deleted; nothing here deletes for good."""

from __future__ import annotations

import logging
from pathlib import Path

from pyagentd.errors import NotFound, StoreError

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
