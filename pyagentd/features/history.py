"""Rewinding turns, bringing them back, and regenerating answers.

Nothing is removed: rows are marked as hidden, and the document's text stays with the role ``ignore``. Each operation
can be undone: a rewind is reversed, and the earlier answer or prompt is a variant of the new one. None of them is
possible while a run is in flight.
"""

import asyncio
import contextlib
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NotRequired, TypedDict

from pyagentd.errors import BadRequest, Busy, NotFound, PyagentdError, StoreError
from pyagentd.events import one_line
from pyagentd.features.snapshots import RestoreReply, Snapshots
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.document_sync import DocumentVersion
from pyagentd.runtime.feature import BranchWritten, HistoryChanged
from pyagentd.runtime.kernel import Kernel
from pyagentd.runtime.queue import Receipt, Submission
from pyagentd.runtime.settings import SendOptions
from pyagentd.store import branching, metadata, paths
from pyagentd.store.conversation import Conversation, Message
from pyagentd.store.document import hidden
from pyagentd.store.document.files import Hunk
from pyagentd.store.document.hidden import By, Variant, answer_place, change_roles, hidden_ranges
from pyagentd.store.document.reconcile import align, recognise
from pyagentd.store.document.render import RUN_CLOSE, RUN_OPEN
from pyagentd.store.document.text import PROMPT_PREFIX, Document
from pyagentd.store.paths import BranchRef

# What clients see of a branch's history: hidden turns as regions of the text, and variants.
#
# Blocks while it parses the document; offsets are those of Emacs, from 1.

_ERROR = re.compile(r"\n+``` error\n.*?\n```(?=\n|\Z)", re.DOTALL)
_LISTED = 8
_SHOWN = 50  # characters of a prompt


def history(document: Document, revision: int, conversation: Conversation) -> dict[str, Any]:
    """Return hidden regions and variants in the document at a revision: ``{revision, hidden, variants}``.

    ``hidden``: start, end, number of turns, which operation hid them. ``variants``: start and end of the message, its
        id,
    its number among its variants, how many there are; if none is shown, the number is 0 and the region is that of the
    message before.
    """
    if not any(message.is_rewound for message in conversation.messages.values()):
        return {"revision": None, "hidden": [], "variants": []}
    alignment = recognise(document, conversation)
    doc = alignment.document
    places: dict[str, tuple[int, int]] = {}
    for piece in alignment.pieces:
        if piece.message is not None:
            start, _ = places.get(piece.message.id, (piece.found.start, 0))
            places[piece.message.id] = start, piece.found.end
    variants = []
    for id, number, of in shown_variants(conversation):
        where = id if number else str(conversation.messages[id].metadata["hidden_after"])
        if where in places:
            start, end = places[where]
            variants.append((start + 1, end + 1, id, number, of))
    return {
        "revision": revision,
        "hidden": [
            (
                _from_heading(doc, start, conversation.messages[ids[0]]) + 1,
                _with_heading(doc, _with_error(doc, end)) + 1,
                _turns([conversation.messages[id] for id in ids]),
                conversation.messages[ids[-1]].metadata.get("hidden_by"),
            )
            for start, end, ids in hidden_ranges(doc, conversation)
        ],
        "variants": variants,
    }


def shown_variants(conversation: Conversation) -> list[tuple[str, int, int]]:
    """Return the visible messages that have variants: id, number among them from 1, how many there are.

    If no variant is shown, the number is 0 and the message is the last variant.
    """
    found = []
    for after in dict.fromkeys(group.after for group in hidden.groups_since(conversation)):
        if not hidden.is_shown(conversation, after):
            continue
        all_of = hidden.variants(conversation, after)
        number = next((number for number, variant in enumerate(all_of, 1) if variant.group is None), 0)
        found.append((all_of[number - 1].first.id, number, len(all_of)))
    return found


def prompts(conversation: Conversation) -> list[dict[str, Any]]:
    """Return the prompts that can be rewound to, oldest first."""
    return [
        {"message_id": message.id, "text": message.text[:200], "created_at": message.row.get("created_at")}
        for message in hidden.prompts(conversation)
    ]


