"""Taking turns back, bringing them back, and asking again (DESIGN §3, rule 6).

Nothing is removed: rows say that they are hidden, the document's text stays and has the role ``ignore``. Whatever an
operation hides, another brings back: a rewind is reversed, an answer or an edited prompt is a variant of what came in
its place. Nothing of this is possible while a run is in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.branches.persist import Roles
from pyagentd.agent.dialogue.suggesting import tell_anew
from pyagentd.agent.revising.choosing import chosen_prompt, prompt_of, variants_of
from pyagentd.agent.running.settings import SendOptions
from pyagentd.agent.turns.queue import Submission, Submitted
from pyagentd.errors import BadRequest, Busy, NotFound, PyagentdError
from pyagentd.events import Event
from pyagentd.store.conversation import Conversation, Message
from pyagentd.store.document import hidden
from pyagentd.store.document import text as document
from pyagentd.store.document.hidden import By, answer_place, turned
from pyagentd.store.document.reconcile import align
from pyagentd.store.document.text import Document
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:  # the host has contexts, which are cleared here
    from pyagentd.agent.host import Host

_MOST_ROLES = 4000  # in one event; a client that needs more attaches anew
_CARRIED = ("agent", "model", "settings")  # metadata of a prompt that its next version keeps


class Files(Protocol):
    """What can bring files back to what they were when a prompt was sent."""

    async def restore(self, ref: BranchRef, message_id: str) -> Mapping[str, Any]:
        """Do so; the answer has an ``id`` by which that can be undone, "" when there was nothing to do."""
        ...

    async def undo(self, ref: BranchRef, id: str) -> Mapping[str, Any]:
        """Undo a restoration."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What an operation hid and showed: ids of messages, in their order; ``files`` as the snapshots tell it."""

    hidden: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    files: Mapping[str, Any] | None = None


