"""Named agents: SPEC 003's creation, what is in their directory, their configuration, another name."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pyagentd.api import Service
from pyagentd.clock import span
from pyagentd.errors import BadRequest, Conflict, NotFound, PresetError, PyagentdError, StoreError
from pyagentd.features import named_agents as creating
from pyagentd.installation import shipped
from pyagentd.policy.action import first_match
from pyagentd.runtime.run_setup import protected_paths, shell_scope
from pyagentd.store import metadata, named_agents, paths, presetfile
from pyagentd.store.db import agents, audit
from tests.runtime.world import Watcher, World, attached, body
from tests.server import answer, tool_use


@pytest.fixture
def service(world: World) -> Service:
    world.preset(creating.DEFAULT_PRESET)
    return world.service()


async def made(service: Service, name: str = "my-agent", **given: Any) -> dict[str, Any]:
    return await service.agent_init(Watcher(), name=name, **given)


def values(told: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((Path(told["dir"]) / "agent.json").read_text("utf-8"))
    return said


def names_in(directory: Path) -> set[str]:
    return {entry.name for entry in directory.iterdir()}


def git(directory: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", directory, *words], capture_output=True, text=True, check=True).stdout


# -- creation -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("003", "Creation flow 1: the name is validated")
@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "..", "ä", "x" * 65, "a.b", "a\n"])
async def test_a_name_is_made_of_letters_digits_hyphens_and_underscores(
    world: World, service: Service, name: str
) -> None:
    with pytest.raises(BadRequest, match="not a name of an agent"):
        await made(service, name)
    assert not world.kernel.config.agents_dir.exists()


async def test_a_name_that_is_taken_is_taken(world: World, service: Service) -> None:
    told = await made(service)
    with pytest.raises(Conflict, match="my-agent"):
        await made(service)
    (Path(told["dir"]).parent / "other").mkdir()
    with pytest.raises(Conflict, match="not an agent"):
        await made(service, "other")
    assert [row.name for row in agents.known(world.kernel.state)] == ["my-agent"]


@pytest.mark.spec("003", "Creation flow 2: the template is copied")
@pytest.mark.spec("003", "Template Contents")
async def test_the_template_is_copied(service: Service) -> None:
    told, template = await made(service), shipped("template")
    files = sorted(str(file.relative_to(template)) for file in template.rglob("*") if file.is_file())
    assert files == ["agent.json", "docs/README.md", "workspace/.gitkeep"]
    for name in files[1:]:
        assert (Path(told["dir"]) / name).read_bytes() == (template / name).read_bytes()
    text = (template / "agent.json").read_text()
    assert list(json.loads(text)) == list(named_agents.KEYS)
    assert json.dumps(json.loads(text), indent=4) + "\n" == text


@pytest.mark.spec("003", "Creation flow 3: the workspace is a git repository")
async def test_the_workspace_is_a_repository_with_a_commit(service: Service) -> None:
    workspace = Path((await made(service))["dir"]) / "workspace"
    assert git(workspace, "log", "--format=%an").split() == ["my-agent"]
    assert git(workspace, "ls-files").split() == [".gitkeep"]
    assert git(workspace, "status", "--porcelain") == ""
    assert (workspace / ".git/hooks").is_dir()


@pytest.mark.spec("003", "Creation flow 4: overrides are merged into agent.json")
async def test_what_is_given_is_merged_into_the_file(world: World, service: Service) -> None:
    world.kernel.config.sessions_dir.mkdir()
    world.kernel.state.put(creating.MODEL_SETTING, "model-of-all")
    plain, given = (
        await made(service, "plain"),
        {"system_prompt": "You count.", "model": "m-1", "permissions": "locked"},
    )
    said = values(plain)
    assert (said["name"], said["model"], said["permissions"]) == ("plain", "model-of-all", "standard")
    assert said["created_at"] == "2026-03-04T05:06:07Z"
    said = values(await made(service, "given", **given))
    assert {key: said[key] for key in given} == given
    profile = {"allow": ["tool:view:.*"], "ask": []}
    assert values(await made(service, "custom", permissions=profile))["permissions"] == profile


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"permissions": "nobody"}, PresetError),
        ({"permissions": {"allow": ["("]}}, PresetError),
        ({"permissions": '{"allow": '}, PresetError),
        ({"model": "a b"}, BadRequest),
        ({"model": "nobody/m"}, PyagentdError),
        ({"system_prompt": "  "}, BadRequest),
    ],
)
async def test_what_is_no_good_makes_no_agent(
    world: World, service: Service, given: dict[str, Any], error: type[PyagentdError]
) -> None:
    with pytest.raises(error):
        await made(service, **given)
    assert agents.known(world.kernel.state) == []
    assert not world.kernel.config.agents_dir.exists()


async def test_of_an_agent_that_could_not_be_made_nothing_is_left(
    world: World, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(workspace: Path, name: str) -> None:
        raise StoreError("no git")

    monkeypatch.setattr(creating, "init_repository", refuses)
    with pytest.raises(StoreError, match="no git"):
        await made(service)
    assert list(world.kernel.config.agents_dir.iterdir()) == []
    assert agents.find(world.kernel.state, "my-agent") is None


@pytest.mark.spec("003", "Creation flow 5: the agent is registered")
@pytest.mark.spec("003", "State Diagram: CREATED to IDLE")
async def test_it_is_registered_and_idle(world: World, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    register = agents.register
    monkeypatch.setattr(agents, "register", lambda state, row: (seen.append(row.status), register(state, row)))
    told = await made(service, model="m-1")
    assert seen == ["created"]
    row = agents.find(world.kernel.state, "my-agent")
    assert row is not None
    assert (row.dir, row.session_id, row.model, row.permissions) == (told["dir"], "my-agent", "m-1", "standard")
    assert (row.status, row.created_at) == ("idle", "2026-03-04T05:06:07Z")
    listed = (await service.agent_list(Watcher()))["agents"]
    assert [(each["name"], each["status"], each["branch"]) for each in listed] == [
        ("my-agent", "idle", told["branch"])
    ]


@pytest.mark.spec("003", "Creation flow 6: its conversation is opened")
@pytest.mark.spec("003", "Post-Creation State")
async def test_its_directory_is_a_session_that_answers(world: World, service: Service) -> None:
    told = await made(service)
    inside = names_in(Path(told["dir"]))
    assert inside == {"agent.json", "docs", "sessions", "workspace", "branches", "current"}
    assert names_in(Path(told["dir"]) / "sessions") == set()
    assert (await service.resolve(Watcher(), name="my-agent"))["branch"] == told["branch"]
    ref = paths.ref_of(Path(told["dir"]))
    assert (ref.session_id, ref.branch_name) == ("my-agent", "main")
    watcher = Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        world.server.say(answer("Hello from here"))
        await world.kernel.prompt(branch, text="Hello", options=world.options)
        await watcher.finished(branch)
        assert branch.conversation.session["workspace_root"] == f"{told['dir']}/workspace"
    assert "Hello from here" in body(ref)


@pytest.mark.spec("003", "Creation flow 7: it is welcomed")
async def test_the_welcome_has_prompt_and_permissions(world: World, service: Service) -> None:
    told = await made(service, system_prompt="You count sheep.", permissions="locked")
    assert "You count sheep." in told["welcome"] and "locked" in told["welcome"]
    ref = paths.ref_of(Path(told["dir"]))
    assert told["welcome"] in body(ref)
    world.server.say("None yet.")
    watcher = Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="How many?", options=world.options)
        await watcher.finished(branch)
    assert "You count sheep. Say what" not in str(world.server.last.body["messages"])
    assert body(ref).index(told["welcome"]) < body(ref).index("How many?") < body(ref).index("None yet.")


# -- taken up again -----------------------------------------------------------------------------------------------


@pytest.mark.spec("003", "Re-creation: agent.json is merged")
@pytest.mark.spec("003", "Re-creation: the workspace is preserved")
async def test_the_directory_of_a_destroyed_agent_is_taken_up_again(world: World, service: Service) -> None:
    told = await made(service, system_prompt="You count.", model="m-1")
    directory = Path(told["dir"])
    named_agents.change(directory, {"kept": 1})
    (directory / "workspace/work.txt").write_text("work")
    (directory / "docs/README.md").write_text("mine")
    head = git(directory / "workspace", "rev-parse", "HEAD")
    agents.set_status(world.kernel.state, "my-agent", "destroyed", now_ms=1)
    with pytest.raises(NotFound):
        await service.agent_config(Watcher(), name="my-agent")
    await made(service, model="m-2")
    said = values(told)
    assert (said["system_prompt"], said["model"], said["kept"]) == ("You count.", "m-2", 1)
    assert (directory / "workspace/work.txt").read_text() == "work"
    assert (directory / "docs/README.md").read_text() == "mine"
    assert git(directory / "workspace", "rev-parse", "HEAD") == head


# -- configuration ------------------------------------------------------------------------------------------------


@pytest.mark.spec("003", "Persistence: Agent configuration")
async def test_a_change_is_written_to_the_file_alone_and_audited(world: World, service: Service) -> None:
    told = await made(service)
    preset = paths.preset_file(Path(told["branch_dir"])).read_bytes()
    named_agents.change(Path(told["dir"]), {"kept": [1]})
    for key in ("model", "permissions"):
        with pytest.raises(BadRequest, match=f"The {key} is empty.*--reset"):
            await service.agent_config(Watcher(), name="my-agent", key=key, value=" ")
    changed = await service.agent_config(Watcher(), name="my-agent", key="system_prompt", value="You sing.")
    assert changed["config"]["system_prompt"] == values(told)["system_prompt"] == "You sing."
    with pytest.raises(StoreError, match=r"agent\.json would have more than 1,000,000 bytes"):
        await service.agent_config(Watcher(), name="my-agent", key="system_prompt", value="You sing." * 200_000)
    assert values(told)["kept"] == [1] and list(values(told))[:-1] == list(named_agents.KEYS)
    assert paths.preset_file(Path(told["branch_dir"])).read_bytes() == preset
    world.kernel.ledger.flush()
    entry, *_ = audit.latest(world.kernel.state, session="my-agent", limit=1)
    assert (entry.action, entry.decision) == ("agent:config:system_prompt", "allow")
    assert json.loads(entry.detail or "")["new"] == "You sing." and entry.user


async def test_a_key_is_changed_where_no_other_is_wrong(service: Service) -> None:
    told = await made(service)
    named_agents.change(Path(told["dir"]), {"created_at": 5})
    with pytest.raises(PresetError, match="created_at"):
        await service.agent_config(Watcher(), name="my-agent", key="system_prompt", value="You sing.")
    assert values(told)["system_prompt"] != "You sing.", "what is refused is not done"
    named_agents.change(Path(told["dir"]), {"created_at": None, "permissions": 5})
    await service.agent_config(Watcher(), name="my-agent", key="permissions", value="standard")
    assert values(told)["permissions"] == "standard"


async def test_a_file_that_cannot_be_read_stops_the_agent_and_says_where(world: World, service: Service) -> None:
    told = await made(service)
    ref, file = paths.ref_of(Path(told["dir"])), Path(told["dir"]) / "agent.json"
    other = file.read_text().replace('"standard"', "3")
    for wrong, said in (("{\n oops", "agent.json:2"), ("[]", "not a JSON object"), (other, "permissions")):
        file.write_text(wrong)
        with pytest.raises(PresetError, match=said):
            world.kernel.presets.of_branch(ref)
    file.unlink()
    with pytest.raises(PresetError, match="missing"):
        world.kernel.presets.of_branch(ref)
    (listed,) = (await service.agent_list(Watcher()))["agents"]
    assert listed["branch"] == told["branch"] and "agent.json" in listed["error"]


async def test_what_the_file_says_counts_from_the_next_request_on(world: World, service: Service) -> None:
    told = await made(service, system_prompt="You count.")
    ref, watcher = paths.ref_of(Path(told["dir"])), Watcher()
    (Path(told["dir"]) / "workspace/a.txt").write_text("content")

    def changing(request: Any) -> Any:
        named_agents.change(Path(told["dir"]), {"system_prompt": "You sing.", "model": "model-two"})
        (Path(told["dir"]) / "docs/more.md").write_text("Remember the sheep.")
        return answer(tool_use("Read", file_path="a.txt"))

    world.server.say(changing)
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hello", options=world.options)
        await watcher.finished(branch)
    first, second = (request.body for request in world.server.requests)
    assert "You count." in str(first["system"]) and "sheep" not in str(first["system"])
    assert "You sing." in str(second["system"]) and "Remember the sheep." in str(second["system"])
    assert (first["model"], second["model"]) == ("model-main", "model-two")


async def test_its_permissions_are_its_profile(world: World, service: Service) -> None:
    told = await made(service, permissions="locked")
    ref, watcher = paths.ref_of(Path(told["dir"])), Watcher()
    world.server.say(answer("Nothing to do"))
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hello", options=world.options)
        await watcher.finished(branch)
    names = {tool["name"] for tool in world.server.last.body["tools"]}
    assert "Read" in names and not names & {"Write", "Edit", "Bash"}


async def test_only_its_workspace_is_its_own(world: World, service: Service) -> None:
    told = await made(service)
    ref, directory = paths.ref_of(Path(told["dir"])), Path(told["dir"])
    protected = protected_paths(world.kernel.config)
    for name in ("agent.json", "docs/README.md", "sessions/a.json", "branches/main/preset.md"):
        assert first_match(protected, str(directory / name)), name
    assert first_match(protected, str(directory / "workspace/agent.json")) is None
    scope = shell_scope(world.kernel.presets, ref, (), world.kernel.config, directory)()
    assert f"{directory}/workspace/**" in scope.write
    assert str(directory / "agent.json") in scope.protected and str(directory) not in scope.protected


# -- another name -------------------------------------------------------------------------------------------------


async def test_another_name_takes_everything_along(world: World, service: Service) -> None:
    told = await made(service)
    old = Path(told["dir"])
    async with world.kernel.using(paths.ref_of(old)) as branch:
        watcher = Watcher()
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hello", options=world.options)
        await watcher.finished(branch)
    with pytest.raises(BadRequest, match="'' is not a name"):
        await service.agent_config(Watcher(), name="my-agent", key="name", value="")
    renamed = await service.agent_config(Watcher(), name="my-agent", key="name", value="other")
    new = old.with_name("other")
    assert (renamed["dir"], renamed["session_id"], old.name in names_in(old.parent)) == (str(new), "other", False)
    assert values(renamed)["name"] == "other"
    ref = paths.ref_of(new)
    assert watcher.of("deleted")[-1].args == ({"to": str(paths.session_file(ref.branch_dir))},)
    assert metadata.read_session_metadata(ref.branch_dir)["session_id"] == "other"  # type: ignore[index]
    assert str(old) not in presetfile.read(paths.preset_file(ref.branch_dir)).text
    assert "Hello" in body(ref)
    async with world.kernel.using(ref) as branch:
        assert branch.conversation.session["workspace_root"] == str(new / "workspace")
    assert [row.name for row in agents.known(world.kernel.state)] == ["other"]
    with pytest.raises(NotFound):
        await service.agent_config(Watcher(), name="my-agent")
    await made(service)
    with pytest.raises(Conflict):
        await service.agent_rename(Watcher(), name="my-agent", new_name="other")


@pytest.mark.parametrize(("broken", "line"), [("{bad\n", 1), ('{"name": "my-agent",\n "model": 7}\n', 2)])
async def test_an_agent_whose_file_cannot_be_read_keeps_its_name(service: Service, broken: str, line: int) -> None:
    file = Path((await made(service))["dir"]) / "agent.json"
    before = file.read_text("utf-8")
    file.write_text(broken, "utf-8")
    with pytest.raises(PresetError) as refused:
        await service.agent_rename(Watcher(), name="my-agent", new_name="other")
    assert f"{file}:{line}" in refused.value.message
    file.write_text(before, "utf-8")
    assert (await service.agent_rename(Watcher(), name="my-agent", new_name="other"))["session_id"] == "other"


def test_a_link_among_the_agents_leaves_the_others_protected(tmp_path: Path) -> None:
    (tmp_path / "bob").mkdir()
    (tmp_path / "link").symlink_to("x" * 300)  # no disk has such a name
    assert tmp_path / "bob" / "agent.json" in named_agents.decisive_places(tmp_path)


async def test_presets_that_are_not_text_and_other_files_of_that_name_keep_no_agent_from_another_name(
    service: Service,
) -> None:
    ref = paths.ref_of(Path((await made(service))["dir"]))
    (paths.files_dir(ref.branch_dir) / "preset.md").mkdir(parents=True)
    agent = paths.agents_dir(ref.branch_dir) / "one"
    agent.mkdir(parents=True)
    (agent / "session.md").touch()
    paths.preset_file(agent).write_bytes(b"\xff\xfe %s/docs" % os.fsencode(ref.session_dir))
    renamed = await service.agent_rename(Watcher(), name="my-agent", new_name="other")
    moved = paths.preset_file(paths.agents_dir(Path(renamed["branch_dir"])) / "one")
    assert moved.read_bytes() == b"\xff\xfe %s/docs" % os.fsencode(renamed["dir"])


async def test_what_breaks_while_an_agent_moves_brings_it_back(
    world: World, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Path((await made(service))["dir"])

    def breaks(kernel: object, old: Path, new: Path) -> None:
        (new / "agent.json").write_text("{bad\n", "utf-8")
        raise StoreError("The disk is full")

    monkeypatch.setattr(creating, "adapt", breaks)
    with pytest.raises(PyagentdError):
        await service.agent_rename(Watcher(), name="my-agent", new_name="other")
    assert names_in(place.parent) == {"my-agent"}


# -- as a session ---------------------------------------------------------------------------------------------------


async def test_a_named_agent_is_destroyed_and_not_deleted(service: Service) -> None:
    told = await made(service)
    with pytest.raises(BadRequest, match="named agent") as refused:
        await service.delete(Watcher(), branch=told["branch"])
    assert "pyagentd agent destroy my-agent" in (refused.value.hint or "")
    assert (await service.agent_list(Watcher()))["agents"]
    assert "agent rename my-agent" in (await service.rename(Watcher(), branch=told["branch"], title="Mine"))["note"]
    assert "not copied" in (await service.duplicate(Watcher(), branch=told["branch"]))["note"]


# -- what a mistake is told -----------------------------------------------------------------------------------------


async def test_no_two_names_differ_in_case_alone(service: Service) -> None:
    await made(service, "bob")
    with pytest.raises(Conflict, match="case alone"):
        await made(service, "Bob")
    await made(service, "eve")
    with pytest.raises(Conflict, match="case alone"):
        await service.agent_rename(Watcher(), name="eve", new_name="BOB")


async def test_a_profile_that_there_is_not_is_told_with_those_there_are(service: Service) -> None:
    with pytest.raises(PresetError) as refused:
        await made(service, permissions="foo")
    assert (refused.value.message, "locked, open, standard" in refused.value.hint) == (
        "There is no profile 'foo'",
        True,
    )


async def test_a_name_does_not_begin_with_a_hyphen(service: Service) -> None:
    with pytest.raises(BadRequest, match="no hyphen first"):
        await made(service, "-x")


async def test_whoever_asks_for_an_agent_that_is_gone_is_told(service: Service) -> None:
    await made(service, "bob")
    await service.agent_destroy(Watcher(), name="bob", keep_files=True, confirmed=True)
    with pytest.raises(NotFound, match="The agent bob was destroyed"):
        await service.agent_config(Watcher(), name="bob")
    with pytest.raises(NotFound, match="no agent called 'nobody'"):
        await service.context_history(Watcher(), agent="nobody")
    assert (await service.context_history(Watcher(), agent="bob"))["contexts"] == []


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (5, "5 seconds"),
        (1, "1 second"),
        (60, "1 minute"),
        (90, "90 seconds"),
        (1800, "30 minutes"),
        (7200, "2 hours"),
    ],
)
def test_spans_are_told_as_they_are(seconds: float, told: str) -> None:
    assert span(seconds) == told
