import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pyagentd.policy.action import Action
from pyagentd.tools.read import READ
from pyagentd.tools.spec import ToolContext
from tests.tools.conftest import Call


async def test_lines_come_numbered_with_a_tab(root: Path, call: Call) -> None:
    (root / "file").write_text("one\n\n\tthree")
    envelope = await call(READ, file_path="file")
    assert (envelope.ok, envelope.text) == (True, "     1\tone\n     2\t\n     3\t\tthree")


async def test_offset_and_limit_choose_lines_and_say_how_to_go_on(root: Path, call: Call) -> None:
    (root / "file").write_text("".join(f"line {n}\n" for n in range(1, 8)))
    envelope = await call(READ, file_path="file", offset=3, limit=2)
    assert envelope.text == "     3\tline 3\n     4\tline 4\n[There is more: read on with offset=5.]"
    assert not envelope.truncated
    envelope = await call(READ, file_path="file", offset=6, limit=2)
    assert envelope.text == "     6\tline 6\n     7\tline 7"


async def test_a_long_file_is_cut_and_can_be_read_to_its_end(root: Path, call: Call) -> None:
    lines = [f"{n} {'x' * 90}" for n in range(1, 5001)]
    (root / "file").write_text("\n".join(lines))
    seen: list[str] = []
    while len(seen) < len(lines):
        envelope = await call(READ, file_path="file", offset=len(seen) + 1)
        assert len(envelope.text) <= 200_100
        shown = [line for line in envelope.text.split("\n") if "\t" in line]
        assert envelope.truncated == (len(seen) + len(shown) < len(lines))
        seen += [line.partition("\t")[2] for line in shown]
    assert seen == lines


async def test_a_read_that_takes_too_long_keeps_no_thread(root: Path, call: Call) -> None:
    with (root / "file").open("wb") as file:
        for _ in range(100):  # a hundred million lines
            file.write(b"y\n" * 1_000_000)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(max_workers=1))
    envelope = await call(replace(READ, timeout_s=0.01), file_path="file", offset=10**10)
    assert "did not finish" in envelope.text
    async with asyncio.timeout(1):
        await asyncio.to_thread(int)


async def test_one_giant_line_is_cut_with_a_count(root: Path, call: Call) -> None:
    (root / "file").write_text("x" * 600_000 + "\nnext\n" + "y" * 10_000 + "\nlast")
    first, second, third, last = (await call(READ, file_path="file")).text.split("\n")
    assert first == "     1\t" + "x" * 10_000 + "… [590000 more characters in this line]"
    assert (second, third, last) == ("     2\tnext", "     3\t" + "y" * 10_000, "     4\tlast")


@pytest.mark.parametrize(
    ("content", "offset", "text"),
    [("", 1, "is empty.]"), ("a\n", 2, "has only 1 line.]"), ("a\nb", 9, "has only 2 lines.]")],
)
async def test_nothing_to_show_is_said(root: Path, call: Call, content: str, offset: int, text: str) -> None:
    (root / "file").write_text(content)
    assert (await call(READ, file_path="file", offset=offset)).text.endswith(text)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xef\xbb\xbfgr\xc3\xbcn\r\nx\r\n", "     1\tgrün\n     2\tx"),
        ("grün\r\n".encode("utf-16"), "     1\tgrün"),
        (b"gr\xfcn", "     1\tgrün"),
    ],
)
async def test_encodings_and_line_endings_are_read_as_text(root: Path, call: Call, data: bytes, text: str) -> None:
    (root / "file").write_bytes(data)
    assert (await call(READ, file_path="file")).text == text


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"a\r\r\nb\rc\r", "ä\u2028b\x0bc\n\n".encode(), b"x" * 20_000 + b"\nend", b"\xef\xbb\xbfa"]
)
async def test_a_file_in_the_cache_reads_like_one_on_disk(
    root: Path, call: Call, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    (root / "file").write_bytes(data)
    cached = await call(READ, file_path="file")
    monkeypatch.delattr("os.RWF_NOWAIT", raising=False)
    assert (await call(READ, file_path="file")).text == cached.text


async def test_a_binary_file_is_told_with_its_size(root: Path, call: Call) -> None:
    (root / "file").write_bytes(b"\x7fELF\0\0")
    envelope = await call(READ, file_path="file")
    assert (envelope.ok, envelope.text) == (False, f"{root}/file is a binary file of 6 bytes")


async def test_a_directory_gives_a_hint_to_glob(root: Path, call: Call) -> None:
    envelope = await call(READ, file_path=".")
    assert not envelope.ok
    assert f'is a directory. List it with Glob(pattern="*", path="{root}")' in envelope.text


async def test_a_missing_file_suggests_what_is_near(root: Path, call: Call, ctx: ToolContext) -> None:
    (root / "settings.py").touch()
    assert f"Did you mean {root}/settings.py?" in (await call(READ, file_path="setings.py")).text
    assert "Find it with Glob" in (await call(READ, file_path="other/setings.py")).text
    blind = replace(ctx, readable=lambda path: False)
    assert "settings.py" not in (await call(READ, within=blind, file_path="setings.py")).text


@pytest.mark.parametrize("swapped", ["dir/file", "dir"])
async def test_a_link_swapped_in_after_the_decision_is_not_followed(
    tmp_path: Path, root: Path, call: Call, swapped: str
) -> None:
    for directory in (tmp_path / "secret" / "dir", root / "dir"):
        directory.mkdir(parents=True)
        (directory / "file").write_text(directory.parent.name)

    async def swap(action: Action) -> None:
        (root / swapped).rename(root / "moved")
        (root / swapped).symlink_to(tmp_path / "secret" / swapped)

    envelope = await call(READ, authorise=swap, file_path="dir/file")
    assert not envelope.ok
    assert "secret" not in envelope.text
    assert "symbolic link that was not there" in envelope.text


async def test_a_link_retargeted_after_the_decision_still_gives_the_allowed_file(
    tmp_path: Path, root: Path, call: Call
) -> None:
    (tmp_path / "secret").write_text("secret")
    (root / "real").write_text("allowed")
    (root / "link").symlink_to("real")

    async def retarget(action: Action) -> None:
        (root / "link").unlink()
        (root / "link").symlink_to(tmp_path / "secret")

    assert (await call(READ, authorise=retarget, file_path="link")).text == "     1\tallowed"


async def test_the_decision_gets_both_forms_of_the_path(tmp_path: Path, root: Path, call: Call) -> None:
    (root / "link").symlink_to(tmp_path / "elsewhere")
    seen: list[Action] = []

    async def look(action: Action) -> None:
        seen.append(action)

    await call(READ, authorise=look, file_path="link")
    (action,) = seen
    assert str(action) == f"tool:Read:{root}/link"
    assert (action.kind, action.paths[0].resolved) == ("read", str((tmp_path / "elsewhere").resolve()))
