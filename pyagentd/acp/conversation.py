"""One conversation that an editor has open over ACP: updates, requests for permission, modes, commands."""

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

# A question of the daemon as a request for permission, and what was chosen as an answer to it; pure.
#
# The answers of an approval are the daemon's. A question of the model's is asked one by one: its options are what can
# be chosen, and what takes words is left to the user's next message.


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
_PATTERNS: Final = 80  # characters of what would be remembered

Request = tuple[schema.ToolCallUpdate, list[schema.PermissionOption]]


def approval(ask: Mapping[str, Any], branch: str, root: str) -> Request:
    """Return what is asked about a call, and how it can be answered.

    Args:
        ask: As the daemon tells it.
        branch: The conversation that is shown; the ask may be an agent's below it.
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
    """Yield a request for each question of the model's; the options are numbered."""
    for number, asked in enumerate(ask["questions"]):
        options = [
            schema.PermissionOption(option_id=str(place), name=str(option["label"]), kind="allow_once")
            for place, option in enumerate(asked.get("options") or ())
        ]
        options.append(schema.PermissionOption(option_id=LATER, name="In my next message", kind="reject_once"))
        call = schema.ToolCallUpdate(
            tool_call_id=f"{call_id(ask, branch)}:{number}",
            title=_title(ask, branch, str(asked["question"])),
            kind="other",
            status="pending",
            content=[tool_content(text_block("\n".join(question_lines(asked))))],
        )
        yield call, options


def call_id(ask: Mapping[str, Any], branch: str) -> str:
    """Return the call that an ask is shown at: the asking one, if it is of this conversation."""
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


# Puts the daemon's questions to an editor's user: the first answer wins, wherever it is given.


class Asker:
    """The questions of one conversation.

    Attributes:
        listens: Whether a question that is dismissed is an answer: not while its run is being stopped.
    """

    def __init__(self, session_id: str, daemon: Daemon, editor: Client) -> None:
        self.listens = True
        self._session_id = session_id
        self._daemon = daemon
        self._editor = editor
        self._open: dict[str, asyncio.Task[None]] = {}

    def ask(self, ask: Mapping[str, Any], *, branch: str, root: str) -> None:
        """Put a question that is shown on ``branch``, unless it is put already."""
        if ask["id"] not in self._open:
            self._open[ask["id"]] = asyncio.create_task(self._ask(ask, branch, root))

    def withdraw(self, id: str) -> None:
        """Stop waiting for the answer to a question that somebody answered."""
        if (task := self._open.pop(id, None)) is not None:
            task.cancel()

    def stop(self, *, leaves: bool = False) -> None:
        """Stop waiting for every answer; what is asked stays asked. ``leaves``: the run is stopped."""
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
        except (RequestError, BadRequest, LookupError, ValueError) as error:  # it cannot be asked, or answered so
            why = str(error).partition("\n")[0]
            text = f"\n\n> It waits for an answer (`pyagentd asks`): {why}\n\n"
            await self._editor.session_update(session_id=self._session_id, update=notice_chunk(text))
        except (ConnectionError, PyagentdError):
            pass  # the editor is gone, or somebody else was faster
        finally:
            if self._open.get(ask["id"]) is asyncio.current_task():
                del self._open[ask["id"]]

    async def _question(self, ask: Mapping[str, Any], branch: str, root: str) -> dict[str, Any] | None:
        answers: list[list[str]] = []  # the label of an option for each question
        for asked, request in zip(ask["questions"], questions(ask, branch), strict=True):
            chosen = await self._choice(*request)
            if chosen is None:
                return self._dismissal()
            if chosen == LATER:
                return {"decision": "deny", "reason": IN_WORDS}
            answers.append([str(asked["options"][int(chosen)]["label"])])
        return {"decision": "answer", "answers": json.dumps(answers, ensure_ascii=False)}

    async def _choice(self, call: schema.ToolCallUpdate, options: list[schema.PermissionOption]) -> str | None:
        answer = await self._editor.request_permission(session_id=self._session_id, tool_call=call, options=options)
        return answer.outcome.option_id if isinstance(answer.outcome, schema.AllowedOutcome) else None

    def _dismissal(self) -> dict[str, Any] | None:
        """Return the answer of somebody who closed the question: a run must not wait for nobody."""
        return {"decision": "deny", "reason": "The question was dismissed."} if self.listens else None


# One conversation that an editor has open: what the daemon tells of it becomes updates, in order.
#
# Events wake it, the rows of the log are what it tells.

# The modes of a conversation: who answers in it from the next prompt on.


