"""What stands for a value that is not there, since nil is a value; programs never see it."""

from __future__ import annotations

from typing import Any, Final


class _Missing:
    """The type of `MISSING`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final[Any] = _Missing()
"""Default of an optional argument, and what is found under a key that is not there."""
