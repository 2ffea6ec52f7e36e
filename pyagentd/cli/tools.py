"""``pyagentd mcp``, ``hooks``, ``skills``, ``presets`` and ``trust``: the tools and texts that agents can use.

``add``, ``add-json``, ``get`` and ``remove`` accept the arguments of ``claude mcp``. The user's servers are in
config.toml, whose comments are kept: a new server is appended, and removing one changes no other line.
"""

import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click

from pyagentd.cli.link import complete_session, daemon, session_link
from pyagentd.cli.models import DAEMON_NOTE
from pyagentd.cli.output import (
    ExitCode,
    json_option,
    note,
    print_json,
    print_list,
    print_page,
    print_table,
    print_view,
    project_option,
)
from pyagentd.config import config_file
from pyagentd.config.loading import read_config_file
from pyagentd.config.tables import read_server
from pyagentd.errors import ConfigError, Conflict, NotFound
from pyagentd.reader import Source
from pyagentd.store import configfile
from pyagentd.store.atomic import rewrite_text
from pyagentd.wire.client import DaemonClient
from pyagentd.words import printable

_PROJECT_FILE = ".mcp.json"

_root = project_option("servers")


@click.group()
def mcp() -> None:
    """Manage MCP servers, whose tools agents call with your approval.

    Yours are in config.toml as [mcp.NAME], a project's in .mcp.json or .pyagentd/mcp.toml.
    """


_scope = click.option(
    "-s",
    "--scope",
    type=click.Choice(["user", "project", "local"]),
    help="user: config.toml, for all projects (default of add). project: .mcp.json here, shared with others.",
)


@mcp.command()
@_scope
@click.option("-t", "--transport", type=click.Choice(["stdio", "http", "sse"]), help="How it is reached.")
@click.option("-e", "--env", multiple=True, metavar="KEY=VALUE", help="A variable for the program. May be repeated.")
@click.option(
    "-H", "--header", multiple=True, metavar="NAME:VALUE", help="A header for each request. May be repeated."
)
@_root
@click.argument("name")
@click.argument("command_or_url")
@click.argument("args", nargs=-1)
def add(
    scope: str | None,
    transport: str | None,
    env: tuple[str, ...],
    header: tuple[str, ...],
    root: Path,
    name: str,
    command_or_url: str,
    args: tuple[str, ...],
) -> None:
    """Add the server NAME: a program with its arguments, or an address.

    \b
    pyagentd mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
    pyagentd mcp add -t http tracker https://tracker.example.org/mcp -H "Authorization: Bearer ${TOKEN}"
    """  # noqa: D301  # click leaves lines below this character as they are
    is_url = transport in ("http", "sse") or (
        transport is None and command_or_url.startswith(("http://", "https://"))
    )
    if is_url and (args or env):
        raise click.UsageError("A server on the web takes no arguments and no variables; use --header")
    if not is_url and header:
        raise click.UsageError("A program takes no headers; use --env, or --transport http")
    table: dict[str, Any] = {"type": transport or "http", "url": command_or_url} if is_url else {}
    if not is_url:
        table = {"command": command_or_url, "args": list(args)}
    if env:
        table["env"] = dict(_pair(each, "=", "--env") for each in env)
    if header:
        table["headers"] = dict(_pair(each, ":", "--header") for each in header)
    _add_server(name, table, scope, root)


@mcp.command("add-json")
@_scope
@_root
@click.argument("name")
@click.argument("json_text", metavar="JSON")
def add_json(scope: str | None, root: Path, name: str, json_text: str) -> None:
    """Add the server NAME from JSON: {"command": …, "args": […]} or {"type": "http", "url": …}."""
    try:
        table = json.loads(json_text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"JSON cannot be read: {error}") from None
    if not isinstance(table, dict):
        raise click.UsageError('JSON is not an object such as {"command": "npx", "args": ["PACKAGE"]}')
    _add_server(name, table, scope, root)


