"""Exports a branch as gptel's Markdown, as JSON, JSON lines or lines of the Agent Client Protocol; pure.

Markdown is the document. JSON is the log with the user's recorded edits; text that only the document has is inserted
at its place, so an export has everything that can be read in Emacs. HTML pages are made by ``html``.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyagentd import regularfile
from pyagentd.errors import BadRequest
from pyagentd.store import export as room
from pyagentd.store import metadata, paths
from pyagentd.store.attachments import linked_files
from pyagentd.store.charts import Chart
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import text
from pyagentd.store.document.adopt import Adoption, adopt
from pyagentd.store.document.reconcile import align, recognise
from pyagentd.store.document.render import writable
from pyagentd.store.document.text import Document, Settings, format_file
from pyagentd.store.journal import Row, read_rows
from pyagentd.store.paths import BranchRef
from pyagentd.wire.sexp import SexpError, read_call
from pyagentd.words import quantity

# What an export is made from: a branch or an agent read from disk once, with the agents below it.
#
# Everything after this is pure. Roles that were lost are recovered here, so every format says the same.

_LARGEST_IMAGE = 10 * 1024 * 1024  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One timeline.

    Attributes:
        session_id: The id of the session or the agent.
        branch_name: The name of the branch.
        created: Its creation time in ISO 8601, or "" if the metadata is lost.
        preset: The preset that it was made from, or "".
        document: The document, with recovered roles.
        conversation: The messages of the log, with the user's edits in the document.
        images: Attached images by their links in the document.
        agents: The agents that it spawned, in order.
        filled: The contents of its context, if known.
    """

    session_id: str
    branch_name: str = paths.MAIN_BRANCH
    created: str = ""
    preset: str = ""
    document: Document
    conversation: Conversation
    images: Mapping[str, bytes] = field(default_factory=dict)
    agents: tuple["Source", ...] = ()
    filled: Chart | None = None

    @property
    def title(self) -> str:
        """The session's title, or ""."""
        return str(self.conversation.session.get("title") or "")


def read_source(ref: BranchRef) -> Source:
    """Read the branch or agent ``ref`` with all agents below it.

    Raises:
        StoreError: The files cannot be read.
    """
    conversation = Conversation(read_rows(paths.journal_file(ref.branch_dir)))
    found = recognise(text.read(paths.session_file(ref.branch_dir)), conversation).document
    facts = metadata.read_session_metadata(ref.branch_dir) or {}
    return Source(
        session_id=ref.session_id,
        branch_name=ref.branch_name,
        created=facts.get("created", ""),
        preset=facts.get("preset", ""),
        document=found,
        conversation=conversation.with_edits(align(found, conversation).edits)
        if found.body.strip()
        else conversation,
        images=dict(_images(found.body, ref.branch_dir)),
        agents=tuple(sorted(map(read_source, metadata.child_agents(ref)), key=lambda agent: agent.created)),
    )


