"""Operations on approvals: questions and their answers, grants, the audit, and test queries to the guard."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast

from pyagentd.api.group import INLINE_LIMIT, NOTHING, Client, Env, Group, reply_of, send_options, workspace_of
from pyagentd.errors import BadRequest, NotFound, ToolError
from pyagentd.events import LineReply
from pyagentd.features.questions import checked_answers
from pyagentd.policy.guard import Allow, Deny, decide
from pyagentd.runtime.approvals import Answer, Decision, KeyRow
from pyagentd.runtime.grants import Kind
from pyagentd.runtime.presets import now_held
from pyagentd.runtime.run_setup import policy_context
from pyagentd.runtime.settings import SendOptions
from pyagentd.store import paths
from pyagentd.store.db import audit
from pyagentd.store.db.audit import Decided
from pyagentd.store.db.projection import Projection
from pyagentd.store.paths import BranchRef
from pyagentd.tools.read import READ
from pyagentd.tools.shell import BASH
from pyagentd.tools.spec import ToolContext, ToolSpec
from pyagentd.tools.write import WRITE
from pyagentd.wire.connection import by_person

MOST_DECISIONS = 1000  # in one reply
_LARGEST_ID = 2**63 - 1  # SQLite's largest integer

_REMEMBERED_AS: Mapping[str, Kind] = {"session": "session", "always": "project"}

Access = Literal["read", "write", "command"]

# For each kind of access, the tool that ``scope_check`` tries, the argument that names the resource, and the others.
_CHECKED: Mapping[Access, tuple[ToolSpec, str, Mapping[str, Any]]] = {
    "read": (READ, "file_path", {}),
    "write": (WRITE, "file_path", {"content": ""}),
    "command": (BASH, "command", {}),
}


class QuestionOption(TypedDict):
    """An answer that a question offers."""

    label: str
    description: str


class ModelQuestion(TypedDict):
    """A question from a model."""

    question: str
    header: str
    options: list[QuestionOption]
    multi_select: bool


class AskRow(TypedDict):
    """An approval, or questions from a model, that waits or waited for a human."""

    id: str
    branch: str
    agent: str | None  # the id of the agent that asks; nil: the session itself
    description: str | None  # the agent's task
    run_id: str
    kind: NotRequired[Literal["tool", "scope", "question"]]
    tool: NotRequired[str]
    tool_call_id: NotRequired[str]
    action: NotRequired[str]
    detail: NotRequired[str]
    reason: NotRequired[str]
    warning: NotRequired[str]  # the part of the reason that a human must see
    preview: NotRequired[str]
    choices: NotRequired[list[str]]  # the possible decisions
    remember: NotRequired[list[str]]  # regular expressions that the decisions session and always grant
    covers: NotRequired[list[str]]  # what `remember` grants, in words
    allows: NotRequired[Mapping[str, str]]  # by decision: a sentence that says what it allows from then on
    project: NotRequired[str | None]  # the project directory in which the decision always is remembered
    commands: NotRequired[list[str]]
    input: NotRequired[str | None]  # JSON: the arguments
    path: NotRequired[str | None]  # the file to write
    for_tool: NotRequired[str]  # of kind scope: the tool whose scope is to be expanded
    patterns: NotRequired[list[str]]  # of kind scope: the patterns to add
    questions: NotRequired[list[ModelQuestion]]
    who: str  # the asking agent in words; "" for the session itself
    what: str  # the question in one line
    lines: list[LineReply]  # the question and the facts to decide by, bounded in length
    keys: list[KeyRow]  # the keys that answer it; none: its questions are answered in a form
    decision: str | None
    created_at: int  # epoch ms


class AsksReply(TypedDict):
    """The open approvals and questions, oldest first."""

    asks: list[AskRow]


class AnswerReply(TypedDict):
    """Whether an answer was accepted."""

    accepted: bool  # the run still waited for it


class GrantRow(TypedDict):
    """A remembered approval."""

    kind: Kind
    action: str  # a regular expression
    at: int  # epoch ms
    ask: str  # the question whose answer granted it
    by: str  # the client that sent the answer


class GrantsReply(TypedDict):
    """The grants of a session and its project."""

    grants: list[GrantRow]
    root: str  # the project's directory
    session: str


class RevokeReply(TypedDict):
    """The number of revoked grants."""

    revoked: int


class DecisionRow(TypedDict):
    """One decision of the audit."""

    id: int
    at: int  # epoch ms
    session: str
    branch_dir: str
    agent: str | None  # the id of the agent that acted; nil: the session itself
    run_id: str
    tool: str
    action: str
    decision: Decided
    rule: str  # the rule that decided
    reason: str
    by: str | None  # the client of the human who decided
    detail: str | None  # JSON: what was changed, old and new
    user: str | None


class AuditReply(TypedDict):
    """Decisions, the newest first."""

    decisions: list[DecisionRow]
    more: bool  # there are older ones
    problem: str | None  # why the latest ones could not be written


class ScopeCheckReply(TypedDict):
    """The guard's decision about an access."""

    decision: Literal["allow", "ask", "deny"]
    reason: str


