"""One measured figure, its target, and how a line of the table shows them."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Literal

Of = Literal["value", "ratio", "excess"]

_RELATIONS = {"≤": operator.le, "≥": operator.ge}
_WIDTHS = (52, 13, 34, 8, 14, 3)


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on the value itself, on its ratio to the reference, or on what it exceeds the reference by."""

    relation: Literal["≤", "≥"]
    bound: float
    of: Of = "value"


def at_most(bound: float, of: Of = "value") -> Target:
    return Target("≤", bound, of)


def at_least(bound: float, of: Of = "value") -> Target:
    return Target("≥", bound, of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What was measured; ``beside`` says what ``reference`` is, in the same unit."""

    name: str
    value: float
    unit: str
    target: Target | None = None
    reference: float | None = None
    beside: str = ""

    @property
    def ratio(self) -> float | None:
        return self.value / self.reference if self.reference else None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        return None if self.target is None else _RELATIONS[self.target.relation](self._judged(), self.target.bound)

    def line(self) -> str:
        """Return the figure as a line of the table."""
        reference = "" if self.reference is None else f"{_number(self.reference)} {self.unit}  {self.beside}"
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}×"
        met = {True: "yes", False: "NO", None: ""}[self.met]
        return _row(self.name, f"{_number(self.value)} {self.unit}", reference, ratio, self._bound(), met)

    def _judged(self) -> float:
        match self.target and self.target.of:
            case "ratio":
                return self.ratio or 0.0
            case "excess":
                return self.value - (self.reference or 0.0)
            case _:
                return self.value

    def _bound(self) -> str:
        if self.target is None:
            return ""
        unit = {"value": f" {self.unit}", "ratio": "×", "excess": f" {self.unit} more"}[self.target.of]
        return f"{self.target.relation} {_number(self.target.bound)}{unit}"


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that holds or does not, such as a text that is exact."""

    name: str
    met: bool

    def line(self) -> str:
        """Return the fact as a line of the table."""
        return _row(self.name, "yes" if self.met else "no", "", "", "yes", "yes" if self.met else "NO")


Result = Figure | Fact


def heading() -> str:
    """Return the first line of the table."""
    return _row("", "ours", "reference", "ratio", "target", "met")


def _row(*cells: str) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
