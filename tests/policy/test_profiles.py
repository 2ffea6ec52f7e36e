"""Profiles: which actions are allowed, asked about and denied, and under which names."""

import re
import warnings

import pytest

from pyagentd.config.tables import compile_action
from pyagentd.errors import BadRequest
from pyagentd.policy import shell
from pyagentd.policy.action import Action, ResolvedPath, action_names, canonical_tool
from pyagentd.policy.profiles import BUILTIN, _is_quick, fits, make_profile, resolve_profile, verdict

ROOT = "/home/me/project"


def on(tool, path, kind="read", *, really=None):
    where = path if path.startswith("/") else f"{ROOT}/{path}"
    paths = (ResolvedPath(lexical=where, resolved=really or where),)
    return Action(tool=tool, detail=where, kind=kind, paths=paths, root=ROOT)


def run(command):
    return Action(tool="Bash", detail=command, kind="command", command=command, shell=shell.read(command), root=ROOT)


def other(text):
    """An action of a tool that we do not have, given as its action string."""
    _, tool, detail = text.split(":", 2)
    return Action(tool=tool, detail=detail, kind="meta")


def says(profile, action):
    return verdict(BUILTIN[profile] if isinstance(profile, str) else profile, action)


# -- the three that are built in -----------------------------------------------------------------------------------


def test_the_built_in_profiles_are_exactly_these():
    written = {
        name: ([p.pattern for p in profile.allow], [p.pattern for p in profile.ask])
        for name, profile in BUILTIN.items()
    }
    assert written == {
        "open": (["tool:.*"], []),
        "standard": (
            [
                "tool:create_file:.*",
                "tool:str_replace:.*",
                "tool:view:.*",
                "tool:git:init",
                "tool:git:commit",
                "tool:git:branch .*",
            ],
            [
                "tool:bash:.*",
                "tool:git:push .*",
                "tool:git:merge_request .*",
                "tool:self_edit:.*",
                "mcp:.*",
                "tool:WebFetch:.*",
                "tool:WebSearch:.*",
            ],
        ),
        "locked": (["tool:view:.*"], []),
    }
    assert all(profile.name == name for name, profile in BUILTIN.items())


@pytest.mark.parametrize(
    ("action", "in_open", "in_standard", "in_locked"),
    [
        ("tool:view:a.py", "allow", "allow", "allow"),
        ("tool:create_file:a.py", "allow", "allow", "deny"),
        ("tool:str_replace:a.py", "allow", "allow", "deny"),
        ("tool:bash:ls", "allow", "ask", "deny"),
        ("tool:git:init", "allow", "allow", "deny"),
        ("tool:git:commit", "allow", "allow", "deny"),
        ("tool:git:commit -m x", "allow", "deny", "deny"),
        ("tool:git:branch topic", "allow", "allow", "deny"),
        ("tool:git:branch", "allow", "deny", "deny"),
        ("tool:git:push origin main", "allow", "ask", "deny"),
        ("tool:git:merge_request main", "allow", "ask", "deny"),
        ("tool:git:checkout main", "allow", "deny", "deny"),
        ("tool:git:diff", "allow", "deny", "deny"),
        ("tool:git:log", "allow", "deny", "deny"),
        ("tool:self_edit:system_prompt", "allow", "ask", "deny"),
        ("tool:self_edit:docs:a.md", "allow", "ask", "deny"),
        ("tool:self_edit:permissions:open", "allow", "ask", "deny"),
        ("tool:self_edit:model:m", "allow", "ask", "deny"),
        ("tool:unheard_of:x", "allow", "deny", "deny"),
    ],
)
def test_what_the_built_in_profiles_say(action, in_open, in_standard, in_locked):
    assert [says(name, other(action)) for name in ("open", "standard", "locked")] == [in_open, in_standard, in_locked]


def test_our_tools_answer_to_the_names_the_profiles_use():
    assert [says("standard", on(tool, "a", "read")) for tool in ("Read", "Glob", "Grep")] == ["allow"] * 3
    assert [says("standard", on(tool, "a", "write")) for tool in ("Write", "Edit")] == ["allow"] * 2
    assert says("standard", run("ls")) == "ask"
    assert [says("locked", on(tool, "a", "read")) for tool in ("Read", "Glob", "Grep")] == ["allow"] * 3
    assert [says("locked", on(tool, "a", "write")) for tool in ("Write", "Edit")] == ["deny"] * 2
    assert says("locked", run("ls")) == "deny"


