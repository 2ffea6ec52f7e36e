"""Saved conversations: save, list, clear and restore; and the handling of a ``session.md`` that the user emptied.

An idle conversation of a named agent is saved and cleared automatically. Its timer restarts with each message and at
the end of a run; it is stopped while a run is in flight, and while the agent waits for a background agent, a command
that wakes it or a wake-up of its own. When the daemon stops it saves the open conversations, and all agents are idle
in the next daemon; but a run that waits for a human is resumed there, with its conversation.

In ``state.db`` an agent is ``created`` until its creation is complete, then ``active`` while its log has rows that
are not cleared, else ``idle``; and ``destroyed`` once it is gone.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pyagentd.clock import iso8601, new_id, span
from pyagentd.errors import BadRequest, NotASession, NotFound, PyagentdError
from pyagentd.events import Event
from pyagentd.features.compaction import Summariser
from pyagentd.features.history import History
from pyagentd.features.schedules import Triggers
from pyagentd.llm.prompts import description_request, one_line, previous_summary
from pyagentd.messages import Message, Text, ToolCall, ToolResult
from pyagentd.runtime import turns
from pyagentd.runtime.approvals import Answer
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.feature import BranchWritten, Feature, RunEnded, RunStarted
from pyagentd.runtime.kernel import Kernel
from pyagentd.runtime.run_setup import RunBuilder
from pyagentd.runtime.settings import SendOptions, extra_model
from pyagentd.store import contexts, paths
from pyagentd.store.contexts import Context, Trigger, messages_of
from pyagentd.store.conversation import Conversation
from pyagentd.store.db import agents, schedules, tasks
from pyagentd.store.db.agents import ContextRow
from pyagentd.store.document import hidden
from pyagentd.store.document.reconcile import ABORTED, BEGINNING
from pyagentd.store.document.render import writable
from pyagentd.store.journal import rows_of_message
from pyagentd.store.named_agents import agent_file, named_dir, saved_dir
from pyagentd.store.paths import BranchRef
from pyagentd.words import quantity

# Saving, clearing and restoring conversations.
#
# A boundary hides all before it; the rest is the active conversation. Nothing is ever deleted: cleared text stays
# in the log and in the document, but is no longer sent to the model.


log = logging.getLogger(__name__)


class Owner(NamedTuple):
    """The owner of a branch's saved conversations, and the directory of their files."""

    name: str  # a named agent's name, or a session's id
    home: Path  # the session's directory; an id is no proof, since a session from elsewhere may have the same
    directory: Path

    def has(self, row: ContextRow) -> bool:
        """Return whether a saved conversation belongs to this owner."""
        return Path(row.file_path).is_relative_to(self.home)


def row_of(context: Context, path: Path) -> ContextRow:
    """Return the row of a context whose file is at ``path``."""
    return ContextRow(
        id=context.id,
        agent_name=context.agent_name,
        description=context.description,
        saved_at=context.saved_at,
        message_count=context.message_count,
        file_path=str(path),
        trigger=context.trigger,
    )


def left_notice(conversation: Conversation) -> list[str]:
    """Return the notice for an opened branch whose last conversation was cleared, if none is active."""
    if hidden.is_visible(conversation):
        return []
    last = next((each for each in reversed(hidden.groups(conversation)) if each.by == hidden.CONTEXT), None)
    notice = last.messages[0].metadata.get("notice") if last else None
    return [str(notice)] if notice else []


# A saved conversation restored as the active one: its turns, and their rows.
#
# In the log it is one run without requests to a model: its first prompt begins the run, further ones are steering
# messages in it. So the document and all clients get the text like that of any run.


@dataclass(slots=True)
class Turn:
    """A user's prompt, and the parts of the answer, each step with its ``step-start``."""

    prompt: str
    parts: list[dict[str, Any]] = field(default_factory=list)


def restored_turns(entries: Iterable[Mapping[str, Any]]) -> list[Turn]:
    """Return the turns of a saved conversation; if it begins with an answer, that gets a placeholder prompt."""
    found: list[Turn] = []
    messages = list(messages_of(entries))
    results = {part.id: part.text for each in messages for part in each.parts if isinstance(part, ToolResult)}
    for message in messages:
        if message.role == "assistant":
            if not found:
                found.append(Turn(BEGINNING))
            own = (_data(part, results) for part in message.parts if isinstance(part, Text | ToolCall))
            found[-1].parts += [{"type": "step-start"}, *own]
            continue
        texts = [text for part in message.parts if isinstance(part, Text) and (text := writable(part.text.strip()))]
        if texts and found and not found[-1].parts:
            found[-1].prompt = "\n\n".join([found[-1].prompt, *texts])
        elif texts:
            found.append(Turn("\n\n".join(texts)))
    return found


