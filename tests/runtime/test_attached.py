"""The model sees what a prompt links of ``files/``: pictures as such, of other files where they are."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from pyagentd.runtime import run_setup
from pyagentd.store import paths
from tests.runtime.prefix import assert_prefix
from tests.runtime.test_cache import look, turn
from tests.runtime.world import World
from tests.server import answer

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def kept(world: World, name: str, data: bytes, ref: Any = None) -> Path:
    place = paths.files_dir(ref.branch_dir) / name
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(data)
    return place


def shown(content: Any) -> list[Any]:
    """Return the kinds of blocks, and the texts."""
    return [block.get("text") or (block["type"], block["source"]["media_type"]) for block in content]


async def test_a_picture_stands_before_the_text_that_links_it_in_every_request(world: World) -> None:
    ref = world.session()
    kept(world, "my cup.png", PNG, ref)
    world.server.say(answer("I look.", look(world)), answer("A cup."), answer("Yes."))
    await turn(world, ref, "What is ![it](files/my%20cup.png)?")
    await turn(world, ref, "Sure?")
    assert_prefix(world.server.requests)
    for request in world.server.requests:
        picture, text = request.messages[0]["content"][:2]
        assert base64.b64decode(picture["source"]["data"]) == PNG
        assert shown([picture, text]) == [("image", "image/png"), "What is ![it](files/my%20cup.png)?"]


async def test_of_another_file_the_model_is_told_where_it_is(world: World) -> None:
    ref = world.session()
    notes, paper = kept(world, "notes.txt", b"tea", ref), kept(world, "paper.pdf", b"%PDF-1.7", ref)
    kept(world, "large.png", PNG + bytes(run_setup.LARGEST), ref)
    world.server.say(answer("Hm."))
    prompt = (
        "[n](files/notes.txt) [p](files/paper.pdf) ![l](files/large.png) [x](files/gone) [s](files/../session.md)"
    )
    await turn(world, ref, prompt)
    told, document, large, text = shown(world.server.requests[0].messages[0]["content"])
    assert f"files/notes.txt is the file {notes} (3 bytes).\n" in told
    assert document == ("document", "application/pdf") and paper.exists()
    assert "too large" in large and text == prompt


async def test_what_is_too_much_together_is_not_shown_and_what_was_shown_stays(
    world: World, monkeypatch: Any
) -> None:
    monkeypatch.setattr(run_setup, "LARGEST_TOGETHER", 2 * len(PNG))
    ref = world.session()
    for name in ("a", "b", "c"):
        kept(world, f"{name}.png", PNG, ref)
    world.server.say(*(answer("Yes.") for _ in range(3)))
    for name in ("a", "b", "c"):
        await turn(world, ref, f"![it](files/{name}.png)")
    assert_prefix(world.server.requests)
    sent = [shown(message["content"]) for message in world.server.requests[-1].messages[::2]]
    assert [each[0] for each in sent[:2]] == [("image", "image/png")] * 2
    assert "too large" in sent[2][0]
