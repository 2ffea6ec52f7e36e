"""The built-in slash commands, and ``/help``, which lists all of them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypedDict, cast

from pyagentd.api.models import SETTINGS
from pyagentd.errors import NotFound, did_you_mean
from pyagentd.events import one_line
from pyagentd.features.named_agents import DEFAULTS
from pyagentd.features.slash_commands import Answer, Argument, Call, Command, Commands
from pyagentd.llm import catalog
from pyagentd.store import contexts, paths
from pyagentd.words import quantity

# How a slash command asks for an operation, in the name of whoever typed it.

Operations = Mapping[str, Callable[..., Awaitable[Any]]]


OperationCaller = Callable[..., Awaitable[Any]]
"""Called with the call of a slash command, the operation and its arguments; returns the reply, raises its errors."""


def caller_of(operations: Operations) -> OperationCaller:
    """Return what asks for ``operations``, those by their names on the wire that the command declares."""

    async def ask(call: Call, operation: str, **arguments: Any) -> Any:
        if operation not in call.command.operations:
            raise LookupError(f"/{call.command.name} does not declare the operation {operation}")
        return await operations[operation](call.client, **arguments)

    return ask


def answer_with_note(text: str, told: Mapping[str, Any]) -> Answer:
    """Return the answer ``text``, with the note that the reply may have."""
    return Answer(text=f"{text}\n{told['note']}" if told.get("note") else text, data=told)


def run_options(call: Call) -> dict[str, Any]:
    """Return what an operation that asks a model is told of its client."""
    return {"env": call.options.env, "key": call.options.api_key}


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines with aligned columns, the last one as it is."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1] if rows else []
    lines = ("  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


# ``/agent …``: named agents, from any conversation.

_SHORT = 100  # characters of a setting that are shown

KEYS = ("system_prompt", "model", "permissions", "name")

_NAME = Argument(name="name", summary="the name of an agent", required=True, values="agents")
_MODEL = Argument(name="model", summary="a model, [BACKEND/]NAME", values="models")
_PERMISSIONS = Argument(
    name="permissions", summary="a profile: open, standard, locked, or your own", values="permissions"
)


def agent_commands(ask: OperationCaller) -> tuple[Command, ...]:
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
            operations=("agent-init",),
            run=partial(_init, ask),
        ),
        Command(
            name="agent list",
            summary="List the named agents",
            changed_by=(),
            operations=("agent-list",),
            run=partial(_list, ask),
        ),
        Command(
            name="agent config",
            summary="Show what an agent is, or set one key of it",
            arguments=(
                _NAME,
                Argument(name="key", choices=KEYS, values="keys"),
                Argument(name="value", summary="its new value", takes="rest"),
            ),
            changed_by=("value",),
            operations=("agent-config",),
            run=partial(_config, ask),
        ),
        Command(
            name="agent rename",
            summary="Give an agent another name",
            arguments=(_NAME, Argument(name="new_name", summary="its new name", required=True)),
            operations=("agent-rename",),
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
            operations=("destroy-warnings", "agent-destroy"),
            run=partial(_destroy, ask),
        ),
    )


def settings_commands(ask: OperationCaller) -> tuple[Command, ...]:
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
            operations=("settings",),
            run=partial(_settings, ask),
        ),
    )


async def _settings(ask: OperationCaller, call: Call) -> Answer:
    given = call.arguments
    told = await ask(call, "settings", **given, env=call.options.env, api_key=call.options.api_key)
    rows = [(key, "-" if value is None else str(value)) for key, value in told["settings"].items()]
    if key := given.get("key"):
        return answer_with_note(f"{key} is {dict(rows)[key]}{' now' if len(given) > 1 else ''}", told)
    return Answer(text=columns(rows), data=told)


async def _init(ask: OperationCaller, call: Call) -> Answer:
    made = await ask(call, "agent-init", **call.arguments, **run_options(call))
    answer = answer_with_note(f"The agent {made['name']} is in {made['dir']}. {made['welcome']}", made)
    return replace(answer, data={key: made[key] for key in ("name", "dir", "session_id", "branch", "file")})


async def _list(ask: OperationCaller, call: Call) -> Answer:
    found = (await ask(call, "agent-list"))["agents"]
    if not found:
        return Answer(text="There is no named agent yet; /agent init makes one.", data={"agents": []})
    rows = []
    for each in found:
        profile, model = each["permissions"], str(each["model"] or each.get("effective_model") or "-")
        profile = profile if isinstance(profile, str) and not profile.startswith("{") else "custom"
        rows.append((each["name"], each["status"], model, profile, each["error"] or ""))
    return Answer(text=columns(rows), data={"agents": found})


async def _config(ask: OperationCaller, call: Call) -> Answer:
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
    return answer_with_note(f"The {key} of {told['name']} {said} now", told)


async def _rename(ask: OperationCaller, call: Call) -> Answer:
    told = await ask(call, "agent-rename", **call.arguments)
    return Answer(text=f"{call.arguments['name']} is called {told['name']} now, in {told['dir']}", data=told)


async def _destroy(ask: OperationCaller, call: Call) -> Answer:
    """Say what would be lost, unless that was confirmed."""
    name, keep_files = call.arguments["name"], bool(call.arguments.get("keep_files"))
    if call.arguments.get("yes"):
        done = await ask(call, "agent-destroy", name=name, keep_files=keep_files, confirmed=True)
        return Answer(text=done["text"], data=done)
    lost = await ask(call, "destroy-warnings", name=name, keep_files=keep_files)
    again = " ".join(["/agent destroy", name, *(["--keep-files"] if keep_files else []), "--yes"])
    head = f"The agent {name} is not destroyed yet. What would be lost or ended:"
    lines = [f"  {line}" for line in lost["lines"]] or ["  nothing"]
    return Answer(text="\n".join([head, *lines, f"To destroy it: {again}"]), data=lost)


# ``/context …``: the conversation saved, put behind, taken up again.

_ID = 8  # characters of an id that are shown


def context_commands(ask: OperationCaller) -> tuple[Command, ...]:
    """Return the commands."""
    return (
        Command(
            name="context save",
            summary="Save the conversation, which goes on; without a description a model says what it is about",
            arguments=(Argument(name="description", summary="what it is about", takes="rest"),),
            operations=("context-save",), run=partial(_save, ask),
        ),
        Command(
            name="context clear",
            summary="Begin anew without saving; the text stays in the document",
            operations=("context-clear",), run=partial(_clear, ask),
        ),
        Command(
            name="context restore",
            summary="Go on with a saved conversation in the place of the present one",
            arguments=(
                Argument(
                    name="id", summary="the id of a saved conversation, or how it begins", required=True,
                    values="contexts",
                ),
            ),
            operations=("context-get", "context-restore"), run=partial(_restore, ask),
        ),
        Command(
            name="context history",
            summary="List the saved conversations, of this agent or another",
            arguments=(Argument(name="agent", summary="the name of an agent", values="agents"),),
            changed_by=(),
            operations=("context-history",), run=partial(_history, ask),
        ),
    )  # fmt: skip


async def _save(ask: OperationCaller, call: Call) -> Answer:
    made = await ask(call, "context-save", branch=call.ref.key, **call.arguments, **run_options(call))
    return Answer(text=f"Context saved: [{made['id'][:_ID]}] {made['description']}", data=made)


async def _clear(ask: OperationCaller, call: Call) -> Answer:
    made = await ask(call, "context-clear", branch=call.ref.key)
    return Answer(text=f"Context cleared. {made['note']}", data=made)


async def _restore(ask: OperationCaller, call: Call) -> Answer:
    """Restore once the command itself stands above what is restored."""
    found = await ask(call, "context-get", branch=call.ref.key, id=call.arguments["id"])

    async def restore() -> None:
        await ask(call, "context-restore", branch=call.ref.key, id=found["id"])

    messages = quantity(found["message_count"], "message")
    text = f"Restoring the context [{found['id'][:_ID]}] {found['description']} ({messages})"
    return Answer(text=text, data=found, then=restore)


async def _history(ask: OperationCaller, call: Call) -> Answer:
    agent = call.arguments.get("agent")
    of = {"agent": agent} if agent else {"branch": call.ref.key}
    found = (await ask(call, "context-history", **of))["contexts"]
    return Answer(text=contexts.listing(agent or paths.root_of(call.ref).session_id, found), data={"contexts": found})


# ``/model`` and ``/models``: which model answers here, and which there are.


def model_commands(ask: OperationCaller) -> tuple[Command, ...]:
    """Return the commands."""
    return (
        Command(
            name="model",
            summary="Show which model answers here, or have another one answer from now on",
            arguments=(Argument(name="model", summary="a model, [BACKEND/]NAME", values="models"),),
            changed_by=("model",),
            operations=("model",),
            run=partial(_model, ask),
        ),
        Command(
            name="models",
            summary="List the models that can be had",
            arguments=(Argument(name="refresh", summary="ask the providers anew", takes="flag"),),
            changed_by=(),
            operations=("models",),
            run=partial(_models, ask),
        ),
        Command(
            name="set",
            summary="Show the settings here, or set one for this conversation; with --next for the next message only",
            arguments=(
                Argument(name="key", summary="which setting", choices=SETTINGS),
                Argument(name="value", summary="its new value; tools: NAME…, or +NAME and -NAME", takes="rest"),
                Argument(name="next", summary="for the next message only", takes="flag"),
            ),
            changed_by=("value",),
            operations=("set-setting",),
            run=partial(_set, ask),
        ),
    )


async def _model(ask: OperationCaller, call: Call) -> Answer:
    told = await ask(call, "model", branch=call.ref.key, **call.arguments, **run_options(call))
    name = f"{told['model'] or 'the default model'} of {told['backend']}"
    if "model" not in call.arguments:
        return Answer(text=f"{name} answers here (from {told['source']})", data=told)
    return answer_with_note(f"{name} answers from now on", told)


async def _models(ask: OperationCaller, call: Call) -> Answer:
    told = await ask(call, "models", **call.arguments, **run_options(call))
    return Answer(text=catalog.provider_lines(told["providers"]), data=told)


async def _set(ask: OperationCaller, call: Call) -> Answer:
    given, options = call.arguments, {"env": call.options.env, "api_key": call.options.api_key}
    told = await ask(call, "set-setting", branch=call.ref.key, **given, **options)
    key = given.get("key")
    if "value" not in given:
        rows = [(name, *_of_setting(name, told)) for name in SETTINGS if key in (None, name)]
        return Answer(text=columns(rows), data=told)
    value = told["next" if given.get("next") else "settings"][str(key).replace("-", "_")]
    when = "for the next message" if given.get("next") else "from now on"
    return answer_with_note(f"{key} is {_in_short(value)} {when}", told)


def _of_setting(name: str, told: Mapping[str, Any]) -> tuple[str, str]:
    wire = name.replace("-", "_")
    following = f"next message: {_in_short(told['next'][wire])}" if wire in told["next"] else ""
    return _in_short(told["settings"][wire]), following


def _in_short(value: object) -> str:
    text = " ".join(value) if isinstance(value, list) else "default" if value is None else str(value)
    return one_line(text, _SHORT) or "none"


# Commands about the conversation in which they are typed: how it stands, what runs behind it, its length.

_TASK = Argument(name="id", summary="the id of a task", required=True, values="tasks")


def session_commands(ask: OperationCaller) -> tuple[Command, ...]:
    """Return the commands."""
    return (
        Command(
            name="status",
            summary="Show how this agent or session stands: model, permissions, conversation, tasks",
            changed_by=(),
            operations=("agent-status",),
            run=partial(_status, ask),
        ),
        Command(
            name="tasks",
            summary="List the background commands of this agent or session",
            changed_by=(),
            operations=("tasks",),
            run=partial(_tasks, ask),
        ),
        Command(
            name="tasks output",
            summary="Show the end of what a background command printed",
            arguments=(_TASK,),
            changed_by=(),
            operations=("task-output",),
            run=partial(_output, ask),
        ),
        Command(
            name="tasks kill",
            summary="End a background command with all it started",
            arguments=(_TASK,),
            operations=("task-kill",),
            run=partial(_kill, ask),
        ),
        Command(
            name="compact",
            summary="Summarise everything said so far, so that there is room again",
            arguments=(Argument(name="instructions", summary="what to keep", takes="rest"),),
            operations=("compact",),
            run=partial(_compact, ask),
        ),
    )


async def _status(ask: OperationCaller, call: Call) -> Answer:
    told = await ask(call, "agent-status", branch=call.ref.key, **run_options(call))
    return Answer(text=told["text"], data={key: value for key, value in told.items() if key != "text"})


async def _tasks(ask: OperationCaller, call: Call) -> Answer:
    told = await ask(call, "tasks", branch=call.ref.key)
    return Answer(text=told["text"], data={"tasks": told["tasks"]})


async def _output(ask: OperationCaller, call: Call) -> Answer:
    told = await ask(call, "task-output", branch=call.ref.key, id=call.arguments["id"])
    printed = told["output"].rstrip("\n")
    return Answer(text=printed or f"{told['id']} has printed nothing", data=told)


async def _kill(ask: OperationCaller, call: Call) -> Answer:
    told = await ask(call, "task-kill", branch=call.ref.key, id=call.arguments["id"])
    return Answer(text=f"{told['id']} {told['status']}", data=told)


async def _compact(ask: OperationCaller, call: Call) -> Answer:
    """Compact below the command, which is no part of what is summarised."""

    async def compact() -> str:
        begun = await ask(call, "compact", branch=call.ref.key, **call.arguments, **run_options(call))
        return str(begun["run"])

    return Answer(text="What was said above is summarised.", then=compact)


class Builtin:
    """The source of these commands.

    Args:
        operations: What clients can ask for.
        known: All commands of all sources, of which ``/help`` tells.
    """

    def __init__(self, operations: Operations, known: Commands) -> None:
        ask = caller_of(operations)
        self._commands = (
            Command(
                name="help",
                summary="List the commands, or tell of one",
                arguments=(Argument(name="command", summary="a command", takes="rest", values="commands"),),
                changed_by=(),
                run=partial(_help, known),
            ),
            *agent_commands(ask),
            *context_commands(ask),
            *session_commands(ask),
            *model_commands(ask),
            *settings_commands(ask),
        )

    async def commands(self, ref: paths.BranchRef | None) -> Sequence[Command]:
        """Return them; they are the same everywhere."""
        return self._commands


async def _help(known: Commands, call: Call) -> Answer:
    found = await known.of(call.ref)
    wanted = " ".join(str(call.arguments.get("command") or "").removeprefix("/").split())
    if not wanted:
        text = "\n".join(map(_line, found.values()))
        return Answer(text=text, data={"commands": [command_to_wire(command) for command in found.values()]})
    own = [command for name, command in found.items() if name == wanted or name.startswith(f"{wanted} ")]
    if not own:
        raise NotFound(f"There is no command /{wanted[:60]}", hint=did_you_mean(wanted, found))
    return Answer(
        text="\n\n".join(map(_told_whole, own)), data={"commands": [command_to_wire(command) for command in own]}
    )


_FORM = 26  # columns of a command in the list; of a longer one the summary stands below


def _line(command: Command) -> str:
    gap = "\n" if len(command.synopsis) > _FORM else ""
    return f"{command.synopsis:{_FORM}}{gap}{'':{_FORM if gap else 0}}  {command.summary}".rstrip()


def _told_whole(command: Command) -> str:
    rows = [(f"  {each.hint}", each.summary or ", ".join(each.choices)) for each in command.arguments]
    return "\n".join(filter(None, (command.synopsis, command.summary, columns(rows))))


class ArgumentRow(TypedDict):
    """An argument of a slash command."""

    name: str
    hint: str  # how it is written
    summary: str
    required: bool
    takes: str  # word, rest or flag
    values: str  # what completes it: agents, keys, models, permissions, contexts, tasks, commands or ""
    choices: list[str]


class CommandRow(TypedDict):
    """A slash command."""

    name: str  # without the slash, words with one space between
    summary: str
    synopsis: str
    origin: str
    arguments: list[ArgumentRow]


def command_to_wire(command: Command) -> CommandRow:
    """Return a command as clients are told of it."""
    names = ("name", "hint", "summary", "required", "takes", "values")
    arguments = [
        cast(ArgumentRow, {name: getattr(each, name) for name in names} | {"choices": list(each.choices)})
        for each in command.arguments
    ]
    return {
        "name": command.name,
        "summary": command.summary,
        "synopsis": command.synopsis,
        "origin": command.origin,
        "arguments": arguments,
    }
