"""May it? The seven steps and their order: what wins over what, and by which rule a decision fell."""

import re
from dataclasses import replace

import pytest

from pyagentd.config.tables import compile_action
from pyagentd.policy import shell
from pyagentd.policy.action import Action, ResolvedPath
from pyagentd.policy.guard import Allow, Ask, Context, Deny, decide, once_key
from pyagentd.policy.presets import Commands, Paths, Preset
from pyagentd.policy.profiles import BUILTIN, make_profile

ROOT = "/home/me/project"
HERE = f"{ROOT}/src/a.py"


def rules(profile=None, *, read=(f"{ROOT}/**",), write=(f"{ROOT}/**",), deny=(), allow=("*",), never=(), **more):
    preset = Preset(
        name="p",
        backend="b",
        model="m",
        paths=Paths(read=tuple(read), write=tuple(write), deny=tuple(deny)),
        shell=Commands(allow=tuple(allow), deny=tuple(never)),
    )
    more.setdefault("interactive", True)
    return Context(preset=preset, profile=BUILTIN.get(profile, profile), **more)


def path(lexical, resolved=None):
    return ResolvedPath(lexical=lexical, resolved=resolved or lexical)


def read(lexical=HERE, resolved=None):
    return Action(tool="Read", detail=lexical, kind="read", paths=(path(lexical, resolved),), root=ROOT)


def write(lexical=HERE, resolved=None):
    return Action(tool="Write", detail=lexical, kind="write", paths=(path(lexical, resolved),), root=ROOT)


def run(command, *, reads=(), writes=()):
    return Action(
        tool="Bash",
        detail=command,
        kind="command",
        command=command,
        shell=shell.read(command),
        paths=tuple(path(each) for each in reads),
        writes=tuple(path(each) for each in writes),
        root=ROOT,
    )


def meta(tool="PersistentAgent", detail="explorer"):
    return Action(tool=tool, detail=detail, kind="meta")


def patterns(*texts):
    return tuple(map(compile_action, texts))


EVERYTHING = patterns(".*")
UNREADABLE = 'eval "$X"'
THIS_ONCE = frozenset({f"tool:Bash:{UNREADABLE}"})


def rule(decision):
    """A decision in few words: who allowed it, that it asks, or the rule that denied it."""
    match decision:
        case Allow(by):
            return by
        case Ask():
            return "ask"
        case Deny(_, name):
            return f"no: {name}"


# -- what wins over what -------------------------------------------------------------------------------------------

RECORD = "/s/x-1/branches/main/preset.md"
ALL = {"read": ("/**",), "write": ("/**",)}


