"""What a person is asked about every single time, whatever a profile or a grant says."""

from __future__ import annotations

import re

import pytest

from pyagentd.policy.action import Action
from pyagentd.policy.guard import Allow, Ask, Context, Deny, decide
from pyagentd.policy.presets import Preset
from pyagentd.policy.profiles import BUILTIN

ACTION = Action(tool="self_edit", detail="permissions:open", kind="self")
ALL = (re.compile(".*", re.DOTALL),)


def rules(profile: str | None, *, interactive: bool = True) -> Context:
    known = BUILTIN[profile] if profile else None
    return Context(
        preset=Preset(name="p", backend="offline", model=""),
        interactive=interactive,
        profile=known,
        grants=ALL,
        remembered=ALL,
    )


@pytest.mark.parametrize("profile", ["open", "standard", None])
def test_neither_a_profile_nor_a_grant_stands_for_a_persons_word(profile: str | None) -> None:
    decision = decide(ACTION, rules(profile), "always")
    assert isinstance(decision, Ask) and not decision.remember


def test_where_nobody_can_be_asked_it_is_denied() -> None:
    decision = decide(ACTION, rules("open", interactive=False), "always")
    assert isinstance(decision, Deny) and decision.rule == "headless"


def test_what_the_profile_denies_is_not_asked() -> None:
    decision = decide(ACTION, rules("locked"), "always")
    assert isinstance(decision, Deny) and decision.rule == "profile"


@pytest.mark.parametrize(("profile", "kind"), [("open", Allow), ("standard", Ask), ("locked", Deny)])
def test_profiles_know_the_actions_of_self_editing(profile: str, kind: type) -> None:
    context = Context(
        preset=Preset(name="p", backend="offline", model=""), interactive=True, profile=BUILTIN[profile]
    )
    for detail in ("system_prompt", "docs:notes.md", "model:claude-opus-4-1"):
        action = Action(tool="self_edit", detail=detail, kind="self")
        assert str(action) == f"tool:self_edit:{detail}"
        assert isinstance(decide(action, context, True), kind)
