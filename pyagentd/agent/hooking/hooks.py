"""Hooks: programs of the user's, of a trusted project, and functions of an attached Emacs, asked at five moments.

A hook can only narrow. What it changes is checked and decided as if the model or the user had said so, and a hook
that fails, is late or is not trusted changes nothing; that is said. Which JSON goes in and out is in docs/hooks.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.hooking.callhooks import MOST_TEXT, RunHooks, refusal
from pyagentd.agent.hooking.hookclients import HookClients
from pyagentd.agent.hooking.hookprocess import Word, ask_program
from pyagentd.agent.hooking.projecthooks import ProjectHooks, project_hooks
from pyagentd.agent.running.outcome import Outcome
from pyagentd.agent.running.settings import SendOptions
from pyagentd.agent.turns.turn import Prompt
from pyagentd.config.tables import HookSettings
from pyagentd.errors import Blocked, NotASession
from pyagentd.events import Event, Sink
from pyagentd.messages import Message, Text
from pyagentd.store import paths
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:  # the host has one of these
    from pyagentd.agent.approving.authority import Witness
    from pyagentd.agent.host import Host

log = logging.getLogger(__name__)

_LAST_S = 3.0  # for hooks that are told of an end, once the daemon stops
_POLL_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Where and for whom hooks are asked."""

    branch: LiveBranch
    root: Path  # the workspace
    run_id: str
    options: SendOptions
    witness: Witness | None = None


