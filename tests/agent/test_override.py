"""Local Variables that the user changed hold for that branch until they are kept or dropped (DD-38)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyagentd.agent.branches import override
from pyagentd.agent.lifecycle import creating
from pyagentd.errors import Busy
from pyagentd.policy.presets import Preset
from pyagentd.service import Service
from pyagentd.store import document, paths, presetfile
from pyagentd.store.document import Document, body_sha256
from pyagentd.store.local_variables import Settings
from pyagentd.store.namedagents import agentfile
from pyagentd.store.paths import BranchRef
from tests.agent.test_attaching import file_of, talk
from tests.agent.world import Watcher, World, body, rows
from tests.server import answer, tool_use

PRESET = Preset(name="main", backend="Claude", model="claude-opus-5", temperature=0.5, tools=("Read", "Bash"))
OURS = override.settings_of(PRESET)


@pytest.mark.parametrize(
    ("block", "written", "found"),
    [
        (OURS, OURS, {}),
        (Settings(), OURS, {}),  # a block that was lost says nothing
        (Settings(model="other"), OURS, {"model": "other"}),
        (Settings(tools=()), OURS, {"tools": ()}),
        (Settings(temperature=0.0, backend="Local"), OURS, {"temperature": 0.0, "backend": "Local"}),
        (Settings(model="old"), Settings(model="old"), {}),  # we wrote that, and the preset has changed since
        (Settings(model="claude-opus-5"), Settings(model="old"), {}),  # as the preset says
        (Settings(model="other"), None, {"model": "other"}),
    ],
)
def test_what_differs_from_what_we_wrote_is_the_users(
    block: Settings, written: Settings | None, found: dict[str, Any]
) -> None:
    assert override.find_override(block, written, PRESET) == found


def test_tools_may_have_the_names_that_gptel_uses() -> None:
    assert override.overridden(PRESET, {"tools": ("read_file", "Glob")}).tools == ("Read", "Glob")


def test_what_is_changed_in_the_file_while_a_run_goes_on_is_kept() -> None:
    wanted = Settings(model="ours", temperature=0.5)
    assert override.merged(Settings(model="theirs"), Settings(model="before"), wanted).model == "theirs"
    assert override.merged(Settings(model="before"), Settings(model="before"), wanted).model == "ours"
    assert override.merged(Settings(), Settings(model="before"), wanted).model == "ours"


def set_variables(ref: BranchRef, **values: Any) -> None:
    """Change the Local Variables as a user does, in any editor."""
    doc = document.read(file_of(ref))
    known = {name: getattr(doc.settings, name) for name in override.FIELDS}
    changed = Document(body=doc.body, spans=doc.spans, settings=Settings(**{**known, **values}))
    file_of(ref).write_text(document.format_file(changed))


async def attached(service: Service, ref: BranchRef, client: Watcher | None = None) -> dict[str, Any]:
    return await service.attach(client or Watcher(), branch=ref.key, sha256=body_sha256(body(ref)))


async def test_a_model_set_in_the_document_is_used_and_stays_there(world: World) -> None:
    world.server.say("One.", "Two.", "Three.")
    ref = world.session()
    await talk(world, ref, "Hi")
    assert world.server.last.body["model"] == "model-main"
    set_variables(ref, model="model-other", temperature=0.25)
    await talk(world, ref, "And now?")
    assert (world.server.last.body["model"], world.server.last.body["temperature"]) == ("model-other", 0.25)
    assert document.read(file_of(ref)).settings.model == "model-other"
    client = Watcher()
    given = await attached(world.service(), ref, client)
    assert given["overridden"] == ["model", "temperature"] and given["model"] == "model-other"
    assert given["settings"]["model"] == "model-other" and given["own_settings"]["model"] == "model-main"
    world.host.forget(client)
    preset = ref.branch_dir / "preset.md"
    preset.write_text(preset.read_text().replace("model-main", "model-newer"))
    world.start()
    await talk(world, ref, "Still?")
    assert world.server.last.body["model"] == "model-other"


async def test_a_preset_that_was_edited_holds_when_the_user_set_nothing(world: World) -> None:
    world.server.say("One.", "Two.")
    ref = world.session()
    await talk(world, ref, "Hi")
    preset = ref.branch_dir / "preset.md"
    preset.write_text(preset.read_text().replace("model-main", "model-newer"))
    await talk(world, ref, "And now?")
    assert world.server.last.body["model"] == "model-newer"
    assert document.read(file_of(ref)).settings.model == "model-newer"
    assert (await attached(world.service(), ref))["overridden"] == []


async def test_what_the_user_set_can_be_kept(world: World) -> None:
    world.server.say("One.", "Two.")
    ref, service = world.session(), world.service()
    await talk(world, ref, "Hi")
    before = (ref.branch_dir / "preset.md").read_text()
    set_variables(ref, model="model-other", tools=("Read",))
    told = await service.keep_settings(Watcher(), branch=ref.key)
    assert told["kept"] == ["model", "tools"] and told["overridden"] == []
    after = (ref.branch_dir / "preset.md").read_text()
    changed = [line for line in after.splitlines() if line not in before.splitlines()]
    assert changed[0] == "model: model-other" and "Read" in "".join(changed[1:]) and "Bash" not in "".join(changed)
    assert (await service.keep_settings(Watcher(), branch=ref.key))["kept"] == []
    await talk(world, ref, "And now?")
    assert world.server.last.body["model"] == "model-other"


async def test_what_the_user_set_of_a_named_agent_is_kept_where_it_says_what_it_is(world: World) -> None:
    world.preset(creating.DEFAULT_PRESET)
    service = world.service()
    made = await service.agent_init(Watcher(), name="my-agent")
    ref = paths.ref_of(Path(made["dir"]))
    await talk(world, ref, "Hi")
    before = presetfile.read(paths.preset_file(ref.branch_dir)).text
    set_variables(ref, model="model-other")
    told = await service.keep_settings(Watcher(), branch=ref.key)
    assert told["kept"] == ["model"] and told["overridden"] == []
    assert agentfile.read(ref.session_dir).model == "model-other"
    assert presetfile.read(paths.preset_file(ref.branch_dir)).text == before
    await talk(world, ref, "And now?")
    assert world.server.last.body["model"] == "model-other"


async def test_what_the_user_set_can_be_dropped(world: World) -> None:
    world.server.say("One.", "Two.")
    ref, service, editor = world.session(), world.service(), Watcher()
    await talk(world, ref, "Hi")
    set_variables(ref, model="model-other")
    await attached(service, ref, editor)
    with pytest.raises(Busy, match="Another client edits"):
        await service.drop_settings(Watcher(), branch=ref.key)
    told = await service.drop_settings(editor, branch=ref.key)
    assert told["dropped"] == ["model"] and told["settings"]["model"] == "model-main"
    assert document.read(file_of(ref)).settings.model == "model-other", "the editor writes"
    world.host.forget(editor)
    assert (await service.drop_settings(Watcher(), branch=ref.key))["dropped"] == ["model"]
    assert document.read(file_of(ref)).settings.model == "model-main"
    await talk(world, ref, "And now?")
    assert world.server.last.body["model"] == "model-main"


async def test_agents_are_isolated_from_what_their_document_says(world: World) -> None:
    world.preset("helper")
    world.server.say(
        answer(tool_use("PersistentAgent", preset="helper", description="look", prompt="Look", allowed_paths=["/x"])),
        "found", "Done", "Again.",
    )  # fmt: skip
    ref = world.session()
    world.options = world.granted(".*")
    await talk(world, ref, "Hi")
    (place,) = (ref.branch_dir / "agents").iterdir()
    agent = BranchRef(session_id=place.name, session_dir=place, branch_name="main", branch_dir=place, is_agent=True)
    set_variables(agent, model="model-other")
    await talk(world, agent, "Again")
    assert world.server.last.body["model"] == "model-main"


async def test_what_we_wrote_last_is_recorded_once(world: World) -> None:
    world.server.say("One.", "Two.")
    ref = world.session()
    await talk(world, ref, "Hi", "And?")
    recorded = [row.data["metadata_json"] for row in rows(ref) if row.type == "session"]
    assert recorded[-1]["settings"]["model"] == "model-main"
    assert sum("settings" in metadata for metadata in recorded) == 1
