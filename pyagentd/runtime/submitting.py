"""The one door of all turns: a message comes in and starts a run, or waits behind the one in flight.

From idle to busy is one step under ``branch.starting``: of two messages at once one runs and the other is queued.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from pyagentd.errors import Busy, Conflict, PyagentdError
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.opening import CLEARS, is_emptied
from pyagentd.runtime.queue import Submission, Submitted
from pyagentd.runtime.run import new_run_id
from pyagentd.runtime.run_setup import RunBuilder
from pyagentd.runtime.settings import SendOptions
from pyagentd.runtime.turns import Prompt
from pyagentd.store import paths
from pyagentd.store.conversation import Message

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel


class Submitting:
    """Takes messages in for a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    async def submit(self, branch: LiveBranch, given: Submission) -> Submitted:
        """Start a run for a message, or queue it behind the run in flight: the one door of all turns.

        Raises:
            Busy: The daemon stops.
            Conflict: The message's id is taken by something else.
            PyagentdError: The prompt, the preset or the backend is no good; nothing was recorded.
        """
        async with branch.starting:
            if given.text is not None and branch.run is None:
                await branch.keeper.settle_roles()
            return await self.submit_held(branch, given)

    async def submit_held(self, branch: LiveBranch, given: Submission) -> Submitted:
        """Do as ``submit`` for a caller that holds ``branch.starting``."""
        given.check()
        if (known := self._kernel.queue.receipt(branch, given)) is not None:
            return known
        branch.require_writable()
        if self._kernel.closing:
            raise Busy("The daemon is stopping", mend="Send it again in a moment")
        self._kernel.queue.came(branch, given)
        if self._kernel.queue.must_wait(branch, given):
            return await self._kernel.queue.add(branch, given)
        if await _goes_on_with(branch, given):
            return await self._add_and_go_on(branch, given)
        try:
            run_id = await self._start(branch, lambda: self._prompt_of(branch, given), given.options)
        except PyagentdError:
            if given.is_persons:  # who can mend it
                raise
            return await self._kernel.queue.add(branch, given)
        message_id = str(branch.conversation.runs[run_id].data["message_id"])
        return Submitted(message_id=message_id, run_id=run_id, queued=False, seq=branch.recorder.last_seq)

    async def _add_and_go_on(self, branch: LiveBranch, given: Submission) -> Submitted:
        """Queue a message behind those that an error made wait, and go on with them.

        Raises:
            PyagentdError: There is no text, or the disk refused.
        """
        submitted = await self._kernel.queue.add(branch, given)
        branch.paused = False
        branch.state.cleared()
        self._kernel.queue.drain(branch)
        return submitted

    async def _prompt_of(self, branch: LiveBranch, given: Submission) -> Prompt:
        if given.text is None:
            prompt = await branch.prompts.from_document(sha256=given.sha256, end=given.end)
        else:
            prompt = await branch.prompts.from_client(given.text)
        metadata = dict(given.metadata) if given.id is None else {**given.metadata, "payload": given.payload}
        return replace(prompt, metadata=metadata, id=given.id or "")

    async def fire(self, branch: LiveBranch, message: Message, options: SendOptions) -> None:
        """Start the run of a queued message; the caller holds ``branch.starting``.

        Raises:
            PyagentdError: It cannot start now; the message stays where it is.
        """

        async def read() -> Prompt:
            prompt = await branch.prompts.of_queued(message)
            return replace(prompt, metadata=message.metadata)

        await branch.keeper.settle_roles()
        await self._start(branch, read, options)

    async def _start(self, branch: LiveBranch, read: Callable[[], Awaitable[Prompt]], options: SendOptions) -> str:
        """Start a run for the prompt that ``read`` returns; the caller holds ``branch.starting``.

        Raises:
            Busy: The branch's editor has not saved, or the daemon stops.
            PyagentdError: The prompt, the preset or the backend is no good; nothing of a run was recorded.
        """
        branch.require_idle()
        branch.require_writable()
        await branch.keeper.settle()
        await branch.look_once()
        if await asyncio.to_thread(is_emptied, branch.ref, branch.conversation):
            raise Conflict(
                f"{paths.session_file(branch.ref.branch_dir)} is empty, but its log has a conversation",
                mend=f"Undo that, or delete the file and open the session anew. {CLEARS}",
            )
        run_id = new_run_id()
        prompt = await read()
        for each in self._kernel.features:
            prompt = await each.before_prompt(branch, prompt, options, run_id)
        root = branch.conversation.session.get("workspace_root")
        await asyncio.to_thread(self._kernel.presets.warm, branch.ref, root)
        builder = RunBuilder(self._kernel, branch, run_id, options, message=prompt.metadata)
        settings = await builder.settings(prompt.settings)
        # No await from here on: what is started is supervised.
        self._kernel.begin(branch, prompt, run_id, settings, options)
        return run_id


async def _goes_on_with(branch: LiveBranch, given: Submission) -> bool:
    """Return whether a submission stands below text that waits since an error: all of it is answered in order.

    Raises:
        PyagentdError: The document is not what the client says it saved.
    """
    if given.text is not None or not branch.paused:
        return False
    return await branch.prompts.waits_above(sha256=given.sha256, end=given.end)