@mcp.command()
@_root
@click.argument("name")
@json_option
def get(root: Path, name: str, as_json: bool) -> None:
    """Show the server NAME: its file, its command and its state."""
    with daemon() as link:
        reply = link.call("mcp", root=str(root.resolve()), env=_environment())
    found = [row for row in reply["servers"] if row["name"] == name]
    if not found:
        known = ", ".join(sorted({row["name"] for row in reply["servers"]})) or "none"
        raise NotFound(
            f"There is no MCP server {name!r}{': ' + reply['error'] if reply['error'] else ''}",
            hint=f"Known: {known}{_unread(name, reply['error'])}",
        )
    if as_json:
        print_json(found[0])
        return
    for row in found:
        print(f"{name}:")
        for what, value in (
            ("scope", row["origin"]),
            ("from", row["source"]),
            ("type", "http" if row["url"] else "stdio"),
            ("url", row["url"]),
            ("command", shlex.join(row["command"])),
            ("state", "NOT TRUSTED" if not row["trusted"] else row["state"] if row["enabled"] else "disabled"),
            ("tools", "" if row["tools"] is None else str(row["tools"])),
            ("problem", row["problem"]),
        ):
            if value:
                print(f"  {what}: {_line(value)}")


@mcp.command()
@_scope
@_root
@click.argument("name")
def remove(scope: str | None, root: Path, name: str) -> None:
    """Remove the server NAME from config.toml or from the project's .mcp.json."""
    config, project = config_file(os.environ), root.resolve() / _PROJECT_FILE
    named = ["user"] if scope != "project" and name in _own_tables(config) else []
    try:
        if scope != "user" and name in _project_tables(project).get("mcpServers", {}):
            named.append("project")
    except ConfigError:
        if not named:  # a broken project file does not prevent removing a server of the user
            raise
    if not named:
        raise NotFound(f"No MCP server is called {name!r} in {config} or {project}", hint="pyagentd mcp list")
    if len(named) > 1:
        raise click.UsageError(f"{name} is in both places: say --scope user or --scope project")
    if named == ["project"]:
        document = _project_tables(project)
        del document["mcpServers"][name]
        rewrite_text(project, json.dumps(document, ensure_ascii=False, indent=2) + "\n", mode=0o666)
    else:
        before = config.read_text("utf-8")
        after = _without_table(before, name)
        tables = tomllib.loads(before)
        del tables["mcp"][name]
        # A table that cannot be removed as whole lines is left for the user to edit.
        if {**tomllib.loads(after), "mcp": {}} != {**tables, "mcp": {}} or _tables_in(after) != tables["mcp"]:
            raise ConfigError(f"{config}: [mcp.{name}] could not be removed", hint="Remove it with an editor")
        rewrite_text(config, after, links=True)
    note(
        f"removed {name} from {project if named == ['project'] else config}{DAEMON_NOTE if named == ['user'] else ''}"
    )


@mcp.command("list")
@_root
@json_option
def list_(root: Path, as_json: bool) -> None:
    """List the servers. Starts none."""
    project: dict[str, Any] = {"root": str(root.resolve()), "env": _environment()}
    with daemon() as link:
        if as_json:
            print_json(link.call("mcp", **project))
            return
        view = link.call("view", name="mcp", arguments=project)
    config, known = config_file(os.environ), [row["cells"][0]["text"] for row in view["rows"]]
    unread = [name for name in _own_tables(config) if name not in known and name not in (view["note"] or "")]
    also = f"{config} also has {', '.join(unread)}{DAEMON_NOTE}" if unread else ""
    print_view(
        view, empty=also or "No MCP servers. Add one: pyagentd mcp add NAME -- COMMAND, or pyagentd mcp add NAME URL"
    )
    if also and known:
        note(also)
    if view["note"]:
        note(view["note"])


@mcp.command()
@click.argument("name")
@_root
@json_option
def test(name: str, root: Path, as_json: bool) -> int:
    """Start the server NAME and list its tools, resources and prompts. Exits 1 if it cannot be reached."""
    server: dict[str, Any] = {"name": name, "root": str(root.resolve()), "env": _environment()}
    with daemon() as link:
        try:
            reply = link.call("mcp-test", **server)
        except NotFound as error:
            raise NotFound(error.message, hint=f"{error.hint}{_unread(name, error.hint)}") from None
        if as_json:
            print_json({"tools": [], "refused": [], "resources": [], "prompts": []} | reply)
        elif reply["ok"]:
            print_page(link.call("report", name="server", arguments=server))
        else:
            note(reply["error"])
    return ExitCode.DONE if reply["ok"] else ExitCode.FAILED


