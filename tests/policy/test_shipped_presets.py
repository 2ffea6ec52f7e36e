"""The presets that we ship: each loads, and means what its description says."""

import pytest

from pyagentd.installation import shipped
from pyagentd.policy import shell
from pyagentd.policy.action import Action, ResolvedPath
from pyagentd.policy.guard import Allow, Ask, Context, Deny, decide
from pyagentd.policy.presets import parse_preset
from pyagentd.policy.profiles import may_pass, resolve_profile, verdict
from pyagentd.store import presetfile
from pyagentd.store.presetfile import find_templates

SHIPPED = find_templates([shipped("presets")])
EXPANSION, WEB = "request_scope_expansion", ("WebSearch", "WebFetch")
TOOLS = {
    *(
        "Read",
        "Write",
        "Edit",
        "Glob",
        "Grep",
        "Bash",
        "PersistentAgent",
        "mission",
        "skill",
        "question",
        "TodoWrite",
    ),
    *WEB,
    EXPANSION,
}
FINDING = ("Read", "Glob", "Grep")
LOOKING = (*FINDING, "skill", EXPANSION)
WORKING = (*FINDING, "Edit", "Write", "Bash")
AT_HAND = ("skill", "question", "TodoWrite")
ROOT = "/home/me/project"


def load(name):
    file = presetfile.read(SHIPPED[name])
    return parse_preset(name, file.front, file.body, str(file.path), profiles={}), file


def in_project(name):
    """The preset of a session that was made in a project, which may read and write there."""
    text = presetfile.with_paths(load(name)[1], read=[f"{ROOT}/**"], also_write=[f"{ROOT}/**"])
    file = presetfile.parse(text, SHIPPED[name])
    return parse_preset(name, file.front, file.body, name, profiles={})


def decision(preset, action, *, above=(), interactive=True):
    context = Context(
        preset=preset,
        profile=resolve_profile(preset.profile),
        interactive=interactive,
        ancestor_read_only=any(each.read_only for each in above),
        ancestor_profiles=tuple(profile for each in above if (profile := resolve_profile(each.profile))),
    )
    return decide(action, context, confirm=action.tool not in LOOKING)


def on(tool, path=f"{ROOT}/src/a.py"):
    kind = "read" if tool in ("Read", "Glob", "Grep") else "write"
    return Action(tool=tool, detail=path, kind=kind, paths=(ResolvedPath(lexical=path, resolved=path),), root=ROOT)


def run(command):
    return Action(tool="Bash", detail=command, kind="command", command=command, shell=shell.read(command), root=ROOT)


CHANGES = (on("Write"), on("Edit"), on("Write", "/tmp/x"), run("touch x"), run("ls"))


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_a_shipped_preset_is_complete_and_names_only_tools_that_exist(name):
    preset, file = load(name)
    assert preset.backend == "Claude"
    assert preset.model.startswith("claude-")
    assert preset.description and preset.description[-1] == "."
    assert preset.body
    assert set(preset.tools) <= set(TOOLS)  # none that is there only with an Emacs
    assert preset.emacs_tools == (("code",) if name in ("build", "programming-assistant") else ())
    assert file.front["name"] == name
    assert file.front["include-tool-results"] is True


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_no_shipped_preset_reads_or_writes_everywhere_or_runs_commands_unseen(name):
    preset, _ = load(name)
    assert not {"/**", "**/*"} & {*preset.paths.read, *preset.paths.write}
    assert preset.shell.confine and not preset.shell.network
    assert ("Bash" in preset.tools) == bool(preset.shell.allow)
    assert preset.read_only == (
        name not in ("build", "programming-assistant", "executor", "minimal", "mission", "small")
    )
    assert (preset.profile is not None) == preset.read_only
    for changing in CHANGES:
        assert preset.profile is None or verdict(preset.profile, changing) == "deny"
    if preset.shell.allow:
        assert {"rm -rf", "sudo"} <= set(preset.shell.deny)
        assert isinstance(decision(in_project(name), run("make")), Ask)
        assert isinstance(decision(in_project(name), run("make"), interactive=False), Deny)


@pytest.mark.parametrize(
    ("name", "mode", "tools"),
    [
        (
            "programming-assistant",
            "primary",
            (*WORKING, "PersistentAgent", "mission", *AT_HAND, *WEB, EXPANSION),
        ),
        ("build", "primary", (*WORKING, "PersistentAgent", "mission", *AT_HAND, *WEB, EXPANSION)),
        ("plan", "primary", (*FINDING, "PersistentAgent", *AT_HAND, *WEB, EXPANSION)),
        ("minimal", "primary", ()),
        ("general-purpose", "all", (*FINDING, "skill", "question", EXPANSION)),
        ("explorer", "all", LOOKING),
        ("researcher", "all", (*FINDING, "skill", *WEB, EXPANSION)),
        ("planner", "subagent", LOOKING),
        ("mission", "all", (*FINDING, *WEB)),
        ("executor", "all", (*WORKING, "skill", "TodoWrite", EXPANSION)),
    ],
)
def test_who_may_use_a_preset_and_with_which_tools(name, mode, tools):
    preset, _ = load(name)
    assert preset.mode == mode
    assert preset.tools == tools
    assert all(may_pass(resolve_profile(preset.profile), tool) for tool in tools)


@pytest.mark.parametrize("name", ["plan", "planner", "explorer", "researcher", "general-purpose", "minimal"])
def test_who_only_looks_cannot_change_anything_whatever_is_added_to_its_scope(name):
    preset, _ = load(name)
    assert not {"Write", "Edit", "Bash"} & set(preset.tools)
    assert not preset.shell.allow
    for action in CHANGES:
        assert isinstance(decision(preset, action), Deny)
    if name == "minimal":
        return
    widened = in_project(name)  # a session in a project may write there; the profile says no
    assert isinstance(decision(widened, on("Read")), Allow)
    for action in CHANGES:
        refused = decision(widened, action)
        assert isinstance(refused, Deny) and refused.rule in ("read-only", "command")


def test_the_agents_of_a_plan_cannot_change_anything_either():
    executor, plan = in_project("executor"), in_project("plan")
    assert isinstance(decision(executor, on("Write")), Ask)
    assert isinstance(decision(executor, on("Read"), above=(plan,)), Allow)
    for action in (on("Write"), on("Edit"), run("make")):
        refused = decision(executor, action, above=(plan,))
        assert isinstance(refused, Deny) and refused.rule == "read-only"
        assert "a session above this agent" in refused.reason


@pytest.mark.parametrize("name", ["programming-assistant", "build", "executor"])
def test_who_works_may_change_its_project_with_your_approval(name):
    preset = in_project(name)
    for action in (on("Write"), on("Edit"), run("make test")):
        assert isinstance(decision(preset, action), Ask)
    for action in (on("Write", "/etc/hosts"), on("Write", f"{ROOT}/.git/hooks/x"), run("sudo make"), run("rm -rf /")):
        assert isinstance(decision(preset, action), Deny)


@pytest.mark.spec("000", "Final result accumulated from responses")
def test_agents_stop_some_time_and_give_back_all_that_they_said():
    for name in ("explorer", "researcher", "planner", "executor"):
        preset, _ = load(name)
        assert preset.max_turns is not None and preset.max_turns >= 60
        assert preset.result == "all"
    assert load("programming-assistant")[0].max_turns is None, "a person is there to stop it"
    assert load("programming-assistant")[0].result == "all"


def test_the_paths_of_an_agent_are_written_when_it_is_spawned():
    for name in ("explorer", "researcher", "planner", "executor"):
        assert load(name)[0].paths.read == ()
