"""Files that an editor has open: its ``fs`` methods asked, and told to the daemon as Emacs tells of its buffers.

The protocol cannot say whether a file is open. What the editor shows is a text of the user's where it is another than
that on the disk; only then does the daemon hear of it, and a change goes through the editor. All else is the disk's.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from acp import Client, RequestError

from pyagentd.acp.wire import Daemon
from pyagentd.errors import PyagentdError
from pyagentd.events import Event
from pyagentd.store.atomic import write_text

_LONGEST: Final = 1_000_000  # characters of a file that is asked about
_INLINE: Final = 200_000  # bytes of an answer before it goes by a file
_READ_S: Final = 0.8  # a look may take a second

Answer = dict[str, Any]


class Files:
    """What one editor shows of files.

    Args:
        daemon: Who asks.
        editor: Returns who is asked.
        session_of: Returns the open session that a path is in the workspace of; "" when it is in none's.

    Attributes:
        can: Whether the editor has both methods.
    """

    def __init__(self, daemon: Daemon, editor: Callable[[], Client], session_of: Callable[[str], str]) -> None:
        self.can = False
        self._daemon = daemon
        self._editor = editor
        self._session_of = session_of
        self._spill = ""  # where the daemon takes long answers; "" before this is offered
        self._answering: set[asyncio.Task[None]] = set()

    async def offer(self) -> None:
        """Tell the daemon, once for each connection, that it may ask."""
        if self.can and not self._spill:
            self._spill = str((await self._daemon.call("emacs-offer", buffers=True))["spill"])

    def lost(self) -> None:
        """Note that the daemon has ended."""
        self._spill = ""

    def take(self, event: Event) -> None:
        """Have a question of the daemon's answered."""
        task = asyncio.create_task(self._answer(event.args[0]))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, asked: Mapping[str, Any]) -> None:
        with suppress(PyagentdError, ConnectionError, OSError):  # one of the two is gone
            facts = await asyncio.to_thread(_facts, asked)
            match asked["what"]:
                case "look":
                    answer = await self._look(str(facts["path"]))
                case "change":
                    answer = await self._change(str(facts["path"]), str(facts["version"]), facts["edits"])
                case _:
                    return
            text = json.dumps(answer, ensure_ascii=False)
            given: Answer = {"answer": text}
            if len(text.encode()) > _INLINE:
                given = {"path": str(Path(self._spill) / f"emacs-{secrets.token_hex(8)}.json")}
                await asyncio.to_thread(write_text, Path(given["path"]), text, fsync=False)
            await self._daemon.call("emacs-answer", id=asked["id"], **given)

    async def _look(self, path: str) -> Answer:
        shown = await self._shown(path)
        if shown is None or len(shown) > _LONGEST or await asyncio.to_thread(_is_on_disk, path, shown):
            return {}
        seen = {"buffer": Path(path).name, "version": _version(shown), "modified": True}
        return {**seen, "text": shown.replace("\r\n", "\n"), "crlf": "\r\n" in shown}

    async def _change(self, path: str, version: str, edits: Sequence[Sequence[Any]]) -> Answer:
        shown = await self._shown(path)
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

    async def _shown(self, path: str) -> str | None:
        """Return the text that the editor has of a file, None where it has none."""
        if not (session := self._session_of(path)):
            return None
        try:
            async with asyncio.timeout(_READ_S):
                return (await self._editor().read_text_file(path=path, session_id=session)).content
        except (RequestError, TimeoutError):
            return None


def _facts(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    if path := asked.get("path"):
        text = Path(path).read_text("utf-8")
        Path(path).unlink()
    else:
        text = str(asked["facts"])
    facts: Mapping[str, Any] = json.loads(text)
    return facts


def _is_on_disk(path: str, text: str) -> bool:
    """Return whether a file has this text, or is no text at all.

    Many editors keep line ends and the byte order mark to themselves.
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
