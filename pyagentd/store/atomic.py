"""Writes, moves and deletes files atomically; the only module of the store that changes the disk.

After a crash a file has either its old or its new content: the new one is written to a draft beside it, synced, and
renamed. Files are private (0600, directories 0700; the copy of a program stays executable), because a conversation
may quote anything the user can read. A symbolic link in place of a file is replaced and never followed, because
somebody may have planted it. Every disk error is raised as a ``StoreError`` with the path. The operating system is
called only through ``system``, so that a test can make any single call fail.
"""

import errno
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pyagentd import regularfile
from pyagentd.errors import StoreError

FILE_MODE = 0o600
DIR_MODE = 0o700

_DRAFT = re.compile(r"\..+\.(?:[0-9a-f]{16}|(?P<emacs>[A-Za-z0-9]{6}))\.tmp", re.DOTALL)
_COPIED_AT_ONCE = 1 << 20  # bytes
_NAMED = 40  # characters of the file's name in its draft's, which has at most 255 bytes
_STARTED_S = time.time()
_ABANDONED_S = 600.0  # a write takes moments; a draft this old is nobody's
_APPEND = os.O_NONBLOCK | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP}  # some network file systems, of directories


class System:
    """The functions of ``os`` through which the store reaches the disk."""

    open = staticmethod(os.open)
    pread = staticmethod(os.pread)
    write = staticmethod(os.write)
    fsync = staticmethod(os.fsync)
    fstat = staticmethod(os.fstat)
    close = staticmethod(os.close)
    ftruncate = staticmethod(os.ftruncate)
    replace = staticmethod(os.replace)
    unlink = staticmethod(os.unlink)
    mkdir = staticmethod(os.mkdir)
    symlink = staticmethod(os.symlink)


system = System()


# -- whole files ---------------------------------------------------------------------------------------------------


def write_text(path: Path, text: str, *, fsync: bool = True, mode: int = FILE_MODE) -> None:
    """Replace the content of ``path`` with ``text`` in UTF-8, with its line ends unchanged.

    Args:
        path: The file; its directory exists.
        text: The whole new content.
        fsync: Survive a loss of power, not only a killed process.
        mode: Permissions of the new file, whatever the old ones were.

    Raises:
        StoreError: The disk failed; the file has its old content, or, if only its directory could not be synced,
            the new one.
    """
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise StoreError(f"{path}: the text holds a character that UTF-8 cannot ({error.reason})") from error
    write_bytes(path, data, fsync=fsync, mode=mode)


def write_configuration(path: Path, text: str) -> None:
    """Replace the content of a file as ``write_text`` does; refuse a text that would be too long to read back."""
    if len(text.encode("utf-8", "replace")) > regularfile.CONFIGURATION:
        most = f"{regularfile.CONFIGURATION:,} bytes"
        raise StoreError(f"{path} would have more than {most}", hint="Say it in fewer words, or name a file to read")
    write_text(path, text)


def rewrite_text(path: Path, text: str, *, mode: int = FILE_MODE, links: bool = False) -> None:
    """Replace the content of a file that people also edit; it keeps its permissions.

    Args:
        path: The file; its directory exists.
        text: The whole new content.
        mode: Permissions, if it is new.
        links: Write the target of a symbolic link instead of replacing it, where only the user can make links.

    Raises:
        StoreError: See ``write_text``.
    """
    place = path.resolve() if links else path
    with suppress(FileNotFoundError):
        mode = stat.S_IMODE(place.stat().st_mode)
    write_text(place, text, mode=mode)


def write_bytes(
    path: Path,
    data: bytes,
    *,
    fsync: bool = True,
    mode: int = FILE_MODE,
    check: Callable[[], None] = lambda: None,
) -> os.stat_result:
    """Replace the content of ``path`` with ``data``; see ``write_text``.

    ``check`` is called right before the draft is renamed, and prevents that by raising.

    Returns:
        The status of the file that was written, even if another one has replaced it since.
    """
    with _Refusals(path):
        with _draft(path) as draft:
            with _new_file(draft, mode) as fd:
                _write_all(fd, data)
                if fsync:
                    system.fsync(fd)
                status = system.fstat(fd)
            check()
            system.replace(draft, path)
        if fsync:
            _sync_directory(path.parent)
    return status


def replace_link(path: Path, target: str) -> None:
    """Make ``path`` a symbolic link to ``target``, replacing an existing link."""
    with _Refusals(path):
        with _draft(path) as draft:
            system.symlink(target, draft)
            system.replace(draft, path)
        _sync_directory(path.parent)


