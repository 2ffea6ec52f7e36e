"""Calling what somebody else wrote: tools and callbacks of models.

Whatever they do wrong is an ``Exception`` after this: one that wants to end the process (``sys.exit`` of a function
made for a command line) or that says it was cancelled, though nobody cancelled the mission, would otherwise take the
event loop of the whole daemon with it. The user's interrupt passes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

_LEFT: Final = "it wanted to end the process (sys.exit)"


class Escape(Exception):
    """What was called wanted to end more than itself; how it did so is the cause."""


def called(function: Callable[..., Any], *args: Any) -> Any:
    """Return what ``function`` gives.

    Raises:
        Escape: It wanted to end the process, or was cancelled.
    """
    try:
        return function(*args)
    except SystemExit as error:
        raise Escape(_LEFT) from error
    except asyncio.CancelledError as error:
        raise Escape("it was cancelled") from error


async def guarded(awaitable: Awaitable[Any]) -> Any:
    """Return what ``awaitable`` gives; a task that ends with ``SystemExit`` would end its event loop.

    Raises:
        Escape: It wanted to end the process.
    """
    try:
        return await awaitable
    except SystemExit as error:
        raise Escape(_LEFT) from error


def words_of(error: BaseException) -> str:
    """Return what an exception says, or "" when it says nothing or saying it fails."""
    try:
        return str(error).strip()
    except Exception:  # its class is anybody's code
        return ""