def test_the_whole_action_must_match_newlines_included():
    profile = make_profile("p", allow=["tool:bash:ls"], ask=["tool:bash:echo.*"])
    assert says(profile, run("ls")) == "allow"
    assert says(profile, run("ls -la")) == "deny"
    assert says(profile, run("echo 'a\nb'")) == "ask"
    assert says("open", run("one\ntwo")) == "allow"


def test_any_allow_wins_over_ask_whatever_their_order():
    for lists in (
        {"allow": ["tool:x:.*"], "ask": [".*"]},
        {"allow": ["tool:y:.*", "tool:x:.*"], "ask": ["tool:x:.*"]},
    ):
        assert says(make_profile("p", **lists), other("tool:x:1")) == "allow"
    assert says(make_profile("p"), other("tool:x:1")) == "deny"


# -- spellings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Read", "read", "read_file", "view", "read_file_in_scope"])
@pytest.mark.parametrize("path", [f"{ROOT}/docs/a.md", "docs/a.md"])
def test_an_action_matches_under_every_name_and_path_it_has(name, path):
    exactly = make_profile("p", allow=[re.escape(f"tool:{name}:{path}")])
    assert says(exactly, on("Read", "docs/a.md")) == "allow"
    assert says(exactly, on("Read", "docs/b.md")) == "deny"
    assert says(exactly, on("Write", "docs/a.md", "write")) == "deny"


def test_the_root_itself_is_a_dot():
    assert says(make_profile("p", allow=["tool:view:\\."]), on("Glob", ROOT)) == "allow"


def test_a_path_outside_the_workspace_has_no_relative_form():
    profile = make_profile("p", allow=["tool:view:[^/].*"])
    assert says(profile, on("Read", "docs/a.md")) == "allow"
    assert says(profile, on("Read", "/etc/passwd")) == "deny"
    assert says(profile, on("Read", f"{ROOT}-other/a")) == "deny"


def test_a_link_does_not_borrow_the_rights_of_its_name():
    profile = make_profile("p", allow=["tool:create_file:docs/.*"], ask=["tool:create_file:src/.*"])
    assert says(profile, on("Write", "docs/a", "write")) == "allow"
    assert says(profile, on("Write", "docs/link", "write", really=f"{ROOT}/src/a")) == "ask"
    assert says(profile, on("Write", "docs/link", "write", really=f"{ROOT}/secret")) == "deny"
    assert says(profile, on("Write", "src/link", "write", really=f"{ROOT}/docs/a")) == "ask"


def test_each_command_of_a_line_has_to_be_allowed():
    profile = make_profile("p", allow=["tool:bash:git .*"], ask=["tool:bash:make.*"])
    assert says(profile, run("git status")) == "allow"
    assert says(profile, run("git status && git log")) == "allow"
    assert says(profile, run("git status; rm x")) == "deny"
    assert says(profile, run("git status; make")) == "ask", "the whole matches `git .*`, `make` is only to be asked"
    assert says(make_profile("p", allow=["tool:bash:git .*"], ask=["tool:bash:.*"]), run("git status; rm x")) == "ask"


@pytest.mark.parametrize(
    ("pattern", "command", "expected"),
    [
        ("find .*", "find . -name x", "allow"),
        ("find .*", "find . -delete", "deny"),
        ("(find|rm).*", "find . -delete", "allow"),
        (".*", "find . -delete", "allow"),
        ("find \\. -delete", "find . -delete", "allow"),
        ("find .* -delete", "find src -delete", "allow"),
        ("git .*", "git log -p", "allow"),
        ("git .*", "git -c core.pager=evil log", "deny"),
        ("git .*", "git -c alias.x='!evil' x", "deny"),
        ("(git|sh).*", "git -c core.pager=evil log", "allow"),
        ("sort .*", "sort -r a", "allow"),
        ("sort .*", "sort --compress-program=evil a", "deny"),
        ("sort --compress-program=gzip .*", "sort --compress-program=gzip a", "allow"),
        ("awk .*", "awk 'BEGIN{system(\"evil\")}'", "deny"),
    ],
)
def test_what_a_commands_own_options_do_has_to_be_allowed_as_what_it_is(pattern, command, expected):
    assert says(make_profile("p", allow=[f"tool:bash:{pattern}"]), run(command)) == expected


