"""Operations on one conversation: attach, edit, send, queue, abort, compact."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast

from pyagentd.api.approvals import AskRow
from pyagentd.api.commands import CommandRow, command_to_wire
from pyagentd.api.group import (
    NOTHING,
    Client,
    Env,
    Group,
    JsonReply,
    Note,
    PromptReceipt,
    directory,
    prompt_receipt,
    reply_of,
    send_options,
)
from pyagentd.api.models import available_tools, checked_model, preset_notes, summary, write_settings
from pyagentd.errors import BadRequest
from pyagentd.features import contexts as emptied
from pyagentd.features import named_agents, suggestions, todo
from pyagentd.features.agents import AgentSpawner
from pyagentd.features.compaction import compact, marker_of
from pyagentd.features.slash_commands import CommandAnswer, Commands, run_if_command
from pyagentd.features.usage import tell_below
from pyagentd.policy.presets import Preset, parse_message_settings
from pyagentd.runtime.branch import ClientText, LiveBranch, attach_client
from pyagentd.runtime.document_sync import (
    FIELDS,
    DocumentVersion,
    effective_settings,
    preset_with_overrides,
    settings_in_document,
    settings_of,
)
from pyagentd.runtime.presets import next_turn, turn_agents
from pyagentd.runtime.queue import CommandRule, Submission
from pyagentd.runtime.settings import SendOptions
from pyagentd.runtime.status import call_summaries, failed_calls
from pyagentd.runtime.system_prompt import skills_of
from pyagentd.runtime.usage import ContextReply
from pyagentd.store import attachments, metadata, paths
from pyagentd.store.document.files import Edit, Hunk, normalise_hunks
from pyagentd.store.document.heal import role_diff
from pyagentd.store.document.render import writable
from pyagentd.store.document.text import Settings, Span, merge_spans, stamp_of
from pyagentd.tools.sandbox import enclosure
from pyagentd.tools.sandbox.plan import ShellScope


class TurnModel(TypedDict):
    """The model that answers a message."""

    provider_id: str | None  # the backend; nil: the preset's
    model_id: str


class QueueTrigger(TypedDict):
    """What sent a message instead of a human: a schedule, a file, a webhook."""

    source: str
    fired_at: int  # epoch ms
    delivery_id: str
    auth_subject: str
    schedule_id: NotRequired[str]
    headers: NotRequired[Mapping[str, str]]
    missed: NotRequired[int]  # how many earlier times it missed, while no daemon ran
    expired: NotRequired[bool]  # it was the schedule's last message
    reason: NotRequired[str]  # why the agent scheduled it


class QueueItem(TypedDict):
    """A queued message."""

    id: str
    text: str
    queued_at: int  # epoch ms
    steer: bool  # the current run reads it
    origin: str
    agent: NotRequired[str]  # the preset of its turn
    model: NotRequired[TurnModel]
    trigger: NotRequired[QueueTrigger]
    agents: NotRequired[Sequence[Any]]


class QueueReply(TypedDict):
    """The queued messages, the next one first."""

    items: list[QueueItem]
    paused: bool


class BranchStatus(TypedDict):
    """The state of a branch, as in its ``status`` events."""

    state: str  # idle, busy, retrying, waiting or error
    queued: int  # number of queued messages
    run: NotRequired[str]  # of a run, like the four that follow
    message_id: NotRequired[str]
    started_at: NotRequired[int]  # epoch ms
    phase: NotRequired[str]
    tools: NotRequired[Sequence[Any]]
    attempt: NotRequired[int]  # while retrying: the attempt that failed, from 1
    max_attempts: NotRequired[int]
    retry_at: NotRequired[int]  # epoch ms
    message: NotRequired[str]  # the error message; while retrying, that of the failed attempt
    code: NotRequired[str]  # of an error
    agent: NotRequired[str]  # the preset of its turns, where that is not the branch's own
    paused: NotRequired[bool]  # the queue waits to be resumed


class CommandsReply(TypedDict):
    """Slash commands."""

    commands: list[CommandRow]


class CommandAnswered(TypedDict):
    """The outcome of a slash command, with the same keys as that of a message."""

    run: str | None  # of the message that it sent to the model; nil: it sent none
    message: str | None
    queued: bool
    seq: int
    ended: str | None
    command: CommandAnswer


class SettingsRow(TypedDict):
    """The settings that gptel's Local Variables can hold."""

    model: str | None
    backend: str | None
    tools: Sequence[str] | None
    temperature: float | None
    max_tokens: int | None