def sweep(directory: Path) -> None:
    """Remove the drafts that a killed daemon or Emacs left in ``directory``, as far as possible."""
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if named := _DRAFT.fullmatch(entry.name):
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    ours = status.st_uid == os.geteuid() and not stat.S_ISDIR(status.st_mode)
                    if ours and _is_abandoned(status.st_mtime, by_emacs=named["emacs"] is not None):
                        system.unlink(entry.path)


def _is_abandoned(mtime_s: float, *, by_emacs: bool) -> bool:
    """Return whether the writer of a draft is gone; only this daemon writes, but any Emacs may be alive."""
    return mtime_s < time.time() - _ABANDONED_S or (not by_emacs and mtime_s < _STARTED_S)


# -- directories ---------------------------------------------------------------------------------------------------


def is_abandoned(ctime_s: float) -> bool:
    """Return whether a draft with this modification time is from an earlier daemon."""
    return ctime_s < _STARTED_S


def make_dirs(path: Path) -> None:
    """Make the directory ``path`` and missing parents, all private."""
    with _Refusals(path):
        for directory in (*reversed(path.parents), path):
            if not directory.is_dir():
                with suppress(FileExistsError):
                    _make_dir(directory)
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))


def make_dir_exclusive(path: Path) -> bool:
    """Make the directory ``path``, without syncing; return False if the name is taken."""
    with _Refusals(path):
        try:
            system.mkdir(path, DIR_MODE)
        except FileExistsError:
            return False
        return True


def discard(directory: Path) -> None:
    """Remove what a failed operation had made; errors are ignored, as the failure itself matters more."""
    shutil.rmtree(directory, ignore_errors=True)


def move(directory: Path, target: Path) -> None:
    """Rename ``directory`` to ``target`` beside it, which must not exist.

    Raises:
        StoreError: The disk failed, or the name is taken.
    """
    with _Refusals(target):
        if target.exists() or target.is_symlink():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        system.replace(directory, target)
        _sync_directory(target.parent)


def replace(path: Path, target: Path) -> None:
    """Rename the file ``path`` to ``target``, replacing an existing file."""
    with _Refusals(target):
        system.replace(path, target)


def copy_tree(source: Path, target: Path, *, last: str = "") -> None:
    """Make the directory ``target`` with a copy of everything in ``source``, synced.

    Links are copied as links and never followed, so that a planted link copies nothing. Drafts and special files are
    left out.

    Args:
        source: A directory.
        target: Absent or empty; its parent exists.
        last: The name of files that are copied after their neighbours, because they refer to them.

    Raises:
        StoreError: The disk failed; ``target`` may be incomplete.
    """
    _copy_tree(source, target, last)
    sync_tree(target)  # afterwards: what many files need is then written at once
    with _Refusals(target):
        _sync_directory(target.parent)


# -- growing files -------------------------------------------------------------------------------------------------


def open_append(path: Path, *, create: bool = True) -> int:
    """Open ``path`` for reading and appending; the caller closes the descriptor.

    Args:
        path: The file.
        create: Make it if it is missing.

    Raises:
        FileNotFoundError: It is missing, without ``create``.
        StoreError: The disk failed.
    """
    with _Refusals(path, but=() if create else (FileNotFoundError,)):
        return _require_regular(system.open(path, _APPEND | (os.O_CREAT if create else 0), FILE_MODE), path)


def open_read(path: Path) -> int:
    """Open ``path`` for reading; the caller closes the descriptor.

    Raises:
        FileNotFoundError: It is missing.
        StoreError: The disk refused.
    """
    with _Refusals(path, but=(FileNotFoundError,)):
        return _require_regular(system.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK), path)


def _require_regular(fd: int, path: Path) -> int:
    try:
        regularfile.require(fd, path, limit=regularfile.LOG)
    except OSError:
        system.close(fd)
        raise
    return fd


def read_fd(fd: int, size: int, offset: int, path: Path) -> bytes:
    """Return up to ``size`` bytes from ``offset`` of the file behind ``fd``; ``path`` is for the error."""
    with _Refusals(path):
        return system.pread(fd, size, offset)


def append_fd(fd: int, data: bytes, path: Path) -> None:
    """Append ``data`` to the file of ``fd`` in one ``write()``; ``path`` is for the error.

    Raises:
        StoreError: The disk failed. A partial write is cut off again; if that fails, too, the caller may retry
            ``truncate_fd``.
    """
    with _Refusals(path):
        end = os.fstat(fd).st_size
        try:
            _write_all(fd, data)
        except OSError:
            with suppress(OSError):
                system.ftruncate(fd, end)
            raise


