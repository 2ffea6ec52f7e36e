"""Which preset templates there are, and that those we ship are good."""

import pytest

from pyagentd.policy.presets import DEFAULT_PRESET, parse_preset
from pyagentd.store import presetfile
from pyagentd.store.templates import find_templates, shipped_dir

SHIPPED = find_templates([shipped_dir()])
TOOLS = {"Read", "Write", "Edit", "Glob", "Grep", "Bash", "PersistentAgent"}


def load(name):
    file = presetfile.read(SHIPPED[name])
    return parse_preset(name, file.front, file.body, str(file.path)), file


def test_a_later_directory_wins(tmp_path):
    for directory, names in (("a", ["x.md", "y.md"]), ("b", ["y.md", ".hidden.md", "notes.txt"])):
        (tmp_path / directory).mkdir()
        for name in names:
            (tmp_path / directory / name).touch()
    (tmp_path / "b" / "dir.md").mkdir()
    found = find_templates([tmp_path / "a", tmp_path / "absent", tmp_path / "b"])
    assert found == {"x": tmp_path / "a" / "x.md", "y": tmp_path / "b" / "y.md"}


def test_all_named_presets_are_shipped():
    assert set(SHIPPED) == {
        "programming-assistant",
        "general-purpose",
        "minimal",
        "researcher",
        "explorer",
        "executor",
        "planner",
        "plan",
        "build",
    }
    assert DEFAULT_PRESET in SHIPPED


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_a_shipped_preset_is_complete_and_names_only_tools_that_exist(name):
    preset, file = load(name)
    assert preset.backend == "Claude"
    assert preset.model.startswith("claude-")
    assert preset.description
    assert preset.body
    assert set(preset.tools) <= TOOLS
    assert file.front["name"] == name
    assert file.front["include-tool-results"] is True


def test_the_explorer_only_reads_and_everybody_may_use_it():
    preset, _ = load("explorer")
    assert preset.tools == ("Read", "Glob", "Grep")
    assert preset.mode == "all"
    assert preset.paths.read == (), "its parent's, or those it is given, are written when it is spawned"


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_no_shipped_preset_reads_or_writes_everywhere(name):
    preset, _ = load(name)
    assert not {"/**", "**/*"} & {*preset.paths.read, *preset.paths.write}