class Approvals(Group):
    """Open questions, the audit of decisions, and grants that can be revoked."""

    async def asks(self, client: Client, *, session: str | None = None, watch: bool = False) -> AsksReply:
        """Return the open questions, oldest first: all, or those of a ``session`` with its branches and agents.

        With ``watch`` the client receives all questions and their answers as long as it is connected.
        """
        if watch:
            self._kernel.humans.add(client)
        await self._kernel.trees.awake()
        found = self._kernel.asks.all()
        if session:
            inside = self._directory(session)
            found = [row for row in found if Path(row["branch"]).is_relative_to(inside)]
        return {"asks": cast(list[AskRow], found)}

    @by_person
    async def answer(
        self,
        client: Client,
        *,
        ask: str,
        decision: Decision,
        reason: str = "",
        input: str | None = None,
        answers: str | None = None,
        env: Env = NOTHING,
    ) -> AnswerReply:
        """Answer a question.

        The decisions ``session`` and ``always`` allow the call and remember what the question listed; other open
        questions covered by that are allowed too. ``input`` is JSON text: arguments that replace the model's, allowed
        once. ``answers`` goes with the decision ``answer`` to questions from the model: JSON text, a list of strings
        for each question. ``env`` is the environment for a run that an earlier daemon began.
        """
        options = send_options(client, env, ())
        await self._kernel.trees.awake()
        row = self._kernel.asks.get(ask).row if self._kernel.asks.has(ask) else None  # a missing ask fails below
        checked = None if row is None else self._check_answer(row, decision, input, answers)
        answer = Answer(decision=decision, reason=reason, input=input, answers=checked, by=client.name)
        kind, live = _REMEMBERED_AS.get(decision), self._kernel.opened(str(row["branch"])) if row else None
        granted: Sequence[str] = ()  # granted before the answer, and revoked if it comes too late
        if kind and row and live and row.get("kind") == "tool":
            place = paths.root_of(live.ref), workspace_of(live)
            granted = await self._kernel.grants.remember(
                kind, *place, row.get("remember") or (), ask=ask, by=answer.by
            )
        try:
            accepted = await self._kernel.questions.answer(ask, answer, options)
        except NotFound:  # another client answered first
            for action in granted:
                await self._kernel.grants.revoke(*place, action, kind)
            raise
        if kind:
            await self._answer_covered(client, options)
        return {"accepted": accepted}

    async def grants(self, client: Client, *, branch: str) -> GrantsReply:
        """Return the grants for a branch's session and for its project."""
        async with self._kernel.using(self._ref(branch)) as live:
            root, workspace = paths.root_of(live.ref), workspace_of(live)
            await self._kernel.grants.load(root, workspace)
            found = self._kernel.grants.active(root, workspace)
        grants = [reply_of(GrantRow, grant) for grant in found]
        return {"grants": grants, "root": str(workspace), "session": root.session_id}

    async def revoke(self, client: Client, *, branch: str, action: str, kind: Kind | None = None) -> RevokeReply:
        """Revoke the grants whose expression is ``action``, of kind "session", "project" or both."""
        async with self._kernel.using(self._ref(branch)) as live:
            revoked = await self._kernel.grants.revoke(paths.root_of(live.ref), workspace_of(live), action, kind)
        if not revoked:
            raise NotFound(
                f"There is no grant {action!r}", hint="`pyagentd grants SESSION` lists them; name one exactly"
            )
        return {"revoked": revoked}

    async def audit(
        self, client: Client, *, session: str | None = None, limit: int = 200, before: int | None = None
    ) -> AuditReply:
        """Return the last decisions, newest first: all, or those of a ``session`` with its branches and agents.

        With ``before``, return those older than the decision with that ``id``.
        """
        problem = await asyncio.to_thread(self._kernel.ledger.flush)
        wanted = max(1, min(limit, MOST_DECISIONS))
        where = self._audit_filter(session) if session else {}
        known = before if before is None else min(before, _LARGEST_ID)
        found = await asyncio.to_thread(audit.latest, self._kernel.state, limit=wanted + 1, before=known, **where)
        if session and "session" in where and before is None and not found:
            self._directory(session)  # raises NotFound for an unknown session
        rows: list[DecisionRow] = []
        size = 0
        for entry in found[:wanted]:
            facts = dataclasses.asdict(entry)
            rows.append(cast(DecisionRow, {"at": facts.pop("at_ms"), **facts}))
            size += sum(len(str(value)) + 16 for value in facts.values())
            if size > INLINE_LIMIT:
                break
        return {"decisions": rows, "more": len(rows) < len(found), "problem": problem or None}

    async def scope_check(self, client: Client, *, branch: str, kind: Access, resource: str) -> ScopeCheckReply:
        """Return the guard's decision about an access in a run with a human.

        ``resource`` is a path, relative to the workspace root, or a command.
        """
        async with self._kernel.using(self._ref(branch)) as live:
            workspace = workspace_of(live)
            await self._kernel.grants.load(paths.root_of(live.ref), workspace)
            decision, reason = await asyncio.to_thread(self._check_access, live.ref, workspace, kind, resource)
        return {"decision": decision, "reason": reason}

    # -- inside --------------------------------------------------------------------------------------------------

    def _check_answer(
        self, row: Mapping[str, Any], decision: Decision, edited: str | None, answers: str | None
    ) -> tuple[tuple[str, ...], ...] | None:
        """Return the parsed ``answers`` to the questions in ``row``; None if it is an approval.

        Raises:
            BadRequest: The answer does not fit the ask, which stays open.
        """
        is_question, choices = row.get("kind") == "question", row.get("choices") or ["allow", "deny", "abort"]
        if decision != "answer" and answers is not None:
            raise BadRequest(
                f"Answers cannot be given with the decision {decision!r}", hint="Use the decision answer"
            )
        if decision == "answer" and not is_question:
            raise BadRequest("This is not a question but an approval", hint=f"One of {', '.join(choices)}")
        if decision not in (*choices, "abort"):  # older daemons did not record abort, which is always possible
            raise BadRequest(f"{decision!r} is not an answer to this question", hint=f"One of {', '.join(choices)}")
        if edited is not None:
            if row.get("kind") != "tool":
                hint = "Leave them out"
                raise BadRequest("A question that is not a tool's approval has no arguments to edit", hint=hint)
            if decision != "allow":
                raise BadRequest("Edited arguments can only be allowed once", hint="Answer allow")
            live = self._kernel.opened(str(row["branch"]))
            if live is None or live.run is None:
                raise BadRequest("The run that asked has ended; nobody waits for the answer")
            live.run.authority.check_edit(str(row["tool_call_id"]), edited)
        return checked_answers(row["questions"], answers or "null") if decision == "answer" else None

    async def _answer_covered(self, client: Client, options: SendOptions) -> None:
        """Allow the waiting calls that the new grants cover."""
        for row in list(self._kernel.asks.all()):
            live = self._kernel.opened(str(row["branch"]))
            run = live.run if live is not None else None
            if run is not None and run.authority.is_allowed_now(str(row.get("tool_call_id"))):
                with contextlib.suppress(NotFound):
                    await self._kernel.questions.answer(
                        str(row["id"]), Answer(decision="allow", by=client.name), options
                    )

    def _check_access(
        self, ref: BranchRef, workspace: Path, kind: Access, resource: str
    ) -> tuple[Literal["allow", "ask", "deny"], str]:
        spec, argument, others = _CHECKED[kind]
        root, ancestors = paths.root_of(ref), paths.ancestors_of(ref)
        live = self._kernel.opened(ref.key)
        presets = self._kernel.presets if live is None else now_held(self._kernel.presets, live)
        rules = policy_context(
            presets,
            ref,
            ancestors,
            SendOptions(interactive=True),
            self._kernel.config,
            remembered=lambda: self._kernel.grants.patterns(root, workspace),
        )
        place = ToolContext(
            root=workspace,
            branch_dir=ref.branch_dir,
            spool_dir=paths.files_dir(ref.branch_dir),
            readable=lambda path: False,
        )
        try:
            action = spec.action({argument: resource, **others}, place)
        except ToolError as error:
            raise BadRequest(f"{resource!r}: {error}") from error
        match decide(action, rules(), spec.confirm):
            case Allow(by):
                how, _, what = by.partition(" ")
                known = {
                    "scope": "It is inside the scope, and nothing asks to be confirmed.",
                    "grant": f"A grant covers it: {what}",
                    "profile": f"The profile {what} allows it.",
                }
                return "allow", known.get(how, f"Allowed: {by}.")
            case Deny(reason):
                return "deny", reason
            case question:
                return "ask", f"{question.reason}."

    def _audit_filter(self, session: str) -> dict[str, str]:
        """Return the filter for a session's entries; a deleted session is found by its id."""
        try:
            directory = self._directory(session)
        except NotFound:
            return {"session": session}
        return {"within": Projection(self._kernel.state, self._kernel.config.sessions_dir).key(directory)}