@pytest.mark.parametrize(
    ("action", "context", "expected"),
    [
        # 1: protected places are before everything a human can say
        (write(RECORD), rules("open", **ALL, allow_once=frozenset({f"tool:Write:{RECORD}"})), "no: protected"),
        (write(RECORD), rules("open", **ALL, remembered=EVERYTHING, grants=EVERYTHING), "no: protected"),
        (read("/.ssh/i"), rules("open", **ALL, allow_once=frozenset({"tool:Read:/.ssh/i"})), "no: protected"),
        (run(f"echo x > {RECORD}", writes=[RECORD]), rules("open", **ALL), "no: protected"),
        (write(f"{ROOT}/l", RECORD), rules("open", **ALL), "no: protected"),
        # 2: any deny, own or above, is before allow-once
        (read(), rules("open", deny=["**/src/**"], allow_once=frozenset({f"tool:Read:{HERE}"})), "no: deny"),
        (read(), rules(ancestor_denies=("**/src/**",), allow_once=frozenset({f"tool:Read:{HERE}"})), "no: deny"),
        (run("sudo x"), rules("open", never=["sudo"], allow_once=frozenset({"tool:Bash:sudo x"})), "no: deny"),
        (run("sudo x"), rules(ancestor_commands=("sudo",), allow_once=frozenset({"tool:Bash:sudo x"})), "no: deny"),
        (run("make > /x", writes=["/x"]), rules("open", **ALL, deny=["/x"]), "no: deny"),
        (run("cat < /x", reads=["/x"]), rules("open", **ALL, ancestor_denies=("/x",)), "no: deny"),
        # 3: allow-once is before scope, profile and confirmation
        (read("/etc/hosts"), rules("locked", allow_once=frozenset({"tool:Read:/etc/hosts"})), "allowed once"),
        (write(), rules("locked", write=(), allow_once=frozenset({f"tool:Write:{HERE}"})), "allowed once"),
        (run(UNREADABLE), rules("locked", allow=(), allow_once=THIS_ONCE), "allowed once"),
        # 4: tools without a resource have no scope and are in every profile; they still ask
        (meta(), rules("locked", read=(), write=(), allow=()), "ask"),
        (meta(), rules("open"), "profile open"),
        (meta(), rules(make_profile("p", ask=["tool:.*"])), "ask"),
        (meta(), rules("locked", interactive=False), "no: headless"),
        (meta(), rules("locked", grants=patterns("tool:PersistentAgent:.*")), "grant tool:PersistentAgent:.*"),
        # 5: scope is before the profile, and no profile, grant or approval widens it
        (write("/etc/x"), rules("open", remembered=EVERYTHING, grants=EVERYTHING), "no: scope"),
        (read("/etc/x"), rules("open"), "no: scope"),
        (run("ls"), rules("open", allow=["git"], grants=EVERYTHING), "no: command"),
        (run(UNREADABLE), rules("open", allow=["eval"], grants=EVERYTHING), "no: command"),
        (run("make > /x", writes=["/x"]), rules("open", grants=EVERYTHING), "no: command"),
        (run("cat < /x", reads=["/x"]), rules("open", grants=EVERYTHING), "no: command"),
        # 6: the profile
        (read(), rules("locked"), "profile locked"),
        (write(), rules("locked", grants=EVERYTHING, remembered=EVERYTHING), "no: profile"),
        (write(), rules("standard"), "profile standard"),
        (run("make"), rules("standard"), "ask"),
        (run("make"), rules("standard", interactive=False), "no: headless"),
        (run("make"), rules("standard", grants=patterns("tool:Bash:make")), "grant tool:Bash:make"),
        (run("make"), rules("standard", remembered=patterns("tool:Bash:make")), "grant tool:Bash:make"),
        (run("make"), rules("open"), "profile open"),
        (run(UNREADABLE), rules("locked"), "no: profile"),
        # 7: without a profile the tool's own wish decides, which a grant satisfies
        (write(), rules(), "ask"),
        (write(), rules(interactive=False), "no: headless"),
        (write(), rules(grants=patterns("tool:Write:.*"), interactive=False), "grant tool:Write:.*"),
        (write(), rules(grants=patterns("tool:create_file:src/.*")), "grant tool:create_file:src/.*"),
    ],
)  # fmt: skip
def test_the_order_of_the_steps(action, context, expected):
    assert rule(decide(action, context, confirm=True)) == expected


def test_a_tool_that_wants_no_confirmation_has_none():
    assert decide(read(), rules(), False) == Allow("scope")
    assert decide(meta("question", ""), rules("locked"), False) == Allow("meta")
    assert rule(decide(read(), rules(make_profile("p", ask=["tool:view:.*"])), False)) == "ask"


# -- commands that cannot be read ----------------------------------------------------------------------------------


def test_what_cannot_be_read_is_asked_about_whoever_allowed_it_beforehand():
    assert shell.read(UNREADABLE).unreadable
    for context in (rules("open"), rules(), rules(grants=EVERYTHING), rules("open", remembered=EVERYTHING)):
        asked = decide(run(UNREADABLE), context, True)
        assert isinstance(asked, Ask)
        assert "nobody can tell beforehand" in asked.reason
        assert [bool(re.fullmatch(each, f"tool:Bash:{UNREADABLE}")) for each in asked.remember] == [True]
        headless = decide(run(UNREADABLE), replace(context, interactive=False), True)
        assert isinstance(headless, Deny) and headless.rule == "headless"


