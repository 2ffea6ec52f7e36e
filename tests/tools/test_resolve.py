import os
from pathlib import Path

import pytest

from pyagentd.errors import ToolError
from pyagentd.tools.spec import resolve, resolve_as_system


@pytest.mark.parametrize(
    ("text", "lexical"),
    [
        ("a/b", "{root}/a/b"),
        (".", "{root}"),
        ("./a/../b/", "{root}/b"),
        ("..", "{parent}"),
        ("../../../../../../../../..", "/"),
        ("/etc//hosts", "/etc/hosts"),
        ("//etc/hosts", "/etc/hosts"),
        ("/..", "/"),
        ("~/x", "{home}/x"),
        ("~", "{home}"),
        ("a b\n", "{root}/a b\n"),
    ],
)
def test_the_lexical_form_is_absolute_and_without_dots(
    root: Path, monkeypatch: pytest.MonkeyPatch, text: str, lexical: str
) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    expected = lexical.format(root=root, parent=root.parent, home="/home/somebody")
    assert resolve(text, root).lexical == expected


@pytest.mark.parametrize("text", ["", "  ", "a\0b", 3, None, ["a"], "\ud800"])
def test_what_is_no_path_is_refused(root: Path, text: object) -> None:
    with pytest.raises(ToolError):
        resolve(text, root)


def test_every_kind_of_link_is_followed_in_the_resolved_form(tmp_path: Path, root: Path) -> None:
    outside = (tmp_path / "outside").resolve()
    (outside / "dir").mkdir(parents=True)
    (outside / "file").touch()
    (root / "to-file").symlink_to(outside / "file")
    (root / "to-dir").symlink_to("../outside/dir")
    (root / "dangling").symlink_to(outside / "not" / "there")
    (root / "twice").symlink_to("to-dir")
    resolved = {
        name: resolve(name, root).resolved
        for name in ("to-file", "to-dir", "to-dir/new/file", "dangling", "dangling/x", "twice/y", "plain/new")
    }
    assert resolved == {
        "to-file": f"{outside}/file",
        "to-dir": f"{outside}/dir",
        "to-dir/new/file": f"{outside}/dir/new/file",
        "dangling": f"{outside}/not/there",
        "dangling/x": f"{outside}/not/there/x",
        "twice/y": f"{outside}/dir/y",
        "plain/new": f"{root}/plain/new",
    }


def test_dots_go_up_from_the_link_as_written_and_not_from_its_target(tmp_path: Path, root: Path) -> None:
    (tmp_path / "far" / "away").mkdir(parents=True)
    (root / "link").symlink_to(tmp_path / "far" / "away")
    path = resolve("link/../x", root)
    assert (path.lexical, path.resolved) == (f"{root}/x", f"{root}/x")


def test_a_loop_of_links_resolves_to_something_that_cannot_be_opened(root: Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        os.stat(resolve("a", root).resolved)  # noqa: PTH116


def test_what_a_program_opens_itself_is_where_the_system_leads(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "far/away").mkdir(parents=True)
    (tmp_path / "root/link").symlink_to(tmp_path / "far/away")
    found = resolve_as_system("link/../x", tmp_path / "root")
    assert (found.lexical, found.resolved) == (f"{tmp_path}/root/x", f"{tmp_path}/far/x")
