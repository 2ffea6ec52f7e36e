"""Local Variables that the user changed hold for that branch until they are kept or dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyagentd.api import Service
from pyagentd.errors import BadRequest
from pyagentd.features import named_agents as creating
from pyagentd.policy.presets import Preset
from pyagentd.runtime import document_sync
from pyagentd.store import named_agents, paths, presetfile
from pyagentd.store.document import text as document
from pyagentd.store.document.text import Document, Settings, body_sha256
from pyagentd.store.paths import BranchRef
from tests.runtime.test_attaching import file_of, talk
from tests.runtime.world import Watcher, World, body, rows
from tests.server import answer, tool_use

PRESET = Preset(name="main", backend="Claude", model="claude-opus-5", temperature=0.5, tools=("Read", "Bash"))
OURS = document_sync.settings_of(PRESET)


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
        (
            Settings(tools=()),
            document_sync.settings_in_document(OURS),
            {},
        ),  # stock gptel, which knows none of our tools, wrote that
        (Settings(tools=("weather",)), document_sync.settings_in_document(OURS), {"tools": ("weather",)}),
        (Settings(tools=("Read", "Bash")), document_sync.settings_in_document(OURS), {}),
    ],
)
def test_what_differs_from_what_we_wrote_is_the_users(
    block: Settings, written: Settings | None, found: dict[str, Any]
) -> None:
    assert document_sync.find_override(block, written, PRESET) == found


def test_the_document_names_only_tools_that_gptel_can_have() -> None:
    tools = ("Read", "read_file", "PersistentAgent", "emacs:code", "mcp__notes__add", "mcp__*", "weather")
    assert document_sync.settings_in_document(Settings(model="m", tools=tools)) == Settings(
        model="m", tools=("weather",)
    )
    assert document_sync.effective_settings(PRESET, {}).tools is None
    assert document_sync.effective_settings(PRESET, {"tools": ("Read",)}).tools == ("Read",)


async def test_stock_gptel_finds_no_name_of_ours_in_the_document(world: World) -> None:
    world.server.say("One.")
    ref = world.session()
    await talk(world, ref, "Hi")
    text = file_of(ref).read_text()
    assert "gptel-model: model-main" in text and "tool-names" not in text
    assert sent(world)["tools"]


def test_tools_may_have_the_names_that_gptel_uses() -> None:
    assert document_sync.preset_with_overrides(PRESET, {"tools": ("read_file", "Glob")}).tools == ("Read", "Glob")


def test_what_is_changed_in_the_file_while_a_run_goes_on_is_kept() -> None:
    wanted = Settings(model="ours", temperature=0.5)
    assert document_sync.merged_settings(Settings(model="theirs"), Settings(model="before"), wanted).model == "theirs"
    assert document_sync.merged_settings(Settings(model="before"), Settings(model="before"), wanted).model == "ours"
    assert document_sync.merged_settings(Settings(), Settings(model="before"), wanted).model == "ours"


def set_variables(ref: BranchRef, **values: Any) -> None:
    """Change the Local Variables as a user does, in any editor."""
    doc = document.read(file_of(ref))
    known = {name: getattr(doc.settings, name) for name in document_sync.FIELDS}
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
    world.kernel.forget(client)
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
    assert named_agents.read(ref.session_dir).model == "model-other"
    assert presetfile.read(paths.preset_file(ref.branch_dir)).text == before
    await talk(world, ref, "And now?")
    assert world.server.last.body["model"] == "model-other"


async def test_what_the_user_set_can_be_dropped(world: World) -> None:
    world.server.say("One.", "Two.")
    ref, service, editor = world.session(), world.service(), Watcher()
    await talk(world, ref, "Hi")
    set_variables(ref, model="model-other")
    await attached(service, ref, editor)
    told = await service.drop_settings(Watcher(), branch=ref.key)
    assert told["dropped"] == ["model"] and told["settings"]["model"] == "model-main"
    world.kernel.forget(editor)
    assert document.read(file_of(ref)).settings.model == "model-main"
    await talk(world, ref, "And now?")
    assert world.server.last.body["model"] == "model-main"


def sent(world: World) -> dict[str, Any]:
    """The settings of the last request, as the model's server got them."""
    given = world.server.last.body
    system = "".join(block["text"] for block in given["system"])
    return {
        "model": given["model"],
        "temperature": given.get("temperature"),
        "max_tokens": given["max_tokens"],
        "thinking": given.get("thinking", {}).get("budget_tokens"),
        "system": system,
        "tools": [tool["name"] for tool in given.get("tools", ())],
    }


