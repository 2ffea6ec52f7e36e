"""What a server says of its tools, made fit for models and policy; whatever a server says."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyagentd.config.tables import ServerSettings
from pyagentd.errors import ConfigError, ToolError, UserError
from pyagentd.policy.presets import WantedServers, read_wanted
from pyagentd.reader import Source
from pyagentd.tools.invoke import validate_arguments
from pyagentd.tools.mcp.connection import (
    LONGEST_NAME,
    CallResult,
    Connection,
    Launch,
    Piece,
    ServerTool,
    ServerVariables,
    launch,
    make_server_dir,
    shared_names,
    spec_of,
    text_of,
    tool_name,
    unique_tools,
)
from pyagentd.tools.spec import ToolSpec
from tests.mcp.servers import plain


def spec(schema: Any = None, *, name: str = "echo", **settings: Any) -> ToolSpec:
    server = ServerSettings(name="notes", command=("x",), **settings)
    tool = ServerTool(name=name, schema=schema if schema is not None else {"type": "object"}, only_looks=True)
    return spec_of(server, Connection(Launch(name="notes")), tool)


@pytest.mark.parametrize("name", ["echo", "a b", "näme", "x" * 200, "read\nfile", "../..", ""])
def test_every_name_is_one_that_providers_take(name: str) -> None:
    made = tool_name("notes", name)
    assert made.startswith("notes_") and len(made) <= LONGEST_NAME
    assert made.replace("_", "").replace("-", "").isalnum() and made.isascii()


def test_names_that_would_become_the_same_do_not() -> None:
    assert len({tool_name("notes", name) for name in ("a b", "a_b", "a-b", "a/b", "a:b")}) == 5


def test_a_name_that_two_servers_tools_would_have_is_neithers() -> None:
    pairs = [("a", "b_c"), ("a_b", "c"), ("a", "d"), ("a", "d")]
    shared = shared_names(pairs)
    assert shared == {"a_b_c"}
    names = [tool_name(*pair, shared) for pair in pairs]
    assert len(set(names)) == 3 and names[2] == "a_d" and all(each.startswith("a_b_c_") for each in names[:2])


def test_of_two_tools_with_a_name_the_first_counts_and_ours_come_before() -> None:
    first, second = spec(), spec()
    assert unique_tools([first, second], ()) == {"notes_echo": first} and unique_tools([first], {"notes_echo"}) == {}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "properties": None, "required": "a"},
        {"anyOf": [{"type": "object"}], "$schema": "http://json-schema.org/draft-07/schema#"},
        {"type": "object", "properties": {"properties": {"type": "object", "properties": {"b": {"type": "string"}}}}},
        {"type": "object", "properties": {"a": {}, "b": {"additionalProperties": {}}}, "additionalProperties": {}},
        {"additionalProperties": False, "patternProperties": {"": {}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": True}, "b": {"$ref": "#/$defs/x"}}},
        {"type": "object", "properties": {f"p{number}": {"description": "x" * 100} for number in range(1000)}},
    ],
)
def test_any_schema_is_one_that_providers_take_and_forbids_no_more(schema: Any) -> None:
    made = spec(schema).input_schema
    assert made["type"] == "object" and not made.keys() & {"anyOf", "oneOf", "allOf"}
    given = {"a": [1], "b": {"c": 1}, "more": "x", "properties": {"b": "x", "more": 1}}
    assert validate_arguments("t", made, given) == given


def test_what_the_schema_forbids_is_told_before_anybody_is_asked() -> None:
    made = spec({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}).input_schema
    with pytest.raises(ToolError, match='"a" is required'):
        validate_arguments("t", made, {})


def test_a_servers_word_counts_only_when_the_user_trusts_it() -> None:
    assert spec().confirm and not spec().parallel_safe
    assert not spec(trusted=True).confirm and spec(trusted=True).parallel_safe


def test_a_long_description_is_cut() -> None:
    tool = ServerTool(name="a", description="x" * 100_000)
    made = spec_of(ServerSettings(name="n", url="https://x"), Connection(Launch(name="n")), tool)
    assert len(made.description) < 5000


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (CallResult(pieces=()), "(no output)"),
        (CallResult(pieces=(), ok=False), "(it failed and said nothing)"),
        (CallResult(pieces=(), structured={"a": 1}), '{\n "a": 1\n}'),
        (CallResult(pieces=(Piece(text="a"), Piece(text="b")), structured={"a": 1}), "a\nb"),
        (CallResult(pieces=(Piece(text="a", uri="memo://1"),)), "[resource memo://1]\na"),
    ],
)
def test_an_answer_as_text(answer: CallResult, text: str, tmp_path: Path) -> None:
    assert text_of(answer, tmp_path, "t") == text and not list(tmp_path.iterdir())


def around(root: Path, **variables: str) -> ServerVariables:
    apart = root / "apart"
    return ServerVariables(
        root=root, apart=apart, variable=lambda name: variables.get(name, ""), path="/p", keys={"LOCAL_KEY"}
    )


def test_what_settings_refer_to_is_filled_in(tmp_path: Path) -> None:
    settings = ServerSettings(
        name="a",
        command=("x", "${root}/y", "${workspaceFolder}", "${A}-${B:-b}", "$C"),
        cwd="~no-such-user/sub",
        env={"T": "${A}"},
    )
    made = launch(settings, around(tmp_path, A="a"))
    assert made.command == ("x", f"{tmp_path}/y", str(tmp_path), "a-b", "$C")
    assert made.cwd == tmp_path / "~no-such-user/sub"
    assert made.environment["T"] == "a" and made.environment["PATH"] == "/p"
    assert "a-b" not in repr(made), "it may be a secret"
    assert made == launch(settings, around(tmp_path, A="a")) != launch(settings, around(tmp_path, A="other"))


def test_texts_that_mean_what_they_say_are_left_as_they_are(tmp_path: Path) -> None:
    words, pairs = ("~/x", "${A}", "${NONE}"), {"K": "p${A}w${ANTHROPIC_API_KEY}"}
    made = launch(ServerSettings(name="a", command=words, env=pairs, literal=True), around(tmp_path, A="a"))
    assert (made.command, dict(made.env)) == (words, pairs)
    there = ServerSettings(name="a", url="https://x/${A}", headers=pairs, literal=True)
    made = launch(there, around(tmp_path, A="a"))
    assert (made.url, dict(made.headers)) == ("https://x/${A}", pairs)


def test_a_server_of_the_users_runs_where_no_checkout_can_lend_it_programs(tmp_path: Path) -> None:
    own = ServerSettings(name="a", command=("python", "-m", "x"))
    made = launch(own, around(tmp_path))
    assert made.cwd == tmp_path / "apart/a" and made.is_apart and "PYTHONSAFEPATH" not in made.environment
    make_server_dir(made.cwd)
    assert sorted(each.name for each in made.cwd.iterdir()) == ["package.json", "uv.toml"]
    assert launch(replace(own, cwd="${root}"), around(tmp_path)).cwd == tmp_path


def test_a_projects_server_runs_in_the_project_and_loads_what_it_names(tmp_path: Path) -> None:
    its = ServerSettings(name="a", command=("python", "s.py"), of_project=True)
    made = launch(its, around(tmp_path))
    assert made.cwd == tmp_path and not made.is_apart and made.environment["PYTHONSAFEPATH"] == "1"
    given = replace(its, env={"PYTHONSAFEPATH": ""})
    assert launch(given, around(tmp_path)).environment["PYTHONSAFEPATH"] == "", "the user has read it"


@pytest.mark.parametrize("name", ["NOBODY", "LOCAL_KEY", "ANTHROPIC_API_KEY", "PYAGENTD_TOKEN"])
def test_what_nobody_has_and_what_no_server_gets(tmp_path: Path, name: str) -> None:
    settings = ServerSettings(name="a", url="https://x", headers={"K": f"${{{name}}}"}, source="here:3")
    values = {name: "secret"} if name != "NOBODY" else {}
    with pytest.raises(ConfigError, match=rf"here:3: .*{name}"):
        launch(settings, around(tmp_path, **values))


KNOWN = {name: ServerSettings(name=name, url="https://x", enabled=name != "off") for name in ("a", "b", "off")}


@pytest.mark.parametrize(
    ("value", "names", "missing"),
    [
        ("all", ["a", "b"], []), ("none", [], []), (False, [], []), ([], [], []), ("a, nosuch", ["a"], ["nosuch"]),
        (["b", {"name": "c", "url": "https://c"}, {"d": {"url": "https://d"}}], ["b", "c", "d"], []),
        ({"a": True, "b": False, "a2": {"command": ["x"]}}, ["a", "a2"], []),
    ],
)  # fmt: skip
def test_which_servers_a_preset_wants(value: object, names: list[str], missing: list[str]) -> None:
    found, unknown = read_wanted(value, Source.at("p.md:3", UserError)).of(KNOWN)
    assert ([each.name for each in found], unknown) == (names, missing)


def test_a_preset_does_not_say_whose_word_counts() -> None:
    (found,), _ = read_wanted({"a": {"command": ["x"], "trusted": True}}, Source.at("p.md:3", UserError)).of({})
    assert not found.trusted


def test_a_preset_narrows_a_server() -> None:
    (found,), _ = read_wanted({"a": {"tools": ["get_*"]}}, Source.at("p.md:3", UserError)).of(KNOWN)
    assert found.tools == ("get_*",) and WantedServers().of(KNOWN) == ([], [])


@pytest.mark.parametrize(
    "value", [3, [3], [{"a": 1, "b": 2}], {"a": 3}, {"a": {"tools": "x"}}, {"a b": {"url": "https://x"}}]
)
def test_what_is_wrong_is_told_with_its_line(value: object) -> None:
    with pytest.raises(UserError, match=r"^p\.md:3: "):
        read_wanted(value, Source.at("p.md:3", UserError))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (Launch(name="a", command=("true",), cwd=Path("/no/such")), "there is no directory /no/such"),
        (Launch(name="a", command=("no-such",)), "there is no program no-such"),
        (Launch(name="a", url="https://127.0.0.1:9/"), "No such file or directory"),  # SSL_CERT_FILE names none
    ],
)
async def test_what_is_missing_is_told(made: Launch, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such")
    connection = Connection(made)
    with pytest.raises(ToolError, match=f"unavailable: .*{said}"):
        await connection.offers()
    await connection.close()


async def test_a_server_is_started_once_by_who_waits_and_who_has_it_tried_again() -> None:
    server = Connection(Launch(name="a", command=tuple(plain())))
    server.not_before = server.now() + 1.5
    waiting = asyncio.create_task(server.call("count", {}))
    await asyncio.sleep(0)
    server.try_again()
    assert (await server.call("count", {})).pieces[0].text == "1"
    assert (await waiting).pieces[0].text == "2", "it is the same process"
    await server.close()


def test_a_daemon_without_servers_never_loads_the_sdk() -> None:
    code = "import sys, pyagentd.daemon, pyagentd.api; sys.exit('mcp' in sys.modules or 'mcp_types' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0
