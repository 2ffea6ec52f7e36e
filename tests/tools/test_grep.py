import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pyagentd.tools.files import SNIFFED
from pyagentd.tools.search import GREP, grep_tool
from pyagentd.tools.spec import ToolContext
from tests.tools.conftest import Call
from tests.tools.processes import children, until

POEM = "one\nTwo\nthree\nfour\nfive\nsix\nseven\ntwo again\n"


@pytest.fixture
def poem(root: Path) -> Path:
    (root / "poem.txt").write_text(POEM)
    (root / "src").mkdir()
    (root / "src" / "code.py").write_text("def two():\r\n    pass\r\n")
    return root


async def grep(call: Call, root: Path, pattern: str, **args: object) -> str:
    envelope = await call(GREP, pattern=pattern, **args)
    assert envelope.ok, envelope.text
    return envelope.text.replace(f"{root}/", "")


async def test_lines_come_under_the_name_of_their_file(poem: Path, call: Call) -> None:
    assert await grep(call, poem, "two") == "poem.txt\n8:two again\n\nsrc/code.py\n1:def two():"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"ignore_case": True, "glob": "*.txt"}, "poem.txt\n2:Two\n8:two again"),
        ({"glob": "src/*.py"}, "src/code.py\n1:def two():"),
        ({"glob": "./src/*.py"}, "src/code.py\n1:def two():"),
        ({"glob": "*.{md,py}"}, "src/code.py\n1:def two():"),
        ({"path": "poem.txt"}, "poem.txt\n8:two again"),
        ({"path": "src"}, "src/code.py\n1:def two():"),
        ({"output_mode": "files_with_matches"}, "poem.txt\nsrc/code.py"),
        ({"output_mode": "count", "ignore_case": True}, "poem.txt:2\nsrc/code.py:1"),
        (
            {"path": "poem.txt", "ignore_case": True, "context": 1},
            "poem.txt\n1-one\n2:Two\n3-three\n--\n7-seven\n8:two again",
        ),
        (
            {"path": "poem.txt", "ignore_case": True, "context": 3},
            "poem.txt\n1-one\n2:Two\n3-three\n4-four\n5-five\n6-six\n7-seven\n8:two again",
        ),
    ],
)
async def test_arguments_choose_files_lines_and_form(
    poem: Path, call: Call, args: dict[str, object], text: str
) -> None:
    assert await grep(call, poem, "two", **args) == text


@pytest.mark.parametrize(
    ("pattern", "line"), [(r"^f\w+e$", "5:five"), (r"s.x", "6:six"), (r"\bagain$", "8:two again"), ("o|x$", "6:six")]
)
async def test_the_pattern_is_a_regular_expression_on_one_line(
    poem: Path, call: Call, pattern: str, line: str
) -> None:
    assert line in (await grep(call, poem, pattern)).split("\n")


async def test_a_whole_path_says_which_files(poem: Path, call: Call) -> None:
    assert await grep(call, poem, "two", glob=f"{poem}/src/*.py") == "src/code.py\n1:def two():"


async def test_nothing_found_is_said(poem: Path, call: Call) -> None:
    assert await grep(call, poem, "zebra") == f"[Nothing matches zebra in {poem}]"


async def test_a_malformed_pattern_is_an_error(poem: Path, call: Call) -> None:
    envelope = await call(GREP, pattern="(")
    assert (envelope.ok, "not a regular expression" in envelope.text) == (False, True)


async def test_binary_hidden_ignored_and_special_files_are_left_out(poem: Path, call: Call) -> None:
    (poem / "binary").write_bytes(b"two\0")
    (poem / ".hidden").write_text("two")
    (poem / "ignored").write_text("two")
    (poem / ".gitignore").write_text("ignored")
    (poem / "link").symlink_to("poem.txt")
    os.mkfifo(poem / "fifo")
    assert await grep(call, poem, "two", output_mode="files_with_matches") == "poem.txt\nsrc/code.py"


async def test_lines_outside_the_scope_are_left_out_and_do_not_count(
    poem: Path, call: Call, ctx: ToolContext
) -> None:
    for number in range(300):
        (poem / f"a{number}").write_text("two secret")
    scoped = replace(ctx, readable=lambda path: path.resolved.endswith((".txt", ".py")))
    envelope = await call(GREP, within=scoped, pattern="two")
    assert "secret" not in envelope.text
    assert envelope.text.count("two") == 2
    assert not envelope.truncated


async def test_more_than_two_hundred_matches_are_cut_and_kept(root: Path, call: Call) -> None:
    (root / "file").write_text("".join(f"match {n}\n" for n in range(1, 302)))
    envelope = await call(GREP, pattern="match")
    assert envelope.truncated
    assert envelope.output_path is not None
    assert "200:match 200" in envelope.text
    assert "201:match 201" not in envelope.text
    assert "301:match 301" in envelope.output_path.read_text()


async def test_a_long_line_is_cut_around_its_match(root: Path, call: Call) -> None:
    (root / "min.js").write_text("x" * 5_000 + "needle" + "y" * 5_000)
    line = (await call(GREP, pattern="needle")).text.split("\n")[1]
    assert "needle" in line
    assert len(line) < 520


async def test_a_pattern_that_takes_for_ever_is_stopped_and_the_loop_stays_free(root: Path, call: Call) -> None:
    (root / "a").write_text("aab")
    (root / "b").write_text("a" * 60)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    ticking = asyncio.create_task(tick())
    started = time.monotonic()
    envelope = await call(grep_tool(1.0), pattern="^(a+)+b$")
    ticking.cancel()
    assert time.monotonic() - started < 60
    assert ticks > 30
    # What was found before is there, and that the search did not end is said.
    assert "1:aab" in envelope.text
    assert "Stopped after 1 s" in envelope.text
    assert children() == set()


async def test_a_search_that_found_nothing_before_it_was_stopped_is_an_error(root: Path, call: Call) -> None:
    (root / "b").write_text("a" * 60)
    assert not (await call(grep_tool(0.5), pattern="^(a+)+b$")).ok


async def test_cancellation_kills_the_worker(root: Path, call: Call) -> None:
    (root / "b").write_text("a" * 60)
    task = asyncio.ensure_future(call(GREP, pattern="^(a+)+b$"))
    await until(children)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not children())  # one that was just being started is killed, and gone a moment later


async def test_searches_run_side_by_side(poem: Path, call: Call) -> None:
    texts = await asyncio.gather(*(grep(call, poem, word) for word in ["one", "three", "four", "five", "six"]))
    assert [text.split(":")[1] for text in texts] == ["one", "three", "four", "five", "six"]


@pytest.mark.parametrize("pattern", ["needle", "needle?"])
async def test_a_file_that_is_too_large_is_named_whatever_the_pattern(root: Path, call: Call, pattern: str) -> None:
    large = root / "large.log"
    large.write_text("x\n" * SNIFFED)
    os.truncate(large, 50_000_001)
    assert f"[Not searched, too large: {large}]" in (await call(GREP, pattern=pattern)).text
