"""A conversation open in an editor over ACP: updates, requests for permission, modes, commands."""

import asyncio
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from acp import (
    Client,
    RequestError,
    plan_entry,
    schema,
    start_tool_call,
    text_block,
    tool_content,
    tool_diff_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
    update_user_message_text,
)
from acp.helpers import update_available_commands, update_current_mode

from pyagentd.acp.files import Prompt
from pyagentd.acp.wire import Daemon
from pyagentd.cli.follow import page_events, question, question_lines
from pyagentd.cli.link import json_text, run_environment
from pyagentd.clock import new_id
from pyagentd.errors import BadRequest, NotFound, PyagentdError, Unreachable, WireError
from pyagentd.events import Event, truncate
from pyagentd.policy.action import canonical_tool
from pyagentd.store import attachments
from pyagentd.store.conversation import COMPACTION
from pyagentd.store.document.hidden import COMMAND
from pyagentd.store.journal import Row
from pyagentd.tools.spec import summary
from pyagentd.wire.client import CALL_TIMEOUT_S, COMMAND_TIMEOUT_S
from pyagentd.words import quantity

# Rows of a log as updates for an editor, in the same way for replay and for live events; pure.
#
# An editor gets each character of a part once, whether the text arrived in deltas, as a whole, or with the loaded
# session. It does not get the messages that it sent itself, since it shows them already.

# Tool calls for editors: title, kind, file locations and changes; pure.
#
# Made from the part of the log that records the call, in the AI SDK's form (``data_json``).

KINDS: Final[Mapping[str, schema.ToolKind]] = {
    "Read": "read", "Glob": "search", "Grep": "search", "Edit": "edit", "Write": "edit", "Bash": "execute",
    "WebFetch": "fetch", "WebSearch": "fetch", "PersistentAgent": "think", "task": "think", "mission": "think",
}  # fmt: skip

_LONGEST: Final = 20_000  # characters of a result; the log has the whole result

_STATUS: Final[Mapping[str, schema.ToolCallStatus]] = {
    "input-streaming": "pending",
    "input-available": "in_progress",
    "output-available": "completed",
    "output-error": "failed",
}

GOING: Final = ("input-streaming", "input-available")  # the states of a call without a result

Content = schema.ContentToolCallContent | schema.FileEditToolCallContent | schema.TerminalToolCallContent


def call_update(
    data: Mapping[str, Any], root: str, *, is_new: bool
) -> schema.ToolCallStart | schema.ToolCallProgress:
    """Return the update for a call: a start if it ``is_new``, else progress, with its result if it has one."""
    name, given = tool_name(data), data.get("input")
    arguments = given if isinstance(given, Mapping) else {}
    shown: dict[str, Any] = {
        "tool_call_id": str(data["toolCallId"]),
        "title": summary(name, arguments, root=root),
        "status": _STATUS.get(str(data.get("state")), "pending"),
        "content": changes(name, arguments, root) + result(data),
        "locations": locations(arguments, root),
        "raw_input": arguments,
    }
    return start_tool_call(**shown, kind=kind(name)) if is_new else update_tool_call(**shown)


def tool_name(data: Mapping[str, Any]) -> str:
    """Return the name of the tool that a part calls."""
    return str(data["type"]).removeprefix("tool-")


def kind(tool: str) -> schema.ToolKind:
    """Return the protocol's kind of ``tool``."""
    return KINDS.get(canonical_tool(tool), "other")


def locations(arguments: Mapping[str, Any], root: str) -> list[schema.ToolCallLocation]:
    """Return the location of the file that a call uses, so that an editor can follow it."""
    given = arguments.get("file_path") or arguments.get("path")
    if not isinstance(given, str) or not given:
        return []
    line = arguments.get("offset")
    known: dict[str, Any] = {"line": line} if isinstance(line, int) and line > 0 else {}
    return [schema.ToolCallLocation(path=_absolute(given, root), **known)]


def changes(tool: str, arguments: Mapping[str, Any], root: str) -> list[Content]:
    """Return a call's changes to a file as diffs, from its arguments."""
    path = arguments.get("file_path")
    if not isinstance(path, str):
        return []
    match canonical_tool(tool), arguments:
        case "Edit", {"old_string": str(old), "new_string": str(new)}:
            return [tool_diff_content(_absolute(path, root), new, old)]
        case "Write", {"content": str(content)}:
            return [tool_diff_content(_absolute(path, root), content)]
    return []


