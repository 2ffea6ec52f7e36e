"""Operations on one conversation: watching and editing it, sending, stopping."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyagentd.agent.approving.confining import shell_scope
from pyagentd.agent.branches import attaching
from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.branches.override import effective, overridden, printed, settings_of
from pyagentd.agent.branches.persist import Version
from pyagentd.agent.commands.answering import answered
from pyagentd.agent.context.metering import tell_below
from pyagentd.agent.dialogue import chips, failed, todo
from pyagentd.agent.lifecycle import configuring, creating
from pyagentd.agent.running.settings import SendOptions
from pyagentd.agent.triggering.triggers import local_user
from pyagentd.agent.turns import turnagent
from pyagentd.agent.turns.queue import Submission
from pyagentd.errors import BadRequest, Busy, NotFound
from pyagentd.events import Event
from pyagentd.policy.presets import Preset, parse_message_settings
from pyagentd.service.group import INLINE_LIMIT, Client, Group, spill
from pyagentd.service.models import checked_model
from pyagentd.service.options import commanding, message_settings, send_options, told_submitted, turn_metadata
from pyagentd.service.presets import TOOLS
from pyagentd.service.slash import told_answered
from pyagentd.service.usage import summary
from pyagentd.store import metadata, paths, presetfile
from pyagentd.store.document.heal import role_diff
from pyagentd.store.document.text import Settings
from pyagentd.tools.sandbox import watch


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
        """Watch a branch, and edit it when nobody else does, from the text that has hash ``sha256``."""
        if mode not in ("edit", "view"):
            raise BadRequest(f"{mode!r} is no mode", mend="edit or view")
        async with self._host.using(self._ref(branch)) as live:
            preset = self._host.presets.of_branch(live.ref)
            answer = await attaching.attach(
                live, client, sha256=sha256, seq=seq, mode="view" if mode == "view" else "edit"
            )
            if answer is None:
                return {"branch": live.key, "reread": True}
            if answer["editor"]:
                live.given = printed(settings_of(preset))
                live.note_said()
            if live.meter is not None and not live.meter.looked and paths.agents_dir(live.ref.branch_dir).is_dir():
                self._host.own(tell_below(self._host, live))
            notes = [*answer["notes"], *self._host.origins.notes(live.ref), *creating.welcomes(self._host, live)]
            scope = shell_scope(self._host.presets, live.ref, (), self._host.config)()
            unconfined = await asyncio.to_thread(watch.unconfined, scope) if "Bash" in preset.tools else ""
            return {**answer, "notes": notes, "unconfined": unconfined, **self._described_live(live, preset)}

    async def detach(self, client: Client, *, branch: str) -> None:
        """Stop watching; a run goes on, and the daemon writes its text from now on."""
        if (live := self._host.opened(branch)) is not None:
            async with self._host.using(live.ref):
                live.detach(client)

    async def saved(self, client: Client, *, branch: str, sha256: str, seq: int, marker: int | None = None) -> None:
        """Note that the editor saved everything up to event ``seq``, the run's marker at position ``marker``."""
        offset = None if marker is None else marker - 1
        self._open(branch).saved(client, Version(sha256=sha256, seq=seq, marker=offset))

    async def lease(self, client: Client, *, branch: str, take: bool = False) -> dict[str, Any]:
        """Ask to become the editor of a branch that is attached; with ``take`` the present one is asked to leave."""
        live = self._open(branch)
        if client not in live.sinks:
            raise NotFound(f"{branch} is not attached by this client", mend="Attach it first")
        if not take or live.refusal:
            return {"editor": not live.refusal and live.lease.offer(client, None)}
        async with self._host.using(live.ref):
            return {"editor": await live.lease.take(client, client.name)}

    async def release(self, client: Client, *, branch: str) -> None:
        """Stop editing, and go on watching."""
        self._open(branch).lease.release(client)

    async def recovery(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return what the last recovery of roles changed, as a unified diff; "" when nothing was recovered."""
        live = self._host.opened(self._ref(branch).key)
        known = live.reader.recovery if live is not None else None
        return {"diff": await asyncio.to_thread(role_diff, *known) if known else ""}

    async def keep_settings(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Write what the document's Local Variables set in place of the preset into ``preset.md`` (DD-38).

        A named agent's model is written into its ``agent.json``, which owns it.
        """
        async with self._host.using(self._ref(branch)) as live:
            live.require_writable()
            await live.reader.look(compare=False)
            values = live.override(self._host.presets.of_branch(live.ref))
            if left := await configuring.keep(self._host, live.ref, values, user=local_user()):
                keys = {name.replace("_", "-"): value for name, value in left.items()}
                with self._host.origins.keeping(live.ref):
                    presetfile.set_values(paths.preset_file(live.ref.branch_dir), keys)
            own = self._host.presets.of_branch(live.ref)
            live.given = printed(settings_of(own))
            live.note_given()
            return {"kept": sorted(values), **self._described_live(live, own)}

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
        async with self._host.using(self._ref(branch)) as live:
            live.require_writable()
            reading = await live.reader.look(compare=False)
            file, ref = paths.preset_file(live.ref.branch_dir), live.ref
            override = dict(live.override(self._host.presets.of_branch(ref)))
            if body is not None and self._host.named.is_named(ref):
                await configuring.change(self._host, ref.session_dir.name, "system_prompt", body, user=local_user())
                body = None
            with self._host.origins.keeping(ref):
                presetfile.set_values(file, values)
                if body is not None:
                    presetfile.set_body(file, body)
            own = self._host.presets.of_branch(ref)
            if "tools" in values:
                override.pop("tools", None)
                live.write_settings(
                    given=printed(settings_of(own)), effective=effective(own, override), seen=reading.settings
                )
                live.note_given()
                if live.keeper.editor is None:
                    live.keeper.renew()
                    await live.keeper.flush()
            return self._described_live(live, own)

    async def system_prompt(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return the system prompt in the session's configuration as ``{system}``, without what the daemon adds."""
        async with self._host.using(self._ref(branch)) as live:
            return {"system": self._host.presets.of_branch(live.ref).body}

    async def tools_available(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return the names of the tools that a session can have, and of those that are on, as ``{tools, on}``.

        Tools of MCP servers are not among them: ``mcp`` in the preset switches their servers.
        """
        async with self._host.using(self._ref(branch)) as live:
            preset = self._host.presets.of_branch(live.ref)
            on = overridden(preset, live.override(preset)).tools
            offered = self._host.emacs.tools(self._host.hooks.watching(live))
            return {"tools": sorted({*on, *TOOLS, *offered}, key=str.casefold), "on": on}

    async def drop_settings(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Go back to what ``preset.md`` says; the editor, if there is one, calls this and saves what it is told."""
        async with self._host.using(self._ref(branch)) as live:
            live.require_writable()
            if live.keeper.editor not in (None, client):
                raise Busy(f"Another client edits {live.ref.session_id}", mend="Take over first, or do it there")
            reading = await live.reader.look(compare=False)
            own = self._host.presets.of_branch(live.ref)
            dropped = live.override(own)
            if dropped and live.keeper.editor is None:
                settings = printed(settings_of(own))
                live.write_settings(given=settings, effective=settings, seen=reading.settings)
                live.keeper.renew()
                await live.keeper.flush()
            told = self._described_live(live, own)
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
            text=text, options=options, id=id, metadata=metadata, steer=bool(steer), command=commanding(command)
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
        host, ref = self._host, self._ref(branch)
        checked = await checked_model(host, host.presets.of_branch(ref), model, options)
        if checked.note:
            async with host.using(ref) as live:
                live.publish(Event("notice", live.key, 0, ({"text": checked.note},)))
        return checked.model

    async def _submit(self, client: Client, branch: str, given: Submission) -> dict[str, Any]:
        async with self._host.using(self._ref(branch)) as live:
            if (done := await answered(self._host, live, given, client)) is not None:
                return told_answered(done)
            made = await self._host.submit(live, given)
        return told_submitted(made)

    async def abort(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Stop the branch's run."""
        async with self._host.using(self._ref(branch)) as live:  # what waits since an earlier daemon goes on first
            return {"aborted": await self._host.abort(live)}

    async def show(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return the conversation up to row ``seq`` as canonical JSON (neighbours B.10), when large as a file."""
        async with self._host.using(self._ref(branch)) as live:
            live.recorder.flush()
            shown = live.conversation.canonical() | ({"usage": summary(live.meter)} if live.meter else {})
            shown |= {"todo": steps} if (steps := todo.current(live.conversation)) else {}
            text, seq = json.dumps(shown, ensure_ascii=False), live.recorder.last_seq
        if len(text) < INLINE_LIMIT:
            return {"json": text, "seq": seq}
        return {"path": str(spill(self._host.config.runtime_dir, live.ref, text)), "seq": seq}

    def _described_live(self, live: LiveBranch, preset: Preset) -> dict[str, Any]:
        override = live.override(preset)
        holds = overridden(preset, override)
        return {
            "session_id": live.ref.session_id,
            "root": live.conversation.session.get("workspace_root"),
            "agents": self._host.agents.running(live.key),
            "asks": self._host.asks.open_for(live.key),
            "queue": live.queue.told(),
            "todo": todo.current(live.conversation),
            "failed": failed.current(live.conversation),
            "summaries": failed.summaries(live.conversation),
            "chips": chips.standing(live.conversation).told() if live.run is None else None,
            "context": live.meter.told() if live.meter else None,
            "preset": (metadata.read_session_metadata(live.ref.branch_dir) or {}).get("preset"),
            "model": holds.model,
            "turn": turnagent.told(self._host.presets, live.ref, live.conversation),
            "settings": _told(settings_of(holds)),
            "own_settings": _told(settings_of(preset)),
            "gptel_tools": printed(settings_of(preset)).tools,
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