@mcp.command("trust")
@_root
@json_option
def trust_servers(root: Path, as_json: bool) -> int:
    """Show the programs of the project's servers, and trust them.

    They run as you. You must trust them again when their configuration changes, or a program or script of the project
    that they run. Their data may change.
    """
    place = str(root.resolve())
    with daemon(human=True) as link:
        trusted = _trust_page(link, "servers", quiet=as_json, root=place)
        error = None if trusted else link.call("mcp", root=place)["error"]
    if as_json:
        print_json(trusted or {"trusted": [], "error": error})
    return ExitCode.FAILED if error else ExitCode.DONE


def _pair(text: str, mark: str, option: str) -> tuple[str, str]:
    key, found, value = text.partition(mark)
    if not found or not key.strip():
        raise click.UsageError(
            f"{option} {text!r} is not of the form {'KEY=VALUE' if mark == '=' else 'NAME: VALUE'}"
        )
    return key.strip(), value.strip() if mark == ":" else value


def _add_server(name: str, table: dict[str, Any], scope: str | None, root: Path) -> None:
    """Write a server to its file; raises an error if the name is taken or the server is not valid."""
    if scope == "local":
        raise click.UsageError("--scope is user or project: servers of one project for you alone are not supported")
    config, project = config_file(os.environ), root.resolve() / _PROJECT_FILE
    file = project if scope == "project" else config
    read_server(name, table, Source.at(str(file), ConfigError))  # raises an error if it is not valid
    document = _project_tables(project) if scope == "project" else {}
    known = document.get("mcpServers", {}) if scope == "project" else _own_tables(config)
    if name in known:
        raise Conflict(f"{file} has an MCP server {name!r} already", hint=f"pyagentd mcp remove {name}")
    if scope == "project":
        document.setdefault("mcpServers", {})[name] = table
        rewrite_text(project, json.dumps(document, ensure_ascii=False, indent=2) + "\n", mode=0o666)
        note(f"added {name} to {project}; have it started with: pyagentd mcp trust")
        return
    configfile.append(config, configfile.table(("mcp", name), table))
    note(f"added {name} to {config}{DAEMON_NOTE}")


def _tables_in(text: str) -> dict[str, Any]:
    tables = tomllib.loads(text).get("mcp", {})
    return tables if isinstance(tables, dict) else {}


def _own_tables(config: Path) -> dict[str, Any]:
    return _tables_in(read_config_file(config).text)


def _unread(name: str, error: str) -> str:
    """Return a remark if ``config.toml`` has the server but the daemon has not read it, else ""."""
    config = config_file(os.environ)
    return f". {config} has {name}{DAEMON_NOTE}" if name in _own_tables(config) and name not in error else ""


def _project_tables(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("mcpServers", {}), dict):
        raise ConfigError(f'{file} has no table of servers, such as {{"mcpServers": {{}}}}')
    return document


def _without_table(text: str, name: str) -> str:
    """Return ``config.toml`` without the lines of ``[mcp.NAME]`` and of the tables below it."""
    header = re.compile(rf'\s*\[\s*mcp\s*\.\s*("{re.escape(name)}"|{re.escape(name)})\s*[\].]')
    kept, within = [], False
    for line in text.splitlines(keepends=True):
        if re.match(r"\s*\[", line):
            within = header.match(line) is not None
        if not within:
            kept.append(line)
    return "".join(kept)


def _environment() -> dict[str, str]:
    """Return the environment variables to start a server with: only ``PATH``."""
    return {name: os.environ[name] for name in ("PATH",) if name in os.environ}


def _line(text: str) -> str:
    """Return a server's text on one printable line, so that it cannot imitate other output."""
    return printable(" ".join(text.split()))


