"""Authority of one run: decides with ``policy.guard``, and asks a human when the decision is to ask.

Nothing that the model claims counts: the tool computes from its checked arguments what an action touches, the
preset's rules come from disk, and grants come from humans. Every decision is written to the audit log. An action that
a human allowed is checked again before it happens, since a rule may have changed, and no answer overrules a deny.

``Questions`` records a question, shows it to clients, and waits for the answer. A resumed run finds the questions it
had asked: an unanswered one is asked again under its id, an answered one is not.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from pyagentd import reader
from pyagentd.clock import new_id
from pyagentd.errors import BadRequest, NotFound, PresetError, StoreError, ToolError
from pyagentd.events import Event, Line, Text, truncate
from pyagentd.messages import ToolCall
from pyagentd.policy.action import Action, ResolvedPath
from pyagentd.policy.guard import Allow, Confirm, Context, Deny, Widening, decide, explain_pattern
from pyagentd.policy.guard import Ask as Ask_
from pyagentd.policy.guard import Decision as Decision_
from pyagentd.runtime.settings import SendOptions
from pyagentd.store.db.audit import Decided
from pyagentd.store.paths import BranchRef
from pyagentd.tools.invoke import Denied, EditedCall, validate_arguments
from pyagentd.tools.spec import ToolContext, ToolSpec
from pyagentd.words import printable

if TYPE_CHECKING:
    from pyagentd.runtime.branch import LiveBranch
    from pyagentd.runtime.kernel import Kernel


# How every client shows a question: who asks what, lines and keys.

_WIDTH = 160  # columns of a line
_LONGEST = 400  # characters of the question
_MOST_PREVIEW, _MOST_COMMANDS, _MOST_WORDS = 24, 12, 6  # lines: a question that exceeds the window cannot be scrolled


class Key(TypedDict):
    """A letter that answers a question, or shows more of it."""

    key: str
    label: str


class KeyRow(TypedDict):
    """A titled group of keys."""

    title: str
    keys: list[Key]


# Row, letter, when it is offered (a choice, or a fact of the question), label.
_KEYS = (
    ("Allow", "y", "allow", "once"),
    ("Allow", "s", "session", "this session"),
    ("Allow", "p", "always", "this project"),
    ("Allow", "p", "scope", "add to the scope"),
    ("Allow", "e", "edit", "with changes"),
    ("Deny", "n", "deny", ""),
    ("Deny", "r", "deny", "with a reason"),
    ("Deny", "k", "own", "abort the run"),
    ("Deny", "k", "agent", "abort this agent"),
    ("Look", "d", "diff", "diff"),
    ("Look", "E", "diff", "Ediff"),
    ("Look", "o", "always offered", "details"),
)


def agent_words(id: str) -> str:
    """Return the display name of an agent: "PRESET (SLUG)" for the id PRESET-TIMESTAMP-SLUG."""
    found = re.fullmatch(r"(.+?)-[0-9]{14}(?:-(.+))?", id)
    if found is None:
        return id
    return f"{found[1]} ({found[2]})" if found[2] else found[1]


_WORDS = ("reason", "warning", "preview", "covers", "allows")
"""Fields of an ``ask`` row that are shown to people only."""


def client_fields(ask: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that clients get in addition to an ``ask`` row: ``who``, ``what``, ``lines``, ``keys``.

    Control characters are made visible, so that the model cannot reorder or hide text that a human approves.
    """
    try:
        return {
            **{key: _seen(ask[key]) for key in _WORDS if key in ask},
            "who": agent_words(ask.get("agent") or ""),
            "what": _what(ask),
            "lines": [line.to_wire() for line in lines_of(ask)],
            "keys": _keys(ask),
        }
    except (AttributeError, KeyError, TypeError):  # a log from elsewhere may hold anything
        return {"who": "", "what": "Question", "lines": [], "keys": []}


def _seen(value: Any) -> Any:
    """Return ``value`` with the control characters of its texts made visible."""
    return reader.with_texts(value, printable)


