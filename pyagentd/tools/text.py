"""Text files as they are: encoding, byte-order mark and line endings survive an edit.

A file is UTF-8, or UTF-16 when it begins with its mark, or otherwise read as Latin-1, which maps every byte to one
character and back, so that nothing outside the edited passage changes.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from pyagentd.errors import ToolError

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
    mark, encoding = marked(data)
    if not mark and is_binary(data):
        raise ToolError(f"{path} is a binary file")
    body = data[len(mark) :]
    try:
        return TextFile(body.decode(encoding), encoding, mark)
    except UnicodeDecodeError:
        return TextFile(data.decode("latin-1"), "latin-1")


def marked(data: bytes) -> tuple[bytes, str]:
    """Return the byte-order mark that ``data`` begins with, or b"", and the encoding it stands for."""
    return next(((mark, encoding) for mark, encoding in _MARKS if data.startswith(mark)), (b"", "utf-8"))


def is_binary(data: bytes) -> bool:
    """Whether the beginning of ``data`` has a NUL, as no text in a usual encoding does."""
    return b"\0" in data[:SNIFFED]
