"""Which models can be had: what providers list, for a day, in a file; what is said where they cannot be asked."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pyagentd.api.models import ProviderRow, offered
from pyagentd.errors import BadRequest, PyagentdError, ToolError
from pyagentd.features.models import Models, model_for_file
from pyagentd.policy.presets import DEFAULT_PRESET
from pyagentd.runtime.settings import SendOptions
from pyagentd.store import presetfile
from tests.runtime.world import Watcher, World

OFFLINE = SendOptions(interactive=True, env={"PYAGENTD_BACKEND": "offline"})


def models(world: World) -> Models:
    return world.kernel.feature(Models)


def env(world: World) -> dict[str, str]:
    return dict(world.options.env)


@pytest.mark.spec("003", "Persistence: Available models cache")
async def test_what_a_provider_lists_is_kept_in_the_specified_file(world: World) -> None:
    world.server.models = ("model-one", "model-two-20260101")
    found = await models(world).look(world.options)
    assert found["anthropic"].valid and found["anthropic"].models == world.server.models
    world.start()  # another daemon
    assert (await world.kernel.feature(Models).look(world.options))["anthropic"].models == world.server.models
    assert world.server.listings == 1
    file = json.loads((world.kernel.config.sessions_dir / "available_models.json").read_text())
    expected = {"valid": True, "models": list(world.server.models), "checked_at": "2026-03-04T05:06:07Z"}
    assert file["anthropic"] == {**expected, "server": world.server.url}
    assert "test-key" not in json.dumps(file)


async def test_a_list_is_asked_for_again_when_that_is_wanted_or_the_file_is_gone(world: World) -> None:
    world.server.models = ("old",)
    await models(world).look(world.options)
    world.server.models = ("new",)
    assert (await models(world).look(world.options))["anthropic"].models == ("old",)
    assert (await models(world).look(world.options, refresh=True))["anthropic"].models == ("new",)
    for damaged in ("{", "[" * 20_000 + "]" * 20_000):
        (world.kernel.config.sessions_dir / "available_models.json").write_text(damaged)
        assert (await Models(world.kernel).look(world.options))["anthropic"].models == ("new",)


async def test_a_key_that_is_refused_makes_a_provider_useless(world: World) -> None:
    refused = replace(world.options, env={**env(world), "ANTHROPIC_API_KEY": "refused"})
    found = await models(world).look(refused)
    assert not found["anthropic"].valid and "refused" in found["anthropic"].trouble
    assert (await models(world).checked("x-1", refused, backend="anthropic")).note.startswith("x-1 is taken as it is")


async def test_a_key_that_is_refused_is_one_clients(world: World) -> None:
    world.server.models = ("model-one",)
    refused = replace(world.options, env={**env(world), "ANTHROPIC_API_KEY": "refused"})
    for _ in range(2):
        assert not (await models(world).look(refused))["anthropic"].valid
    found = (await models(world).look(world.options))["anthropic"]
    assert found.valid and found.models == ("model-one",) and not found.trouble
    assert not models(world).known(refused)["anthropic"].valid, "and who has the refused one still has not"
    assert world.server.listings == 2
    world.start()
    assert world.kernel.feature(Models).known(refused)["anthropic"].valid, "nothing of it is kept"
    assert "refused" not in (world.kernel.config.sessions_dir / "available_models.json").read_text()


async def test_the_password_in_an_address_is_not_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def listed(name: str, server: Any) -> tuple[str, ...]:
        assert name == "offline" or "hunter2" in server.base_url
        return ("model-one",)

    monkeypatch.setattr("pyagentd.features.models.list_models", listed)
    secret = replace(world.options, env={**env(world), "ANTHROPIC_BASE_URL": "https://me:hunter2@x.example:8/v1"})
    found = await models(world).look(secret)
    file = (world.kernel.config.sessions_dir / "available_models.json").read_text()
    assert found["anthropic"].checked_at and "hunter2" not in file and '"https://x.example:8/v1"' in file


async def test_a_provider_that_has_no_list_is_asked_once(world: World) -> None:
    for _ in range(3):
        found = (await models(world).look(world.options))["anthropic"]
    assert found.valid and "claude-haiku-4-5" in found.models and "404" in found.trouble
    assert world.server.listings == 1


async def test_the_offline_stand_in_lists_what_it_stands_in_for(world: World) -> None:
    found = await models(world).look(OFFLINE)
    assert list(found) == ["offline"] and found["offline"].checked_at
    assert "claude-haiku-4-5" in found["offline"].models


CHECKED: list[tuple[str, str]] = [
    ("model-one", "model-one"),
    ("model-two", "model-two"),  # a snapshot of it is listed
    ("model-one-20260202", "model-one-20260202"),
    ("anthropic/model-one", "anthropic/model-one"),
    ("offline/claude-haiku-4-5", "offline/claude-haiku-4-5"),
]


@pytest.mark.parametrize(("given", "taken"), CHECKED)
@pytest.mark.spec("003", "Model")
async def test_a_model_that_is_listed_is_taken(world: World, given: str, taken: str) -> None:
    world.server.models = ("model-one", "model-two-20260101")
    checked = await models(world).checked(given, world.options, backend="anthropic")
    assert (checked.model, checked.note) == (taken, "")


async def test_a_name_alone_never_means_the_stand_in(world: World) -> None:
    world.server.models = ("model-one",)
    found = await models(world).look(world.options)
    assert found["offline"].has("claude-haiku-4-5") and found["offline"].stand_in
    with pytest.raises(BadRequest, match="not found") as refused:
        await models(world).checked("claude-haiku-4-5", world.options, backend="anthropic")
    assert "model-one (anthropic)" in (refused.value.hint or "")
    assert "(offline, a stand-in" in (refused.value.hint or "")
    with pytest.raises(ToolError):
        model_for_file("claude-haiku-4-5", found, backend="anthropic")
    assert model_for_file("claude-haiku-4-5", found, backend="offline") == "claude-haiku-4-5"


async def test_a_provider_whose_key_happens_to_be_known_is_offered_to_people_and_not_asked(world: World) -> None:
    world.server.models = ("model-one",)
    with_key = replace(world.options, env={**env(world), "OPENAI_API_KEY": "sk-other"})
    found = await models(world).look(with_key)
    assert "gpt-5" in found["openai"].models and found["openai"].valid and found["openai"].checked_at is None
    assert "openai" not in await models(world).look(world.options) and "bedrock" not in found
    assert (await models(world).checked("gpt-5", with_key, backend="anthropic")).model == "openai/gpt-5"
    with pytest.raises(ToolError, match="not found"):
        model_for_file("openai/gpt-5", found, backend="anthropic")


@pytest.mark.spec("003", "Creation flow 4: overrides are merged into agent.json")
async def test_a_model_that_nobody_has_is_refused_with_the_names_that_are_near(world: World) -> None:
    world.server.models = ("model-one",)
    world.preset(DEFAULT_PRESET)
    service = world.service()
    with pytest.raises(
        BadRequest, match=r'Model "model-won" not found in available models.*Did you mean "model-one"'
    ):
        await service.agent_init(Watcher(), name="a", model="model-won", env=env(world))
    await service.agent_init(Watcher(), name="a", model="model-one", env=env(world))
    with pytest.raises(BadRequest, match='Model "mod-el" not found'):
        await service.agent_config(Watcher(), name="a", key="model", value="mod-el", env=env(world))
    assert (await service.agent_config(Watcher(), name="a"))["config"]["model"] == "model-one"


async def test_where_nobody_can_be_asked_a_persons_model_is_taken_and_that_is_said(world: World) -> None:
    world.preset(DEFAULT_PRESET)
    made = await world.service().agent_init(Watcher(), name="a", model="claude-haiku-45")
    assert "no key is known here" in made["note"] and 'Did you mean "claude-haiku-4-5"?' in made["note"]
    assert (await world.service().agent_config(Watcher(), name="a"))["config"]["model"] == "claude-haiku-45"


@pytest.mark.parametrize("given", ["", "a b", "nobody/model"])
async def test_what_is_no_model_is_refused(world: World, given: str) -> None:
    with pytest.raises(PyagentdError):
        await models(world).checked(given, world.options, backend="anthropic")


async def test_the_model_of_a_conversation_is_shown_and_changed(world: World) -> None:
    world.server.models = ("model-one",)
    world.preset(DEFAULT_PRESET)
    ref, service = world.session(), world.service()

    async def typed(text: str) -> Any:
        return (await service.prompt(Watcher(), branch=ref.key, text=text, env=env(world)))["command"]

    assert (await typed("/model"))["text"] == "model-main of anthropic answers here (from preset.md)"
    assert (await typed("/model model-one"))["text"] == "model-one of anthropic answers from now on"
    assert presetfile.read(ref.branch_dir / "preset.md").front["model"] == "model-one"
    assert (await typed("/model model-onw"))["code"] == "bad-request"
    listed = (await typed("/models"))["text"].split("\n")
    assert listed[:2] == ["anthropic (usable, listed 2026-03-04T05:06:07Z)", "  model-one"]
    await service.agent_init(Watcher(), name="me")
    named = (await service.agent_list(Watcher()))["agents"][0]["branch"]
    await service.prompt(Watcher(), branch=named, text="/model model-one", env=env(world))
    assert (await service.agent_config(Watcher(), name="me"))["config"]["model"] == "model-one"


def test_models_are_chosen_by_name_and_by_backend_where_several_have_it() -> None:
    def row(name: str, *models: str, valid: bool = True, stand_in: bool = False) -> ProviderRow:
        given: dict[str, Any] = {"name": name, "models": list(models), "valid": valid, "stand_in": stand_in}
        return ProviderRow(**given, checked_at=None, trouble=None, facts=[{"name": "opus", "words": "200k context"}])

    rows = [
        row("a", "opus", "haiku"),
        row("b", "gone", valid=False),
        row("c", "haiku", "qwen"),
        row("o", "opus", stand_in=True),
    ]
    assert [each["text"] for each in offered(rows)] == ["opus", "a/haiku", "c/haiku", "qwen", "o/opus"]
    assert [each["words"] for each in offered(rows)][:2] == ["a  200k context", "a"]
