"""``pyagentd mcp``: which servers of tools there are, trying one, trusting those of a project."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from pyagentd.cli.link import daemon
from pyagentd.cli.options import project_option
from pyagentd.cli.outcome import ExitCode
from pyagentd.cli.output import json_option, note, print_json, print_table, printable

_TEST_S = 120.0  # a server may be fetched first

_root = project_option("servers")


@click.group()
def mcp() -> None:
    """Servers of the Model Context Protocol, whose tools agents may call when you approve.

    Yours are in config.toml as [mcp.NAME], a project's in .mcp.json or .pyagentd/mcp.toml.
    """


@mcp.command("list")
@_root
@json_option
def list_(root: Path, as_json: bool) -> None:
    """List the servers; none is started."""
    with daemon() as link:
        told = link.call("mcp", root=str(root.resolve()), env=_environment())
    rows = told["servers"] or []
    if as_json:
        print_json({**told, "servers": rows, "files": told["files"] or [], "scripts": told["scripts"] or []})
        return
    print_table(
        ("server", "state", "tools", "reached by", "from"),
        (
            (
                row["name"],
                _state(row),
                "" if row["tools"] is None else str(row["tools"]),
                row["url"] or " ".join(row["command"] or ()),
                row["source"],
            )
            for row in rows
        ),
    )
    if told["error"]:
        note(f"of the project's servers cannot be used: {told['error']}")
    if any(not row["trusted"] for row in rows):
        note("the project's servers wait for your word: read them, then pyagentd mcp trust")
    for row in rows:
        if row["problem"]:
            note(f"{row['name']}: {row['problem']}")


@mcp.command()
@click.argument("name")
@_root
@json_option
def test(name: str, root: Path, as_json: bool) -> int:
    """Start the server NAME and show what it offers; exit 1 when it cannot be reached."""
    with daemon() as link:
        told = link.call("mcp-test", timeout=_TEST_S, name=name, root=str(root.resolve()), env=_environment())
    if as_json:
        for key in ("tools", "resources", "prompts"):
            told[key] = told.get(key) or []
        print_json(told)
    elif told["ok"]:
        _show(told)
    else:
        note(told["error"])
    return ExitCode.DONE if told["ok"] else ExitCode.FAILED


@mcp.command()
@_root
@json_option
def trust(root: Path, as_json: bool) -> None:
    """Show what the project's servers run, and have them started as they are now.

    They are programs that run as you. When a file that names them changes, or a script of the project that they run,
    they wait for your word again.
    """
    place = str(root.resolve())
    with daemon() as link:
        told = link.call("mcp", root=place)
        if not as_json:
            for file in (*(told["files"] or ()), *(told["scripts"] or ())):
                print(f"--- {file['path']}\n{printable(file['text'])}", file=sys.stderr)
            note("what these programs load besides is not looked at: it may change without a question")
        trusted = link.call("trust-mcp", root=place, hash=told["hash"] or "")
    if as_json:
        print_json(trusted)
    else:
        note(f"trusted: {', '.join(trusted['trusted'] or ())}")


def _environment() -> dict[str, str]:
    """Return what a server is started with of our variables: where programs are found."""
    return {name: os.environ[name] for name in ("PATH",) if name in os.environ}


def _state(row: dict[str, Any]) -> str:
    if not row["trusted"]:
        return "NOT TRUSTED"
    return str(row["state"]) if row["enabled"] else "disabled"


def _show(told: dict[str, Any]) -> None:
    print(f"{_line(told['title'] or told['name'])} (protocol {_line(told['protocol'])}, {told['duration_ms']} ms)")
    for tool in told["tools"] or ():
        looks = "  (says that it only looks)" if tool["looks"] else ""
        print(f"  {_line(tool['rule'])}{looks}\n      {_line(tool['description'])}")
    for resource in told["resources"] or ():
        print(f"  @{told['name']}:{_line(resource['uri'])}  {_line(resource['name'])}")
    for prompt in told["prompts"] or ():
        words = (
            f"<{each['name']}>" if each["required"] else f"[{each['name']}]" for each in prompt["arguments"] or ()
        )
        print(f"  {_line(' '.join(('/' + told['name'] + ':' + prompt['name'], *words)))}")
        print(f"      {_line(prompt['description'])}")


def _line(text: str) -> str:
    """Return a server's words on one line, which looks like nothing else."""
    return printable(" ".join(text.split()))
