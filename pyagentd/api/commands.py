"""The built-in slash commands, and ``/help``, which lists all of them: each a method of ``Builtin``."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar

from pyagentd.api.agents import profile_word
from pyagentd.api.group import reply_of
from pyagentd.api.models import SETTINGS
from pyagentd.errors import NotFound, did_you_mean
from pyagentd.events import one_line
from pyagentd.features.named_agents import DEFAULTS
from pyagentd.features.slash_commands import Answer, Argument, Call, Command, Commands
from pyagentd.llm import catalog
from pyagentd.store import contexts, paths
from pyagentd.words import quantity

Operations = Mapping[str, Callable[..., Awaitable[Any]]]

Method = TypeVar("Method", bound=Callable[..., Awaitable[Answer]])


def slash(name: str, *arguments: Argument, changed_by: tuple[str, ...] | None = None) -> Callable[[Method], Method]:
    """Declare a method as the command ``name``, see ``Command``; its docstring begins with the summary."""

    def declare(method: Method) -> Method:
        summary = (method.__doc__ or "").partition("\n")[0].removesuffix(".")
        about = {"name": name, "summary": summary, "arguments": arguments, "changed_by": changed_by}
        method.declared = about  # type: ignore[attr-defined]  # as any function
        return method

    return declare


def answer_with_note(text: str, reply: Mapping[str, Any]) -> Answer:
    """Return the answer ``text``, followed by the reply's note if it has one."""
    return Answer(text=f"{text}\n{reply['note']}" if reply.get("note") else text, data=reply)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines with aligned columns; the last column is not padded."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1] if rows else []
    lines = ("  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, "-" if value is None else str(value)) for key, value in values.items()]


def _in_short(value: object) -> str:
    text = " ".join(value) if isinstance(value, list) else "default" if value is None else str(value)
    return one_line(text, _SHORT) or "none"


_SHORT = 100  # characters of a setting that are shown
_ID = 8  # characters of an id that are shown
_FORM = 26  # width of a command in the list; for a longer one the summary goes on the next line

KEYS = ("system_prompt", "model", "permissions", "name")

_NAME = Argument(name="name", summary="the name of an agent", required=True, values="agents")
_MODEL = Argument(name="model", summary="a model, [BACKEND/]NAME", values="models")
_TASK = Argument(name="id", summary="the id of a task", required=True, values="tasks")


class Builtin:
    """The source of the built-in commands; ``known`` are the commands of all sources, for ``/help``."""

    def __init__(self, operations: Operations, known: Commands) -> None:
        self._operations, self._known = operations, known
        methods = [(name, method) for name, method in vars(Builtin).items() if hasattr(method, "declared")]
        self._commands = [Command(run=getattr(self, name), **method.declared) for name, method in methods]

    async def commands(self, ref: paths.BranchRef | None) -> Sequence[Command]:
        """Return the built-in commands, which are the same for every conversation."""
        return self._commands

    async def _ask(self, call: Call, operation: str, **arguments: Any) -> Any:
        """Call an operation on behalf of the client that sent the command."""
        return await self._operations[operation](call.client, **arguments)

    @slash("help", Argument(name="command", summary="a command", takes="rest", values="commands"), changed_by=())
    async def help(self, call: Call) -> Answer:
        """List the commands, or describe one."""
        found = await self._known.of(call.ref)
        wanted = " ".join(str(call.arguments.get("command") or "").removeprefix("/").split())
        if not wanted:
            own, text = list(found.values()), "\n".join(map(_line, found.values()))
        else:
            own = [command for name, command in found.items() if name == wanted or name.startswith(f"{wanted} ")]
            text = "\n\n".join(map(_told_whole, own))
        if not own:
            raise NotFound(f"There is no command /{wanted[:60]}", hint=did_you_mean(wanted, found))
        return Answer(text=text, data={"commands": [command_to_wire(command) for command in own]})

    @slash(
        "agent init",
        Argument(name="name", summary="a name: letters, digits, - and _", required=True),
        Argument(name="system_prompt", summary='what it is told to be, in "quotation marks"', quoted=True),
        _MODEL,
        Argument(name="permissions", summary="a profile: open, standard, locked, or your own", values="permissions"),
    )
    async def agent_init(self, call: Call) -> Answer:
        """Create a named agent with its own directory, workspace and conversation."""
        made = await self._ask(call, "agent-init", **call.arguments, env=call.options.env)
        reply = answer_with_note(f"The agent {made['name']} is in {made['dir']}. {made['welcome']}", made)
        return Answer(
            text=reply.text, data={key: made[key] for key in ("name", "dir", "session_id", "branch", "file")}
        )

    @slash("agent list", changed_by=())
    async def agent_list(self, call: Call) -> Answer:
        """List the named agents."""
        found = (await self._ask(call, "agent-list"))["agents"]
        if not found:
            return Answer(text="There is no named agent yet; /agent init makes one.", data={"agents": []})
        rows = []
        for each in found:
            model = each["model"] or each["effective_model"] or "-"
            rows.append((each["name"], each["status"], model, profile_word(each["permissions"]), each["error"] or ""))
        return Answer(text=columns(rows), data={"agents": found})

    @slash(
        "agent config",
        _NAME,
        Argument(name="key", choices=KEYS, values="keys"),
        Argument(name="value", summary="its new value", takes="rest"),
        changed_by=("value",),
    )
    async def agent_config(self, call: Call) -> Answer:
        """Show an agent's configuration, or set one key of it."""
        reply = await self._ask(call, "agent-config", **call.arguments, env=call.options.env)
        key = call.arguments.get("key")
        if key is None:
            return Answer(text=columns(_pairs(reply["config"])), data=reply)
        value = reply["config"][key]
        verb = "are" if key == "permissions" else "is"
        state = "has no value of its own" if value is None else f"{verb} {value}"
        if "value" not in call.arguments:
            return Answer(text=f"The {key} of {reply['name']} {state}", data=reply)
        return answer_with_note(f"The {key} of {reply['name']} {state} now", reply)

    @slash("agent rename", _NAME, Argument(name="new_name", summary="its new name", required=True))
    async def agent_rename(self, call: Call) -> Answer:
        """Rename an agent."""
        reply = await self._ask(call, "agent-rename", **call.arguments)
        return Answer(text=f"{call.arguments['name']} is called {reply['name']} now, in {reply['dir']}", data=reply)

    @slash(
        "agent destroy",
        _NAME,
        Argument(name="keep_files", summary="leave its directory, to be taken up again", takes="flag"),
        Argument(name="yes", summary="do it", takes="flag"),
        changed_by=("yes",),
    )
    async def agent_destroy(self, call: Call) -> Answer:
        """Destroy an agent; without --yes only say what would be lost."""
        name, keep_files = call.arguments["name"], bool(call.arguments.get("keep_files"))
        if call.arguments.get("yes"):
            done = await self._ask(call, "agent-destroy", name=name, keep_files=keep_files, confirmed=True)
            return Answer(text=done["text"], data=done)
        lost = await self._ask(call, "destroy-warnings", name=name, keep_files=keep_files)
        again = " ".join(["/agent destroy", name, *(["--keep-files"] if keep_files else []), "--yes"])
        head = f"The agent {name} is not destroyed yet. What would be lost or ended:"
        lines = [f"  {line}" for line in lost["lines"]] or ["  nothing"]
        return Answer(text="\n".join([head, *lines, f"To destroy it: {again}"]), data=lost)

    @slash("context save", Argument(name="description", summary="what it is about", takes="rest"))
    async def context_save(self, call: Call) -> Answer:
        """Save the conversation and continue it; without a description a model writes one."""
        made = await self._ask(call, "context-save", branch=call.ref.key, **call.arguments, env=call.options.env)
        return Answer(text=f"Context saved: [{made['id'][:_ID]}] {made['description']}", data=made)

    @slash("context clear")
    async def context_clear(self, call: Call) -> Answer:
        """Start a new conversation without saving this one; the text stays in the document."""
        made = await self._ask(call, "context-clear", branch=call.ref.key)
        return Answer(text=f"Context cleared. {made['note']}", data=made)

    @slash(
        "context restore",
        Argument(
            name="id", summary="the id of a saved conversation, or how it begins", required=True, values="contexts"
        ),
    )
    async def context_restore(self, call: Call) -> Answer:
        """Replace the current conversation by a saved one.

        It is restored after the command was written to the document, so that the command stands above it.
        """
        found = await self._ask(call, "context-get", branch=call.ref.key, id=call.arguments["id"])

        async def restore() -> None:
            await self._ask(call, "context-restore", branch=call.ref.key, id=found["id"])

        messages = quantity(found["message_count"], "message")
        text = f"Restoring the context [{found['id'][:_ID]}] {found['description']} ({messages})"
        return Answer(text=text, data=found, then=restore)

    @slash("context history", Argument(name="agent", summary="the name of an agent", values="agents"), changed_by=())
    async def context_history(self, call: Call) -> Answer:
        """List the saved conversations of this agent or another."""
        agent = call.arguments.get("agent")
        of = {"agent": agent} if agent else {"branch": call.ref.key}
        found = (await self._ask(call, "context-history", **of))["contexts"]
        listed = contexts.listing(agent or paths.root_of(call.ref).session_id, found)
        return Answer(text=listed, data={"contexts": found})

    @slash("status", changed_by=())
    async def status(self, call: Call) -> Answer:
        """Show the status of this agent or session: model, permissions, conversation, tasks."""
        reply = await self._ask(call, "agent-status", branch=call.ref.key, env=call.options.env)
        return Answer(text=reply["text"], data={key: value for key, value in reply.items() if key != "text"})

    @slash("tasks", changed_by=())
    async def tasks(self, call: Call) -> Answer:
        """List the background commands of this agent or session."""
        reply = await self._ask(call, "tasks", branch=call.ref.key)
        return Answer(text=reply["text"], data={"tasks": reply["tasks"]})

    @slash("tasks output", _TASK, changed_by=())
    async def tasks_output(self, call: Call) -> Answer:
        """Show the end of a background command's output."""
        reply = await self._ask(call, "task-output", branch=call.ref.key, id=call.arguments["id"])
        printed = reply["output"].rstrip("\n")
        return Answer(text=printed or f"{reply['id']} has printed nothing", data=reply)

    @slash("tasks kill", _TASK)
    async def tasks_kill(self, call: Call) -> Answer:
        """Kill a background command and its child processes."""
        reply = await self._ask(call, "task-kill", branch=call.ref.key, id=call.arguments["id"])
        return Answer(text=f"{reply['id']} {reply['status']}", data=reply)

    @slash("compact", Argument(name="instructions", summary="what to keep", takes="rest"))
    async def compact(self, call: Call) -> Answer:
        """Summarise the conversation to make room in the context.

        The summary goes below the command, which is not part of it.
        """

        async def compact() -> str:
            begun = await self._ask(call, "compact", branch=call.ref.key, **call.arguments, env=call.options.env)
            return str(begun["run"])

        return Answer(text="What was said above is summarised.", then=compact)

    @slash("model", _MODEL, changed_by=("model",))
    async def model(self, call: Call) -> Answer:
        """Show the model of this conversation, or change it."""
        reply = await self._ask(call, "model", branch=call.ref.key, **call.arguments, env=call.options.env)
        name = f"{reply['model'] or 'the default model'} of {reply['backend']}"
        if "model" not in call.arguments:
            return Answer(text=f"{name} answers here (from {reply['source']})", data=reply)
        return answer_with_note(f"{name} answers from now on", reply)

    @slash("models", Argument(name="refresh", summary="ask the providers anew", takes="flag"), changed_by=())
    async def models(self, call: Call) -> Answer:
        """List the available models."""
        reply = await self._ask(call, "models", **call.arguments, env=call.options.env)
        return Answer(text=catalog.provider_lines(reply["providers"]), data=reply)

    @slash(
        "set",
        Argument(name="key", summary="which setting", choices=SETTINGS),
        Argument(name="value", summary="its new value; tools: NAME…, or +NAME and -NAME", takes="rest"),
        Argument(name="next", summary="for the next message only", takes="flag"),
        changed_by=("value",),
    )
    async def set(self, call: Call) -> Answer:
        """Show the settings of this conversation, or set one; with --next for the next message only."""
        given = call.arguments
        reply = await self._ask(call, "set-setting", branch=call.ref.key, **given, env=call.options.env)
        held, following, key = reply["settings"], reply["next"], given.get("key")
        if "value" in given:
            value = (following if given.get("next") else held)[str(key).replace("-", "_")]
            when = "for the next message" if given.get("next") else "from now on"
            return answer_with_note(f"{key} is {_in_short(value)} {when}", reply)
        rows = []
        for name in SETTINGS if key is None else (key,):
            wire = name.replace("-", "_")
            then = f"next message: {_in_short(following[wire])}" if wire in following else ""
            rows.append((name, _in_short(held[wire]), then))
        return Answer(text=columns(rows), data=reply)

    @slash(
        "settings",
        Argument(name="key", choices=tuple(DEFAULTS), values="keys"),
        Argument(name="value", summary="its new value", takes="rest"),
        Argument(name="reset", takes="flag"),
        changed_by=("value", "reset"),
    )
    async def settings(self, call: Call) -> Answer:
        """Show the defaults of named agents, or set one of them; with --reset to its default."""
        given = call.arguments
        reply = await self._ask(call, "settings", **given, env=call.options.env)
        rows = _pairs(reply["settings"])
        if key := given.get("key"):
            return answer_with_note(f"{key} is {dict(rows)[key]}{' now' if len(given) > 1 else ''}", reply)
        return Answer(text=columns(rows), data=reply)


def _line(command: Command) -> str:
    gap = "\n" if len(command.synopsis) > _FORM else ""
    return f"{command.synopsis:{_FORM}}{gap}{'':{_FORM if gap else 0}}  {command.summary}".rstrip()


def _told_whole(command: Command) -> str:
    rows = [(f"  {each.hint}", each.summary or ", ".join(each.choices)) for each in command.arguments]
    return "\n".join(filter(None, (command.synopsis, command.summary, columns(rows))))


class ArgumentRow(TypedDict):
    """An argument of a slash command."""

    name: str
    hint: str  # its form in the synopsis
    summary: str
    required: bool
    takes: str  # word, rest or flag
    values: str  # the source of its completions: agents, keys, models, permissions, contexts, tasks, commands or ""
    choices: list[str]


class CommandRow(TypedDict):
    """A slash command."""

    name: str  # without the slash, words with one space between
    summary: str
    synopsis: str
    origin: str
    arguments: list[ArgumentRow]


def command_to_wire(command: Command) -> CommandRow:
    """Return a command in its wire form."""
    arguments = [reply_of(ArgumentRow, each, choices=list(each.choices)) for each in command.arguments]
    return reply_of(CommandRow, command, arguments=arguments)
