"""May it? What holds for every action under every rule: prohibitions only take away, and nothing gives them back."""

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pyagentd.config.tables import compile_action
from pyagentd.policy import shell
from pyagentd.policy.action import Action, ResolvedPath
from pyagentd.policy.guard import Allow, Ask, Context, Deny, decide, once_key
from pyagentd.policy.presets import Commands, Paths, Preset
from pyagentd.policy.profiles import BUILTIN, make_profile

ROOT = "/w"
PLACES = ("/w/a", "/w/src/b", "/w/src/.env", "/etc/x", "/tmp/t", "/h/.ssh/id", "/s/x/branches/main/preset.md")
COMMANDS = ("ls", "git status", "git status; rm -rf x", "rm -rf x", "sudo ls", 'eval "$X"', "ls | wc -l", "")
PATTERNS = ("/w/**", "/**", "**/.env", "/etc/**", "/tmp/**", "**/src/**", "/w/a")
ENTRIES = ("*", "ls", "git", "git status", "rm", "wc")
REGEXES = (
    ".*",
    "tool:.*",
    "tool:view:.*",
    "tool:Write:.*",
    "tool:create_file:src/.*",
    "tool:bash:git .*",
    "tool:Bash:ls",
)

paths = st.builds(ResolvedPath, lexical=st.sampled_from(PLACES), resolved=st.sampled_from(PLACES))
patterns = st.lists(st.sampled_from(PATTERNS), max_size=3).map(tuple)
regexes = st.lists(st.sampled_from(REGEXES), max_size=2).map(tuple)
profiles = st.one_of(
    st.sampled_from([None, *BUILTIN.values()]),
    st.builds(lambda allow, ask: make_profile("mine", allow=allow, ask=ask), regexes, regexes),
)


@st.composite
def actions(draw):
    kind = draw(st.sampled_from(["read", "write", "command", "meta"]))
    match kind:
        case "command":
            text = draw(st.sampled_from(COMMANDS))
            touched = {name: tuple(draw(st.lists(paths, max_size=1))) for name in ("paths", "writes")}
            return Action(
                tool="Bash", detail=text, kind=kind, command=text, shell=shell.read(text), root=ROOT, **touched
            )
        case "meta":
            return Action(tool="PersistentAgent", detail="explorer", kind=kind, root=ROOT)
        case _:
            path = draw(paths)
            tool = "Read" if kind == "read" else "Write"
            return Action(tool=tool, detail=path.lexical, kind=kind, paths=(path,), root=ROOT)


@st.composite
def contexts(draw, action=None):
    preset = Preset(
        name="p",
        backend="b",
        model="m",
        paths=Paths(read=draw(patterns), write=draw(patterns), deny=draw(patterns)),
        shell=Commands(
            allow=tuple(draw(st.lists(st.sampled_from(ENTRIES), max_size=3))),
            deny=tuple(draw(st.lists(st.sampled_from(["sudo", "rm -rf"]), max_size=1))),
        ),
    )
    return Context(
        preset=preset,
        interactive=draw(st.booleans()),
        profile=draw(profiles),
        ancestor_denies=draw(patterns),
        ancestor_commands=tuple(draw(st.lists(st.just("sudo"), max_size=1))),
        ancestor_profiles=tuple(each for each in [draw(profiles)] if each),
        protected=("/s/**",),
        grants=tuple(map(compile_action, draw(regexes))),
        remembered=tuple(map(compile_action, draw(regexes))),
    )


RANK = {Allow: 2, Ask: 1, Deny: 0}


def freedom(decision):
    return RANK[type(decision)]


@given(actions(), contexts(), st.booleans(), patterns, profiles)
def test_a_prohibition_more_never_allows_more(action, context, confirm, more, profile):
    before = freedom(decide(action, context, confirm))
    own = context.preset.paths
    for stricter in (
        replace(context, ancestor_denies=(*context.ancestor_denies, *more)),
        replace(context, ancestor_commands=(*context.ancestor_commands, "git")),
        replace(context, ancestor_profiles=(*context.ancestor_profiles, *([profile] if profile else []))),
        replace(context, protected=(*context.protected, *more)),
        replace(context, preset=replace(context.preset, paths=replace(own, deny=(*own.deny, *more)))),
        replace(context, grants=(), remembered=()),
        replace(context, interactive=False),
    ):
        assert freedom(decide(action, stricter, confirm)) <= before


@given(actions(), contexts(), st.booleans())
def test_what_is_protected_denied_or_out_of_scope_stays_so_whatever_profile_and_grants_say(action, context, confirm):
    decision = decide(action, context, confirm)
    if not isinstance(decision, Deny) or decision.rule not in ("protected", "deny", "scope", "command"):
        return
    everything = (compile_action(".*"), compile_action(re.escape(str(action))))
    freest = replace(
        context,
        profile=BUILTIN["open"],
        ancestor_profiles=(),
        grants=everything,
        remembered=everything,
        interactive=True,
    )
    again = decide(action, freest, False)
    assert isinstance(again, Deny) and again.rule == decision.rule
    once = decide(action, replace(context, allow_once=frozenset({once_key(action)})), confirm)
    assert isinstance(once, Deny) == (decision.rule in ("protected", "deny"))


@given(actions(), contexts(), st.booleans())
def test_without_a_human_nothing_is_asked_and_what_would_be_is_denied(action, context, confirm):
    with_human = decide(action, replace(context, interactive=True), confirm)
    without = decide(action, replace(context, interactive=False), confirm)
    assert not isinstance(without, Ask)
    if isinstance(with_human, Ask):
        assert isinstance(without, Deny) and without.rule == "headless"
    else:
        assert without == with_human


@given(actions(), contexts(), st.booleans())
def test_what_an_answer_would_be_remembered_as_covers_the_next_time(action, context, confirm):
    decision = decide(action, replace(context, interactive=True), confirm)
    if isinstance(decision, Ask):
        granted = tuple(map(compile_action, decision.remember))
        again = decide(action, replace(context, interactive=True, remembered=granted), confirm)
        assert isinstance(again, Allow), again


@given(actions(), contexts(), st.booleans())
def test_what_cannot_be_read_is_allowed_by_a_human_alone(action, context, confirm):
    decision = decide(action, context, confirm)
    if action.shell is not None and action.shell.unreadable:
        exact = {re.escape(str(action))}
        assert not isinstance(decision, Allow) or exact & {each.pattern for each in context.remembered}


@given(actions(), contexts(), st.booleans())
def test_a_refusal_says_what_and_why_in_whole_sentences(action, context, confirm):
    decision = decide(action, context, confirm)
    if isinstance(decision, Deny):
        assert decision.reason.startswith(action.tool)
        assert len(decision.reason) > 40
