"""The document that a log would have led to, for a session whose ``session.md`` is gone.

What the user removed stays out and what they edited is as they left it, as far as the log knows; drafts that were
never sent are in no log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from pyagentd.store.compaction import COMPACTION, summary_in
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import Document
from pyagentd.store.hidden import show
from pyagentd.store.hiding import turned
from pyagentd.store.journal import Row
from pyagentd.store.pieces import laid_out
from pyagentd.store.recorded import Part
from pyagentd.store.render import Insert, prompt_text, replay
from pyagentd.store.writer import apply


def rebuilt(conversation: Conversation, *, is_agent: bool) -> Document:
    """Return the document that shows every message of ``conversation`` that the user did not remove.

    Turns that were taken back are there, with the role of such.
    """
    rewound = [message for message in conversation.messages.values() if message.is_rewound]
    if not rewound:
        return _written(conversation, is_agent=is_agent)
    before = conversation.changed(show(rewound, now_ms=0))
    return turned(_written(before, is_agent=is_agent), before, conversation)


def _written(conversation: Conversation, *, is_agent: bool) -> Document:
    document = Document()
    shown = ((message, parts) for message, parts in laid_out(conversation) if not message.is_hidden)
    for is_prompt, group in groupby(shown, key=lambda each: each[0].role == "user"):
        if is_prompt:
            for message, _ in group:
                document = _put(
                    document, Insert(prompt_text(document.body, message.text, is_agent=is_agent), None, "", 0)
                )
        else:
            for insert in replay(_as_run(parts for _, parts in group), after=0):
                document = _put(document, insert)
    return document


def _put(document: Document, insert: Insert) -> Document:
    return apply(document, len(document.body), insert)[0]


def _as_run(steps: Iterable[list[Part]]) -> Iterator[Row]:
    """Yield rows of a run that says just this."""
    yield Row(1, "run", {"state": "started"})
    for number, parts in enumerate(steps):
        start = {"id": f"step-{number}", "message_id": "", "type": "step-start", "data_json": {"type": "step-start"}}
        yield Row(1, "part", start)
        for part in parts:
            if part.hidden:
                continue
            data = dict(part.data)
            if part.type == COMPACTION:
                data |= {} if part.edited is None else {"summary": summary_in(part.edited)}
            elif not part.is_tool:
                data |= {"text": part.text if part.edited is None else part.edited, "state": "done"}
            yield Row(1, "part", {**part.row, "data_json": data})
    yield Row(1, "run", {"state": "finished"})
