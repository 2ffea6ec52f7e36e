"""Attachments: the files under ``files/`` that a text of a conversation links.

A link that leads out of ``files/`` is not followed. The type of a file is determined by its first bytes, not by its
name. Nothing is ever loaded from elsewhere.
"""

import base64
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from pyagentd import regularfile
from pyagentd.errors import BadRequest
from pyagentd.store import atomic, paths

_TARGET = re.compile(rf"\]\(<?((?:\./)?{paths.FILES_DIR}/[^)\s>]+)")  # what stands before is looked for backwards
_LABEL = 500  # characters of a link's label at most
_TARGET_LENGTH = 1_000  # characters of a link's target at most
_MOST = 1_000  # links of one text
_MAGIC = (
    (b"\x89PNG\r\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)
LARGEST_SHOWN = 3_750_000  # bytes of a picture or a document: providers take 5 MB of base64
_HEAD = 16  # bytes that tell


class LinkedFile(NamedTuple):
    """A linked file: the link as written, whether it is an image link, the file, and its size in bytes."""

    link: str
    shown: bool
    file: Path
    size: int


def keep_file(branch_dir: Path, name: str, data: bytes) -> Path:
    """Put a file into a branch's ``files/`` and return it; what has that name already stays.

    Raises:
        BadRequest: That is no name of a file, or no model could be shown what it is.
        StoreError: The disk refused.
    """
    home = paths.files_dir(branch_dir)
    file = home / name
    if file.parent != home or name in ("", ".", "..") or "\0" in name:
        raise BadRequest(f"{name!r} is no name of a file")
    check_size(name, media_type(data), len(data))
    atomic.make_dirs(home)
    if not os.path.exists(file):  # noqa: PTH110 - Path raises for a name that is too long
        atomic.write_bytes(file, data)
    return file


def decoded(content: str) -> bytes:
    """Return the bytes that ``content`` is in base64; raises ``BadRequest``."""
    try:
        return base64.b64decode(content, validate=True)
    except ValueError:
        raise BadRequest("What was attached is not base64") from None


def link_to(name: str, label: str, *, shown: bool) -> str:
    """Return the link to a file of ``files/``; a text with it shows the file if ``shown``."""
    written = re.sub(r"[][\n]", " ", label)
    return f"{'!' if shown else ''}[{written}]({paths.FILES_DIR}/{quote(name)})"


def linked_files(text: str, branch_dir: Path) -> Iterator[LinkedFile]:
    """Yield the existing files of ``files/`` that ``text`` links, each link once.

    ``text`` is untrusted: the time is linear in its length for any text.
    """
    if paths.FILES_DIR not in text:
        return
    home = paths.files_dir(branch_dir).resolve()
    for mark, link in islice(dict.fromkeys(_links(text)), _MOST):
        try:
            file = paths.real(branch_dir / unquote(link))
            if file.is_relative_to(home) and file.is_file():
                yield LinkedFile(link, mark, file, file.stat().st_size)
        except (OSError, ValueError):  # it is gone, or no name of a file: %00
            continue


def without_links(text: str) -> str:
    """Return ``text`` with its links to ``files/`` broken, so that they are never shown or sent as attachments."""
    return _TARGET.sub(lambda found: f"] {found[0][1:]}", text)


def _links(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the links of ``text``: whether each is an image link, and its target."""
    end = 0
    for found in _TARGET.finditer(text):
        before = text[max(end, found.start() - _LABEL) : found.start()]
        end = found.end()
        label = max(before.rfind("]"), before.rfind("\n")) + 1
        opening = before.find("[", label)
        if opening >= 0 and len(found[1]) <= _TARGET_LENGTH:
            yield before[opening - 1 : opening] == "!", found[1]


def media_type(data: bytes) -> str:
    """Return the media type of ``data``, or of its first bytes; "" if models cannot read it."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), "")


def check_size(name: str, kind: str, size: int) -> None:
    """Refuse a picture or a document, of media type ``kind``, that no model accepts.

    Raises:
        BadRequest: It is too large.
    """
    if kind and size > LARGEST_SHOWN:
        hint = "Make it smaller, or send what matters of it"
        raise BadRequest(
            f"{name} has {size / 1e6:.1f} MB; models are shown at most {LARGEST_SHOWN / 1e6:g} MB", hint=hint
        )


def type_of(file: Path) -> str:
    """Return the media type of a file, see ``media_type``."""
    with regularfile.open_binary(file, limit=regularfile.LOG) as opened:
        return media_type(opened.read(_HEAD))
