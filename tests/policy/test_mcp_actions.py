"""Tools of servers before the one decision: how rules, grants and remembered answers speak of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyagentd.config.tables import compile_action
from pyagentd.policy.action import Action
from pyagentd.policy.guard import (
    Allow,
    Ask,
    Context,
    Deny,
    covering_grants,
    decide,
    explain_pattern,
    once_key,
    patterns_to_remember,
)
from pyagentd.policy.presets import Preset
from pyagentd.policy.profiles import BUILTIN, Profile, make_profile

ACTION = Action(tool="notes_echo", detail='{"text": "a:b"}', kind="mcp", rule="mcp:notes:echo", root="/w")
RULES = Context(preset=Preset(name="p", backend="b", model="m"), interactive=True)


@pytest.mark.parametrize(
    ("profile", "kind"),
    [
        (None, Ask),
        (BUILTIN["open"], Allow),
        (BUILTIN["standard"], Ask),
        (BUILTIN["locked"], Deny),
        (make_profile("p", allow=["mcp:notes:.*"]), Allow),
        (make_profile("p", allow=["tool:mcp:notes:echo"]), Allow),
        (make_profile("p", allow=["mcp:other:.*", "mcp:notes:ech"], ask=["mcp:notes:echo2"]), Deny),
        (make_profile("p", ask=["mcp:.*"]), Ask),
    ],
)
def test_profiles(profile: Profile | None, kind: type) -> None:
    assert isinstance(decide(ACTION, replace(RULES, profile=profile), True), kind)


def test_a_profile_above_an_agent_holds_for_it() -> None:
    assert isinstance(decide(ACTION, replace(RULES, ancestor_profiles=(BUILTIN["locked"],)), False), Deny)


def test_who_only_looks_calls_none_whoever_allows_it() -> None:
    rules = replace(RULES, preset=replace(RULES.preset, read_only=True), profile=BUILTIN["open"])
    assert isinstance(decide(ACTION, rules, False), Deny)


def test_what_is_remembered_is_the_tool_and_no_other() -> None:
    (pattern,) = patterns_to_remember(ACTION)
    assert (
        pattern == "mcp:notes:echo"
        and explain_pattern(pattern) == "echo of the MCP server notes, whatever its arguments"
    )
    held = (compile_action(pattern),)
    assert covering_grants(replace(ACTION, detail="{}"), held)
    assert not covering_grants(replace(ACTION, rule="mcp:notes:echo2"), held)
    assert not covering_grants(replace(ACTION, rule="mcp:note:s:echo"), held)
    assert isinstance(decide(ACTION, replace(RULES, remembered=held), True), Allow)


@pytest.mark.parametrize("name", [".*", "a|.*", "a\nb", "[x]"])
def test_a_name_that_looks_like_a_rule_is_none(name: str) -> None:
    action = replace(ACTION, rule=f"mcp:notes:{name}")
    held = tuple(map(compile_action, patterns_to_remember(action)))
    assert covering_grants(action, held) and not covering_grants(ACTION, held)


def test_an_answer_is_for_the_tool_that_was_asked_about() -> None:
    assert once_key(ACTION) == "mcp:notes:echo" == str(ACTION)
