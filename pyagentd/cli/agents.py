"""``pyagentd agents``: the agents of a session as a tree, what became of them, and stopping one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from pyagentd.cli.link import branch_of, complete_session, daemon
from pyagentd.cli.output import json_option, note, print_json, print_table

_TIMEOUT_S = 120.0
_SHOWN = 60  # characters of a result on a terminal


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--abort", "agent", metavar="AGENT", help="Stop this agent (an id or its beginning) and all below it.")
@json_option
def agents(session: str, agent: str | None, as_json: bool) -> None:
    """Show the agents of SESSION as a tree, with their state and what they answered.

    An agent is a session of its own: `pyagentd show AGENT` and `pyagentd send AGENT TEXT` work as with any other.
    """
    with daemon() as link:
        branch = str(branch_of(link, session))
        if agent is not None:
            stopped = link.call("abort-agent", branch=branch, agent=agent)
            if as_json:
                print_json({"id": stopped["id"], "aborted": bool(stopped["aborted"])})
            elif not stopped["aborted"]:
                note(f"{stopped['id']} has no run to abort")
            return
        answer = link.call("agents", timeout=_TIMEOUT_S, branch=branch, form="json")
    # What is too large for a frame comes by path.
    path = answer.get("path")
    found = json.loads(Path(path).read_bytes())["agents"] if path else answer["agents"]
    if as_json:
        print_json(_plain(found))
    else:
        print_table(
            ("agent", "state", "tokens", "task", "result"), _lines(_plain(found)), empty="This session has no agents."
        )


def _plain(agents: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Return the tree with what Lisp has no own value for as JSON has it."""
    return [
        agent | {"background": bool(agent["background"]), "agents": _plain(agent["agents"])} for agent in agents or ()
    ]


def _lines(agents: list[dict[str, Any]], depth: int = 0) -> Iterator[tuple[str, ...]]:
    for agent in agents:
        name = f"{'  ' * (depth - 1)}└ {agent['id']}" if depth else agent["id"]
        state = f"{agent['state']} (background)" if agent["background"] else agent["state"]
        yield name, state, str(agent["tokens"]), agent["description"] or "", _line(agent["result"])
        yield from _lines(agent["agents"], depth + 1)


def _line(text: str | None) -> str:
    line = " ".join((text or "").split())
    return line if len(line) <= _SHOWN or not sys.stdout.isatty() else line[: _SHOWN - 1] + "…"
