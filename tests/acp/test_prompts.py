"""What an editor sends, as a message."""

from __future__ import annotations

import base64

import acp
import pytest

from pyagentd.acp.files import prompt
from pyagentd.errors import BadRequest

ROOT = "/work"


def test_files_of_the_project_are_mentioned_and_others_named() -> None:
    made = prompt(
        [
            acp.text_block("See "),
            acp.resource_link_block("a.py", "file:///work/src/a.py"),
            acp.text_block(", "),
            acp.resource_link_block("b", "file:///etc/b%20c"),
            acp.text_block(" and "),
            acp.resource_link_block("docs", "https://x/y"),
            acp.resource_link_block("odd", "http://["),
        ],
        ROOT,
    )
    assert made.text == "See @src/a.py, `/etc/b c` and [docs](https://x/y)[odd](http://[)" and made.files == ()


def test_an_embedded_text_is_quoted_under_its_name() -> None:
    given = acp.embedded_text_resource("file:///work/a.md#L1:3", "```x```\n")
    made = prompt([acp.text_block("Explain "), acp.resource_block(given)], ROOT)
    assert made.text == "Explain @a.md\n\na.md lines 1:3:\n````\n```x```\n````"


def test_a_long_embedded_text_and_bytes_become_files() -> None:
    text = acp.embedded_text_resource("file:///work/a.log", "x" * 100_001)
    blob = acp.embedded_blob_resource(
        "file:///work/d.pdf", base64.b64encode(b"%PDF-").decode(), mime_type="application/pdf"
    )
    made = prompt([acp.text_block("Look"), acp.resource_block(text), acp.resource_block(blob)], ROOT)
    log, pdf = made.files
    assert (log.name[:2], log.name[-4:], len(log.data), pdf.data) == ("a-", ".log", 100_001, b"%PDF-")
    assert f"[a.log](files/{log.name})" in made.text and f"[d.pdf](files/{pdf.name})" in made.text


def test_the_same_picture_is_one_file() -> None:
    picture = acp.image_block(base64.b64encode(b"\x89PNG").decode(), "image/png")
    made = prompt([acp.text_block("What is it?"), picture], ROOT)
    (file,) = made.files
    assert made.text == f"What is it?\n\n![{file.name}](files/{file.name})" and file.name.endswith(".png")
    assert prompt([picture], ROOT).files == made.files


@pytest.mark.parametrize("name", ["報告" * 41 + ".pdf", "a." + "b" * 250])
def test_a_file_with_a_name_as_long_as_names_can_be_is_kept(name: str) -> None:
    blob = acp.embedded_blob_resource(f"file:///{name}", base64.b64encode(b"%PDF-1.7").decode())
    (file,) = prompt([acp.text_block("Read "), acp.resource_block(blob)], ROOT).files
    assert len(file.name.encode()) <= 255 and file.name[0] == name[0]


@pytest.mark.parametrize(
    "blocks",
    [[], [acp.text_block("  ")], [acp.audio_block("AA==", "audio/wav")], [acp.image_block("no base64", "image/png")]],
)
def test_what_no_message_can_carry_is_refused(blocks: list[acp.schema.TextContentBlock]) -> None:
    with pytest.raises(BadRequest):
        prompt(blocks, ROOT)
