"""The files of saved conversations: their format and their names.

::

    {"id", "agent_name", "description", "saved_at", "trigger", "message_count",
     "messages": [{"role": "user" | "assistant" | "tool_result", "content", "tool_calls"?, "tool_call_id"?}]}

``messages`` are those of the model's view without reasoning, one entry for each text of the user, each answer of the
model and each result. A call is ``{"id", "name", "params"}``. A file can be read without log and database.
"""

import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args

from anyascii import anyascii

from pyagentd import regularfile
from pyagentd.errors import NotFound, StoreError
from pyagentd.messages import Message, Part, Text, ToolCall, ToolResult
from pyagentd.store import atomic, paths
from pyagentd.store.conversation import Conversation
from pyagentd.store.document.hidden import is_marker, visible
from pyagentd.store.document.reconcile import View
from pyagentd.store.paths import BranchRef
from pyagentd.words import quantity

Trigger = Literal["idle_timeout", "manual_save", "shutdown", "context_clear", "destroy"]
TRIGGERS: tuple[Trigger, ...] = get_args(Trigger)

CONTEXTS_DIR = "contexts"
LARGEST = 256 * 1024 * 1024  # bytes of a file

_OTHER = re.compile(r"[^a-z0-9]+")
_SLUG = 40  # characters
_INDENT = 4
_ROLES = ("user", "assistant", "tool_result")

_naming = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One saved conversation.

    Attributes:
        id: A UUID.
        agent_name: The name of a named agent, or the id of a session.
        description: The subject of the conversation.
        saved_at: The time in ISO 8601, in UTC.
        trigger: The reason for saving it.
        messages: The messages in the form of the file.
    """

    id: str
    agent_name: str
    description: str
    saved_at: str
    trigger: Trigger
    messages: tuple[Mapping[str, Any], ...]

    @property
    def message_count(self) -> int:
        """The number of messages."""
        return len(self.messages)


# -- messages --------------------------------------------------------------------------------------------------


def visible_messages(conversation: Conversation) -> tuple[Message, ...]:
    """Return the whole current conversation, with compacted messages and the user's edits."""
    view = View()
    for message in visible(conversation):
        if message.role == "user":
            view.add_user(message.text)
        elif not is_marker(message):
            for step in message.steps():
                view.add_recorded(part for part in step if not part.hidden)
    return view.to_messages()


def canonical(messages: Iterable[Message]) -> tuple[dict[str, Any], ...]:
    """Return messages in the form of the file."""
    return tuple(entry for message in messages for entry in _entries(message))


def count(conversation: Conversation) -> int:
    """Return the number of messages that a file of the current conversation would have."""
    return len(canonical(visible_messages(conversation)))