def result(data: Mapping[str, Any]) -> list[Content]:
    """Return the result of a call, or its error; empty for a successful edit, which is shown as a diff."""
    match data:
        case {"state": "output-error", **rest}:
            text = str(rest.get("errorText") or "It failed")
        case {"state": "output-available", **rest} if kind(tool_name(data)) != "edit":
            text = str(rest.get("output") or "")
        case _:
            return []
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}\n… {len(text) - _LONGEST} more characters"
    return [tool_content(text_block(text))] if text else []


def _absolute(path: str, root: str) -> str:
    return str(Path(root) / path) if root else path


Update = (
    schema.UserMessageChunk
    | schema.AgentMessageChunk
    | schema.AgentThoughtChunk
    | schema.ToolCallStart
    | schema.ToolCallProgress
    | schema.AgentPlanUpdate
    | schema.AvailableCommandsUpdate
    | schema.CurrentModeUpdate
    | schema.SessionInfoUpdate
    | schema.UsageUpdate
)

PLAN_TOOL: Final = "TodoWrite"  # its list is shown as a plan, from ``todo`` events


class Updates:
    """Makes one editor's updates of one conversation, and remembers what was sent.

    Args:
        root: The session's workspace root.
        is_own: Returns whether this editor sent the message with an id.

    Attributes:
        stop_reason: The provider's stop reason of the last request to the model.
    """

    def __init__(self, root: str, is_own: Callable[[str], bool] = lambda message_id: False) -> None:
        self.stop_reason = ""
        self._root = root
        self._is_own = is_own
        self._users: dict[str, bool] = {}  # the user's messages → whether they were sent
        self._texts: dict[str, list[str]] = {}  # texts of the user's messages that were not sent
        self._messages: dict[str, str] = {}  # part → its message
        self._shown: dict[str, int] = {}  # part → number of characters that were sent
        self._reasoning: set[str] = set()
        self._calls: dict[str, str] = {}  # calls that were sent → their state then

    def history(self, shown: Mapping[str, Any]) -> Iterator[Update]:
        """Yield the updates of a whole conversation from the reply of ``show``, without hidden messages."""
        for each in shown["messages"]:
            message, parts = each["message"], each["parts"]
            metadata = message.get("metadata_json") or {}
            is_gone = (metadata.get("hidden") or metadata.get("hidden_at")) and metadata.get("hidden_by") != COMMAND
            is_told = not is_gone and not metadata.get("queued_at") and not metadata.get("queue_canceled_at")
            updates = [*self.feed(Row(0, "message", message))]
            for part in parts:
                updates += self.feed(Row(0, "part", part))
            if message["role"] == "user" and is_told:
                updates += self._user_message(str(message["id"]))
            if is_told:
                yield from updates

    def feed(self, row: Row) -> Iterator[Update]:
        """Yield the updates for ``row``."""
        match row.type, row.data:
            case "message", {"id": str(id), "role": role, **rest}:
                metadata = rest.get("metadata_json") or {}
                if role == "user":
                    self._users.setdefault(id, self._is_own(id))
                elif metadata.get("stop_reason"):
                    self.stop_reason = str(metadata["stop_reason"])
            case "part", {"message_id": str(message), "data_json": {"text": str(text)}} if message in self._users:
                if not self._users[message]:
                    self._texts.setdefault(message, []).append(text)
            case "part", {"message_id": str(message)} if message not in self._users:
                yield from self._part(row.data)
            case "delta", {"part_id": str(part), "text": str(text)} if part in self._shown:
                yield from self._grown(part, text)
            case "run", {"state": "started", "message_id": str(message)}:
                yield from self._user_message(message)

    def agent(self, moved: Mapping[str, Any]) -> schema.ToolCallProgress | None:
        """Return an agent's progress as an update of the call that spawned it; None without such an open call."""
        call = str(moved.get("call_id") or "")
        if moved.get("state") == "finished" or self._calls.get(call) not in GOING:
            return None
        count, using = int(moved.get("count") or 0), ", ".join(map(str, moved.get("calls") or ()))
        does = f"Calling {using}" if moved.get("state") == "tool" and using else "Thinking"
        so_far = f" ({quantity(count, 'tool call')} so far)" if count else ""
        name = " ".join(filter(None, (str(moved.get("preset") or ""), str(moved.get("id") or ""))))
        content = tool_content(text_block(f"{name}: {does}{so_far}"))
        return update_tool_call(call, status="in_progress", content=[content])

    def _user_message(self, message: str) -> Iterator[Update]:
        """Yield the message of another client when its turn begins."""
        if not self._users.get(message, True):
            self._users[message] = True
            for text in self._texts.pop(message, []):
                yield _with_message_id(update_user_message_text(text), message)

    def _part(self, row: Mapping[str, Any]) -> Iterator[Update]:
        part, type, data = str(row["id"]), str(row["type"]), row["data_json"]
        if type in ("text", "reasoning"):
            self._messages[part] = str(row["message_id"])
            if type == "reasoning":
                self._reasoning.add(part)
            yield from self._grown(part, str(data.get("text", ""))[self._shown.setdefault(part, 0) :])
        elif type.startswith("tool-") and canonical_tool(tool_name(data)) != PLAN_TOOL:
            yield from self._call(data)
        elif type == COMPACTION and part not in self._calls:
            self._calls[part] = type
            yield update_agent_thought_text("The conversation so far was summarised.")

    def _grown(self, part: str, text: str) -> Iterator[Update]:
        if not text:
            return
        self._shown[part] += len(text)
        made = update_agent_thought_text(text) if part in self._reasoning else update_agent_message_text(text)
        yield _with_message_id(made, self._messages[part])

    def _call(self, data: Mapping[str, Any]) -> Iterator[Update]:
        call, state = str(data["toolCallId"]), str(data.get("state"))
        known = self._calls.get(call)
        self._calls[call] = state
        if known != state:
            yield call_update(data, self._root, is_new=known is None)


