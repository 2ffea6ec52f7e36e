"""Operations for inspection: events of a branch, traces of requests, search, the state of the daemon."""

import asyncio
import json
import os
import resource
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

from pyagentd import __version__
from pyagentd.api.approvals import GrantRow
from pyagentd.api.group import INLINE_LIMIT, Client, Group, JsonReply, reply_of, workspace_of
from pyagentd.api.models import summary
from pyagentd.errors import BadRequest, NotFound, StoreError
from pyagentd.events import Event, truncate
from pyagentd.features.indexer import SearchReply
from pyagentd.features.tasks import Tasks
from pyagentd.features.telemetry import Telemetry
from pyagentd.features.usage import facts_of
from pyagentd.policy.profiles import Profile
from pyagentd.runtime.branch import LiveBranch, events_page, start_of_run
from pyagentd.runtime.presets import next_turn
from pyagentd.runtime.usage import FactsOf
from pyagentd.store import charts, paths
from pyagentd.store.charts import Chart
from pyagentd.store.conversation import Conversation, usage_of
from pyagentd.store.db import audit
from pyagentd.store.db.audit import Entry
from pyagentd.store.db.projection import Projection, Scope, parse
from pyagentd.store.document import text
from pyagentd.store.document.reconcile import recognise
from pyagentd.store.journal import ProviderModel, Row, read_rows, served_by
from pyagentd.store.paths import BranchRef
from pyagentd.store.trace import TracedStep, as_json, read_trace
from pyagentd.tools.sandbox.enclosure import confinement
from pyagentd.wire.sexp import to_symbols

_MOST_DECISIONS = 5000

_PAGE = INLINE_LIMIT // 4  # characters; each may take four bytes


class EventsPage(TypedDict):
    """Events of a branch in their wire form."""

    events: list[list[Any]]
    seq: int  # the next page begins after it
    done: bool


class RowsPage(TypedDict):
    """Rows of the log."""

    rows: list[str]  # JSON
    seq: int  # the next page begins after it
    done: bool


MAX_HITS = 1000
PROGRESS_S = 0.1


class ReindexReply(TypedDict):
    """The size of the new index."""

    branches: int
    messages: int
    seconds: float


class LocateReply(TypedDict):
    """Emacs positions in the saved document, from 1; nil if nothing was found."""

    position: int | None
    end: int | None


class DaemonStatus(TypedDict):
    """The state of the daemon."""

    pid: int
    version: str
    uptime: float  # seconds
    clients: int
    runs: int
    tasks: int  # the daemon's own background tasks
    memory: int  # bytes
    sessions_dir: str
    confinement: str | None  # of commands: bubblewrap or landlock


class StopReply(TypedDict):
    """What remains when the daemon stops."""

    asks: int  # questions that stay open


_PROMPT = 200  # characters
_PARAMETERS = (
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "temperature",
    "thinking",
    "reasoning_effort",
    "reasoning",
)