class History:
    """The operations, on the branches of one host."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._files: Files = host.snapshots

    async def rewind(self, branch: LiveBranch, message_id: str, *, files: bool = False) -> Changed:
        """Hide everything behind one of the user's messages, and with ``files`` restore what the turns changed.

        Raises:
            Busy: A run is in flight.
            NotFound: There is no such message of the user's.
        """
        async with branch.starting:
            self._require_ready(branch)
            prompt = chosen_prompt(branch.conversation, message_id)
            gone = hidden.continuation(branch.conversation, prompt.id)
            restored = await self._files.restore(branch.ref, prompt.id) if files else None
            if gone:
                notes = {"restored": restored["id"]} if restored and restored.get("id") else {}
                await self._hide(branch, gone, by="rewind", after=prompt.id, **notes)
            return Changed(hidden=_ids(gone), files=restored)

    async def unrewind(self, branch: LiveBranch) -> Changed:
        """Reverse the last rewind, with the files that it restored.

        Raises:
            Busy: A run is in flight.
            BadRequest: There is none, or something was sent since.
        """
        async with branch.starting:
            self._require_ready(branch)
            conversation = branch.conversation
            group = hidden.last_rewind(conversation)
            if group is None:
                raise BadRequest("No rewind is to be reversed", mend="Only turns that a rewind took back come back")
            if not hidden.is_shown(conversation, group.after) or hidden.continuation(conversation, group.after):
                raise BadRequest(
                    "Something was sent since the last rewind",
                    mend="What it took back is a variant of that now: choose it there, or rewind to the same prompt",
                )
            restored = str(group.messages[0].metadata.get("restored") or "")
            files = await self._files.undo(branch.ref, restored) if restored else None
            await self._change(branch, hidden.show(group.messages, now_ms=branch.recorder.now_ms()))
            return Changed(shown=_ids(group.messages), files=files)

    async def regenerate(
        self, branch: LiveBranch, message_id: str | None, options: SendOptions
    ) -> tuple[Changed, Submitted]:
        """Ask a prompt again; its answer so far, and what came after it, becomes a variant of the new one.

        Args:
            branch: Where.
            message_id: The prompt or an answer to it; None means the last one.
            options: Of the run.

        Raises:
            Busy: A run is in flight, or messages wait for theirs.
            NotFound: There is no such message.
            PyagentdError: The run cannot start; nothing is changed then.
        """
        async with branch.starting:
            self._require_ready(branch)
            self._require_next(branch)
            prompt = prompt_of(branch.conversation, message_id)
            gone = hidden.continuation(branch.conversation, prompt.id)
            if gone:
                await self._hide(branch, gone, by="variant", after=prompt.id)
            sha256, end = await self._place(branch, prompt)
            given = Submission(text=None, sha256=sha256, end=end, options=options, metadata=_carried(prompt))
            return Changed(hidden=_ids(gone)), await self._attempt(branch, gone, given)

    async def edit(
        self, branch: LiveBranch, message_id: str, text: str, options: SendOptions
    ) -> tuple[Changed, Submitted]:
        """Take a prompt and all after it back, and send ``text`` in its place.

        Raises:
            Busy: A run is in flight, or messages wait for theirs.
            NotFound: There is no such message of the user's.
            PyagentdError: The run cannot start; nothing is changed then.
        """
        if not text.strip():
            raise BadRequest("The prompt is empty", mend="Write something")
        async with branch.starting:
            self._require_ready(branch)
            self._require_next(branch)
            prompt = chosen_prompt(branch.conversation, message_id)
            after = hidden.before(branch.conversation, prompt.id)
            gone = hidden.continuation(branch.conversation, after)
            await self._hide(branch, gone, by="edit", after=after)
            given = Submission(text=text, options=options, metadata=_carried(prompt))
            return Changed(hidden=_ids(gone)), await self._attempt(branch, gone, given)

    async def choose(self, branch: LiveBranch, message_id: str, number: int) -> Changed:
        """Show another variant of a message, the oldest is 1, with the turns that came after it.

        Raises:
            Busy: A run is in flight.
            NotFound: There is no such message, or not so many variants of it.
        """
        async with branch.starting:
            self._require_ready(branch)
            conversation = branch.conversation
            found = variants_of(conversation, message_id)
            if not 1 <= number <= len(found):
                raise NotFound(
                    f"There is no variant {number} of {message_id}", mend=f"There are variants 1 to {len(found)}"
                )
            chosen = found[number - 1]
            if chosen.group is None:
                return Changed()
            now_ms = branch.recorder.now_ms()
            gone = hidden.continuation(conversation, chosen.group.after)
            rows = list(hidden.hide(gone, by="variant", after=chosen.group.after, now_ms=now_ms))
            await self._change(branch, [*rows, *hidden.show(chosen.messages, now_ms=now_ms)])
            return Changed(hidden=_ids(gone), shown=_ids(chosen.messages))

    async def clear_held(self, branch: LiveBranch, **notes: Any) -> Changed:
        """Put the conversation behind a boundary, for a caller that holds ``branch.starting``: the next is a new one.

        ``notes`` become metadata of its messages; ``notice``: what whoever opens it until then is told.

        Raises:
            Busy: A run is in flight.
            BadRequest: There is none.
        """
        self._require_ready(branch)
        gone = hidden.continuation(branch.conversation, "")
        if not gone:
            raise BadRequest("No active session to clear")
        await self._hide(branch, gone, by=hidden.CONTEXT, after="", **notes)
        return Changed(hidden=_ids(gone))

    async def give_roles_held(self, branch: LiveBranch, by: By) -> None:
        """Give the text of messages that were hidden when they were recorded the roles that follow from it.

        For a caller that holds ``branch.starting``. Raises ``Busy`` if the editor does not save, ``StoreError``.
        """
        await branch.keeper.settle()
        conversation = branch.conversation.snapshot()
        own = [message for message in conversation.messages.values() if message.metadata.get("hidden_by") == by]
        before = conversation.changed(hidden.show(own, now_ms=branch.recorder.now_ms()))
        doc = await asyncio.to_thread(document.read, branch.file)
        made = await asyncio.to_thread(turned, doc, before, conversation)
        branch.reader.forget()
        self._tell_roles(branch, made)
        await branch.secure()

    # -- inside ------------------------------------------------------------------------------------------------

    def _require_ready(self, branch: LiveBranch) -> None:
        branch.require_idle()
        branch.require_writable()
        if self._host.closing:
            raise Busy("The daemon is stopping", mend="Try again in a moment")

    def _require_next(self, branch: LiveBranch) -> None:
        """Raise ``Busy`` if what is sent now would not be answered at once, but behind what waits."""
        if branch.queue.waiting and not branch.paused:
            raise Busy("Messages wait for their answers", mend="Let them be answered, or take them back first")

    async def _hide(
        self, branch: LiveBranch, messages: Sequence[Message], *, by: By, after: str, **notes: Any
    ) -> None:
        rows = hidden.hide(messages, by=by, after=after, now_ms=branch.recorder.now_ms(), **notes)
        await self._change(branch, rows)

    async def _change(self, branch: LiveBranch, rows: Iterable[Mapping[str, Any]]) -> None:
        """Record message rows that hide and show, and give the document the roles that follow."""
        changed = list(rows)
        await branch.keeper.settle()
        await branch.look_once()
        doc = await asyncio.to_thread(document.read, branch.file)
        before = branch.conversation
        for made_by_user in (await asyncio.to_thread(align, doc, before.snapshot())).edits:
            branch.recorder.record("edit", made_by_user)
        after = before.changed(changed)
        made = await asyncio.to_thread(turned, doc, before.snapshot(), after)
        lacking = await asyncio.to_thread(_lacking, made, after)
        with branch.recorder.together():
            for row in changed:
                branch.recorder.record("message", row)
            for edit in lacking:
                branch.recorder.record("edit", edit)
        branch.reader.forget()
        self._tell_roles(branch, made)
        await branch.secure()
        tell_anew(branch)
        for listener in self._host.listeners:
            listener.branch_written(branch.ref)

    async def _place(self, branch: LiveBranch, prompt: Message) -> tuple[str, int]:
        """Make room for another answer to ``prompt``; return the body's hash and the offset."""
        conversation = branch.conversation.snapshot()
        doc = await asyncio.to_thread(document.read, branch.file)
        made = await asyncio.to_thread(answer_place, doc, conversation, prompt.id)
        self._tell_roles(branch, made.document, marker=made.marker)
        await branch.secure()
        return document.body_sha256(doc.body), made.marker

    def _tell_roles(self, branch: LiveBranch, doc: Document, marker: int | None = None) -> None:
        """Have roles written into the file, by the editor if there is one, and shown by all clients."""
        roles = Roles(sha256=document.body_sha256(doc.body), spans=doc.spans)
        branch.keeper.heal(roles.sha256, roles.spans)
        if len(roles.spans) > _MOST_ROLES:
            branch.publish(Event("resync", branch.key, branch.recorder.last_seq))
            return
        place = {} if marker is None else {"marker": marker + 1}
        branch.tell_others(None, "roles", sha256=roles.sha256, spans=roles.told(), **place)

    async def _attempt(self, branch: LiveBranch, gone: Sequence[Message], given: Submission) -> Submitted:
        """Submit; what was hidden for that comes back if no run can start."""
        try:
            return await self._host.submit_held(branch, given)
        except PyagentdError:
            if gone:
                back = [branch.conversation.messages[message.id] for message in gone]
                await self._change(branch, hidden.show(back, now_ms=branch.recorder.now_ms()))
            raise


def _lacking(doc: Document, conversation: Conversation) -> tuple[Mapping[str, Any], ...]:
    """Return edit rows for what is shown now and does not stand in the document: the user removed or changed it."""
    return align(doc, conversation).edits


def _carried(prompt: Message) -> dict[str, Any]:
    return {key: prompt.metadata[key] for key in _CARRIED if key in prompt.metadata}


def _ids(messages: Iterable[Message]) -> tuple[str, ...]:
    return tuple(message.id for message in messages)
