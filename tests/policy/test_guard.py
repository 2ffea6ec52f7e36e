"""May it? The order of the rules, and what each refusal says."""

import re
from posixpath import normpath

import pytest

from pyagentd.policy import shell
from pyagentd.policy.action import Action, ResolvedPath
from pyagentd.policy.guard import SESSION_RECORDS, Allow, Ask, Context, Deny, decide
from pyagentd.policy.presets import Commands, Paths, Preset
from pyagentd.store import paths as store_paths

HOME = "/home/me"
ROOT = "/home/me/project"


def rules(*, read=(f"{ROOT}/**",), write=(), deny=(), allow=(), deny_text=(), **more):
    preset = Preset(
        name="p",
        backend="Claude",
        model="m",
        paths=Paths(read=tuple(read), write=tuple(write), deny=tuple(deny)),
        shell=Commands(allow=tuple(allow), deny=tuple(deny_text)),
    )
    return Context(preset=preset, interactive=more.pop("interactive", True), **more)


def on(kind, *paths):
    """An action on paths; a pair is (as written, as resolved)."""
    resolved = tuple(
        ResolvedPath(lexical=p[0], resolved=p[1]) if isinstance(p, tuple) else ResolvedPath(lexical=p, resolved=p)
        for p in paths
    )
    tool = {"read": "Read", "write": "Write"}[kind]
    return Action(tool=tool, detail=resolved[0].lexical if resolved else "", kind=kind, paths=resolved)


def run(command):
    reading = shell.read(command)
    reads, writes = (
        tuple(ResolvedPath(lexical=path, resolved=path) for path in (normpath(f"{ROOT}/{name}") for name in names))
        for names in (reading.reads, reading.writes)
    )
    return Action(
        tool="Bash", detail=command, kind="command", command=command, shell=reading, paths=reads, writes=writes
    )


def is_allowed(action, context):
    return isinstance(decide(action, context, False), Allow)


# -- scope ---------------------------------------------------------------------------------------------------------


def test_no_rule_means_no():
    nothing = rules(read=())
    assert not is_allowed(on("read", f"{ROOT}/a"), nothing)
    assert not is_allowed(on("write", f"{ROOT}/a"), nothing)
    assert not is_allowed(run("ls"), nothing)


@pytest.mark.spec("000", "Agent tools validated against agent scope")
@pytest.mark.spec("000", "Agent scope loaded from preset.md")
def test_reading_needs_read_and_writing_needs_write():
    context = rules(read=[f"{ROOT}/**"], write=["/tmp/**"])
    assert is_allowed(on("read", f"{ROOT}/a"), context)
    assert is_allowed(on("write", "/tmp/a"), context)
    assert not is_allowed(on("write", f"{ROOT}/a"), context)
    assert not is_allowed(on("read", "/tmp/a"), context), "write does not imply read"


def test_every_path_of_an_action_must_be_inside():
    assert not is_allowed(on("read", f"{ROOT}/a", "/etc/passwd"), rules())


def test_an_action_that_names_no_path_is_refused():
    assert isinstance(decide(on("read"), rules(read=["/**"]), False), Deny)


def test_only_the_resolved_path_counts_for_scope():
    assert not is_allowed(on("read", (f"{ROOT}/link", "/etc/passwd")), rules())
    assert is_allowed(on("read", ("/elsewhere/link", f"{ROOT}/a")), rules())


def test_the_runs_own_spooled_output_is_readable_and_not_writable():
    spool = "/s/x-20260205/branches/main/files"
    context = rules(readable=(f"{spool}/**",))
    assert is_allowed(on("read", f"{spool}/out.txt"), context)
    assert not is_allowed(on("write", f"{spool}/out.txt"), context)


def test_a_refusal_names_tool_path_scope_and_a_way_out():
    reason = decide(on("write", "/etc/hosts"), rules(write=["/tmp/**"]), True).reason
    for part in ("Write", "/etc/hosts", "paths.write", "/tmp/**"):
        assert part in reason
    assert reason.endswith("Use request_scope_expansion to ask the user for approval.")
    through_link = decide(on("read", (f"{ROOT}/l", "/etc/hosts")), rules(), True).reason
    assert f"{ROOT}/l (really /etc/hosts)" in through_link


# -- denies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [(f"{ROOT}/.git/x", "/plain"), ("/plain", f"{ROOT}/.git/x"), f"{ROOT}/.git/x"])
def test_a_deny_matches_either_form_of_a_path(path):
    context = rules(read=["/**"], deny=["**/.git/**"])
    decision = decide(on("read", path), context, False)
    assert isinstance(decision, Deny)
    assert "`paths.deny` has **/.git/**" in decision.reason


