"""What is said, and looked at, where a command is not kept inside its scope."""

from __future__ import annotations

from pyagentd.errors import ToolError
from pyagentd.tools.confine.available import told
from pyagentd.tools.confine.enclosure import Enclosure, chosen
from pyagentd.tools.confine.scope import ShellScope
from pyagentd.tools.confine.watch import has_second_names


def unconfined(scope: ShellScope) -> str:
    """Return what a human should know before a command of ``scope`` runs; "" when it is confined."""
    try:
        mechanism = chosen(scope)
    except ToolError as error:  # it will not run
        return str(error)
    if mechanism is not None:
        return ""
    why = "by its preset" if not scope.confine else "by configuration" if scope.wanted == "off" else "on this machine"
    return f"{told(None)} (Confinement is off {why}.)" if why != "on this machine" else f"{told(None)}"


def is_watched(started: Enclosure, scope: ShellScope) -> bool:
    """Return whether the records could be changed by a command, so that they are compared afterwards."""
    return started.mechanism is None or has_second_names(scope.records)