def plan(items: Iterable[Mapping[str, Any]]) -> schema.AgentPlanUpdate:
    """Return an agent's list of steps as a plan; the list has no priorities."""
    return update_plan(plan_entry(str(each["content"]), status=each["status"]) for each in items)


def usage(context: Mapping[str, Any]) -> schema.UsageUpdate | None:
    """Return the context's size and the session's cost from a ``context`` event; None if unknown."""
    if not context.get("window") or context.get("used") is None:
        return None
    used, size = int(context["used"]), int(context["window"])
    update = schema.UsageUpdate(session_update="usage_update", used=used, size=size)
    if (spent := context.get("cost_usd")) is not None:
        update.cost = schema.Cost(amount=float(spent), currency="USD")
    return update


def notice_chunk(text: str) -> schema.AgentMessageChunk:
    """Return a text from the daemon, not the model, as a chunk of the conversation."""
    return schema.AgentMessageChunk(session_update="agent_message_chunk", content=text_block(text))


def _with_message_id(
    update: schema.UserMessageChunk | schema.AgentMessageChunk | schema.AgentThoughtChunk, message: str
) -> schema.UserMessageChunk | schema.AgentMessageChunk | schema.AgentThoughtChunk:
    update.message_id = message
    return update


# Conversion of the daemon's questions to requests for permission, and of the choice to an answer; pure.
#
# An approval has the daemon's answers. Questions from the model are asked one by one, with their options as choices;
# an answer in words is left to the user's next message.


LATER: Final = "later"
IN_WORDS: Final = "The user answers in the next message: end your turn now, and wait for it."

_KINDS: Final[Mapping[str, schema.PermissionOptionKind]] = {
    "allow": "allow_once",
    "session": "allow_always",
    "always": "allow_always",
    "deny": "reject_once",
    "abort": "reject_once",
}
_NAMES: Final[Mapping[str, str]] = {
    "allow": "Allow once",
    "session": "Allow in this session",
    "always": "Always allow in this project",
    "deny": "Deny",
    "abort": "Deny and stop",
}
_SCOPE_NAMES: Final = {**_NAMES, "always": "Always: add it to the scope"}
_PATTERNS: Final = 80  # characters of the patterns to remember

Request = tuple[schema.ToolCallUpdate, list[schema.PermissionOption]]


