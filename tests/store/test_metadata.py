"""scope-plan.yml and branch-metadata.yml."""

import logging

import pytest
from ruamel.yaml import YAML

from pyagentd.store import metadata
from tests.store.places import new_agent, new_session


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


@pytest.mark.spec("001", "Type checking for agent sessions")
def test_type_agent_is_what_makes_an_agent(tmp_path):
    parent = new_session(tmp_path)
    assert not metadata.is_agent_session(parent.branch_dir)
    assert metadata.is_agent_session(new_agent(parent).branch_dir)
    assert not metadata.is_agent_session(tmp_path / "absent")


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
    assert metadata.read_branch_metadata(tmp_path) == {"parent_branch": "main", "branch_point_position": "5420"}
