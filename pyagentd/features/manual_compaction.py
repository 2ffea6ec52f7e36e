"""A compaction that somebody asks for: everything said so far is summarised, and nothing of it stays verbatim.

It is a run of its own kind: the branch is busy while it lasts, it can be aborted, and what is sent meanwhile waits.
Its block goes behind the last text that is recorded; what the user has written below stays there and is seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from pyagentd.errors import BadRequest, Busy
from pyagentd.events import Event
from pyagentd.features.compaction import ORIGIN, Compactor, is_summarised
from pyagentd.runtime.document_sync import Roles, Version
from pyagentd.runtime.run import Run, Signal, Step, new_run_id
from pyagentd.runtime.run_setup import RunBuilder
from pyagentd.runtime.settings import SendOptions
from pyagentd.runtime.turns import Prompt
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import text
from pyagentd.store.document.reconcile import align, recognise

if TYPE_CHECKING:
    from pyagentd.runtime.branch import LiveBranch
    from pyagentd.runtime.kernel import Kernel

_BEHIND = 200  # characters by which the place is found again


class CompactionRun(Run):
    """A run that only compacts."""

    def __init__(self, compact: Callable[[], Awaitable[Any]], **given: Any) -> None:
        super().__init__(**given)
        self._compact = compact

    async def _begin(self) -> Step | None:  # type: ignore[override]  # its first step is its last
        await self._prepare()
        self._move(Signal.COMPACT)
        await self._compact()
        return None


async def compact(kernel: Kernel, branch: LiveBranch, options: SendOptions, instructions: str = "") -> str:
    """Begin to compact a branch; return the id of the run that does it.

    Raises:
        Busy: It has a run, its editor has not saved, or the daemon stops.
        BadRequest: There is nothing to compact.
        PyagentdError: The document, the preset or the backend is no good; nothing was recorded.
    """
    async with branch.starting:
        branch.require_idle()
        branch.require_writable()
        await branch.keeper.settle()
        await branch.look_once()
        run_id, found = new_run_id(), await asyncio.to_thread(_read, branch, branch.conversation.snapshot())
        settings = await RunBuilder(kernel, branch, run_id, options).settings(found.settings)
        if kernel.closing:
            raise Busy("The daemon is stopping", mend="Try it again in a moment")
        compactor = Compactor(kernel, branch, run_id, settings)
        run = CompactionRun(
            lambda: compactor.summarise(found.view, None, auto=False, instructions=instructions),
            run_id=run_id,
            session_id=branch.ref.session_id,
            recorder=branch.recorder,
            view=found.view,
            settings=settings,
            prepare=branch.secure,
            observe=lambda run, status: branch.state.moved(str(status.get("phase", ""))),
        )
        # No await from here on: what is started is supervised.
        _start(branch, found, run_id, options)
        kernel.supervisor.set_off(branch, run, options)
        started = {"id": run_id, "phase": "started", "kind": ORIGIN}
        branch.publish(Event("run", branch.key, branch.recorder.last_seq, (started,)))
        return run_id


def _read(branch: LiveBranch, conversation: Conversation) -> Prompt:
    """Return what there is to compact, in the shape of a prompt: its text is the end of what stands above."""
    doc = text.read(branch.file)
    whole = recognise(doc, conversation)
    spans = None if whole.document.spans == doc.spans else whole.document.spans
    anchor = whole.record_end  # what comes last in the log stands last in the document
    sha256, aligned = text.body_sha256(doc.body), align(doc, conversation, anchor)
    if not is_summarised(None, aligned.view):
        raise BadRequest("There is nothing to compact", mend="Say something first")
    return Prompt(
        text=doc.body[max(0, anchor - _BEHIND) : anchor],
        view=aligned.view,
        version=Version(sha256=sha256, seq=0, marker=anchor),
        edits=aligned.edits,
        roles=None if spans is None else Roles(sha256=sha256, spans=spans),
        settings=doc.settings,
    )


def _start(branch: LiveBranch, found: Prompt, run_id: str, options: SendOptions) -> None:
    """Record the user's edits and that the run begins, and tell where its block will stand."""
    anchor = found.version.marker or 0
    with branch.recorder.together():
        for edit in found.edits:
            branch.recorder.record("edit", edit)
    version = Version(sha256=found.version.sha256, seq=branch.recorder.last_seq, marker=anchor)
    branch.keeper.begin(prompt=found.text, inserted_prompt=False, anchor=anchor, version=version)
    if found.roles is not None:
        branch.keeper.heal(found.roles.sha256, found.roles.spans)
    place = {"position": anchor + 1, "sha256": found.version.sha256, "behind": found.text}
    branch.publish(Event("compacting", branch.key, 0, (place,)))
    run = {"id": run_id, "state": "started", "kind": ORIGIN, "message_id": "", "interactive": options.interactive}
    branch.recorder.record("run", {**run, "anchor": anchor, "prompt": "", "behind": found.text})