def test_an_ancestors_deny_holds_for_its_agents():
    context = rules(read=["/**"], ancestor_denies=("/secret/**",))
    assert "above this agent" in decide(on("read", "/secret/a"), context, False).reason


def test_nothing_a_human_allows_turns_a_deny_into_an_allow():
    action = on("read", "/secret/a")
    for context in (
        rules(read=["/**"], deny=["/secret/**"], allow_once=frozenset({str(action)})),
        rules(read=["/**"], ancestor_denies=("/secret/**",), allow_once=frozenset({str(action)})),
        rules(read=["/**"], deny=["/secret/**"], grants=(re.compile(".*"),)),
    ):
        assert isinstance(decide(action, context, True), Deny)


# -- protected places ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        store_paths.SESSION_FILE,
        store_paths.JOURNAL_FILE,
        store_paths.PRESET_FILE,
        store_paths.SCOPE_PLAN_FILE,
        store_paths.BRANCH_METADATA_FILE,
        store_paths.TOOLS_LOG_FILE,
        store_paths.PROMPTS_LOG_FILE,
        "agent.json",
    ],
)
@pytest.mark.parametrize("inner", ["", "agents/a-1/", "agents/a-1/agents/b-2/"])
def test_records_of_a_session_are_never_written_wherever_it_is(name, inner):
    path = f"/anywhere/session/branches/main/{inner}{name}"
    context = rules(read=["/**"], write=["/**"], allow_once=frozenset({f"tool:Write:{path}"}))
    assert "pyagentd" in decide(on("write", path), context, False).reason
    assert isinstance(decide(on("write", (f"{ROOT}/link", path)), context, False), Deny)
    assert is_allowed(on("read", path), context)


def test_a_projects_own_files_of_these_names_are_not_records():
    context = rules(write=[f"{ROOT}/**"])
    for name in ("session.md", "agents/x/preset.md", "docs/tools.org"):
        assert is_allowed(on("write", f"{ROOT}/{name}"), context)
    assert all(pattern.startswith("**/branches/") for pattern in SESSION_RECORDS)


@pytest.mark.parametrize(
    "name",
    [
        ".git",
        ".git/config",
        ".GIT/config",
        ".git/config.worktree",
        ".git/hooks/pre-commit",
        ".git/worktrees/w/config.worktree",
        ".git/worktrees/w/commondir",
        ".git/modules/sub/config",
        ".git/modules/sub/hooks/post-checkout",
    ],
)
def test_what_git_runs_programs_by_is_left_to_git(name):
    context = rules(read=["/**"], write=["/**"], allow=["*"])
    assert "Use git's own commands" in decide(on("write", f"{ROOT}/{name}"), context, True).reason
    assert is_allowed(on("read", f"{ROOT}/{name}"), context)


def test_what_git_only_reads_is_written_as_anything_else():
    context = rules(write=[f"{ROOT}/**"])
    for name in (".gitignore", ".gitattributes", ".git/info/exclude", ".github/config", "hooks/x", "a.git/b"):
        assert is_allowed(on("write", f"{ROOT}/{name}"), context)


def test_the_daemons_own_places_are_never_written():
    context = rules(read=["/**"], write=["/**"], protected=("/run/pyagentd/**",))
    assert isinstance(decide(on("write", "/run/pyagentd/daemon.eld"), context, False), Deny)
    assert is_allowed(on("read", "/run/pyagentd/daemon.log"), context)


@pytest.mark.parametrize(
    "path",
    [
        ".authinfo",
        ".authinfo.gpg",
        ".netrc",
        ".ssh/id_ed25519",
        ".ssh",
        ".aws/credentials",
        ".gnupg/private-keys-v1.d/x",
    ],
)
@pytest.mark.parametrize("kind", ["read", "write"])
def test_credentials_are_neither_read_nor_written(kind, path):
    context = rules(read=["/**"], write=["/**"])
    decision = decide(on(kind, f"{HOME}/{path}"), context, False)
    assert isinstance(decision, Deny)
    assert "credentials" in decision.reason
    assert isinstance(decide(on(kind, (f"{ROOT}/notes", f"{HOME}/{path}")), context, False), Deny)


# -- what a human allowed ------------------------------------------------------------------------------------------


