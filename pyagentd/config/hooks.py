"""What ``[[hooks.EVENT]]`` of the configuration, and ``[[EVENT]]`` of a project's ``hooks.toml``, may say.

::

    [[hooks.tool.before]]
    command = ["~/bin/check-call", "--strict"]   # a program and its arguments
    timeout = 10                                 # seconds (default 10, at most 120)
    tools = "Bash|Write"                         # of tool events: a regular expression for the tool's whole name
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyagentd.errors import ConfigError

EVENTS = ("message.user", "model.resolve", "tool.before", "tool.after", "run.finished")
DEFAULT_S = 10.0
MOST_S = 120.0

_KEYS = frozenset({"command", "timeout", "tools"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSettings:
    """One program that is asked about an event."""

    event: str
    command: tuple[str, ...]  # not empty
    timeout_s: float = DEFAULT_S
    tools: re.Pattern[str] | None = None  # of tool events: which tools' calls
    source: str = ""  # FILE:LINE

    def is_about(self, tool: str) -> bool:
        """Return whether it is to be asked about calls of ``tool``."""
        return self.tools is None or self.tools.fullmatch(tool) is not None


def read_hooks(data: Mapping[str, Any], place: Callable[[str], str], prefix: str = "") -> tuple[HookSettings, ...]:
    """Return the hooks that a table says, in its order.

    Args:
        data: ``{"tool": {"before": [{"command": […]}]}}``.
        place: Returns where a dotted name is, for errors.
        prefix: Before the names of events there, such as "hooks.".

    Raises:
        ConfigError: Something of it is not possible; names file and line.
    """
    known = {tuple(event.split(".")) for event in EVENTS}
    for first, below in data.items():
        for second in below if isinstance(below, dict) else ("",):
            if (first, second) not in known:
                named = ".".join(filter(None, (first, second)))
                raise ConfigError(
                    f"{place(prefix + named)}: there is no event {named!r} for hooks",
                    mend=f"Known: {', '.join(EVENTS)}",
                )
    return tuple(hook for event in EVENTS for hook in _of_event(data, event, place, prefix))


def _of_event(
    data: Mapping[str, Any], event: str, place: Callable[[str], str], prefix: str
) -> Iterator[HookSettings]:
    first, second = event.split(".")
    rows, source = data.get(first, {}).get(second, []), place(prefix + event)
    if not isinstance(rows, list):
        raise ConfigError(f"{source}: {prefix}{event} is not a list", mend=f"Write [[{prefix}{event}]]")
    for row in rows:
        if not isinstance(row, dict) or not row.keys() <= _KEYS:
            raise ConfigError(f"{source}: a hook has only {', '.join(sorted(_KEYS))}")
        command, timeout = row.get("command"), row.get("timeout", DEFAULT_S)
        if (
            not isinstance(command, list)
            or not command
            or not all(isinstance(each, str) and each for each in command)
        ):
            raise ConfigError(f"{source}: a hook needs a command", mend='Write command = ["PROGRAM", "ARGUMENT"]')
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= MOST_S:
            raise ConfigError(f"{source}: timeout is {timeout!r}, not a number of seconds up to {MOST_S:g}")
        yield HookSettings(
            event=event,
            command=tuple(command),
            timeout_s=float(timeout),
            tools=_tools(row.get("tools"), source),
            source=source,
        )


def _tools(text: object, source: str) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(str(text))
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigError(f"{source}: {text!r} is no regular expression: {error}") from error
