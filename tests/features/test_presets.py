"""Where presets come from, whose a project's are, and what is said of broken ones."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pyagentd.config import load_config
from pyagentd.errors import BadRequest, PresetError, PyagentdError
from pyagentd.policy.profiles import make_profile
from pyagentd.runtime.grants import TRUST, KeptSet, preset_hash
from pyagentd.runtime.presets import Presets, configured_profiles
from pyagentd.store.db.state import State
from pyagentd.store.document.text import body_sha256
from tests.api.test_service import Watcher, env
from tests.runtime.world import World
from tests.server import answer, tool_use

GOOD = "---\ndescription: {0}.\nbackend: Claude\nmodel: m\n{1}---\nBody of {0}\n"


def put(directory: Path, name: str, said: str = "", more: str = "") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{name}.md"
    file.write_text(GOOD.format(said or name, more))
    return file


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    put(tmp_path / "shipped", "explorer", "shipped")
    put(tmp_path / "shipped", "planner", "shipped")
    return tmp_path / "shipped"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def of(project: Path) -> Path:
    return project / ".pyagentd" / "presets"


def makes(tmp_path: Path, trust: KeptSet | None = None) -> Presets:
    return Presets((tmp_path / "shipped", tmp_path / "user"), trust=trust)


def described(presets: Presets, root: Path | None) -> dict[str, str]:
    found = presets.for_project(root)
    return {name: found.template(name)[0].description for name in found.usable}


# -- which one counts --------------------------------------------------------------------------------------------


def test_the_users_directory_wins_over_what_is_shipped(tmp_path: Path, shipped: Path) -> None:
    put(tmp_path / "user", "explorer", "mine")
    assert described(makes(tmp_path), None) == {"explorer": "mine.", "planner": "shipped."}


def test_a_trusted_projects_wins_over_both_and_for_that_project_alone(
    tmp_path: Path, shipped: Path, project: Path
) -> None:
    put(tmp_path / "user", "explorer", "mine")
    put(of(project), "explorer", "theirs")
    put(of(project), "reviewer", "theirs")
    presets = makes(tmp_path)
    assert described(presets, project) == {"explorer": "mine.", "planner": "shipped."}
    presets.trust.add(template.hash or "" for template in presets.for_project(project).found)
    assert described(presets, project) == {"explorer": "theirs.", "planner": "shipped.", "reviewer": "theirs."}
    assert described(presets, None) == {"explorer": "mine.", "planner": "shipped."}
    (tmp_path / "other").mkdir()
    assert described(presets, tmp_path / "other") == {"explorer": "mine.", "planner": "shipped."}


def test_an_untrusted_preset_cannot_be_used_and_the_error_says_how_it_can(
    tmp_path: Path, shipped: Path, project: Path
) -> None:
    put(of(project), "reviewer")
    with pytest.raises(PresetError, match="you have not said that you trust it") as caught:
        makes(tmp_path).for_project(project).template("reviewer")
    assert "pyagentd presets --trust" in caught.value.hint
    assert "reviewer" not in makes(tmp_path).for_project(project).for_agents()
    with pytest.raises(PresetError, match="There is no preset 'nobody'"):
        makes(tmp_path).for_project(project).template("nobody")


def test_trust_is_for_this_content_under_this_name(tmp_path: Path, shipped: Path, project: Path) -> None:
    file = put(of(project), "reviewer", "harmless")
    presets = makes(tmp_path)
    presets.trust.add([preset_hash("reviewer", file.read_bytes())])
    assert "reviewer" in described(presets, project)
    (of(project) / "explorer.md").write_bytes(file.read_bytes())
    assert described(presets, project)["explorer"] == "shipped.", "the same text must not become another preset"
    put(of(project), "reviewer", "changed")
    assert "reviewer" not in described(presets, project)
    put(of(project), "reviewer", "harmless")
    assert "reviewer" in described(presets, project), "once per content: it is the same again"


@pytest.mark.parametrize("word", ["./tools/s.py", "${root}/tools/s.py"])
async def test_what_a_presets_servers_run_of_the_project_is_trusted_with_it(world: World, word: str) -> None:
    script = world.project / "tools/s.py"
    script.parent.mkdir()
    script.write_text("harmless()")
    put(of(world.project), "served", "", f'mcp: {{own: {{command: [python, "{word}"]}}}}\n')
    service, client, root = world.service(), Watcher(), str(world.project)
    (found,) = (await service.presets(client, root=root))["untrusted"]
    assert found["text"].endswith(f"--- {script}\nharmless()")
    await service.trust_presets(client, root=root, hashes=[found["hash"]])
    assert "served" in world.kernel.presets.for_project(world.project).usable
    script.write_text("other()")
    assert "served" not in world.kernel.presets.for_project(world.project).usable


def test_what_is_used_is_what_was_looked_at(tmp_path: Path, shipped: Path, project: Path) -> None:
    file = put(of(project), "reviewer", "harmless")
    presets = makes(tmp_path)
    presets.trust.add([preset_hash("reviewer", file.read_bytes())])
    found = presets.for_project(project)
    put(of(project), "reviewer", "swapped since", "paths:\n  read: ['/**']\n")
    preset, text = found.template("reviewer")
    assert preset.description == "harmless." and "swapped" not in text and preset.paths.read == ()


def test_trust_outlives_the_daemon_and_not_its_database(tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    root.mkdir()
    state = State(root)
    KeptSet(state, TRUST).add(["a", "b"])
    state.close()
    again = State(root)
    kept = KeptSet(again, TRUST)
    assert "a" in kept and "b" in kept and "c" not in kept
    kept.add(["c"])
    assert "c" in KeptSet(again, TRUST) and "a" in KeptSet(again, TRUST)
    again.close()
    (root / "state.db").unlink()
    lost = State(root)
    assert "a" not in KeptSet(lost, TRUST)
    lost.close()


@pytest.mark.parametrize("kind", ["directory", "fifo", "dangling", "huge", "hidden", "text"])
def test_what_is_no_preset_in_a_project_is_passed_over(
    tmp_path: Path, shipped: Path, project: Path, kind: str
) -> None:
    put(of(project), "good")
    odd = of(project) / {"hidden": ".odd.md", "text": "odd.txt"}.get(kind, "odd.md")
    match kind:
        case "directory":
            odd.mkdir()
        case "fifo":
            os.mkfifo(odd)
        case "dangling":
            odd.symlink_to("nowhere.md")
        case "huge":
            odd.write_bytes(b"x" * 1_000_001)
        case _:
            odd.write_text(GOOD.format("odd", ""))
    names = {template.name for template in makes(tmp_path).for_project(project).found}
    assert names == {"explorer", "planner", "good"}


# -- broken ones ---------------------------------------------------------------------------------------------------


def test_a_broken_preset_is_told_with_file_line_and_cause_and_hides_no_other(
    tmp_path: Path, shipped: Path, project: Path
) -> None:
    put(tmp_path / "user", "wrong", more="temperature: hot\n")
    (tmp_path / "user" / "torn.md").write_text("---\ntools: [\n---\n")
    (tmp_path / "user" / "bytes.md").write_bytes(b"---\nbackend: \xff\n---\n")
    put(of(project), "theirs", more="profile: lockd\n")
    presets = makes(tmp_path)
    found, broken = presets.for_project(project), {}
    for template in found.found:
        try:
            found.read(template)
        except PyagentdError as error:
            broken[template.name] = str(error)
    assert set(broken) == {"wrong", "torn", "bytes", "theirs"}
    assert f"{tmp_path}/user/wrong.md:5: `temperature` is 'hot'" in broken["wrong"]
    assert f"{tmp_path}/user/torn.md:" in broken["torn"]
    assert f"{tmp_path}/user/bytes.md:2: this is not UTF-8" in broken["bytes"]
    assert f"{project}/.pyagentd/presets/theirs.md:5: `profile` is 'lockd'" in broken["theirs"]
    assert set(presets.for_project(project).for_agents()) == {"explorer", "planner"}
    assert presets.template("explorer")[0].description == "shipped."
    with pytest.raises(PresetError, match=r"wrong\.md:5"):
        presets.template("wrong")
    with pytest.raises(PresetError, match=r"theirs\.md:5"):  # and not that it is not trusted
        presets.for_project(project).template("theirs")


def test_a_broken_override_is_an_error_and_not_the_one_it_overrides(tmp_path: Path, shipped: Path) -> None:
    put(tmp_path / "user", "explorer", more="paths: nonsense\n")
    with pytest.raises(PresetError, match=r"explorer\.md:5"):
        makes(tmp_path).template("explorer")


# -- profiles ------------------------------------------------------------------------------------------------------


def test_a_preset_may_name_a_profile_of_the_users_own(tmp_path: Path, shipped: Path) -> None:
    (tmp_path / "config.toml").write_text('[profile.docs]\nallow = ["tool:view:.*"]\n')
    config = load_config({"PYAGENTD_CONFIG": str(tmp_path / "config.toml")})
    file = put(tmp_path / "user", "writer", more="profile: docs\n")
    presets = Presets((shipped, tmp_path / "user"), profiles=configured_profiles(config))
    assert presets.read(file, "writer").profile == make_profile("docs", allow=["tool:view:.*"])
    with pytest.raises(PresetError, match="`profile` is 'docs'"):
        Presets((shipped, tmp_path / "user")).read(file, "writer")


# -- operations ----------------------------------------------------------------------------------------------------


async def test_presets_of_a_project_are_trusted_by_their_hash(world: World) -> None:
    service, client = world.service(), Watcher()
    put(of(world.project), "reviewer", more="tools: [Read]\n")
    answer = await service.presets(client, root=str(world.project))
    assert "reviewer" not in [each["name"] for each in answer["presets"]]
    (waiting,) = answer["untrusted"]
    assert (waiting["name"], waiting["origin"], waiting["description"]) == ("reviewer", "project", "reviewer.")
    assert "Body of reviewer" in waiting["text"]
    with pytest.raises(PresetError, match="trust"):
        await service.create_session(client, name="x", preset="reviewer", root=str(world.project))
    given = await service.trust_presets(client, root=str(world.project), hashes=[waiting["hash"]])
    assert given == {"trusted": ["reviewer"]}
    answer = await service.presets(client, root=str(world.project))
    assert answer["untrusted"] == []
    (row,) = [each for each in answer["presets"] if each["name"] == "reviewer"]
    assert row["hash"] == waiting["hash"] and "text" not in row
    assert "reviewer" not in [each["name"] for each in (await service.presets(client))["presets"]]
    made = await service.create_session(client, name="x", preset="reviewer", root=str(world.project))
    assert "Body of reviewer" in (Path(made["branch_dir"]) / "preset.md").read_text()


async def test_a_project_full_of_presets_still_fits_an_answer(world: World) -> None:
    for number in range(150):
        put(of(world.project), f"p{number:03}", "x" * 20_000)
    answer = await world.service().presets(Watcher(), root=str(world.project))
    assert len(answer["untrusted"]) == 100
    assert 5 <= sum("text" in row for row in answer["untrusted"]) <= 15
    assert len(json.dumps(answer)) < 512 * 1024


async def test_what_changed_since_or_is_broken_is_not_trusted(world: World) -> None:
    service, client = world.service(), Watcher()
    put(of(world.project), "reviewer")
    (waiting,) = (await service.presets(client, root=str(world.project)))["untrusted"]
    put(of(world.project), "reviewer", "swapped")
    with pytest.raises(BadRequest, match="has no preset with the hash"):
        await service.trust_presets(client, root=str(world.project), hashes=[waiting["hash"]])
    put(of(world.project), "reviewer", more="temperature: hot\n")
    (waiting,) = (await service.presets(client, root=str(world.project)))["untrusted"]
    assert "reviewer.md:5" in waiting["error"]
    with pytest.raises(PresetError, match=r"reviewer\.md:5"):
        await service.trust_presets(client, root=str(world.project), hashes=[waiting["hash"]])
    assert len((await service.presets(client, root=str(world.project)))["untrusted"]) == 1


# -- what the model is told --------------------------------------------------------------------------------------


async def tools_told(world: World, branch: str) -> dict[str, dict[str, Any]]:
    service, client = world.service(), Watcher()
    await service.attach(client, branch=branch, sha256=body_sha256(""))
    await service.prompt(client, branch=branch, text="Hi", env=env(world))
    await client.finished(branch)
    await service.detach(client, branch=branch)
    return {tool["name"]: tool for tool in world.server.last.body["tools"]}


async def test_agents_are_offered_from_the_presets_of_the_sessions_project(world: World) -> None:
    put(of(world.project), "reviewer", "Finds faults")
    put(of(world.project), "broken", more="temperature: hot\n")
    service, client = world.service(), Watcher()
    (waiting,) = [
        each for each in (await service.presets(client, root=str(world.project)))["untrusted"] if "error" not in each
    ]
    made = await service.create_session(client, name="x", preset="main", root=str(world.project))
    spawn = (await tools_told(world, made["branch"]))["PersistentAgent"]
    assert spawn["input_schema"]["properties"]["preset"]["enum"] == ["main"]
    assert "Finds faults" not in spawn["description"], "nobody agreed to have the model told that"
    await service.trust_presets(client, root=str(world.project), hashes=[waiting["hash"]])
    made = await service.create_session(client, name="y", preset="main", root=str(world.project))
    spawn = (await tools_told(world, made["branch"]))["PersistentAgent"]
    assert spawn["input_schema"]["properties"]["preset"]["enum"] == ["main", "reviewer"]
    assert "- reviewer: Finds faults." in spawn["description"]


async def test_tools_that_the_profile_denies_altogether_are_not_offered(world: World) -> None:
    world.preset("looker", tools="Read, Write, Glob, Bash, PersistentAgent]\nprofile: locked\nmore: [x")
    made = await world.service().create_session(Watcher(), name="x", preset="looker", root=str(world.project))
    assert list(await tools_told(world, made["branch"])) == ["Read", "Glob", "PersistentAgent"]


async def test_a_search_finds_what_the_profile_lets_be_viewed(world: World) -> None:
    for name in ("docs/a.md", "src/b.py"):
        (world.project / name).parent.mkdir(exist_ok=True)
        (world.project / name).write_text("needle\n")
    allowed = r'["tool:view:\\.", "tool:view:docs/.*"]'
    world.preset("looker", tools=f"Grep]\nprofile: {{allow: {allowed}}}\nmore: [x")
    made = await world.service().create_session(Watcher(), name="x", preset="looker", root=str(world.project))
    world.server.say(answer(tool_use("Grep", pattern="needle")), "Done")
    await tools_told(world, made["branch"])
    (result,) = world.server.last.messages[-1]["content"]
    assert "docs/a.md" in str(result) and "src/b.py" not in str(result)


async def test_a_named_profile_satisfies_the_wish_to_be_confirmed_and_asks_for_the_rest(world: World) -> None:
    world.preset("careful", tools="Write, Bash]\nprofile: standard\nmore: [x")
    service, client = world.service(), Watcher()
    made = await service.create_session(client, name="x", preset="careful", root=str(world.project))
    await service.attach(client, branch=made["branch"], sha256=body_sha256(""))
    world.server.say(
        answer(tool_use("Write", file_path="new.txt", content="written")),
        answer(tool_use("Bash", command="true")),
        ".",
    )
    await service.prompt(client, branch=made["branch"], text="Go", env=env(world))
    await client.until(lambda: client.of("ask"))
    (ask,) = (await service.asks(client))["asks"]
    assert ask["tool"] == "Bash" and "'standard' asks" in ask["reason"]
    assert (world.project / "new.txt").read_text() == "written"
    await service.answer(client, ask=ask["id"], decision="deny")
    await client.finished(made["branch"])
    await service.detach(client, branch=made["branch"])


async def test_an_agent_has_no_tool_that_a_session_above_it_may_not_use(world: World) -> None:
    world.preset("boss", tools="PersistentAgent, Read]\nprofile: locked\nmore: [x")
    world.preset("worker", tools="Read, Write, Bash")
    service, client = world.service(), Watcher()
    made = await service.create_session(client, name="x", preset="boss", root=str(world.project))
    await service.attach(client, branch=made["branch"], sha256=body_sha256(""))
    spawn = tool_use("PersistentAgent", preset="worker", description="Write it", prompt="Write x")
    world.server.say(answer(spawn), answer(tool_use("Write", file_path="x", content="x")), "I could not", "End")
    allow = ["tool:PersistentAgent:.*"]
    await service.prompt(client, branch=made["branch"], text="Go", env=env(world), allow=allow)
    await client.finished(made["branch"])
    await service.detach(client, branch=made["branch"])
    told = [[tool["name"] for tool in request.body["tools"]] for request in world.server.requests]
    assert told == [["PersistentAgent", "Read"], ["Read"], ["Read"], ["PersistentAgent", "Read"]]
    assert not (world.project / "x").exists()


async def test_a_preset_that_names_what_is_not_there_is_told_with_a_warning(world: World) -> None:
    put(of(world.project), "odd", more="tools: [Read, Telepathy]\npath: {}\n")
    (row,) = (await world.service().presets(Watcher(), root=str(world.project)))["untrusted"]
    assert "error" not in row and "no tool Telepathy" in row["warning"]
    assert "`path` is not a key; is `paths` meant?" in row["warning"]


async def test_what_is_misspelt_in_a_preset_is_said_when_its_session_begins(world: World) -> None:
    service, client = world.service(), Watcher()
    world.preset("main", tools="Raed, Glob, emacs, request_wakeup]\npath: [")
    made = await service.create_session(client, name="x", preset="main", root=str(world.project))
    file = Path(made["branch_dir"], "preset.md")
    tools, path = made["notes"][1], made["notes"][0]
    assert tools.startswith(f"{file}:") and tools.endswith("there is no tool Raed; is `Read` meant?")
    assert path.endswith("`path` is not a key; is `paths` meant?") and len(made["notes"]) == 2
    attached = await service.attach(client, branch=made["branch"], sha256=body_sha256(""))
    assert set(made["notes"]) <= set(attached["notes"])
    world.server.say("Done.")
    await service.prompt(client, branch=made["branch"], text="Go", env=env(world))
    await client.finished(made["branch"])
    again = await service.attach(client, branch=made["branch"])
    assert set(made["notes"]).isdisjoint(again["notes"])
