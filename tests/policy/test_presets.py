"""What the front matter of a preset means."""

from pathlib import Path

import pytest

from pyagentd.errors import PresetError
from pyagentd.policy.action import canonical_tool
from pyagentd.policy.presets import Commands, Paths, parse_preset
from pyagentd.policy.profiles import BUILTIN, make_profile
from pyagentd.store import presetfile

LEAST = "backend: Claude\nmodel: m\n"


def preset(front, body="", name="p"):
    file = presetfile.parse(f"---\n{front}---\n{body}", Path("p.md"))
    return parse_preset(name, file.front, file.body, "p.md")


@pytest.mark.spec("000", "Backend, model, system message from preset YAML")
@pytest.mark.spec("001", "Reading preset configuration")
def test_every_key_is_read():
    found = preset(
        "name: Shown\ndescription: >\n  Does\n  things\nmode: subagent\nbackend: Claude\n"
        "model: claude-3-7-sonnet-20250219\ntemperature: 0.3\nmax-tokens: 4000\ninclude-tool-results: false\n"
        "tools: [Read, Bash]\npaths:\n  read: [/p/**]\n  write: [/w/**]\n  deny: ['**/.env']\n"
        "shell_commands:\n  allow: [ls, git]\n  deny: [sudo]\nresult: last\n",
        "\nYou are it.\n\n",
        name="executor",
    )
    assert found.name == "executor"
    assert found.description == "Does things"
    assert (found.mode, found.result) == ("subagent", "last")
    assert (found.backend, found.model) == ("Claude", "claude-3-7-sonnet-20250219")
    assert (found.temperature, found.max_tokens) == (0.3, 4000)
    assert found.include_tool_results is False
    assert found.tools == ("Read", "Bash")
    assert found.paths == Paths(read=("/p/**",), write=("/w/**",), deny=("**/.env",))
    assert found.shell == Commands(allow=("ls", "git"), deny=("sudo",))
    assert found.body == "You are it."


def test_the_keys_of_agents_are_read():
    found = preset(
        LEAST + "max-turns: 20\nmax-calls: 50\ntime-budget: 10m\ntoken-budget: 50000\nprofile: locked\n"
        "shell_commands:\n  allow: [ls]\n  network: true\n  confine: false\n"
    )
    assert (found.max_turns, found.max_calls, found.time_budget_s, found.token_budget) == (20, 50, 600.0, 50_000)
    assert found.shell == Commands(allow=("ls",), network=True, confine=False)
    assert found.profile == "locked", "who has no profiles to look in leaves the name"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("0.5", 0.5),
        ("90s", 90),
        ("'90'", 90),
        ("10m", 600),
        ("1h", 3600),
        ("1h30m", 5400),
        ("1.5h", 5400),
    ],
)
def test_a_time_budget_is_seconds_or_says_its_unit(text, seconds):
    assert preset(LEAST + f"time-budget: {text}\n").time_budget_s == seconds


def test_a_profile_is_named_or_written_out_and_may_be_called_permissions():
    mine = {"docs": make_profile("docs", allow=["tool:view:.*"])}

    def profile(front):
        file = presetfile.parse(f"---\n{LEAST}{front}---\n", Path("p.md"))
        return parse_preset("p", file.front, file.body, "p.md", profiles=mine).profile

    assert profile("") is None and profile("profile:\n") is None
    assert profile("profile: standard\n") is BUILTIN["standard"]
    assert profile("permissions: docs\n") is mine["docs"]
    written = profile("permissions:\n  allow: ['tool:view:.*']\n  ask:\n    - tool:bash:.*\n")
    assert written == make_profile("custom", allow=["tool:view:.*"], ask=["tool:bash:.*"])
    assert profile("profile: {}\n") == make_profile("custom"), "which denies everything"
    with pytest.raises(PresetError) as caught:
        profile("profile: lockd\n")
    assert caught.value.message.startswith("p.md:4: `profile` is 'lockd'")
    assert "pyagentd stop" in str(caught.value)  # the daemon may not know of one yet
    assert caught.value.hint.startswith("It should be one of docs, locked, open, standard")


def test_what_is_not_said_grants_nothing():
    found = preset(LEAST)
    assert (found.profile, found.max_turns, found.time_budget_s, found.token_budget) == (None, None, None, None)
    assert found.paths == Paths()
    assert found.shell == Commands()
    assert found.tools == ()
    assert found.temperature is None
    assert found.include_tool_results is True
    assert (found.mode, found.result) == ("all", "all")


def test_keys_of_other_systems_are_ignored():
    assert preset(LEAST + "confirm-tool-calls: auto\norg_roam_patterns:\n  tags: [x]\nhooks: {}\n").model == "m"
    assert preset(LEAST + "prompt: {a: b}\nisolation: vm\n") == preset(LEAST), "these are a mission's"
    with pytest.raises(PresetError, match="`prompt` is keys and values"):
        preset(LEAST + "signature: '[:=> [:map] :string]'\nprompt: {a: b}\n")


