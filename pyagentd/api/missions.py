"""Operations on missions: start one in a new session, resume one, inspect one."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyagentd import features
from pyagentd.api.group import (
    NOTHING,
    Client,
    Env,
    Group,
    JsonReply,
    PromptReceipt,
    prompt_receipt,
    send_options,
)
from pyagentd.errors import BadRequest
from pyagentd.features.agents import short_title
from pyagentd.features.mission_tool import PRESET, missions, unfinished_mission
from pyagentd.policy.action import canonical_tool
from pyagentd.reader import FromOne, Source, object_in, read
from pyagentd.runtime.queue import Submission
from pyagentd.runtime.run_setup import NAMES
from pyagentd.store import presetfile
from pyagentd.store.paths import BranchPlaces, BranchRef, describe_branch
from pyagentd.tools.builtin import builtin_tools

_GO_ON = "Continue."
_COMMANDS = "Bash"
_ASK = ("id", "tool", "detail", "reason")  # the fields of a question in a trace


class MissionStarted(BranchPlaces, PromptReceipt):
    """The session of a mission, and the outcome of sending its prompt."""


class Missions(Group):
    """Typed tasks that the model answers with programs."""

    async def mission(
        self,
        client: Client,
        *,
        prompt: str,
        signature: str | None = None,
        context: str | None = None,
        tools: Sequence[str] = (),
        no_tools: bool = False,
        preset: str = PRESET,
        max_turns: int | None = None,
        parallel: int | None = None,
        root: str | None = None,
        env: Env = NOTHING,
        allow: Sequence[str] = (),
    ) -> MissionStarted:
        """Start a mission as a new session; return the session and the run.

        ``context`` is a JSON object with data for its programs; ``tools`` replace the preset's tools, ``no_tools``
        removes them all; one program runs up to ``parallel`` calls at a time.
        """
        if not prompt.strip():
            raise BadRequest("prompt is empty", hint="Say what the mission is to find out or do")
        hint = 'Give it names, as in {"rows": […]}'
        given = object_in(context, "The context", hint=hint) if context else None
        options = send_options(client, env, allow)
        values: dict[str, Any] = {}
        if signature:
            values["signature"] = features.missions.parse_readable(signature, "The signature").render()
        if tools or no_tools:
            values["tools"] = _known(tools)
        limits = {"max-turns": max_turns, "parallel": parallel}
        source = Source.at("mission", BadRequest)  # fails before a session is created
        values |= {name: read(n, FromOne, source, (name,)) for name, n in limits.items() if n is not None}
        workspace, parsed, text = await self._template(root, preset)
        if not parsed.signature and not signature:
            raise BadRequest(f"The preset {preset} has no signature", hint="Give the signature of the result")
        if _COMMANDS in values.get("tools", ()) and not parsed.shell.allow:
            values["shell_commands"] = {"allow": ["*"]}  # each command still needs an approval
        ref = await self._create_session(
            short_title(prompt),
            workspace,
            facts={"agent": preset},
            preset_name=parsed.name,
            preset_text=presetfile.with_values(presetfile.parse(text, Path(f"{preset}.md")), values),
        )
        entry: dict[str, Any] = {"template": True} if given is None else {"template": True, "context": given}
        metadata = {"mission": entry}
        async with self._kernel.using(ref) as live:
            made = await self._kernel.submit(live, Submission(text=prompt, options=options, metadata=metadata))
            await live.secure()  # the document has the prompt when a client opens it
        return {**describe_branch(ref), **prompt_receipt(made)}

    async def mission_resume(
        self,
        client: Client,
        *,
        branch: str,
        env: Env = NOTHING,
        allow: Sequence[str] = (),
    ) -> MissionStarted:
        """Resume the last mission of a session after its last finished program.

        If it is running already, only its run is returned.
        """
        options = send_options(client, env, allow)
        async with self._kernel.using(self._ref(branch)) as live:
            last = live.conversation.last_run
            if last is not None and not last.is_finished and last.data["id"] in live.conversation.missions:
                run, message, seq = last.data["id"], last.data["message_id"], live.recorder.last_seq
                receipt: PromptReceipt = {"run": run, "message": message, "queued": False, "seq": seq, "ended": None}
                return {**describe_branch(live.ref), **receipt}
            run_id = unfinished_mission(live.conversation)
            if not run_id:
                raise BadRequest(
                    f"{live.ref.session_id} has no mission that was interrupted", hint="Send it a task instead"
                )
            submission = Submission(text=_GO_ON, options=options, metadata={"mission": {"resume": run_id}})
            made = await self._kernel.submit(live, submission)
        return {**describe_branch(live.ref), **prompt_receipt(made)}

    async def mission_trace(self, client: Client, *, branch: str) -> JsonReply:
        """Return the missions of a session turn by turn as JSON, in the reply or, if large, in a file.

        Its keys are ``{session, preset, asks, missions}``: ``asks`` are open questions, ``missions`` are ``Report``s.
        """
        facts = await self.traced(self._ref(branch))
        return await self._json_reply("mission", json.dumps(facts, ensure_ascii=False, default=str))

    async def traced(self, ref: BranchRef) -> dict[str, Any]:
        """Return the data of ``mission_trace`` before it is encoded as JSON."""
        async with self._kernel.using(ref) as live:
            live.recorder.flush()
            found = await asyncio.to_thread(missions, live.conversation.snapshot(), live.ref)
            asks = [{name: ask.get(name) for name in _ASK} for ask in self._kernel.asks.open_for(live.key)]
            preset = live.conversation.session.get("agent")
        return {"session": describe_branch(ref), "preset": preset, "asks": asks, "missions": found}

    async def mission_tools(self, client: Client) -> list[str]:
        """Return the names of the tools that a mission can use."""
        return sorted(_tool_names())


def _known(tools: Sequence[str]) -> list[str]:
    """Return the canonical names of tools; raises ``BadRequest`` if one does not exist."""
    names = list(dict.fromkeys(map(canonical_tool, tools)))
    if unknown := [name for name in names if name not in _tool_names()]:
        raise BadRequest(
            f"There is no tool {', '.join(unknown)}", hint=f"There are: {', '.join(sorted(_tool_names()))}"
        )
    return names


def _tool_names() -> frozenset[str]:
    return frozenset({*builtin_tools(), *NAMES}) - {"tool_search", "question", "TodoWrite"}