def _data(part: Text | ToolCall, results: Mapping[str, str]) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": writable(part.text), "state": "done"}
    call = {"type": f"tool-{part.name}", "toolCallId": part.id, "input": dict(part.input)}
    if part.id in results:
        return {**call, "state": "output-available", "output": writable(results[part.id])}
    return {**call, "state": "output-error", "errorText": ABORTED}


KEPT = "Nothing is deleted: the text stays in the document and in the log; the model is no longer shown it."
_FIRST_WORDS = 80  # characters of a prompt that is used as a description

IDLE_SETTING = "idle_timeout"
"""Key of ``state.settings``: seconds; the default is half an hour, 0 is never."""

IDLE_S = 30 * 60
CHECK_S = 30.0
LEAST_S = 0.1


class _LiveConversation(NamedTuple):
    """A snapshot of the active conversation: its messages, and the last row of the log."""

    messages: tuple[Message, ...]
    last_seq: int

    def is_older_than(self, branch: LiveBranch) -> bool:
        """Return whether the branch's conversation changed since."""
        shown = {message.id for message in hidden.visible(branch.conversation)}
        return branch.conversation.touched_since(self.last_seq, shown)


class Contexts(Feature):
    """Saved conversations of all sessions, and the idle timers of named agents.

    A named agent's saved conversations are files in its ``sessions/``; those of other sessions are among the files of
    their branch.
    """

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self._history = History(kernel)
        self._last: dict[str, tuple[BranchRef, datetime]] = {}  # active conversations: branch and last activity
        self._begun = asyncio.Event()  # a conversation began; its timer may be shorter than the current pause
        self._task: asyncio.Task[None] | None = None
        # Runs of other sessions do not affect an agent's timer.
        kernel.bus.on(RunStarted, lambda started: self._touch(started.branch), of=kernel.named)
        kernel.bus.on(RunEnded, lambda ended: self._touch(ended.branch), of=kernel.named)

    @property
    def pending(self) -> int:
        """The number of active conversations with named agents; the daemon stays up for them."""
        return len(self._last)

    # -- commands of the user ----------------------------------------------------------------------------------

    async def save(self, branch: LiveBranch, description: str = "", *, options: SendOptions) -> ContextRow:
        """Save the conversation of a branch, which stays active; a model writes the description if none is given.

        Raises:
            BadRequest: There is no conversation.
            StoreError: A write failed.
        """
        live = await self._current_conversation(branch)
        text = one_line(description) or await self._describe(branch, live.messages, options)
        return await self._write(branch, live, text, "manual_save")

    async def clear(self, branch: LiveBranch) -> int:
        """Clear the conversation of a branch without saving it; return how many messages it had.

        Raises:
            Busy: A run is in flight.
            BadRequest: There is no conversation.
        """
        async with branch.starting:
            changed = await self._history.clear_held(branch)
        self.cleared(branch)
        branch.say(f"Context cleared. {KEPT}")
        return len(changed["hidden"])

    async def restore(self, branch: LiveBranch, id: str) -> ContextRow:
        """Replace the active conversation, which is not saved, by the saved one whose id begins with ``id``.

        Raises:
            NotFound: This agent or session has no such context, or its file is gone.
            BadRequest: Several ids begin like that.
            Busy: A run is in flight, or messages are queued.
        """
        row = await self.get(branch.ref, id)
        context = await asyncio.to_thread(contexts.read, Path(row.file_path))
        found = restored_turns(context.messages)
        if not found:
            raise BadRequest(f"The context {row.id} is empty", hint="Restore another")
        async with branch.starting:
            self._history.require_ready(branch, queue=False)
            if hidden.continuation(branch.conversation, ""):
                await self._history.clear_held(branch)
            await self._append(branch, context.id, found)
        self._touch(branch)
        self.kernel.bus.tell(BranchWritten(branch.ref))
        branch.say(f"Context restored: {row.description} ({quantity(row.message_count, 'message')})")
        return row

    # -- saved conversations: files, and rows to find them by ----------------------------------------------------

    async def history(self, ref: BranchRef) -> list[ContextRow]:
        """Return the saved conversations of an agent or a session, newest first."""
        owner = self.owner(ref)
        await self._adopt(owner)
        rows = await asyncio.to_thread(agents.of, self.kernel.state, owner.name)
        return list(filter(owner.has, rows))

    async def known(self, agent_name: str) -> list[ContextRow]:
        """Return the saved conversations of an agent that may be destroyed, newest first.

        For a destroyed agent, those of all agents that ever had this name.
        """
        row = await asyncio.to_thread(agents.find, self.kernel.state, agent_name)
        if row is not None and row.status != "destroyed" and paths.is_session_dir(Path(row.dir)):
            return await self.history(paths.ref_of(Path(row.dir)))
        return await asyncio.to_thread(agents.ever, self.kernel.state, agent_name)

    async def get(self, ref: BranchRef, id: str) -> ContextRow:
        """Return the saved conversation of an agent or a session whose id is, or begins with, ``id``.

        Raises:
            NotFound, BadRequest: No id matches, or several do.
        """
        owner = self.owner(ref)
        await self._adopt(owner)
        rows = await asyncio.to_thread(agents.find_context, self.kernel.state, id, owner.name) if id else []
        found = list(filter(owner.has, rows))
        if not found:
            raise NotFound(
                f"{owner.name} has no saved context {id}", hint="`pyagentd context history` lists those there are"
            )
        if len(found) > 1:
            listed = ", ".join(row.id for row in found[:8])
            raise BadRequest(f"Several contexts begin with {id}: {listed}", hint="Give more of the id")
        return found[0]

    def owner(self, ref: BranchRef) -> Owner:
        """Return the owner of a branch's saved conversations."""
        named = named_dir(self.kernel.config.agents_dir.resolve(), ref)
        if named is not None:
            return Owner(named.name, named, saved_dir(named))
        return Owner(ref.session_id, ref.session_dir, contexts.contexts_dir(ref))

    # -- automatic ---------------------------------------------------------------------------------------------

    async def idle_out(self, branch: LiveBranch, *, seconds: float) -> bool:
        """Save and clear an idle conversation, with a notice; return False if it was continued meanwhile.

        Raises:
            BadRequest: There is no conversation.
            StoreError: A write failed.
        """
        live = await self._current_conversation(branch)
        triggers = self.kernel.find(Triggers)
        options = SendOptions() if triggers is None else triggers.options_for(branch.ref, SendOptions())
        text = await self._describe(branch, live.messages, options)
        async with branch.starting:
            if branch.run is not None or branch.queue.waiting or live.is_older_than(branch):
                return False
            row = await self._write(branch, live, text, "idle_timeout")
            notice = _put_away(row, f"after {span(seconds)} of inactivity")
            await self._history.clear_held(branch, notice=notice)
        branch.say(notice)
        return True

    async def keep(self, branch: LiveBranch, trigger: Trigger) -> ContextRow | None:
        """Save the conversation of a branch, if there is one, without asking a model; raises ``StoreError``."""
        try:
            live = await self._current_conversation(branch)
        except BadRequest:
            return None
        return await self._write(branch, live, first_words(live.messages), trigger)

    async def put_behind(self, branch: LiveBranch, trigger: Trigger, *, when: str) -> bool:
        """Clear the conversation of a branch, saved unless an equal copy is; return whether there was one.

        ``when`` completes the notice for people, "Context cleared …".

        Raises:
            Busy: A run is in flight.
            StoreError: A write failed.
        """
        if not hidden.is_visible(branch.conversation):
            return False
        details = {}
        with contextlib.suppress(BadRequest):  # without a conversation nothing is saved
            live = await self._current_conversation(branch)
            rows, messages = await self.history(branch.ref), contexts.canonical(live.messages)

            def is_same(row: ContextRow) -> bool:
                context = contexts.read_or_none(Path(row.file_path)) if row.message_count == len(messages) else None
                return context is not None and list(context.messages) == list(messages)

            row = await asyncio.to_thread(lambda: next(filter(is_same, rows), None))
            row = row or await self._write(branch, live, first_words(live.messages), trigger)
            details = {"notice": _put_away(row, when)}
        async with branch.starting:
            await self._history.clear_held(branch, **details)
        return True

    # -- idle timers of named agents -----------------------------------------------------------------------------

    def cleared(self, branch: LiveBranch) -> None:
        """Note that a branch's conversation was cleared."""
        if self._last.pop(branch.key, None) is not None or self._name(branch.ref):
            self._note(branch.ref, "idle")

    def forget(self, directory: Path) -> None:
        """Remove the timers of a deleted directory."""
        for key, (ref, _) in list(self._last.items()):
            if ref.branch_dir.is_relative_to(directory):
                del self._last[key]

    def moved(self, old: Path, new: Path) -> None:
        """Keep the timers of an agent whose directory was renamed."""
        for key, (ref, last) in list(self._last.items()):
            if ref.branch_dir.is_relative_to(old):
                del self._last[key]
                there = paths.ref_of(new / ref.branch_dir.relative_to(old))
                self._last[there.key] = there, last

    async def start(self) -> None:
        """Clear the conversations that were active when the last daemon stopped, and start the timers."""
        await self.load()
        self._task = asyncio.create_task(self._watch(), name="idling")

    async def stop(self) -> None:
        """Stop the timers."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def tick(self) -> None:
        """Save and clear the conversations that were idle for long enough."""
        if not self._last:
            return
        idle_s, now = await asyncio.to_thread(self._idle_s), self.kernel.clock.now()
        for key in list(self._last):
            if (known := self._last.get(key)) is None:  # cleared while another one was saved
                continue
            (ref, last), live = known, self.kernel.opened(key)
            if live is not None and live.run is not None:
                self._last[key] = ref, now
            elif idle_s and now - last >= timedelta(seconds=idle_s):
                await self._fire(ref, now, idle_s)

    async def load(self) -> None:
        """Clear what was active when the last daemon stopped, saved if it was not; so all agents begin idle."""
        try:
            rows = await asyncio.to_thread(agents.known, self.kernel.state)
        except PyagentdError as error:  # such as before the first session
            log.info("the named agents cannot be read: %s", error)
            return
        for row in rows:
            if row.status != "active":
                continue
            try:
                async with self.kernel.using(paths.ref_of(Path(row.dir))) as branch:
                    if _goes_on(branch):
                        self._touch(branch)
                    else:
                        await self.put_behind(branch, "shutdown", when="when the daemon was started anew")
                        self.cleared(branch)
            except PyagentdError as error:  # reported when the branch is opened
                log.warning("agent %s: %s", row.name, error)

    async def close(self) -> None:
        """Save every active conversation when the daemon stops; the next one clears them."""
        for ref, _ in list(self._last.values()):
            try:
                async with self.kernel.using(ref) as branch:
                    if not _goes_on(branch):
                        await self.keep(branch, "shutdown")
            except PyagentdError as error:
                log.warning("%s could not be saved: %s", ref.name, error)
        self._last.clear()

    async def _watch(self) -> None:
        while True:
            pause_s = await asyncio.to_thread(self._pause_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._begun.wait()
            self._begun.clear()
            try:
                await self.tick()
            except Exception:  # the edge of this task: one agent must not end all timers
                log.exception("idle timers")

    def _pause_s(self) -> float:
        """Return the seconds until the next check of the timers; fewer for a short idle timeout."""
        try:
            return min(CHECK_S, max(LEAST_S, self._idle_s() / 4)) if self._last else CHECK_S
        except PyagentdError:  # no database yet
            return CHECK_S

    def _idle_s(self) -> float:
        given = self.kernel.state.get(IDLE_SETTING, IDLE_S)
        return float(given) if isinstance(given, int | float) and given >= 0 else IDLE_S

    async def _fire(self, ref: BranchRef, now: datetime, idle_s: float) -> None:
        try:
            async with self.kernel.using(ref) as branch:
                if _goes_on(branch) or await self._is_awaited(branch):
                    self._last[ref.key] = ref, now
                elif await self.idle_out(branch, seconds=idle_s):
                    self.cleared(branch)
        except (BadRequest, NotASession, NotFound):  # there is no conversation any more
            self._last.pop(ref.key, None)
        except PyagentdError as error:  # a write failed, or the branch is busy: tried again when the timer expires
            log.warning("%s could not be saved and cleared: %s", ref.name, error)
            if ref.key in self._last:
                self._last[ref.key] = ref, now

    async def _is_awaited(self, branch: LiveBranch) -> bool:
        """Return whether a conversation waits for a background agent, a command or a wake-up."""
        if any(row["state"] == "running" for row in branch.conversation.agents.values()):
            return True
        state, key = self.kernel.state, self.kernel.projection.key(branch.ref.branch_dir)
        running = await asyncio.to_thread(tasks.find, state, status="running")
        due = await asyncio.to_thread(schedules.find, state, branch_dir=key)
        return any(task.wake and task.branch_dir == key for task in running) or any(
            each.source == "self-schedule" for each in due
        )

    def _touch(self, branch: LiveBranch) -> None:
        if not self._name(branch.ref):
            return
        self._tell()
        is_new = branch.key not in self._last
        self._last[branch.key] = branch.ref, self.kernel.clock.now()
        if is_new:
            self._begun.set()
            self._note(branch.ref, "active")

    def _note(self, ref: BranchRef, status: Literal["idle", "active"]) -> None:
        """Record in the table of agents whether an agent has an active conversation."""
        now_ms, name = self.kernel.clock.now_ms(), self._name(ref)

        def note() -> None:
            row = agents.find(self.kernel.state, name)
            if row is not None and row.status in ("idle", "active") and row.status != status:
                agents.set_status(self.kernel.state, name, status, now_ms=now_ms)

        async def errand() -> None:
            try:
                await asyncio.to_thread(note)
            except PyagentdError as error:
                log.warning("agent %s: %s", name, error)
            self._tell()

        self.kernel.spawn(errand())

    def _tell(self) -> None:
        self.kernel.publish(Event("agents", "", 0))

    def _name(self, ref: BranchRef) -> str:
        """Return the name of the agent whose branch ``ref`` is, "" for other sessions."""
        return ref.session_id if self.kernel.named.is_named(ref) and agent_file(ref.session_dir).is_file() else ""

    # -- inside ------------------------------------------------------------------------------------------------

    async def _current_conversation(self, branch: LiveBranch) -> _LiveConversation:
        """Return the conversation of a branch, with the user's edits of the document.

        Raises:
            BadRequest: There is no conversation.
        """
        if branch.run is None and not branch.refusal:
            async with branch.starting:
                if branch.run is None:
                    await branch.record_edits()
        conversation = branch.conversation.snapshot()
        messages = await asyncio.to_thread(contexts.visible_messages, conversation)
        if not messages:
            raise BadRequest("No active session to save", hint="Say something first")
        return _LiveConversation(messages, conversation.last_seq)

    async def _describe(self, branch: LiveBranch, messages: Sequence[Message], options: SendOptions) -> str:
        """Return a model's description of a conversation, or its first words if no model can or may be asked."""
        if branch.run is not None or not self.kernel.config.privacy.extra_requests:
            return first_words(messages)
        kernel, run_id = self.kernel, new_id("run")
        try:
            live = await branch.document.look()
            made = await RunBuilder(kernel, branch, run_id, options).settings(live.document.settings)
            configured = kernel.config.compaction
            model = extra_model(configured.model, made.provider, made.model, kernel.config)
            known = kernel.model_facts(model, made.provider)
            summariser = Summariser(
                made.backend, model, known=known, settings=configured, request=description_request
            )
            previous, head = previous_summary(messages)
            text = one_line((await summariser.summarise(previous, head)).text)
        except PyagentdError as error:
            log.warning("%s: saved without a summary: %s", branch.ref.name, error)
            return first_words(messages)
        return text or first_words(messages)

    async def _write(
        self, branch: LiveBranch, live: _LiveConversation, description: str, trigger: Trigger
    ) -> ContextRow:
        owner = self.owner(branch.ref)
        context = Context(
            id=str(uuid.uuid4()),
            agent_name=owner.name,
            description=description,
            saved_at=iso8601(self.kernel.clock.now()),
            trigger=trigger,
            messages=contexts.canonical(live.messages),
        )

        def write() -> ContextRow:
            row = replace(row_of(context, contexts.write(owner.directory, context)), last_seq=live.last_seq)
            agents.put_context(self.kernel.state, row)
            return row

        return await asyncio.to_thread(write)

    async def _adopt(self, owner: Owner) -> None:
        """Add rows for files without one: an agent's directory may be older than the database.

        A copy of a file that has a row gets a new id, derived from its path.
        """
        state = self.kernel.state

        def adopt() -> None:
            known = {row.file_path for row in agents.of(state, owner.name)}
            present = {str(path) for path in owner.directory.glob("*.json")} if owner.directory.is_dir() else set()
            for file in sorted(present - known):
                context = contexts.read_or_none(Path(file))
                if context is None:
                    continue
                same = (row for row in agents.find_context(state, context.id) if row.id == context.id)
                if any(row.file_path != file and Path(row.file_path).is_file() for row in same):
                    context = replace(context, id=str(uuid.uuid5(uuid.NAMESPACE_URL, file)))
                agents.put_context(state, replace(row_of(context, Path(file)), agent_name=owner.name))

        await asyncio.to_thread(adopt)

    async def _append(self, branch: LiveBranch, id: str, found: Sequence[Turn]) -> None:
        """Record a saved conversation as turns of this one; the caller holds ``branch.starting``."""
        await branch.document.look()
        await branch.look_once()
        run_id, metadata = new_id("run"), {"context": id}
        prompt = replace(await turns.from_client(branch, found[0].prompt), metadata=metadata)
        steered = {"origin": "client", "steered": run_id, **metadata}
        row = partial(rows_of_message, session_id=branch.ref.session_id, now_ms=branch.recorder.now_ms())
        rows: list[tuple[str, dict[str, Any]]] = []
        for turn in found:
            if turn is not found[0]:
                rows += row([{"type": "text", "text": turn.prompt}], role="user", metadata=steered)
            if turn.parts:
                rows += row(turn.parts, role="assistant", metadata=metadata)
        await branch.record_run(prompt, rows, run_id=run_id, interactive=True)


