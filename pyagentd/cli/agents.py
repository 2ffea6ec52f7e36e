"""``pyagentd agent``: named agents, which have their own configuration and workspace."""

import os
import sys
from typing import Any

import click

from pyagentd.cli.link import (
    complete_model,
    complete_named,
    complete_session,
    daemon,
    rows_of,
    run_environment,
    session_link,
)
from pyagentd.cli.output import json_option, note, print_json, print_reply, print_view
from pyagentd.clock import span
from pyagentd.words import printable

_PLACES = ("name", "dir", "session_id")
_KEYS = ("system_prompt", "model", "permissions", "name")


@click.group()
def agent() -> None:
    """Create, list, configure and destroy named agents. Each is a session under its name.

    For the sub-agents of a session see `pyagentd agents`.
    """


@agent.command("init")
@click.argument("name")
@click.option("--system-prompt", metavar="TEXT", help="Its system prompt; - reads it from stdin.")
@click.option(
    "--model",
    metavar="[BACKEND/]MODEL",
    shell_complete=complete_model,
    help="Its model (default: from the settings, or its preset); see `pyagentd models`.",
)
@click.option("--permissions", metavar="PROFILE", help="A profile: open, standard, locked, your own, or its JSON.")
@json_option
def init(name: str, system_prompt: str | None, model: str | None, permissions: str | None, as_json: bool) -> None:
    """Create the agent NAME (letters, digits, hyphens and underscores, at most 64).

    If an agent of that name was destroyed and its files were kept, they are reused, with the options given here.
    """
    prompt = sys.stdin.read() if system_prompt == "-" else system_prompt
    env = run_environment(os.environ)
    with daemon() as link:
        made = link.call(
            "agent-init",
            env=env,
            name=name,
            system_prompt=prompt,
            model=model,
            permissions=permissions,
        )
    if made["note"]:
        note(made["note"])
    print_reply({key: made[key] for key in _PLACES}, f"{made['name']}\t{made['dir']}", as_json=as_json)
    if not as_json:
        click.echo(made["welcome"], err=True)


@agent.command("list")
@click.option("--all", "destroyed", is_flag=True, help="Include destroyed agents.")
@json_option
def listing(destroyed: bool, as_json: bool) -> None:
    """List the named agents: name, status, model, permissions, time of creation, directory."""
    with daemon() as link:
        if as_json:
            print_json({"agents": link.call("agent-list", destroyed=destroyed)["agents"]})
        else:
            view = link.call("view", name="named", arguments={"destroyed": destroyed})
            print_view(view, empty="No named agents yet. Make one: pyagentd agent init NAME")


@agent.command("config")
@click.argument("name", shell_complete=complete_named)
@click.argument("key", required=False, type=click.Choice(_KEYS))
@click.argument("value", required=False)
@click.option("--reset", is_flag=True, help="Reset KEY to its default.")
@json_option
def config(name: str, key: str | None, value: str | None, reset: bool, as_json: bool) -> None:
    """Show the configuration of the agent NAME, or one KEY of it. With VALUE, set KEY (- reads stdin).

    A change takes effect with the agent's next request.
    """
    if reset and (key is None or value is not None):
        raise click.UsageError("--reset needs a KEY, and no VALUE")
    given = sys.stdin.read() if value == "-" else value
    with daemon() as link:
        env = run_environment(os.environ)
        reply = link.call("agent-config", name=name, key=key, value=given, reset=reset, env=env)
    if reply.get("note"):
        note(reply["note"])
    held = dict(reply["config"])
    if as_json:
        parts = ("name", "dir", "config", "effective_model", "model_source")
        print_json({part: reply[part] for part in parts if part in reply})
        return
    if held["model"] is None and reply.get("effective_model"):
        held["model"] = f"{reply['effective_model']} (from {reply['model_source']})"
    for each in held if key is None else [key]:
        click.echo(f"{each}\t{_value_text(held[each])}" if key is None else _value_text(held[each]))