def candidates(of: Conversation | Sequence[Message]) -> str:
    """List the last prompts, as a hint after a wrong id."""
    found = hidden.prompts(of) if isinstance(of, Conversation) else of
    if not found:
        return "There is no prompt yet"
    listed = ", ".join(f"{message.id} “{one_line(message.text, _SHOWN)}”" for message in reversed(found[-_LISTED:]))
    left = len(found) - _LISTED
    return f"The prompts are {listed}" + (f" and {left} earlier ones" if left > 0 else "")


def _from_heading(doc: Document, start: int, first: Message) -> int:
    """Return where a hidden region starts in the display: at the heading above, if no prompt follows that."""
    above = next((each for each in (RUN_CLOSE + RUN_OPEN, RUN_CLOSE) if doc.body.endswith(each, 0, start)), "")
    return start - len(above) if first.role != "user" else start


def _with_error(doc: Document, end: int) -> int:
    """Return where a hidden region ends in the display: behind the error block of its run."""
    error = _ERROR.match(doc.body, end)
    index = bisect_right(doc.spans, end, key=lambda span: span.start)
    is_recorded = error is not None and index < len(doc.spans) and doc.spans[index].kind == "ignore"
    return error.end() if error is not None and is_recorded else end


def _with_heading(doc: Document, end: int) -> int:
    """Return where a hidden region ends in the display: behind the heading below, if no prompt follows that."""
    answer = end + len(RUN_CLOSE + RUN_OPEN)
    index = bisect_right(doc.spans, end, key=lambda span: span.start)
    is_left = doc.body.startswith(RUN_CLOSE + RUN_OPEN, end) and index < len(doc.spans)
    return end + len(RUN_CLOSE) if is_left and answer <= doc.spans[index].start <= answer + 1 else end


def _turns(messages: Sequence[Message]) -> int:
    """Return the number of turns in messages; an answer without its prompt counts as one."""
    return sum(message.role == "user" for message in messages) + any(each.role != "user" for each in messages[:1])


# Finding the message of an operation: a prompt to rewind to or to repeat, a variant to show.


def chosen_prompt(conversation: Conversation, message_id: str) -> Message:
    """Return the visible user message with an id.

    Raises:
        NotFound: There is none; the error lists the prompts.
    """
    found = hidden.prompts(conversation)
    for prompt in found:
        if prompt.id == message_id:
            return prompt
    what = "is no prompt that can be chosen" if message_id in conversation.messages else "is not in this branch"
    raise NotFound(f"Message {message_id} {what}", hint=candidates(found))


def variants_of(conversation: Conversation, message_id: str) -> list[Variant]:
    """Return all variants of a message, itself included, oldest first.

    Raises:
        NotFound: There is no such message, or the message before it is hidden.
    """
    message = conversation.messages.get(message_id)
    if message is None:
        raise NotFound(f"Message {message_id} is not in this branch", hint=candidates(conversation))
    if not message.is_hidden:
        return hidden.variants(conversation, hidden.before(conversation, message_id))
    after = str(message.metadata.get("hidden_after", ""))
    if message.is_rewound and hidden.is_shown(conversation, after):
        found = hidden.variants(conversation, after)
        if any(variant.first.id == message_id for variant in found):
            return found
    raise NotFound(f"Message {message_id} is hidden together with what came before it", hint="Choose that first")


def prompt_of(conversation: Conversation, message_id: str | None) -> Message:
    """Return the prompt of a message's turn; steering messages are no prompts.

    The message is the prompt or an answer to it; None means the last one.

    Raises:
        NotFound: The message is hidden, or there is none.
    """
    shown = hidden.visible(conversation)
    if message_id is not None:
        ids = [message.id for message in shown]
        if message_id not in ids:
            raise NotFound(f"Message {message_id} is not shown in this branch", hint=candidates(conversation))
        shown = shown[: ids.index(message_id) + 1]
    for message in reversed(shown):
        steered = message.metadata.get("steered") and not message.metadata.get("context")  # of a restored one: a turn
        if message.role == "user" and not steered:
            return message
    raise NotFound("There is no prompt to ask again", hint="Write and send one first")