async def test_settings_of_a_message_hold_for_its_turn_only(world: World) -> None:
    world.server.say("One.", answer(tool_use("Read", file_path="x")), "Two.", "Three.", "Four.")
    ref, service = world.session(), world.service()
    await talk(world, ref, "Hi")
    usual = sent(world)
    assert usual["temperature"] == 0.5 and usual["thinking"] is None and "Bash" in usual["tools"]
    client = Watcher()
    async with world.kernel.using(ref) as branch:
        odd = {"system": "Be odd.", "model": "model-other", "temperature": 0, "max_tokens": 700, "tools": "Read"}
        for settings in (odd, {"thinking": "high"}, {}):
            await service.attach(client, branch=ref.key, sha256=body_sha256(body(ref)))
            env = world.options.env
            await service.prompt(client, branch=ref.key, text="And now?", env=env, settings=settings)
            await client.finished(branch)
            if settings is odd:
                told = sent(world)
                assert "Be odd." in told.pop("system") and "You are main" not in str(world.server.last.body["system"])
                assert told == {
                    "model": "model-other", "temperature": 0, "max_tokens": 700, "thinking": None, "tools": ["Read"],
                }  # fmt: skip
                assert len(world.server.requests) == 3, "both requests of the turn"
            elif settings:
                assert sent(world)["thinking"] == 32_000 and sent(world)["max_tokens"] > 32_000
                assert sent(world)["model"] == "model-main" and "Bash" in sent(world)["tools"]
    assert sent(world) == usual


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"temperature": 3}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"thinking": "hard"}, "off, low, medium, high"),
        ({"system": 3}, "system"),
        ({"profile": "open"}, "profile"),
    ],
)
async def test_a_setting_of_a_message_that_makes_no_sense_is_named_before_anything_is_recorded(
    world: World, settings: dict[str, Any], named: str
) -> None:
    ref, service = world.session(), world.service()
    with pytest.raises(BadRequest, match=named):
        await service.prompt(Watcher(), branch=ref.key, text="Hi", settings=settings)
    async with world.kernel.using(ref) as branch:
        assert not branch.conversation.messages and not branch.conversation.runs


async def test_maximum_tokens_are_a_setting_of_the_document(world: World) -> None:
    world.server.say("One.", "Two.", "Three.")
    ref, service = world.session(), world.service()
    await talk(world, ref, "Hi")
    set_variables(ref, max_tokens=900)
    await talk(world, ref, "And now?")
    assert sent(world)["max_tokens"] == 900
    assert "<!-- gptel-max-tokens: 900 -->" in file_of(ref).read_text()
    assert (await service.keep_settings(Watcher(), branch=ref.key))["kept"] == ["max_tokens"]
    assert "\nmax-tokens: 900\n" in (ref.branch_dir / "preset.md").read_text()
    await talk(world, ref, "And now?")
    assert sent(world)["max_tokens"] == 900


async def test_thinking_and_system_prompt_are_set_in_the_preset_of_the_session(world: World) -> None:
    world.server.say("One.", "Two.")
    ref, service = world.session(), world.service()
    front = (ref.branch_dir / "preset.md").read_text().split("\n---\n")[0]
    assert await service.system_prompt(Watcher(), branch=ref.key) == "You are main."
    told = await service.configure(Watcher(), branch=ref.key, thinking="low", system="Be brief.\n\n---\nReally.\n")
    assert told["thinking"] == "low"
    assert (ref.branch_dir / "preset.md").read_text() == f"{front}\nthinking: low\n---\nBe brief.\n\n---\nReally.\n"
    await talk(world, ref, "Hi")
    assert sent(world)["thinking"] == 4_000 and "Be brief.\n\n---\nReally." in sent(world)["system"]
    await service.configure(Watcher(), branch=ref.key, thinking="off")
    await talk(world, ref, "Hi")
    assert sent(world)["thinking"] is None and "Really." in sent(world)["system"]
    with pytest.raises(BadRequest, match="thinking"):
        await service.configure(Watcher(), branch=ref.key, thinking="much", system="")
    assert await service.system_prompt(Watcher(), branch=ref.key), "nothing was changed"


async def test_tools_are_switched_in_the_preset_of_the_session_whatever_the_document_said(world: World) -> None:
    world.server.say("One.", "Two.", "Three.")
    ref, service = world.session(), world.service()
    await talk(world, ref, "Hi")
    set_variables(ref, tools=("Bash",), model="model-other")
    told = await service.configure(Watcher(), branch=ref.key, tools=["Read", "read_file", "Grep"])
    assert list(told["own_settings"]["tools"]) == ["Read", "Grep"]
    assert document.read(file_of(ref)).settings.tools is None
    await talk(world, ref, "Hi")
    assert sent(world)["tools"] == ["Read", "Grep"] and sent(world)["model"] == "model-other"
    await service.configure(Watcher(), branch=ref.key, tools="")
    await talk(world, ref, "Hi")
    assert sent(world)["tools"] == []


async def test_thinking_and_answer_share_what_the_model_can_say(world: World) -> None:
    world.server.say("One.", "Two.")
    (world.home / "config.toml").write_text('[model."model-main"]\nmax_output = 4_000\n')
    world.start()
    ref, service = world.session(), world.service()
    await service.configure(Watcher(), branch=ref.key, thinking="high")
    await talk(world, ref, "Hi")
    assert (sent(world)["max_tokens"], sent(world)["thinking"]) == (4_000, 2_000)
    set_variables(ref, max_tokens=500)
    await talk(world, ref, "Hi")
    assert (sent(world)["max_tokens"], sent(world)["thinking"]) == (4_000, 3_500)


async def test_the_system_prompt_of_a_named_agent_is_written_where_it_says_what_it_is(world: World) -> None:
    world.preset(creating.DEFAULT_PRESET)
    service = world.service()
    made = await service.agent_init(Watcher(), name="my-agent")
    ref = paths.ref_of(Path(made["dir"]))
    await service.configure(Watcher(), branch=ref.key, system="Be brief.")
    assert named_agents.read(ref.session_dir).system_prompt == "Be brief."
    assert await service.system_prompt(Watcher(), branch=ref.key) == "Be brief."


async def test_the_tools_that_a_session_can_have_are_told(world: World) -> None:
    ref, service = world.session(), world.service()
    set_variables(ref, tools=("Read", "our_own"))
    async with world.kernel.using(ref) as branch:
        await branch.look_once()
        told = await service.tools_available(Watcher(), branch=ref.key)
    assert {"Bash", "Read", "WebSearch", "TodoWrite", "our_own"} <= set(told["tools"])
    assert set(told["on"]) == {"Read", "our_own"}


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
