"""scope-plan.yml and branch-metadata.yml."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from pyagentd.store import metadata
from tests.store.places import NOON, new_agent, new_session


@pytest.mark.spec("001", "scope-plan.yml required fields")
@pytest.mark.spec("001", "Reading session metadata")
def test_a_session_says_who_it_is_and_from_when(tmp_path):
    ref = new_session(tmp_path)
    found = metadata.read_session_metadata(ref.branch_dir)
    assert found == {
        "version": "3.0",
        "session_id": ref.session_dir.name,
        "created": "2026-02-05T12:30:52Z",
        "updated": "2026-02-05T12:30:52Z",
        "preset": "minimal",
    }


@pytest.mark.spec("000", "scope-plan.yml created with agent metadata")
@pytest.mark.spec("000", "scope-plan.yml contains metadata only")
def test_an_agent_adds_type_and_parent_and_nothing_else(tmp_path):
    parent = new_session(tmp_path)
    agent = new_agent(parent)
    written = YAML(typ="safe").load((agent.branch_dir / "scope-plan.yml").read_text())
    assert list(written) == ["version", "session_id", "created", "updated", "type", "parent_session_id", "preset"]
    assert written["version"] == "3.0"
    assert written["type"] == "agent"
    assert written["parent_session_id"] == parent.session_id
    assert all(isinstance(value, str) for value in written.values())


@pytest.mark.spec("001", "Backward compatibility with agent_type")
def test_agent_type_stands_in_for_preset(tmp_path):
    plan = tmp_path / "scope-plan.yml"
    plan.write_text("session_id: old-20250101\nagent_type: explorer\n")
    assert metadata.read_session_metadata(tmp_path)["preset"] == "explorer"
    plan.write_text("session_id: old\npreset: new\nagent_type: explorer\n")
    assert metadata.read_session_metadata(tmp_path)["preset"] == "new"


def test_values_stay_as_written(tmp_path):
    (tmp_path / "scope-plan.yml").write_text("session_id: 2026\ncreated: 2026-02-05T14:30:52Z\npreset: no\n")
    assert metadata.read_session_metadata(tmp_path) == {
        "session_id": "2026",
        "created": "2026-02-05T14:30:52Z",
        "preset": "no",
    }


def test_a_key_that_is_no_text_is_left_out(tmp_path):
    (tmp_path / "scope-plan.yml").write_text("? [a, b]\n: c\nsession_id: x\n")
    assert metadata.read_session_metadata(tmp_path) == {"session_id": "x"}


def test_missing_metadata_is_none_without_an_error(tmp_path, caplog):
    assert metadata.read_session_metadata(tmp_path) is None
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.spec("001", "Logging metadata parsing errors")
@pytest.mark.parametrize("text", ["a: [", "- list\n", "plain", "", "\x00", "a: 1\na: 2\n"])
def test_unparseable_metadata_is_none_and_logged(tmp_path, caplog, text):
    (tmp_path / "scope-plan.yml").write_text(text)
    assert metadata.read_session_metadata(tmp_path) is None
    assert f"Failed to parse scope-plan.yml in {tmp_path}: " in caplog.text
    assert caplog.records[-1].levelname == "ERROR"


def test_bytes_that_are_no_text_are_none_and_logged(tmp_path, caplog):
    (tmp_path / "branch-metadata.yml").write_bytes(b"\xff\xfe")
    assert metadata.read_branch_metadata(tmp_path) is None
    assert "Failed to parse branch-metadata.yml" in caplog.text


def test_lineage_of_a_branch_is_read(tmp_path):
    (tmp_path / "branch-metadata.yml").write_text('parent_branch: "main"\nbranch_point_position: 5420\n')
    assert metadata.read_branch_metadata(tmp_path) == {"parent_branch": "main", "branch_point_position": 5420}
    (tmp_path / "branch-metadata.yml").write_text(f'parent_branch: "main"\nbranch_point_position: {"9" * 5000}\n')
    assert metadata.read_branch_metadata(tmp_path) == {"parent_branch": "main"}


@pytest.mark.spec("001", "Reading preset configuration")
@pytest.mark.spec("001", "preset.md YAML frontmatter")
def test_the_keys_of_a_preset_are_read(tmp_path):
    (tmp_path / "preset.md").write_text(
        "---\nbackend: Claude  # mine\nmodel: m\ntemperature: 0.5\ninclude-tool-results: true\n"
        "tools: [Read, Bash]\npaths: {read: [/p/**]}\n---\nYou help.\n"
    )
    found = metadata.read_preset_metadata(tmp_path)
    assert found == {
        "backend": "Claude",
        "model": "m",
        "temperature": 0.5,
        "include_tool_results": True,
        "tools": ["Read", "Bash"],
        "paths": {"read": ["/p/**"]},
    }
    assert {type(value) for value in found.values()} == {str, float, bool, list, dict}


@pytest.mark.parametrize(
    ("tools", "names"),
    [("Read, Bash", ["Read", "Bash"]), ("{Read: {allowed: true}, Bash: {allowed: false}}", ["Read"]), ("", [])],
)
def test_tools_are_names_in_whichever_form_they_are_given(tmp_path, tools, names):
    (tmp_path / "preset.md").write_text(f"---\ntools: {tools}\n---\n")
    assert metadata.read_preset_metadata(tmp_path) == {"tools": names}


def test_a_preset_that_is_missing_or_malformed_is_none(tmp_path, caplog):
    assert metadata.read_preset_metadata(tmp_path) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    (tmp_path / "preset.md").write_text("---\nmodel: [\n---\n")
    assert metadata.read_preset_metadata(tmp_path) is None
    assert f"Failed to parse preset.md in {tmp_path}: " in caplog.text and caplog.records[-1].levelname == "ERROR"


PLANS = [
    'version: "3.0"\nsession_id: "a"\ncreated: "x"\nupdated: "x"\npreset: "p"\n',
    "# mine\nupdated:    2020-01-01T00:00:00Z   # when\nsession_id: a\n\n# end\n",
    "updated: 'x'\nother:\n  updated: inner\n  list:\n      - 1\n",
    "updated:\nsession_id: a",
    "session_id: a",
    "session_id: a\r\nupdated: b\r\n",
]


@pytest.mark.parametrize("text", PLANS)
def test_touching_changes_the_time_and_no_other_byte(tmp_path, text):
    file = tmp_path / "scope-plan.yml"
    file.write_bytes(text.encode())
    before = metadata.read_session_metadata(tmp_path)
    metadata.touch_scope_plan(tmp_path, NOON)
    assert metadata.read_session_metadata(tmp_path) == {**before, "updated": "2026-02-05T12:30:52Z"}
    old, new = text.encode().splitlines(keepends=True), file.read_bytes().splitlines(keepends=True)
    assert [line for line in old if b"updated" not in line or b"inner" in line] == [
        line.rstrip(b"\n") if line not in old and line.rstrip(b"\n") in old else line
        for line in new
        if b"updated" not in line or b"inner" in line
    ]
    assert (b"# when" in file.read_bytes()) == ("# when" in text)


@pytest.mark.parametrize(
    "text", ["{session_id: a, updated: b}", "updated: >\n  long\n  text\nsession_id: a\n", '"updated": b\n']
)
def test_touching_understands_every_form_of_yaml(tmp_path, text):
    (tmp_path / "scope-plan.yml").write_text(text)
    before = metadata.read_session_metadata(tmp_path)
    metadata.touch_scope_plan(tmp_path, NOON)
    assert metadata.read_session_metadata(tmp_path) == {**before, "updated": "2026-02-05T12:30:52Z"}


@pytest.mark.parametrize("text", [None, "a: [", "- list\n", "{session_id: x, created: 2026-13-45}\n"])
def test_what_cannot_be_parsed_is_left_alone(tmp_path, text):
    if text is not None:
        (tmp_path / "scope-plan.yml").write_text(text)
    metadata.touch_scope_plan(tmp_path, NOON)
    assert [path.read_text() for path in tmp_path.iterdir()] == ([] if text is None else [text])


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_any_value_can_be_set(tmp_path_factory, value):
    place = tmp_path_factory.mktemp("plan")
    (place / "scope-plan.yml").write_text("session_id: a  # here\npreset: p\n")
    metadata.set_scope_plan_values(place, {"session_id": value})
    assert metadata.read_session_metadata(place) == {"session_id": value, "preset": "p"}


def test_lineage_is_written_as_the_specification_names_it(tmp_path):
    metadata.write_branch_metadata(tmp_path, parent_branch="main", created="2026-02-05T12:30:52Z", position=5420)
    text = (tmp_path / "branch-metadata.yml").read_text()
    assert text == 'parent_branch: "main"\ncreated: "2026-02-05T12:30:52Z"\nbranch_point_position: 5420\n'
