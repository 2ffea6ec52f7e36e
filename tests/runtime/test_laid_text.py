"""A text that clients edit while runs write into it is only taken for what the record shows while it is that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from pyagentd.runtime.document_sync import DocumentSync, LiveDocument
from pyagentd.store.conversation import Conversation
from pyagentd.store.document.files import Hunk
from pyagentd.store.document.reconcile import Alignment, align, align_turn
from pyagentd.store.document.render import Insert, Renderer
from pyagentd.store.document.text import Span
from tests.examples import examples
from tests.store.talk import Step, Talk, Turn, talks

Typed = tuple[float, int, str, bool]
"""Where in the text, how much it replaces, by what, and whether that has the role of an answer."""


class LiveTalk(Talk):
    """A conversation in a live document that somebody edits between any two rows."""

    def __init__(self, live: LiveDocument, typed: Sequence[Typed | None]) -> None:
        super().__init__(chunk=0)
        self.live, self.record_, self.renderer = live, Conversation(), Renderer()
        self.typed = list(typed)

    def take(self, turn: Turn) -> None:
        """Let the user ask, and the daemon answer."""
        at = len(self.live.document.body)
        heading = "" if self.live.document.body.endswith("### ") else "\n\n### "
        self.live.edit((Hunk(at, at, heading + turn.prompt),))
        aligned, revision, end = self.aligned(), self.live.revision, len(self.live.document.body)
        for data in aligned.edits:
            self.record("edit", **data)
        self.edit()
        if aligned.new_prompt:
            if self.live.since(revision):  # it stands elsewhere, perhaps
                end = len(self.live.document.body)
                self.live.go_to(end)
            else:
                self.live.go_to(end, seen=aligned.seen, revision=revision)
            run = self.start(self.user(aligned.new_prompt))
            self.answer((*turn.steps, Step(texts=("Done.",))) if turn.steps else ())
            self.finish(run)

    def aligned(self) -> Alignment:
        live, doc = self.live, self.live.document
        whole, end = align(doc, self.record_), len(doc.body)
        if live.seen is None:
            return whole
        found = align_turn(live.seen, doc, self.record_, end, live.marker or 0)
        event(f"known: {found is not None}")
        assert found is None or found == whole
        return found or whole

    def record(self, kind: str, /, **data: Any) -> None:
        super().record(kind, **data)
        self.record_.apply(self.rows[-1])
        for insert in self.renderer.feed(self.rows[-1]):
            self.live.insert(Insert(*insert))
        self.edit()

    def edit(self) -> None:
        made = self.typed.pop() if self.typed else None
        if made is None:
            return
        where, size, text, has_role = made
        at = round(where * len(self.live.document.body))
        spans = (Span(0, len(text), "response"),) if has_role and text else ()
        end = min(at + size, len(self.live.document.body))
        self.live.edit((Hunk(at, end, text, spans),))


typed = st.none() | st.tuples(
    st.sampled_from([0.0, 1.0, 1.0, 1.0]) | st.floats(0, 1),
    st.sampled_from([0, 0, 3]),
    st.sampled_from(["x", "", "\n", "### ", "\n\n### a draft"]),
    st.sampled_from([False, False, False, True]),
)


@settings(max_examples=examples(60), deadline=None)
@given(talks, st.lists(typed, max_size=12))
def test_what_is_taken_for_laid_out_is_aligned_as_the_whole_is(turns: list[Turn], edits: list[Typed | None]) -> None:
    sync = DocumentSync(Path("/nonexistent/session.md"), written=lambda _: None)
    talk = LiveTalk(asyncio.run(sync.look()), edits)
    for turn in turns:
        talk.take(turn)
    talk.aligned()