def lines_of(ask: Mapping[str, Any], *, width: int | None = _WIDTH) -> Iterator[Line]:
    """Yield the lines that show a question, the question first; without limits if ``width`` is None."""
    ask = {key: value if key == "input" else _seen(value) for key, value in ask.items()}
    question = ask.get("kind") == "question"
    what = _what(ask)
    head = [Text(f"{agent_words(ask['agent'])} › ", "strong")] if ask.get("agent") else []
    head += [Text("Question " if question else "Allow ", "warn")]
    head += [Text(_cut(what, width or _LONGEST), "heading")]
    yield Line(head if question else [*head, Text("?", "warn")])
    questions = ask.get("questions") or ()
    lines = [line for each in questions for line in _question(each, width, alone=len(questions) == 1)]
    yield from _first_lines(lines, width and _MOST_PREVIEW)
    arguments = _arguments(ask)
    if ask.get("kind") == "scope":
        patterns = [Text(str(each), "code") for each in ask.get("patterns") or ()]
        yield from _first_lines(_labelled_lines(ask.get("for_tool") or "wants", patterns), width and _MOST_COMMANDS)
        why = [Text(line) for line in str(arguments.get("justification") or "").split("\n") if line]
        yield from _first_lines(_labelled_lines("why", why), width and _MOST_WORDS)
    commands = [each.strip() for each in ask.get("commands") or ()]
    shown = ask.get("patterns") or () if ask.get("kind") == "scope" else (ask.get("detail") or "",)
    if commands != [str(each).strip() for each in shown]:
        runs = [Text(_cut(each, width), "code") for each in commands]
        yield from _first_lines(_labelled_lines("runs", runs), width and _MOST_COMMANDS)
    warnings = [Line((Text(line, "warn"),)) for line in str(ask.get("warning") or "").split("\n") if line]
    yield from _first_lines(warnings, width and _MOST_WORDS)
    if preview := str(ask.get("preview") or "").rstrip() or _hidden_text(ask, head[-1].text):
        all_lines = preview.split("\n")
        if width and not _is_diff(ask):  # wrap long lines
            starts = [(line, range(0, max(1, len(line)), _WIDTH)) for line in all_lines]
            all_lines = [line[at : at + _WIDTH] for line, places in starts for at in places]
        most = _MOST_PREVIEW if width else len(all_lines)
        text = "\n".join(_short(line, width) for line in all_lines[:most])
        more = max(0, len(all_lines) - most)
        yield Line((Text(text, "diff" if _is_diff(ask) else "preview", more=more),))


def _hidden_text(ask: Mapping[str, Any], head: str) -> str:
    """Return a call's full detail if the first line cuts it, or it has several lines; else "".

    A human must see the whole of a command before approving it.
    """
    if ask.get("kind") in ("question", "scope"):
        return ""
    detail = str(ask.get("detail") or "").strip("\n")
    is_cut = head.endswith("…") and " ".join(detail.split()) not in head
    return detail if is_cut or ("\n" in detail and not ask.get("commands")) else ""


def _what(ask: Mapping[str, Any]) -> str:
    """Return the question as one line."""
    if ask.get("kind") == "scope":
        return _cut(f"more scope: {'  '.join(_seen(ask.get('patterns')) or ())}", _LONGEST)
    detail = printable(str(ask.get("detail") or ask.get("action") or ""))
    if ask.get("kind") == "question":
        return _cut(detail, _LONGEST)
    if ask.get("path") and ask.get("project"):
        detail = detail.removeprefix(printable(f"{ask['project']}/"))
    if ask.get("tool") in ("PersistentAgent", "task"):
        arguments = _arguments(ask)
        detail = f"{detail}: {arguments.get('description') or arguments.get('prompt') or ''}".removesuffix(": ")
    return _cut(f"{ask.get('tool') or 'Question'} {detail}", _LONGEST)


