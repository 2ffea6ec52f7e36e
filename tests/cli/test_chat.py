"""What ``pyagentd chat`` shows and completes, without a terminal."""

import subprocess
from pathlib import Path

import pytest

from pyagentd.cli import chat
from pyagentd.cli.chat import MarkdownBlocks, command_completions, completions, files, letters, wrap_columns

MARKDOWN = (
    "# Tea\n\nHot\ntea.\n\n- black\n- green\n\n```py\nx = 1\n\ny = 2\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nEnd."
)


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_markdown_is_cut_between_blocks_and_nothing_is_lost(size: int) -> None:
    blocks = MarkdownBlocks()
    complete = [blocks.feed(MARKDOWN[at : at + size]) for at in range(0, len(MARKDOWN), size)]
    assert blocks.rest == "End."
    assert "".join(complete) + blocks.flush() == MARKDOWN
    assert not any("```" in part and part.count("```") != 2 for part in complete)


def test_long_lines_go_on_below_their_own_column() -> None:
    text = "/model [model]  Show which model answers here\n\n/a\n    one two three"
    assert wrap_columns(text, 34) == (
        "/model [model]  Show which model\n                answers here\n\n/a\n    one two three"
    )


def test_a_terminal_without_room_has_lines_of_one_column() -> None:
    assert wrap_columns("ab\n\nc", -1) == "a\nb\n\nc"


def test_only_letters_that_decide_something_are_offered() -> None:
    assert list(letters({"choices": ["allow", "deny"]})) == ["y", "n", "r"]
    ask = {"choices": ["allow", "session", "always", "deny"], "input": "{}", "preview": "+x"}
    assert "".join(letters(ask)) == "yspnred"
    assert "e" not in letters({**ask, "kind": "scope"})


COMMANDS = [
    {"name": "status", "summary": "how it stands", "arguments": []},
    {"name": "settings", "summary": "defaults", "arguments": [{"name": "key", "choices": ["model", "timeout"]}]},
]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("/st", ["/status"]),
        ("/se", ["/settings "]),
        ("/settings ", ["/settings model", "/settings timeout"]),
        ("/settings t", ["/settings timeout"]),
        ("/settings timeout ", []),
        ("/nothing", []),
    ],
)
def test_commands_and_their_arguments_are_completed(line: str, found: list[str]) -> None:
    assert [text for text, _ in command_completions(line, COMMANDS)] == found


def test_models_of_all_backends_are_completed_with_what_is_known_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text('[backend.box]\nkind = "ollama"\nmodels = ["clever", "qwen3:8b"]\n')
    monkeypatch.setenv("PYAGENTD_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("PYAGENTD_SESSIONS_DIR", str(tmp_path / "sessions"))
    command = {"name": "model", "arguments": [{"name": "model", "takes": "word", "values": "models"}]}
    found = dict(command_completions("/model cl", [command]))
    assert found["/model clever"] == "box"
    assert found["/model claude-opus-4-5"].startswith("anthropic, 200k context, $5 in, $25 out")


def test_files_are_those_of_git_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a.txt", "sub/b.txt", "left-out.log", ".gitignore"):
        (tmp_path / name).write_text("*.log\n")
    assert sorted(files(tmp_path)) == ["a.txt", "left-out.log", "sub/b.txt"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert sorted(files(tmp_path)) == [".gitignore", "a.txt", "sub/b.txt"]
    subprocess.run(["git", "-C", str(tmp_path), "config", "core.fsmonitor", "touch ran;:"], check=True)
    assert sorted(files(tmp_path)) == [".gitignore", "a.txt", "sub/b.txt"]


def test_of_a_large_repository_the_first_files_are_listed_and_none_that_git_ignores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.log", "b.txt", "c.txt", "d.txt", ".gitignore"):
        (tmp_path / name).write_text("*.log\n")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.setattr(chat, "_MOST_FILES", 3)
    found = files(tmp_path)
    assert len(found) == 3 and "a.log" not in found


def test_a_name_is_found_by_its_beginning_or_else_by_a_part() -> None:
    names = ["src/tea.py", "tests/test_tea.py", "tea.md"]
    assert completions("tea", names) == ["tea.md"]
    assert completions("TEA.PY", names) == ["src/tea.py", "tests/test_tea.py"]
