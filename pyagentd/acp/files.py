"""Files open in an editor: read through its ``fs`` methods, and offered to the daemon like buffers of Emacs.

The protocol does not say whether a file is open. If the editor's text differs from the file, it has unsaved changes:
the daemon gets that text, and edits it through the editor. All other files are read and written on the disk.
"""

import asyncio
import hashlib
import json
import mimetypes
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from acp import Client, RequestError, schema

from pyagentd.acp.wire import Daemon
from pyagentd.errors import BadRequest, PyagentdError
from pyagentd.events import Event
from pyagentd.store.attachments import decoded, link_to

_LONGEST: Final = 1_000_000  # characters of a file that can be offered
_READ_S: Final = 0.8  # the daemon waits one second for the reply

Answer = dict[str, Any]


class Files:
    """The files of one editor.

    Args:
        daemon: The daemon, which asks for files.
        editor: Returns the editor.
        session_of: Returns the open session whose workspace contains a path, or "".

    Attributes:
        can: Whether the editor has both ``fs`` methods.
    """

    def __init__(self, daemon: Daemon, editor: Callable[[], Client], session_of: Callable[[str], str]) -> None:
        self.can = False
        self._daemon = daemon
        self._editor = editor
        self._session_of = session_of
        self._offered = False
        self._answering: set[asyncio.Task[None]] = set()

    async def offer(self) -> None:
        """Offer files to the daemon, once for each connection."""
        if self.can and not self._offered:
            await self._daemon.call("emacs-offer", buffers=True)
            self._offered = True

    def lost(self) -> None:
        """Record that the daemon has ended."""
        self._offered = False

    def take(self, event: Event) -> None:
        """Answer a request of the daemon in the background."""
        task = asyncio.create_task(self._answer(event.args[0]))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, request: Mapping[str, Any]) -> None:
        with suppress(PyagentdError, ConnectionError, OSError):  # the daemon or the editor has ended
            facts = json.loads(request["facts"])
            match request["what"]:
                case "look":
                    answer = await self._look(str(facts["path"]))
                case "change":
                    answer = await self._change(str(facts["path"]), str(facts["version"]), facts["edits"])
                case _:
                    return
            await self._daemon.call("emacs-answer", id=request["id"], answer=json.dumps(answer, ensure_ascii=False))

    async def _look(self, path: str) -> Answer:
        shown = await self._editor_text(path)
        if shown is None or len(shown) > _LONGEST or await asyncio.to_thread(_is_on_disk, path, shown):
            return {}
        seen = {"buffer": Path(path).name, "version": _version(shown), "modified": True}
        return {**seen, "text": shown.replace("\r\n", "\n"), "crlf": "\r\n" in shown}

    async def _change(self, path: str, version: str, edits: Sequence[Sequence[Any]]) -> Answer:
        shown = await self._editor_text(path)
        if shown is None or _version(shown) != version:
            return {"outcome": "outdated"}
        text = shown.replace("\r\n", "\n")
        for start, end, new in reversed(edits):
            text = f"{text[:start]}{new}{text[end:]}"
        if "\r\n" in shown:
            text = text.replace("\n", "\r\n")
        try:
            await self._editor().write_text_file(content=text, path=path, session_id=self._session_of(path))
        except RequestError as error:
            return {"outcome": "refused", "reason": f"the editor says: {error}"}
        return {"outcome": "done", "saved": True}

    async def _editor_text(self, path: str) -> str | None:
        """Return the editor's text of a file, or None."""
        if not (session := self._session_of(path)):
            return None
        try:
            async with asyncio.timeout(_READ_S):
                return (await self._editor().read_text_file(path=path, session_id=session)).content
        except (RequestError, TimeoutError):
            return None


def _is_on_disk(path: str, text: str) -> bool:
    """Return whether a file has this text, or is not UTF-8 text.

    Line ends and the byte order mark are ignored, because many editors do not pass them on.
    """
    try:
        return _lines(Path(path).read_bytes().decode()) == _lines(text)
    except UnicodeDecodeError:
        return True
    except OSError:
        return False


