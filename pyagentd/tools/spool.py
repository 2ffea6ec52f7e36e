"""Output too long for the model: its head is shown, the whole is kept in a file the model may read.

Sizes are bytes of UTF-8, 200 KB as the defaults of the agent guide have it.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

SHOWN_BYTES = 200_000

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def create(directory: Path, tool: str) -> tuple[int, Path]:
    """Create a file for output of ``tool``, readable by its owner only, and return its descriptor and path."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / f"{tool}-{secrets.token_hex(6)}.txt"
    return os.open(path, _CREATE, 0o600), path


def save(directory: Path, tool: str, text: str) -> Path:
    """Keep the whole ``text`` and return where."""
    descriptor, path = create(directory, tool)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode(errors="replace"))
    return path


def head(text: str, limit: int = SHOWN_BYTES) -> str:
    """Return the whole lines of ``text`` that fit into ``limit`` bytes, or a part of the first line."""
    data = text.encode(errors="replace")
    return text if len(data) <= limit else head_of_bytes(data, limit)


def head_of_bytes(data: bytes, limit: int = SHOWN_BYTES) -> str:
    """Return the same for output that is bytes; what is not UTF-8 shows as U+FFFD."""
    if len(data) > limit:
        data = data[: data.rfind(b"\n", 0, limit) + 1] or _whole_characters(data[:limit])
    return data.decode(errors="replace")


def _whole_characters(data: bytes) -> bytes:
    start = len(data) - 1
    while start > len(data) - 4 and data[start] & 0xC0 == 0x80:
        start -= 1
    return data[:start] if data[start] >= 0xC0 else data


def notice(shown: str, path: Path) -> str:
    """Return the sentence that tells the model where the rest is and how to read it."""
    line = shown.count("\n") + 1
    gap = "" if shown.endswith("\n") else "\n"
    return (
        f"{gap}[Only the beginning is shown. The whole output is in {path}: "
        f'read on with Read(file_path="{path}", offset={line}) or search it with Grep.]'
    )