class NextTurn(TypedDict):
    """The preset that answers next."""

    agent: str | None  # the preset of the next turn
    opened_with: str | None  # the session's own preset
    plan: bool  # that turn can only read


class BranchDescription(TypedDict):
    """The state of a branch that an editor shows."""

    session_id: str
    root: str | None  # its working directory
    agents: list[Mapping[str, Any]]  # running agents, as in ``agent`` events
    asks: list[AskRow]
    queue: list[QueueItem]
    todo: list[Mapping[str, str]]  # steps: content, status, active_form
    failed: list[str]  # ids of calls that failed
    summaries: list[tuple[str, str]]  # pairs: the id of a call, its summary
    reply_options: suggestions.ReplyOptionsReply | None
    context: ContextReply | None
    preset: str | None  # the preset that the branch was made from
    model: str | None
    turn: NextTurn
    settings: SettingsRow  # in effect
    own_settings: SettingsRow  # of preset.md
    gptel_tools: Sequence[str] | None
    overridden: list[str]  # the settings of the preset that the document overrides
    thinking: str | None


class SettingsKept(BranchDescription):
    """A branch after its document's settings were written to ``preset.md``."""

    kept: list[str]


class SettingsDropped(BranchDescription):
    """A branch after its document's settings were dropped."""

    dropped: list[str]


class AttachReply(BranchDescription):
    """The state of a branch that the client attached to."""

    branch: str
    seq: int  # of the last row
    revision: int  # of the document
    edits: list[tuple[str | None, list[Any]]]  # from the client's text to that revision: id and hunks of each
    marker: int | None  # position of the run's marker
    saved: bool  # the file holds the document
    unsaved: str | None  # why it could not be written
    mtime: int | None  # of the file, in nanoseconds
    inserts: list[tuple[int, str, Any]]  # for a client without a text, the insertions it missed: seq, text, role
    status: BranchStatus
    roles: list[tuple[int, int, Any]] | None  # of the whole text, if they changed: begin, end, role
    notes: list[str]
    read_only: str | None  # why the branch cannot be written
    title: str | None
    unconfined: str  # why commands are not confined


class Unknown(TypedDict):
    """The daemon does not know the client's text: the client must send it."""

    branch: str
    unknown: Literal[True]


class EditReply(TypedDict):
    """The outcome of an edit."""

    revision: int  # of the document after the edit
    met: list[str]  # texts of this edit that were inserted where another client inserted too; both are kept


class Checkpoint(TypedDict):
    """The version of the document that was written to the file."""

    revision: int
    mtime: int  # of the file, in nanoseconds


class ToolsReply(TypedDict):
    """Tools by name."""

    tools: list[str]  # available to the session
    on: Sequence[str]


class AbortReply(TypedDict):
    """Whether a run was stopped."""

    aborted: bool
    note: str | None  # set if there was no run to stop


class ShownConversation(JsonReply):
    """A conversation as canonical JSON."""

    seq: int  # of its last row


class CompactReply(TypedDict):
    """A compaction; its outcome only with ``wait``."""

    run: str
    seq: int
    reason: NotRequired[str | None]
    message: NotRequired[str]
    code: NotRequired[str]
    summary: NotRequired[str | None]
    tail_start_id: NotRequired[str | None]  # the first message that is still sent unchanged
    auto: NotRequired[bool | None]
    summary_tokens: NotRequired[int | None]
    id: NotRequired[str]  # of the message that holds the summary
    messages: NotRequired[int | None]  # number of summarised messages
    tokens: NotRequired[int | None]  # of the summarised messages


APPROVED = "Approved, continue."
"""The user's message that approves a plan; other agent programs use the same words."""