class Modes:
    """What an editor chose, and what the daemon has."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._mode = ""  # of the next prompt
        self._named = ""  # the agent of the next turn, as the daemon has it

    @property
    def wanted(self) -> str | None:
        """The agent that the next prompt names; None where the daemon has it already."""
        return self._mode if self._mode != self._named else None

    def sent(self) -> None:
        """Note that a prompt named it."""
        self._named = self._mode

    async def read(self, branch: str) -> schema.SessionModeState:
        """Return the modes of a branch: the agents that can answer, the present one even where its preset is gone."""
        told = await self._daemon.call("agents-available", branch=branch)
        self._mode = self._named = current = str(told.get("agent") or "")
        found = [
            schema.SessionMode(id=each["name"], name=each["name"], description=str(each["description"] or ""))
            for each in told["agents"]
        ]
        if current not in {mode.id for mode in found}:
            found.insert(0, schema.SessionMode(id=current, name=current or "default"))
        return schema.SessionModeState(current_mode_id=current, available_modes=found)

    async def choose(self, branch: str, mode: str) -> None:
        """Have the prompts from now on answered by the agent ``mode``.

        Raises:
            BadRequest: There is none of that name.
        """
        told = await self._daemon.call("agents-available", branch=branch)
        known = [str(each["name"]) for each in told["agents"]]
        if mode not in known and mode != self._mode:
            raise BadRequest(f"There is no mode {mode!r}", hint=f"One of {', '.join(known)}")
        self._mode = mode

    async def changed(self, branch: str) -> str | None:
        """Return who answers next, where somebody else named another agent; None where nobody did."""
        told = await self._daemon.call("agents-available", branch=branch)
        was, self._named = self._named, str(told.get("agent") or "")
        if self._named in (was, self._mode):
            return None
        self._mode = self._named
        return self._mode


# Slash commands as an editor completes them, by one word; pure.


def available(found: Iterable[Mapping[str, Any]]) -> schema.AvailableCommandsUpdate:
    """Return the commands that the daemon's operation ``commands`` tells; those of two words together, as one."""
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
    """An attached session; the editor knows it by ``id``, ``place`` is its branch's directory."""

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
        self._seq = 0  # the last row that was told
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._telling: asyncio.Task[None] | None = None
        self.modes = Modes(daemon)
        self._asker = Asker(id, daemon, editor)
        self._catching_up = asyncio.Lock()
        self._turns: dict[str, asyncio.Future[tuple[str, str]]] = {}  # message → how its run ended
        self._waiting: set[str] = set()  # those messages that are queued
        self._sending: dict[str, str] = {}  # those of which the daemon has not said yet what became of them → text
        self._unwanted: set[str] = set()  # those of them that were cancelled
        self._runs: dict[str, str] = {}  # run → its message
        self._settings: Mapping[str, Any] = {}
        self._servers: Sequence[Mapping[str, Any]] = ()  # those of the editor

    # -- opening -------------------------------------------------------------------------------------------------

    async def open(self, *, tells_history: bool) -> schema.SessionModeState:
        """Watch the session, tell what was said in it, and return the modes it has."""
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
        """Have the session get the editor's own servers of tools, from the next prompt on, and none lent before."""
        self._servers = servers
        try:
            await self._daemon.call("lend-mcp", branch=self.key, servers=json.dumps(servers))
        except WireError as error:
            if servers or isinstance(error, Unreachable):
                raise  # else it is an older daemon, which has been lent none

    async def awaken(self) -> None:
        """Watch the session again, if the daemon ended since, and tell what was missed."""
        if not self._is_attached:
            self._take_state(await self._attach())
            await self.lend(self._servers)
            await self._catch_up()

    async def greet(self) -> None:
        """Tell what an editor shows beside the conversation."""
        found = await self._daemon.call("commands", branch=self.key)
        await self.tell(available(found["commands"]))

    async def close(self, *, detaches: bool) -> None:
        """Stop telling; what runs goes on, and what is asked stays asked. ``detaches``: nobody else here watches."""
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
        """Note that the daemon has ended: nobody tells how the turns end."""
        self._is_attached = False
        self._asker.stop()
        self._leave("lost", "The daemon has ended. What was said is kept: go on with another prompt")

    def _leave(self, reason: str, text: str) -> None:
        """End the turns for the editor: nobody tells how they end."""
        for turn in self._turns.values():
            if not turn.done():
                turn.set_result((reason, text))

    def take(self, event: Event) -> None:
        """Take an event of this branch; it is told in its turn."""
        self._events.put_nowait(event)

    async def tell(self, update: Update) -> None:
        """Tell the editor something."""
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
            PyagentdError: It was not taken.
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
            except Unreachable:  # it had ended before, unseen; sent twice it is one message
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
                self._own.add(sent["message"])  # another one, where a command sent it
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
        """Take back what waits, and stop the run, unless all that the editor sent waits behind somebody else's."""
        self._asker.stop(leaves=True)
        waiting = self._waiting & self._turns.keys()
        # Whether these wait is known when they are answered, but for a command: that is answered when it has ended.
        sending = self._sending.keys() - {*self._runs.values()}
        self._unwanted |= sending
        unknown = {message for message in sending if not self._sending[message].startswith("/")}
        mine = (self._turns.keys() | sending) - unknown
        if unknown and not mine:
            return
        await self._take_back(waiting, stops=waiting != mine)

    async def _take_back(self, waiting: Set[str], *, stops: bool = False) -> None:
        """Take back messages that wait; stop the run if ``stops``, or if the turn of one has just come."""
        stops = stops or not waiting
        for message in waiting:
            try:
                await self._daemon.call("queue-cancel", branch=self.key, id=message)
            except NotFound:  # its turn has just come
                stops = True
        if stops:
            await self._daemon.call("abort", branch=self.key)

    def _keep(self, given: Prompt) -> None:
        for file in given.files:  # their names have their hashes
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
                continue  # the daemon is gone, or will say more
            except ConnectionError:
                return  # the editor is

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
                for message in self._waiting & self._turns.keys():  # what waits does not go on after an error
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
        """End the turns whose runs ended among the events behind row ``after``, which the daemon dropped."""
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
        elif turn is None and reason == "error" and text:  # somebody else's
            await self.tell(updates.notice_chunk(f"\n\n> {text}\n\n"))
        if (mode := await self.modes.changed(self.key)) is not None:
            await self.tell(update_current_mode(mode))
