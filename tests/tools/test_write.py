import asyncio
import codecs
from dataclasses import replace
from pathlib import Path

import pytest

from pyagentd.errors import ToolError
from pyagentd.policy.action import Action
from pyagentd.tools.read import READ
from pyagentd.tools.spec import ToolContext, ToolSpec
from pyagentd.tools.write import EDIT, WRITE
from tests.tools.conftest import Call


async def test_write_creates_a_file_with_its_directories(root: Path, call: Call) -> None:
    envelope = await call(WRITE, file_path="a/b/file", content="one\ntwo\n")
    assert (envelope.ok, envelope.text) == (True, f"Created {root}/a/b/file (2 lines)")
    assert (root / "a" / "b" / "file").read_bytes() == b"one\ntwo\n"


async def test_write_replaces_and_keeps_the_mode(root: Path, call: Call) -> None:
    (root / "run").write_text("old")
    (root / "run").chmod(0o755)
    envelope = await call(WRITE, file_path="run", content="")
    assert envelope.text == f"Replaced the content of {root}/run (1 line before, 0 lines now)"
    assert ((root / "run").read_bytes(), (root / "run").stat().st_mode & 0o777) == (b"", 0o755)


async def test_write_through_a_link_changes_the_file_and_keeps_the_link(root: Path, call: Call) -> None:
    (root / "real").write_text("old")
    (root / "link").symlink_to("real")
    await call(WRITE, file_path="link", content="new")
    assert (root / "link").is_symlink()
    assert (root / "real").read_text() == "new"


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"a\r\nb\r\n", "c\nd\n", b"c\r\nd\r\n"),
        (b"a\r\nb\r\n", "c\r\nd\n", b"c\r\nd\n"),
        (b"a\nb\r\n", "c\nd", b"c\nd"),
        (b"\xef\xbb\xbfa", "b", b"\xef\xbb\xbfb"),
        (b"\xfc", "ü", b"\xfc"),
        (b"\xfc", "€", "€".encode()),
        (codecs.BOM_UTF8 + b"a", "\ufeffb", codecs.BOM_UTF8 + b"b"),
        (codecs.BOM_UTF16_LE + b"a\0", "\ufeffb", codecs.BOM_UTF16_LE + b"b\0"),
        (b"a", "\ufeffb", codecs.BOM_UTF8 + b"b"),
    ],
)
async def test_write_keeps_line_endings_and_encoding(
    root: Path, call: Call, before: bytes, content: str, after: bytes
) -> None:
    (root / "file").write_bytes(before)
    assert (await call(WRITE, file_path="file", content=content)).ok
    assert (root / "file").read_bytes() == after


@pytest.mark.parametrize("path", [".", "file/below", "fifo"])
async def test_write_refuses_what_cannot_be_a_file(root: Path, call: Call, path: str) -> None:
    import os

    (root / "file").touch()
    os.mkfifo(root / "fifo")
    assert not (await call(WRITE, file_path=path, content="x")).ok


async def test_text_that_is_no_unicode_is_refused(root: Path, call: Call) -> None:
    assert not (await call(WRITE, file_path="file", content="\ud800")).ok
    assert not (root / "file").exists()


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        ("a b c", "b", "B", "a B c"),
        ("a b c", "b ", "", "a c"),
        ("x.y", ".", "\\1\\g<0>", "x\\1\\g<0>y"),
        ("a\r\nb\r\nc\r\n", "a\nb", "1\n2\n3", "1\r\n2\r\n3\r\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "a\r\nb", "1", "1\r\nc\r\n"),
        ("a\nb\r\nc\n", "b\nc", "x\ny", "a\nx\ny\n"),
        ("a\nb\n", "a\r\nb", "x", "x\n"),
    ],
)
async def test_edit_replaces_one_passage_and_nothing_else(
    root: Path, call: Call, before: str, old: str, new: str, after: str
) -> None:
    (root / "file").write_bytes(before.encode())
    envelope = await call(EDIT, file_path="file", old_string=old, new_string=new)
    assert envelope.ok
    assert "Replaced 1 occurrence" in envelope.text
    assert (root / "file").read_bytes() == after.encode()


async def test_edit_keeps_bytes_that_are_not_utf_8(root: Path, call: Call) -> None:
    (root / "file").write_bytes(b"caf\xe9\r\ncost 3\r\n\x80\xff")
    await call(EDIT, file_path="file", old_string="cost 3", new_string="cost é")
    assert (root / "file").read_bytes() == b"caf\xe9\r\ncost \xe9\r\n\x80\xff"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"old_string": "z", "new_string": "y"}, "does not occur"),
        ({"old_string": "one", "new_string": "y"}, "occurs 2 times in {root}/file (line 1, 3)"),
        ({"old_string": "two", "new_string": "two"}, "are the same"),
        ({"old_string": "", "new_string": "y"}, '"old_string" must not be empty'),
        ({"old_string": "one  two", "new_string": "y"}, "at line 1 the same words stand with other white space"),
    ],
)
async def test_an_edit_that_does_not_fit_changes_nothing(
    root: Path, call: Call, args: dict[str, str], message: str
) -> None:
    (root / "file").write_text("one\ntwo\none\n")
    envelope = await call(EDIT, file_path="file", **args)
    assert not envelope.ok
    assert message.format(root=root) in envelope.text
    assert (root / "file").read_text() == "one\ntwo\none\n"


