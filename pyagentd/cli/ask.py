"""A question of the run, asked on the terminal, with every answer that it has.

The first answer wins wherever it is given, so the line is read without blocking and a question that was settled
elsewhere is withdrawn. What was typed before a question was on the screen answers nothing. Questions go to stderr:
stdout holds the answer only.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pyagentd.cli.questions import ABORT, DECLINE, QuestionForm, told

Decision = Literal["allow", "session", "always", "answer", "deny", "edit", "abort"]

_WORDS: Mapping[str, Decision] = {
    "a": "allow", "allow": "allow", "y": "allow", "yes": "allow", "once": "allow",
    "s": "session", "session": "session",
    "w": "always", "always": "always",
    "d": "deny", "deny": "deny", "n": "deny", "no": "deny",
    "e": "edit", "edit": "edit",
    "b": "abort", "abort": "abort",
}  # fmt: skip
_TOLD: Mapping[str, str] = {
    "allow": "[a]llow once",
    "session": "for this [s]ession",
    "always": "al[w]ays in this project",
    "deny": "[d]eny (with a reason if you like)",
    "edit": "[e]dit the arguments",
    "abort": "a[b]ort the run",
}
_SCOPE_TOLD: Mapping[str, str] = {**_TOLD, "always": "al[w]ays: add it to the scope"}
_PREVIEW_LINES = 30


class Reply(NamedTuple):
    """What the user decided; ``edit``: to give other arguments."""

    decision: Decision
    reason: str = ""
    answers: str | None = None  # to the model's questions, JSON


def question(ask: Mapping[str, Any], branch: str) -> str:
    """Return the text that puts ``ask`` to a user who follows ``branch``."""
    if ask.get("kind") == "question":
        return "\n".join(map(printable, _questions(ask, branch)))
    tool, asker = ask.get("tool") or "a tool", ask.get("branch")
    who = f"{ask.get('agent') or 'An agent'} wants" if asker and asker != branch else "The model wants"
    lines = [f"{who} to use {tool}: {ask.get('detail') or ask.get('action') or ''}".rstrip(": ")]
    if reason := ask.get("reason"):
        lines.append(f"  {reason}")
    commands = ask.get("commands") or ()
    if len(commands) > 1:
        lines += ["  It runs:", *(f"    {number}. {command}" for number, command in enumerate(commands, 1))]
    preview = str(ask.get("preview") or "").splitlines()
    lines += [f"  | {line}" for line in preview[:_PREVIEW_LINES]]
    if len(preview) > _PREVIEW_LINES:
        lines.append(f"  | … {len(preview) - _PREVIEW_LINES} more lines")
    lines += [f"  {line}" for line in remembered(ask)]
    return "\n".join(map(printable, lines))


def _questions(ask: Mapping[str, Any], branch: str) -> Iterator[str]:
    foreign = ask.get("branch") and ask["branch"] != branch
    yield f"{ask.get('agent') or 'An agent'} asks:" if foreign else "The model asks:"
    several = len(ask["questions"]) > 1
    for number, asked in enumerate(ask["questions"]):
        yield from (f"  {line}" for line in told(asked, number if several else None))


def remembered(ask: Mapping[str, Any]) -> list[str]:
    """Return the lines that say exactly what "session" and "always" would remember."""
    patterns = ask.get("remember") or ()
    if not patterns:
        return []
    from pyagentd.policy import remember

    width = max(map(len, patterns))
    covers = remember.told
    return ["Session and always would remember:", *(f"  {each:{width}}  {covers(each)}" for each in patterns)]


def choices(ask: Mapping[str, Any]) -> list[Decision]:
    """Return the answers that ``ask`` has, the ones every question has included."""
    offered: list[Decision] = [each for each in ask.get("choices") or ("allow", "deny") if each != "abort"]
    if ask.get("kind") not in ("scope", "question") and ask.get("input"):
        offered.append("edit")
    return [*offered, "abort"]


def edited(ask: Mapping[str, Any]) -> str | None:
    """Have the arguments of ``ask`` edited in the user's editor; None when they stay as they are.

    Raises:
        click.ClickException: There is no editor.
    """
    import click

    before = json.dumps(json.loads(str(ask.get("input") or "{}")), ensure_ascii=False, indent=2) + "\n"
    after = click.edit(before, extension=".json")
    return None if after is None or after.strip() == before.strip() else after


def printable(text: str) -> str:
    """Return ``text`` with control characters made visible: a preview must not rewrite the question by escapes."""
    return "".join(char if char.isprintable() or char == "\t" else f"\\x{ord(char):02x}" for char in text)


def parse_reply(line: str, offered: Sequence[str] = ("allow", "deny", "abort")) -> Reply | None:
    """Return what ``line`` decides, or None when it is none of the choices ``offered``."""
    word, _, rest = line.strip().partition(" ")
    decision = _WORDS.get(word.lower())
    return Reply(decision, rest.strip()) if decision in offered and decision else None


class AskPrompt:
    """The question on the screen, if there is one, and the line being typed to it."""

    def __init__(self) -> None:
        self._typed = b""
        self._offered: Sequence[Decision] = ("allow", "deny", "abort")
        self._choices = _line_of(self._offered, _TOLD)
        self._form: QuestionForm | None = None  # of a model's questions

    def put(self, ask: Mapping[str, Any], branch: str) -> None:
        """Print ``ask`` and the choices; what was typed before is no answer to it."""
        self._typed = b""
        _discard_typed()
        self._form = QuestionForm(ask) if ask.get("kind") == "question" else None
        if self._form is not None:
            who = question(ask, branch).partition("\n")[0]
            print(f"\a{who}\n{_shown(self._form)}", end="", file=sys.stderr, flush=True)
            return
        self._offered = choices(ask)
        self._choices = _line_of(self._offered, _SCOPE_TOLD if ask.get("kind") == "scope" else _TOLD)
        print(f"\a{question(ask, branch)}\n{self._choices}", end="", file=sys.stderr, flush=True)

    def poll(self, timeout_s: float) -> Reply | None:
        """Return the reply once a whole line was typed; end of input denies."""
        if not _typed_within(timeout_s):
            return None
        data = os.read(sys.stdin.fileno(), 4096)
        if not data:
            return Reply("deny", "no answer: end of input")
        self._typed += data
        if not self._typed.endswith(b"\n"):
            return None
        line, self._typed = self._typed.decode(errors="replace"), b""
        if self._form is not None:
            return self._taken(self._form, line)
        reply = parse_reply(line, self._offered)
        if reply is None:
            print(self._choices, end="", file=sys.stderr, flush=True)
        return reply

    def _taken(self, form: QuestionForm, line: str) -> Reply | None:
        """Take an answer to the question on the screen; return the reply once all are answered."""
        word, _, rest = line.strip().partition(" ")
        if word in (DECLINE, ABORT):
            return Reply("deny" if word == DECLINE else "abort", rest.strip())
        if form.take(line):
            if not form.empty:
                return Reply("answer", answers=form.answers)
            form.again()
        print(_shown(form), end="", file=sys.stderr, flush=True)
        return None


def _shown(form: QuestionForm) -> str:
    return "\n".join(map(printable, form.prompt().split("\n")))


def _line_of(offered: Sequence[Decision], told: Mapping[str, str]) -> str:
    return f"{', '.join(told[each] for each in offered)}: "


def _typed_within(timeout_s: float) -> bool:
    """Wait until there is something to read, or the other side hung up."""
    waiting = select.poll()  # select() itself knows no descriptor above 1023
    waiting.register(sys.stdin, select.POLLIN)
    return bool(waiting.poll(timeout_s * 1000))


def _discard_typed() -> None:
    """Drop what waits to be read from a terminal; who is in the background has no say in it."""
    if not sys.stdin.isatty():
        return
    fd = sys.stdin.fileno()
    try:
        if os.tcgetpgrp(fd) != os.getpgrp():
            return  # to try would stop this process
    except OSError:  # not the terminal of this session, so nothing stops
        pass
    with contextlib.suppress(termios.error):  # hung up: there is nothing to read either
        termios.tcflush(fd, termios.TCIFLUSH)
