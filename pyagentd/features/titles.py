"""Titles of sessions: the model is asked for one after the first finished turn, in the background.

The request has a task and a timeout of its own. Errors are only logged, at debug level: a session needs no title. A
title that the user gave meanwhile wins.
"""

import asyncio
import logging
from pathlib import Path

from pyagentd.errors import PyagentdError
from pyagentd.events import Event
from pyagentd.llm.backend import ask_model, give_up
from pyagentd.llm.prompts import sanitise_title, title_request
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.feature import BranchWritten, Feature, RunEnded
from pyagentd.runtime.kernel import Kernel
from pyagentd.runtime.presets import answers_next
from pyagentd.runtime.settings import SendOptions, backend_for, extra_model, provider_of
from pyagentd.store import metadata
from pyagentd.store.paths import BranchRef

log = logging.getLogger(__name__)

TIMEOUT_S = 20.0


class Titles(Feature):
    """Names sessions after their first finished turn."""

    def __init__(self, kernel: Kernel, *, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__(kernel)
        if kernel.config.titles.enabled:
            kernel.bus.on(RunEnded, self._run_ended)
        self._timeout_s = timeout_s
        self._asked: set[Path] = set()  # directories of sessions; a failed request is not repeated
        self._tasks: set[asyncio.Task[None]] = set()

    def _run_ended(self, ended: RunEnded) -> None:
        """Ask for a title if the branch's session has none."""
        branch, outcome, options, ref = ended.branch, ended.outcome, ended.options, ended.branch.ref
        if self.kernel.closing or outcome.reason != "done" or ref.is_agent:
            return
        if ref.session_dir in self._asked or _title(branch):
            return
        self._asked.add(ref.session_dir)
        prompts = (m.text for m in branch.conversation.messages.values() if m.role == "user" and not m.is_hidden)
        task = asyncio.create_task(self._name(ref, next(prompts, ""), outcome.text, options), name="title")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Cancel the requests for titles, without waiting."""
        for task in self._tasks:
            task.cancel()

    async def _name(self, ref: BranchRef, prompt: str, answer: str, options: SendOptions) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                title = sanitise_title(await self._ask(ref, prompt, answer, options))
            if title:
                await self._note(ref, title)
        except (PyagentdError, TimeoutError, OSError) as error:
            log.debug("no title for %s: %s", ref.session_id, error or "the model took too long")
        except Exception:  # nothing awaits this task
            log.debug("no title for %s", ref.session_id, exc_info=True)

    async def _ask(self, ref: BranchRef, prompt: str, answer: str, options: SendOptions) -> str:
        config = self.kernel.config
        async with self.kernel.using(ref) as branch:
            preset = answers_next(self.kernel, branch, options)
        backend, model = backend_for(preset, config, options)
        chosen = extra_model(config.titles.model, provider_of(preset, config, options), model, config)
        # A title is not worth a second try.
        reply = await ask_model(backend, title_request(chosen, prompt, answer), retrying=give_up)
        return "" if reply.stop_reason == "refusal" else "".join(reply.texts)

    async def _note(self, ref: BranchRef, title: str) -> None:
        """Record the title in every branch that has none yet."""
        others = [each for each in metadata.branches(ref.session_dir) if each.key != ref.key]
        for sibling in (ref, *others):
            async with self.kernel.using(sibling) as branch:
                if _title(branch):
                    return  # the user gave one meanwhile
                branch.note_session(title=title)
                facts = {"title": title, "archived_at": branch.conversation.session.get("archived_at")}
                branch.publish(Event("session", branch.key, 0, (facts,)))
            self.kernel.bus.tell(BranchWritten(sibling))


def _title(branch: LiveBranch) -> str:
    return str(branch.conversation.session.get("title") or "")
