"""``/agent …``: named agents, from any conversation (SPEC 003, neighbours C.3)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pyagentd.agent.commands.command import Answer, Argument, Call, Command
from pyagentd.agent.lifecycle.defaults import DEFAULTS
from pyagentd.service.commands.asking import Asking, columns, run_options

KEYS = ("system_prompt", "model", "permissions", "name")

_NAME = Argument(name="name", summary="the name of an agent", required=True, values="agents")
_MODEL = Argument(name="model", summary="a model, [BACKEND/]NAME", values="models")
_PERMISSIONS = Argument(
    name="permissions", summary="a profile: open, standard, locked, or your own", values="permissions"
)


def commands(ask: Asking) -> tuple[Command, ...]:
    """Return the commands."""
    return (
        Command(
            name="agent init",
            summary="Make a named agent, with a directory, a workspace and a conversation of its own",
            arguments=(
                Argument(name="name", summary="a name: letters, digits, - and _", required=True),
                Argument(name="system_prompt", summary='what it is told to be, in "quotation marks"', quoted=True),
                _MODEL,
                _PERMISSIONS,
            ),
            run=partial(_init, ask),
        ),
        Command(name="agent list", summary="List the named agents", changed_by=(), run=partial(_list, ask)),
        Command(
            name="agent config",
            summary="Show what an agent is, or set one key of it",
            arguments=(
                _NAME,
                Argument(name="key", choices=KEYS, values="keys"),
                Argument(name="value", summary="its new value", takes="rest"),
            ),
            changed_by=("value",),
            run=partial(_config, ask),
        ),
        Command(
            name="agent rename",
            summary="Give an agent another name",
            arguments=(_NAME, Argument(name="new_name", summary="its new name", required=True)),
            run=partial(_rename, ask),
        ),
        Command(
            name="agent destroy",
            summary="End an agent with all it does; says first what is lost, and does it with --yes",
            arguments=(
                _NAME,
                Argument(name="keep_files", summary="leave its directory, to be taken up again", takes="flag"),
                Argument(name="yes", summary="do it", takes="flag"),
            ),
            changed_by=("yes",),
            run=partial(_destroy, ask),
        ),
    )


def settings_commands(ask: Asking) -> tuple[Command, ...]:
    """Return the command for the defaults of new agents."""
    return (
        Command(
            name="settings",
            summary="Show the defaults of named agents, or set one of them; with --reset to its default",
            arguments=(
                Argument(name="key", choices=tuple(DEFAULTS), values="keys"),
                Argument(name="value", summary="its new value", takes="rest"),
                Argument(name="reset", takes="flag"),
            ),
            changed_by=("value", "reset"),
            run=partial(_settings, ask),
        ),
    )


async def _settings(ask: Asking, call: Call) -> Answer:
    given = call.arguments
    told = await ask(call, "settings", **given, env=call.options.env, api_key=call.options.api_key)
    rows = [(key, "-" if value is None else str(value)) for key, value in told["settings"].items()]
    note = f"\n{told['note']}" if told.get("note") else ""
    if key := given.get("key"):
        value = dict(rows)[key]
        return Answer(text=f"{key} is {value}{' now' if len(given) > 1 else ''}{note}", data=told)
    return Answer(text=columns(rows), data=told)


async def _init(ask: Asking, call: Call) -> Answer:
    made = await ask(call, "agent-init", **call.arguments, **run_options(call))
    text = f"The agent {made['name']} is in {made['dir']}. {made['welcome']}"
    if made["note"]:
        text = f"{text}\n{made['note']}"
    return Answer(text=text, data={key: made[key] for key in ("name", "dir", "session_id", "branch", "file")})


async def _list(ask: Asking, call: Call) -> Answer:
    found = (await ask(call, "agent-list"))["agents"]
    if not found:
        return Answer(text="There is no named agent yet; /agent init makes one.", data={"agents": []})
    rows = [
        (
            each["name"],
            each["status"],
            _model_of(each),
            _profile(each["permissions"]),
            each["error"] or "",
        )
        for each in found
    ]
    return Answer(text=columns(rows), data={"agents": found})


async def _config(ask: Asking, call: Call) -> Answer:
    told = await ask(call, "agent-config", **call.arguments, env=call.options.env, api_key=call.options.api_key)
    key = call.arguments.get("key")
    if key is None:
        rows = [(name, "-" if value is None else str(value)) for name, value in told["config"].items()]
        return Answer(text=columns(rows), data=told)
    value = told["config"][key]
    verb = "are" if key == "permissions" else "is"
    said = "has no value of its own" if value is None else f"{verb} {value}"
    if "value" not in call.arguments:
        return Answer(text=f"The {key} of {told['name']} {said}", data=told)
    text = f"The {key} of {told['name']} {said} now"
    return Answer(text=f"{text}\n{told['note']}" if told["note"] else text, data=told)


async def _rename(ask: Asking, call: Call) -> Answer:
    told = await ask(call, "agent-rename", **call.arguments)
    return Answer(text=f"{call.arguments['name']} is called {told['name']} now, in {told['dir']}", data=told)


async def _destroy(ask: Asking, call: Call) -> Answer:
    """Say what would be lost, unless that was confirmed."""
    name, keep_files = call.arguments["name"], bool(call.arguments.get("keep_files"))
    if call.arguments.get("yes"):
        done = await ask(call, "agent-destroy", name=name, keep_files=keep_files, confirmed=True)
        return Answer(text=done["text"], data=done)
    lost = await ask(call, "agent-losses", name=name, keep_files=keep_files)
    again = " ".join(["/agent destroy", name, *(["--keep-files"] if keep_files else []), "--yes"])
    head = f"The agent {name} is not destroyed yet. What would be lost or ended:"
    lines = [f"  {line}" for line in lost["lines"]] or ["  nothing"]
    return Answer(text="\n".join([head, *lines, f"To destroy it: {again}"]), data=lost)


def _model_of(agent: Mapping[str, Any]) -> str:
    return str(agent["model"] or agent.get("effective_model") or "-")


def _profile(permissions: object) -> str:
    return permissions if isinstance(permissions, str) and not permissions.startswith("{") else "custom"