def approval(ask: Mapping[str, Any], branch: str, root: str) -> Request:
    """Return the request for the approval of a call: the call and the options.

    Args:
        ask: The ask from the daemon.
        branch: The shown conversation; the ask may be from an agent below it.
        root: Its workspace root.
    """
    tool, arguments = str(ask.get("tool") or ""), _arguments(ask)
    changed = changes(tool, arguments, root)
    text = f"```\n{question(ask, branch)}\n```" if not changed else str(ask.get("reason") or "")
    call = schema.ToolCallUpdate(
        tool_call_id=call_id(ask, branch),
        title=_title(ask, branch, summary(tool, arguments, root=root) if arguments else ""),
        kind=kind(tool),
        status="pending",
        content=[*changed, *([tool_content(text_block(text))] if text else [])],
        locations=locations(arguments, root),
        raw_input=arguments,
    )
    return call, list(_options(ask))


def questions(ask: Mapping[str, Any], branch: str) -> Iterator[Request]:
    """Yield a request for each question from the model; the options are numbered."""
    for number, item in enumerate(ask["questions"]):
        options = [
            schema.PermissionOption(option_id=str(place), name=str(option["label"]), kind="allow_once")
            for place, option in enumerate(item.get("options") or ())
        ]
        options.append(schema.PermissionOption(option_id=LATER, name="In my next message", kind="reject_once"))
        call = schema.ToolCallUpdate(
            tool_call_id=f"{call_id(ask, branch)}:{number}",
            title=_title(ask, branch, str(item["question"])),
            kind="other",
            status="pending",
            content=[tool_content(text_block("\n".join(question_lines(item))))],
        )
        yield call, options


def call_id(ask: Mapping[str, Any], branch: str) -> str:
    """Return the id of the call to show an ask at: the asking call if it is in this conversation, else a new id."""
    own = ask.get("tool_call_id") if ask.get("branch") in (None, branch) and ask.get("kind") != "question" else None
    return str(own or f"ask:{ask['id']}")


def _options(ask: Mapping[str, Any]) -> Iterator[schema.PermissionOption]:
    names = _SCOPE_NAMES if ask.get("kind") == "scope" else _NAMES
    patterns = truncate(", ".join(map(str, ask.get("remember") or ())), _PATTERNS)
    for choice in ask.get("choices") or ("allow", "deny"):
        if choice in _KINDS:
            more = f": {patterns}" if patterns and choice in ("session", "always") else ""
            yield schema.PermissionOption(option_id=choice, name=names[choice] + more, kind=_KINDS[choice])


