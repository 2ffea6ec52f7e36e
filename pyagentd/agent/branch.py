"""A branch that somebody works with: its log, its document, its run, and who watches.

Opened from disk on demand and dropped when nobody needs it. Whatever an earlier daemon left unfinished is finished
when the branch is opened: calls in flight are closed, the run is ended, and text that was recorded but never reached
the document is put there (DESIGN §6).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pyagentd.agent.answer import message_row, part_row
from pyagentd.agent.keeper import Keeper
from pyagentd.agent.persist import Version
from pyagentd.agent.recorder import Recorder
from pyagentd.agent.run import Outcome, Run
from pyagentd.clock import Clock
from pyagentd.errors import BadRequest, Busy, NotFound
from pyagentd.events import Event, Sink
from pyagentd.messages import Message, Text
from pyagentd.pulse import Pulse
from pyagentd.sexp import tagged
from pyagentd.store import document, paths
from pyagentd.store.align import align
from pyagentd.store.conversation import Conversation
from pyagentd.store.journal import Journal, Row
from pyagentd.store.paths import BranchRef
from pyagentd.store.render import Insert, Renderer, prompt_text, replay, writable

RESTARTED = "aborted by host restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a run is to answer."""

    text: str
    view: tuple[Message, ...]  # what the model sees, the prompt last
    version: Version  # the document before the run's first insert, which goes to its marker
    insert: str = ""  # what is to be put into the document; "" when the user wrote it there