def _images(body: str, branch_dir: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the images in ``files/`` that the document shows; links to other places are not followed."""
    for each in linked_files(body, branch_dir):
        try:
            if each.shown and each.size <= _LARGEST_IMAGE:
                yield each.link, regularfile.read_bytes(each.file, limit=_LARGEST_IMAGE)
        except OSError:
            continue  # the page says what is not there


FORMATS = ("md", "json", "jsonl", "html", "acp")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """The text of an export, and notes for the user."""

    text: str
    notes: tuple[str, ...] = ()


def export_text(source: Source, format: str, settings: Settings | None = None) -> ExportResult:
    """Return ``source`` in one of ``FORMATS``, with ``settings`` if the document does not name its model.

    Raises:
        BadRequest: There is no such format.
    """
    match format:
        case "md":
            return ExportResult(text=markdown(source, settings))
        case "json" | "jsonl":
            record, notes = canonical(source)
            text = _dumps(record, indent=2) + "\n" if format == "json" else "".join(lines(record))
            return ExportResult(text=text, notes=notes)
        case "acp":
            record, notes = canonical(source)
            return ExportResult(text="".join(protocol_lines(record)), notes=notes)
        case "html":
            return ExportResult(text=room.html.page(source))
    raise BadRequest(f"{format!r} is not a format", hint=", ".join(FORMATS))


def markdown(source: Source, settings: Settings | None = None) -> str:
    """Return the session document in gptel's format, with its bounds."""
    document = source.document
    if settings is not None and document.settings == Settings():
        document = replace(document, settings=settings)
    return format_file(document)


def canonical(source: Source) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return ``{"session", "messages": [{"message", "parts"}]}``, messages in order, and notes for the user."""
    session_id = source.session_id
    alignment = recognise(source.document, source.conversation)
    made = adopt(alignment, source.conversation, session_id=session_id, now_ms=0, draft=True)
    conversation = _with_adopted(source.conversation, made)
    record = conversation.canonical()
    session = {"id": session_id, **record["session"]}
    messages = {item["message"]["id"]: item for item in record["messages"]}
    new = [data["id"] for kind, data in made.facts if kind == "message"]
    if new:
        pieces = recognise(made.document, conversation).pieces
        order = list(dict.fromkeys(piece.message.id for piece in pieces if piece.message is not None))
        messages = _in_document_order(messages, new, order, session.get("created_at", 0))
    notes = [*made.notes]
    if new:
        count = quantity(len(new), "message")
        notes.append(f"{count} of the document are in no log; they have new ids and the time of what precedes them")
    return {"session": session, "messages": [*messages.values()]}, tuple(notes)


def lines(record: Mapping[str, Any]) -> Sequence[str]:
    """Return a canonical record as JSON lines: the session, then each message followed by its parts."""
    result = [_line("session", record["session"])]
    for item in record["messages"]:
        result.append(_line("message", item["message"]))
        result += [_line("part", part) for part in item["parts"]]
    return result


def _line(kind: str, row: Mapping[str, Any]) -> str:
    return _dumps({"type": kind, "data": row}) + "\n"


def _with_adopted(conversation: Conversation, made: Adoption) -> Conversation:
    """Return a conversation that has the adopted rows too."""
    if not made.facts:
        return conversation
    joined = Conversation()
    joined.session = conversation.session
    joined.messages, joined.parts = dict(conversation.messages), dict(conversation.parts)
    for number, (kind, data) in enumerate(made.facts, conversation.last_seq + 1):
        joined.apply(Row(number, kind, data))
    return joined


def _in_document_order(
    messages: Mapping[str, dict[str, Any]], new: Sequence[str], order: Sequence[str], first_ms: int
) -> dict[str, dict[str, Any]]:
    """Return ``messages`` with the new ones after their predecessors in the document, with the same time."""
    added = set(new)
    ids = [id for id in messages if id not in added]
    preceding = dict(zip(order, [None, *order], strict=False))
    result = dict(messages)
    for id in new:
        previous = preceding[id] if id in preceding else next(reversed(ids), None)
        created = result[previous]["message"].get("created_at", first_ms) if previous else first_ms
        ids.insert(ids.index(previous) + 1 if previous in ids else 0, id)
        message, parts = result[id]["message"], result[id]["parts"]
        times = {"created_at": created, "updated_at": created}
        result[id] = {"message": message | times, "parts": [part | times for part in parts]}
    return {id: result[id] for id in ids}


def _dumps(value: Any, indent: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    # JSON can hold lone surrogates, UTF-8 cannot.
    return text if writable(text) == text else json.dumps(value, indent=indent)


# Lines of the Agent Client Protocol: one notification a line.

_KINDS = (("read", "read"), ("edit|write", "edit"), ("glob|grep|search", "search"), ("bash|shell|task", "execute"))


def protocol_lines(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield a canonical record as the ``session/update`` notifications that an agent would have sent.

    Messages that the user removed or rewound are left out.

    Args:
        record: As ``canonical`` returns it.
    """
    session_id, last = record["session"]["id"], ""
    for item in record["messages"]:
        user = item["message"]["role"] == "user"
        metadata = item["message"].get("metadata_json") or {}
        if metadata.get("hidden") or metadata.get("hidden_at"):
            continue
        for part in item["parts"]:
            if (update := _update(part["data_json"], user=user)) is not None:
                kind, content = update["sessionUpdate"], update["content"]
                if kind == last and kind != "tool_call":  # another text, no more of the same
                    content["text"] = "\n\n" + content["text"]
                last = kind
                params = {"sessionId": session_id, "update": update}
                yield json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}) + "\n"


def _update(data: Mapping[str, Any], *, user: bool) -> dict[str, Any] | None:
    notes = data.get("metadata") or {}
    match data:
        case _ if notes.get("hidden"):
            return None
        case {"type": "text" | "reasoning" as kind, "text": str(text)} if text:
            chunk = "user_message_chunk" if user else f"agent_{'message' if kind == 'text' else 'thought'}_chunk"
            return {"sessionUpdate": chunk, "content": {"type": "text", "text": text}}
        case {"type": str(kind), "toolCallId": str(call_id)}:
            name = kind.removeprefix("tool-")
            input, output = data.get("input") or {}, str(data.get("output") or data.get("errorText") or "")
            if "edited" in notes:
                try:
                    name, input, end = read_call(notes["edited"])
                except SexpError:
                    return None  # the model is not shown it either
                output = notes["edited"][end:].removeprefix("\n\n")
            return {
                "sessionUpdate": "tool_call",
                "toolCallId": call_id,
                "title": name,
                "kind": next((as_kind for words, as_kind in _KINDS if re.search(words, name.lower())), "other"),
                "status": "completed" if data.get("state") == "output-available" else "failed",
                "rawInput": input,
                "content": [{"type": "content", "content": {"type": "text", "text": output}}],
            }
    return None