class Inspection(Group):
    """Events and traces, search, and the daemon's process."""

    async def replay(
        self, client: Client, *, branch: str, after: int | None = None, upto: int | None = None
    ) -> EventsPage:
        """Return a page of a branch's events after row ``after`` (nil: those of the current run), up to ``upto``.

        Unless ``done``, the next page begins after ``seq``.
        """
        async with self._kernel.using(self._ref(branch)) as live:
            live.recorder.flush()
            last = live.recorder.last_seq
            begin = start_of_run(live) if after is None else after
            if begin < 0:
                raise BadRequest(f"{begin} is not a number of a row")
            page = await events_page(live, after=begin, upto=last if upto is None else min(upto, last), size=_PAGE)
        return {"events": list(map(_event_to_wire, page.events)), "seq": page.seq, "done": page.done}

    async def rows(self, client: Client, *, branch: str, after: int) -> RowsPage:
        """Return a page of a branch's rows after row ``after`` as JSON texts, for clients that render them.

        Unless ``done``, the next page begins after ``seq``.
        """
        async with self._kernel.using(self._ref(branch)) as live:
            live.recorder.flush()
            return await asyncio.to_thread(_rows_page, live.recorder.journal.rows_after(after), after)

    async def trace(self, client: Client, *, branch: str) -> JsonReply:
        """Return the runs, requests, tokens, tools and decisions of a branch as JSON; by path if large."""
        facts = await self.traced(self._ref(branch))
        return await self._json_reply("trace", json.dumps(facts, ensure_ascii=False))

    async def traced_request(
        self, client: Client, *, branch: str, run: str, step: int, purpose: str = "step", pretty: bool = False
    ) -> JsonReply:
        """Return the exact JSON of a step's request, in the reply or, if large, in a file.

        ``pretty`` indents it.
        """
        written = partial(json.dumps, ensure_ascii=False, indent=2) if pretty else as_json
        body = await asyncio.to_thread(written, await self.request_body(self._ref(branch), run, step, purpose))
        return await self._json_reply("request", body)

    async def request_body(self, ref: BranchRef, run: str, step: int, purpose: str) -> Mapping[str, Any]:
        """Return the data of ``traced_request`` before it is encoded as JSON."""
        for traced in await asyncio.to_thread(read_trace, ref.branch_dir):
            if (traced.run_id, traced.step, traced.purpose) == (run, step, purpose):
                return traced.body
        raise NotFound(f"No step {step} of {run} is traced", hint="`pyagentd show SESSION --trace` lists them")

    async def traced(self, ref: BranchRef) -> dict[str, Any]:
        """Return the data of ``trace`` before it is encoded as JSON."""
        async with self._kernel.using(ref) as live:
            live.recorder.flush()
            conversation = live.conversation.snapshot()
            steps, decisions = await asyncio.to_thread(self._trace_and_audit, live.ref)
            last = next((step for step in reversed(steps) if step.purpose == "step"), None)
            return {
                "session": self._session(live),
                "usage": summary(live.meter) if live.meter is not None else None,
                **catalogue(last),
                "permissions": await self._permissions(live),
                "runs": timeline(conversation, steps, decisions, facts_of(self._kernel)),
            }

    def _trace_and_audit(self, ref: BranchRef) -> tuple[list[TracedStep], list[Entry]]:
        self._kernel.ledger.flush()
        within = Projection(self._kernel.state, self._kernel.config.sessions_dir).key(ref.branch_dir)
        entries = audit.latest(self._kernel.state, within=within, limit=_MOST_DECISIONS)
        return read_trace(ref.branch_dir), entries[::-1]

    def _session(self, live: LiveBranch) -> dict[str, Any]:
        session = live.conversation.session
        preset = self._kernel.presets.of_branch(live.ref)
        return {
            "session_id": live.ref.session_id,
            "branch_name": live.ref.branch_name,
            "branch": live.key,
            "title": session.get("title") or None,
            "workspace_root": session.get("workspace_root"),
            "backend": preset.backend,
            "model": preset.model or None,
            "temperature": preset.temperature,
            "max_tokens": preset.max_tokens,
            "thinking": preset.thinking or None,
            "turn": next_turn(self._kernel.presets, live.ref, live.conversation),
            "status": live.status,
        }

    async def _permissions(self, live: LiveBranch) -> dict[str, Any]:
        root, workspace = paths.root_of(live.ref), workspace_of(live)
        await self._kernel.grants.load(root, workspace)
        grants = self._kernel.grants.active(root, workspace)
        above = [self._kernel.presets.of_branch(ref) for ref in paths.ancestors_of(live.ref)]
        preset = self._kernel.presets.of_branch(live.ref)
        profile: Any = preset.profile
        if isinstance(profile, Profile):
            rules = {name: [each.pattern for each in getattr(profile, name)] for name in ("allow", "ask")}
            profile = {"name": profile.name, **rules}
        return {
            "profile": profile,
            "read_only": preset.read_only,
            "paths": {"read": preset.paths.read, "write": preset.paths.write, "deny": preset.paths.deny},
            "shell_commands": {"allow": preset.shell.allow, "deny": preset.shell.deny},
            "denied_above": [pattern for preset in above for pattern in preset.paths.deny],
            "grants": [reply_of(GrantRow, grant) for grant in grants],
        }

    async def search(
        self,
        client: Client,
        *,
        query: str,
        limit: int = 20,
        archived: bool = False,
        hidden: bool = False,
        session: str | None = None,
    ) -> SearchReply:
        """Search sessions and agents for ``query``; the best hits come first.

        A hit contains all words; ``"…"`` is a phrase, a leading ``-`` excludes, the last word may be a prefix.
        ``session`` (an id, or ID/BRANCH) limits the search; with ``hidden`` it includes text removed from a document.
        """
        wanted = parse(query)
        if not 1 <= limit <= MAX_HITS:
            raise BadRequest(f"{limit} is not a limit", hint=f"Give 1 to {MAX_HITS}")
        # A session named explicitly is searched even if it is archived.
        within = self._index.projection.key(self._directory(session)) if session else ""
        scope = Scope(archived=archived or bool(session), hidden=hidden, within=within)
        return await self._index.search(wanted, limit=limit, scope=scope)

    async def reindex(self, client: Client) -> ReindexReply:
        """Rebuild the index; the caller receives ``progress`` events ("reindex")."""
        started, told_at = time.monotonic(), 0.0

        def tell(done: int, total: int) -> None:
            nonlocal told_at
            now = time.monotonic()
            if now - told_at >= PROGRESS_S or done == total:
                told_at = now
                client.push(Event("progress", "", 0, ({"id": "reindex", "done": done, "total": total},)))

        branches, messages = await self._index.reindex(tell)
        return {"branches": branches, "messages": messages, "seconds": round(time.monotonic() - started, 3)}

    async def locate(
        self,
        client: Client,
        *,
        branch: str,
        message: str | None = None,
        part: str | None = None,
        query: str | None = None,
    ) -> LocateReply:
        """Return the position of a message, or of a part of it, in the saved document; nil if it is not there.

        Without a message, return the first position of words of ``query``.
        """
        ref = self._ref(branch)
        if message is None:
            finder = parse(query or "").finder()
            saved = await asyncio.to_thread(text.read, paths.session_file(ref.branch_dir))
            start, end = await asyncio.to_thread(next, finder.spans(saved.body), (None, None))
        else:
            start, end = await asyncio.to_thread(_place, ref, message, part)
        return {"position": None if start is None else start + 1, "end": None if end is None else end + 1}

    async def status(self, client: Client) -> DaemonStatus:
        """Return the state of the daemon."""
        tasks = self._kernel.find(Tasks)
        return {
            "pid": os.getpid(),
            "version": __version__,
            "uptime": round(time.monotonic() - self._process.started, 3),
            "clients": self._process.clients(),
            "runs": len(self._kernel.runs),
            "tasks": 0 if tasks is None else tasks.pending,
            "memory": _memory(),
            "sessions_dir": str(self._kernel.config.sessions_dir),
            "confinement": await asyncio.to_thread(confinement, self._kernel.config.shell.confinement),
        }

    async def metrics(self, client: Client) -> str:
        """Return the counters since the daemon's start, as text for Prometheus."""
        return self._kernel.feature(Telemetry).prometheus()

    async def stop(self, client: Client) -> StopReply:
        """Stop the daemon: runs that wait for a human continue in the next daemon, others are aborted."""
        await self._kernel.trees.awake()
        self._process.stop()
        return {"asks": len(self._kernel.asks.all())}


