"""A branch that somebody works with: its log, its document, its run, and who watches.

Opened from disk on demand and dropped when nobody needs it. Whatever an earlier daemon left unfinished is finished
when the branch is opened: calls in flight are closed, the run is ended, and text that was recorded but never reached
the document is put there (DESIGN §6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pyagentd.agent.answer import message_row, part_row
from pyagentd.agent.keeper import Keeper, Version
from pyagentd.agent.recorder import Recorder
from pyagentd.agent.run import Outcome, Run
from pyagentd.clock import Clock
from pyagentd.errors import BadRequest, Busy
from pyagentd.events import Event, Sink
from pyagentd.messages import Message, Text
from pyagentd.pulse import Pulse
from pyagentd.sexp import tagged
from pyagentd.store import document, paths
from pyagentd.store.align import align
from pyagentd.store.conversation import Conversation
from pyagentd.store.journal import Journal, Row
from pyagentd.store.paths import BranchRef
from pyagentd.store.render import Insert, Renderer

RESTARTED = "aborted by host restart"


class LiveBranch:
    """One open branch."""

    def __init__(self, ref: BranchRef, *, pulse: Pulse, clock: Clock) -> None:
        self.ref = ref
        self.key = ref.key
        self.run: Run | None = None
        self.task: asyncio.Task[Outcome] | None = None
        self.status: dict[str, Any] = {"state": "idle"}
        self.sinks: dict[Sink, None] = {}  # in the order they attached
        self.file = paths.session_file(ref.branch_dir)
        self._interrupted = False
        self.keeper = Keeper(self.file, is_agent=ref.is_agent, persisted=self._persisted)
        self.recorder = Recorder(
            journal=Journal.open(paths.journal_file(ref.branch_dir)),
            conversation=Conversation(),
            renderer=Renderer(),
            pulse=pulse,
            clock=clock,
            show=self._show,
        )
        self._load()

    @property
    def conversation(self) -> Conversation:
        """The recorded messages, kept up to date with every row."""
        return self.recorder.conversation

    @property
    def idle(self) -> bool:
        """Whether nobody would notice if the branch were closed."""
        return self.run is None and not self.sinks

    def publish(self, event: Event) -> None:
        """Tell everybody who watches."""
        for sink in self.sinks:
            sink.push(event)

    def set_status(self, status: Mapping[str, Any]) -> None:
        """Note and tell what the branch is doing; not recorded, true only now."""
        self.status = dict(status)
        self.publish(Event("status", self.key, 0, (self.status,)))

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

    def prompt_from_document(self, *, sha256: str, end: int) -> tuple[str, Version, tuple[Message, ...]]:
        """Read the saved document up to ``end`` (code points from 0) and return prompt, version and model view.

        Raises:
            Busy: A run is in flight.
            BadRequest: The file is not what the client says it saved, or there is no prompt.
        """
        self._require_idle()
        doc = document.read(self.file)
        if document.body_sha256(doc.body) != sha256:
            raise BadRequest(f"{self.file} changed since it was saved", mend="Revert or save the buffer, then send")
        aligned = align(doc, self.conversation, end)
        prompt = aligned.new_prompt or aligned.last_prompt  # sending again asks the same question again
        if not prompt:
            raise BadRequest("There is no prompt before point", mend="Write something first")
        for edit in aligned.edits:
            self.recorder.record("edit", edit)
        version = Version(sha256=sha256, seq=self.recorder.last_seq, marker=end)
        return prompt, version, aligned.view

    def view_for_client(self, text: str) -> tuple[Message, ...]:
        """Return the model view for a prompt that a client sent as text: the whole document, then ``text``."""
        self._require_idle()
        if not text.strip():
            raise BadRequest("The prompt is empty")
        doc = document.read(self.file)
        aligned = align(doc, self.conversation, len(doc.body))
        return _with_prompt(aligned.view, text)

    def record_prompt(self, text: str, *, run_id: str, version: Version | None, interactive: bool) -> None:
        """Record the user's message and the start of its run, then show both.

        ``version`` is the saved document that already holds the prompt; None: the prompt is inserted at its end.
        """
        now = self.recorder.now_ms()
        origin = "document" if version else "client"
        message = message_row(role="user", session_id=self.ref.session_id, metadata={"origin": origin}, now_ms=now)
        part = part_row(
            message_id=message["id"],
            session_id=self.ref.session_id,
            index=0,
            kind="text",
            data={"type": "text", "text": text},
            now_ms=now,
        )
        anchor = version.marker if version else None
        self.keeper.begin(prompt=text, anchor=anchor, version=version)
        self.recorder.record("message", message)
        seq = self.recorder.record("part", part)
        if version is None:
            self.publish(Event("prompt", self.key, seq, (text,)))
        run = {
            "id": run_id,
            "state": "started",
            "message_id": message["id"],
            "interactive": interactive,
            "anchor": anchor,
        }
        self.recorder.record("run", run)

    def finish_run(self, run_id: str, **fields: Any) -> int:
        """Record the end of a run; returns the row's number."""
        run = self.conversation.runs[run_id].data
        return self.recorder.record("run", {**run, "state": "finished", **fields})

    # -- clients -----------------------------------------------------------------------------------------------

    async def attach(
        self, sink: Sink, *, sha256: str | None, seq: int | None, mode: Literal["edit", "view"]
    ) -> dict[str, Any] | None:
        """Let ``sink`` watch, or also edit, from the version it has; None when it must read the file again.

        A client that is attached and fell behind names the last event it saw, ``seq``.
        """
        await self.keeper.flush()
        self.recorder.flush()
        if seq is not None and sink in self.sinks:  # it fell behind; its own marker goes on
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
        self.keeper.release(sink)

    def saved(self, sink: Sink, version: Version) -> None:
        """Note that the editor wrote the file."""
        if self.keeper.editor is sink:
            self.keeper.saved(version)
            self.note_complete()

    def note_complete(self) -> None:
        """Record once that the last run's text has reached the document, so that nothing puts it there again."""
        run = self.conversation.last_run
        if self.run is None and run and run.is_finished and not run.is_kept and self.keeper.complete:
            self.recorder.record("run", {**run.data, "state": "kept"})

    async def close(self) -> None:
        """Write what is left and close the log."""
        await self.keeper.flush()
        self.recorder.close()

    # -- inside ------------------------------------------------------------------------------------------------

    def _require_idle(self) -> None:
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
        renderer = Renderer()
        inserts = [
            insert for row in self.recorder.journal.rows(after=run.first_seq - 1) for insert in renderer.feed(row)
        ]
        prompt = self.conversation.messages[run.data["message_id"]].text
        self.keeper.recover(prompt=prompt, anchor=run.data.get("anchor"), inserts=inserts)
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
        error = {"code": "restart", "message": RESTARTED}
        self.recorder.record("run", {**run, "state": "finished", "reason": "restart", "error": error})


def _with_prompt(view: tuple[Message, ...], text: str) -> tuple[Message, ...]:
    """Return ``view`` with ``text`` as the user's last word, joined to a user message that already ends it."""
    part = Text(text=text.strip())
    if view and view[-1].role == "user":
        return (*view[:-1], Message(role="user", parts=(*view[-1].parts, part)))
    return (*view, Message(role="user", parts=(part,)))
