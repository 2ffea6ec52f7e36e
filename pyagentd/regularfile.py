"""Reads a regular file of limited size; refuses devices, pipes, links and what is too large.

Only regular files are read, opening never waits, and nothing is read beyond a limit: a FIFO, a device or a file of a
terabyte is an error at once. Below the sessions root and in a project a symbolic link at the end of a path is not
followed, because a checkout may contain one that points to a private key. Files that only the user writes
(``~/.config/pyagentd``) may be links to regular files, as dotfiles often are.

Refusals are ``OSError`` with a ``strerror`` for people, as errors of the disk are.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

CONFIGURATION: Final = 1_000_000  # bytes at most of a preset, a skill, hooks, servers, metadata, agent.json
DOCUMENT: Final = 200_000_000  # of a conversation's document and of other texts that grow with it
LOG: Final = 2_000_000_000  # of a conversation's log

_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_file(path: Path | str, *, limit: int, links: bool = False) -> int:
    """Return a descriptor for reading the regular file ``path``; the caller closes it.

    Args:
        path: The file.
        limit: Its largest size in bytes.
        links: Whether the last component may be a symbolic link.

    Raises:
        OSError: The file does not exist, cannot be read, is not a regular file or is too large.
    """
    try:
        descriptor = os.open(path, _READ | (0 if links else os.O_NOFOLLOW))
    except OSError as error:
        if error.errno == errno.ELOOP and not links and Path(path).is_symlink():
            raise OSError(errno.ELOOP, "It is a symbolic link, which is not followed here", str(path)) from error
        if error.errno == errno.ENXIO:  # a socket
            raise OSError(errno.ENXIO, "It is not a regular file", str(path)) from error
        raise
    try:
        require(descriptor, path, limit=limit)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def require(descriptor: int, path: Path | str, *, limit: int) -> None:
    """Raise ``OSError`` unless ``descriptor`` is a regular file of at most ``limit`` bytes."""
    found = os.fstat(descriptor)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "It is not a regular file", str(path))
    if found.st_size > limit:
        raise OSError(errno.EFBIG, f"It has more than {limit:,} bytes", str(path))


def open_binary(path: Path | str, *, limit: int) -> BinaryIO:
    """Return the file opened for reading; see ``open_file``."""
    return os.fdopen(open_file(path, limit=limit), "rb")


def read_end(path: Path | str, size: int, *, limit: int) -> bytes:
    """Return the last ``size`` bytes of the file, or all of a shorter file; see ``open_file``."""
    with open_binary(path, limit=limit) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - size))
        return file.read(size)


def read_bytes(path: Path | str, *, limit: int = CONFIGURATION, links: bool = False) -> bytes:
    """Return the content of the file; see ``open_file``."""
    with os.fdopen(open_file(path, limit=limit, links=links), "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:  # it grew, or says that it is empty as those of /proc do
        raise OSError(errno.EFBIG, f"It has more than {limit:,} bytes", str(path))
    return data


def read_text(path: Path | str, *, limit: int = CONFIGURATION, links: bool = False) -> str:
    """Return the text of the file, read as UTF-8; see ``open_file``."""
    return read_bytes(path, limit=limit, links=links).decode("utf-8")