def _rows_page(rows: Iterable[Row], after: int) -> RowsPage:
    page: list[str] = []
    size, seq = 0, after
    for row in rows:
        text = json.dumps({"seq": row.seq, "type": row.type, "data": row.data}, ensure_ascii=False)
        size += len(text)
        if page and size > _PAGE:
            return {"rows": page, "seq": seq, "done": False}
        page.append(text)
        seq = row.seq
    return {"rows": page, "seq": seq, "done": True}


def _event_to_wire(event: Event) -> list[Any]:
    """Return an event in its wire form; except for inserts and prompts its argument is sent as JSON."""
    match event.kind, event.args:
        case "insert", (text, role):
            return [event.kind, event.seq, text, to_symbols(role)]
        case "prompt", (text, _):
            return [event.kind, event.seq, text]
    return [event.kind, event.seq, json.dumps(event.args[0], ensure_ascii=False)]


def _place(ref: BranchRef, message: str, part: str | None) -> tuple[int | None, int | None]:
    """Return where a message, or one of its parts, begins and ends in the document."""
    conversation = Conversation(read_rows(paths.journal_file(ref.branch_dir)))
    pieces = recognise(text.read(paths.session_file(ref.branch_dir)), conversation).pieces
    own = [piece for piece in pieces if piece.message is not None and piece.message.id == message]
    exact = [piece for piece in own if piece.part is not None and piece.part.id == part]
    found = [piece.found for piece in exact or own]
    return (min(piece.start for piece in found), max(piece.end for piece in found)) if found else (None, None)


def _memory() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


# The timeline of a branch for the inspector: runs, requests, decisions and costs. Pure functions.
#
# Runs and tools come from the log, requests and durations from the trace, decisions from the audit. The result is
# computed for each call and not stored.


def timeline(
    conversation: Conversation, steps: Iterable[TracedStep], decisions: Iterable[Entry], facts_of: FactsOf
) -> list[dict[str, Any]]:
    """Return the runs of a branch, oldest first, each with its ``steps`` and ``decisions``.

    Steps are numbered over all runs. Requests outside the conversation, such as those of a compaction, are steps with
    another ``purpose``; a run that has only such steps has no ``message_id``.
    """
    runs: dict[str, dict[str, Any]] = {
        id: _run(conversation, state.data) | {"steps": [], "decisions": []} for id, state in conversation.runs.items()
    }
    results, providers = _results(conversation), _providers(conversation)
    for number, step in enumerate(steps, 1):
        run = runs.setdefault(step.run_id, {"id": step.run_id, "message_id": None, "steps": [], "decisions": []})
        run["steps"].append(
            {"number": number, **_step(step, results, facts_of, providers.get(str(run["message_id"]), ""))}
        )
    for entry in decisions:
        if entry.run_id in runs:
            facts = {name: getattr(entry, name) for name in ("tool", "action", "decision", "rule", "by")}
            runs[entry.run_id]["decisions"].append({"at": entry.at_ms, **facts, "reason": entry.reason or None})
    return list(runs.values())