def _put_away(row: ContextRow, when: str) -> str:
    """Return the notice of a conversation that was cleared automatically."""
    dot = "" if row.description.endswith((".", "…", "!", "?")) else "."
    shell = f"In a shell: pyagentd context restore {row.agent_name} {row.id[: contexts.ID]}"
    notice = f"Session saved: {row.description}{dot} Context cleared {when}."
    return f"{notice} Use /context restore {row.id[: contexts.ID]} to resume. {shell}"


def _goes_on(branch: LiveBranch) -> bool:
    """Return whether a branch has a run or queued messages, so that its conversation cannot be cleared yet."""
    return branch.run is not None or branch.has_open_run or bool(branch.queue.waiting)


def first_words(messages: Sequence[Message]) -> str:
    """Return the beginning of a conversation, as its description."""
    for entry in contexts.canonical(messages):
        if entry["role"] == "user" and (words := one_line(entry["content"], _FIRST_WORDS)):
            return words
    return "Conversation"


# A ``session.md`` that was emptied: its text is restored from the log, and the user may remove the conversation.
#
# A user rarely deletes a conversation by emptying its file, but a failing program may. So the file is restored when
# the session is opened, and a client is asked whether that was right. Without an answer it stays restored.

RESTORE, REMOVE = "Restore", "Remove"


