"""Submitting a message: it starts a run, or waits in the queue of its branch until the run in flight has ended."""

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pyagentd.clock import new_id
from pyagentd.config.tables import compile_action
from pyagentd.errors import BadRequest, Blocked, Busy, Conflict, NotFound, PyagentdError
from pyagentd.events import Event
from pyagentd.runtime import turns
from pyagentd.runtime.document_sync import DocumentVersion
from pyagentd.runtime.opening import BLANK, CLEARS
from pyagentd.runtime.presets import require_agent
from pyagentd.runtime.recorder import Recorder
from pyagentd.runtime.run_setup import RunBuilder
from pyagentd.runtime.settings import LastOptions, SendOptions
from pyagentd.runtime.status import told_of
from pyagentd.runtime.turns import Prompt
from pyagentd.store import paths
from pyagentd.store.conversation import Message
from pyagentd.store.document.hidden import is_visible
from pyagentd.store.document.render import writable
from pyagentd.store.journal import part_row, rows_of_message
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:
    from pyagentd.runtime.branch import LiveBranch
    from pyagentd.runtime.kernel import Kernel


CommandRule = Literal["human", "never", "always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A message for the model.

    Attributes:
        text: The text; None for the prompt that ends at the marker of ``at``, a version of the document.
        options: The client's options for the run that answers it.
        id: The id of the message, made by the client, so that a repeated submission is recognised.
        metadata: Of the message's row: ``agent``, ``model`` {provider_id, model_id}, ``trigger``, ``origin``, …
        steer: Whether the run in flight reads it at its next step, if it has another one.
        command: Whether the text may be a slash command: ``human`` if so, but commands that change something need a
            human; ``never``; or ``always``, whatever the command changes.
    """

    text: str | None
    at: DocumentVersion = field(default_factory=DocumentVersion)
    options: SendOptions
    id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    steer: bool = False
    command: CommandRule = "human"

    @property
    def payload(self) -> str:
        """A hash that distinguishes it from another submission with the same id."""
        content = [self.text, None if self.text is not None else "document", self.steer]
        named = {key: self.metadata.get(key) for key in ("agent", "model")}
        return hashlib.sha256(json.dumps([content, named], sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The result of a submission.

    Attributes:
        message_id: The message's id.
        run_id: The run that answers it; None while it is queued.
        queued: Whether it is queued.
        seq: The number of the log's last row.
        ended: How a repeated submission ended before: the reason of its run's end, or ``canceled``; else "".
    """

    message_id: str
    run_id: str | None
    queued: bool
    seq: int
    ended: str = ""


def is_persons(metadata: Mapping[str, Any]) -> bool:
    """Return whether a message with this metadata is from a person, not from a trigger or an agent.

    Only a person's message continues a queue after an error.
    """
    return not metadata.get("trigger") and metadata.get("origin") != "agent"


# The queued messages of one branch, which are stored as rows of its log only.
#
# A message is queued while its ``metadata_json`` has ``queued_at``; it fires when a row without that key is
# recorded, and then its ``created_at`` is the time of firing. A cancelled message leaves a hidden tombstone
# (``queue_canceled_at``, ``hidden_at``). First come, first served: by ``queued_at``, which never decreases in a log,
# and among equals by position in the log.

_OWN = ("queued_at", "steer", "interactive", "allow")  # metadata that only a queued message has
_TOLD = ("agent", "model", "trigger", "agents")  # ... that is sent to clients unchanged


class Waitlist:
    """The queue of one branch.

    Args:
        recorder: The branch's log.
        session_id: The session of the messages.
    """

    def __init__(self, recorder: Recorder, session_id: str) -> None:
        self._recorder = recorder
        self._session_id = session_id

    @property
    def waiting(self) -> list[Message]:
        """The queued messages, next one first."""
        if not (queued := self._recorder.conversation.queued):
            return []
        known = queued.values()
        return sorted((message for message in known if "queued_at" in message.metadata), key=_queued_at)

    def to_wire(self) -> list[dict[str, Any]]:
        """Return the queue in wire format: {id, text, queued_at, steer, origin, …}, next one first."""
        rows = []
        for message in self.waiting:
            metadata = message.metadata
            row = {
                "id": message.id,
                "text": message.text,
                "queued_at": metadata["queued_at"],
                "steer": bool(metadata.get("steer")),
                "origin": metadata.get("origin", ""),
            }
            rows.append(row | {key: metadata[key] for key in _TOLD if key in metadata})
        return rows

    def get(self, message_id: str) -> Message:
        """Return a queued message.

        Raises:
            NotFound: The message is not in the queue; the error says whether it was sent or cancelled.
        """
        conversation = self._recorder.conversation
        message = conversation.queued.get(message_id)
        if message is not None and "queued_at" in message.metadata:
            return message
        if message is not None:
            raise NotFound(f"The message {message_id} was taken back already")
        if message_id in conversation.messages:
            raise NotFound(f"The message {message_id} was sent already", hint="Abort its run, or rewind")
        raise NotFound(f"The queue has no message {message_id}", hint="`pyagentd queue SESSION` lists it")

    def add(self, text: str, submission: Submission) -> str:
        """Record a queued message, and return its id.

        Raises:
            StoreError: The disk refused.
        """
        now = self._recorder.now_ms()
        queued_at = max([now, *map(_queued_at, self.waiting)])
        metadata = {
            "origin": "client" if submission.text is not None else "document",
            **submission.metadata,
            "queued_at": queued_at,
            "queue_enqueued_at": queued_at,
            "interactive": submission.options.interactive,
        }
        if submission.options.grants:
            metadata["allow"] = [grant.pattern for grant in submission.options.grants]
        if submission.id is not None:
            metadata["payload"] = submission.payload
        if submission.steer:
            metadata["steer"] = True
        fields = {"session_id": self._session_id, "metadata": metadata, "now_ms": now, "id": submission.id}
        rows = rows_of_message([{"type": "text", "text": text}], role="user", **fields)
        with self._recorder.together():
            for kind, data in rows:
                self._recorder.record(kind, data)
        return str(rows[0][1]["id"])

    def cancel(self, message_id: str) -> str:
        """Cancel a message and return its text; a tombstone stays.

        Raises:
            NotFound: It is not in the queue.
            StoreError: The disk refused.
        """
        message, now = self.get(message_id), self._recorder.now_ms()
        metadata = {key: value for key, value in message.metadata.items() if key not in _OWN}
        metadata |= {"queue_canceled_at": now, "hidden_at": now, "hidden_by": "cancel"}
        self._recorder.record("message", {**message.row, "metadata_json": metadata, "updated_at": now})
        return message.text

    def edit(self, message_id: str, text: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Replace a message's text, and change its metadata; its place stays.

        Raises:
            BadRequest: The text is empty.
            NotFound: It is not in the queue.
            StoreError: The disk refused.
        """
        message, now = self.get(message_id), self._recorder.now_ms()
        if not text.strip():
            raise BadRequest("The text is empty", hint="Take the message back instead")
        with self._recorder.together():
            changed = {**message.row, "metadata_json": {**message.metadata, **(metadata or {})}, "updated_at": now}
            self._recorder.record("message", changed)
            self._recorder.record("part", self._part(message, text, now))

    def fire(
        self, message: Message, *, text: str, metadata: Mapping[str, Any] | None = None
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the rows, type and data, that turn a queued message into the user message of a turn."""
        now = self._recorder.now_ms()
        merged = {**message.metadata, **(metadata or {})}
        kept = {key: value for key, value in merged.items() if key not in _OWN}
        changed = {"metadata_json": kept, "created_at": now, "updated_at": now}
        yield "message", {**message.row, **changed}
        yield "part", self._part(message, text, now)

    def _part(self, message: Message, text: str, now: int) -> dict[str, Any]:
        """Return the row of a message's text part with a new text."""
        data = {"type": "text", "text": text}
        part = part_row(message_id=message.id, session_id=self._session_id, index=0, data=data, now_ms=now)
        known = message.parts[0].row if message.parts else part
        return {**part, "id": known["id"], "created_at": known["created_at"]}


def _queued_at(message: Message) -> int:
    return int(message.metadata["queued_at"])


# Every turn begins here: a message starts a run, or is queued behind the run in flight.
#
# A run starts under ``branch.starting``, so of two messages at once one starts a run and the other is queued.
#
# Queued messages fire one after the other: the next one fires after a run that finished or was aborted, and when a
# branch is opened whose queue is not empty. An error pauses the queue until the user sends a new message, which fires
# at once, or calls ``resume``; ``pause`` does the same for a user who stops a run. A message's rows do not hold the
# environment and the keys of its client: these are kept here while the daemon lives, and replaced by
# ``settings.LateArrival`` afterwards.

log = logging.getLogger(__name__)

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}")
_AGAIN_S = 2.0  # pause before a message is tried again that could not start a run


@dataclass(frozen=True, slots=True)
class QueueStopped:
    """A queued message could not be answered; the queue of the branch waits for a person."""

    branch: "LiveBranch"


class Queues:
    """Accepts messages for a kernel, and manages the queues of all branches."""

    def __init__(self, kernel: "Kernel") -> None:
        self._kernel = kernel
        self._options: dict[str, SendOptions] = {}  # of queued messages, by id
        self._clients = LastOptions()  # of the person who sent last, by the branch's key
        self._drains: set[str] = set()  # keys of branches whose next message is about to fire

    # -- accepting messages; the caller holds ``branch.starting`` ------------------------------------------------

    async def submit(self, branch: "LiveBranch", submission: Submission) -> Receipt:
        """Start a run for a message, or queue it behind the run in flight.

        Raises:
            BadRequest: Its id is invalid, or it steers without a text.
            Busy: The daemon is stopping.
            Conflict: Another message has the id.
            PyagentdError: The prompt, the preset or the backend is invalid; nothing was recorded.
        """
        if submission.id is not None and not _ID.fullmatch(submission.id):
            raise BadRequest(f"{submission.id[:40]!r} is not an id", hint="Up to 100 letters, digits, and _ . : -")
        if submission.steer and submission.text is None:
            raise BadRequest("A message that steers a run is sent as text", hint="Use the operation prompt")
        if submission.id is not None and (known := self._receipt(branch, submission, submission.id)) is not None:
            return known
        branch.require_writable()
        if self._kernel.closing:
            raise Busy("The daemon is stopping", hint="Send it again in a moment")
        by_person = is_persons(submission.metadata)
        if by_person and submission.options.env:
            # A person's environment and keys also serve messages of triggers and of an earlier daemon.
            self._clients[branch.key] = submission.options
            if (late := self._kernel.trees.late.get(paths.root_of(branch.ref).key)) is not None:
                late.take(submission.options)
        # It waits for the run in flight, for earlier messages, or for a person.
        waits = not by_person if branch.paused else bool(branch.queue.waiting)
        if branch.run is not None or waits:
            return await self.add(branch, submission)
        if submission.text is None and branch.paused and await turns.waits_above(branch, submission.at):
            # It is below text that is queued since an error: all is answered in order.
            submitted = await self.add(branch, submission)
            branch.paused = False
            branch.state.clear_error()
            self.drain(branch)
            return submitted

        if submission.text is None:
            read = partial(turns.from_document, branch, submission.at)
        else:
            read = partial(turns.from_client, branch, submission.text)
        metadata = (
            submission.metadata if submission.id is None else {**submission.metadata, "payload": submission.payload}
        )
        try:
            run_id = await self._start(branch, read, submission.options, metadata, submission.id or "")
        except PyagentdError:
            if by_person:  # the person can correct it
                raise
            return await self.add(branch, submission)
        message_id = str(branch.conversation.runs[run_id].data["message_id"])
        return Receipt(message_id=message_id, run_id=run_id, queued=False, seq=branch.recorder.last_seq)

    async def _start(
        self,
        branch: "LiveBranch",
        read: Callable[[], Awaitable[Prompt]],
        options: SendOptions,
        metadata: Mapping[str, Any],
        id: str = "",
    ) -> str:
        """Start a run for the prompt that ``read`` returns; ``metadata`` and ``id`` are those of its message.

        Raises:
            Busy: The branch is being deleted, or the daemon is stopping.
            PyagentdError: The prompt, the preset or the backend is invalid; no run was recorded.
        """
        branch.require_writable()
        await branch.document.look()
        await branch.look_once()
        body = branch.document.live.document.body
        if len(body) <= BLANK and not body.strip() and is_visible(branch.conversation):  # probably by accident
            raise Conflict(
                f"{paths.session_file(branch.ref.branch_dir)} is empty, but its log has a conversation",
                hint=f"Undo that, or delete the file and open the session anew. {CLEARS}",
            )
        run_id = new_id("run")
        prompt = replace(await read(), metadata=dict(metadata), id=id)
        for each in self._kernel.features_with("before_prompt"):
            prompt = await each.before_prompt(branch, prompt, options, run_id)
        builder = RunBuilder(self._kernel, branch, run_id, options, message=prompt.metadata)
        settings = await builder.settings(prompt.settings)
        # No await from here on: a run that was recorded must be supervised.
        self._kernel.begin(branch, prompt, run_id, settings, options)
        return run_id

    def _receipt(self, branch: "LiveBranch", submission: Submission, id: str) -> Receipt | None:
        """Return the receipt of a repeated submission, None for a new one.

        Raises:
            Conflict: Another message has the id.
        """
        for other in self._kernel.all_opened:
            if other is not branch and _known(other, id):
                raise Conflict(f"The id {id} is of a message in {other.ref.session_id}", hint="Make another")
        runs = branch.conversation.runs.values()
        again = next((run.data for run in runs if run.data.get("submission") == id), None)
        message = _known(branch, str(again["message_id"]) if again else id)
        if message is None:
            return None
        payload = again.get("payload") if again else message.metadata.get("payload")
        if payload != submission.payload:
            raise Conflict(f"The id {id} is of another message", hint="Make another")
        answered = again or next((run.data for run in runs if run.data["message_id"] == message.id), None)
        run_id = answered["id"] if answered else message.metadata.get("steered")
        run = branch.conversation.runs.get(run_id or "")
        ended = str(run.data.get("reason") or "done") if run is not None and run.is_finished else ""
        return Receipt(
            message_id=message.id,
            run_id=run_id,
            queued="queued_at" in message.metadata,
            seq=branch.recorder.last_seq,
            ended="canceled" if "queue_canceled_at" in message.metadata else ended,
        )

    async def add(self, branch: "LiveBranch", submission: Submission) -> Receipt:
        """Queue a message and sync it to disk.

        Raises:
            PyagentdError: There is no text, the agent is unknown, or the disk refused.
        """
        if submission.text is None:
            text = await turns.text_to_queue(branch, submission.at)
        else:
            text = writable(submission.text.strip())
        if not text:
            raise BadRequest("The prompt is empty", hint="Write something")
        require_agent(
            self._kernel.presets, branch.ref, branch.conversation, str(submission.metadata.get("agent") or "")
        )
        message_id = branch.queue.add(text, submission)
        self._options[message_id] = submission.options
        self._kernel.hints.note(branch.ref, "queue", message_id)
        self.tell(branch)
        await branch.recorder.commit()
        if branch.run is None:
            self.drain(branch)
        return Receipt(message_id=message_id, run_id=None, queued=True, seq=branch.recorder.last_seq)

    # -- operations on queued messages ---------------------------------------------------------------------------

    async def cancel(self, branch: "LiveBranch", message_id: str) -> str:
        """Remove a message from the queue; return its text.

        Raises:
            NotFound: It is not in the queue (any more).
            StoreError: The disk refused.
        """
        async with branch.starting:
            text = branch.queue.cancel(message_id)
            self._gone(branch, message_id, "canceled")
            await branch.recorder.commit()
        return text

    async def edit(self, branch: "LiveBranch", message_id: str, text: str) -> None:
        """Replace the text of a message; its place stays.

        Raises:
            PyagentdError: The text is empty, it is not in the queue (any more), or the disk refused.
        """
        async with branch.starting:
            branch.queue.edit(message_id, writable(text.strip()))
            self.tell(branch)
            await branch.recorder.commit()

    def pause(self, branch: "LiveBranch") -> None:
        """Pause a non-empty queue until a user continues."""
        if branch.queue.waiting and not branch.paused:
            branch.paused = True
            branch.state.publish_facts()

    async def resume(self, branch: "LiveBranch", options: SendOptions) -> bool:
        """Continue a paused queue; return whether any message waits.

        ``options`` serve messages of an earlier daemon, whose own options are lost.
        """
        async with branch.starting:
            branch.paused = False
            branch.state.clear_error()
            branch.state.publish_facts()
            for message in branch.queue.waiting:
                if message.id not in self._options:
                    self._options[message.id] = self._recall_options(branch, message, options)
        self.drain(branch)
        return bool(branch.queue.waiting)

    # -- firing messages -----------------------------------------------------------------------------------------

    def run_ended(self, branch: "LiveBranch", reason: str) -> None:
        """Fire the next message after a run, or pause after an error; ``reason`` is how the run ended."""
        waiting = branch.queue.waiting
        if reason == "error":
            branch.paused = True
        elif reason == "aborted" and not any(is_persons(message.metadata) for message in waiting):
            return  # the user who stopped it does not want the agents' results now
        self.drain(branch)

    def recover(self, branch: "LiveBranch") -> None:
        """Continue the queue of a branch that was just opened."""
        if branch.refusal or not branch.queue.waiting:
            return
        branch.state.set_queued(len(branch.queue.waiting))
        self.drain(branch)

    def drain(self, branch: "LiveBranch") -> None:
        """Fire the next message as soon as no run is in flight."""
        if branch.key in self._drains or self._kernel.closing or not branch.queue.waiting or branch.paused:
            return
        self._drains.add(branch.key)
        self._kernel.spawn(self._drain(branch.ref))

    async def take_steering(self, branch: "LiveBranch", run_id: str) -> Sequence[str]:
        """Record the messages that steer a run as user messages of that run, and return their texts."""
        if not branch.conversation.queued:
            return ()
        if not (waiting := [each for each in branch.queue.waiting if each.metadata.get("steer")]):
            return ()
        asked = {each.id: each.text for each in waiting}
        seen = {each.id: await self._seen(branch, each, asked[each.id], run_id) for each in waiting}
        # A message that was edited meanwhile goes through the hooks again at the next step.
        found = [each for each in branch.queue.waiting if asked.get(each.id) == each.text]
        if not found:
            return ()
        with branch.recorder.together():
            for message in found:
                changed = {} if seen[message.id] == message.text else {"model_text": seen[message.id]}
                metadata = {"steered": run_id, **changed}
                for kind, data in branch.queue.fire(message, text=message.text, metadata=metadata):
                    branch.recorder.record(kind, data)
        for message in found:
            self._gone(branch, message.id, "steered", run=run_id)
        return [str(seen[message.id]) for message in found]

    def tell(self, branch: "LiveBranch", gone: Mapping[str, Any] | None = None) -> None:
        """Publish the queue, and how a message left it."""
        items: list[dict[str, Any]] = branch.queue.to_wire()
        facts = {"items": items, **({"gone": gone} if gone else {})}
        branch.publish(Event("queue", branch.key, 0, (facts,)))
        branch.state.set_queued(len(items))

    # -- inside --------------------------------------------------------------------------------------------------

    async def _seen(self, branch: "LiveBranch", message: Message, text: str, run_id: str) -> str | None:
        """Return the text of a steering message for the model; None if a hook blocked it."""
        try:
            for each in self._kernel.features:
                text = await each.before_steering(branch, text, self._wishes(branch, message), run_id)
            return text
        except Blocked as error:
            self._block(branch, message, error)
            return None

    def _block(self, branch: "LiveBranch", message: Message, error: Blocked) -> None:
        """Remove a message that a hook blocked from the queue; its text stays, as after a cancellation."""
        if any(each.id == message.id for each in branch.queue.waiting):
            branch.queue.cancel(message.id)
            self._gone(branch, message.id, "canceled")
            branch.say(str(error))

    async def _drain(self, ref: BranchRef) -> None:
        try:
            async with self._kernel.using(ref) as branch, branch.starting:
                self._drains.discard(ref.key)
                waiting = branch.queue.waiting
                if waiting and branch.run is None and not branch.paused and not self._kernel.closing:
                    await self._fire(branch, waiting[0])
        except PyagentdError as error:  # reported to the client that opens it
            log.warning("%s: the queue waits: %s", ref.name, error)
        finally:
            self._drains.discard(ref.key)

    async def _fire(self, branch: "LiveBranch", message: Message) -> None:
        """Start the turn of a queued message; after an error the message stays queued."""
        try:
            await branch.document.flush()  # typed text is in the file before it is recorded as sent
            read = partial(turns.of_queued, branch, message)
            await self._start(branch, read, self._wishes(branch, message), message.metadata)
        except Busy as error:
            log.info("%s: %s", branch.ref.name, error)
            # The session was being deleted while a hook looked at the message, and the deletion may have failed.
            asyncio.get_running_loop().call_later(_AGAIN_S, lambda: self.drain(branch))
        except Blocked as error:
            log.info("%s: %s", branch.ref.name, error)
            self._block(branch, message, error)
            self.drain(branch)
        except Exception as error:  # a bug too: clients must learn why the queue waits
            trace = None if isinstance(error, PyagentdError) else error
            log.error("%s: the message %s cannot be answered: %s", branch.ref.name, message.id, error, exc_info=trace)
            code, text = told_of(error)
            branch.paused = True
            branch.state.on_run_failed(message=text, code=code)
            self._kernel.bus.tell(QueueStopped(branch))
        else:
            run = branch.run.id if branch.run is not None else None
            self._gone(branch, message.id, "fired", run=run)

    def _wishes(self, branch: "LiveBranch", message: Message) -> SendOptions:
        options = self._options.get(message.id) or self._recall_options(branch, message, SendOptions())
        client = self._clients.get(branch.key)
        if client is None or options.env:
            return options
        return replace(options, env=client.env)

    def _recall_options(self, branch: "LiveBranch", message: Message, given: SendOptions) -> SendOptions:
        """Return the options of a message that an earlier daemon queued, as far as they are recorded."""
        late = self._kernel.trees.late[paths.root_of(branch.ref).key]
        late.take(given)
        grants = tuple(map(compile_action, message.metadata.get("allow", ())))
        interactive = bool(message.metadata.get("interactive"))
        return replace(given, interactive=interactive, env=late.env, late=late, grants=grants)

    def _gone(self, branch: "LiveBranch", message_id: str, why: str, *, run: str | None = None) -> None:
        """Publish that a message left the queue."""
        self._options.pop(message_id, None)
        self._kernel.hints.note(branch.ref, "queue", message_id, waits=False)
        self.tell(branch, {"id": message_id, "why": why, "run": run})


def _known(branch: "LiveBranch", message_id: str) -> Message | None:
    """Return the message with this id: fired, queued or cancelled."""
    conversation = branch.conversation
    return conversation.messages.get(message_id) or conversation.queued.get(message_id)
