"""The pieces of an agent made one at a time, as code written to the specifications does (SPEC 000)."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from pyagentd.clock import stamp
from pyagentd.errors import BadRequest, PresetError, PyagentdError, StoreError
from pyagentd.store import metadata, presetfile
from pyagentd.store.paths import BranchRef
from tests.runtime.world import FixedClock, Watcher, World

STAMP = stamp(FixedClock().now())
NOW = "2026-03-04T05:06:07Z"


async def call(world: World, name: str, **arguments: Any) -> Any:
    return await getattr(world.service(), name)(Watcher(), **arguments)


async def directory(world: World, ref: BranchRef, description: str = "find module") -> Path:
    made = await call(
        world, "create_agent_directory", directory=str(ref.branch_dir), preset="explorer", description=description
    )
    return Path(made)


@pytest.mark.spec("000", "Agent directory created via filesystem module")
async def test_an_agents_directory_is_made_under_the_branch_and_never_twice(world: World) -> None:
    ref = world.session()
    made = [await directory(world, ref) for _ in range(2)]
    home = ref.branch_dir / "agents"
    assert made == [home / f"explorer-{STAMP}-find-module", home / f"explorer-{STAMP}-find-module-2"]
    assert all(not any(place.iterdir()) for place in made)


async def test_an_agents_directory_needs_a_parent(world: World) -> None:
    with pytest.raises(PyagentdError, match="not a session"):
        await call(world, "create_agent_directory", directory=str(world.project), preset="x", description="y")
    assert not (world.project / "agents").exists()


@pytest.mark.spec("000", "Preset template copied via filesystem helper")
async def test_the_template_is_copied_byte_for_byte(world: World) -> None:
    place = await directory(world, world.session())
    copied = await call(world, "copy_preset_template", preset="main", directory=str(place))
    assert copied == str(place / "preset.md")
    assert (place / "preset.md").read_bytes() == (world.presets / "main.md").read_bytes()


async def test_a_template_that_does_not_exist_is_said(world: World) -> None:
    place = await directory(world, world.session())
    with pytest.raises(PresetError, match="Known: main"):
        await call(world, "copy_preset_template", preset="nobody", directory=str(place))
    assert not (place / "preset.md").exists()


@pytest.mark.spec("000", "Preset loaded via metadata module")
async def test_a_preset_is_loaded_with_its_keys_and_its_body(world: World) -> None:
    ref = world.session()
    loaded = await call(world, "load_preset", directory=str(ref.branch_dir))
    assert (loaded["backend"], loaded["model"], loaded["temperature"]) == ("anthropic", "model-main", 0.5)
    assert loaded["tools"] == ["Read", "Write", "Glob", "Bash", "PersistentAgent"]
    assert loaded["system"] == "You are main."


@pytest.mark.parametrize("fault", ["missing", "malformed"])
async def test_a_preset_that_cannot_be_loaded_is_nothing(world: World, fault: str) -> None:
    ref = world.session()
    file = ref.branch_dir / "preset.md"
    file.unlink() if fault == "missing" else file.write_text("---\ntools: [\n---\n")
    assert await call(world, "load_preset", directory=str(ref.branch_dir)) is None


@pytest.mark.spec("000", "Agent inherits parent allowed paths")
async def test_the_scope_of_a_parent_is_read_and_given_to_its_agent(world: World) -> None:
    ref = world.session()
    place = await directory(world, ref)
    await call(world, "copy_preset_template", preset="main", directory=str(place))
    scope = await call(world, "preset_metadata", directory=str(ref.branch_dir))
    assert scope["paths"]["read"] == [f"{world.project}/**"]
    assert scope["shell_commands"] == {"allow": ["*"]}
    await call(world, "update_preset_paths", file=str(place / "preset.md"), allowed=scope["paths"]["read"])
    agent = await call(world, "preset_metadata", directory=str(place))
    assert agent["paths"]["read"] == [f"{world.project}/**"]


@pytest.mark.spec("000", "Preset.md updated with path controls")
async def test_paths_are_set_and_everything_else_stays(world: World) -> None:
    (world.presets / "bare.md").write_text("---\n# mine\nbackend: anthropic\nmodel: m\n---\nYou are bare.\n")
    ref = world.session(preset="bare")
    file = ref.branch_dir / "preset.md"
    await call(world, "update_preset_paths", file=str(file), allowed=["/project/**"], denied=["/project/secret"])
    assert json.loads(json.dumps(presetfile.read(file).front["paths"])) == {
        "read": ["/project/**"],
        "write": ["/tmp/**"],
        "deny": ["**/.git/**", "**/runtime/**", "**/.env", "**/node_modules/**", "/project/secret"],
    }
    text = file.read_text()
    assert text.startswith("---\n# mine\nbackend: anthropic\n") and text.endswith("---\nYou are bare.\n")
    plan = metadata.read_session_metadata(ref.branch_dir)
    assert plan is not None and plan["updated"] == NOW


async def test_paths_that_cannot_match_or_a_file_without_keys_are_refused(world: World) -> None:
    ref = world.session()
    file = ref.branch_dir / "preset.md"
    before = file.read_text()
    with pytest.raises(BadRequest, match="not absolute"):
        await call(world, "update_preset_paths", file=str(file), allowed=["src/**"])
    assert file.read_text() == before
    file.write_text("no keys here\n")
    with pytest.raises(PresetError, match="No YAML frontmatter found"):
        await call(world, "update_preset_paths", file=str(file), allowed=["/src/**"])


@pytest.mark.spec("000", "Logging via logging module")
async def test_what_was_made_is_logged_and_what_could_not_be_is_an_error(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    ref = world.session()
    with caplog.at_level(logging.INFO):
        place = await directory(world, ref)
        await call(world, "copy_preset_template", preset="main", directory=str(place))
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert ("INFO", f"Created agent directory: {place}") in told
    assert ("INFO", f"Copied preset template main to {place}") in told
    with pytest.raises(PyagentdError):
        await call(world, "copy_preset_template", preset="nobody", directory=str(place))
    assert any(record.levelname == "ERROR" and "nobody" in record.getMessage() for record in caplog.records)


async def test_a_disk_that_refuses_a_directory_is_logged_and_said(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    ref = world.session()
    (ref.branch_dir / "agents").write_text("not a directory")
    with pytest.raises(StoreError):
        await directory(world, ref)
    assert any(record.levelname == "ERROR" for record in caplog.records)