def test_allow_once_is_for_exactly_this_action_and_goes_beyond_scope():
    context = rules(allow_once=frozenset({"tool:Read:/etc/hosts"}))
    assert decide(on("read", "/etc/hosts"), context, True) == Allow("allowed once")
    assert isinstance(decide(on("read", "/etc/hosts2"), context, True), Deny)


@pytest.mark.spec("000", "Meta tool bypasses scope validation")
def test_a_meta_tool_skips_scope_and_is_still_confirmed():
    spawn = Action(tool="PersistentAgent", detail="explorer", kind="meta")
    assert decide(spawn, rules(read=()), False) == Allow("meta")
    assert isinstance(decide(spawn, rules(read=()), True), Ask)


def test_a_tool_that_wants_confirmation_asks_a_human():
    decision = decide(on("write", "/tmp/a"), rules(write=["/tmp/**"]), True)
    assert isinstance(decision, Ask)
    assert "Write" in decision.reason
    (remember,) = decision.remember
    assert re.fullmatch(remember, "tool:Write:/tmp/a")
    assert not re.fullmatch(remember, "tool:Write:/tmp/deep/b")


def test_without_a_human_asking_is_a_refusal_that_names_the_option():
    decision = decide(run("make test"), rules(allow=["*"], interactive=False), True)
    assert isinstance(decision, Deny)
    (grant,) = re.findall(r"--allow '(.*)'", decision.reason)
    assert re.fullmatch(grant, "tool:Bash:make test")


@pytest.mark.parametrize("interactive", [True, False])
def test_a_grant_satisfies_confirmation_when_it_matches_the_whole_action(interactive):
    def decision(pattern, command="git status"):
        grants = (re.compile(pattern, re.DOTALL),)
        return decide(run(command), rules(allow=["*"], grants=grants, interactive=interactive), True)

    assert decision("tool:Bash:git .*") == Allow("grant tool:Bash:git .*")
    assert decision("tool:Bash:.*", "one\ntwo") == Allow("grant tool:Bash:.*")
    assert not isinstance(decision("tool:Bash:git"), Allow)
    assert not isinstance(decision("git status"), Allow)


def test_a_grant_does_not_widen_the_scope():
    context = rules(grants=(re.compile(".*", re.DOTALL),))
    assert isinstance(decide(on("write", f"{ROOT}/a"), context, True), Deny)
    assert isinstance(decide(run("ls"), context, True), Deny)


# -- commands ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", ["ls", "ls -la src", "git status", "  ls", "grep 'a b' file", 'git commit -m "x y"', "ls *.py ~/x?"]
)
def test_a_simple_command_in_the_list_is_allowed(command):
    assert is_allowed(run(command), rules(allow=["ls", "git", "grep"], write=[f"{ROOT}/**"]))


@pytest.mark.parametrize(
    "command",
    [
        "",
        "   ",
        "rm x",
        "lsof",
        "/bin/ls",
        "FOO=1 git x",
        "ls; rm x",
        "ls && rm x",
        "ls || rm x",
        "ls | sh",
        "ls & rm x",
        "ls\nrm x",
        "ls > file",
        "ls $(rm x)",
        "ls `rm x`",
        "ls $HOME",
        'ls "$(rm x)"',
        "ls {a,b}",
        "(ls)",
        "ls 'open",
        "ls\0",
        "''",
    ],
)
def test_anything_else_fails_closed(command):
    assert isinstance(decide(run(command), rules(allow=["ls", "git", "grep"]), False), Deny)


def test_an_entry_of_two_words_admits_only_that_subcommand():
    context = rules(allow=["git status"])
    assert is_allowed(run("git status -s"), context)
    assert not is_allowed(run("git push"), context)


def test_a_star_admits_every_command_and_leaves_it_to_confirmation():
    context = rules(allow=["*"])
    assert is_allowed(run("a | b"), context)
    assert isinstance(decide(run("a | b"), context, True), Ask)
    assert not is_allowed(run(""), context)


def test_a_denied_text_denies_wherever_it_occurs():
    context = rules(allow=["*"], deny_text=["rm -rf", "sudo"])
    assert "'rm -rf'" in decide(run("cd x && rm -rf ."), context, True).reason
    assert isinstance(decide(run("echo sudoku"), context, True), Deny)


def test_a_refused_command_says_what_would_be_allowed():
    reason = decide(run("rm x"), rules(allow=["ls", "git"]), True).reason
    assert "`rm` is not in `shell_commands.allow` (ls, git)" in reason