async def test_occurrences_that_overlap_are_ambiguous(root: Path, call: Call) -> None:
    (root / "file").write_text("aaa")
    assert "occurs 2 times" in (await call(EDIT, file_path="file", old_string="aa", new_string="b")).text


async def test_replace_all_replaces_every_occurrence(root: Path, call: Call) -> None:
    (root / "file").write_text("x " * 50)
    envelope = await call(EDIT, file_path="file", old_string="x", new_string="yy", replace_all=True)
    assert envelope.text == f"Replaced 50 occurrences in {root}/file (line {', '.join(['1'] * 10)}, …)"
    assert (root / "file").read_text() == "yy " * 50


async def test_editing_what_is_missing_or_binary_is_told(root: Path, call: Call) -> None:
    (root / "binary").write_bytes(b"\0a")
    assert "is a binary file" in (await call(EDIT, file_path="binary", old_string="a", new_string="b")).text
    assert "does not exist" in (await call(EDIT, file_path="none", old_string="a", new_string="b")).text
    assert "is a directory" in (await call(EDIT, file_path=".", old_string="a", new_string="b")).text


async def test_edits_of_one_file_at_the_same_time_are_all_kept(root: Path, call: Call) -> None:
    (root / "file").write_text("".join(f"<{n}>\n" for n in range(40)))
    edits = (call(EDIT, file_path="file", old_string=f"<{n}>", new_string=f"[{n}]") for n in range(40))
    assert all(envelope.ok for envelope in await asyncio.gather(*edits))
    assert (root / "file").read_text() == "".join(f"[{n}]\n" for n in range(40))


async def test_a_link_swapped_in_after_the_decision_is_not_written_through(
    tmp_path: Path, root: Path, call: Call
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("old")

    async def swap(action: Action) -> None:
        (root / "file").symlink_to(victim)

    async def swap_directory(action: Action) -> None:
        (root / "dir").symlink_to(tmp_path)

    assert not (await call(WRITE, authorise=swap, file_path="file", content="new")).ok
    assert not (await call(EDIT, file_path="none", authorise=swap, old_string="old", new_string="new")).ok
    assert not (await call(WRITE, authorise=swap_directory, file_path="dir/victim", content="new")).ok
    assert victim.read_text() == "old"


def test_previews_are_diffs(root: Path, ctx: ToolContext) -> None:
    (root / "file").write_text("one\ntwo\nthree\n")
    assert EDIT.preview is not None
    assert WRITE.preview is not None
    edit = EDIT.preview({"file_path": "file", "old_string": "two", "new_string": "2"}, ctx)
    assert edit == f"--- {root}/file\n+++ {root}/file\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"
    new = WRITE.preview({"file_path": "new", "content": "x\n"}, ctx)
    assert new == f"--- /dev/null\n+++ {root}/new\n@@ -0,0 +1 @@\n+x"
    assert (root / "file").read_text() == "one\ntwo\nthree\n"


def test_a_preview_of_what_cannot_work_fails_before_anybody_is_asked(root: Path, ctx: ToolContext) -> None:
    (root / "file").write_text("one")
    assert EDIT.preview is not None
    with pytest.raises(ToolError, match="does not occur"):
        EDIT.preview({"file_path": "file", "old_string": "two", "new_string": "2"}, ctx)


def test_a_preview_shows_the_authorised_file(tmp_path: Path, root: Path, ctx: ToolContext) -> None:
    (root / "real").write_text("mine")
    (root / "link").symlink_to("real")
    args = {"file_path": "link", "content": "new"}
    bound = ctx.bound_to(WRITE.action(args, ctx))
    (tmp_path / "secret").write_text("secret")
    (root / "link").unlink()
    (root / "link").symlink_to(tmp_path / "secret")
    assert WRITE.preview is not None
    assert "-mine" in WRITE.preview(args, bound)
    assert replace(ctx, paths=bound.paths) == bound


@pytest.mark.parametrize("tool", [WRITE, READ])
async def test_a_path_longer_than_the_system_takes_is_refused_plainly(root: Path, call: Call, tool: ToolSpec) -> None:
    given = {"file_path": f"{root}/{'a/' * 2_100}b.txt", "content": "x"}
    refused = await call(tool, **(given if tool is WRITE else {"file_path": given["file_path"]}))
    assert not refused.ok
    assert "the system takes 4,095 at most" in refused.text
    assert not (root / "a").exists()
