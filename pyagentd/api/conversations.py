"""Operations on one conversation: attach, edit, send, queue, abort, compact."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyagentd.api.commands import command_to_wire
from pyagentd.api.group import (
    INLINE_LIMIT,
    Client,
    Group,
    command_options,
    directory,
    message_settings,
    send_options,
    spill,
    told_submitted,
    turn_metadata,
)
from pyagentd.api.models import TOOLS, checked_model, summary
from pyagentd.errors import BadRequest, Busy, NotFound
from pyagentd.events import Event
from pyagentd.features import contexts as emptied
from pyagentd.features import named_agents, suggestions, todo
from pyagentd.features.agents import AgentSpawner
from pyagentd.features.compaction import compact, marker_of
from pyagentd.features.emacs import EmacsClients
from pyagentd.features.schedules import local_user
from pyagentd.features.slash_commands import CommandOutcome, Commands, run_if_command
from pyagentd.features.usage import tell_below
from pyagentd.policy.presets import Preset, parse_message_settings
from pyagentd.runtime import attaching, turn_agent
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.document_sync import (
    DocumentVersion,
    effective_settings,
    preset_with_overrides,
    settings_in_document,
    settings_of,
)
from pyagentd.runtime.kernel import Kernel
from pyagentd.runtime.queue import Submission
from pyagentd.runtime.run_setup import shell_scope
from pyagentd.runtime.settings import SendOptions
from pyagentd.runtime.status import call_summaries, failed_calls
from pyagentd.runtime.system_prompt import skills_of
from pyagentd.store import metadata, paths, presetfile
from pyagentd.store.document.heal import role_diff
from pyagentd.store.document.text import Settings
from pyagentd.store.paths import BranchRef
from pyagentd.tools.sandbox import enclosure

# Operations on the messages that wait for their turn, and on what a session is doing.


class Queue(Group):
    """One branch at a time."""

    async def queue(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return the messages that wait, the next one first: {id, text, queued_at, steer, origin, …} each."""
        async with self._kernel.using(self._ref(branch)) as live:
            return {"items": live.queue.to_wire(), "paused": live.paused and bool(live.queue.waiting)}

    async def queue_cancel(self, client: Client, *, branch: str, id: str) -> dict[str, Any]:
        """Take a message back; its text is the client's again. What stands in the document stays there."""
        async with self._kernel.using(self._ref(branch)) as live:
            return {"text": await self._kernel.queue.cancel(live, id)}

    async def queue_edit(self, client: Client, *, branch: str, id: str, text: str) -> None:
        """Replace the text of a message; its place in the queue stays."""
        async with self._kernel.using(self._ref(branch)) as live:
            await self._kernel.queue.edit(live, id, text)

    async def queue_pause(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Have what waits, if anything does, wait until somebody goes on: before a run is stopped."""
        async with self._kernel.using(self._ref(branch)) as live:
            self._kernel.queue.pause(live)
            return {"paused": live.paused}

    async def queue_resume(
        self,
        client: Client,
        *,
        branch: str,
        env: Mapping[str, str] | Sequence[Any] = (),
        key: str | None = None,
    ) -> dict[str, Any]:
        """Go on with a queue that is paused; environment and key are for messages whose client is gone."""
        options = send_options(client, env, key, ())
        async with self._kernel.using(self._ref(branch)) as live:
            live.require_writable()
            return {"waiting": await self._kernel.queue.resume(live, options)}

    async def get_status(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return what a session is doing, as its ``status`` events say it; after a restart that is ``idle``."""
        async with self._kernel.using(self._ref(branch)) as live:
            return live.status

    async def retry_now(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Send the request that failed again at once, if one waits for that."""
        async with self._kernel.using(self._ref(branch)) as live:
            waits = live.status["state"] == "retrying" and live.run is not None
            if waits and live.run is not None:
                live.run.retry_now()
            return {"retried": waits}


# Operations on slash commands: which there are, and one that is asked for without a prompt.


class SlashCommands(Group):
    """What is typed behind a slash."""

    async def commands(self, client: Client, *, branch: str | None = None) -> dict[str, Any]:
        """Return the commands of a conversation, or without ``branch`` those that hold anywhere: ``{commands}``.

        Each has ``name`` (without the slash, words with one space between), ``summary``, ``synopsis``, ``origin`` and
        ``arguments``, each with ``name``, ``hint`` (how it is written), ``summary``, ``required``, ``takes`` ("word",
        "rest" or "flag"), ``values`` (what completes it: "agents", "keys", "models", "permissions", "contexts",
        "tasks", "commands" or "") and ``choices``. Nobody outside is asked for them.
        """
        ref = self._ref(branch) if branch else None
        found = await self._kernel.feature(Commands).of(ref)
        return {"commands": [command_to_wire(command) for command in found.values()]}


def told_answered(made: CommandOutcome) -> dict[str, Any]:
    """Return what became of a command, in the shape of what becomes of a message.

    ``command`` is ``{name, text, json, code, recorded, began}``: the answer, for people and as JSON for programs; the
    code of an error or nil; whether both stand in the conversation; the run that the command began and that goes on,
    such as a compaction, or nil. ``run`` is nil where they do not, unless the command
    sent a message to the model: then it is that run, or ``queued`` says that the message waits.
    """
    command = {
        "name": made.name,
        "text": made.text,
        "json": json.dumps(made.data, ensure_ascii=False),
        "code": made.code or None,
        "recorded": made.is_recorded,
        "began": made.began or None,
    }
    if made.submitted is not None:
        return {**told_submitted(made.submitted), "command": command}
    run, message = made.run_id or None, made.message_id or None
    return {"run": run, "message": message, "queued": False, "seq": made.seq, "ended": "done", "command": command}


class Conversations(Group):
    """One branch at a time."""

    async def attach(
        self,
        client: Client,
        *,
        branch: str,
        sha256: str | None = None,
        seq: int | None = None,
        mode: str = "edit",
    ) -> dict[str, Any]:
        """Watch a branch, and edit it when nobody else does, from the text that has hash ``sha256``.

        Who only views may leave the hash out, and is told what comes from now on.
        """
        if mode not in ("edit", "view"):
            raise BadRequest(f"{mode!r} is no mode", hint="edit or view")
        if mode == "edit" and sha256 is None and seq is None:
            raise BadRequest("Who edits says which text: sha256 is missing", hint="Send it, or attach with mode view")
        async with self._kernel.using(self._ref(branch)) as live:
            preset = self._kernel.presets.of_branch(live.ref)
            scope = shell_scope(self._kernel.presets, live.ref, (), self._kernel.config)()
            unconfined = await asyncio.to_thread(enclosure.unconfined, scope) if "Bash" in preset.tools else ""
            made_from = await _made_from(live.ref)
            answer = await attaching.attach(
                live, client, sha256=sha256, seq=seq, mode="view" if mode == "view" else "edit"
            )
            # Nothing is awaited from here on: an event that overtook the answer would be taken for a part of it.
            if answer is None:
                return {"branch": live.key, "reread": True}
            if answer["editor"]:
                live.given = settings_in_document(settings_of(preset))
                live.note_said()
                if live.key in self._kernel.emptied and client.human:
                    emptied.ask(self._kernel, live)
            if live.meter is not None and not live.meter.looked and paths.agents_dir(live.ref.branch_dir).is_dir():
                self._kernel.spawn(tell_below(self._kernel, live))
            notes = [
                *answer["notes"],
                *self._kernel.origins.notes(live.ref),
                *named_agents.opening_notes(self._kernel, live),
            ]
            described = self._described_live(live, preset, made_from)
            return {**answer, "notes": notes, "unconfined": unconfined, **described}

    async def detach(self, client: Client, *, branch: str) -> None:
        """Stop watching; a run goes on, and the daemon writes its text from now on."""
        if (live := self._kernel.opened(branch)) is not None:
            async with self._kernel.using(live.ref):
                live.detach(client)

    async def saved(self, client: Client, *, branch: str, sha256: str, seq: int, marker: int | None = None) -> None:
        """Note that the editor saved everything up to event ``seq``, the run's marker at position ``marker``."""
        offset = None if marker is None else marker - 1
        self._open(branch).saved(client, DocumentVersion(sha256=sha256, seq=seq, marker=offset))

    async def lease(self, client: Client, *, branch: str, take: bool = False) -> dict[str, Any]:
        """Ask to become the editor of a branch that is attached; with ``take`` the present one is asked to leave."""
        live = self._open(branch)
        if client not in live.sinks:
            raise NotFound(f"{branch} is not attached by this client", hint="Attach it first")
        if not take or live.refusal:
            return {"editor": not live.refusal and live.lease.offer(client, None)}
        async with self._kernel.using(live.ref):
            return {"editor": await live.lease.take(client, client.name)}

    async def release(self, client: Client, *, branch: str) -> None:
        """Stop editing, and go on watching."""
        self._open(branch).lease.release(client)

    async def recovery(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return what the last recovery of roles changed, as a unified diff; "" when nothing was recovered."""
        live = self._kernel.opened(self._ref(branch).key)
        known = live.reader.recovery if live is not None else None
        return {"diff": await asyncio.to_thread(role_diff, *known) if known else ""}

    async def keep_settings(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Write what the document's Local Variables set in place of the preset into ``preset.md``.

        A named agent's model is written into its ``agent.json``, which owns it.
        """
        async with self._kernel.using(self._ref(branch)) as live:
            live.require_writable()
            await live.reader.look(compare=False)
            values = live.override(self._kernel.presets.of_branch(live.ref))
            if left := await named_agents.keep_document_settings(self._kernel, live.ref, values, user=local_user()):
                keys = {name.replace("_", "-"): value for name, value in left.items()}
                with self._kernel.origins.keeping(live.ref):
                    presetfile.set_values(paths.preset_file(live.ref.branch_dir), keys)
            own = self._kernel.presets.of_branch(live.ref)
            live.given = settings_in_document(settings_of(own))
            live.note_given()
            made_from = await _made_from(live.ref)
            return {"kept": sorted(values), **self._described_live(live, own, made_from)}

    async def configure(
        self,
        client: Client,
        *,
        branch: str,
        thinking: str | None = None,
        system: str | None = None,
        tools: str | Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """Write how much the model thinks, the system prompt and the tools into a session's ``preset.md``.

        What is not given stays; tools are names, or one text of names, "" for none. A named agent's system prompt is
        written into its ``agent.json``, which owns it. An editor gives its Local Variables the tools it is told.
        """
        given = {"thinking": thinking, "system": system, "tools": tools}
        values = parse_message_settings({name: value for name, value in given.items() if value is not None})
        body = values.pop("body", None)
        async with self._kernel.using(self._ref(branch)) as live:
            live.require_writable()
            reading = await live.reader.look(compare=False)
            file, ref = paths.preset_file(live.ref.branch_dir), live.ref
            override = dict(live.override(self._kernel.presets.of_branch(ref)))
            if body is not None and self._kernel.named.is_named(ref):
                await named_agents.set_setting(
                    self._kernel, ref.session_dir.name, "system_prompt", body, user=local_user()
                )
                body = None
            with self._kernel.origins.keeping(ref):
                presetfile.set_values(file, values)
                if body is not None:
                    presetfile.set_body(file, body)
            own = self._kernel.presets.of_branch(ref)
            if "tools" in values:
                override.pop("tools", None)
                live.write_settings(
                    given=settings_in_document(settings_of(own)),
                    effective=effective_settings(own, override),
                    seen=reading.settings,
                )
                live.note_given()
                if live.document.editor is None:
                    live.document.renew()
                    await live.document.flush()
            return self._described_live(live, own, await _made_from(live.ref))

    async def system_prompt(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return the system prompt in the session's configuration as ``{system}``, without what the daemon adds."""
        async with self._kernel.using(self._ref(branch)) as live:
            return {"system": self._kernel.presets.of_branch(live.ref).body}

    async def tools_available(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return the names of the tools that a session can have, and of those that are on, as ``{tools, on}``.

        Tools of MCP servers are not among them: ``mcp`` in the preset switches their servers.
        """
        async with self._kernel.using(self._ref(branch)) as live:
            preset = self._kernel.presets.of_branch(live.ref)
            on = preset_with_overrides(preset, live.override(preset)).tools
            emacs = self._kernel.find(EmacsClients)
            offered = () if emacs is None else emacs.tools(self._kernel.watching(live))
            return {"tools": sorted({*on, *TOOLS, *offered}, key=str.casefold), "on": on}

    async def drop_settings(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Go back to what ``preset.md`` says; the editor, if there is one, calls this and saves what it is told."""
        async with self._kernel.using(self._ref(branch)) as live:
            live.require_writable()
            if live.document.editor not in (None, client):
                raise Busy(f"Another client edits {live.ref.session_id}", hint="Take over first, or do it there")
            reading = await live.reader.look(compare=False)
            own = self._kernel.presets.of_branch(live.ref)
            dropped = live.override(own)
            if dropped and live.document.editor is None:
                settings = settings_in_document(settings_of(own))
                live.write_settings(given=settings, effective=settings, seen=reading.settings)
                live.document.renew()
                await live.document.flush()
            told = self._described_live(live, own, await _made_from(live.ref))
            return {"dropped": sorted(dropped), **told, "settings": told["own_settings"], "overridden": []}

    async def send(
        self,
        client: Client,
        *,
        branch: str,
        sha256: str,
        end: int,
        env: Mapping[str, str] | Sequence[Any] = (),
        key: str | None = None,
        allow: Sequence[str] = (),
        id: str | None = None,
        agent: str | None = None,
        model: str | None = None,
        settings: Mapping[str, Any] | Sequence[Any] = (),
    ) -> dict[str, Any]:
        """Submit the prompt that ends at position ``end`` of the saved document with hash ``sha256``.

        A slash command is answered at once, see ``told_answered``. ``settings`` hold for this message only.
        """
        options = send_options(client, env, key, allow)
        metadata = await self._metadata(branch, options, agent, model, settings)
        given = Submission(text=None, sha256=sha256, end=end - 1, options=options, id=id, metadata=metadata)
        return await self._submit(client, branch, given)

    async def prompt(
        self,
        client: Client,
        *,
        branch: str,
        text: str,
        env: Mapping[str, str] | Sequence[Any] = (),
        key: str | None = None,
        allow: Sequence[str] = (),
        id: str | None = None,
        agent: str | None = None,
        model: str | None = None,
        settings: Mapping[str, Any] | Sequence[Any] = (),
        steer: bool = False,
        command: str = "human",
    ) -> dict[str, Any]:
        """Submit ``text`` as the next message; it is put into the document when its turn comes.

        A slash command is answered at once, see ``told_answered``; one that changes something only from a client with
        a human. With ``command`` "never" the text is a message whatever it looks like, and with "always" a command is
        done in any case.
        """
        options = send_options(client, env, key, allow)
        metadata = await self._metadata(branch, options, agent, model, settings)
        given = Submission(
            text=text, options=options, id=id, metadata=metadata, steer=bool(steer), command=command_options(command)
        )
        return await self._submit(client, branch, given)

    async def _metadata(
        self,
        branch: str,
        options: SendOptions,
        agent: str | None,
        model: str | None,
        settings: Mapping[str, Any] | Sequence[Any],
    ) -> dict[str, Any]:
        """Return the metadata of a message, its models checked; raises as ``turn_metadata``."""
        given = message_settings(settings)
        if own := given.get("model"):
            given["model"] = await self._model_named(branch, own, options)
        return turn_metadata(agent, await self._model_named(branch, model, options), given)

    async def _model_named(self, branch: str, model: str | None, options: SendOptions) -> str | None:
        """Return the model that a message names as it is written, checked as ``/model`` checks it."""
        if not model:
            return None
        kernel, ref = self._kernel, self._ref(branch)
        checked = await checked_model(kernel, kernel.presets.of_branch(ref), model, options)
        if checked.note:
            async with kernel.using(ref) as live:
                live.publish(Event("notice", live.key, 0, ({"text": checked.note},)))
        return checked.model

    async def _submit(self, client: Client, branch: str, given: Submission) -> dict[str, Any]:
        async with self._kernel.using(self._ref(branch)) as live:
            if (done := await run_if_command(self._kernel, live, given, client)) is not None:
                return told_answered(done)
            made = await self._kernel.submit(live, given)
        return told_submitted(made)

    async def abort(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Stop the branch's run; ``note`` says that there was none."""
        async with self._kernel.using(self._ref(branch)) as live:  # what waits since an earlier daemon goes on first
            aborted = await self._kernel.abort(live)
        return {"aborted": aborted, "note": None if aborted else "Not running"}

    async def show(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return the conversation up to row ``seq`` as canonical JSON, when large as a file."""
        async with self._kernel.using(self._ref(branch)) as live:
            live.recorder.flush()
            shown = live.conversation.canonical() | ({"usage": summary(live.meter)} if live.meter else {})
            shown |= {"todo": steps} if (steps := todo.current(live.conversation)) else {}
            text, seq = json.dumps(shown, ensure_ascii=False), live.recorder.last_seq
        if len(text) < INLINE_LIMIT:
            return {"json": text, "seq": seq}
        return {"path": str(spill(self._kernel.config.runtime_dir, live.ref, text)), "seq": seq}

    def _described_live(self, live: LiveBranch, preset: Preset, made_from: str | None) -> dict[str, Any]:
        override, agents = live.override(preset), self._kernel.find(AgentSpawner)
        holds = preset_with_overrides(preset, override)
        return {
            "session_id": live.ref.session_id,
            "root": live.conversation.session.get("workspace_root"),
            "agents": [] if agents is None else agents.running(live.key),
            "asks": self._kernel.asks.open_for(live.key),
            "queue": live.queue.to_wire(),
            "todo": todo.current(live.conversation),
            "failed": failed_calls(live.conversation),
            "summaries": call_summaries(live.conversation),
            "reply_options": suggestions.current_options(live.conversation).to_wire() if live.run is None else None,
            "context": live.meter.to_wire() if live.meter else None,
            "preset": made_from,
            "model": holds.model,
            "turn": turn_agent.next_turn(self._kernel.presets, live.ref, live.conversation),
            "settings": _told(settings_of(holds)),
            "own_settings": _told(settings_of(preset)),
            "gptel_tools": settings_in_document(settings_of(preset)).tools,
            "overridden": sorted(override),
            "thinking": holds.thinking or None,
        }


def _told(settings: Settings) -> dict[str, Any]:
    return {
        "model": settings.model,
        "backend": settings.backend,
        "tools": settings.tools,
        "temperature": settings.temperature,
        "max_tokens": settings.max_tokens,
    }


# Operations on the length of a conversation: compacting it when somebody wants it.


class Compaction(Group):
    """One conversation."""

    async def compact(
        self,
        client: Client,
        *,
        branch: str,
        instructions: str = "",
        wait: bool = False,
        env: Mapping[str, str] | Sequence[Any] = (),
        key: str | None = None,
    ) -> dict[str, Any]:
        """Summarise everything said so far; ``instructions`` say what to keep, ``wait`` answers when it is done."""
        options = send_options(client, env, key, ())
        async with self._kernel.using(self._ref(branch)) as live:
            run = await compact(self._kernel, live, options, instructions.strip())
            started = {"run": run, "seq": live.recorder.last_seq}
            if not wait or live.task is None:
                return started
            await asyncio.wait([live.task])
            return {**started, "seq": live.recorder.last_seq, **_compaction_told(live, run)}


def _compaction_told(live: LiveBranch, run: str) -> dict[str, Any]:
    """Return how a compaction ended, and what it made."""
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


# Operations on who answers: the agents there are for the next turn, and approving a plan.

APPROVED = "Approved, continue."
"""What the user's message says that approves a plan; the same words as in other hosts of agents."""

BUILD = "build"

_DESCRIPTION = 300  # characters of one, as far as they are told


class TurnAgents(Group):
    """The agents of turns."""

    async def agents_available(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return which agents the next turn of a branch may have.

        The answer is ``{agent, opened_with, plan, agents: (A…)}``: the name of the next turn's and of the session's
        own, whether that turn can only look, and for each A ``{name, description, model, read_only, origin}``.
        """
        async with self._kernel.using(self._ref(branch)) as live:
            root = live.conversation.session.get("workspace_root")
            presets = await asyncio.to_thread(self._kernel.presets.for_project, Path(root) if root else None)
            agents = {} if live.ref.is_agent else await asyncio.to_thread(turn_agent.turn_agents, presets)
            rows = [
                {
                    "name": name,
                    "description": preset.description[:_DESCRIPTION],
                    "model": preset.model or None,
                    "read_only": preset.read_only,
                    "origin": presets.usable[name].origin,
                }
                for name, preset in agents.items()
            ]
            return {**turn_agent.next_turn(self._kernel.presets, live.ref, live.conversation), "agents": rows}

    async def approve(
        self,
        client: Client,
        *,
        branch: str,
        agent: str = BUILD,
        env: Mapping[str, str] | Sequence[Any] = (),
        key: str | None = None,
        allow: Sequence[str] = (),
        id: str | None = None,
    ) -> dict[str, Any]:
        """Approve the plan in a branch: the user's message that says so, answered by ``agent``.

        It is a message like any that is typed: it waits for its turn while a run is in flight, and no trigger.
        """
        options = send_options(client, env, key, allow)
        async with self._kernel.using(self._ref(branch)) as live:
            _require_plan(self._kernel, live)
            given = Submission(text=APPROVED, options=options, id=id, metadata={"agent": agent})
            made = await self._kernel.submit(live, given)
        return told_submitted(made)

    async def skills(self, client: Client, *, root: str | None = None) -> dict[str, Any]:
        """Return the skills for sessions in the project ``root``.

        The answer is ``{skills: (S…), hidden: (H…), broken: (B…)}``: S is ``{name, description, file, origin}``, H
        ``{name, file, by}`` with the file that counts instead, B ``{file, error}``, which names the line.
        """
        found = await asyncio.to_thread(lambda: skills_of(self._kernel.config, directory(root) if root else None))
        return {
            "skills": [
                {"name": s.name, "description": s.description, "file": str(s.file), "origin": s.origin}
                for s in found.found.values()
            ],
            "hidden": [{"name": s.name, "file": str(s.file), "by": str(by.file)} for s, by in found.hidden],
            "broken": [{"file": str(file), "error": str(error)} for file, error in found.broken],
        }


def _require_plan(kernel: Kernel, live: LiveBranch) -> None:
    """Raise ``BadRequest`` where there is no plan to approve."""
    if not turn_agent.next_turn(kernel.presets, live.ref, live.conversation)["plan"]:
        raise BadRequest(
            f"{live.ref.session_id} is not in plan mode", hint="Say what is to be done in a message of your own"
        )
    if not any(each.role == "assistant" and not each.is_hidden for each in live.conversation.messages.values()):
        raise BadRequest(f"{live.ref.session_id} has no plan yet", hint="Ask for one first")


async def _made_from(ref: BranchRef) -> str | None:
    """Return the name of the preset that a branch was made from, as ``scope-plan.yml`` has it."""
    found = await asyncio.to_thread(metadata.read_session_metadata, ref.branch_dir)
    return (found or {}).get("preset")
