"""A model that says what it was told to say, for tests of missions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from pyagentd.mission.options import Request
from pyagentd.mission.retry import LLMError

Scene = str | dict[str, Any] | BaseException | Callable[[Request], Any]


class Scripted:
    """An LLM callback that gives one answer after the other and keeps what it was asked.

    Args:
        answers: For each request: text, a program, a dict with ``content``, an exception to raise, or a function of
            the request that gives any of these. Text that begins with ``(`` is a program already.
        repeat: Whether the last answer is given again and again.

    Attributes:
        requests: What it was asked, as it was at that time.
    """

    def __init__(self, answers: Iterable[Scene] | str, *, repeat: bool = False) -> None:
        self._answers = [answers] if isinstance(answers, str) else list(answers)
        self._repeat = repeat
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Any:
        """Give the next answer.

        Raises:
            LLMError: There is none left.
        """
        self.requests.append(copy.deepcopy(request))
        at = len(self.requests) - 1
        if at >= len(self._answers) and not (self._repeat and self._answers):
            message = f"The script has {len(self._answers)} answers, and this is request {at + 1}"
            raise LLMError("script_ended", message, final=True)
        answer = self._answers[min(at, len(self._answers) - 1)]
        if callable(answer) and not isinstance(answer, BaseException):
            answer = answer(request)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @property
    def texts(self) -> list[str]:
        """Everything it was ever shown."""
        return [
            text for each in self.requests for text in (each["system"], *(m["content"] for m in each["messages"]))
        ]