@click.command()
@project_option("hooks")
@click.option("--trust", is_flag=True, help="Show what the project's hooks run, and trust them as they are.")
@json_option
def hooks(root: Path, trust: bool, as_json: bool) -> None:
    """List the hooks: yours, from config.toml, and the project's, from .pyagentd/hooks.toml.

    A project's hooks are programs that run as you. They run only after you trust them with --trust; when the file or
    a script that it names changes, you must trust them again.
    """
    place = str(root.resolve())
    with daemon(human=True) as link:
        if trust:
            _trust_page(link, "hooks", quiet=as_json, root=place)
        reply = link.call("hooks", root=place)
    rows = reply["hooks"]
    if as_json:
        print_json(reply)
        return
    print_table(
        ("event", "command", "tools", "seconds", "source"),
        (
            (
                row["event"],
                ("" if row["trusted"] else "NOT TRUSTED: ") + " ".join(row["command"]),
                row["tools"] or "",
                f"{row['timeout']:g}",
                row["source"],
            )
            for row in rows
        ),
    )
    for row in rows:
        if row["problem"]:
            note(f"{row['source']}: the hook cannot be used: {row['problem']}")
    if not rows and not reply["error"]:
        note("No hooks are configured here, neither in config.toml nor in .pyagentd/hooks.toml")
    if reply["error"]:
        note(f"the project's hooks cannot be used: {reply['error']}")
    elif any(not row["trusted"] for row in rows):
        note("the project's hooks wait for your word: read them, then pyagentd hooks --trust")


def _trust_page(link: DaemonClient, name: str, *, quiet: bool, **arguments: Any) -> Any:
    """Show the page of untrusted files on stderr and trust them; return None if there are none."""
    page = link.call("report", name=name, arguments=arguments)
    if not quiet:
        with redirect_stdout(sys.stderr):
            print_page(page)
    replies = [link.call(each["operation"], **each["arguments"]) for each in page["actions"]]
    if not quiet:
        note("trusted" if replies else "nothing here waits for your trust")
    return replies[0] if replies else None


@click.command()
@click.argument("session", shell_complete=complete_session)
@json_option
def trust(session: str, as_json: bool) -> None:
    """Show the preset.md of SESSION, which is from another machine, and trust it.

    Until then, and after it changes, its profile, its grants and its settings for confinement are ignored.
    """
    with session_link(session, human=True) as (link, branch):
        reply = _trust_page(link, "trust", quiet=as_json, branch=branch)
        if as_json:
            print_json(reply or link.call("trust-session", branch=branch))


@click.command()
@project_option("skills")
@json_option
def skills(root: Path, as_json: bool) -> ExitCode:
    """List the skills that new sessions offer the model.

    Skills are SKILL.md files in directories below .agents/skills and .claude/skills of the project, then your own,
    then those of pyagentd. Of two with the same name the first is used. Broken ones are listed with file and line.
    """
    with daemon() as link:
        answer = link.call("skills", root=str(root.resolve()))
    found, hidden, broken = (answer[key] for key in ("skills", "hidden", "broken"))
    if as_json:
        print_json({"skills": found, "hidden": hidden, "broken": broken})
    else:
        print_table(
            ("skill", "origin", "description", "file"),
            [(row["name"], row["origin"], row["description"], row["file"]) for row in found],
        )
        for row in hidden:
            note(f"two are called {row['name']}: not used is {row['file']}")
        for row in broken:
            note(f"cannot be used: {row['error']}")
    return ExitCode.FAILED if broken else ExitCode.DONE


Row = dict[str, Any]


@click.command()
@project_option("presets")
@click.option("--trust", is_flag=True, help="Show the project's own presets, and trust them as they are.")
@json_option
def presets(root: Path, trust: bool, as_json: bool) -> None:
    """List the presets for sessions and agents.

    A project's presets (.pyagentd/presets/*.md) say what an agent may read, write and run. They are used only after
    you trust them with --trust, and until their content changes.
    """
    place = str(root.resolve())
    with daemon(human=True) as link:
        if trust:
            _trust_page(link, "presets", quiet=as_json, root=place)
        answer = link.call("presets", root=place)
    found = [{**row, "trusted": True} for row in answer["presets"]]
    waiting = [{**row, "trusted": False} for row in answer["untrusted"]]
    rows = [*found, *waiting]
    print_list(rows, ("preset", "mode", "description", "source"), _lines(rows), as_json=as_json)
    if not as_json and (good := sum(not row.get("error") for row in waiting)):
        wait = "preset waits" if good == 1 else "presets wait"
        note(f"{good} of the project's {wait} for your word: read, then pyagentd presets --trust")


def _lines(rows: list[Row]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        description = row.get("error") or row.get("description") or ""
        if warning := row.get("warning"):
            description = f"{description} (WARNING: {warning})"
        if not row["trusted"]:
            description = f"NOT TRUSTED: {description}"
        yield row["name"], row.get("mode") or "", description, row["source"]