def _arguments(ask: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        arguments = reader.parse(ask.get("input") or "{}")
    except ValueError:  # a log from elsewhere
        return {}
    return _seen(arguments) if isinstance(arguments, dict) else {}


def _is_diff(ask: Mapping[str, Any]) -> bool:
    return str(ask.get("preview") or "").startswith("--- ")


def _question(question: Mapping[str, Any], width: int | None, *, alone: bool) -> Iterator[Line]:
    if not alone or width is None:
        yield Line((Text(_cut(question["question"], width), "heading"),))
    for option in question.get("options") or ():
        mark = "[ ]" if question.get("multi_select") else "( )"
        about = f"  {option['description']}" if option.get("description") else ""
        yield Line((f"    {mark} {_cut(option['label'], width)}", Text(_cut(about, width, keep="  "), "detail")))


def _labelled_lines(label: str, texts: Sequence[Text]) -> list[Line]:
    """Return texts in a column, the first one after ``label``."""
    space = " " * (len(label) + 4)
    return [Line((space if number else Text(f"  {label}  ", "dim"), text)) for number, text in enumerate(texts)]


def _first_lines(lines: Sequence[Line], most: int | None) -> Iterator[Line]:
    yield from lines[:most]
    if most is not None and len(lines) > most:
        more = len(lines) - most
        yield Line((Text(f"  … {more} more line{'s' if more > 1 else ''}", "dim"),))


def _keys(ask: Mapping[str, Any]) -> list[KeyRow]:
    """Return the keys that answer a question; none for a model's question, which a form answers."""
    if ask.get("kind") == "question":
        return []
    offered = {*(ask.get("choices") or ("allow", "deny")), "always offered"}
    offered.add("agent" if ask.get("agent") else "own")
    if ask.get("kind") == "scope" and "always" in offered:
        offered = {*offered, "scope"} - {"always"}
    if ask.get("input") and ask.get("kind") != "scope":
        offered.add("edit")
    if _is_diff(ask):
        offered.add("diff")
    rows: dict[str, list[Key]] = {}
    for row, key, when, label in _KEYS:
        if when in offered:
            rows.setdefault(row, []).append({"key": key, "label": label})
    return [{"title": title, "keys": keys} for title, keys in rows.items()]


def _cut(text: str, width: int | None, *, keep: str = "") -> str:
    """Return ``text`` on one line of at most ``width`` columns, indented by the spaces ``keep``."""
    line = " ".join(str(text).split())
    return _short(f"{keep}{line}" if line else "", width)


def _short(line: str, width: int | None) -> str:
    return line if width is None else truncate(line, width)


# Questions to a human, asked once and answered once.
#
# An ask belongs to the run that needs the answer and is shown on that run's branch and on the root of its tree, so
# that a sub-agent's question is never hidden behind its parent. The first answer wins and is recorded before it takes
# effect; aborting a run answers all its asks. A daemon that stops leaves them open in the log, and the next one asks
# them again under the same id.

Decision = Literal["allow", "session", "always", "answer", "deny", "abort"]

_REMEMBERED = 512  # settled asks


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The human's answer.

    Attributes:
        decision: ``session`` and ``always`` allow and grant the patterns that the ask offered; ``answer`` answers a
            question of the model; ``abort`` stops the run.
        reason: The human's reason, shown to the model, or "".
        input: Edited arguments of the call as JSON text; None if unchanged.
        answers: Answers to the model's questions, a list of strings for each; None when it asked none.
        by: The client that sent the answer, "" for none.
        shown: The preview that was answered to an earlier daemon; None for the current one.
    """

    decision: Decision
    reason: str = ""
    input: str | None = None
    answers: tuple[tuple[str, ...], ...] | None = None
    by: str = ""
    shown: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One open question."""

    id: str
    run_id: str
    branches: tuple[str, ...]  # where it is shown: the asking branch first, then the root of its tree
    row: Mapping[str, Any]  # the `ask` row as recorded and ``client_fields``; sent to clients
    future: asyncio.Future[Answer]
    record: Callable[[Answer], object]


class AskBoard:
    """All open questions of the daemon."""

    def __init__(self, publish: Callable[[Event], None]) -> None:
        self._publish = publish
        self._open: dict[str, Ask] = {}
        self._settled: dict[str, Answer] = {}  # the last ones, oldest first

    def post(
        self,
        *,
        seq: int,
        run_id: str,
        branches: tuple[str, ...],
        row: Mapping[str, Any],
        record: Callable[[Answer], object] = lambda answer: None,
    ) -> Ask:
        """Show an ask and return it, to wait for its answer.

        Args:
            seq: The number of ``row`` in the log of the first branch.
            run_id: The run that waits for the answer.
            branches: The branches where it is shown.
            row: The recorded row.
            record: Called to record the answer, before it is published.
        """
        future = asyncio.get_running_loop().create_future()
        row = {**row, **client_fields(row)}
        ask = Ask(id=str(row["id"]), run_id=run_id, branches=branches, row=row, future=future, record=record)
        self._open[ask.id] = ask
        for branch in branches:
            self._publish(Event("ask", branch, seq if branch == branches[0] else 0, (row,)))
        return ask

    def has(self, ask_id: str) -> bool:
        """Return whether an ask is open."""
        return ask_id in self._open

    def knows(self, ask_id: str) -> bool:
        """Return whether an ask is open, or was settled recently."""
        return ask_id in self._open or ask_id in self._settled

    def get(self, ask_id: str) -> Ask:
        """Return an open ask.

        Raises:
            NotFound: No ask with this id is open; the message says how it was settled, if known.
        """
        if (ask := self._open.get(ask_id)) is not None:
            return ask
        settled = self._settled.get(ask_id)
        if settled is None:
            raise NotFound(f"No question {ask_id} is open", hint="It may have been answered elsewhere")
        if settled.decision == "abort":
            raise NotFound(f"The run that asked {ask_id} was stopped; nobody waits for the answer")
        by = f" by {settled.by}" if settled.by else ""
        raise NotFound(f"The question {ask_id} was answered already{by}: {settled.decision}")

    def answer(self, ask_id: str, answer: Answer) -> bool:
        """Settle an ask; return whether this answer was the first.

        Raises:
            NotFound: No ask with this id is open.
        """
        ask = self.get(ask_id)
        del self._open[ask_id]
        first = not ask.future.done()
        try:
            ask.record(answer)
        except StoreError as error:  # ends the run: an answer that is not recorded has no effect
            if first:
                ask.future.set_exception(error)
        else:
            if first:
                ask.future.set_result(answer)
        self.note_settled(ask_id, answer)
        for branch in ask.branches:
            details = {"id": ask.id, "decision": answer.decision, "by": answer.by or None}
            self._publish(Event("answered", branch, 0, (details,)))
        return first

    def note_settled(self, ask_id: str, answer: Answer) -> None:
        """Remember a settled ask for a while, to explain it to clients that answer late."""
        self._settled[ask_id] = answer
        while len(self._settled) > _REMEMBERED:
            del self._settled[next(iter(self._settled))]

    def abort_run(self, run_id: str) -> None:
        """Answer every open ask of a run with ``abort``."""
        for ask in self.of_run(run_id):
            self.answer(ask.id, Answer(decision="abort"))

    def drop(self, ask: Ask) -> None:
        """Abort an ask whose answer is not needed any more, unless it is settled."""
        if self._open.get(ask.id) is ask:
            self.answer(ask.id, Answer(decision="abort"))

    def leave_run(self, run_id: str) -> None:
        """Stop waiting for a run's answers; its asks stay open in the log, for the next daemon."""
        for ask in self.of_run(run_id):
            del self._open[ask.id]
            ask.future.cancel()

    def of_run(self, run_id: str) -> list[Ask]:
        """Return the open asks of a run, oldest first."""
        return [ask for ask in self._open.values() if ask.run_id == run_id]

    def open_for(self, branch: str) -> list[Mapping[str, Any]]:
        """Return the rows of the asks shown on ``branch``, oldest first."""
        return [ask.row for ask in self._open.values() if branch in ask.branches]

    def within(self, directory: str) -> list[Mapping[str, Any]]:
        """Return the rows of the asks of branches in ``directory``, oldest first."""
        return [ask.row for ask in self._open.values() if ask.branches[0].startswith(f"{directory}/")]

    def all(self) -> list[Mapping[str, Any]]:
        """Return the rows of all open asks, oldest first."""
        return [ask.row for ask in self._open.values()]


# A call that waits for a human: how it is shown, and how its arguments can be edited.

CHOICES = ("allow", "session", "always", "deny", "abort")
ONCE = ("allow", "deny", "abort")  # for tools that ask every time


def allows(what: str, project: str) -> dict[str, str]:
    """Return, for each lasting answer, a sentence that explains what it allows."""
    where = {"session": "in this session and its agents", "always": f"in every session of {project}"}
    return {
        choice: f"From now on, {place}, this is allowed without asking: {what}." for choice, place in where.items()
    }


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A tool call of the model that needs a human's answer."""

    call: ToolCall
    spec: ToolSpec
    action: Action
    tool_context: ToolContext

    async def fields(self, ask: Ask_) -> dict[str, Any]:
        """Return the fields of an ``ask`` row that describe the call.

        Raises:
            ToolError: The call would fail, so no human needs to be asked.
        """
        spec, action = self.spec, self.action
        reason, warnings = ask.reason, [] if ask.is_routine else [ask.reason]
        preview = await self.preview()
        given = dict(self.call.input)
        if spec.caution is not None and (caution := await asyncio.to_thread(spec.caution, given, self.tool_context)):
            reason, warnings = f"{reason}. {caution}", [*warnings, caution]
        return {
            "tool_call_id": self.call.id,
            "tool": spec.name,
            "action": str(action),
            "detail": action.detail,
            "reason": reason,
            "warning": ". ".join(warnings),  # the part of the reason that a human must see
            "preview": preview,
            "kind": "tool",
            "choices": list(ONCE if spec.confirm == "always" else CHOICES),
            "remember": list(ask.remember),
            "covers": (covers := [explain_pattern(pattern) for pattern in ask.remember]),
            "allows": allows("; ".join(covers), str(self.tool_context.root)) if covers else {},
            "project": str(self.tool_context.root),
            "commands": list(_commands(action)),
            "input": json.dumps(dict(self.call.input), ensure_ascii=False),
            "path": action.paths[0].lexical if action.kind == "write" and action.paths else None,
        }

    async def preview(self) -> str:
        """Return a preview of the call's effect, "" if the tool has none.

        Raises:
            ToolError: The call would fail.
        """
        if self.spec.preview is None:
            return ""
        bound = self.tool_context.bound_to(self.action)
        return await asyncio.to_thread(self.spec.preview, dict(self.call.input), bound)

    def edited(self, text: str) -> tuple[dict[str, Any], Action]:
        """Parse and check arguments that a human wrote as JSON; return them and their action.

        Raises:
            ToolError: The arguments are not JSON, or do not fit the tool's schema.
        """
        try:
            arguments = reader.parse(text)
        except ValueError as error:
            raise ToolError(f"they are not JSON: {error}") from None
        args = validate_arguments(self.spec.name, self.spec.input_schema, arguments)
        return args, self.spec.action(args, self.tool_context)


def _commands(action: Action) -> Sequence[str]:
    """Return every command in a command line; none if it cannot be parsed completely."""
    if action.shell is None or action.shell.unreadable:
        return ()
    return [command.text for command in action.shell.commands]


class CallPosition:
    """A call's position among concurrent calls: its question is shown after those of earlier calls.

    Args:
        previous: The position of the call before; None for the first.
    """

    def __init__(self, previous: "CallPosition | None" = None) -> None:
        self._previous = previous
        self._left: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def reached(self) -> None:
        """Wait until the question of each earlier call is shown, or will not be asked."""
        position = self._previous
        while position is not None:
            if not position._left.done():
                await asyncio.wait([position._left])
            position = position._previous

    def leave(self) -> None:
        """Allow the questions of later calls to be shown."""
        if not self._left.done():
            self._left.set_result(None)


AskHuman = Callable[[Mapping[str, Any], Callable[[], object]], Awaitable[Answer]]


_NOTED = 300  # characters of a call refused before it became an action


@dataclass(slots=True, kw_only=True, eq=False)
class Authority:
    """Decides which tool calls of one run are allowed."""

    context: Callable[[], Context]  # reads the rules for every decision, so that a change of ``preset.md`` applies
    # Records and shows a question (fields of an ``ask`` row without id), calls the given function once it is shown,
    # and waits for the answer.
    ask_human: AskHuman
    stop: Callable[[], object]  # called when the human answers with ``abort``; cancels the run's task
    witness: Callable[..., None] = lambda *_, **__: None  # called with every decision, as ``grants.RunWitness``
    # Whether the daemon is stopping: then a question whose run ends stays open.
    leaving: Callable[[], bool] = lambda: False
    # Called with tool and action of a call that was denied because no human could be asked.
    unasked: Callable[[str, str], object] = lambda tool, action: None
    _waiting: dict[str, AskedCall] = field(init=False, default_factory=dict)  # by id of the call
    _leases: list[Widening] = field(init=False, default_factory=list)  # unused one-time permissions of a human
    _used: list[Widening] = field(init=False, default_factory=list)
    _root: str = field(init=False, default="")  # the workspace root of the run's calls

    async def authorise(self, asked: AskedCall, position: CallPosition) -> EditedCall | None:
        """Decide about a call at ``position``; see ``tools.invoke.Authorise``."""
        self._root = str(asked.tool_context.root)
        spec, action = asked.spec, asked.action
        decision, lease = self._decide(action, spec.confirm)
        if lease is not None:
            self._leases.remove(lease)
            self._used.append(lease)
        match decision:
            case Allow(by):
                self.witness(spec.name, str(action), "allow", by, change=action.change)
                return None
            case Deny(reason, rule):
                self.witness(spec.name, str(action), "deny", rule, reason, change=action.change)
                if rule == "headless":
                    self.unasked(spec.name, str(action))
                raise Denied(reason, "nobody" if rule == "headless" else "rule")
            case Ask_():
                return await self._ask(asked, decision, lease, position)

    def note_refused(self, spec: ToolSpec | None, call: ToolCall, reason: str) -> None:
        """Audit a call that was refused before any decision: the tool is unknown, or the action impossible."""
        words = " ".join(str(value) for value in call.input.values() if isinstance(value, str | int | float))
        action = f"tool:{spec.acts_as or spec.name if spec else call.name}:{words}".replace("\n", " ")[:_NOTED]
        self.witness(call.name[:_NOTED], action, "deny", "no such tool" if spec is None else "impossible", reason)

    def readable(self, path: ResolvedPath) -> bool:
        """Return whether a file found by a search may be read without asking a human."""
        action = Action(tool="Read", detail=path.lexical, kind="read", paths=(path,), root=self._root)
        context = self._rules(action)
        if isinstance(context, Deny):
            return False
        if isinstance(decide(action, context, False), Allow):
            return True
        widened = (lease.widen(context, action) for lease in (*self._used, *self._leases))
        return any(each is not None and isinstance(decide(action, each, False), Allow) for each in widened)

    # -- questions about scope -----------------------------------------------------------------------------------

    @property
    def interactive(self) -> bool:
        """Whether a human can be asked."""
        return self.context().interactive

    def would_be(self, action: Action, lease: Widening | None, confirm: Confirm = False) -> Decision_:
        """Return the decision about ``action`` as if ``lease`` were granted."""
        context = self._rules(action)
        if isinstance(context, Deny):
            return context
        widened = lease.widen(context, action) if lease is not None else None
        return decide(action, widened or context, confirm)

    async def ask_for_scope(self, tool: str, action: str, fields: Mapping[str, Any]) -> Answer:
        """Ask the human for more scope; audit and return the answer; does not return on ``abort``."""
        answer = await self._answer(tool, action, {"tool": tool, "action": action, "kind": "scope", **fields})
        decided: Decided = "ask_denied" if answer.decision == "deny" else "ask_approved"
        self._note(tool, action, decided, answer)
        return answer

    async def ask_question(self, tool: str, action: str, fields: Mapping[str, Any]) -> Answer:
        """Ask the human a question of the model and return the answer; does not return on ``abort``.

        It allows nothing, so it is not audited; question and answer are in the log.
        """
        return await self._answer(tool, action, {"tool": tool, "action": action, "kind": "question", **fields})

    def lend(self, lease: Widening) -> None:
        """Grant ``lease`` to one action of this run."""
        self._leases.append(lease)

    # -- calls that wait -----------------------------------------------------------------------------------------

    def check_edit(self, call_id: str, text: str) -> None:
        """Check arguments that a human edited for a waiting call.

        Raises:
            BadRequest: The call does not wait, or the arguments are not JSON, do not fit the tool or are denied.
        """
        waiting = self._waiting.get(call_id)
        if waiting is None:
            raise BadRequest("The call does not wait any more")
        try:
            _, action = waiting.edited(text)
        except ToolError as error:
            raise BadRequest(f"These arguments cannot be used: {error}") from error
        decision, _ = self._decide(action, waiting.spec.confirm)
        if isinstance(decision, Deny):
            raise BadRequest(f"No answer can allow this: {decision.reason}")

    def is_allowed_now(self, call_id: str) -> bool:
        """Return whether a waiting call is allowed by now without a human's answer."""
        waiting = self._waiting.get(call_id)
        if waiting is None:
            return False
        decision, _ = self._decide(waiting.action, waiting.spec.confirm)
        return isinstance(decision, Allow)

    # -- inside --------------------------------------------------------------------------------------------------

    def _decide(self, action: Action, confirm: Confirm) -> tuple[Decision_, Widening | None]:
        """Return the decision, and the lease that widens the scope, if one was needed."""
        context = self._rules(action)
        if isinstance(context, Deny):
            return context, None
        decision = decide(action, context, confirm)
        if isinstance(decision, Deny) and decision.rule in ("scope", "command"):
            for lease in self._leases:
                widened = lease.widen(context, action)
                if widened is not None and not isinstance(second := decide(action, widened, confirm), Deny):
                    return second, lease
        return decision, None

    def _rules(self, action: Action) -> Context | Deny:
        """Return the current rules; if they cannot be read, a deny."""
        try:
            return self.context()
        except (PresetError, StoreError) as error:
            reason = f"{action.tool} may not do this: the rules of this session cannot be read. {error}"
            return Deny(reason, "scope")

    async def _ask(
        self, asked: AskedCall, ask: Ask_, lease: Widening | None, position: CallPosition
    ) -> EditedCall | None:
        tool, action = asked.spec.name, asked.action
        self._waiting[asked.call.id] = asked
        try:
            fields = await asked.fields(ask)
            await position.reached()
            answer = await self._answer(tool, str(action), fields, action.change, shown=position.leave)
        finally:
            del self._waiting[asked.call.id]
        if answer.decision == "deny":
            self._note(tool, str(action), "ask_denied", answer, action.change)
            why = f": {answer.reason.rstrip('.')}" if answer.reason else ""
            raise Denied(f"The user denied {tool}{why}.", "user")
        args = dict(asked.call.input)
        if answer.input is not None:
            args, action = asked.edited(answer.input)
        await self._see_again(asked, args, action, fields["preview"] if answer.shown is None else answer.shown)
        self._decide_again(asked, action, answer, lease)
        if answer.input is None:
            return None
        shown = json.dumps(args, ensure_ascii=False)
        note = f"[The user changed the arguments before allowing this: {shown}]"
        return EditedCall(args=args, action=action, note=note)

    async def _answer(
        self,
        tool: str,
        action: str,
        fields: Mapping[str, Any],
        change: str | None = None,
        *,
        shown: Callable[[], object] = lambda: None,
    ) -> Answer:
        """Return the human's answer; an ``abort`` is audited and does not return."""
        try:
            answer = await self.ask_human(fields, shown)
        except asyncio.CancelledError:
            if not self.leaving():
                self.witness(tool, action, "ask_denied", "abort", "the run was stopped", change=change)
            raise
        if answer.decision == "abort":
            self._note(tool, action, "ask_denied", answer, change)
            self.stop()
            await asyncio.get_running_loop().create_future()  # the cancellation arrives here
        return answer

    async def _see_again(self, asked: AskedCall, args: dict[str, Any], action: Action, shown: str) -> None:
        """Check that the preview the human saw is still valid; otherwise audit a deny and raise ``ToolError``."""
        try:
            if asked.spec.still is not None:
                await asyncio.to_thread(asked.spec.still, args, asked.tool_context)
            elif shown and _changes(await asked.preview()) != _changes(shown):
                raise ToolError(
                    "The user allowed this, but what it would change is no longer what they were shown, and nothing "
                    "was changed",
                    hint="Read the file again; it was written meanwhile",
                )
        except ToolError as error:
            self.witness(asked.spec.name, str(action), "deny", "changed", str(error), change=action.change)
            raise

    def _decide_again(self, asked: AskedCall, action: Action, answer: Answer, lease: Widening | None) -> None:
        """Decide again about a call that a human allowed, and audit the result.

        Raises:
            ToolError: The call is denied by now.
        """
        decision, tool = self.would_be(action, lease, asked.spec.confirm), asked.spec.name
        if isinstance(decision, Deny):
            self.witness(tool, str(action), "deny", decision.rule, decision.reason, change=action.change)
            raise Denied(f"The user allowed this, but: {decision.reason}")
        # The answer to another question may have granted a pattern that covers this one too.
        granted = isinstance(decision, Allow) and answer.decision == "allow" and answer.input is None
        rule = decision.by if isinstance(decision, Allow) and granted else _rule(answer)
        self._note(tool, str(action), "ask_approved", answer, action.change, rule)

    def _note(
        self, tool: str, action: str, decided: Decided, answer: Answer, change: str | None = None, rule: str = ""
    ) -> None:
        """Audit a human's decision; ``rule`` names a grant that allowed it meanwhile, if any."""
        by = answer.by or None
        self.witness(tool, action, decided, rule or _rule(answer), answer.reason, by, change=change)


def _changes(diff: str) -> list[str]:
    """Return the removed and added lines of a diff, without their positions."""
    return [line for line in diff.split("\n") if line.startswith(("-", "+"))]


def _rule(answer: Answer) -> str:
    return f"human: {answer.decision}{', edited' if answer.input is not None else ''}"


_DEFAULTS: Mapping[str, Any] = {
    "kind": "tool",
    "choices": ["allow", "deny", "abort"],
    "remember": [],
    "covers": [],
    "project": None,
    "commands": [],
    "input": None,
    "path": None,
}


class Questions:
    """Asks humans for all runs.

    Args:
        kernel: The kernel; its board has the open questions.
    """

    def __init__(self, kernel: "Kernel") -> None:
        self._kernel = kernel
        self._board = kernel.asks
        self._trees = kernel.trees
        self._left: dict[str, dict[str, Mapping[str, Any]]] = {}  # ``ask`` rows of earlier daemons by run and id
        self._answered: dict[str, list[str]] = {}  # by run: ids of answered questions, until their calls end

    async def ask(
        self,
        branch: "LiveBranch",
        run_id: str,
        ancestors: Sequence[BranchRef],
        fields: Mapping[str, Any],
        shown: Callable[[], object] = lambda: None,
    ) -> Answer:
        """Record a question, show it on the asking branch and on the root of its tree, and wait.

        Args:
            branch: The branch that asks.
            run_id: Its run.
            ancestors: The branches above, parent first.
            fields: Fields of the ``ask`` row; missing ones get a default.
            shown: Called when the question is shown.
        """
        known = self._pop_left(run_id, fields)
        if known is not None and known["decision"] is not None:
            return Answer(
                decision=known["decision"],
                reason=known.get("decided_reason") or "",
                input=known["input"] if known["input"] != fields.get("input") else None,  # it was edited
                answers=tuple(tuple(each) for each in known["answers"]) if "answers" in known else None,
                by=known.get("decided_by") or "",
                shown=known.get("preview"),
            )
        row = _row(branch, run_id, fields, known)
        seq = branch.recorder.record("ask", row)
        await branch.recorder.commit()
        self._kernel.hints.note(branch.ref, "ask", row["id"])
        ask = self._board.post(
            seq=seq,
            run_id=run_id,
            branches=(branch.key, ancestors[-1].key) if ancestors else (branch.key,),
            row=row,
            record=lambda answer: self._record(branch, row, answer),
        )
        self._trees.on_asked(ask.id)
        shown()
        try:
            with branch.state.while_asking(), self._clocks_stopped(branch, ancestors):
                return await ask.future
        finally:
            if branch.run is None or not branch.run.suspended:
                self._board.drop(ask)

    def post(self, branch: "LiveBranch", fields: Mapping[str, Any], settle: Callable[[Answer], None]) -> None:
        """Show a question for which no run waits; it is recorded only when answered, and lost with the daemon.

        Args:
            branch: The branch where it is shown.
            fields: As for ``ask``.
            settle: Called with the answer.
        """
        row = _row(branch, "", fields, None)

        def record(answer: Answer) -> None:
            if (live := self._kernel.opened(branch.key)) is not None:
                live.recorder.record("ask", _answered_row(row, answer, live.recorder.now_ms()))
            settle(answer)

        self._board.post(seq=0, run_id="", branches=(branch.key,), row=row, record=record)

    async def answer(self, ask_id: str, answer: Answer, options: SendOptions) -> bool:
        """Settle a question; return whether this answer was the first.

        Args:
            ask_id: The id of the question.
            answer: The human's answer.
            options: Environment and keys of the client that answers, for resumed runs, whose own client is gone.

        Raises:
            NotFound: It is not open; the message says how it was settled, if known.
        """
        await self._trees.awake()
        for branch in () if self._board.has(ask_id) else self._kernel.all_opened:
            row = branch.conversation.asks.get(ask_id)  # settled by an earlier daemon
            if row is not None and row["decision"] is not None:
                self._board.note_settled(ask_id, Answer(decision=row["decision"], by=row.get("decided_by") or ""))
        late = self._trees.late.get(self._board.get(ask_id).branches[-1])
        if late is not None:
            late.take(options)
        return self._board.answer(ask_id, answer)

    def go_on(self, run_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Load the questions that a resumed run had asked before."""
        self._left[run_id] = {row["id"]: row for row in rows}

    def _pop_left(self, run_id: str, fields: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Remove and return the row of a question that was asked before; None if it is new.

        An unanswered question is recognised by its call, an answered one only if its action is the same too.
        """
        rows = self._left.get(run_id, {})
        for ask_id, row in rows.items():
            same = all(row.get(name, "tool") == fields.get(name, "tool") for name in ("tool_call_id", "kind"))
            if same and (row["decision"] is None or row.get("action") == fields.get("action")):
                return rows.pop(ask_id)
        return None

    def close_left(self, branch: "LiveBranch", run_id: str) -> None:
        """Close the questions of a run whose calls have ended, including unanswered ones that are not needed."""
        left = self._left.pop(run_id, {}).values()
        for row in [each for each in left if each["decision"] is None]:
            answer = Answer(decision="allow", reason="no question any more")
            with contextlib.suppress(StoreError):  # the end of the run closes it
                self._record(branch, row, answer)
            self._board.note_settled(row["id"], answer)
            self._trees.on_asked(row["id"])
        self.forget(branch, run_id)

    def forget(self, branch: "LiveBranch", run_id: str) -> None:
        """Delete the hints of a run's answered questions, which the next daemon need not look for."""
        for ask_id in self._answered.pop(run_id, ()):
            self._kernel.hints.note(branch.ref, "ask", ask_id, waits=False)

    def _record(self, branch: "LiveBranch", row: Mapping[str, Any], answer: Answer) -> None:
        """Record the answer to a question."""
        branch.recorder.record("ask", _answered_row(row, answer, branch.recorder.now_ms()))
        if answer.decision != "abort":
            self._answered.setdefault(row["run_id"], []).append(row["id"])
        else:
            self._kernel.hints.note(branch.ref, "ask", row["id"], waits=False)

    @contextlib.contextmanager
    def _clocks_stopped(self, branch: "LiveBranch", ancestors: Sequence[BranchRef]) -> Iterator[None]:
        """Stop the timers of a branch's run and of the runs above it while a human is asked."""
        above = (self._kernel.opened(ref.key) for ref in ancestors)
        with contextlib.ExitStack() as stack:
            for each in (branch, *above):
                if each is not None and each.run is not None:
                    stack.enter_context(each.run.stopwatch.paused())
            yield


def _row(
    branch: "LiveBranch", run_id: str, fields: Mapping[str, Any], known: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the ``ask`` row; a question that is asked again keeps its id and time."""
    return {
        "id": known["id"] if known else new_id("ask"),
        "branch": branch.key,
        "agent": branch.ref.session_id if branch.ref.is_agent else None,
        "description": str(branch.conversation.session.get("description") or "") or None,  # the agent's task
        "run_id": run_id,
        **_DEFAULTS,
        **fields,
        "decision": None,
        "created_at": known["created_at"] if known else branch.recorder.now_ms(),
    }


def _answered_row(row: Mapping[str, Any], answer: Answer, now_ms: int) -> dict[str, Any]:
    """Return the ``ask`` row with its answer."""
    return {
        **row,
        "decision": answer.decision,
        "decided_reason": answer.reason,
        "decided_by": answer.by or None,
        "decided_at": now_ms,
        "input": answer.input or row["input"],
        **({} if answer.answers is None else {"answers": [list(each) for each in answer.answers]}),
    }
