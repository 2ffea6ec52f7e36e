"""More scope: asked for by the model, shown exactly, given by a human for once or for good."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyagentd.api import Service
from pyagentd.errors import BadRequest, ToolError
from pyagentd.features.scope_expansion import NAME, widening_for
from pyagentd.store import metadata, presetfile
from pyagentd.tools.builtin import builtin_tools
from tests.runtime.test_approvals import TOOLS, results, talking
from tests.runtime.world import World
from tests.server import answer, tool_use

TOOL_NAMES = builtin_tools()


@pytest.fixture
def service(world: World) -> Service:
    world.preset("main", tools=TOOLS)
    return world.service()


def request(tool: str, *patterns: str, why: str = "I need it.") -> Any:
    return tool_use(NAME, tool_name=tool, patterns=list(patterns), justification=why)


def read(path: Path) -> Any:
    return tool_use("Read", file_path=str(path))


def lists(preset: Path) -> dict[str, Any]:
    front = presetfile.read(preset).front
    return {key: dict(front.get(key) or {}) for key in ("paths", "shell_commands")}


async def test_always_adds_every_pattern_to_the_preset(world: World, service: Service) -> None:
    one, two = world.home / "one", world.home / "two.txt"
    one.mkdir()
    (one / "a.txt").write_text("alpha")
    two.write_text("beta")
    async with talking(world, service) as talk:
        preset = talk.branch.ref.branch_dir / "preset.md"
        body, before = presetfile.read(preset).body, lists(preset)["paths"]["read"]
        plan = metadata.read_session_metadata(talk.branch.ref.branch_dir) or {}
        await talk.say(answer(request("Read", f"{one}/", str(two))), answer(read(one / "a.txt"), read(two)), "Done")
        ask = await talk.ask()
        assert ask["kind"] == "scope" and ask["choices"] == ["allow", "always", "deny", "abort"]
        assert ask["patterns"] == [f"{one}/**", str(two)] and ask["reason"] == "I need it."
        assert f"  - {one}/**\n  - {two}" in ask["preview"] and str(preset) in ask["preview"]
        await talk.answer("always")
        await talk.end()
        assert ["alpha" in said or "beta" in said for said in results(world.server.last)] == [True, True]
        granted = results(world.server.requests[1])[0]
        assert json.loads(granted) == {
            "success": True,
            "patterns_added": [f"{one}/**", str(two)],
            "message": "Scope expanded. Added 2 pattern(s) to Read",
        }
        assert lists(preset)["paths"]["read"] == [*before, f"{one}/**", str(two)]
        assert presetfile.read(preset).body == body
        now = metadata.read_session_metadata(talk.branch.ref.branch_dir) or {}
        assert now["updated"] >= plan["updated"]
        assert (await talk.decisions())[:2] == [("allow", "meta", None), ("ask_approved", "human: always", "a test")]


async def test_allow_holds_for_one_call(world: World, service: Service) -> None:
    outside = world.home / "outside.txt"
    outside.write_text("far")
    async with talking(world, service) as talk:
        preset = talk.branch.ref.branch_dir / "preset.md"
        before = preset.read_bytes()
        await talk.say(answer(request("Read", f"{world.home}/*.txt")), answer(read(outside), read(outside)), "Done")
        asked = (await talk.ask())["id"]
        with pytest.raises(BadRequest, match="no arguments to edit"):
            await service.answer(talk.watcher, ask=asked, decision="allow", input="{}")
        await talk.answer("allow")
        await talk.end()
        first, second = results(world.server.last)
        assert "far" in first and "outside `paths.read`" in second
        assert json.loads(results(world.server.requests[1])[0]) == {
            "success": True,
            "allowed_once": True,
            "message": "Permission granted for this turn only.",
        }
        assert preset.read_bytes() == before
        await talk.say(answer(read(outside)), "Done")
        assert "outside `paths.read`" in await talk.end()


async def test_a_file_allowed_once_by_its_name_is_written_without_another_question(
    world: World, service: Service
) -> None:
    outside = world.home / "outside.txt"
    write = tool_use("Write", file_path=str(outside), content="x")
    async with talking(world, service) as talk:
        await talk.say(answer(request("Write", str(outside))), answer(write), "Done")
        assert "is not shown before it is made" in (await talk.ask())["preview"]
        await talk.answer("allow")
        await talk.end()
        assert outside.read_text() == "x"
        assert (await talk.decisions())[-1] == ("allow", "allowed once", None)


async def test_a_change_inside_a_pattern_that_was_allowed_once_is_shown_first(world: World, service: Service) -> None:
    outside = world.home / "outside.txt"
    write = tool_use("Write", file_path=str(outside), content="x")
    async with talking(world, service) as talk:
        await talk.say(answer(request("Write", f"{world.home}/*.txt")), answer(write), "Done")
        assert "is not shown" not in (await talk.ask())["preview"]
        await talk.answer("allow")
        ask = (await talk.asks(2))[1]
        assert ask["kind"] == "tool" and "+x" in ask["preview"]
        await service.answer(talk.watcher, ask=ask["id"], decision="allow")
        await talk.end()
        assert outside.read_text() == "x"


async def test_a_denial_says_so_with_its_reason(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say(answer(request("Read", "/etc/hosts")), "Done")
        await talk.answer("deny", reason="ask me for its content")
        assert json.loads(await talk.end()) == {
            "success": False,
            "user_denied": True,
            "message": "User denied scope expansion request.",
            "reason": "ask me for its content",
        }
        assert (await talk.decisions())[-1] == ("ask_denied", "human: deny", "a test")


async def test_a_command_adds_its_name(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        preset = talk.branch.ref.branch_dir / "preset.md"
        preset.write_text(preset.read_text().replace('["*"]', "[ls]"))
        await talk.say(answer(request("run_approved_command", "make test", "git status")), "Done")
        assert (await talk.ask())["patterns"] == ["make", "git"]
        await talk.answer("always")
        assert json.loads(await talk.end())["patterns_added"] == ["make", "git"]
        assert lists(preset)["shell_commands"]["allow"] == ["ls", "make", "git"]


async def test_a_command_allowed_once_is_in_the_scope_once_and_still_asked_about(
    world: World, service: Service
) -> None:
    async with talking(world, service) as talk:
        preset = talk.branch.ref.branch_dir / "preset.md"
        preset.write_text(preset.read_text().replace('["*"]', "[ls]"))
        call = tool_use("Bash", command="make -v")
        await talk.say(answer(request("Bash", "make -v")), answer(call), answer(call), "Done")
        await talk.answer("allow")
        ask = (await talk.asks(2))[1]
        assert ask["kind"] == "tool" and ask["detail"] == "make -v"
        await service.answer(talk.watcher, ask=ask["id"], decision="allow")
        await talk.end()
        assert (await talk.decisions())[-2:] == [
            ("ask_approved", "human: allow", "a test"),
            ("deny", "command", None),
        ]


HIDDEN = "git status > {root}/q; touch {root}/more; echo done"


@pytest.mark.parametrize(
    ("line", "programs", "told"),
    [
        (HIDDEN, ["git", "touch", "echo"], ["    touch {root}/more", "    echo done"]),
        ("git status $(touch {root}/more)", ["git"], ["  Nobody can tell beforehand what it does: "]),
    ],
    ids=["several", "unreadable"],
)
async def test_no_part_of_a_command_line_hides_behind_its_first_word(
    world: World, service: Service, line: str, programs: list[str], told: list[str]
) -> None:
    line, *told = (each.format(root=world.project) for each in (line, *told))
    async with talking(world, service) as talk:
        preset = talk.branch.ref.branch_dir / "preset.md"
        preset.write_text(preset.read_text().replace('["*"]', "[ls]"))
        await talk.say(answer(request("Bash", line)), answer(tool_use("Bash", command=line)), "Done")
        ask = await talk.ask()
        assert ask["patterns"] == programs and line in ask["detail"]
        for each in (f"  {line}", *told):
            assert any(shown.startswith(each) for shown in ask["preview"].splitlines()), each
        assert all(f"  - {program}" in ask["preview"] for program in programs)
        await talk.answer("allow")
        asked = (await talk.asks(2))[1]
        assert asked["kind"] == "tool" and asked["detail"] == line
        await service.answer(talk.watcher, ask=asked["id"], decision="deny")
        await talk.end()
        assert not (world.project / "more").exists()


async def test_a_command_line_that_writes_outside_is_not_asked_for(world: World, service: Service) -> None:
    line = f"echo x > {world.home}/outside.txt"
    async with talking(world, service) as talk:
        preset = talk.branch.ref.branch_dir / "preset.md"
        preset.write_text(preset.read_text().replace('["*"]', "[ls]"))
        await talk.say(answer(request("Bash", line)), answer(tool_use("Bash", command=line)), "Done")
        await talk.end()
        assert "outside `paths.write`" in results(world.server.requests[1])[0] and not talk.watcher.of("ask")
        assert not (world.home / "outside.txt").exists()


async def test_the_audit_says_what_was_asked_for_and_which_list_it_goes_to(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        preset = talk.branch.ref.branch_dir / "preset.md"
        preset.write_text(preset.read_text().replace('["*"]', "[ls]"))
        await talk.say(answer(request("Bash", "make -v; git log")), "Done")
        assert (await talk.ask())["allows"]["always"].endswith("say: Bash make, git, with any arguments.")
        await talk.answer("deny")
        await talk.end()
        rows = (await service.audit(talk.watcher, session=talk.branch.key))["decisions"]
        asked, called = (row["action"] for row in rows[:2])
        assert called == f"tool:{NAME}:Bash make -v; git log"
        assert asked == f"tool:{NAME}:Bash shell_commands.allow: make, git (for make -v; git log)"


HOPELESS = [
    ("Read", ["{root}/.git/config"], "`paths.deny` has"),
    ("Read", ["{root}/src/**", "{root}/.git/**"], "`paths.deny` has"),
    ("Read", ["/home/me/.ssh/id_rsa"], "credentials"),
    ("Write", ["{branch}/preset.md"], "records and settings"),
    ("Write", ["{branch}/**"], "records and settings"),
    ("PersistentAgent", ["x"], "no scope"),
    ("Nothing", ["x"], "There is no tool 'Nothing'"),
    ("Read", ["/a/../b/*"], "segment"),
    ("Read", ["a\0b"], "control character"),
    ("Bash", ["$(rm x)"], "name of a command"),
    ("Bash", ["'"], "cannot be read"),
]


@pytest.mark.parametrize(("tool", "patterns", "said"), HOPELESS)
async def test_what_cannot_be_given_is_not_asked_for(
    world: World, service: Service, tool: str, patterns: list[str], said: str
) -> None:
    async with talking(world, service) as talk:
        preset = talk.branch.ref.branch_dir / "preset.md"
        before = preset.read_bytes()
        filled = [each.format(root=world.project, branch=talk.branch.ref.branch_dir) for each in patterns]
        await talk.say(answer(request(tool, *filled)), "Done")
        assert said in await talk.end()
        assert not talk.watcher.of("ask") and preset.read_bytes() == before


async def test_a_command_that_is_denied_is_not_asked_for(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        preset = talk.branch.ref.branch_dir / "preset.md"
        preset.write_text(preset.read_text().replace('["*"]', '[ls]\n  deny: ["rm -rf"]'))
        await talk.say(answer(request("Bash", "make", "rm -rf x")), "Done")
        assert "`shell_commands.deny` has" in await talk.end() and not talk.watcher.of("ask")


async def test_nobody_is_asked_for_what_is_there(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say(answer(request("Read", f"{world.project}/")), "Done")
        assert "already" in await talk.end()


async def test_without_a_human_the_answer_is_no(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say(answer(request("Read", "/etc/hosts")), "Done", interactive=False)
        assert "no human can be asked" in await talk.end()


def test_patterns_become_what_would_really_be_opened(tmp_path: Path) -> None:
    (tmp_path / "real" / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "a.txt").write_text("")
    cases = {
        "link/": f"{tmp_path}/real/**",
        "link/sub": f"{tmp_path}/real/sub/**",
        "link/*.txt": f"{tmp_path}/real/*.txt",
        "link/a.txt": f"{tmp_path}/real/a.txt",
        "./real/../new/x": f"{tmp_path}/new/x",
        "/x/y/": "/x/y/**",
        "**/*.md": "**/*.md",
        "~/x": str(Path("~/x").expanduser()),
    }
    for pattern, meant in cases.items():
        assert widening_for(TOOL_NAMES, "Read", [pattern], tmp_path).patterns == (meant,), pattern


def test_a_malformed_pattern_is_said(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="control"):
        widening_for(TOOL_NAMES, "Read", ["a\nb"], tmp_path)


async def test_a_question_about_scope_survives_the_daemon(world: World, service: Service) -> None:
    outside = world.home / "outside.txt"
    outside.write_text("far")
    async with talking(world, service) as talk:
        ref = talk.branch.ref
        await talk.say(answer(request("Read", str(outside))), answer(read(outside)), "Done")
        before = await talk.ask()
        await world.kernel.shutdown()
    world.start()
    service = world.service()
    async with talking(world, service, ref) as talk:
        (ask,) = (await service.asks(talk.watcher))["asks"]
        assert (ask["id"], ask["kind"], ask["patterns"]) == (before["id"], "scope", [str(outside)])
        told = await service.answer(talk.watcher, ask=ask["id"], decision="always", env=dict(world.options.env))
        assert told == {"accepted": True}
        assert "far" in await talk.end()
        decided = [row for row in await talk.decisions() if row[0] == "ask_approved"]
        assert decided == [("ask_approved", "human: always", "a test")]
