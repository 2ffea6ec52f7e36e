"""What a compaction is on disk and in the document: a marker.

The model is shown a summary in place of what came before it. The marker is one synthetic assistant message with one
part of type ``data-compaction`` (spec 002 "How is a compaction stored in the DB", DD-14). What was summarised stays
where it is. ``data_json`` of the part is::

    {"type": "data-compaction", "summary": Markdown, "tail_start_id": message id or null, "auto": bool,
     "summary_tokens": int, "metadata": {…}}

``metadata`` has what the guide leaves open: ``messages`` and ``tokens`` that were summarised (for people),
``tail_start_part_id`` when the tail begins within an answer (its ``step-start`` part), ``pruned`` (ids of the tool
calls' parts whose output the model is no longer shown), ``only_pruned`` when nothing else was done: the summary is
that of the marker before then, "" if there was none.

In the document a marker is a block that the model is not shown, foldable on its first line; the summary in it is the
user's to edit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

COMPACTION: Final = "data-compaction"
COMPACTION_OPEN: Final = "``` compaction"
_CLOSE: Final = "\n```"
_PRUNING: Final = (
    "The model is no longer shown these tool outputs. They are still in this document and in the log, and the model "
    "can make the calls again."
)


def compaction_data(
    *, summary: str, tail_start_id: str | None, auto: bool, summary_tokens: int, metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the ``data_json`` of a marker's part; entries of ``metadata`` that say nothing are left out."""
    return {
        "type": COMPACTION,
        "summary": summary,
        "tail_start_id": tail_start_id,
        "auto": auto,
        "summary_tokens": summary_tokens,
        "metadata": {key: value for key, value in metadata.items() if value},
    }


def compaction_block(data: Mapping[str, Any]) -> str:
    """Return a marker as it stands in the document, before characters that no file can hold are replaced."""
    return f"{COMPACTION_OPEN} ({_head(data)})\n{data.get('summary') or _PRUNING}{_CLOSE}"


def summary_in(block: str) -> str:
    """Return the summary that a block has in the document, where the user may have edited it."""
    _, _, rest = block.partition("\n")
    summary = rest.removesuffix(_CLOSE)
    return "" if summary == _PRUNING else summary


def wrapped(summary: str) -> str:
    """Return a summary as the model is shown it, at the head of a message of the user."""
    return f"<conversation_summary>\n{summary}\n</conversation_summary>"


def output_stub(text: str) -> str:
    """Return what stands for a tool's output that was pruned."""
    return f"<output pruned, ~{estimated(text)} tokens>"


def estimated(text: str) -> int:
    """Return about how many tokens ``text`` is: a quarter of its bytes, which is fair to other scripts too."""
    return (len(text) + 3) // 4 if text.isascii() else (len(text.encode("utf-8", "replace")) + 3) // 4


def summarised(data: Mapping[str, Any]) -> str:
    """Return what a marker did, in words, without saying that it did."""
    facts: Mapping[str, Any] = data.get("metadata") or {}
    what = [f"~{round_tokens(facts.get('tokens') or 0)} tokens"] if facts.get("tokens") else []
    if data.get("summary") and not facts.get("only_pruned"):
        return ", ".join([counted(facts.get("messages") or 0, "message"), *what])
    return ", ".join([f"{counted(len(_pruned(facts)), 'tool output')} pruned", *what])


def round_tokens(tokens: int) -> str:
    """Return a number of tokens as people say it: ``850``, ``3.1k``, ``31k``."""
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:.1f}k" if tokens < 9950 else f"{round(tokens / 1000)}k"


def counted(number: int, noun: str) -> str:
    """Return ``1 message`` or ``2 messages``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _head(data: Mapping[str, Any]) -> str:
    return f"{'automatic: ' if data.get('auto') else ''}{summarised(data)}"


def _pruned(facts: Mapping[str, Any]) -> Sequence[str]:
    pruned = facts.get("pruned") or ()
    return pruned if isinstance(pruned, list | tuple) else ()