def _lines(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _version(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# Conversion of an editor's prompt to the text of a message and its files; pure.
#
# Files below the workspace root become ``@path``, which agents know; pictures and binary data become files of the
# session that the text links to, as in the document that Emacs writes.

Block = (
    schema.TextContentBlock
    | schema.ImageContentBlock
    | schema.AudioContentBlock
    | schema.ResourceContentBlock
    | schema.EmbeddedResourceContentBlock
)

_PROMPTS_LONGEST: Final = 100_000  # characters of a resource in the text; a longer one becomes a file
_NAMED: Final = 255  # bytes in the name of a file
_ENDING: Final = 20  # characters in its extension
_UNSAFE: Final = re.compile(r"[^\w.-]+")
_TICKS: Final = re.compile(r"`{3,}")


class Attachment(NamedTuple):
    """A file for the session's ``files/``."""

    name: str
    data: bytes


class Prompt(NamedTuple):
    """A message: its text, and the files that it links to."""

    text: str
    files: tuple[Attachment, ...]


def prompt(blocks: Sequence[Block], root: str) -> Prompt:
    """Convert ``blocks`` to a message.

    Raises:
        BadRequest: A block has an unsupported kind, or the prompt is empty.
    """
    pieces: list[str] = []
    behind: list[str] = []
    files: list[Attachment] = []
    for block in blocks:
        match block:
            case schema.TextContentBlock():
                pieces.append(block.text)
            case schema.ResourceContentBlock():
                pieces.append(_mention(block.uri, block.name, root))
            case schema.ImageContentBlock():
                file = _file("picture", block.mime_type, decoded(block.data))
                files.append(file)
                pieces.append(_between(pieces) + link_to(file.name, file.name, shown=True))
            case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents() as given):
                name = _name(given.uri)
                pieces.append(_mention(given.uri, name, root))
                if len(given.text) <= _PROMPTS_LONGEST:
                    behind.append(_quote_text(given.uri, given.text, root))
                else:
                    file = _file(name, given.mime_type or "text/plain", given.text.encode())
                    files.append(file)
                    behind.append(link_to(file.name, name, shown=False))
            case schema.EmbeddedResourceContentBlock(resource=schema.BlobResourceContents() as blob):
                kind = blob.mime_type or "application/octet-stream"
                file = _file(_name(blob.uri), kind, decoded(blob.blob))
                files.append(file)
                pieces.append(_between(pieces) + link_to(file.name, _name(blob.uri), shown=kind.startswith("image/")))
            case _:
                raise BadRequest("Sound cannot be sent", hint="Say it in words")
    text = "\n\n".join(["".join(pieces).strip(), *behind]).strip()
    if not text:
        raise BadRequest("The prompt is empty")
    return Prompt(text, tuple(files))


def _mention(uri: str, name: str, root: str) -> str:
    """Return a file as ``@path`` or a path, anything else as a link."""
    place = _path(uri)
    if place is None:
        return f"[{name}]({uri})"
    if root and place.is_relative_to(root) and " " not in str(place):
        return f"@{place.relative_to(root)}"
    return f"`{place}`"


def _path(uri: str) -> Path | None:
    parts = _split(uri)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return Path(uri) if uri.startswith("/") else None


def _split(uri: str) -> SplitResult:
    try:
        return urlsplit(uri)
    except ValueError:  # such as http://[
        return SplitResult("", "", uri, "", "")


def _name(uri: str) -> str:
    return PurePosixPath(unquote(_split(uri).path)).name or uri


def _quote_text(uri: str, text: str, root: str) -> str:
    """Return a text that an editor added to a prompt as a code block below its path or address."""
    place = _path(uri)
    shown = str(place.relative_to(root)) if place and root and place.is_relative_to(root) else str(place or uri)
    lines = f" lines {fragment.removeprefix('L')}" if (fragment := _split(uri).fragment) else ""
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in _TICKS.findall(text))])
    return f"{shown}{lines}:\n{fence}\n{text.rstrip()}\n{fence}"


def _file(name: str, kind: str, data: bytes) -> Attachment:
    """Return ``data`` as a file whose name contains a hash of it, so that different files do not collide."""
    stem, dot, suffix = name.rpartition(".")
    ending = f".{suffix}" if dot and stem else mimetypes.guess_extension(kind) or ""
    base = _UNSAFE.sub("-", stem or name).strip("-.") or "file"
    behind = f"-{hashlib.sha256(data).hexdigest()[:8]}{_UNSAFE.sub('', ending)[:_ENDING]}"
    return Attachment(base.encode()[: _NAMED - len(behind.encode())].decode(errors="ignore") + behind, data)


def _between(pieces: Sequence[str]) -> str:
    return "\n\n" if pieces and pieces[-1] and not pieces[-1].endswith("\n") else ""
