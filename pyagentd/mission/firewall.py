"""The one place that turns values into text for a model (SPEC 004 Data Privacy, Large Data).

Whatever a model reads of a value (data inventory, feedback, template values, error texts, what a child returned) is
made here. A key whose name begins with ``_`` is firewalled at any depth: programs can use its value,
no text shows it.
"""

from __future__ import annotations

from typing import Any

from pyagentd.mission.options import PromptLimit

HIDDEN = "[Hidden] [Firewalled]"


def model_text(value: Any, limits: PromptLimit | None = None) -> str:
    """Return ``value`` in Clojure syntax, firewalled keys hidden, cut to ``limits`` with a note for every cut."""
    raise NotImplementedError


def is_firewalled(name: object) -> bool:
    """Return whether a key of that name is for programs only."""
    return str(getattr(name, "name", name)).startswith("_")
