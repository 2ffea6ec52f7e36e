"""A question of the run, asked on the terminal: allow once, deny, or abort.

The first answer wins wherever it is given, so the line is read without blocking and a question that was settled
elsewhere is withdrawn. Questions go to stderr: stdout holds the answer only.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Decision = Literal["allow", "deny", "abort"]

_CHOICES = "[a]llow once, [d]eny (with a reason if you like), a[b]ort the run: "
_WORDS: Mapping[str, Decision] = {
    "a": "allow", "allow": "allow", "y": "allow", "yes": "allow",
    "d": "deny", "deny": "deny", "n": "deny", "no": "deny",
    "b": "abort", "abort": "abort",
}  # fmt: skip
_PREVIEW_LINES = 30


class Reply(NamedTuple):
    """What the user decided."""

    decision: Decision
    reason: str = ""


def question(ask: Mapping[str, Any], branch: str) -> str:
    """Return the text that puts ``ask`` to a user who follows ``branch``."""
    tool, asker = ask.get("tool") or "a tool", ask.get("branch")
    who = f"{ask.get('agent') or 'An agent'} wants" if asker and asker != branch else "The model wants"
    lines = [f"{who} to use {tool}: {ask.get('detail') or ask.get('action') or ''}".rstrip(": ")]
    if reason := ask.get("reason"):
        lines.append(f"  {reason}")
    preview = str(ask.get("preview") or "").splitlines()
    lines += [f"  | {line}" for line in preview[:_PREVIEW_LINES]]
    if len(preview) > _PREVIEW_LINES:
        lines.append(f"  | … {len(preview) - _PREVIEW_LINES} more lines")
    return "\n".join(map(printable, lines))


def printable(text: str) -> str:
    """Return ``text`` with control characters made visible: a preview must not rewrite the question by escapes."""
    return "".join(char if char.isprintable() or char == "\t" else f"\\x{ord(char):02x}" for char in text)


def parse_reply(line: str) -> Reply | None:
    """Return what ``line`` decides, or None when it is none of the choices."""
    word, _, rest = line.strip().partition(" ")
    decision = _WORDS.get(word.lower())
    return Reply(decision, rest.strip()) if decision else None


class AskPrompt:
    """The question on the screen, if there is one, and the line being typed to it."""

    def __init__(self) -> None:
        self._typed = b""

    def put(self, ask: Mapping[str, Any], branch: str) -> None:
        """Print ``ask`` and the choices."""
        self._typed = b""
        print(f"\a{question(ask, branch)}\n{_CHOICES}", end="", file=sys.stderr, flush=True)

    def poll(self, timeout_s: float) -> Reply | None:
        """Return the reply once a whole line was typed; end of input denies."""
        readable, _, _ = select.select([sys.stdin], [], [], timeout_s)
        if not readable:
            return None
        data = os.read(sys.stdin.fileno(), 4096)
        if not data:
            return Reply("deny", "no answer: end of input")
        self._typed += data
        if not self._typed.endswith(b"\n"):
            return None
        line, self._typed = self._typed.decode(errors="replace"), b""
        reply = parse_reply(line)
        if reply is None:
            print(_CHOICES, end="", file=sys.stderr, flush=True)
        return reply
