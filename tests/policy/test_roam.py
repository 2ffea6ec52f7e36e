"""Notes of org-roam: which a tool may make, tag and link."""

import pytest

from pyagentd.policy.action import Action, Roam, RoamTarget, roam_refusal
from pyagentd.policy.guard import Allow, Context, Deny, decide
from pyagentd.policy.presets import Preset

RULES = Roam(subdirectory=("gptel/**",), tags=("gptel",))


def target(operation, subdirectory="", *tags):
    return RoamTarget(operation=operation, subdirectory=subdirectory, tags=tags)


@pytest.mark.parametrize(
    ("subdirectory", "tags", "allowed"),
    [
        ("gptel/notes", (), True),
        ("gptel/notes/deep", (), True),
        ("gptel/notes/", (), True),
        ("gptel", (), False),
        ("other", ("zzz", "gptel"), True),
        ("other", ("zzz",), False),
        ("", (), False),
        ("", ("gptel",), True),
        ("gptel/../other", (), False),
        ("gptel/notes/../../other", (), False),
        ("/gptel/notes", (), False),
        ("~/gptel/notes", (), False),
        ("other/gptel/notes", (), False),
        ("gptel/no\0tes", (), False),
        ("gptel/notes", ("zzz",), True),
        ("other", ("GPTEL",), False),
        ("other", ("gptel ",), False),
    ],
)
def test_making_a_node_needs_its_directory_or_one_of_its_tags(subdirectory, tags, allowed):
    assert (roam_refusal(target("create", subdirectory, *tags), RULES) is None) == allowed


@pytest.mark.parametrize(
    ("tags", "allowed"), [(("gptel",), True), (("zzz", "gptel"), True), (("zzz",), False), ((), False)]
)
def test_tagging_needs_one_allowed_tag(tags, allowed):
    assert (roam_refusal(target("tag", "gptel/notes", *tags), RULES) is None) == allowed


@pytest.mark.parametrize(("ids", "allowed"), [(("*",), True), (("1", "*"), True), (("1", "2"), False), ((), False)])
def test_linking_needs_a_star(ids, allowed):
    assert (roam_refusal(target("link"), Roam(node_ids=ids)) is None) == allowed


def test_without_patterns_nothing_is_allowed():
    for operation in ("create", "tag", "link"):
        assert roam_refusal(target(operation, "gptel/notes", "gptel"), Roam())


def decided(roam, rules=RULES, **more):
    preset = Preset(name="p", backend="b", model="m", roam=rules)
    action = Action(tool="create_roam_node", detail="gptel/notes", kind="pattern", roam=roam)
    return decide(action, Context(preset=preset, interactive=True, **more), False)


def test_the_decision_follows_these_rules_and_says_what_to_do():
    assert decided(target("create", "gptel/notes")) == Allow("scope")
    refused = decided(target("create", "other", "zzz"))
    assert isinstance(refused, Deny) and refused.rule == "scope"
    assert "org_roam_patterns.subdirectory" in refused.reason and "gptel/**" in refused.reason
    assert refused.reason.endswith("Use request_scope_expansion to ask the user for approval.")
    assert isinstance(decided(None), Deny), "a tool that does not say what it touches"


def test_a_human_may_allow_one_call_beyond_them():
    once = frozenset({"tool:create_roam_node:gptel/notes"})
    assert decided(target("create", "other"), allow_once=once) == Allow("allowed once")
