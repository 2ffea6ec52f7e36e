"""Plan mode changes nothing: no action but those that look passes, whoever allows it and whatever it is called."""

from dataclasses import replace

import pytest

from pyagentd.config.tables import compile_action
from pyagentd.errors import PresetError
from pyagentd.policy import shell
from pyagentd.policy.action import Action, ResolvedPath
from pyagentd.policy.guard import Allow, Ask, Context, Deny, decide, once_key
from pyagentd.policy.presets import Commands, Paths, Preset, parse_preset
from pyagentd.policy.profiles import BUILTIN, is_read_only, make_profile

HERE = "/home/me/project/a.py"
PLAN_MODE = pytest.mark.spec("002", 'How do I design a "plan mode"?')


def action(tool, kind="meta", detail="x", **more):
    return Action(tool=tool, detail=detail, kind=kind, root="/home/me/project", **more)


def on(tool, kind, path=HERE, **more):
    return action(tool, kind, path, paths=(ResolvedPath(lexical=path, resolved=path),), **more)


def run(command):
    return action("Bash", "command", command, command=command, shell=shell.read(command))


CHANGES = [
    *(on(tool, "write") for tool in ("Write", "Edit", "write_file", "create_file", "str_replace", "MultiEdit")),
    on("Write", "write", "/tmp/x"),
    *map(run, ("touch a", "ls", "git log", "git status", "cat a", "rm -rf /", "echo x > a", 'eval "$X"', "")),
    # A tool that says it reads, and writes as well; one that runs a command under the name of one that reads.
    on("Read", "read", writes=(ResolvedPath(lexical="/x", resolved="/x"),)),
    action("Read", "read", "x", command="touch x"),
    # Kinds that a known tool does not have, and tools that nobody knows: of another server, of a later version.
    on("Read", "write"),
    on("Grep", "command"),
    on("github_create_issue", "read"),
    on("github_create_issue", "write"),
    action("github_create_issue"),
    action("mcp__fs__read_file"),
    action("request_wakeup"),
    action("memory_write"),
    action("self_edit"),
    action("git", "meta", "commit"),
    # Nobody is asked for more of what may not be done.
    action("request_scope_expansion", detail="Write /etc/**"),
    action("request_scope_expansion", detail="bash make"),
    action("request_scope_expansion", detail="write_file_in_scope /x"),
    action("request_scope_expansion", detail="github_create_issue *"),
]

LOOKS = [
    on("Read", "read"),
    on("Glob", "read"),
    on("Grep", "read"),
    action("question"),
    action("TodoWrite"),
    action("skill"),
    action("tool_search"),
    action("PersistentAgent", detail="explorer"),
    action("WebSearch", "net"),
    action("WebFetch", "net"),
    action("request_scope_expansion", detail="Read /etc/**"),
]


def most_open(tried, **preset):
    """Rules that allow everything: every path and command, an open profile, a grant, and this very thing once."""
    return Context(
        preset=Preset(
            name="p",
            backend="b",
            model="m",
            paths=Paths(read=("/**",), write=("/**",)),
            shell=Commands(allow=("*",)),
            **preset,
        ),
        interactive=True,
        profile=BUILTIN["open"],
        grants=(compile_action(".*"),),
        remembered=(compile_action(".*"),),
        allow_once=frozenset({str(tried), once_key(tried)}),
    )


@PLAN_MODE
@pytest.mark.parametrize("tried", CHANGES, ids=str)
@pytest.mark.parametrize("confirm", [True, False])
@pytest.mark.parametrize("above", [False, True], ids=["own", "above"])
def test_nothing_that_changes_passes_whatever_is_allowed(tried, confirm, above):
    rules = most_open(tried)
    rules = (
        replace(rules, ancestor_read_only=True)
        if above
        else replace(rules, preset=replace(rules.preset, read_only=True))
    )
    refused = decide(tried, rules, confirm)
    assert isinstance(refused, Deny) and refused.rule == "read-only"
    assert ("a session above this agent" in refused.reason) == above
    assert "plan" in refused.reason


@PLAN_MODE
@pytest.mark.parametrize("tried", LOOKS, ids=str)
def test_looking_is_decided_as_anywhere_else(tried):
    rules = most_open(tried, read_only=True)
    assert isinstance(decide(tried, rules, False), Allow)
    narrow = replace(
        rules, profile=make_profile("p", ask=["tool:.*"]), grants=(), remembered=(), allow_once=frozenset()
    )
    assert isinstance(decide(tried, narrow, True), Ask)


def test_a_session_that_is_not_read_only_is_decided_as_before():
    assert isinstance(decide(on("Write", "write"), most_open(on("Write", "write")), True), Allow)


def test_tools_that_cannot_pass_are_known():
    assert is_read_only("Read") and is_read_only("task") and is_read_only("web_fetch") and is_read_only("view")
    assert not any(map(is_read_only, ("Write", "Edit", "Bash", "bash", "create_file", "anything")))


# -- the preset ---------------------------------------------------------------------------------------------------


def preset(name, **front):
    return parse_preset(name, {"backend": "b", **front}, "", f"{name}.md")


@PLAN_MODE
def test_a_preset_called_plan_is_read_only_whoever_wrote_it():
    assert preset("plan").read_only
    assert preset("plan", profile="open", tools=["Write"]).read_only
    assert preset("mine", **{"read-only": True}).read_only
    assert preset("mine", read_only=True).read_only
    assert not preset("mine").read_only
    assert not preset("planner").read_only


def test_a_preset_called_plan_that_says_it_is_not_read_only_is_an_error():
    with pytest.raises(PresetError) as error:
        preset("plan", **{"read-only": False})
    assert "read-only" in str(error.value) and "another name" in str(error.value)