@agent.command("rename")
@click.argument("name", shell_complete=complete_named)
@click.argument("new_name")
@json_option
def rename_agent(name: str, new_name: str, as_json: bool) -> None:
    """Rename the agent NAME to NEW_NAME, with its directory and its session's id."""
    with daemon() as link:
        reply = link.call("agent-rename", name=name, new_name=new_name)
    print_reply({key: reply[key] for key in _PLACES}, f"{reply['name']}\t{reply['dir']}", as_json=as_json)


@agent.command("destroy")
@click.argument("name", shell_complete=complete_named)
@click.option("--keep-files", is_flag=True, help="Keep its directory, for another `agent init`.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def destroy(name: str, keep_files: bool, yes: bool, as_json: bool) -> None:
    """Destroy the agent NAME and move its directory to the trash. Lists what would be lost, and asks first.

    Its conversation is saved first. The list of its saved conversations and the audit are kept.
    """
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("Destroying asks first, and there is no terminal to ask on. Use --yes")
    with daemon() as link:
        if not yes:
            lost = link.call("destroy-warnings", name=name, keep_files=keep_files)["lines"]
            click.echo(f"Destroying the agent {name} loses:" if lost else "Nothing is lost.", err=True)
            for line in lost:
                click.echo(f"  {printable(line)}", err=True)
            click.confirm(f"Destroy the agent {name}?", abort=True, err=True)
        done = link.call("agent-destroy", name=name, keep_files=keep_files, confirmed=True)
    print_reply({key: done[key] for key in ("name", "dir", "files", "saved")}, done["text"], as_json=as_json)


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--abort", "agent", metavar="AGENT", help="Stop this agent (an id or its beginning) and all below it.")
@json_option
def agents(session: str, agent: str | None, as_json: bool) -> None:
    """Show the agents of SESSION as a tree, with state and answer.

    An agent is a session: `pyagentd show AGENT` and `pyagentd send AGENT TEXT` work.
    """
    with session_link(session) as (link, branch):
        if agent is not None:
            stopped = link.call("abort-agent", branch=branch, agent=agent)
            if as_json:
                print_json(stopped)
            elif not stopped["aborted"]:
                note(f"{stopped['id']} has no run to abort")
        elif as_json:
            print_json(rows_of(link.call("agents", branch=branch), "agents"))
        else:
            print_view(link.call("view", name="agents", arguments={"branch": branch}))


_DEFAULTS_KEYS = ("default_model", "default_permissions", "idle_timeout")


@click.command()
@click.argument("key", required=False, type=click.Choice(_DEFAULTS_KEYS))
@click.argument("value", required=False)
@click.option("--reset", is_flag=True, help="Reset KEY to its default.")
@json_option
def settings(key: str | None, value: str | None, reset: bool, as_json: bool) -> None:
    """Show the defaults for named agents, or one KEY. With VALUE, set KEY.

    Model and permissions apply to new agents. The idle timeout applies to all: seconds, or 45min, 2h, never.
    """
    if reset and (key is None or value is not None):
        raise click.UsageError("--reset needs a KEY, and no VALUE")
    with daemon() as link:
        env = run_environment(os.environ)
        reply = link.call("settings", key=key, value=value, reset=reset, env=env)
    if reply["note"]:
        note(reply["note"])
    if as_json:
        print_json({part: {name: reply[part][name] for name in _DEFAULTS_KEYS} for part in ("settings", "defaults")})
    elif key is not None:
        held = reply["settings"][key]
        is_set = reset or value is not None
        seconds = is_set and key == "idle_timeout"
        click.echo((span(held) if held else "never") if seconds else _value_text(held))
    else:
        for name in _DEFAULTS_KEYS:
            click.echo(f"{name}\t{_value_text(reply['settings'][name])}")


def _value_text(value: Any) -> str:
    return "-" if value is None else str(value)