def test_only_a_human_who_saw_this_very_text_lets_it_pass():
    (exact,) = decide(run(UNREADABLE), rules(), True).remember
    for context in (rules(), rules("standard"), rules("open", interactive=False)):
        context = replace(context, remembered=patterns(exact))
        assert decide(run(UNREADABLE), context, True) == Allow(f"grant {exact}")
    assert rule(decide(run(UNREADABLE + " "), rules(remembered=patterns(exact)), True)) == "ask"
    assert rule(decide(run(UNREADABLE), rules(grants=patterns(exact)), True)) == "ask"


def test_a_command_that_nobody_read_for_the_guard_is_read_by_it():
    bare = Action(tool="Bash", detail="ls; rm x", kind="command", command="ls; rm x")
    assert rule(decide(bare, rules(allow=["ls"]), False)) == "no: command"
    writes = Action(tool="Bash", detail="ls > x", kind="command", command="ls > x")
    assert rule(decide(writes, rules(allow=["ls"]), False)) == "no: command"
    assert rule(decide(writes, rules("open"), False)) == "ask", "nobody looked where the file is"


def test_a_commands_own_devices_are_no_files():
    for device in ("/dev/null", "/dev/stdout", "/dev/stderr"):
        to = Action(
            tool="Bash", detail=f"ls > {device}", kind="command", command=f"ls > {device}",
            shell=shell.read(f"ls > {device}"), writes=(path(device, "/run/user/1/pyagentd/daemon.log"),),
        )  # fmt: skip
        assert decide(to, rules(allow=["ls"], protected=("/run/user/1/pyagentd/**",)), False) == Allow("scope")
        mine = replace(to, writes=(path(device, "/proc/77/fd/1"),))  # as the daemon would see it
        assert decide(mine, rules(allow=["ls"], deny=["/proc/**"]), False) == Allow("scope")
    assert rule(decide(write("/dev/null"), rules(), False)) == "no: scope", "for other tools they are"


def test_a_command_may_read_what_the_run_spooled():
    spooled = "/s/x-1/branches/main/files/out.txt"
    context = rules(allow=["wc"], readable=("/s/x-1/branches/main/files/**",))
    assert decide(run(f"wc -l < {spooled}", reads=[spooled]), context, False) == Allow("scope")


# -- sessions above an agent ---------------------------------------------------------------------------------------


@pytest.mark.spec("000", "Agent tools validated against agent scope")
def test_an_agent_may_not_do_what_a_session_above_it_may_not():
    above = rules("open", ancestor_profiles=(make_profile("mine", allow=["tool:view:.*"]), BUILTIN["open"]))
    refused = decide(write(), above, False)
    assert rule(refused) == "no: profile" and "'mine' of a session above this agent" in refused.reason
    assert decide(read(), above, False) == Allow("profile open")


def test_what_a_session_above_asks_about_is_asked_of_its_agents_too():
    above = rules("open", ancestor_profiles=(BUILTIN["standard"],))
    assert rule(decide(run("make"), above, True)) == "ask"
    assert rule(decide(run("make"), replace(above, interactive=False), True)) == "no: headless"
    granted = replace(above, remembered=patterns("tool:Bash:make"))
    assert decide(run("make"), granted, True) == Allow("grant tool:Bash:make")


def test_what_a_session_above_allows_is_no_permission_for_its_agents():
    assert rule(decide(write(), rules(ancestor_profiles=(BUILTIN["open"],)), True)) == "ask"


