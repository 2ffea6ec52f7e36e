"""The row of the session in a branch's log: title, workspace, what was said and what was written on its behalf."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyagentd.agent.branches import override
from pyagentd.agent.branches.recorder import Recorder
from pyagentd.errors import StoreError
from pyagentd.store.conversation import Conversation
from pyagentd.store.document.text import Settings
from pyagentd.store.paths import BranchRef


class SessionRow:
    """Records facts of the session that one branch belongs to.

    Attributes:
        ref: The branch.
        recorder: Its log.
        refusal: Why nothing can be written to the branch, "" when it can.
        given: The preset's settings as an editor or the daemon was told to write them.
    """

    def __init__(self, ref: BranchRef, recorder: Recorder, *, refusal: str, lasting: tuple[str, ...]) -> None:
        self.ref = ref
        self.recorder = recorder
        self.refusal = refusal
        self.given: Settings | None = None
        self._lasting = lasting

    @property
    def conversation(self) -> Conversation:
        """The recorded messages, kept up to date with every row."""
        return self.recorder.conversation

    def record_session(
        self,
        *,
        workspace_root: Path,
        agent: str = "",
        parent: BranchRef | None = None,
        spawned: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Record the facts of the session itself; what was recorded before and is not named here stays.

        Args:
            workspace_root: Where it works.
            agent: The preset it was made from.
            parent: Of an agent: the branch that spawned it.
            spawned: Of an agent: ``parent_run_id``, ``parent_call_id``, ``parent_message_id`` (the prompt of that
                run), ``background`` and ``description``.
            metadata: To be added.
        """
        known = self.conversation.session or (self._new_session(agent, parent) | dict(spawned or {}))
        self.note_session(
            **{
                **known,
                "workspace_root": str(workspace_root),
                "metadata_json": {**known["metadata_json"], **(metadata or {})},
            }
        )

    def note_session(self, **facts: Any) -> None:
        """Record facts of the session, such as ``title`` and ``archived_at``; the others stay as they were."""
        known = self.conversation.session or self._new_session("", None)
        self.recorder.record("session", {**known, **facts, "updated_at": self.recorder.now_ms()})

    def note_metadata(self, **facts: Any) -> None:
        """Record further metadata of a session that has a row; a disk that refuses is said elsewhere."""
        known = self.conversation.session.get("metadata_json")
        if known is not None and not self.refusal and any(known.get(name) != value for name, value in facts.items()):
            with contextlib.suppress(StoreError):
                self.note_session(metadata_json={**known, **facts})

    def note_said(self) -> None:
        """Remember that what stays as it is was said, so that it is not said every time."""
        if self._lasting:
            said = self.conversation.session.get("metadata_json", {}).get("noted", [])
            self.note_metadata(noted=[*said, *self._lasting])
            self._lasting = ()

    @property
    def written(self) -> Settings | None:
        """What we wrote into the Local Variables last, None when we never did."""
        return override.from_json(self.conversation.session.get("metadata_json", {}).get("settings"))

    def note_given(self) -> None:
        """Record what we wrote into the Local Variables, which tells later what the user changed there."""
        if self.given is not None:
            self.note_metadata(settings=override.to_json(self.given))

    def _new_session(self, agent: str, parent: BranchRef | None) -> dict[str, Any]:
        return {
            "id": self.ref.session_id,
            "agent": agent,
            "parent_id": parent.session_id if parent else None,
            "parent_branch": parent.branch_name if parent else None,
            "title": "",
            "archived_at": None,
            "permissions_json": [],
            "metadata_json": {},
            "created_at": self.recorder.now_ms(),
        }
