"""What an editor sends as a prompt, as the text of a message and the files that go with it; pure.

Files below the workspace root are mentioned as ``@path``, which agents know; pictures and what has bytes become files
of the session that the text links, as in the document that Emacs writes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import mimetypes
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from acp import schema

from pyagentd.errors import BadRequest
from pyagentd.store import paths

Block = (
    schema.TextContentBlock
    | schema.ImageContentBlock
    | schema.AudioContentBlock
    | schema.ResourceContentBlock
    | schema.EmbeddedResourceContentBlock
)

_LONGEST: Final = 100_000  # characters of a resource that the text carries; longer ones go as a file
_UNSAFE: Final = re.compile(r"[^\w.-]+")
_TICKS: Final = re.compile(r"`{3,}")


class Attached(NamedTuple):
    """A file for the session's ``files/``."""

    name: str
    data: bytes


class Prompt(NamedTuple):
    """A message: its text, and the files it links."""

    text: str
    files: tuple[Attached, ...]


def prompt(blocks: Sequence[Block], root: str) -> Prompt:
    """Return the message that ``blocks`` are.

    Raises:
        BadRequest: There is something in it that no message can carry.
    """
    said: list[str] = []
    behind: list[str] = []
    files: list[Attached] = []
    for block in blocks:
        match block:
            case schema.TextContentBlock():
                said.append(block.text)
            case schema.ResourceContentBlock():
                said.append(_mention(block.uri, block.name, root))
            case schema.ImageContentBlock():
                file = _file("picture", block.mime_type, _bytes(block.data))
                files.append(file)
                said.append(_between(said) + _link(file.name, file.name, shown=True))
            case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents() as given):
                name = _name(given.uri)
                said.append(_mention(given.uri, name, root))
                if len(given.text) <= _LONGEST:
                    behind.append(_quoted(given.uri, given.text, root))
                else:
                    file = _file(name, given.mime_type or "text/plain", given.text.encode())
                    files.append(file)
                    behind.append(_link(name, file.name))
            case schema.EmbeddedResourceContentBlock(resource=schema.BlobResourceContents() as blob):
                kind = blob.mime_type or "application/octet-stream"
                file = _file(_name(blob.uri), kind, _bytes(blob.blob))
                files.append(file)
                said.append(_between(said) + _link(_name(blob.uri), file.name, shown=kind.startswith("image/")))
            case _:
                raise BadRequest("Sound cannot be sent", mend="Say it in words")
    text = "\n\n".join(["".join(said).strip(), *behind]).strip()
    if not text:
        raise BadRequest("The prompt is empty")
    return Prompt(text, tuple(files))


def _mention(uri: str, name: str, root: str) -> str:
    """Return a file as agents know it, anything else as a link."""
    place = _path(uri)
    if place is None:
        return f"[{name}]({uri})"
    if root and place.is_relative_to(root) and " " not in str(place):
        return f"@{place.relative_to(root)}"
    return f"`{place}`"


def _path(uri: str) -> Path | None:
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return Path(uri) if uri.startswith("/") else None


def _name(uri: str) -> str:
    return PurePosixPath(unquote(urlsplit(uri).path)).name or uri


def _quoted(uri: str, text: str, root: str) -> str:
    """Return a text that an editor adds to a prompt, under the name of where it is from."""
    place = _path(uri)
    shown = str(place.relative_to(root)) if place and root and place.is_relative_to(root) else str(place or uri)
    lines = f" lines {fragment.removeprefix('L')}" if (fragment := urlsplit(uri).fragment) else ""
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in _TICKS.findall(text))])
    return f"{shown}{lines}:\n{fence}\n{text.rstrip()}\n{fence}"


def _bytes(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        raise BadRequest("What was attached is no base64") from None


def _file(name: str, kind: str, data: bytes) -> Attached:
    """Return ``data`` under a name that two different contents never share."""
    stem, dot, suffix = name.rpartition(".")
    ending = f".{suffix}" if dot and stem else mimetypes.guess_extension(kind) or ""
    base = _UNSAFE.sub("-", stem or name).strip("-.") or "file"
    return Attached(f"{base}-{hashlib.sha256(data).hexdigest()[:8]}{_UNSAFE.sub('', ending)}", data)


def _link(label: str, name: str, *, shown: bool = False) -> str:
    label = re.sub(r"[][\n]", " ", label)
    return f"{'!' if shown else ''}[{label}]({paths.FILES_DIR}/{quote(name)})"


def _between(said: Sequence[str]) -> str:
    return "\n\n" if said and said[-1] and not said[-1].endswith("\n") else ""
