"""A way to break code, for ``mutants``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Break:
    """In ``file``, ``old`` (which occurs once) becomes ``new``."""

    scenario: str
    file: str
    old: str
    new: str
    spec: str = "001"

    def applied(self, text: str) -> str:
        """Return ``text`` broken.

        Raises:
            ValueError: The code has changed, so that this is no break any more.
        """
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file}: {self.old!r} occurs {text.count(self.old)} times, not once")
        return text.replace(self.old, self.new)