def test_a_deny_above_says_whose_it_is():
    for action in (read(), run("sudo x")):
        context = rules(ancestor_denies=("**/src/**",), ancestor_commands=("sudo",))
        assert "a session above this agent denies" in decide(action, context, True).reason


# -- links and names -----------------------------------------------------------------------------------------------


def test_allow_once_is_for_the_file_that_is_really_touched():
    link = read(f"{ROOT}/link", "/data/a")
    assert once_key(link) == "tool:Read:/data/a"
    assert once_key(run("ls")) == "tool:Bash:ls"
    context = rules(allow_once=frozenset({once_key(link)}))
    assert decide(link, context, True) == Allow("allowed once")
    assert rule(decide(read(f"{ROOT}/link", "/etc/shadow"), context, True)) == "no: scope", "put elsewhere since"
    by_name = rules(allow_once=frozenset({f"tool:Read:{ROOT}/link"}))
    assert rule(decide(link, by_name, True)) == "no: scope"


def test_allow_once_knows_the_other_names_of_a_tool():
    once = frozenset({"tool:read_file:/etc/hosts"})
    assert decide(read("/etc/hosts"), rules(allow_once=once), False) == Allow("allowed once")
    assert rule(decide(write("/etc/hosts"), rules(allow_once=once), False)) == "no: scope"


def test_a_grant_for_a_link_is_for_where_it_leads_too():
    link = write(f"{ROOT}/docs/l", f"{ROOT}/src/a.py")
    assert rule(decide(link, rules(grants=patterns("tool:Write:docs/.*")), True)) == "ask"
    both = patterns("tool:Write:docs/.*", "tool:Write:src/.*")
    assert rule(decide(link, rules(grants=both), True)).startswith("grant ")


@pytest.mark.parametrize(
    ("deny", "spelled"),
    [
        ("**/.env", "/w/.ENV"),
        ("**/.env", "/w/.Env"),
        ("**/.git/**", "/w/.GIT/config"),
        ("**/.git/**", "/w/.g\u200cit/config"),
        ("**/caf\u00e9/**", "/w/cafe\u0301/x"),
        ("**/cafe\u0301/**", "/w/caf\u00e9/x"),
        ("**/stra\u00dfe", "/w/STRASSE"),
    ],
)
def test_a_deny_holds_for_every_spelling_that_some_file_system_takes_for_the_same(deny, spelled):
    assert rule(decide(read(spelled), rules(read=["/**"], deny=[deny]), False)) == "no: deny"
    assert rule(decide(read("/w/other"), rules(read=["/**"], deny=[deny]), False)) == "scope"


def test_a_permission_counts_letter_by_letter():
    assert rule(decide(read("/HOME/me/project/a"), rules(), False)) == "no: scope"
    assert rule(decide(read("/w/cafe\u0301/x"), rules(read=["/w/caf\u00e9/**"]), False)) == "no: scope"


@pytest.mark.parametrize("path", ["/proc/1/environ", "/proc/77/task/78/environ", "/proc/77/mem", "/proc/77/fd/3"])
def test_memory_and_variables_of_processes_are_credentials(path):
    assert rule(decide(read(path), rules(read=["/**"]), False)) == "no: protected"
    assert rule(decide(read("/proc/meminfo"), rules(read=["/**"]), False)) == "scope"


# -- what is said --------------------------------------------------------------------------------------------------


def test_a_scope_denial_ends_with_the_way_to_ask_for_more():
    for action in (read("/etc/x"), write("/etc/x"), run("make > /x", writes=["/x"])):
        reason = decide(action, rules(), False).reason
        assert reason.endswith("Use request_scope_expansion to ask the user for approval.")
    assert decide(run("ls"), rules(allow=["git"]), False).reason.endswith("ask the user for approval.")


def test_a_profiles_denial_names_the_profile_and_the_action():
    reason = decide(write(), rules("locked"), True).reason
    assert "'locked'" in reason and f"tool:Write:{HERE}" in reason
