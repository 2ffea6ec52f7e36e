"""A model's questions on the terminal: asked one after the other, answered by numbers or words; pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

_PICKS = re.compile(r"\d+(?:[\s,]+\d+)*")

DECLINE, ABORT = "/decline", "/abort"


class QuestionForm:
    """The questions of an ask, and what was answered so far.

    Args:
        ask: As the daemon tells it, of kind "question".
    """

    def __init__(self, ask: Mapping[str, Any]) -> None:
        self._questions: Sequence[Mapping[str, Any]] = ask["questions"]
        self._answers: list[list[str]] = []

    def prompt(self) -> str:
        """Return the question that comes next, with what may be typed."""
        place = len(self._answers)
        asked = self._questions[place]
        lines = told(asked, place if len(self._questions) > 1 else None)
        number = "numbers" if asked.get("multi_select") else "a number"
        ways = [f"{number} or your words" if asked.get("options") else "your words"]
        ways += ["nothing to leave it open"] if len(self._questions) > 1 else []
        return "\n".join([*lines, f"[{', '.join([*ways, f'{DECLINE} [why]', ABORT])}] "])

    def take(self, line: str) -> bool:
        """Take the answer to the question that was asked; return whether that was the last one."""
        self._answers.append(parsed(line, self._questions[len(self._answers)]))
        return len(self._answers) == len(self._questions)

    def again(self) -> None:
        """Begin anew."""
        self._answers.clear()

    @property
    def empty(self) -> bool:
        """Whether nothing was answered."""
        return not any(self._answers)

    @property
    def answers(self) -> str:
        """The answers as the daemon takes them, JSON."""
        return json.dumps(self._answers, ensure_ascii=False)


def parsed(line: str, asked: Mapping[str, Any]) -> list[str]:
    """Return the answer that a line gives to a question: options by number, words, or one option and words."""
    text, options = line.strip(), asked.get("options") or ()
    labels = [str(option["label"]) for option in options]
    found = _PICKS.match(text)
    if not found or not labels:
        return [text] if text else []
    numbers = [int(each) for each in re.findall(r"\d+", found[0])]
    rest = text[found.end() :].strip(" ,.:")
    if any(not 1 <= number <= len(labels) for number in numbers) or (len(numbers) > 1 and not asked["multi_select"]):
        return [text]
    return [*(labels[number - 1] for number in dict.fromkeys(numbers)), *filter(None, [rest])]


def told(asked: Mapping[str, Any], number: int | None = None) -> list[str]:
    """Return the lines that put one question; ``number``, from 0, of several."""
    header = f"{asked['header']}: " if asked.get("header") else ""
    several = "  (several)" if asked.get("multi_select") else ""
    lines = [f"{'' if number is None else f'{number + 1}. '}{header}{asked['question']}{several}"]
    for place, option in enumerate(asked.get("options") or (), 1):
        about = f" - {option['description']}" if option.get("description") else ""
        lines.append(f"   {place}) {option['label']}{about}")
    return lines


def command(ask: Mapping[str, Any]) -> str:
    """Return a command that would answer the questions of ``ask``, as an example."""
    example = [[str((asked.get("options") or [{"label": "…"}])[0]["label"])] for asked in ask["questions"]]
    return f"pyagentd answer {ask['id']} --answers {shlex.quote(json.dumps(example, ensure_ascii=False))}"
