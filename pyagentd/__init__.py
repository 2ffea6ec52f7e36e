"""Agents for Emacs that outlive Emacs: the daemon's package, its version, and the doors of its rooms.

A door has modules of a room that are loaded when they are first used (PEP 562). A module that loads an SDK, the
mission language or a format that most daemons never need is not imported directly: its users import the room and name
the module, ``llm.anthropic.BASE_URL``; the first such use loads it. A room declares its door in its ``__init__``, and
the same names for the type checker::

    if TYPE_CHECKING:
        from pyagentd.llm import anthropic, offline
    else:
        __getattr__ = door(__name__, "anthropic", "offline")
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def door(room: str, *modules: str, **names: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a room.

    Args:
        room: Its ``__name__``.
        modules: Modules of the room.
        names: Other public names of the room, each with the module that defines it.
    """

    def load(name: str) -> Any:
        if name not in modules and name not in names:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        module = import_module(f"{room}.{names.get(name, name)}")
        found = getattr(module, name) if name in names else module
        setattr(sys.modules[room], name, found)
        return found

    return load
