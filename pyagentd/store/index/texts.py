"""What can be found in a conversation: the text of each part as a person would look for it.

A pure function of the columns of a part, because the index keeps no text: to take a text out of it, it is made from
the stored columns again. Whoever changes what it returns adds a migration that empties the index.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

Kind = Literal["text", "reasoning", "tool", "compaction", "file", "title"]

_OTHERS: Mapping[str, tuple[Kind, tuple[str, ...]]] = {
    "data-compaction": ("compaction", ("summary",)),
    "file": ("file", ("filename", "url")),
    "source-url": ("file", ("title", "url")),
    "source-document": ("file", ("title", "filename")),
}


def part_text(type: str, data: Mapping[str, Any], streamed: str, edited: str | None) -> tuple[Kind, str]:
    """Return the kind of a part and its text, "" when there is nothing to find.

    Args:
        type: As recorded.
        data: The part in AI SDK form.
        streamed: Text that came after ``data`` was recorded.
        edited: What the user put in its place, or None.
    """
    if type in ("text", "reasoning"):
        text = str(data.get("text", "")) + streamed if edited is None else edited
        return ("text" if type == "text" else "reasoning"), text.strip()
    if type.startswith("tool-"):
        return "tool", _tool_text(data) if edited is None else edited.strip()
    kind, names = _OTHERS.get(type, ("file", ()))
    return kind, "\n".join(str(data[name]) for name in names if data.get(name))


def title_text(title: str, session_id: str) -> str:
    """Return what a session is found by beside its messages: its title and the words in its id."""
    return f"{title}\n{session_id}" if title else session_id


def _tool_text(data: Mapping[str, Any]) -> str:
    name = str(data.get("type", "")).removeprefix("tool-")
    result = data.get("output") if data.get("state") == "output-available" else data.get("errorText")
    call = " ".join([name, *_arguments(data.get("input"))])
    return f"{call}\n{result}".strip() if result else call


def _arguments(value: Any) -> Iterator[str]:
    """Yield names and values of a call; texts as they are, since in JSON a line end would be glued to a word."""
    match value:
        case str():
            yield value
        case Mapping():
            for key, inner in value.items():
                yield f"{key}:"
                yield from _arguments(inner)
        case list():
            for inner in value:
                yield from _arguments(inner)
        case None:
            pass
        case _:
            yield json.dumps(value)