BUILD = "build"

_DESCRIPTION = 300  # characters of a preset's description in a reply


class TurnAgent(TypedDict):
    """A preset that can answer a turn."""

    name: str
    description: str
    model: str | None
    read_only: bool
    origin: str


class AgentsAvailable(NextTurn):
    """The preset that answers next, and the available ones."""

    agents: list[TurnAgent]


class SkillRow(TypedDict):
    """A skill."""

    name: str
    description: str
    file: str
    origin: str


class HiddenSkill(TypedDict):
    """A skill hidden by another one of the same name."""

    name: str
    file: str
    by: str  # the file that is used


class BrokenSkill(TypedDict):
    """A skill file that cannot be parsed."""

    file: str
    error: str  # names the line


class SkillsReply(TypedDict):
    """Skills of a project."""

    skills: list[SkillRow]
    hidden: list[HiddenSkill]
    broken: list[BrokenSkill]


class Conversations(Group):
    """A branch's document, turns, queue and settings."""

    async def queue(self, client: Client, *, branch: str) -> QueueReply:
        """Return the queued messages."""
        async with self._kernel.using(self._ref(branch)) as live:
            return {
                "items": cast(list[QueueItem], live.queue.to_wire()),
                "paused": live.paused and bool(live.queue.waiting),
            }

    async def queue_cancel(self, client: Client, *, branch: str, id: str) -> str:
        """Remove a message from the queue and return its text; it stays in the document."""
        async with self._kernel.using(self._ref(branch)) as live:
            return await self._kernel.queue.cancel(live, id)

    async def queue_edit(self, client: Client, *, branch: str, id: str, text: str) -> None:
        """Replace the text of a queued message; it keeps its place in the queue."""
        async with self._kernel.using(self._ref(branch)) as live:
            await self._kernel.queue.edit(live, id, text)

    async def queue_pause(self, client: Client, *, branch: str) -> None:
        """Pause the queue, if it has messages, until it is resumed; a client calls this before it stops a run."""
        async with self._kernel.using(self._ref(branch)) as live:
            self._kernel.queue.pause(live)

    async def queue_resume(
        self,
        client: Client,
        *,
        branch: str,
        env: Env = NOTHING,
    ) -> Note:
        """Resume a paused queue; messages whose client has disconnected run with the environment ``env``."""
        options = send_options(client, env, ())
        async with self._kernel.using(self._ref(branch)) as live:
            live.require_writable()
            waiting = await self._kernel.queue.resume(live, options)
        return {"note": None if waiting else "The queue is empty"}

    async def get_status(self, client: Client, *, branch: str) -> BranchStatus:
        """Return the state of a branch, as in its ``status`` events; after a restart it is ``idle``."""
        async with self._kernel.using(self._ref(branch)) as live:
            return cast(BranchStatus, live.status)

    async def retry_now(self, client: Client, *, branch: str) -> Note:
        """Retry now the failed request that waits for its next attempt, if there is one."""
        async with self._kernel.using(self._ref(branch)) as live:
            waits = live.status["state"] == "retrying" and live.run is not None
            if waits and live.run is not None:
                live.run.retry_now()
        return {"note": None if waits else "No request is waiting to be retried"}

    async def attach_file(self, client: Client, *, branch: str, name: str, content: str) -> str:
        """Save ``content``, in base64, as a file in the branch's ``files/``, and return the path.

        This is for clients on another machine. An existing file with that ``name`` is kept.
        """
        data = attachments.decoded(content)
        return str(await asyncio.to_thread(attachments.keep_file, self._ref(branch).branch_dir, name, data))

    async def commands(self, client: Client, *, branch: str | None = None) -> CommandsReply:
        """Return the slash commands of a conversation, or without ``branch`` those that work everywhere.

        No MCP server is contacted for them.
        """
        ref = self._ref(branch) if branch else None
        found = await self._kernel.feature(Commands).of(ref)
        return {"commands": [command_to_wire(command) for command in found.values()]}

    async def attach(
        self,
        client: Client,
        *,
        branch: str,
        revision: int | None = None,
        sha256: str | None = None,
        text: str | None = None,
        seq: int | None = None,
    ) -> AttachReply | Unknown:
        """Attach to a branch: receive its events, and edit its document starting from the client's text.

        The client names its text as the document at ``revision``, as the file with hash ``sha256``, or as ``text``.
        The reply has the ``edits``, ``((ID HUNKS)...)``, that turn it into ``revision``; each hunk is ``(BEG END TEXT
        ROLES)``. The reply ``{unknown: t}`` means that the daemon does not know that text: the client must send it. A
        client that names no text only receives later events, and with ``seq`` what the run inserted since then.
        """
        known = ClientText(revision=revision, sha256=sha256, text=text, seq=seq)
        async with self._kernel.using(self._ref(branch)) as live:
            preset = self._kernel.presets.of_branch(live.ref)
            unconfined = await self._unconfined(preset) if "Bash" in preset.tools else ""
            made_from = await _made_from(live)
            misspelt = [] if live.conversation.messages else await asyncio.to_thread(preset_notes, live.ref)
            answer = await attach_client(live, client, known)
            # No await from here on: the client would take an event sent before the reply for a part of it.
            if answer is None:
                return Unknown(branch=live.key, unknown=True)
            if not known.is_nothing:
                live.given = settings_in_document(settings_of(preset))
                live.note_lasting_notices()
                settings = live.document.settings_now
                if live.conversation.runs and all(getattr(settings, name) is None for name in FIELDS):
                    # Another program wrote the text without its Local Variables.
                    live.write_settings(given=live.given, effective=live.given, seen=settings)
                if live.key in self._kernel.emptied and client.human:
                    emptied.ask(self._kernel, live)
            if live.meter is not None and not live.meter.looked and paths.agents_dir(live.ref.branch_dir).is_dir():
                self._kernel.spawn(tell_below(self._kernel, live))
            notes = [
                *answer["notes"],
                *misspelt,
                *self._kernel.origins.notes(live.ref),
                *named_agents.opening_notes(self._kernel, live),
            ]
            described = self._described_live(live, preset, made_from)
            return cast(AttachReply, {**answer, "notes": notes, "unconfined": unconfined, **described})

    async def _unconfined(self, preset: Preset) -> str:
        """Return why a session's commands are not confined, or "" if they are."""
        scope = ShellScope(confine=preset.shell.confine, wanted=self._kernel.config.shell.confinement)
        if enclosure.is_tried():
            return enclosure.confinement_warning(scope)
        return await asyncio.to_thread(enclosure.confinement_warning, scope)

    async def detach(self, client: Client, *, branch: str) -> None:
        """Stop receiving a branch's events; its run goes on."""
        if (live := self._kernel.opened(branch)) is not None:
            async with self._kernel.using(live.ref):
                live.detach(client)

    async def edit_document(
        self,
        client: Client,
        *,
        branch: str,
        revision: int,
        hunks: Sequence[Any] = (),
        id: str = "",
        after: str = "",
        settings: Mapping[str, Any] = NOTHING,
    ) -> EditReply:
        """Edit the document of an attached branch; the hunks apply to the text at ``revision``.

        Each hunk ``(BEG END TEXT ROLES)`` replaces the text between two positions (from 1) with TEXT; ROLES are
        ``(BEG END ROLE)`` each, with positions in TEXT from 1. Hunks are in order, and all their positions are from
        before the edit. Attached clients receive an event ``edit`` with ``id``. With ``after`` the hunks apply to the
        text after the client's own edit with that id. ``settings`` are the values of the Local Variables.
        """
        live = self._open(branch)
        live.require_writable()
        if settings:
            live.document.set_settings(_local_settings(settings))
        edit = _edit_from_wire(hunks)
        met = live.document.edit(client, revision, edit, id=id, after=after) if edit else []
        return {"revision": live.document.live.revision, "met": met}

    async def checkpoint(self, client: Client, *, branch: str) -> Checkpoint:
        """Write the document to the file and return once it is saved; merge changes that another program made."""
        live = self._open(branch)
        live.require_writable()
        async with self._kernel.using(live.ref):
            await live.document.settle()
            stamp = live.document.live.file.stamp
            saved = live.document.live.revision
        return {"revision": saved, "mtime": 0 if stamp is None else stamp.mtime_ns}

    async def recovery(self, client: Client, *, branch: str) -> str:
        """Return the changes of the last recovery of roles as a unified diff; "" if there was none."""
        live = self._kernel.opened(self._ref(branch).key)
        known = live.recovery if live is not None else None
        return await asyncio.to_thread(role_diff, *known) if known else ""

    async def keep_settings(self, client: Client, *, branch: str) -> SettingsKept:
        """Write the settings in which the document's Local Variables differ from ``preset.md`` to that file.

        A named agent's model is written to its ``agent.json``, which owns it.
        """
        async with self._kernel.using(self._ref(branch)) as live:
            live.require_writable()
            await live.document.look()
            values = live.override(self._kernel.presets.of_branch(live.ref))
            await write_settings(self._kernel, live.ref, values)
            own = self._kernel.presets.of_branch(live.ref)
            live.given = settings_in_document(settings_of(own))
            live.note_given()
            made_from = await _made_from(live)
            return {"kept": sorted(values), **self._described_live(live, own, made_from)}

    async def configure(
        self,
        client: Client,
        *,
        branch: str,
        thinking: str | None = None,
        system: str | None = None,
        tools: str | Sequence[str] | None = None,
    ) -> BranchDescription:
        """Write thinking, system prompt and tools to a session's ``preset.md``.

        Arguments that are left out change nothing; tools are a list of names, or one string of names, "" for none. A
        named agent's system prompt is written to its ``agent.json``, which owns it. An editor then updates the tools
        in its Local Variables from the reply.
        """
        given = {"thinking": thinking, "system": system, "tools": tools}
        values = parse_message_settings({name: value for name, value in given.items() if value is not None})
        async with self._kernel.using(self._ref(branch)) as live:
            live.require_writable()
            seen = (await live.document.look()).document.settings
            override = dict(live.override(self._kernel.presets.of_branch(live.ref)))
            await write_settings(self._kernel, live.ref, values)
            own = self._kernel.presets.of_branch(live.ref)
            if "tools" in values:
                override.pop("tools", None)
                live.write_settings(
                    given=settings_in_document(settings_of(own)),
                    effective=effective_settings(own, override),
                    seen=seen,
                )
                live.note_given()
                await live.document.flush()
            return self._described_live(live, own, await _made_from(live))

    async def system_prompt(self, client: Client, *, branch: str) -> str:
        """Return the system prompt of the session's configuration, without the daemon's additions."""
        async with self._kernel.using(self._ref(branch)) as live:
            return self._kernel.presets.of_branch(live.ref).body

    async def tools_available(self, client: Client, *, branch: str) -> ToolsReply:
        """Return the names of the tools available to a session, and of those that are switched on.

        Tools of MCP servers are not included: ``mcp`` in the preset switches their servers.
        """
        async with self._kernel.using(self._ref(branch)) as live:
            preset = self._kernel.presets.of_branch(live.ref)
            on = preset_with_overrides(preset, live.override(preset)).tools
            return {"tools": available_tools(self._kernel, live, on), "on": on}

    async def drop_settings(self, client: Client, *, branch: str) -> SettingsDropped:
        """Drop the settings of the document's Local Variables; those of ``preset.md`` apply again."""
        async with self._kernel.using(self._ref(branch)) as live:
            live.require_writable()
            seen = (await live.document.look()).document.settings
            own = self._kernel.presets.of_branch(live.ref)
            dropped = live.override(own)
            if dropped:
                settings = settings_in_document(settings_of(own))
                live.write_settings(given=settings, effective=settings, seen=seen)
                await live.document.flush()
            shown = self._described_live(live, own, await _made_from(live))
            return {"dropped": sorted(dropped), **shown, "settings": shown["own_settings"], "overridden": []}

    async def send(
        self,
        client: Client,
        *,
        branch: str,
        revision: int,
        end: int,
        after: str = "",
        env: Env = NOTHING,
        allow: Sequence[str] = (),
        id: str | None = None,
        agent: str | None = None,
        model: str | None = None,
        settings: Mapping[str, Any] = NOTHING,
    ) -> PromptReceipt | CommandAnswered:
        """Submit the prompt that ends at position ``end`` of the document at ``revision``.

        With ``after`` it is a position in the text after the client's own edit with that id.

        A slash command is answered at once. ``settings`` apply to this message only.
        """
        at = DocumentVersion(revision=revision, after=after, marker=end - 1)
        given = Submission(text=None, at=at, options=send_options(client, env, allow), id=id)
        return await self._submit(client, branch, given, agent, model, settings)

    async def prompt(
        self,
        client: Client,
        *,
        branch: str,
        text: str,
        env: Env = NOTHING,
        allow: Sequence[str] = (),
        id: str | None = None,
        agent: str | None = None,
        model: str | None = None,
        settings: Mapping[str, Any] = NOTHING,
        steer: bool = False,
        command: CommandRule = "human",
    ) -> PromptReceipt | CommandAnswered:
        """Submit ``text`` as the next message; it is inserted into the document when its turn begins.

        A slash command is run at once; one that changes something is run only for a client with a human. With
        ``command`` "never" the text is always a message, and with "always" every command is run.
        """
        options = send_options(client, env, allow)
        given = Submission(text=text, options=options, id=id, steer=steer, command=command)
        return await self._submit(client, branch, given, agent, model, settings)

    async def _submit(
        self,
        client: Client,
        branch: str,
        message: Submission,
        agent: str | None,
        model: str | None,
        settings: Mapping[str, Any],
    ) -> PromptReceipt | CommandAnswered:
        """Submit a message that may set preset, model (``[BACKEND/]MODEL``) or settings of its turn.

        Raises:
            BadRequest: A setting is unknown or of the wrong kind, or there is no such model.
        """
        metadata: dict[str, Any] = {"agent": agent} if agent else {}
        if settings:
            parse_message_settings(settings)
            if given := {name: value for name, value in settings.items() if value is not None}:
                metadata["settings"] = given
            if own := given.get("model"):
                given["model"] = await self._model_named(branch, own, message.options)
        if model:
            provider, _, name = (await self._model_named(branch, model, message.options)).rpartition("/")
            metadata["model"] = {"provider_id": provider or None, "model_id": name}
        submission = replace(message, metadata=metadata)
        async with self._kernel.using(self._ref(branch)) as live:
            if live.document.trouble or live.run is None:  # record nothing if the typed text cannot be saved
                await live.document.flush()
            if (done := await run_if_command(self._kernel, live, submission, client)) is not None:
                receipt, command = done
                return {**prompt_receipt(receipt), "message": receipt.message_id or None, "command": command}
            made = await self._kernel.submit(live, submission)
        return prompt_receipt(made)

    async def _model_named(self, branch: str, model: str, options: SendOptions) -> str:
        """Return the full name of the model that a message names, checked as in ``/model``."""
        kernel, ref = self._kernel, self._ref(branch)
        checked = await checked_model(kernel, kernel.presets.of_branch(ref), model, options)
        if checked.note:
            async with kernel.using(ref) as live:
                live.say(checked.note)
        return checked.model

    async def abort(self, client: Client, *, branch: str) -> AbortReply:
        """Stop the branch's run."""
        async with self._kernel.using(self._ref(branch)) as live:  # resumes what an earlier daemon left waiting
            aborted = await self._kernel.abort(live)
        return {"aborted": aborted, "note": None if aborted else "Not running"}

    async def show(self, client: Client, *, branch: str, message: str | None = None) -> ShownConversation:
        """Return the conversation up to row ``seq`` as canonical JSON, if large in a file.

        With ``message`` it only has the model's messages that answer that one.
        """
        async with self._kernel.using(self._ref(branch)) as live:
            live.recorder.flush()
            shown = live.conversation.canonical() | ({"usage": summary(live.meter)} if live.meter else {})
            shown |= {"todo": steps} if (steps := todo.current_items(live.conversation)) else {}
            if message is not None:
                shown["messages"] = list(_answers(shown["messages"], message))
            text, seq = json.dumps(shown, ensure_ascii=False), live.recorder.last_seq
        return {**await self._json_reply("show", text), "seq": seq}

    def _described_live(self, live: LiveBranch, preset: Preset, made_from: str | None) -> BranchDescription:
        override, agents = live.override(preset), self._kernel.find(AgentSpawner)
        holds = preset_with_overrides(preset, override)
        return {
            "session_id": live.ref.session_id,
            "root": live.conversation.session.get("workspace_root"),
            "agents": [] if agents is None else list(agents.running(live.key)),
            "asks": cast(list[AskRow], self._kernel.asks.open_for(live.key)),
            "queue": cast(list[QueueItem], live.queue.to_wire()),
            "todo": list(todo.current_items(live.conversation)),
            "failed": failed_calls(live.conversation),
            "summaries": call_summaries(live.conversation),
            "reply_options": suggestions.current_options(live.conversation) if live.run is None else None,
            "context": live.meter.to_wire() if live.meter else None,
            "preset": made_from,
            "model": holds.model,
            "turn": cast(NextTurn, next_turn(self._kernel.presets, live.ref, live.conversation)),
            "settings": reply_of(SettingsRow, settings_of(holds)),
            "own_settings": reply_of(SettingsRow, settings_of(preset)),
            "gptel_tools": settings_in_document(settings_of(preset)).tools,
            "overridden": sorted(override),
            "thinking": holds.thinking or None,
        }

    async def compact(
        self,
        client: Client,
        *,
        branch: str,
        instructions: str = "",
        wait: bool = False,
        env: Env = NOTHING,
    ) -> CompactReply:
        """Summarise the conversation; ``instructions`` say what to keep, ``wait`` delays the reply until the end."""
        options = send_options(client, env, ())
        async with self._kernel.using(self._ref(branch)) as live:
            run = await compact(self._kernel, live, options, instructions.strip())
            started: CompactReply = {"run": run, "seq": live.recorder.last_seq}
            if not wait or live.task is None:
                return started
            await asyncio.wait([live.task])
            return cast(CompactReply, {**started, "seq": live.recorder.last_seq, **_compaction_ended(live, run)})

    async def agents_available(self, client: Client, *, branch: str) -> AgentsAvailable:
        """Return the presets that can answer the next turn of a branch."""
        async with self._kernel.using(self._ref(branch)) as live:
            root = live.conversation.session.get("workspace_root")
            presets = await asyncio.to_thread(self._kernel.presets.for_project, Path(root) if root else None)
            agents = {} if live.ref.is_agent else await asyncio.to_thread(turn_agents, presets)
            rows = [
                reply_of(
                    TurnAgent,
                    preset,
                    name=name,
                    description=preset.description[:_DESCRIPTION],
                    model=preset.model or None,
                    origin=presets.usable[name].origin,
                )
                for name, preset in agents.items()
            ]
            turn = cast(NextTurn, next_turn(self._kernel.presets, live.ref, live.conversation))
            return {**turn, "agents": rows}

    async def approve(
        self,
        client: Client,
        *,
        branch: str,
        agent: str = BUILD,
        env: Env = NOTHING,
        allow: Sequence[str] = (),
        id: str | None = None,
    ) -> PromptReceipt:
        """Approve the plan in a branch: send a message that says so, which the preset ``agent`` answers.

        Like any typed message it is queued while a run is in flight.
        """
        options = send_options(client, env, allow)
        async with self._kernel.using(self._ref(branch)) as live:
            name = live.ref.session_id
            if not next_turn(self._kernel.presets, live.ref, live.conversation)["plan"]:
                hint = "Say what is to be done in a message of your own"
                raise BadRequest(f"{name} is not in plan mode", hint=hint)
            if not any(
                each.role == "assistant" and not each.is_hidden for each in live.conversation.messages.values()
            ):
                raise BadRequest(f"{name} has no plan yet", hint="Ask for one first")
            submission = Submission(text=APPROVED, options=options, id=id, metadata={"agent": agent})
            made = await self._kernel.submit(live, submission)
        return prompt_receipt(made)

    async def skills(self, client: Client, *, root: str | None = None) -> SkillsReply:
        """Return the skills for sessions in the project ``root``."""
        found = await asyncio.to_thread(lambda: skills_of(self._kernel.config, directory(root) if root else None))
        return {
            "skills": [reply_of(SkillRow, skill, file=str(skill.file)) for skill in found.found.values()],
            "hidden": [{"name": s.name, "file": str(s.file), "by": str(by.file)} for s, by in found.hidden],
            "broken": [{"file": str(file), "error": str(error)} for file, error in found.broken],
        }


