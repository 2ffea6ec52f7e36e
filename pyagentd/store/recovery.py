"""What a recovery of roles changed, for a person to look at: a unified diff of who said what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from difflib import unified_diff

from pyagentd.store.document import Document, Span, regions

_SHOWN = 70  # characters of each end of a region
_NAMES = {None: "you", "response": "model", "ignore": "not sent", "tool": "tool"}


def role_diff(before: Document, spans: tuple[Span, ...]) -> str:
    """Return how the roles of ``before`` differ from ``spans``; "" when they do not.

    Every region is one line: its role, its first and last Emacs position, and how its text begins and ends.
    """
    old, new = list(_lines(before)), list(_lines(replace(before, spans=spans)))
    return "\n".join(unified_diff(old, new, "roles as found", "roles as recovered", lineterm="", n=1))


def _lines(doc: Document) -> Iterator[str]:
    for region in regions(doc):
        text = " ".join(doc.body[region.start : region.end].split())
        if not text:
            continue
        name = _NAMES[region.kind] + (f" {region.id}" if region.id else "")
        if len(text) > 2 * _SHOWN:
            text = f"{text[:_SHOWN]} … {text[-_SHOWN:]}"
        yield f"{name} ({region.start + 1}-{region.end}): {text}"
