"""What the model sees while a run lasts: the conversation so far, what steers it, what fits the model's window."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Protocol

from pyagentd.messages import Message, Text, Usage


class Fit(Protocol):
    """Makes a view fit the model's window.

    It may record (a compaction) and may raise a ``PyagentdError``, which ends the run.
    """

    def __call__(
        self, view: tuple[Message, ...], last: Usage | None, *, overflow: bool = False
    ) -> Awaitable[tuple[Message, ...] | None]:
        """Return another view, or None: it stays.

        Args:
            view: What is to be sent.
            last: Usage of the run's last request, None before its first one.
            overflow: Whether the model's server just refused it as too long.
        """
        ...


Steering = Callable[[], Awaitable[Sequence[str]]]
"""Records what the user steered with as messages of theirs and returns their texts; called at step boundaries."""


async def no_steering() -> Sequence[str]:
    """Steer with nothing."""
    return ()


class View:
    """The messages of a run's next request.

    Args:
        messages: Those of its first request.
        fit: Makes them fit the model; None: nothing does.
        steering: What the user steers the run with.
    """

    def __init__(self, messages: Sequence[Message], *, fit: Fit | None, steering: Steering) -> None:
        self._messages = list(messages)
        self._fit = fit
        self._steering = steering

    @property
    def messages(self) -> tuple[Message, ...]:
        """What the next request says."""
        return tuple(self._messages)

    def refit(self, fit: Fit | None) -> None:
        """Have ``fit`` make the messages fit from now on: another model may answer."""
        self._fit = fit

    def add(self, message: Message) -> None:
        """Have the model see ``message`` from the next request on."""
        self._messages.append(message)

    async def steer(self) -> bool:
        """Take what the user steered with into the last message, if that is the user's; return whether it was."""
        last = self._messages[-1]
        if last.role != "user" or not (texts := await self._steering()):
            return False
        self._messages[-1] = replace(last, parts=(*last.parts, *(Text(text=text) for text in texts)))
        return True

    async def fit(self, last: Usage | None, *, overflow: bool = False) -> bool:
        """Have the messages made to fit the model, see ``Fit``; return whether they were changed."""
        if self._fit is None:
            return False
        messages = await self._fit(self.messages, last, overflow=overflow)
        if messages is not None:
            self._messages = list(messages)
        return messages is not None