def test_the_custom_profile_of_the_specification():
    profile = make_profile(
        "docs",
        allow=["tool:view:.*", "tool:create_file:docs/.*", "tool:str_replace:docs/.*", "tool:self_edit:docs:.*"],
        ask=["tool:bash:.*", "tool:create_file:.*", "tool:str_replace:.*"],
    )
    assert says(profile, on("Write", "docs/a.md", "write")) == "allow"
    assert says(profile, on("Write", "src/a.py", "write")) == "ask"
    assert says(profile, on("Edit", "docs/a.md", "write")) == "allow"
    assert says(profile, other("tool:self_edit:docs:a.md")) == "allow"
    assert says(profile, other("tool:self_edit:model:m")) == "deny"
    assert says(profile, run("ls")) == "ask"
    assert says(profile, other("tool:git:init")) == "deny"


# -- loading -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["tool:(", "tool:[", "*", "(?P<x", "a{2,1}", "\\q"])
def test_a_malformed_expression_is_refused_when_it_is_loaded(pattern):
    with pytest.raises(BadRequest) as caught:
        compile_action(pattern)
    assert repr(pattern) in caught.value.message and caught.value.hint


def test_a_profile_by_name():
    assert resolve_profile("locked") is BUILTIN["locked"]
    assert resolve_profile(None) is None
    assert resolve_profile(BUILTIN["open"]) is BUILTIN["open"]
    with pytest.raises(BadRequest, match="'lockd'"):
        resolve_profile("lockd")


# -- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "others"),
    [
        ("Read", ["read", "read_file", "read_file_in_scope", "view"]),
        ("Write", ["write", "write_file", "write_file_in_scope", "create_file"]),
        ("Edit", ["edit", "edit_file", "edit_file_in_scope", "str_replace", "MultiEdit"]),
        ("Glob", ["glob", "list_files", "glob_files"]),
        ("Grep", ["grep", "grep_files", "search_files"]),
        ("Bash", ["bash", "run_approved_command", "run_command", "shell"]),
        ("PersistentAgent", ["persistent_agent"]),
        ("task", ["Task", "Agent", "agent"]),
        ("question", ["ask_user_questions", "AskUserQuestion"]),
        ("TodoWrite", ["todo", "todo_write"]),
        ("WebSearch", ["web_search"]),
        ("WebFetch", ["web_fetch"]),
    ],
)
def test_one_tool_has_one_name_of_ours(ours, others):
    assert canonical_tool(ours) == ours
    for name in others:
        assert canonical_tool(name) == ours
        assert action_names(name) == action_names(ours)
        assert name in action_names(ours)


def test_a_name_nobody_knows_stays():
    assert canonical_tool("sql_query") == "sql_query"
    assert action_names("sql_query") == ("sql_query",)


ENDLESS = "tool:Bash:(a|a)*(b|c)"
LONG = "tool:Bash:" + "a" * 400


def test_an_expression_that_tries_for_ever_has_not_matched():
    pattern = compile_action(ENDLESS)
    assert fits(pattern, "tool:Bash:aab") and not fits(pattern, "tool:Bash:aad")
    assert not fits(pattern, LONG) and fits(pattern, LONG, doubt=True)
    action = Action(tool="Bash", detail=LONG.removeprefix("tool:Bash:"), kind="command", command="a")
    assert verdict(make_profile("slow", allow=[ENDLESS]), action) == "deny"
    assert verdict(make_profile("slow", allow=[ENDLESS], ask=["tool:Bash:.*"]), action) == "ask"


@pytest.mark.parametrize("pattern", [r"(x|y)*a{e<=1}", r"(x|y)*[[:alpha:]]", r"(x|y)*\{1<=e<=2}", r"(x|y)*\\{a}"])
@pytest.mark.parametrize("text", ["xa", "xb", "xya{e<=1}", "xa]", "x:]", "x{1<=e<=2}", "x\\{a}", "x{a}"])
def test_a_slow_expression_means_what_it_means_in_python(pattern: str, text: str):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        plain = compile_action(pattern)
        assert fits(plain, text) == (plain.fullmatch(text) is not None)


@pytest.mark.parametrize("pattern", ["tool:.*", "tool:Bash:git log(?: [^;&|]*)?", "tool:(?:Edit|Write):/a/[^/]+"])
def test_the_usual_expression_needs_no_clock(pattern: str):
    assert _is_quick(pattern)


@pytest.mark.parametrize("pattern", ["(a|a)*b", ".*.*b", "(a*)*", "(a|a)(a|a)(a|a)(a|a)", "a?a?a?", "(?:a|a){99}"])
def test_an_expression_with_many_ways_has_a_clock(pattern: str):
    assert not _is_quick(pattern)
