"""Files that the user has open: what an editor shows of them, and how a change goes through it.

The editor is asked after the decision, about the path that was decided about. Its text is data like that of a file.
Positions count characters (code points) from 0, ends are exclusive.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal, NamedTuple, Protocol

from pyagentd.errors import ToolError

_COMPARED_LINES = 2000  # more are replaced as a whole
_REMOTE = re.compile(r"/[A-Za-z][\w-]*:[^/]*:")


class Replacement(NamedTuple):
    """A passage of a buffer, and what comes in its place."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What an editor says about a file, or that none has it open."""

    buffer: str = ""  # its name, for people; "" when no editor has the file open, or none said so in time
    version: str = ""  # changes with the text; what is changed must still have it
    modified: bool = False  # it has text that is not in the file
    text: str | None = None  # without carriage returns where the file's lines end with them
    crlf: bool = False
    trouble: str = ""  # why it cannot be changed there, as the end of a sentence
    silent: bool = False  # an editor did not answer in time
    source: object = None  # who said it

    @property
    def is_open(self) -> bool:
        """Whether an editor shows the file."""
        return bool(self.buffer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What became of a change."""

    outcome: Literal["done", "outdated", "refused", "unknown"]  # "outdated": the text is another by now
    reason: str = ""  # of one that was refused, or whose outcome nobody knows
    saved: bool = True


class Buffers(Protocol):
    """Who asks editors about files."""

    async def look(self, path: str, *, whole: bool) -> Seen:
        """Return what editors show of the file ``path``, resolved; its text if it is not the file's, or ``whole``."""
        ...

    def look_now(self, path: str, *, whole: bool) -> Seen:
        """Do as ``look``, called from a thread."""
        ...

    async def change(self, path: str, seen: Seen, edits: Sequence[Replacement]) -> Made:
        """Change the buffer that was ``seen``, and have it saved."""
        ...


def is_remote(path: str) -> bool:
    """Return whether ``path`` is one of another machine, as Emacs writes it: ``/ssh:host:/etc/motd``."""
    return _REMOTE.match(path) is not None


def only_open(path: str) -> ToolError:
    """Return what is said of a file of another machine that nobody has open."""
    return ToolError(
        f"{path} is on another machine, and can be reached only while the user has it open in Emacs",
        mend="Ask the user to open it",
    )


def replacements(before: str, after: str) -> list[Replacement]:
    """Return what makes ``after`` of ``before``, in order, as small as is cheap: what stays keeps its marks."""
    head = before.rfind("\n", 0, _common(before, after)) + 1
    tail = _common(before[head:][::-1], after[head:][::-1])
    line = before.find("\n", len(before) - tail)  # whole lines are compared, or marks in the middle of one move
    tail = 0 if line < 0 else len(before) - line - 1
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    if not old and not new:
        return []
    lines, others = _lines(old), _lines(new)
    if len(lines) + len(others) > _COMPARED_LINES:
        return [_trimmed(head, old, new)]
    found = []
    ends, starts = _offsets(lines), _offsets(others)
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, lines, others, autojunk=False).get_opcodes():
        if tag != "equal":
            found.append(_trimmed(head + ends[i1], old[ends[i1] : ends[i2]], new[starts[j1] : starts[j2]]))
    return found


def _trimmed(start: int, old: str, new: str) -> Replacement:
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    text = new[head : len(new) - tail]
    if (
        not old and start and text.endswith("\n")
    ):  # new lines stand behind a line, and not before the next one's marks
        return Replacement(start - 1, start - 1, f"\n{text[:-1]}")
    return Replacement(start + head, start + len(old) - tail, text)


def _lines(text: str) -> list[str]:
    """Return the lines of ``text`` with their ends; only a newline ends one."""
    return [f"{line}\n" for line in text.split("\n")[:-1]] + ([last] if (last := text.rpartition("\n")[2]) else [])


def _offsets(lines: Sequence[str]) -> list[int]:
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))
    return offsets


def _common(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:  # comparing slices is a thousand times faster than comparing characters
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