_MOST_ROLES = 4000  # in one event; a client attaches again if there are more
_CARRIED = ("agent", "model", "settings")  # metadata of a prompt that its new version keeps


class HistoryChange(TypedDict):
    """The messages that an operation hid and showed, by id."""

    hidden: list[str]
    shown: list[str]
    turns: int  # number of turns shown or, if none, hidden
    files: NotRequired[RestoreReply]  # result of restoring files, if requested


class History:
    """The operations on a branch's history."""

    def __init__(self, kernel: "Kernel") -> None:
        self._kernel = kernel

    async def rewind(self, branch: LiveBranch, message_id: str, *, files: bool = False) -> HistoryChange:
        """Hide everything behind one of the user's messages; with ``files`` restore the files changed since.

        Raises:
            Busy: A run is in flight.
            NotFound: There is no such user message.
        """
        async with branch.starting:
            self.require_ready(branch)
            prompt = chosen_prompt(branch.conversation, message_id)
            gone = hidden.continuation(branch.conversation, prompt.id)
            restored = await self._kernel.feature(Snapshots).restore(branch.ref, prompt.id) if files else None
            notes = {"restored": restored["id"]} if restored and restored["id"] else {}
            changed = await self._hide(branch, gone, by="rewind", after=prompt.id, **notes)
            return {**changed, "files": restored} if restored else changed

    async def unrewind(self, branch: LiveBranch) -> HistoryChange:
        """Undo the last rewind, with the files that it restored.

        Raises:
            Busy: A run is in flight.
            BadRequest: There is no rewind, or a message was sent since.
        """
        async with branch.starting:
            self.require_ready(branch)
            conversation = branch.conversation
            group = hidden.last_rewind(conversation)
            if group is None:
                raise BadRequest(
                    "There is no rewind to reverse", hint="Only turns that a rewind hid can be shown again"
                )
            if not hidden.is_shown(conversation, group.after) or hidden.continuation(conversation, group.after):
                raise BadRequest(
                    "Something was sent since the last rewind",
                    hint="What it took back is a variant of that now: choose it there, or rewind to the same prompt",
                )
            restored = str(group.messages[0].metadata.get("restored") or "")
            files = await self._kernel.feature(Snapshots).undo(branch.ref, restored) if restored else None
            await self._change(branch, hidden.show(group.messages, now_ms=branch.recorder.now_ms()))
            changed = _changed(shown=group.messages)
            return {**changed, "files": files} if files else changed

    async def regenerate(
        self, branch: LiveBranch, message_id: str | None, options: SendOptions
    ) -> tuple[HistoryChange, Receipt]:
        """Send a prompt again; its answer so far, and what came after it, becomes a variant of the new one.

        The message is the prompt or an answer to it; None means the last one.

        Raises:
            Busy: A run is in flight, or messages are queued.
            NotFound: There is no such message.
            PyagentdError: The run cannot start; then nothing has changed.
        """
        async with branch.starting:
            self.require_ready(branch, queue=branch.paused)  # else the new prompt is answered after the queue
            prompt = prompt_of(branch.conversation, message_id)
            gone = hidden.continuation(branch.conversation, prompt.id)
            changed = await self._hide(branch, gone, by="variant", after=prompt.id)
            at = await self._place(branch, prompt)
            submission = Submission(text=None, at=at, options=options, metadata=_carried_metadata(prompt))
            return changed, await self._attempt(branch, gone, submission)

    async def edit(
        self, branch: LiveBranch, message_id: str, text: str, options: SendOptions
    ) -> tuple[HistoryChange, Receipt]:
        """Hide a prompt and everything after it, and send ``text`` instead.

        If the document has ``text`` in place of the prompt already, the recorded prompt is written back there first.

        Raises:
            Busy: A run is in flight, or messages are queued.
            NotFound: There is no such user message.
            PyagentdError: The run cannot start; then nothing has changed.
        """
        if not text.strip():
            raise BadRequest("The prompt is empty", hint="Write something")
        async with branch.starting:
            self.require_ready(branch, queue=branch.paused)  # else the new prompt is answered after the queue
            prompt = chosen_prompt(branch.conversation, message_id)
            is_put_back = await self._reword(branch, prompt, text, prompt.text)
            after = hidden.before(branch.conversation, prompt.id)
            gone = hidden.continuation(branch.conversation, after)
            changed = await self._hide(branch, gone, by="edit", after=after)
            submission = Submission(text=text, options=options, metadata=_carried_metadata(prompt))
            try:
                return changed, await self._attempt(branch, gone, submission)
            except PyagentdError:
                if is_put_back:
                    await self._reword(branch, prompt, prompt.text, text)
                raise

    async def choose(self, branch: LiveBranch, message_id: str, number: int) -> HistoryChange:
        """Show another variant of a message, 1 being the oldest, with the turns after it.

        Raises:
            Busy: A run is in flight.
            NotFound: There is no such message, or no variant with this number.
        """
        async with branch.starting:
            self.require_ready(branch)
            conversation = branch.conversation
            found = variants_of(conversation, message_id)
            if not 1 <= number <= len(found):
                raise NotFound(
                    f"There is no variant {number} of {message_id}", hint=f"There are variants 1 to {len(found)}"
                )
            chosen = found[number - 1]
            if chosen.group is None:
                return _changed()
            now_ms = branch.recorder.now_ms()
            gone = hidden.continuation(conversation, chosen.group.after)
            rows = list(hidden.hide(gone, by="variant", after=chosen.group.after, now_ms=now_ms))
            await self._change(branch, [*rows, *hidden.show(chosen.messages, now_ms=now_ms)])
            return _changed(hidden=gone, shown=chosen.messages)

    async def clear_held(self, branch: LiveBranch, **notes: Any) -> HistoryChange:
        """Clear the conversation, hiding it behind a boundary; the caller holds ``branch.starting``.

        ``notes`` become metadata of its messages; ``notice`` is shown to clients that open the branch.

        Raises:
            Busy: A run is in flight.
            BadRequest: There is no conversation.
        """
        self.require_ready(branch)
        gone = hidden.continuation(branch.conversation, "")
        if not gone:
            raise BadRequest("No active session to clear")
        return await self._hide(branch, gone, by=hidden.CONTEXT, after="", **notes)

    # -- inside ------------------------------------------------------------------------------------------------

    def require_ready(self, branch: LiveBranch, *, queue: bool = True) -> None:
        """Raise ``Busy`` or ``StoreError`` if changes are impossible now; without ``queue`` also if messages wait."""
        branch.require_idle()
        branch.require_writable()
        if self._kernel.closing:
            raise Busy("The daemon is stopping", hint="Try again in a moment")
        if not queue and branch.queue.waiting:
            raise Busy("Messages are queued", hint="Wait for the answers, or remove the messages from the queue")

    async def _hide(
        self, branch: LiveBranch, messages: Sequence[Message], *, by: By, after: str, **notes: Any
    ) -> HistoryChange:
        if messages:
            rows = hidden.hide(messages, by=by, after=after, now_ms=branch.recorder.now_ms(), **notes)
            await self._change(branch, rows)
        return _changed(hidden=messages)

    async def _change(self, branch: LiveBranch, rows: Iterable[Mapping[str, Any]]) -> None:
        """Record message rows that hide and show messages, and update the document's roles."""
        changed = list(rows)
        version, doc = await branch.record_edits()
        before = branch.conversation
        after = before.with_rows(changed)
        made = await asyncio.to_thread(change_roles, doc, before.snapshot(), after)
        # The user removed or changed those messages that are visible now but not in the document.
        lacking = (await asyncio.to_thread(align, made, after)).edits
        with branch.recorder.together():
            for row in changed:
                branch.recorder.record("message", row)
            for edit in lacking:
                branch.recorder.record("edit", edit)
        branch.tell_roles(version, made.spans)
        await branch.secure()
        self._kernel.bus.tell(HistoryChanged(branch))
        self._kernel.bus.tell(BranchWritten(branch.ref))

    async def _reword(self, branch: LiveBranch, prompt: Message, old: str, new: str) -> bool:
        """Replace ``old`` by ``new`` in the document's text of a prompt; return whether it had ``old``."""
        if old.strip() == new.strip():
            return False
        live = await branch.document.look()
        doc, revision = live.document, live.revision
        found = await asyncio.to_thread(recognise, doc, branch.conversation.snapshot())
        for place in [piece.found for piece in found.pieces if piece.message and piece.message.id == prompt.id]:
            words = doc.body[place.start : place.end].strip().removeprefix(PROMPT_PREFIX).strip()
            if words == old.strip():
                begin = doc.body.index(words, place.start)
                branch.document.edit(None, revision, (Hunk(begin, begin + len(words), new.strip()),))
                return True
        return False

    async def _place(self, branch: LiveBranch, prompt: Message) -> DocumentVersion:
        """Make room for another answer to ``prompt``; return its place."""
        conversation, live = branch.conversation.snapshot(), await branch.document.look()
        version, doc = DocumentVersion(revision=live.revision), live.document
        made = await asyncio.to_thread(answer_place, doc, conversation, prompt.id)
        branch.tell_roles(version, made.document.spans, made.marker)
        await branch.secure()
        return replace(version, marker=made.marker)

    async def _attempt(self, branch: LiveBranch, gone: Sequence[Message], submission: Submission) -> Receipt:
        """Submit a message; show the hidden messages again if no run can start."""
        try:
            return await self._kernel.queue.submit(branch, submission)
        except PyagentdError:
            if gone:
                back = [branch.conversation.messages[message.id] for message in gone]
                await self._change(branch, hidden.show(back, now_ms=branch.recorder.now_ms()))
            raise