def ask(kernel: Kernel, branch: LiveBranch) -> None:
    """Ask the clients of a branch, once, what its emptied document meant; an answer is optional."""
    kernel.emptied.discard(branch.key)
    shown = [message.id for message in hidden.visible(branch.conversation)]
    question = (
        f"{paths.SESSION_FILE} was empty, but its log has a conversation of {len(shown)} messages. "
        "Its text was restored from the log. Is that right, or was the conversation to be removed?"
    )
    options = {
        RESTORE: "Go on with the conversation; it is as it was",
        REMOVE: "The model is no longer shown any of it; the text stays in the log and, folded, in the document",
    }
    asked = {
        "question": question,
        "header": "Emptied",
        "options": [{"label": label, "description": about} for label, about in options.items()],
        "multi_select": False,
    }
    fields = {
        "kind": "question",
        "tool": "question",
        "action": "tool:question:emptied",
        "detail": question,
        "reason": "",
        "preview": "",
        "choices": ["answer", "deny"],
        "questions": [asked],
    }

    def settle(answer: Answer) -> None:
        if answer.decision == "answer" and answer.answers and REMOVE in answer.answers[0]:
            kernel.spawn(_remove(kernel, branch, shown))

    kernel.questions.post(branch, fields, settle)


async def _remove(kernel: Kernel, branch: LiveBranch, shown: list[str]) -> None:
    async with kernel.using(branch.ref) as live:
        try:
            if shown != [message.id for message in hidden.visible(live.conversation)]:
                text = "The conversation went on, so nothing was removed. /context clear puts all of it behind"
                live.say(text)
            else:
                await kernel.feature(Contexts).clear(live)
        except PyagentdError as error:
            live.say(f"Nothing was removed: {error}")