def append_lines(path: Path, lines: bytes) -> None:
    """Append whole lines to ``path``, which is made if missing; a partial last line is ended first.

    Raises:
        StoreError: The disk refused.
    """
    with _Refusals(path):
        fd = system.open(path, _APPEND | os.O_CREAT, FILE_MODE)
        try:
            regularfile.require(fd, path, limit=regularfile.LOG)
            size = os.fstat(fd).st_size
            is_torn = size > 0 and system.pread(fd, 1, size - 1) != b"\n"
            append_fd(fd, b"\n" + lines if is_torn else lines, path)
        finally:
            system.close(fd)


def sync_fd(fd: int, path: Path) -> None:
    """Sync the file of ``fd``, so that it survives a power failure; ``path`` is for the error.

    After a failure the kernel may consider pages clean that never reached the disk, and a second attempt may succeed
    without writing anything: the content must be written again.
    """
    with _Refusals(path):
        system.fsync(fd)


def sync_directory(directory: Path) -> None:
    """Sync the entries of ``directory``."""
    with _Refusals(directory):
        _sync_directory(directory)


def truncate_fd(fd: int, size: int, path: Path) -> None:
    """Truncate the file of ``fd`` to ``size`` bytes; ``path`` is for the error."""
    with _Refusals(path):
        system.ftruncate(fd, size)


def close_fd(fd: int) -> None:
    """Close ``fd``; an error of a network file system is ignored, because the data was synced before."""
    with suppress(OSError):
        system.close(fd)


# -- inside --------------------------------------------------------------------------------------------------------


def _write_all(fd: int, data: bytes) -> None:
    """Write ``data``, in one call unless the disk is full or a signal came; then the next call raises or goes on."""
    written = system.write(fd, data)
    while written < len(data):
        written += system.write(fd, data[written:])


@contextmanager
def _new_file(path: Path, mode: int) -> Iterator[int]:
    fd = system.open(path, _NEW, mode)
    try:
        yield fd
    except BaseException:
        close_fd(fd)
        raise
    system.close(fd)  # a network file system may refuse only now


def _copy_tree(source: Path, target: Path, last: str) -> None:
    with _Refusals(target), suppress(FileExistsError):
        system.mkdir(target, DIR_MODE)
    with _Refusals(source), os.scandir(source) as listed:
        entries = sorted(listed, key=lambda entry: (entry.name == last, entry.name))
    for entry in entries:
        place = target / entry.name
        if entry.is_symlink():
            with _Refusals(place):
                system.symlink(os.readlink(entry.path), place)  # noqa: PTH115 - a string, as scandir gives it
        elif entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".new-"):  # an agent being made
            _copy_tree(Path(entry.path), place, last)
        elif entry.is_file(follow_symlinks=False) and not _DRAFT.fullmatch(entry.name):
            with suppress(FileNotFoundError):  # removed meanwhile
                _copy_file(Path(entry.path), place)


def sync_tree(directory: Path) -> None:
    """Sync ``directory`` and everything in it.

    Raises:
        StoreError: The disk failed.
    """
    with _Refusals(directory):
        with os.scandir(directory) as listed:
            entries = list(listed)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                sync_tree(Path(entry.path))
            elif entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_size:
                fd = system.open(entry.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    system.fsync(fd)
                finally:
                    close_fd(fd)
        _sync_directory(directory)


def _copy_file(source: Path, target: Path) -> None:
    """Copy the file ``source`` to the new file ``target``; raises FileNotFoundError if it is missing."""
    given = open_read(source)
    try:
        with _Refusals(target), _new_file(target, FILE_MODE | os.fstat(given).st_mode & stat.S_IXUSR) as made:
            offset = 0
            while data := read_fd(given, _COPIED_AT_ONCE, offset, source):
                _write_all(made, data)
                offset += len(data)
    finally:
        close_fd(given)


def _make_dir(path: Path) -> None:
    system.mkdir(path, DIR_MODE)
    try:
        _sync_directory(path.parent)
    except OSError:
        with suppress(OSError):  # what is refused is not there
            path.rmdir()
        raise


def _sync_directory(directory: Path) -> None:
    try:
        fd = system.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return  # names can be made in it, but it cannot be read
    try:
        system.fsync(fd)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        close_fd(fd)


@contextmanager
def _draft(path: Path) -> Iterator[Path]:
    """Yield the name of a draft beside ``path``; it is removed if the block fails."""
    # Hidden, so that a directory listing never takes a half-written file for a session's.
    draft = path.with_name(f".{path.name[:_NAMED]}.{secrets.token_hex(8)}.tmp")
    try:
        yield draft
    except BaseException:
        with suppress(OSError):
            system.unlink(draft)
        raise


@dataclass(slots=True)
class _Refusals(AbstractContextManager[object]):
    """Turns errors of the system in the block into ``StoreError``; a class is faster, and a turn needs twenty."""

    path: Path
    but: tuple[type[OSError], ...] = ()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, self.but):
            raise StoreError(f"{self.path}: {error.strerror or error}") from error