def _carried_metadata(prompt: Message) -> dict[str, Any]:
    return {key: prompt.metadata[key] for key in _CARRIED if key in prompt.metadata}


def _changed(hidden: Sequence[Message] = (), shown: Sequence[Message] = ()) -> HistoryChange:
    ids = [message.id for message in hidden], [message.id for message in shown]
    return {"hidden": ids[0], "shown": ids[1], "turns": _turns(shown or hidden)}


# Forking a session at one of its messages, and listing the forks.


async def fork_of(
    kernel: Kernel, branch: LiveBranch, message_id: str | None, *, title: str | None = None
) -> BranchRef:
    """Fork a session from a branch up to a message, by default all that is visible; a failed last run is no obstacle.

    Raises:
        Busy: A run is in flight.
        BadRequest: The branch is an agent's, or its session is not trusted.
        NotFound: The message cannot be forked at; the error lists the prompts.
        StoreError: A write failed; nothing was created.
    """
    ref = branch.ref
    if ref.is_agent:
        raise BadRequest(f"{ref.session_id} is an agent", hint="Fork the session it works for")
    if kernel.origins.foreign(ref):  # a fork would be the user's own
        raise BadRequest(f"{ref.session_id} is not from this machine", hint="Read its preset.md, then trust it")
    async with branch.starting:
        branch.require_idle()
        await _settle(branch)
        conversation = branch.conversation.snapshot()
        shown = hidden.visible(conversation)
        if not shown:
            raise NotFound(f"{ref.session_id} has no message yet", hint="Write and send one first")
        while shown and message_id not in (None, shown[-1].id):
            shown.pop()
        if not shown:
            raise NotFound(
                f"Message {message_id} cannot be forked at: only what is shown can", hint=candidates(conversation)
            )
        return await asyncio.to_thread(
            branching.fork_session,
            ref,
            conversation,
            shown,
            root=kernel.config.sessions_dir,
            title=title,
            clock=kernel.clock,
        )


def forks_of(ref: BranchRef, known: Iterable[BranchRef]) -> list[dict[str, Any]]:
    """Return the sessions among ``known`` that were forked from the session of ``ref``, oldest first; blocks."""
    found: dict[str, dict[str, Any]] = {}
    for other in known:
        if other.is_agent or other.session_id in found:
            continue
        row = metadata.first_row(other.branch_dir)
        if row.get("parent_id") == ref.session_id and row.get("parent_message_id"):
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
    """Record the user's edits of the document in the log, if that can be written."""
    if branch.refusal:
        return
    branch.recorder.flush()
    await branch.document.settle()
    with contextlib.suppress(StoreError):  # then the fork has what the log has
        await branch.record_edits()
