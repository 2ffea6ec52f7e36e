"""The only module of the store that changes the disk.

A file is either its old or its new self, whatever dies in between: it is written beside its place, synced and moved
over it. Files are for their owner alone (0600, directories 0700), since a conversation may quote anything the user
can read. A symbolic link in the place of a file is replaced, never followed: what a planted link points at is not
ours to write. Every refusal of the disk leaves here as ``StoreError`` with the path in it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyagentd.errors import StoreError

FILE_MODE = 0o600
DIR_MODE = 0o700


def write_text(path: Path, text: str, *, fsync: bool = True, mode: int = FILE_MODE) -> None:
    """Replace the content of ``path`` with ``text`` in UTF-8, line ends as they are.

    Args:
        path: The file; its directory exists.
        text: The whole new content.
        fsync: Survive a loss of power, not only a killed process.
        mode: Permissions of the new file, whatever the old ones were.

    Raises:
        StoreError: The disk refused; the old file is untouched.
    """
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise StoreError(f"{path}: the text holds a character that UTF-8 cannot ({error.reason})") from error
    write_bytes(path, data, fsync=fsync, mode=mode)


def write_bytes(path: Path, data: bytes, *, fsync: bool = True, mode: int = FILE_MODE) -> None:
    """Replace the content of ``path`` with ``data``; see ``write_text``."""
    with _refusals(path):
        # Hidden, so that a directory listing never takes a half-written file for a session's.
        fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(fd, "wb") as file:
                os.fchmod(fd, mode)
                file.write(data)
                file.flush()
                if fsync:
                    os.fsync(fd)
            os.replace(temporary, path)  # noqa: PTH105 - mkstemp gives a string
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)  # noqa: PTH108 - as above
            raise
        if fsync:
            _sync_directory(path.parent)


def make_dirs(path: Path) -> None:
    """Make ``path`` and what is missing above it, each for its owner alone."""
    with _refusals(path):
        for directory in (*reversed(path.parents), path):
            with suppress(FileExistsError):
                if not directory.is_dir():
                    directory.mkdir(mode=DIR_MODE)


def make_dir_exclusive(path: Path) -> bool:
    """Make the directory ``path``; return False when something has that name already."""
    with _refusals(path):
        try:
            path.mkdir(mode=DIR_MODE)
        except FileExistsError:
            return False
        return True


def replace_link(path: Path, target: str) -> None:
    """Make ``path`` a symbolic link to ``target``, in the place of the link that was there."""
    with _refusals(path):
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target)
        temporary.replace(path)


def discard(directory: Path) -> None:
    """Remove what an operation made before it failed; the failure matters more than what cannot be removed."""
    shutil.rmtree(directory, ignore_errors=True)


def open_append(path: Path) -> int:
    """Open ``path`` to read it and to add to its end, making it if need be; the caller closes the descriptor."""
    with _refusals(path):
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)


def append_fd(fd: int, data: bytes, path: Path) -> None:
    """Add ``data`` to the file behind ``fd`` in one ``write()``; ``path`` is for the error.

    Raises:
        StoreError: The disk refused; of a write that was cut short nothing remains.
    """
    with _refusals(path):
        end = os.fstat(fd).st_size
        try:
            written = os.write(fd, data)
            while written < len(data):  # a full disk or a signal; the next attempt raises or goes on
                written += os.write(fd, data[written:])
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, end)
            raise


def sync_fd(fd: int, path: Path) -> None:
    """Return when the file behind ``fd`` survives a loss of power; ``path`` is for the error."""
    with _refusals(path):
        os.fsync(fd)


def truncate_fd(fd: int, size: int, path: Path) -> None:
    """Cut the file behind ``fd`` to ``size`` bytes; ``path`` is for the error."""
    with _refusals(path):
        os.ftruncate(fd, size)


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error
