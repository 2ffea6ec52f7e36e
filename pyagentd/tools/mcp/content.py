"""What a server answered, as text for a model: what is no text is kept in a file that the text names.

Also what the SDK's classes say, as values of ``catalog``; they are told apart by their ``type``.
"""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pyagentd.tools import spool
from pyagentd.tools.mcp.catalog import Answered, Piece

if TYPE_CHECKING:  # they take a while to load
    from mcp_types import BlobResourceContents, CallToolResult, ContentBlock, TextResourceContents


def answered(result: CallToolResult) -> Answered:
    """Return what the SDK gives of a call."""
    pieces = tuple(map(piece_of, result.content))
    return Answered(pieces=pieces, structured=result.structured_content, ok=not result.is_error)


def piece_of(block: ContentBlock) -> Piece:
    """Return one part of an answer."""
    match block.type:
        case "text":
            return Piece(text=block.text)
        case "image" | "audio":
            return Piece(data=_bytes(block.data), mime=block.mime_type)
        case "resource":
            return piece_of_resource(block.resource)
        case "resource_link":
            told = ": ".join(filter(None, (block.title or block.name, block.description)))
            return Piece(text=f"[resource {block.uri}{f' ({told})' if told else ''}]")


def piece_of_resource(contents: TextResourceContents | BlobResourceContents) -> Piece:
    """Return what a resource holds."""
    mime = contents.mime_type or ""
    text = getattr(contents, "text", None)
    if text is not None:
        return Piece(text=text, mime=mime, uri=contents.uri)
    return Piece(data=_bytes(getattr(contents, "blob", "")), mime=mime, uri=contents.uri)


def text_of(answer: Answered, directory: Path, name: str) -> str:
    """Return an answer as text, and keep in ``directory`` what is none; blocks.

    Args:
        answer: What the server said.
        directory: Where files go; made on demand.
        name: What the files are called after.

    Raises:
        OSError: A file cannot be written.
    """
    texts = told(answer.pieces, directory, name)
    if not any(texts) and answer.structured is not None:
        texts = [json.dumps(answer.structured, ensure_ascii=False, indent=1)]
    return "\n".join(texts) or ("(no output)" if answer.ok else "(it failed and said nothing)")


def told(pieces: Iterable[Piece], directory: Path, name: str) -> list[str]:
    """Return each piece as text; raises as ``text_of``."""
    return [_told(piece, directory, name) for piece in pieces]


def _told(piece: Piece, directory: Path, name: str) -> str:
    if piece.data is None:
        return piece.text if not piece.uri else f"[resource {piece.uri}]\n{piece.text}"
    path = _saved(piece, directory, name)
    what = f"resource {piece.uri}, " if piece.uri else ""
    return f"[{what}{piece.mime or 'data'}, {len(piece.data)} bytes, kept in {path}]"


def _saved(piece: Piece, directory: Path, name: str) -> Path:
    descriptor, path = spool.create(directory, name)
    with os.fdopen(descriptor, "wb") as file:
        file.write(piece.data or b"")
    ending = mimetypes.guess_extension(piece.mime.partition(";")[0].strip()) or ".bin"
    return path.rename(path.with_suffix(ending))


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=False)
    except (binascii.Error, ValueError):
        return text.encode()