def catalogue(step: TracedStep | None) -> dict[str, Any]:
    """Return the system prompt and the tools of the last request; empty before the first request."""
    head = step.head if step is not None else {}
    first = (step.messages or ({},))[0] if step is not None else {}
    system = head.get("system") or head.get("instructions") or ()
    if first.get("role") == "system":  # the form of Chat Completions
        system = first.get("content") or ()
    texts = [str(block.get("text", "")) for block in system if isinstance(block, Mapping)]
    return {
        "system": "\n\n".join(texts) if not isinstance(system, str) else system,
        "tools": [{key: tool[key] for key in tool if key != "cache_control"} for tool in _tools(head)],
    }


async def context_chart(live: LiveBranch) -> Chart | None:
    """Return a chart of the context's contents from the branch's last readable request, or None."""
    meter = live.meter.to_wire() if live.meter is not None else None
    try:
        steps = await asyncio.to_thread(read_trace, live.ref.branch_dir)
    except StoreError:  # show the page without this chart
        return None
    last = next((step for step in reversed(steps) if step.purpose == "step" and step.messages), None)
    if last is None or meter is None:
        return None
    parts = catalogue(last)
    return charts.context(parts["system"], parts["tools"], last.messages or (), meter["used"], meter["window"])


def _run(conversation: Conversation, data: Mapping[str, Any]) -> dict[str, Any]:
    message = conversation.messages.get(str(data["message_id"]))
    metadata = message.metadata if message is not None else {}
    text = message.text if message is not None else ""
    return {
        "id": data["id"],
        "message_id": data["message_id"],
        "prompt": truncate(text, _PROMPT),
        "created_at": message.row.get("created_at") if message is not None else None,
        "trigger": metadata.get("trigger"),
        "agent": metadata.get("agent"),
        "hidden": bool(message is not None and message.is_hidden),
        "interactive": bool(data.get("interactive")),
        "allow": list(data.get("allow") or ()),
        "reason": data.get("reason"),
        "error": data.get("error"),
    }


def _step(
    step: TracedStep, results: Mapping[str, Mapping[str, Any]], facts_of: FactsOf, provider: str
) -> dict[str, Any]:
    answer, model = step.answer, str(step.head.get("model", ""))
    usage = answer.get("usage")
    prices = facts_of(ProviderModel(provider, model)).prices
    return {
        "step": step.step,
        "purpose": step.purpose,
        "at": step.at,
        "model": model,
        "parameters": {name: step.head[name] for name in _PARAMETERS if name in step.head},
        "messages": None if step.messages is None else len(step.messages),
        "new_messages": None if step.messages is None else len(step.messages) - step.same,
        "tools": [str(tool.get("name")) for tool in _tools(step.head)],
        "duration_ms": answer.get("duration_ms"),
        "first_token_ms": answer.get("first_token_ms"),
        "attempts": answer.get("attempts"),
        "retries": answer.get("retries") or [],
        "usage": usage,
        "cost_usd": prices.of(usage_of(usage)) if prices is not None and usage else None,
        "stop_reason": answer.get("stop_reason"),
        "error": answer.get("error"),
        "calls": [{**call, **results.get(str(call.get("id")), {})} for call in answer.get("calls") or ()],
    }


def _providers(conversation: Conversation) -> dict[str, str]:
    """Return the backend that answered, by the id of the user's message."""
    providers: dict[str, str] = {}
    asked = ""
    for message in conversation.messages.values():
        if message.role == "user":
            asked = message.id
        elif message.role == "assistant":
            providers.setdefault(asked, served_by(message.row).provider)
    return providers


def _results(conversation: Conversation) -> dict[str, dict[str, Any]]:
    """Return the outcome of every tool call by its id."""
    return {
        str(part.data["toolCallId"]): {
            "state": part.data.get("state"),
            "duration_ms": (part.data.get("metadata") or {}).get("duration_ms"),
            "error": str(part.data.get("errorText", "")).partition("\n")[0] or None,
        }
        for part in conversation.parts.values()
        if part.is_tool
    }


def _tools(head: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    tools = (tool.get("function", tool) for tool in head.get("tools") or () if isinstance(tool, Mapping))
    return [tool for tool in tools if isinstance(tool, Mapping) and "name" in tool]
