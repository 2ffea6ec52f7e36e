"""A conversation open in an editor over ACP: updates, requests for permission, modes, commands."""

import asyncio
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from acp import Client, RequestError, schema, text_block, tool_content
from acp.helpers import update_available_commands, update_current_mode

from pyagentd.acp import updates
from pyagentd.acp.files import Prompt
from pyagentd.acp.updates import Update, Updates, notice_chunk
from pyagentd.acp.wire import Daemon
from pyagentd.cli.follow import page_events, question, question_lines
from pyagentd.cli.link import json_text, run_environment
from pyagentd.clock import new_id
from pyagentd.errors import BadRequest, NotFound, PyagentdError, Unreachable, WireError
from pyagentd.events import Event, truncate
from pyagentd.store import attachments
from pyagentd.store.journal import Row
from pyagentd.tools.spec import summary
from pyagentd.wire.client import CALL_TIMEOUT_S, COMMAND_TIMEOUT_S

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
    changed = updates.changes(tool, arguments, root)
    text = f"```\n{question(ask, branch)}\n```" if not changed else str(ask.get("reason") or "")
    call = schema.ToolCallUpdate(
        tool_call_id=call_id(ask, branch),
        title=_title(ask, branch, summary(tool, arguments, root=root) if arguments else ""),
        kind=updates.kind(tool),
        status="pending",
        content=[*changed, *([tool_content(text_block(text))] if text else [])],
        locations=updates.locations(arguments, root),
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
            await self.tell(updates.plan(items))
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
                await self.tell(updates.notice_chunk(str(command["text"])))
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
                await self.tell(updates.plan(todo.get("items") or ()))
            case "context", (context,):
                if update := updates.usage(context):
                    await self.tell(update)
            case "session", ({"title": str(title)},):
                await self.tell(schema.SessionInfoUpdate(session_update="session_info_update", title=title))
            case "notice", ({"text": str(text)},):
                await self.tell(updates.notice_chunk(f"\n\n> {text}\n\n"))
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
            await self.tell(updates.notice_chunk(f"\n\n> {text}\n\n"))
        if (mode := await self.modes.changed(self.key)) is not None:
            await self.tell(update_current_mode(mode))
