"""How a slash command asks for an operation, in the name of whoever typed it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from pyagentd.agent.commands.command import Call

Operations = Mapping[str, Callable[..., Awaitable[Any]]]


class Asking:
    """Asks for operations.

    Args:
        operations: All there are, by their names on the wire.
    """

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def __call__(self, call: Call, operation: str, **arguments: Any) -> Any:
        """Return what an operation answers; raises what it raises."""
        return await self._operations[operation](call.client, **arguments)

    def has(self, operation: str) -> bool:
        """Return whether there is such an operation."""
        return operation in self._operations


def run_options(call: Call) -> dict[str, Any]:
    """Return what an operation that asks a model is told of its client."""
    return {"env": call.options.env, "key": call.options.api_key}


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines with aligned columns, the last one as it is."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1] if rows else []
    lines = ("  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
