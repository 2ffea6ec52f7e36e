"""Forking a session at one of its messages, and finding the forks again."""

import asyncio
from collections.abc import Iterable
from typing import Any

from pyagentd.errors import BadRequest, NotFound, StoreError
from pyagentd.features.history import candidates
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.kernel import Kernel
from pyagentd.store import branching, metadata, paths
from pyagentd.store.document import hidden, text
from pyagentd.store.document.reconcile import align
from pyagentd.store.paths import BranchRef


async def fork_of(
    kernel: Kernel, branch: LiveBranch, message_id: str | None, *, title: str | None = None
) -> BranchRef:
    """Make a session of a branch up to a message, by default all that is visible; also where the last run failed.

    Raises:
        Busy: A run is in flight.
        BadRequest: The branch is an agent's, or of a session that is not trusted.
        NotFound: The message cannot be forked at; the error lists the prompts.
        StoreError: The disk refused; nothing was made.
    """
    ref = branch.ref
    if ref.is_agent:
        raise BadRequest(f"{ref.session_id} is an agent", hint="Fork the session it works for")
    if kernel.origins.foreign(ref):  # a fork would be the user's own
        raise BadRequest(f"{ref.session_id} is not from this machine", hint="Read its preset.md, then trust it")
    async with branch.starting:
        branch.require_idle()
        await _settle(branch)
        shown = hidden.visible(branch.conversation)
        if not shown:
            raise NotFound(f"{ref.session_id} has no message yet", hint="Write and send one first")
        anchor = message_id if message_id is not None else shown[-1].id
        if all(message.id != anchor for message in shown):
            raise NotFound(
                f"Message {anchor} cannot be forked at: only what is shown can", hint=candidates(branch.conversation)
            )
        return await asyncio.to_thread(
            branching.fork_session,
            ref,
            branch.conversation.snapshot(),
            anchor,
            root=kernel.config.sessions_dir,
            title=title,
            clock=kernel.clock,
        )


def forks_of(ref: BranchRef, known: Iterable[BranchRef]) -> list[dict[str, Any]]:
    """Return what was forked from the session of ``ref`` among ``known`` branches, oldest first; blocks."""
    found: dict[str, dict[str, Any]] = {}
    for other in known:
        if other.is_agent or other.session_id in found:
            continue
        row = branching.forked_from(other.branch_dir, ref.session_id)
        if row is not None:
            found[other.session_id] = {
                "session_id": other.session_id,
                "dir": str(other.session_dir),
                "branch": other.key,
                "file": str(paths.session_file(other.branch_dir)),
                "message": row["parent_message_id"],
                "parent_branch": row.get("parent_branch"),
                "created": (metadata.read_session_metadata(other.branch_dir) or {}).get("created"),
            }
    return sorted(found.values(), key=lambda each: (str(each["created"]), each["session_id"]))


async def _settle(branch: LiveBranch) -> None:
    """Have the log know what the user changed in the document, where that can be written."""
    if branch.refusal:
        return
    branch.recorder.flush()
    await branch.document.settle()
    await branch.look_once()
    doc = await asyncio.to_thread(text.read, branch.file)
    aligned = await asyncio.to_thread(align, doc, branch.conversation.snapshot())
    try:
        for edit in aligned.edits:
            branch.recorder.record("edit", edit)
    except StoreError:  # the fork is of what the log says then
        return
