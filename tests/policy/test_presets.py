"""What the front matter of a preset means."""

from pathlib import Path

import pytest

from pyagentd.errors import PresetError
from pyagentd.policy.aliases import canonical_tool
from pyagentd.policy.presets import Commands, Paths, parse_preset
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


def test_what_is_not_said_grants_nothing():
    found = preset(LEAST)
    assert found.paths == Paths()
    assert found.shell == Commands()
    assert found.tools == ()
    assert found.temperature is None
    assert found.include_tool_results is True
    assert (found.mode, found.result) == ("all", "all")


def test_keys_of_other_systems_are_ignored():
    assert preset(LEAST + "confirm-tool-calls: auto\norg_roam_patterns:\n  tags: [x]\nhooks: {}\n").model == "m"


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
        "{Read: {allowed: true}, Write: {allowed: true}, Glob: {allowed: false}, Edit: {allowed: true}, "
        "Bash: {allowed: true}}",
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
        (LEAST + "temperature: true\n", 4, "`temperature` is True"),
        (LEAST + "\n# c\nmax_tokens: 0\n", 6, "`max_tokens` is 0"),
        (LEAST + "mode: both\n", 4, "primary, subagent, all"),
        (LEAST + "result: first\n", 4, "all, last"),
        (LEAST + "include-tool-results: 'yes'\n", 4, "true or false"),
        (LEAST + "tools: 5\n", 4, "`tools` is 5"),
        (LEAST + "tools: [1]\n", 4, "a list of texts"),
        ("backend: Claude\nmodel: [a]\n", 3, "`model` is a CommentedSeq"),
        (LEAST + "paths: /x\n", 4, "keys and values"),
        (LEAST + "paths:\n  read: /x/**\n", 5, "`paths.read` is '/x/**'"),
        (LEAST + "paths:\n  read:\n    - /x/**\n    - src/**\n", 7, "'src/**' is not absolute"),
        (LEAST + "paths: {deny: [/x/../y]}\n", 4, "`paths.deny`"),
        (LEAST + "shell_commands:\n  allow: ls\n", 5, "`shell_commands.allow` is 'ls'"),
    ],
)
def test_a_value_of_the_wrong_kind_names_file_line_and_mend(front, line, said):
    with pytest.raises(PresetError) as error:
        preset(front)
    assert error.value.message.startswith(f"p.md:{line}: ")
    assert said in str(error.value)
    assert error.value.mend


def test_a_plain_mapping_gives_the_same_errors_without_its_lines():
    with pytest.raises(PresetError, match="temperature"):
        parse_preset("p", {"backend": "Claude", "temperature": "x"}, "", "p.md")
