"""Which preset templates there are."""

from pyagentd.installation import shipped
from pyagentd.policy.presets import DEFAULT_PRESET
from pyagentd.store.presetfile import find_templates

SHIPPED = find_templates([shipped("presets")])


def test_a_later_directory_wins(tmp_path):
    for directory, names in (("a", ["x.md", "y.md"]), ("b", ["y.md", ".hidden.md", "notes.txt"])):
        (tmp_path / directory).mkdir()
        for name in names:
            (tmp_path / directory / name).touch()
    (tmp_path / "b" / "dir.md").mkdir()
    found = find_templates([tmp_path / "a", tmp_path / "absent", tmp_path / "b"])
    assert found == {"x": tmp_path / "a" / "x.md", "y": tmp_path / "b" / "y.md"}


def test_a_link_that_leads_nowhere_hides_no_other(tmp_path):
    (tmp_path / "plan.md").touch()
    (tmp_path / "linked.md").symlink_to("plan.md")
    (tmp_path / "gone.md").symlink_to("x" * 300)
    assert set(find_templates([tmp_path])) == {"plan", "linked"}


def test_all_named_presets_are_shipped():
    assert set(SHIPPED) == {
        "programming-assistant",
        "general-purpose",
        "minimal",
        "researcher",
        "explorer",
        "mission",
        "executor",
        "planner",
        "plan",
        "build",
        "small",
    }
    assert DEFAULT_PRESET in SHIPPED