def _arguments(ask: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        given = json.loads(str(ask.get("input") or "{}"))
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def _title(ask: Mapping[str, Any], branch: str, title: str) -> str:
    title = title or f"{ask.get('tool') or 'A tool'} {ask.get('detail') or ''}".strip()
    is_agents = ask.get("branch") not in (None, branch)
    return f"{ask.get('agent') or 'An agent'}: {title}" if is_agents else title


# Puts the daemon's questions to the editor's user; the first answer wins, from whichever client.


class Asker:
    """The questions of one conversation.

    Attributes:
        listens: Whether dismissing a question denies it; false while its run is being stopped.
    """

    def __init__(self, session_id: str, daemon: Daemon, editor: Client) -> None:
        self.listens = True
        self._session_id = session_id
        self._daemon = daemon
        self._editor = editor
        self._open: dict[str, asyncio.Task[None]] = {}

    def ask(self, ask: Mapping[str, Any], *, branch: str, root: str) -> None:
        """Put a question of ``branch`` to the user, unless it is on the screen already."""
        if ask["id"] not in self._open:
            self._open[ask["id"]] = asyncio.create_task(self._ask(ask, branch, root))

    def withdraw(self, id: str) -> None:
        """Stop waiting for the answer to a question that another client answered."""
        if (task := self._open.pop(id, None)) is not None:
            task.cancel()

    def stop(self, *, leaves: bool = False) -> None:
        """Stop waiting for all answers; the questions stay open. ``leaves``: the run is being stopped."""
        if leaves:
            self.listens = False
        for id in [*self._open]:
            self.withdraw(id)

    async def _ask(self, ask: Mapping[str, Any], branch: str, root: str) -> None:
        try:
            if ask.get("kind") == "question":
                answer = await self._question(ask, branch, root)
            else:
                chosen = await self._choice(*approval(ask, branch, root))
                answer = self._dismissal() if chosen is None else {"decision": chosen}
            if answer is not None:
                await self._daemon.call("answer", ask=ask["id"], **answer)
        except (RequestError, BadRequest, LookupError, ValueError) as error:  # the question or the answer is invalid
            why = str(error).partition("\n")[0]
            text = f"\n\n> It waits for an answer (`pyagentd asks`): {why}\n\n"
            await self._editor.session_update(session_id=self._session_id, update=notice_chunk(text))
        except (ConnectionError, PyagentdError):
            pass  # the editor has quit, or another client answered first
        finally:
            if self._open.get(ask["id"]) is asyncio.current_task():
                del self._open[ask["id"]]

    async def _question(self, ask: Mapping[str, Any], branch: str, root: str) -> dict[str, Any] | None:
        answers: list[list[str]] = []  # for each question the label of the chosen option
        for item, request in zip(ask["questions"], questions(ask, branch), strict=True):
            chosen = await self._choice(*request)
            if chosen is None:
                return self._dismissal()
            if chosen == LATER:
                return {"decision": "deny", "reason": IN_WORDS}
            answers.append([str(item["options"][int(chosen)]["label"])])
        return {"decision": "answer", "answers": json.dumps(answers, ensure_ascii=False)}

    async def _choice(self, call: schema.ToolCallUpdate, options: list[schema.PermissionOption]) -> str | None:
        answer = await self._editor.request_permission(session_id=self._session_id, tool_call=call, options=options)
        return answer.outcome.option_id if isinstance(answer.outcome, schema.AllowedOutcome) else None

    def _dismissal(self) -> dict[str, Any] | None:
        """Return the answer for a dismissed question: a denial, so that the run does not wait forever."""
        return {"decision": "deny", "reason": "The question was dismissed."} if self.listens else None


# A conversation open in an editor: the daemon's events trigger updates, which are made from the rows of the log.

# The modes of a conversation: the agent that answers from the next prompt on.


class Modes:
    """The mode that the editor chose, and the daemon's current one."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._mode = ""  # the agent for the next prompt
        self._named = ""  # the agent of the next turn according to the daemon

    @property
    def wanted(self) -> str | None:
        """The agent to name in the next prompt; None if the daemon uses it already."""
        return self._mode if self._mode != self._named else None

    def sent(self) -> None:
        """Record that a prompt named the agent."""
        self._named = self._mode

    async def read(self, branch: str) -> schema.SessionModeState:
        """Return the modes of a branch: the agents that can answer, and the current one even without its preset."""
        reply = await self._daemon.call("agents-available", branch=branch)
        self._mode = self._named = current = str(reply.get("agent") or "")
        found = [
            schema.SessionMode(id=each["name"], name=each["name"], description=str(each["description"] or ""))
            for each in reply["agents"]
        ]
        if current not in {mode.id for mode in found}:
            found.insert(0, schema.SessionMode(id=current, name=current or "default"))
        return schema.SessionModeState(current_mode_id=current, available_modes=found)

    async def choose(self, branch: str, mode: str) -> None:
        """Let the agent ``mode`` answer from the next prompt on.

        Raises:
            BadRequest: There is no agent of that name.
        """
        reply = await self._daemon.call("agents-available", branch=branch)
        known = [str(each["name"]) for each in reply["agents"]]
        if mode not in known and mode != self._mode:
            raise BadRequest(f"There is no mode {mode!r}", hint=f"One of {', '.join(known)}")
        self._mode = mode

    async def changed(self, branch: str) -> str | None:
        """Return the next agent if another client changed it, else None."""
        reply = await self._daemon.call("agents-available", branch=branch)
        was, self._named = self._named, str(reply.get("agent") or "")
        if self._named in (was, self._mode):
            return None
        self._mode = self._named
        return self._mode


# Slash commands for an editor, which completes only one word; pure.


def available(found: Iterable[Mapping[str, Any]]) -> schema.AvailableCommandsUpdate:
    """Return the commands from the operation ``commands``, grouped by their first word."""
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for command in found:
        grouped.setdefault(str(command["name"]).split()[0], []).append(command)
    return update_available_commands(_command(name, rows) for name, rows in grouped.items())


def _command(name: str, rows: list[Mapping[str, Any]]) -> schema.AvailableCommand:
    words = [str(row["name"]).removeprefix(name).strip() for row in rows]
    hint = "|".join(filter(None, words))
    if words == [""]:
        hint = str(rows[0]["synopsis"]).removeprefix(f"/{name}").strip()
    made = schema.AvailableCommand(name=name, description="; ".join(str(row["summary"]) for row in rows))
    if hint:
        made.input = schema.AvailableCommandInput(root=schema.UnstructuredCommandInput(hint=hint))
    return made


class Conversation:
    """An attached session; ``id`` is its id in the editor, ``place`` its branch's directory."""

    def __init__(self, id: str, place: Path, daemon: Daemon, editor: Client) -> None:
        self.id = id
        self.place = place
        self.key = str(place)
        self.root = ""
        self._daemon = daemon
        self._editor = editor
        self._own: set[str] = set()  # the messages that this editor sent
        self._updates = Updates("")
        self._is_attached = False
        self._seq = 0  # the last row that was sent to the editor
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._telling: asyncio.Task[None] | None = None
        self.modes = Modes(daemon)
        self._asker = Asker(id, daemon, editor)
        self._catching_up = asyncio.Lock()
        self._turns: dict[str, asyncio.Future[tuple[str, str]]] = {}  # message → how its run ended
        self._waiting: set[str] = set()  # the queued messages
        self._sending: dict[str, str] = {}  # messages to which the daemon has not replied yet → text
        self._unwanted: set[str] = set()  # those of them that were cancelled
        self._runs: dict[str, str] = {}  # run → its message
        self._settings: Mapping[str, Any] = {}
        self._servers: Sequence[Mapping[str, Any]] = ()  # the editor's MCP servers

    # -- opening -------------------------------------------------------------------------------------------------

    async def open(self, *, tells_history: bool) -> schema.SessionModeState:
        """Attach to the session, send its history if ``tells_history``, and return its modes."""
        state = await self._attach()
        answer = await self._daemon.call("show", branch=self.key)
        shown = json.loads(await asyncio.to_thread(json_text, answer))
        self.root = str(state.get("root") or "")
        self._updates = Updates(self.root, self._own.__contains__)
        for update in self._updates.history(shown):
            if tells_history:
                await self.tell(update)
        self._seq = int(answer["seq"])
        if tells_history and (items := state.get("todo")):
            await self.tell(plan(items))
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell_events())
        self._take_state(state)
        return await self.modes.read(self.key)

    async def lend(self, servers: Sequence[Mapping[str, Any]]) -> None:
        """Add the editor's MCP servers to the session from the next prompt on, replacing earlier ones."""
        self._servers = servers
        try:
            await self._daemon.call("lend-mcp", branch=self.key, servers=json.dumps(servers))
        except WireError as error:
            if servers or isinstance(error, Unreachable):
                raise  # otherwise it is an older daemon, and there are no servers to add

    async def awaken(self) -> None:
        """Attach again if the daemon has ended since, and send the missed updates."""
        if not self._is_attached:
            self._take_state(await self._attach())
            await self.lend(self._servers)
            await self._catch_up()

    async def greet(self) -> None:
        """Send the list of slash commands to the editor."""
        found = await self._daemon.call("commands", branch=self.key)
        await self.tell(available(found["commands"]))

    async def close(self, *, detaches: bool) -> None:
        """Stop sending updates; the run goes on and questions stay open. With ``detaches``, detach too."""
        self._asker.stop()
        self._leave("closed", "The session was closed, or loaded anew. What runs goes on")
        if self._telling is not None:
            self._telling.cancel()
            with suppress(asyncio.CancelledError):
                await self._telling
        if detaches:
            with suppress(PyagentdError):
                await self._daemon.call("detach", branch=self.key)

    def lost(self) -> None:
        """End the open turns, because the daemon has ended."""
        self._is_attached = False
        self._asker.stop()
        self._leave("lost", "The daemon has ended. What was said is kept: go on with another prompt")

    def _leave(self, reason: str, text: str) -> None:
        """End the open turns for the editor, since no event will tell how they end."""
        for turn in self._turns.values():
            if not turn.done():
                turn.set_result((reason, text))

    def take(self, event: Event) -> None:
        """Queue an event of this branch."""
        self._events.put_nowait(event)

    async def tell(self, update: Update) -> None:
        """Send an update to the editor."""
        await self._editor.session_update(session_id=self.id, update=update)

    async def _attach(self) -> Mapping[str, Any]:
        state: Mapping[str, Any] = await self._daemon.call("attach", branch=str(self.place))
        self._is_attached = True
        self.key = str(state["branch"])
        self._settings = state["settings"]
        return state

    def _take_state(self, state: Mapping[str, Any]) -> None:
        for ask in state.get("asks") or ():
            self.take(Event("ask", self.key, 0, (ask,)))
        if context := state.get("context"):
            self.take(Event("context", self.key, 0, (context,)))
        if title := state.get("title"):
            self.take(Event("session", self.key, 0, ({"title": title},)))
        for line in state.get("notes") or ():
            self.take(Event("notice", self.key, 0, ({"text": line},)))

    # -- turns ---------------------------------------------------------------------------------------------------

    async def prompt(self, given: Prompt) -> schema.StopReason:
        """Send a message, and return why its turn ended.

        Raises:
            PyagentdError: The daemon did not accept it.
            RequestError: Its run failed.
        """
        message = new_id("msg")
        self._own.add(message)
        self._asker.listens = True
        self._sending[message] = given.text
        try:
            await asyncio.to_thread(self._keep, given)
            try:
                return await self._turn(message, given.text)
            except Unreachable:  # the daemon had ended unnoticed; with the same id the message is not sent twice
                await self.awaken()
                return await self._turn(message, given.text)
        finally:
            self._sending.pop(message, None)
            self._unwanted.discard(message)

    async def _turn(self, message: str, text: str) -> schema.StopReason:
        if message in self._unwanted:
            return "cancelled"
        ended = self._turns[message] = asyncio.get_running_loop().create_future()
        try:
            env = run_environment(os.environ, str(self._settings.get("backend") or ""))
            timeout = COMMAND_TIMEOUT_S if text.startswith("/") else CALL_TIMEOUT_S
            given = {"branch": self.key, "text": text, "id": message, "agent": self.modes.wanted}
            sent: Mapping[str, Any] = await self._daemon.call("prompt", timeout, **given, env=env)
            if (command := sent.get("command")) and not command["recorded"]:
                await self.tell(notice_chunk(str(command["text"])))
            if sent.get("message"):
                self._own.add(sent["message"])  # has another id if a command sent it
                self._turns[sent["message"]] = ended
                self.modes.sent()
            if sent.get("queued") and sent["message"] not in self._runs.values():
                self._waiting.add(sent["message"])
            self._sending.pop(message, None)
            if sent.get("ended"):
                await self._catch_up()
                return self._stop_reason(str(sent["ended"]), "")
            if message in self._unwanted and not ended.done():
                await self._take_back(self._waiting & {sent.get("message")})
            reason, why = await ended
        finally:
            self._turns = {key: turn for key, turn in self._turns.items() if turn is not ended}
        return self._stop_reason(reason, why)

    async def cancel(self) -> None:
        """Remove the editor's queued messages; stop the run too, unless all that the editor sent was queued."""
        self._asker.stop(leaves=True)
        waiting = self._waiting & self._turns.keys()
        # The daemon's reply will tell whether these are queued, except for commands, whose reply comes at their end.
        sending = self._sending.keys() - {*self._runs.values()}
        self._unwanted |= sending
        unknown = {message for message in sending if not self._sending[message].startswith("/")}
        mine = (self._turns.keys() | sending) - unknown
        if unknown and not mine:
            return
        await self._take_back(waiting, stops=waiting != mine)

    async def _take_back(self, waiting: Set[str], *, stops: bool = False) -> None:
        """Remove queued messages; stop the run if ``stops``, or if the turn of one has just begun."""
        stops = stops or not waiting
        for message in waiting:
            try:
                await self._daemon.call("queue-cancel", branch=self.key, id=message)
            except NotFound:  # its turn has just begun
                stops = True
        if stops:
            await self._daemon.call("abort", branch=self.key)

    def _keep(self, prompt: Prompt) -> None:
        for file in prompt.files:  # their names contain a hash, so they do not collide
            attachments.keep_file(self.place, file.name, file.data)

    def _stop_reason(self, reason: str, text: str) -> schema.StopReason:
        match reason:
            case "aborted" | "canceled":
                return "cancelled"
            case "done":
                return {"max_tokens": "max_tokens", "refusal": "refusal"}.get(self._updates.stop_reason, "end_turn")  # type: ignore[return-value]  # mypy widens the values
        raise RequestError(-32603, text or f"The run ended: {reason}", {"reason": reason})

    # -- telling -------------------------------------------------------------------------------------------------

    async def _tell_events(self) -> None:
        while True:
            events = [await self._events.get()]
            while not self._events.empty():
                events.append(self._events.get_nowait())
            try:
                for event in events:
                    await self._tell_event(event)
            except PyagentdError:
                continue  # the daemon has ended, or will send more
            except ConnectionError:
                return  # the editor has quit

    async def _tell_event(self, event: Event) -> None:
        if event.seq > self._seq or event.kind in ("status", "ask", "run"):
            await self._catch_up()
        match event.kind, event.args:
            case "run", ({"id": str(run), "phase": "started", "message_id": str(message)},):
                self._runs[run] = message
                self._waiting.discard(message)
            case "run", ({"id": str(run), "phase": "finished", "reason": str(reason), **rest},):
                await self._end(self._runs.pop(run, ""), reason, str(rest.get("message") or ""))
            case "queue", ({"gone": {"id": str(message), "why": "canceled"}},):
                await self._end(message, "canceled", "")
            case "status", ({"state": "error", **rest},):
                for message in self._waiting & self._turns.keys():  # the queue is paused after an error
                    await self._end(message, "error", str(rest.get("message") or ""))
            case "ask", (ask,):
                self._asker.ask(ask, branch=self.key, root=self.root)
            case "answered", ({"id": str(id)},):
                self._asker.withdraw(id)
            case "agent", (moved,):
                if news := self._updates.agent(moved):
                    await self.tell(news)
            case "todo", (todo,):
                await self.tell(plan(todo.get("items") or ()))
            case "context", (context,):
                if update := usage(context):
                    await self.tell(update)
            case "session", ({"title": str(title)},):
                await self.tell(schema.SessionInfoUpdate(session_update="session_info_update", title=title))
            case "notice", ({"text": str(text)},):
                await self.tell(notice_chunk(f"\n\n> {text}\n\n"))
            case "resync", _:
                self._is_attached = False
                await self.awaken()
                await self._take_lost_ends(event.seq)

    async def _take_lost_ends(self, after: int) -> None:
        """End the turns whose runs ended in the events after row ``after``, which the daemon dropped."""
        done = False
        while not done and self._turns:
            page = await self._daemon.call("replay", branch=self.key, after=after)
            for lost in page_events(page, self.key):
                match lost.kind, lost.args:
                    case "run", ({"id": run, "message_id": message},) if message in self._turns:
                        self._runs[run] = message
                        self._waiting.discard(message)
                    case "run", ({"id": run, "phase": "finished", "reason": reason, **rest},) if run in self._runs:
                        await self._end(self._runs.pop(run), reason, str(rest.get("message") or ""))
            after, done = int(page["seq"]), bool(page["done"])

    async def _catch_up(self) -> None:
        async with self._catching_up:
            done = False
            while not done:
                page = await self._daemon.call("rows", branch=self.key, after=self._seq)
                for row in (Row(**json.loads(text)) for text in page["rows"]):
                    self._seq = row.seq
                    for update in self._updates.feed(row):
                        await self.tell(update)
                done = bool(page["done"])

    async def _end(self, message: str, reason: str, text: str) -> None:
        turn = self._turns.get(message)
        if turn is not None and not turn.done():
            turn.set_result((reason, text))
        elif turn is None and reason == "error" and text:  # a run of another client
            await self.tell(notice_chunk(f"\n\n> {text}\n\n"))
        if (mode := await self.modes.changed(self.key)) is not None:
            await self.tell(update_current_mode(mode))