def test_both_spellings_of_a_key_count():
    assert preset(LEAST + "include_tool_results: false\nmax_tokens: 5\nshell-commands:\n  allow: ['*']\n") == preset(
        LEAST + "include-tool-results: false\nmax-tokens: 5\nshell_commands:\n  allow: ['*']\n"
    )


@pytest.mark.parametrize(
    "tools",
    [
        "[read_file, write_file_in_scope, edit_file_in_scope, run_approved_command]",
        "[Read, Write, Edit, Bash, Read, bash]",
        "Read, Write, Edit, Bash",
        "view create_file str_replace bash",
        "{Read: {allowed: true}, Write: true, Glob: {allowed: false}, Edit: {allowed: true}, Bash: true}",
    ],
)
def test_tools_are_ours_whatever_they_are_called(tools):
    assert preset(LEAST + f"tools: {tools}\n").tools == ("Read", "Write", "Edit", "Bash")


def test_an_unknown_tool_keeps_its_name():
    assert preset(LEAST + "tools: [query_sql]\n").tools == ("query_sql",)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("read", "Read"),
        ("write", "Write"),
        ("edit", "Edit"),
        ("glob", "Glob"),
        ("grep", "Grep"),
        ("bash", "Bash"),
        ("Read", "Read"),
        ("PersistentAgent", "PersistentAgent"),
    ],
)
def test_locked_ids_and_our_names_are_the_same_tools(theirs, ours):
    assert canonical_tool(theirs) == ours


@pytest.mark.parametrize(
    ("front", "line", "said"),
    [
        ("model: m\n", 1, "`backend` is missing"),
        (LEAST + "temperature: hot\n", 4, "`temperature` is 'hot'"),
        (LEAST + "temperature: 3\n", 4, "a number from 0 to 2"),
        (LEAST + "temperature: true\n", 4, "`temperature` is true"),
        (LEAST + "\n# c\nmax_tokens: 0\n", 6, "`max_tokens` is 0"),
        (LEAST + "mode: both\n", 4, "primary, subagent, all"),
        (LEAST + "result: first\n", 4, "all, last"),
        (LEAST + "include-tool-results: 'yes'\n", 4, "true or false"),
        (LEAST + "tools: 5\n", 4, "`tools` is 5"),
        (LEAST + "tools: [1]\n", 4, "a list of texts"),
        (LEAST + "tools: {Bash: {allowed: no}}\n", 4, "Bash is 'no'. It should be true or false"),
        ("backend: Claude\nmodel: [a]\n", 3, "`model` is a list"),
        (LEAST + "paths: /x\n", 4, "keys and values"),
        (LEAST + "paths:\n  read: /x/**\n", 5, "`paths.read` is '/x/**'"),
        (LEAST + "paths:\n  read:\n    - /x/**\n    - src/**\n", 7, "'src/**' is not absolute"),
        (LEAST + "paths: {deny: [/x/../y]}\n", 4, "`paths.deny`"),
        (LEAST + "shell_commands:\n  allow: ls\n", 5, "`shell_commands.allow` is 'ls'"),
        (LEAST + "shell_commands:\n  allow: [ls]\n  network: 1\n", 6, "`shell_commands.network` is 1"),
        (LEAST + "max-turns: 0\n", 4, "`max-turns` is 0"),
        (LEAST + "token_budget: many\n", 4, "`token_budget` is 'many'"),
        (LEAST + "time-budget: 10 minutes\n", 4, "`time-budget` is '10 minutes'"),
        (LEAST + "time-budget: 1h30\n", 4, "`time-budget` is '1h30'"),
        (LEAST + "time-budget: 0\n", 4, "`time-budget` is 0"),
        (LEAST + "time-budget: .inf\n", 4, "`time-budget` is inf"),
        (LEAST + "time-budget: ''\n", 4, "`time-budget` is ''"),
        (LEAST + "time-budget: true\n", 4, "`time-budget` is true"),
        (LEAST + "profile: [a]\n", 4, "`profile` is a list"),
        (LEAST + "profile:\n  allow: ['tool:.*']\n  ask:\n  - tool:x\n  - 'tool:('\n", 8, "`profile.ask`: 'tool:('"),
        (LEAST + "permissions:\n  deny: ['tool:.*']\n", 5, "unknown key `deny` in `permissions`"),
        (LEAST + "profile:\n  allow: tool:x\n", 5, "`profile.allow` is 'tool:x'"),
    ],
)
def test_a_value_of_the_wrong_kind_names_file_line_and_hint(front, line, said):
    with pytest.raises(PresetError) as error:
        preset(front)
    assert error.value.message.startswith(f"p.md:{line}: ")
    assert said in str(error.value)
    assert error.value.hint


def test_a_plain_mapping_gives_the_same_errors_without_its_lines():
    with pytest.raises(PresetError, match="temperature"):
        parse_preset("p", {"backend": "Claude", "temperature": "x"}, "", "p.md")
