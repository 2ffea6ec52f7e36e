"""What an editor shows of files: which texts count as unsaved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from acp import schema

from pyagentd.acp.files import Files
from pyagentd.events import Event


class Editor:
    """Has one text for all files."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def read_text_file(self, **_: Any) -> Any:
        return schema.ReadTextFileResponse(content=self.text)


class Daemon:
    """Keeps the answers."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []

    async def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        self.answers.append(json.loads(arguments["answer"]))
        return {}


async def looked(file: Path, shown: str) -> dict[str, Any]:
    """The answer to a look at a file of which the editor shows that text."""
    daemon: Any = Daemon()
    editor: Any = Editor(shown)
    files = Files(daemon, lambda: editor, lambda path: "session")
    files.take(Event("emacs", "", 0, ({"id": 1, "what": "look", "facts": json.dumps({"path": str(file)})},)))
    (answering,) = files._answering
    await answering
    (answer,) = daemon.answers
    return dict(answer)


@pytest.mark.parametrize("disk", [b"a\nb\n", b"a\r\nb\r\n", b"\xef\xbb\xbfa\nb\n", b"\xef\xbb\xbfa\r\nb\r\n"])
@pytest.mark.parametrize("shown", ["a\nb\n", "a\r\nb\r\n", "\ufeffa\nb\n"])
async def test_line_ends_and_the_mark_at_the_begin_are_no_change(tmp_path: Path, disk: bytes, shown: str) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(disk)
    assert await looked(file, shown) == {}


async def test_another_text_is_unsaved_whatever_its_line_ends(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"a\r\nb\r\n")
    answer = await looked(file, "a\nb!\n")
    assert (answer["text"], answer["modified"]) == ("a\nb!\n", True)