def messages_of(entries: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    """Return entries of a file as messages of the model's view; neighbours of one role are joined."""
    joined: list[tuple[Literal["user", "assistant"], list[Part]]] = []
    for entry in entries:
        role: Literal["user", "assistant"] = "assistant" if entry["role"] == "assistant" else "user"
        if not joined or joined[-1][0] != role:
            joined.append((role, []))
        joined[-1][1].extend(_parts(entry))
    return tuple(Message(role=role, parts=tuple(parts)) for role, parts in joined if parts)


def _entries(message: Message) -> Iterator[dict[str, Any]]:
    if message.role == "user":
        for part in message.parts:
            if isinstance(part, Text):
                yield {"role": "user", "content": part.text}
            elif isinstance(part, ToolResult):
                yield {"role": "tool_result", "tool_call_id": part.id, "content": part.text}
        return
    text = "\n\n".join(part.text for part in message.parts if isinstance(part, Text))
    calls = [
        {"id": part.id, "name": part.name, "params": dict(part.input)}
        for part in message.parts
        if isinstance(part, ToolCall)
    ]
    if text or calls:
        yield {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}


def _parts(entry: Mapping[str, Any]) -> Iterator[Part]:
    if entry["role"] == "tool_result":
        yield ToolResult(id=str(entry["tool_call_id"]), text=str(entry["content"]))
        return
    if entry["content"]:
        yield Text(text=str(entry["content"]))
    for call in entry.get("tool_calls") or ():
        yield ToolCall(id=str(call["id"]), name=str(call["name"]), input=dict(call.get("params") or {}))


# -- files -----------------------------------------------------------------------------------------------------


def contexts_dir(ref: BranchRef) -> Path:
    """Return the directory of saved conversations for a session that is no named agent."""
    return paths.files_dir(ref.branch_dir) / CONTEXTS_DIR


def slug(description: str) -> str:
    """Return the slug in the name of a file: lowercase words with hyphens between them, at most 40 characters."""
    words = _OTHER.sub("-", anyascii(description[:400]).lower()).strip("-")
    if len(words) > _SLUG:  # a whole word more is better than half of one
        cut = words[: _SLUG + 1].rpartition("-")[0]
        words = (cut or words[:_SLUG]).strip("-")
    return words or "conversation"


def write(directory: Path, context: Context) -> Path:
    """Write a context to ``<date>_<slug>.json`` in ``directory``, with ``-2`` and so on if that is taken.

    Raises:
        StoreError: The disk failed; no file was made.
    """
    data = {
        "id": context.id,
        "agent_name": context.agent_name,
        "description": context.description,
        "saved_at": context.saved_at,
        "trigger": context.trigger,
        "message_count": context.message_count,
        "messages": [dict(entry) for entry in context.messages],
    }
    # Lone surrogates, which a tool may have printed, are escaped as in JSON.
    text = json.dumps(data, indent=_INDENT, ensure_ascii=False)
    if re.search("[\ud800-\udfff]", text):
        text = json.dumps(data, indent=_INDENT)
    stem = f"{context.saved_at[:10]}_{slug(context.description)}"
    with _naming:  # there is one daemon
        atomic.make_dirs(directory)
        number, path = 1, directory / f"{stem}.json"
        while path.exists() or path.is_symlink():
            number += 1
            path = directory / f"{stem}-{number}.json"
        atomic.write_text(path, text + "\n")
    return path


def read(path: Path) -> Context:
    """Return the context in the file at ``path``.

    Raises:
        NotFound: There is no such file.
        StoreError: It cannot be read, or is not a context.
    """
    try:
        data = json.loads(regularfile.read_text(path, limit=LARGEST))
    except FileNotFoundError as error:
        raise NotFound(f"{path} is not there any more", hint="Put the file back, or restore another") from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not JSON in UTF-8: {error}", hint="Correct the file") from error
    return _parse_context(data, path)


def read_or_none(path: Path) -> Context | None:
    """Return the context in a file; None when it is none."""
    try:
        return read(path)
    except (StoreError, NotFound):
        return None


def _parse_context(data: Any, path: Path) -> Context:
    try:
        entries = tuple(_entry(entry) for entry in data["messages"])
        trigger = data.get("trigger")
        return Context(
            id=str(data["id"]),
            agent_name=str(data.get("agent_name") or ""),
            description=str(data.get("description") or ""),
            saved_at=str(data.get("saved_at") or ""),
            trigger=trigger if trigger in TRIGGERS else "manual_save",
            messages=_without_orphans(entries),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            f"{path} is not a saved conversation", hint="It has an id, and messages with role and content"
        ) from error


def _entry(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    if entry["role"] not in _ROLES:
        raise ValueError(entry["role"])
    content = entry.get("content")
    if not (content is None or isinstance(content, str)):
        raise TypeError(content)
    for call in entry.get("tool_calls") or ():
        if not isinstance(call["id"], str) or not isinstance(call["name"], str) or not call["name"]:
            raise TypeError(call)
        if not isinstance(call.get("params") or {}, dict):
            raise TypeError(call)
    if entry["role"] == "tool_result" and not isinstance(entry["tool_call_id"], str):
        raise TypeError(entry)
    return {**entry, "content": content or ""}


def _without_orphans(entries: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Return entries without results that belong to no call."""
    called: set[str] = set()
    kept = []
    for entry in entries:
        called |= {call["id"] for call in entry.get("tool_calls") or ()} if entry["role"] == "assistant" else set()
        if entry["role"] != "tool_result" or entry["tool_call_id"] in called:
            kept.append(entry)
    return tuple(kept)


# Saved conversations in words, for people.

ID = 8  # characters of an id that are shown


def listing(name: str, found: Sequence[Mapping[str, Any]]) -> str:
    """Return the lines that ``/context history`` shows.

    Args:
        name: The name of the agent or session.
        found: The conversations, ``{id, agent_name, description, saved_at, message_count}``, newest first.
    """
    if not found:
        return f"No saved sessions for {name}"
    return "\n".join([f"Sessions for {found[0]['agent_name']}:", *map(_line, found)])


def _line(row: Mapping[str, Any]) -> str:
    count = row["message_count"]
    gone = ", its file is gone" if row.get("gone") else ""
    text = f"{row['description']} ({quantity(count, 'message')}{gone})"
    return f"  [{row['id'][:ID]}] {_local_time(row['saved_at'])} - {text}"


def _local_time(saved_at: str) -> str:
    try:
        return datetime.fromisoformat(saved_at).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError):  # the year 1 is before the first one in another time zone
        return saved_at
