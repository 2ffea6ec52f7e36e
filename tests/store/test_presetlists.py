"""Adding to what a preset allows, as its author would."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pyagentd.errors import PresetError
from pyagentd.store.presetfile import extend, read

PRESET = """\
---
# mine
model: m   # the good one
paths:
  read:
    - "/a/**"   # all of a
    - /b/**

  # never
  deny: ["**/.env"]
shell-commands: {allow: [ls]}
---
Body: with --- in it.
"""


def preset(tmp_path: Path, text: str = PRESET) -> Path:
    file = tmp_path / "preset.md"
    file.write_text(text)
    return file


def test_what_is_added_is_all_that_changes(tmp_path: Path) -> None:
    file = preset(tmp_path)
    assert extend(file, "paths", "read", ["/c/**", "/a/**", "/d [x]/*"]) == ("/c/**", "/d [x]/*")
    assert file.read_text() == PRESET.replace("    - /b/**\n", '    - /b/**\n    - "/c/**"\n    - "/d [x]/*"\n')


def test_what_is_there_already_leaves_every_byte(tmp_path: Path) -> None:
    file = preset(tmp_path)
    assert extend(file, "paths", "read", ["/b/**"]) == ()
    assert file.read_text() == PRESET


def test_what_several_add_at_once_is_all_there(tmp_path: Path) -> None:
    file = preset(tmp_path)
    wanted = [f"/{number}/**" for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda pattern: extend(file, "paths", "read", [pattern]), wanted))
    assert set(wanted) <= set(read(file).patterns("read") or ())


@pytest.mark.parametrize("front", ["  read: &x [/a]\n  write: *x\n", "  read: &x [/a]\nelsewhere: *x\n"])
def test_a_list_that_stands_elsewhere_too_is_left_alone(tmp_path: Path, front: str) -> None:
    file = preset(tmp_path, f"---\npaths:\n{front}---\nBody\n")
    before = file.read_bytes()
    with pytest.raises(PresetError, match=":2: paths uses a YAML alias"):
        extend(file, "paths", "read", ["/c/**"])
    assert file.read_bytes() == before


def test_a_list_that_is_missing_is_made(tmp_path: Path) -> None:
    file = preset(tmp_path)
    assert extend(file, "paths", "write", ["/c/**"]) == ("/c/**",)
    assert extend(file, "org_roam_patterns", "tags", ["x"]) == ("x",)
    text = file.read_text()
    assert '  write:\n    - "/c/**"\n' in text and 'org_roam_patterns:\n  tags:\n    - "x"\n' in text
    assert text.startswith("---\n# mine\n") and text.endswith("---\nBody: with --- in it.\n")


def test_the_authors_spelling_and_style_are_kept(tmp_path: Path) -> None:
    file = preset(tmp_path)
    assert extend(file, "shell_commands", "allow", ["make"]) == ("make",)
    assert 'shell-commands: {allow: [ls, "make"]}\n' in file.read_text()


@pytest.mark.parametrize("paths", ["paths: x", "paths: {read: x}", "paths: {read: [1]}"])
def test_a_list_that_is_none_is_an_error_with_its_line(tmp_path: Path, paths: str) -> None:
    file = preset(tmp_path, f"---\nmodel: m\n{paths}\n---\n")
    with pytest.raises(PresetError, match=r"preset\.md:3"):
        extend(file, "paths", "read", ["/a"])
    assert file.read_text() == f"---\nmodel: m\n{paths}\n---\n"


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PresetError, match="no such file"):
        extend(tmp_path / "preset.md", "paths", "read", ["/a"])
