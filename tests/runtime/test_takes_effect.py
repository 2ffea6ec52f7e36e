"""What is changed between two prompts of a conversation holds for the next request and its tool calls."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyagentd.features import named_agents as creating
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.settings import SendOptions
from pyagentd.runtime.system_prompt import renew_workplace
from pyagentd.store import paths, sessions
from pyagentd.store.paths import BranchRef
from tests.features.test_emacs import SHOUT, Emacs
from tests.features.test_mcp_project import SERVER
from tests.features.test_mcp_project import write as write_servers
from tests.runtime.test_approvals import results
from tests.runtime.test_origins import EVIL
from tests.runtime.world import FixedClock, World, attached
from tests.server import ModelServer, answer, tool_use


class Warm:
    """A conversation that has answered a prompt; ``next`` gives it another one."""

    def __init__(self, world: World, branch: LiveBranch) -> None:
        self.world, self.branch, self.service = world, branch, world.service()
        self.emacs = Emacs(world, lambda what, facts: {})
        self.preset = paths.preset_file(branch.ref.branch_dir)
        self.options: SendOptions = replace(world.options, interactive=False)

    async def next(self, *calls: Any, **metadata: Any) -> Warm:
        """Have the next prompt answered, with these tool calls."""
        self.world.server.say(*([answer(*calls)] if calls else []), "Yes.")
        await self.world.kernel.prompt(
            self.branch, text="And now?", options=self.options, metadata={"origin": "client", **metadata}
        )
        assert (await self.emacs.finished(self.branch))["reason"] == "done"
        return self

    @property
    def body(self) -> dict[str, Any]:
        """The last request."""
        found: dict[str, Any] = self.world.server.last.body
        return found

    @property
    def system(self) -> str:
        return str(self.body["system"])

    @property
    def tools(self) -> dict[str, str]:
        return {tool["name"]: json.dumps(tool) for tool in self.body["tools"]}

    async def told(self, *calls: Any) -> str:
        """Return what the model is told of its call."""
        return results((await self.next(*calls)).world.server.last)[-1]

    def change(self, old: str, new: str, file: Path | None = None) -> None:
        """Edit the preset of the session, or another file."""
        file = file or self.preset
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))


@asynccontextmanager
async def warm(world: World, ref: BranchRef | None = None, **preset: str) -> AsyncIterator[Warm]:
    world.preset("main", **preset)
    async with world.kernel.using(ref or world.session()) as branch:
        if ref is None:
            branch.record_session(workspace_root=world.project)
        talk = Warm(world, branch)
        await attached(branch, talk.emacs)
        yield await talk.next()


def read(file: Path) -> Any:
    return tool_use("Read", file_path=str(file))


async def test_the_model_and_the_system_message_of_the_preset(world: World) -> None:
    async with warm(world) as talk:
        assert talk.body["model"] == "model-main"
        talk.change("model-main", "model-other")
        assert (await talk.next()).body["model"] == "model-other"
        talk.preset.write_text(talk.preset.read_text() + "\nAlways answer in rhymes.\n")
        assert "Always answer in rhymes." in (await talk.next()).system
        talk.change("temperature: 0.5", "temperature: 0.25")
        assert (await talk.next()).body["temperature"] == 0.25
        talk.change("temperature: 0.25", "max-tokens: 77")
        assert (await talk.next()).body["max_tokens"] == 77


async def test_what_did_not_change_is_not_made_anew(world: World) -> None:
    async with warm(world, tools="Read, Write") as talk:
        plan, tools = talk.branch.plan, talk.tools
        assert (await talk.next()).tools == tools and talk.branch.plan is plan is not None
        talk.preset.write_text(talk.preset.read_text())
        assert (await talk.next()).tools == tools and talk.branch.plan is plan


async def test_the_tools_of_the_preset_and_what_its_profile_denies(world: World) -> None:
    async with warm(world, tools="Read, Write") as talk:
        assert set(talk.tools) == {"Read", "Write"}
        talk.change("[Read, Write]", "[Read, Write, Bash, Glob]")
        assert set((await talk.next()).tools) == {"Read", "Write", "Bash", "Glob", "TaskOutput", "KillTask"}
        talk.change("temperature: 0.5", "temperature: 0.5\nread-only: true")
        assert set((await talk.next()).tools) == {"Read", "Glob"}
        talk.change("read-only: true", "profile: locked")
        assert "Write" not in (await talk.next()).tools
        talk.change("profile: locked", "profile: open")
        assert "Write" in (await talk.next()).tools


async def test_the_scope(world: World) -> None:
    outside = world.home / "elsewhere" / "notes.txt"
    outside.parent.mkdir()
    outside.write_text("alpha")
    async with warm(world, tools="Read, Bash") as talk:
        assert "outside" in await talk.told(read(outside))
        talk.change("  read: [", f'  read: ["{outside.parent}/**", ')
        assert "alpha" in await talk.told(read(outside))
        talk.change("  read: [", f'  deny: ["{outside}"]\n  read: [')
        assert "alpha" not in await talk.told(read(outside))
        assert "beta" in await talk.told(tool_use("Bash", command="echo beta"))
        talk.change('  allow: ["*"]', '  allow: ["ls"]')
        assert "beta" not in await talk.told(tool_use("Bash", command="echo beta"))


async def test_the_scope_of_a_session_above(world: World) -> None:
    secret = world.project / "secret.txt"
    secret.write_text("alpha")
    world.preset("main", tools="Read, PersistentAgent")
    world.preset("helper", tools="Read, Write")
    above = world.session()
    async with world.kernel.using(above) as parent:
        parent.record_session(workspace_root=world.project)
        watching = Emacs(world, lambda what, facts: {})
        await attached(parent, watching)
        world.server.say(
            answer(tool_use("PersistentAgent", preset="helper", description="Look", prompt="Look.")), "It.", "Done."
        )
        await world.kernel.prompt(parent, text="Go.", options=world.granted("tool:.*"))
        await watching.finished(parent)
    (place,) = paths.agents_dir(above.branch_dir).iterdir()
    async with warm(world, paths.ref_of(place), tools="Read, PersistentAgent") as talk:
        assert "alpha" in await talk.told(read(secret)) and "Write" in talk.tools
        talk.change("  read: [", f'  deny: ["{secret}"]\n  read: [', paths.preset_file(above.branch_dir))
        assert "alpha" not in await talk.told(read(secret))
        talk.change("temperature: 0.5", "read-only: true", paths.preset_file(above.branch_dir))
        assert "Write" not in (await talk.next()).tools


async def test_the_presets_that_an_agent_can_have(world: World) -> None:
    world.preset("helper")
    async with warm(world) as talk:
        assert "helper" in talk.tools["PersistentAgent"] and "reviewer" not in talk.tools["PersistentAgent"]
        world.preset("reviewer")
        assert "reviewer" in (await talk.next()).tools["PersistentAgent"]
        (world.presets / "reviewer.md").unlink()
        assert "reviewer" not in (await talk.next()).tools["PersistentAgent"]


async def test_the_presets_of_a_project_once_they_are_trusted(world: World) -> None:
    async with warm(world) as talk:
        place = world.project / ".pyagentd" / "presets"
        place.mkdir(parents=True)
        (place / "local.md").write_text((world.presets / "main.md").read_text())
        assert '"local"' not in (await talk.next()).tools["PersistentAgent"]
        root = str(world.project)
        found = await talk.service.presets(talk.emacs, root=root)
        hashes = [row["hash"] for row in found["untrusted"]]
        await talk.service.trust_presets(talk.emacs, root=root, hashes=hashes)
        assert '"local"' in (await talk.next()).tools["PersistentAgent"]
        (place / "local.md").write_text((world.presets / "main.md").read_text() + "More.")
        assert '"local"' not in (await talk.next()).tools["PersistentAgent"]


async def test_the_agent_and_the_model_that_a_message_names(world: World) -> None:
    world.preset("reviewer", model="model-reviewer", tools="Read")
    async with warm(world, tools="Read, Write") as talk:
        await talk.next(agent="reviewer")
        assert talk.body["model"] == "model-reviewer" and "You are reviewer." in talk.system
        assert set((await talk.next()).tools) == {"Read"}
        world.preset("reviewer", model="model-reviewer", tools="Read, Glob")
        assert set((await talk.next()).tools) == {"Read", "Glob"}
        await talk.next(model={"model_id": "model-named"})
        assert talk.body["model"] == "model-named" and "Model: model-named" in talk.system
        await talk.next(agent="main")
        assert talk.body["model"] == "model-main" and set(talk.tools) == {"Read", "Write"}


async def test_what_the_document_sets(world: World) -> None:
    async with warm(world, tools="Read, Write") as talk:
        file = paths.session_file(talk.branch.ref.branch_dir)
        talk.change("gptel-model: model-main", "gptel-model: model-of-the-document", file)
        assert (await talk.next()).body["model"] == "model-of-the-document"
        talk.change("gptel-temperature: 0.5", "gptel-temperature: 0.75", file)
        assert (await talk.next()).body["temperature"] == 0.75
        talk.change("gptel-model: model-of-the-document", "gptel-model: model-main", file)
        assert (await talk.next()).body["model"] == "model-main" and talk.body["temperature"] == 0.75


async def test_what_the_client_brings(world: World) -> None:
    async with warm(world, tools="Read") as talk:
        with ModelServer() as other:
            other.say("From elsewhere.")
            talk.options = replace(talk.options, env={**talk.options.env, "ANTHROPIC_BASE_URL": other.url})
            await world.kernel.prompt(talk.branch, text="And now?", options=talk.options)
            await talk.emacs.finished(talk.branch)
            assert other.last.body["model"] == "model-main"
        talk.options = world.options
        await talk.next()
        talk.options = replace(talk.options, env={**talk.options.env, "PYAGENTD_BACKEND": "offline"})
        before = len(world.server.requests)
        await world.kernel.prompt(talk.branch, text="And now?", options=talk.options)
        await talk.emacs.finished(talk.branch)
        assert len(world.server.requests) == before


async def test_what_people_granted(world: World) -> None:
    command = tool_use("Bash", command="expr 40 + 2")
    async with warm(world, tools="Bash") as talk:
        talk.change("temperature: 0.5", "profile: standard")
        assert "42" not in await talk.told(command)
        talk.options = replace(world.granted("tool:Bash:expr .*"), interactive=False)
        assert "42" in await talk.told(command)
        talk.options = replace(world.options, interactive=False)
        assert "42" not in await talk.told(command)
        for kind in ("session", "project"):
            place = talk.branch.ref, world.project
            await world.kernel.grants.remember(kind, *place, ["tool:Bash:expr .*"], ask="", by="")
            assert "42" in await talk.told(command)
            await world.kernel.grants.revoke(*place, "tool:Bash:expr .*")
            assert "42" not in await talk.told(command)


async def test_the_tools_that_emacs_offers(world: World) -> None:
    async with warm(world, tools="Read, emacs") as talk:
        assert set(talk.tools) == {"Read"}
        await talk.emacs.offer(SHOUT)
        assert set((await talk.next()).tools) == {"Read", "shout"}
        await talk.emacs.offer({**SHOUT, "description": "Whisper"}, {**SHOUT, "name": "sing"})
        assert set((await talk.next()).tools) == {"Read", "shout", "sing"} and "Whisper" in talk.tools["shout"]
        await talk.emacs.offer({**SHOUT, "name": "sing"})
        assert set((await talk.next()).tools) == {"Read", "sing"}


async def test_the_servers_of_tools(world: World) -> None:
    async with warm(world, tools="Read") as talk:
        root = str(world.project)
        write_servers(world, notes=SERVER)
        assert set((await talk.next()).tools) == {"Read"}
        found = await talk.service.mcp(talk.emacs, root=root)
        await talk.service.trust_mcp(talk.emacs, root=root, hash=found["hash"])
        assert "notes_echo" in (await talk.next()).tools
        write_servers(world)
        assert set((await talk.next()).tools) == {"Read"}


async def test_the_skills(world: World) -> None:
    def skill(place: str, words: str) -> Path:
        file = world.project / place / "deploying" / "SKILL.md"
        file.parent.mkdir(parents=True)
        file.write_text(f"---\nname: deploying\ndescription: Deploys.\n---\n{words}\n")
        (file.parent / "notes.txt").write_text(f"beside {words}")
        return file

    (world.project / "src").mkdir()
    far, reading = skill(".claude/skills", "far"), tool_use("skill", name="deploying")
    async with warm(world, tools="Read, skill") as talk:
        assert "- deploying: Deploys." in talk.system
        talk.change(f'["{world.project}/**"]', f'["{world.project}/src/**"]')
        assert "beside far" in await talk.told(read(far.parent / "notes.txt"))
        near = skill(".agents/skills", "near")
        assert "beside near" in await talk.told(read(near.parent / "notes.txt"))
        assert "outside" in await talk.told(read(far.parent / "notes.txt"))
        talk.change("near", "nearest", near)
        assert "nearest" in await talk.told(reading)
        near.unlink()
        assert "beside far" in await talk.told(read(far.parent / "notes.txt"))
        far.unlink()
        assert "outside" in await talk.told(read(far.parent / "notes.txt"))


async def test_the_instructions_after_a_compaction(world: World) -> None:
    (world.project / "AGENTS.md").write_text("Use tabs.")
    async with warm(world, tools="Read") as talk:
        assert "Use tabs." in talk.system
        (world.project / "AGENTS.md").write_text("Use spaces.")
        await renew_workplace(world.kernel, talk.branch)
        assert "Use spaces." in (await talk.next()).system


async def test_a_named_agent(world: World) -> None:
    world.preset(creating.DEFAULT_PRESET, tools="Read, Write")
    made = await world.service().agent_init(Emacs(world, lambda what, facts: {}), name="my-agent")
    home = Path(made["dir"])
    file = home / "agent.json"

    def say(**values: Any) -> None:
        file.write_text(json.dumps({**json.loads(file.read_text()), **values}))

    async with warm(world, paths.ref_of(home)) as talk:
        assert "Write" in talk.tools
        say(system_prompt="You count sheep.")
        assert "You count sheep." in (await talk.next()).system
        say(model="model-of-the-file")
        assert (await talk.next()).body["model"] == "model-of-the-file"
        say(permissions="locked")
        assert "Write" not in (await talk.next()).tools
        (home / "docs").mkdir(exist_ok=True)
        (home / "docs" / "facts.md").write_text("There are ten sheep.")
        assert "There are ten sheep." in (await talk.next()).system


async def test_the_trust_in_a_session_from_elsewhere(world: World) -> None:
    world.kernel.config.sessions_dir.mkdir(exist_ok=True)
    place = world.project / "evil"
    preset = EVIL.replace("[Bash]", "[Read, Bash]").replace("profile: open", "profile: locked")
    made = sessions.create_session(
        place.parent, "evil", preset_name="main", preset_text=preset, clock=FixedClock(), session_dir=place
    )
    paths.preset_file(made.branch_dir).write_text(preset)
    async with warm(world, paths.ref_of(made.branch_dir)) as talk:
        assert "Bash" in talk.tools  # its profile does not count, also where it denies
        told = await talk.service.trust_session(talk.emacs, branch=talk.branch.key)
        await talk.service.trust_session(talk.emacs, branch=talk.branch.key, sha256=told["sha256"])
        assert "Bash" not in (await talk.next()).tools
        talk.change("Run everything.", "Run all of it.")
        assert "Bash" in (await talk.next()).tools