def _answers(messages: Sequence[Mapping[str, Any]], prompt: str) -> Iterator[Mapping[str, Any]]:
    """Yield the model's messages that answer a prompt, also after the user steered the run."""
    within = False
    for each in messages:
        row = each["message"]
        if row["role"] == "user" and not (row.get("metadata_json") or {}).get("steered"):
            within = False
        if row["id"] == prompt:
            within = True
        elif within and row["role"] == "assistant" and not row.get("hidden_at"):
            yield each


def _edit_from_wire(hunks: Sequence[Any]) -> Edit:
    """Parse an edit that a client sent.

    Raises:
        BadRequest: It is malformed.
    """
    found, last = [], 0
    for hunk in hunks:
        match hunk:
            case [int(begin), int(end), str(text), *rest] if last < begin <= end:
                roles = (rest[0] if rest else None) or ()
                spans = sorted(span for each in roles for span in _span_from_wire(each, len(text)))
                found.append(Hunk(begin - 1, end - 1, writable(text), merge_spans(spans)))
                last = end - 1
            case _:
                raise BadRequest(f"No hunk of an edit: {str(hunk)[:60]}", hint="(BEG END TEXT ROLES), in order")
    return normalise_hunks(found)


def _span_from_wire(given: Any, length: int) -> Iterator[Span]:
    match given:
        case [int(begin), int(end), [_, call_id]] if 0 < begin < end <= length + 1:
            yield Span(begin - 1, end - 1, "tool", str(call_id))
        case [int(begin), int(end), role] if 0 < begin < end <= length + 1 and str(role) in ("response", "ignore"):
            yield Span(begin - 1, end - 1, "ignore" if str(role) == "ignore" else "response")
        case _:
            raise BadRequest(f"No role of a text: {str(given)[:60]}", hint="(BEG END ROLE)")


