"""The rows with which a turn begins, and what everybody who watches is told of them.

All of it is one write: a queued message has fired and its run has begun, or neither; so nothing is lost and nothing
answered twice, whenever the daemon ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pyagentd.agent.turns.turn import Prompt
from pyagentd.events import Event
from pyagentd.store.document.render import Insert
from pyagentd.store.journal import message_row, part_row

if TYPE_CHECKING:  # a branch begins its turns
    from pyagentd.agent.branches.branch import LiveBranch


class _Recorded(NamedTuple):
    """The user's message: its id, and id and number of the row with its text."""

    message_id: str
    part_id: str
    seq: int


class Beginning:
    """One turn that begins.

    Args:
        branch: Where.
        prompt: What is asked.
    """

    def __init__(self, branch: LiveBranch, prompt: Prompt) -> None:
        self._branch = branch
        self._recorder = branch.recorder
        self._prompt = prompt

    def record(self, run: Mapping[str, Any]) -> int:
        """Record the user's edits and message and the start of its run, show them, and return the last row's number.

        Args:
            run: Of the run's row: {id, state, interactive, …}.

        Raises:
            StoreError: The disk refused.
        """
        branch, prompt = self._branch, self._prompt
        anchor = prompt.version.marker or 0
        version = replace(prompt.version, seq=self._recorder.last_seq + len(prompt.edits))
        above = prompt.above or prompt.text
        branch.keeper.begin(prompt=above, inserted_prompt=bool(prompt.insert), anchor=anchor, version=version)
        if prompt.roles is not None:
            branch.heal(prompt.roles)
        try:
            with self._recorder.together():
                for edit in prompt.edits:
                    self._recorder.record("edit", edit)
                message = self._record_message()
                row = {**run, "message_id": message.message_id, "anchor": anchor, "prompt": prompt.insert}
                last = self._recorder.record("run", {**row, **self._notes(message.message_id)})
                branch.announce = lambda: self._show(message)
        finally:
            branch.announce = None
        branch.paused = False
        for note in prompt.notes:
            branch.tell_others(None, "notice", text=note)
        return last

    def _notes(self, message_id: str) -> dict[str, Any]:
        """Return what else the run notes: the text that stands above its marker where that is not the message's.

        A submission that asks a recorded message again has an id that is of no message.
        """
        prompt = self._prompt
        notes: dict[str, Any] = {"above": prompt.above} if prompt.above else {}
        if prompt.id and prompt.id != message_id:
            notes |= {"submission": prompt.id, "payload": prompt.metadata.get("payload")}
        return notes

    def _record_message(self) -> _Recorded:
        queue, prompt = self._branch.queue, self._prompt
        if prompt.queued:
            rows = list(queue.fire(queue.get(prompt.queued), text=prompt.text, metadata=prompt.metadata))
        elif prompt.message_id:
            return self._record_again()
        else:
            rows = self._rows()
        seq = [self._recorder.record(kind, data) for kind, data in rows][-1]
        return _Recorded(str(rows[0][1]["id"]), str(rows[1][1]["id"]), seq)

    def _rows(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the rows, type and data, of a new message."""
        prompt, now, session_id = self._prompt, self._recorder.now_ms(), self._branch.ref.session_id
        metadata = {"origin": "client" if prompt.insert else "document", **prompt.metadata}
        message = message_row(role="user", session_id=session_id, metadata=metadata, now_ms=now, id=prompt.id or None)
        part = part_row(
            message_id=message["id"],
            session_id=session_id,
            index=0,
            kind="text",
            data={"type": "text", "text": prompt.text},
            now_ms=now,
        )
        return [("message", message), ("part", part)]

    def _record_again(self) -> _Recorded:
        """Record what is new about a message that is asked again."""
        recorder, prompt = self._recorder, self._prompt
        row = recorder.conversation.messages[prompt.message_id].row
        new = {key: value for key, value in prompt.metadata.items() if key != "payload"}
        metadata: Mapping[str, Any] = {**row["metadata_json"], **new}
        if metadata != row["metadata_json"]:
            recorder.record("message", {**row, "metadata_json": metadata, "updated_at": recorder.now_ms()})
        return _Recorded(prompt.message_id, "", recorder.last_seq)

    def _show(self, message: _Recorded) -> None:
        """Tell where the turn stands whose rows are recorded; its run's inserts follow."""
        branch, prompt = self._branch, self._prompt
        place = {"position": (prompt.version.marker or 0) + 1, "sha256": prompt.version.sha256}
        if prompt.insert:
            branch.keeper.add(Insert(prompt.insert, None, message.part_id, message.seq))
            told = (prompt.text, place if prompt.queued or prompt.is_above else None)
            branch.publish(Event("prompt", branch.key, message.seq, told))
        else:
            branch.publish(Event("fired", branch.key, 0, ({"id": message.message_id, **place},)))
