"""Attachments: the files under ``files/`` that a text of a conversation links.

A link that leads out of ``files/`` is not followed. What a file is its first bytes say, not its name. Nothing is ever
loaded from elsewhere.
"""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from pyagentd import regularfile
from pyagentd.store import paths

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
_HEAD = 16  # bytes that tell


class LinkedFile(NamedTuple):
    """A file that a text links: the link as it is written, whether as a picture, the file and its size in bytes."""

    link: str
    shown: bool
    file: Path
    size: int


def linked_files(text: str, branch_dir: Path) -> Iterator[LinkedFile]:
    """Yield the files of ``files/`` that ``text`` links, each link once; those that are not there are left out.

    Anybody may have written ``text``: this takes a time that grows as its length does, whatever it says.
    """
    if paths.FILES_DIR not in text:
        return
    home = paths.files_dir(branch_dir).resolve()
    for mark, link in islice(dict.fromkeys(_links(text)), _MOST):
        file = (branch_dir / unquote(link)).resolve()
        try:
            if file.is_relative_to(home) and file.is_file():
                yield LinkedFile(link, mark, file, file.stat().st_size)
        except OSError:
            continue


def without_links(text: str) -> str:
    """Return ``text`` so that it links nothing of ``files/``, whoever shows or sends it later."""
    return _TARGET.sub(lambda found: f"] {found[0][1:]}", text)


def _links(text: str) -> Iterator[tuple[bool, str]]:
    """Yield whether each link of ``text`` is a picture's, and where it leads."""
    end = 0
    for found in _TARGET.finditer(text):
        before = text[max(end, found.start() - _LABEL) : found.start()]
        end = found.end()
        label = max(before.rfind("]"), before.rfind("\n")) + 1
        opening = before.find("[", label)
        if opening >= 0 and len(found[1]) <= _TARGET_LENGTH:
            yield before[opening - 1 : opening] == "!", found[1]


def media_type(data: bytes) -> str:
    """Return what ``data``, or its first bytes, is; "" when it is none of what models look at."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), "")


def type_of(file: Path) -> str:
    """Return the media type of a file, see ``media_type``."""
    with regularfile.opened(file, limit=regularfile.LOG) as opened:
        return media_type(opened.read(_HEAD))
