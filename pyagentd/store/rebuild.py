"""The document that a log would have led to, for a session whose ``session.md`` is gone.

What the user removed stays out and what they edited is as they left it, as far as the log knows; drafts that were
never sent are in no log.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyagentd.store.conversation import Conversation, Message
from pyagentd.store.document import Document
from pyagentd.store.journal import Row
from pyagentd.store.render import Insert, prompt_text, replay
from pyagentd.store.writer import apply


def rebuilt(conversation: Conversation, *, is_agent: bool) -> Document:
    """Return the document that shows every message of ``conversation`` that is not hidden."""
    document = Document()
    for message in conversation.messages.values():
        if message.is_hidden:
            continue
        if message.role == "user":
            inserts = [Insert(prompt_text(document.body, message.text, is_agent=is_agent), None, "", 0)]
        else:
            inserts = replay(_as_run(message), after=0)
        for insert in inserts:
            document, _ = apply(document, len(document.body), insert)
    return document


def _as_run(message: Message) -> Iterator[Row]:
    """Yield rows of a run that says just this message."""
    yield Row(1, "run", {"state": "started"})
    for part in message.parts:
        if part.hidden:
            continue
        data = dict(part.data)
        if not part.is_tool and part.type != "step-start":
            data |= {"text": part.text if part.edited is None else part.edited, "state": "done"}
        yield Row(1, "part", {**part.row, "data_json": data})
    yield Row(1, "run", {"state": "finished"})