def _local_settings(values: Mapping[str, Any]) -> Settings:
    """Parse the values of the Local Variables that an editor sent."""
    tools = values.get("tools")
    return Settings(
        model=values.get("model") or None,
        backend=values.get("backend") or None,
        tools=None if tools is None else tuple(map(str, tools)),
        temperature=values.get("temperature"),
        max_tokens=values.get("max_tokens"),
    )


def _compaction_ended(live: LiveBranch, run: str) -> dict[str, Any]:
    """Return the outcome of a compaction."""
    data = live.conversation.runs[run].data
    error: Mapping[str, Any] = data.get("error") or {}
    ended = {"reason": data.get("reason"), "message": error.get("message") or "", "code": error.get("code") or ""}
    marker = marker_of(live.conversation, run)
    if marker is None:
        return ended
    facts: Mapping[str, Any] = marker.data.get("metadata") or {}
    made = {key: marker.data.get(key) for key in ("summary", "tail_start_id", "auto", "summary_tokens")}
    made |= {"id": marker.row["message_id"], "messages": facts.get("messages"), "tokens": facts.get("tokens")}
    return {**ended, **made}


async def _made_from(live: LiveBranch) -> str | None:
    """Return the name of the preset that a branch was made from, according to ``scope-plan.yml``."""
    stamp = stamp_of(paths.scope_plan_file(live.ref.branch_dir))
    if live.made_from is None or live.made_from[0] != stamp:
        found = await asyncio.to_thread(metadata.read_session_metadata, live.ref.branch_dir)
        live.made_from = stamp, (found or {}).get("preset")
    return live.made_from[1]
