import os
from dataclasses import replace
from pathlib import Path

import pytest

from pyagentd.policy.action import ResolvedPath, matches
from pyagentd.tools.search import GLOB
from pyagentd.tools.spec import ToolContext
from tests.tools.conftest import Call


def make(root: Path, *names: str) -> None:
    """Create the files, each newer than those before it."""
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
        os.utime(root / name, (number, number))


async def found(call: Call, root: Path, pattern: str, **args: object) -> list[str]:
    envelope = await call(GLOB, pattern=pattern, **args)
    assert envelope.ok, envelope.text
    return [line.removeprefix(f"{root}/") for line in envelope.text.split("\n") if not line.startswith("[")]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.py", ["b.py", "a.py"]),
        ("**/*.py", ["src/deep/d.py", "src/c.py", "b.py", "a.py"]),
        ("src/**", ["src/e.md", "src/deep/d.py", "src/c.py"]),
        ("src/*.{py,md}", ["src/e.md", "src/c.py"]),
        ("src/deep/../*.py", ["src/c.py"]),
        ("./src/c.py", ["src/c.py"]),
        ("[ab].py", ["b.py", "a.py"]),
        ("?.md", []),
        ("*.PY", []),
        ("nothing/*", None),
    ],
)
async def test_patterns_find_files_newest_first(
    root: Path, call: Call, pattern: str, names: list[str] | None
) -> None:
    make(root, "a.py", "b.py", "src/c.py", "src/deep/d.py", "src/e.md")
    if names is None:
        assert not (await call(GLOB, pattern=pattern)).ok
    else:
        assert await found(call, root, pattern) == names


async def test_an_absolute_pattern_and_a_path_say_where(root: Path, call: Call) -> None:
    make(root, "src/a.py", "other/b.py")
    assert await found(call, root, f"{root}/src/*.py", path="other") == ["src/a.py"]
    assert await found(call, root, "*.py", path="other") == ["other/b.py"]


async def test_hidden_git_and_ignored_files_are_left_out(root: Path, call: Call) -> None:
    make(root, "a", ".hidden", ".git/config", ".cache/x", "build/out", "keep.log", "b.log", "sub/c.log", "sub/build")
    (root / ".gitignore").write_text("*.log\n!keep.log\nbuild/\n")
    (root / "sub" / ".gitignore").write_text("!c.log\n")
    assert await found(call, root, "**") == ["sub/build", "sub/c.log", "keep.log", "a"]


async def test_a_dot_in_the_pattern_asks_for_hidden_files(root: Path, call: Call) -> None:
    make(root, ".github/ci.yml", ".env", ".git/HEAD", "a")
    assert await found(call, root, "**/.*") == [".env"]
    assert await found(call, root, ".github/*") == [".github/ci.yml"]


async def test_rules_above_the_searched_directory_count_up_to_the_repository(root: Path, call: Call) -> None:
    make(root, "repo/.git/HEAD", "repo/src/a.o", "repo/src/a.c", "repo/out/b.c")
    (root / ".gitignore").write_text("*.c")
    (root / "repo" / ".gitignore").write_text("*.o\nout/\n")
    assert await found(call, root, "*", path="repo/src") == ["repo/src/a.c"]
    # Who names an ignored directory wants to see it.
    assert await found(call, root, "*", path="repo/out") == ["repo/out/b.c"]


async def test_links_are_found_when_their_target_may_be_read_and_never_walked(
    tmp_path: Path, root: Path, call: Call, ctx: ToolContext
) -> None:
    make(root, "real")
    make(tmp_path, "outside/secret")
    (root / "in").symlink_to("real")
    (root / "out").symlink_to(tmp_path / "outside" / "secret")
    (root / "dir").symlink_to(tmp_path / "outside")
    (root / "broken").symlink_to("nowhere")
    scoped = replace(ctx, readable=lambda path: matches(f"{root}/**", path.resolved))
    assert sorted(await found(call, root, "**", within=scoped)) == ["in", "real"]


async def test_files_outside_the_scope_are_left_out_without_a_word(root: Path, call: Call, ctx: ToolContext) -> None:
    make(root, "a.py", "secret/b.py")
    scoped = replace(ctx, readable=lambda path: "secret" not in path.resolved)
    envelope = await call(GLOB, within=scoped, pattern="**/*.py")
    assert envelope.text == f"{root}/a.py"


async def test_both_forms_of_a_path_are_checked(tmp_path: Path, root: Path, call: Call, ctx: ToolContext) -> None:
    make(tmp_path, "real/a")
    (root / "link").symlink_to(tmp_path / "real")
    seen: list[ResolvedPath] = []

    def look(path: ResolvedPath) -> bool:
        seen.append(path)
        return True

    await call(GLOB, within=replace(ctx, readable=look), pattern="*", path="link")
    assert seen == [ResolvedPath(lexical=f"{root}/link/a", resolved=str((tmp_path / "real" / "a").resolve()))]


def test_a_directory_is_inside_the_scope_of_everything_below_it(root: Path, ctx: ToolContext) -> None:
    action = GLOB.action({"pattern": "**/*.py"}, ctx)
    assert (str(action), action.kind) == (f"tool:Glob:{root}", "read")
    assert matches(f"{root}/**", action.paths[0].resolved)
    assert not matches(f"{root}/*.py", action.paths[0].resolved)


async def test_more_than_a_thousand_files_are_cut_and_kept(root: Path, call: Call) -> None:
    make(root, *(f"f{n:04}" for n in range(1_001)))
    envelope = await call(GLOB, pattern="*")
    assert envelope.truncated
    assert envelope.output_path is not None
    assert len(envelope.output_path.read_text().split("\n")) == 1_001
    assert f'Read(file_path="{envelope.output_path}", offset=1001)' in envelope.text
    assert envelope.text.count("\n") == 1_000
    assert "f0001" in envelope.text
    (root / "f0000").unlink()
    assert not (await call(GLOB, pattern="*")).truncated


async def test_names_that_are_not_utf_8_do_not_break_the_answer(root: Path, call: Call) -> None:
    (root / os.fsdecode(b"caf\xe9")).touch()
    (root / "new\nline").touch()
    assert "caf�" in (await call(GLOB, pattern="*")).text


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"pattern": "*", "path": "file"}, "is not a directory"),
        ({"pattern": "*/../../*"}, "cannot have .."),
        ({"pattern": "{1..99999}"}, "The file pattern has more alternatives in braces"),
    ],
)
async def test_what_cannot_be_searched_is_an_error(root: Path, call: Call, args: dict[str, str], said: str) -> None:
    make(root, "file")
    done = await call(GLOB, **args)
    assert not done.ok and said in done.text


async def test_a_deep_tree_does_not_end_the_search(root: Path, call: Call) -> None:
    make(root, "a/" * 90 + "deep")
    assert await found(call, root, "**/deep") == ["a/" * 90 + "deep"]