class LiveBranch:
    """One open branch.

    Attributes:
        run: The run in flight, until all of its end is recorded and told.
        task: What supervises it.
        starting: Held while a run is being started, so that of two only one is.
        users: How many operations need the branch to stay open.
    """

    def __init__(self, ref: BranchRef, *, pulse: Pulse, clock: Clock) -> None:
        self.ref = ref
        self.key = ref.key
        self.run: Run | None = None
        self.task: asyncio.Task[Outcome] | None = None
        self.starting = asyncio.Lock()
        self.users = 0
        self.status: dict[str, Any] = {"state": "idle"}
        self.sinks: dict[Sink, None] = {}  # in the order they attached
        self.file = paths.session_file(ref.branch_dir)
        self._attaching: dict[object, Sink] = {}
        self._questions = 0
        self._unasked: Mapping[str, Any] = self.status  # before the first open question
        self.keeper = Keeper(self.file, persisted=self._persisted)
        self.recorder = Recorder(
            journal=Journal.open(paths.journal_file(ref.branch_dir)),
            conversation=Conversation(),
            renderer=Renderer(),
            pulse=pulse,
            clock=clock,
            show=self._show,
        )
        try:
            self._load()
        except BaseException:
            self.abandon()
            raise

    @property
    def conversation(self) -> Conversation:
        """The recorded messages, kept up to date with every row."""
        return self.recorder.conversation

    @property
    def idle(self) -> bool:
        """Whether nobody would notice if the branch were closed."""
        return self.run is None and not self.sinks and not self.users

    def publish(self, event: Event) -> None:
        """Tell everybody who watches."""
        for sink in self.sinks:
            sink.push(event)

    def set_status(self, status: Mapping[str, Any]) -> None:
        """Note and tell what the branch is doing; not recorded, true only now."""
        self.status = dict(status)
        self.publish(Event("status", self.key, 0, (self.status,)))

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Show that a human is asked, as long as any question of the run is open."""
        if not self._questions:
            self._unasked = self.status
            self.set_status({**self.status, "state": "waiting"})
        self._questions += 1
        try:
            yield
        finally:
            self._questions -= 1
            if not self._questions:
                self.set_status(self._unasked)

    def record_session(
        self,
        *,
        workspace_root: Path,
        agent: str = "",
        parent: BranchRef | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Record the facts of the session itself; what was recorded before and is not named here stays."""
        now = self.recorder.now_ms()
        known = self.conversation.session or {
            "id": self.ref.session_id,
            "agent": agent,
            "parent_id": parent.session_id if parent else None,
            "parent_branch": parent.branch_name if parent else None,
            "title": "",
            "permissions_json": [],
            "metadata_json": {},
            "created_at": now,
        }
        row = {
            **known,
            "workspace_root": str(workspace_root),
            "metadata_json": {**known["metadata_json"], **(metadata or {})},
            "updated_at": now,
        }
        self.recorder.record("session", row)

    # -- prompts -----------------------------------------------------------------------------------------------

    def prompt_from_document(self, *, sha256: str, end: int) -> Prompt:
        """Read the saved document up to ``end`` (code points from 0) and return the prompt there.

        Raises:
            BadRequest: The file is not what the client says it saved, or there is no prompt.
        """
        doc = document.read(self.file)
        if document.body_sha256(doc.body) != sha256:
            raise BadRequest(f"{self.file} changed since it was saved", mend="Revert or save the buffer, then send")
        aligned = align(doc, self.conversation, end)
        text = aligned.new_prompt or aligned.last_prompt  # sending again asks the same question again
        if not text:
            raise BadRequest("There is no prompt before point", mend="Write something first")
        for edit in aligned.edits:
            self.recorder.record("edit", edit)
        version = Version(sha256=sha256, seq=self.recorder.last_seq, marker=end)
        return Prompt(text=text, view=aligned.view, version=version)

    def prompt_from_client(self, text: str) -> Prompt:
        """Return the prompt that a client sent as text; the model sees the whole document, then ``text``.

        Raises:
            BadRequest: It is empty.
        """
        text = writable(text.strip())
        if not text:
            raise BadRequest("The prompt is empty", mend="Write something")
        doc = document.read(self.file)
        aligned = align(doc, self.conversation, len(doc.body))
        return Prompt(
            text=text,
            view=_with_prompt(aligned.view, text),
            version=Version(sha256=document.body_sha256(doc.body), seq=self.recorder.last_seq, marker=len(doc.body)),
            insert=prompt_text(doc.body, text, is_agent=self.ref.is_agent),
        )

    def start_run(self, prompt: Prompt, *, run_id: str, interactive: bool) -> int:
        """Record the user's message and the start of its run, show both, and return the last row's number."""
        now = self.recorder.now_ms()
        origin = "client" if prompt.insert else "document"
        message = message_row(role="user", session_id=self.ref.session_id, metadata={"origin": origin}, now_ms=now)
        part = part_row(
            message_id=message["id"],
            session_id=self.ref.session_id,
            index=0,
            kind="text",
            data={"type": "text", "text": prompt.text},
            now_ms=now,
        )
        anchor = prompt.version.marker or 0
        self.keeper.begin(
            prompt=prompt.text, inserted_prompt=bool(prompt.insert), anchor=anchor, version=prompt.version
        )
        self.recorder.record("message", message)
        seq = self.recorder.record("part", part)
        if prompt.insert:
            self.keeper.add(Insert(prompt.insert, None, part["id"], seq))
            self.publish(Event("prompt", self.key, seq, (prompt.text,)))
        run = {
            "id": run_id,
            "state": "started",
            "message_id": message["id"],
            "interactive": interactive,
            "anchor": anchor,
            "prompt": prompt.insert,
        }
        return self.recorder.record("run", run)

    async def secure(self) -> None:
        """Return when what was recorded survives a power failure, and the document holds it if the daemon writes it.

        Raises:
            StoreError: The disk refused.
        """
        await self.recorder.commit()
        await self.keeper.flush()

    def stop(self) -> None:
        """Have the run end as soon as it can; its task says when it has."""
        if self.run is not None:
            self.run.abort()

    def finish_run(self, run_id: str, outcome: Outcome) -> None:
        """Record the end of a run.

        Raises:
            StoreError: The disk refused; the run stays open in the log.
        """
        error = {"code": outcome.code, "message": outcome.message} if outcome.reason == "error" else None
        run = self.conversation.runs[run_id].data
        self.recorder.record("run", {**run, "state": "finished", "reason": outcome.reason, "error": error})

    @property
    def has_open_run(self) -> bool:
        """Whether the log has a run without its end."""
        run = self.conversation.last_run
        return run is not None and not run.is_finished

    # -- clients -----------------------------------------------------------------------------------------------

    async def attach(
        self, sink: Sink, *, sha256: str | None, seq: int | None, mode: Literal["edit", "view"]
    ) -> dict[str, Any] | None:
        """Let ``sink`` watch, or also edit, from the version it has; None when it must read the file again.

        A client that is attached and fell behind names the last event it saw, ``seq``.

        Raises:
            NotFound: The client left meanwhile.
            StoreError: The disk refused.
        """
        attempt = object()
        self._attaching[attempt] = sink
        try:
            self.recorder.flush()
            await self.keeper.flush()
        finally:
            left = self._attaching.pop(attempt, None) is None
        if left:
            raise NotFound(f"{self.key} was detached meanwhile", mend="Attach it again")
        if seq is not None and sink in self.sinks and self.keeper.knows_since(seq):
            # It fell behind; its own marker goes on.
            version: Version | None = Version(sha256=sha256 or "", seq=seq, marker=None)
        else:
            version = self.keeper.version(sha256 or "")
        if version is None:
            return None
        # No await from here on: the answer and the events after it are in one order.
        self.sinks[sink] = None
        sink.reset(self.key, self.recorder.last_seq)
        editor = mode == "edit" and self.keeper.lease(sink, version if version.marker is not None else None)
        return {
            "branch": self.key,
            "seq": self.recorder.last_seq,
            "editor": editor,
            "marker": None if version.marker is None else version.marker + 1,
            "inserts": [(i.seq, i.text, tagged(i.role)) for i in self.keeper.missing(version)],
            "status": self.status,
        }

    def detach(self, sink: Sink) -> None:
        """Let ``sink`` go; a run goes on."""
        self.sinks.pop(sink, None)
        self._attaching = {attempt: other for attempt, other in self._attaching.items() if other is not sink}
        self.keeper.release(sink)

    def saved(self, sink: Sink, version: Version) -> None:
        """Note that the editor wrote the file."""
        if self.keeper.editor is sink:
            self.keeper.saved(version)
            self.note_complete()

    def note_complete(self) -> None:
        """Record once that the last run's text has reached the document, so that nothing puts it there again."""
        run = self.conversation.last_run
        if run and run.is_finished and not run.is_kept and self.keeper.complete:
            self.recorder.record("run", {**run.data, "state": "kept"})

    async def close(self) -> None:
        """Write what is left and close the log.

        Raises:
            StoreError: The disk refused; the log is closed nevertheless.
        """
        try:
            await self.keeper.flush()
        finally:
            self.close_now()

    def close_now(self) -> None:
        """Close the log; what the document lacks it gets when the branch is opened again."""
        self.keeper.close()
        self.recorder.close()

    def abandon(self) -> None:
        """Close the log without writing anything; whoever watches must attach anew."""
        self.keeper.close()
        self.recorder.journal.close()
        self.publish(Event("resync", self.key, self.recorder.last_seq))

    # -- inside ------------------------------------------------------------------------------------------------

    def require_idle(self) -> None:
        """Raise ``Busy`` if a run is in flight."""
        if self.run is not None:
            raise Busy(f"{self.ref.session_id} is answering", mend="Wait for the answer, or abort it first")

    def _show(self, row: Row, inserts: list[Insert]) -> None:
        for insert in inserts:
            self.keeper.add(insert)
            self.publish(Event("insert", self.key, insert.seq, (insert.text, insert.role)))

    def _persisted(self, version: Version, mtime: float) -> None:
        self.publish(Event("persisted", self.key, 0, ({"sha256": version.sha256, "mtime": mtime},)))
        self.note_complete()

    def _load(self) -> None:
        for row in self.recorder.journal.current():
            self.conversation.apply(row)
        run = self.conversation.last_run
        if run is None or run.is_kept:
            return
        if not run.is_finished:
            self._close_interrupted(run.data)
        inserts = replay(self.recorder.journal.rows(after=run.first_seq - 1), after=0)
        if inserted := run.data.get("prompt"):
            inserts.insert(0, Insert(inserted, None, "", run.first_seq - 1))
        message = self.conversation.messages.get(run.data["message_id"])
        self.keeper.recover(
            prompt=message.text if message else "",
            inserted_prompt=bool(inserted),
            anchor=run.data.get("anchor") or 0,
            inserts=inserts,
        )
        self.note_complete()

    def _close_interrupted(self, run: Mapping[str, Any]) -> None:
        """End what an earlier daemon left running."""
        for part in list(self.conversation.parts.values()):
            match part.data.get("state"):
                case "streaming":
                    data = {**part.data, "text": part.text, "state": "done"}
                    self.recorder.record("part", {**part.row, "data_json": data})
                case "input-available":
                    data = {**part.data, "state": "output-error", "errorText": RESTARTED}
                    self.recorder.record("part", {**part.row, "data_json": data, "tool_state": data["state"]})
        for ask in list(self.conversation.asks.values()):
            if ask["decision"] is None:
                self.recorder.record("ask", {**ask, "decision": "abort", "decided_reason": RESTARTED})
        error = {"code": "restart", "message": RESTARTED}
        self.recorder.record("run", {**run, "state": "finished", "reason": "restart", "error": error})


def _with_prompt(view: tuple[Message, ...], text: str) -> tuple[Message, ...]:
    """Return ``view`` with ``text`` as the user's last word, joined to a user message that already ends it."""
    part = Text(text=text.strip())
    if view and view[-1].role == "user":
        return (*view[:-1], Message(role="user", parts=(*view[-1].parts, part)))
    return (*view, Message(role="user", parts=(part,)))
