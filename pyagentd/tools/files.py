"""Opens files by walking directory descriptors, so that a link put in place after the check is not followed.

Paths passed to this module are resolved: they contain no symbolic link. If a component is one anyway, it was swapped
in between the decision and the act; opening it fails with ``ToolError`` and nothing is read or written.
"""

import codecs
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from pyagentd.errors import ToolError

MAX_BYTES = 10_000_000  # of a file that is read whole

# O_PATH needs only search permission on the way down, as an ordinary open of the whole path would.
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LIST_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO must not wait for its other end.
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PROCESS = secrets.token_hex(4)  # of drafts tells ours, which are being written, from those of a daemon that is gone
_DRAFT = re.compile(r"\.pyagentd-([0-9a-f]{8})-[0-9a-f]{16}\.tmp")
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class IsDirectory(ToolError):
    """The path is a directory and not a file."""


class SwappedLink(ToolError):
    """The path has a symbolic link that it did not have when the call was allowed."""


@contextmanager
def parent(path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
    """Yield a descriptor of the directory of ``path``, and its last component; ``create`` makes the directory."""
    *directories, name = path.split("/")[1:]
    descriptor = os.open("/", _DIRECTORY)
    try:
        for directory in directories:
            descriptor = _descend(descriptor, directory, path, create)
        yield descriptor, name or "."
    finally:
        os.close(descriptor)


def _descend(descriptor: int, name: str, path: str, create: bool) -> int:
    if create:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=descriptor)
    try:
        below = os.open(name, _DIRECTORY, dir_fd=descriptor)
    except OSError as error:
        raise _link_or_os_error(error, name, descriptor, path) from error
    os.close(descriptor)
    return below


def open_file(path: str) -> int:
    """Return a descriptor for reading the regular file ``path``; the caller closes it.

    Raises:
        SwappedLink: A component is a symbolic link.
        ToolError: It is a directory (``IsDirectory``) or no regular file.
        OSError: As ``open`` raises it.
    """
    with parent(path) as (directory, name):
        try:
            descriptor = os.open(name, READ_FLAGS, dir_fd=directory)
        except OSError as error:
            raise _link_or_os_error(error, name, directory, path) from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise _not_a_file_error(mode, path)
    return descriptor


def open_directory(path: str) -> int:
    """Return a descriptor for listing the directory ``path``; the caller closes it."""
    if path == "/":
        return os.open("/", LIST_FLAGS)
    with parent(path) as (directory, name):
        try:
            return os.open(name, LIST_FLAGS, dir_fd=directory)
        except OSError as error:
            raise _link_or_os_error(error, name, directory, path) from error


def read_bytes(path: str) -> bytes:
    """Return the content of the regular file ``path``, when it has at most 10 MB."""
    return read_all(open_file(path), path)


def read_all(descriptor: int, path: str) -> bytes:
    """Read ``descriptor`` to its end, and close it; ``path`` is for the message."""
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ToolError(f"{path} is larger than {MAX_BYTES // 1_000_000} MB")
    return data


def replace_bytes(path: str, data: bytes) -> None:
    """Replace the content of ``path`` atomically, keeping mode and owner of an existing file.

    Missing directories are made. A reader sees the old content or the new, never a part.
    """
    with parent(path, create=True) as (directory, name):
        old = _regular_or_none(directory, name, path)
        temporary = draft_name()
        try:
            descriptor = os.open(temporary, _CREATE, 0o600 if old else 0o666, dir_fd=directory)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if old:
                    with suppress(PermissionError):
                        os.fchown(descriptor, old.st_uid, old.st_gid)
                    os.fchmod(descriptor, old.st_mode & 0o777)  # set-id bits do not survive a change
                os.fsync(descriptor)
            os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException as error:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            if isinstance(error, OSError):  # which names the draft, or nothing
                raise type(error)(error.errno, error.strerror, path) from error
            raise


def draft_name() -> str:
    """Return a name for the draft of a file, which replaces the file when it is complete; see ``sweep``."""
    return f".pyagentd-{_PROCESS}-{secrets.token_hex(8)}.tmp"


def sweep(path: str) -> None:
    """Remove the drafts that a killed daemon left beside ``path``, as far as possible."""
    with suppress(OSError, ToolError), parent(path) as (directory, _):
        listed = os.open(".", LIST_FLAGS, dir_fd=directory)
        try:
            for name in os.listdir(listed):  # noqa: PTH208 - by descriptor
                found = _DRAFT.fullmatch(name)
                if found is not None and found[1] != _PROCESS:
                    with suppress(OSError):
                        os.unlink(name, dir_fd=listed)
        finally:
            os.close(listed)


def _regular_or_none(directory: int, name: str, path: str) -> os.stat_result | None:
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISREG(found.st_mode):
        # Replacing needs no permission on the file itself, but a read-only file must not be changed.
        if not os.access(name, os.W_OK, dir_fd=directory):
            raise PermissionError(errno.EACCES, "The file is read-only", path)
        return found
    if stat.S_ISLNK(found.st_mode):
        raise _swapped_link_error(path)
    raise _not_a_file_error(found.st_mode, path)


def _not_a_file_error(mode: int, path: str) -> ToolError:
    return IsDirectory(f"{path} is a directory") if stat.S_ISDIR(mode) else ToolError(f"{path} is not a regular file")


def _link_or_os_error(error: OSError, name: str, directory: int, path: str) -> Exception:
    # A link where O_NOFOLLOW forbids it gives ELOOP, or ENOTDIR together with O_DIRECTORY.
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        with suppress(OSError):
            if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                return _swapped_link_error(path)
    return type(error)(error.errno, error.strerror, path)


def _swapped_link_error(path: str) -> SwappedLink:
    return SwappedLink(f"{path} leads through a symbolic link that was not there when the call was allowed")


# Text files as they are: encoding, byte-order mark and line endings survive an edit.
#
# A file is UTF-8, or UTF-16 when it begins with its mark, or otherwise read as Latin-1, which maps every byte to one
# character and back, so that nothing outside the edited passage changes.

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
SNIFFED = 8192  # bytes searched for a NUL


@dataclass(frozen=True, slots=True)
class TextFile:
    """Decoded content, line endings as in the file."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""

    @property
    def crlf(self) -> bool:
        """Whether most lines end with CR LF."""
        return self.text.count("\r\n") * 2 > self.text.count("\n")

    def with_text(self, text: str) -> bytes:
        """Return ``text`` as the bytes of this file."""
        try:
            return self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            bad = text[error.start : error.end][:10]
            raise ToolError(f"the file is {self.encoding} and cannot hold {bad!r}") from error


def decode(data: bytes, path: str) -> TextFile:
    """Return the content of a text file; ``path`` is for the message.

    Raises:
        ToolError: It is binary.
    """
    mark, encoding = detect_encoding(data)
    if not mark and is_binary(data):
        raise ToolError(f"{path} is a binary file")
    body = data[len(mark) :]
    try:
        return TextFile(body.decode(encoding), encoding, mark)
    except UnicodeDecodeError:
        return TextFile(data.decode("latin-1"), "latin-1")


def detect_encoding(data: bytes) -> tuple[bytes, str]:
    """Return the byte-order mark at the beginning of ``data``, or b"", and the encoding."""
    return next(((mark, encoding) for mark, encoding in _MARKS if data.startswith(mark)), (b"", "utf-8"))


def is_binary(data: bytes) -> bool:
    """Whether the beginning of ``data`` has a NUL, as no text in a usual encoding does."""
    return b"\0" in data[:SNIFFED]
