"""A unified diff for a human who approves a change: small, and cheap for any input.

Comparing is quadratic, so only what lies between the common beginning and the common end is compared, and a large
middle is shown as removed and added as a whole.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from itertools import islice, takewhile

_CONTEXT = 3
_COMPARED_LINES = 600
_SHOWN_LINES = 400
_LINE_CHARS = 500  # one giant line stalls a display

_Opcode = tuple[str, int, int, int, int]


def unified(before: str | None, after: str, path: str) -> str:
    """Return the diff between two texts, "" when they are equal; ``before`` is None for a new file."""
    old, new = _lines(before or ""), _lines(after)
    body = [line for hunk in _hunks(old, new) for line in _format(hunk, old, new)]
    if not body:
        return ""
    shown = [line if len(line) <= _LINE_CHARS else line[:_LINE_CHARS] + "…" for line in islice(body, _SHOWN_LINES)]
    if len(body) > _SHOWN_LINES:
        shown.append(f"… {len(body) - _SHOWN_LINES} more lines")
    return "\n".join([f"--- {'/dev/null' if before is None else path}", f"+++ {path}", *shown])


def changed_lines(before: str, after: str) -> tuple[int, int]:
    """Return how many lines were added and removed between two texts."""
    old, new = _lines(before), _lines(after)
    changed = [op for hunk in _hunks(old, new) for op in hunk if op[0] != "equal"]
    return sum(j2 - j1 for *_, j1, j2 in changed), sum(i2 - i1 for _, i1, i2, *_ in changed)


def _lines(text: str) -> list[str]:
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _hunks(old: list[str], new: list[str]) -> list[list[_Opcode]]:
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    old_end, new_end = len(old) - tail, len(new) - tail
    if head == old_end and head == new_end:
        return []
    if old_end + new_end - 2 * head > _COMPARED_LINES:
        before = min(_CONTEXT, head)
        after = min(_CONTEXT, tail)
        return [
            [
                ("equal", head - before, head, head - before, head),
                ("replace", head, old_end, head, new_end),
                ("equal", old_end, old_end + after, new_end, new_end + after),
            ]
        ]
    start, keep = max(0, head - _CONTEXT), min(_CONTEXT, tail)
    matcher = SequenceMatcher(None, old[start : old_end + keep], new[start : new_end + keep], autojunk=False)
    return [
        [(tag, i1 + start, i2 + start, j1 + start, j2 + start) for tag, i1, i2, j1, j2 in group]
        for group in matcher.get_grouped_opcodes(_CONTEXT)
    ]


def _common(old: list[str], new: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


def _format(hunk: list[_Opcode], old: list[str], new: list[str]) -> list[str]:
    lines = [f"@@ -{_range(hunk[0][1], hunk[-1][2])} +{_range(hunk[0][3], hunk[-1][4])} @@"]
    for tag, i1, i2, j1, j2 in hunk:
        if tag == "equal":
            lines += [" " + line for line in old[i1:i2]]
        else:
            lines += ["-" + line for line in old[i1:i2]]
            lines += ["+" + line for line in new[j1:j2]]
    return lines


def _range(start: int, end: int) -> str:
    length = end - start
    return f"{start + (1 if length else 0)},{length}" if length != 1 else f"{start + 1}"