class Hooks:
    """Asks the hooks of one daemon.

    Attributes:
        clients: Functions of attached clients.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self.clients = HookClients()
        self._said: set[tuple[str, str]] = set()

    def forget(self, sink: Sink) -> None:
        """Let a client go."""
        self.clients.forget(sink)

    # -- the five moments ----------------------------------------------------------------------------------------

    async def message_user(self, branch: LiveBranch, prompt: Prompt, options: SendOptions, run_id: str) -> Prompt:
        """Return the prompt as hooks want it: its document's text stays, what the model sees may be another.

        Raises:
            Blocked: A hook does not let it pass.
        """
        moment = Moment(branch=branch, root=_root(branch), run_id=run_id, options=options)
        facts = {
            "text": prompt.text[:MOST_TEXT],
            "agent": prompt.metadata.get("agent"),
            "model": _model_id(prompt.metadata.get("model")),
            "interactive": options.interactive,
            "metadata": dict(prompt.metadata),
        }
        metadata, text = dict(prompt.metadata), prompt.text
        async for source, word in self.words("message.user", moment, lambda: facts):
            if (why := refusal(word)) is not None:
                raise Blocked(f"The hook {source} does not let this message pass: {why}")
            if isinstance(agent := word.changes.get("agent"), str) and agent:
                metadata["agent"] = facts["agent"] = agent
            if isinstance(model := word.changes.get("model"), str) and model:
                metadata["model"] = {"provider_id": None, "model_id": model}
                facts["model"] = model
            if isinstance(changed := word.changes.get("text"), str) and changed.strip():
                text = facts["text"] = changed
        if prompt.message_id:  # it is asked again: it has its row
            return prompt
        if text != prompt.text and (view := with_text(prompt.view, prompt.text, text)) is not None:
            self._notice(branch, "A hook changed what the model sees of your message")
            return replace(prompt, view=view, metadata={**metadata, "model_text": text})
        return replace(prompt, metadata=metadata)

    async def steered(self, branch: LiveBranch, text: str, options: SendOptions, run_id: str) -> str:
        """Return what the model sees of a message that steers a run; raises ``Blocked``."""
        moment = Moment(branch=branch, root=_root(branch), run_id=run_id, options=options)
        facts: dict[str, Any] = {
            "text": text[:MOST_TEXT],
            "agent": None,
            "model": None,
            "interactive": True,
            "metadata": {},
        }
        async for source, word in self.words("message.user", moment, lambda: facts):
            if (why := refusal(word)) is not None:
                raise Blocked(f"The hook {source} does not let this message pass: {why}")
            if isinstance(changed := word.changes.get("text"), str) and changed.strip():
                text = facts["text"] = changed
        return text

    async def model_resolve(self, moment: Moment, model: str, *, preset: str, backend: str) -> str:
        """Return the model that is asked."""
        facts = {"model": model, "preset": preset, "backend": backend}
        async for _, word in self.words("model.resolve", moment, lambda: facts):
            if isinstance(changed := word.changes.get("model"), str) and changed.strip():
                facts["model"] = changed.strip()
        return facts["model"]

    def of_run(self, moment: Moment) -> RunHooks:
        """Return who asks the hooks about the calls of one run."""
        return RunHooks(self, moment)

    def run_ended(self, branch: LiveBranch, outcome: Outcome, options: SendOptions) -> None:
        """Tell the hooks that a run has ended; nobody waits for them."""
        last = branch.conversation.last_run
        moment = Moment(
            branch=branch, root=_root(branch), run_id=str(last.data["id"]) if last else "", options=options
        )
        if not self._is_any("run.finished", moment):
            return
        facts = {
            "reason": outcome.reason,
            "text": outcome.text[:MOST_TEXT],
            "code": outcome.code,
            "message": outcome.message,
        }
        self._host.own(self._inform("run.finished", moment, facts))

    def branch_written(self, ref: BranchRef) -> None:
        """Nothing: hooks are about runs."""

    async def _inform(self, event: str, moment: Moment, facts: Mapping[str, Any]) -> None:
        """Tell the hooks; a daemon that stops waits a moment for them and no longer."""
        telling, left = asyncio.ensure_future(self._tell(event, moment, facts)), _LAST_S
        while not telling.done() and left > 0:
            await asyncio.wait([telling], timeout=_POLL_S)
            left -= _POLL_S if self._host.closing else 0
        if telling.cancel():
            await asyncio.wait([telling])

    async def _tell(self, event: str, moment: Moment, facts: Mapping[str, Any]) -> None:
        async for _ in self.words(event, moment, lambda: facts):
            pass

    # -- asking --------------------------------------------------------------------------------------------------

    async def words(self, event: str, moment: Moment, facts: Any, tool: str = "") -> AsyncIterator[tuple[str, Word]]:
        """Ask every hook for ``event``, one after the other, and yield its name and its word.

        ``facts`` returns what the next one is told: what those before it changed counts.
        """
        if not self._is_any(event, moment):
            return
        common = _common(event, moment)
        for base, hook in await self._programs(event, moment):
            if hook.is_about(tool):
                told = {**common, **facts()}
                word = await ask_program(hook, told, base=base, root=moment.root, env=moment.options.env)
                name = _name(hook)
                self._note(event, moment, name, word)
                yield name, word
        for client in self.clients.of(event, self.watching(moment.branch)):
            word = await self.clients.ask(client, moment.branch.key, event, {**common, **facts()})
            name = f"function of {getattr(client, 'name', 'Emacs')}"
            self._note(event, moment, name, word)
            yield name, word

    def _is_any(self, event: str, moment: Moment) -> bool:
        return (
            any(hook.event == event for hook in self._host.config.hooks)
            or bool(self.clients.of(event, self.watching(moment.branch)))
            or (moment.root / ".pyagentd").is_dir()
        )

    async def _programs(self, event: str, moment: Moment) -> list[tuple[Path, HookSettings]]:
        """Return the programs for ``event`` with where their names begin: the user's, then a trusted project's."""
        config = self._host.config
        found = [(config.file.parent, hook) for hook in config.hooks if hook.event == event]
        project = await asyncio.to_thread(project_hooks, moment.root)
        if project is None:
            return found
        if project.error:
            self._say(moment.branch, project.root, f"The project's hooks cannot be used: {project.error}")
        elif not self.trusts(project):
            self._say(
                moment.branch,
                project.root,
                f"{project.file} has hooks that you have not said you trust, or that changed since: they do not run. "
                "Read them, then: pyagentd hooks --trust (in Emacs M-x pyagentd-hooks)",
            )
        else:
            found += [(project.root, hook) for hook in project.hooks if hook.event == event]
        return found

    def trusts(self, project: ProjectHooks) -> bool:
        """Return whether the user agreed to exactly this."""
        return project.hash in self._host.presets.trust

    def watching(self, branch: LiveBranch) -> list[Sink]:
        """Return the clients that watch a branch or the session of an agent."""
        found = list(branch.sinks)
        if branch.ref.is_agent:
            try:
                top = self._host.opened(paths.root_of(branch.ref).key)
            except NotASession:
                top = None
            found += list(top.sinks) if top is not None else []
        return found

    def _note(self, event: str, moment: Moment, name: str, word: Word) -> None:
        """Have what a hook said in the log, and failures before the user."""
        said = "blocks" if word.blocks is not None else "changes" if word.changes else word.problem or "nothing"
        log.info("hook %s for %s of %s: %s (%d ms)", name, event, moment.branch.ref.name, said, word.duration_ms)
        if word.problem:
            self._say(moment.branch, moment.root, f"The hook {name} for {event} was of no use: {word.problem}")

    def _say(self, branch: LiveBranch, root: Path, text: str) -> None:
        """Tell the user once."""
        if (str(root), text) not in self._said:
            self._said.add((str(root), text))
            log.warning("%s", text)
            self._notice(branch, text)

    def _notice(self, branch: LiveBranch, text: str) -> None:
        branch.publish(Event("notice", branch.key, 0, ({"text": text},)))


def _common(event: str, moment: Moment) -> dict[str, Any]:
    ref = moment.branch.ref
    return {
        "event": event,
        "version": 1,
        "session": ref.session_id,
        "branch": ref.branch_name,
        "branch_dir": str(ref.branch_dir),
        "is_agent": ref.is_agent,
        "root": str(moment.root),
        "run": moment.run_id,
    }


def _name(hook: HookSettings) -> str:
    return " ".join(hook.command)[:80]


def _root(branch: LiveBranch) -> Path:
    return Path(branch.conversation.session.get("workspace_root") or Path.home())


def _model_id(model: object) -> str | None:
    return str(model.get("model_id")) if isinstance(model, Mapping) else None


def with_text(view: tuple[Message, ...], old: str, new: str) -> tuple[Message, ...] | None:
    """Return ``view`` with the prompt ``old`` at its end replaced; None when it is not there as it was said."""
    if not view or view[-1].role != "user":
        return None
    parts = list(view[-1].parts)
    texts: list[str] = []
    while parts and isinstance(last := parts[-1], Text):
        texts.insert(0, last.text)
        parts.pop()
        if "\n\n".join(texts).strip() == old.strip():
            return (*view[:-1], replace(view[-1], parts=(*parts, Text(text=new))))
    return None
