"""Slash commands as an editor completes them, by one word; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from acp import schema
from acp.helpers import update_available_commands


def available(found: Iterable[Mapping[str, Any]]) -> schema.AvailableCommandsUpdate:
    """Return the commands that the daemon's operation ``commands`` tells; those of two words together, as one."""
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for command in found:
        grouped.setdefault(str(command["name"]).split()[0], []).append(command)
    return update_available_commands(_command(name, rows) for name, rows in grouped.items())


def _command(name: str, rows: list[Mapping[str, Any]]) -> schema.AvailableCommand:
    words = [str(row["name"]).removeprefix(name).strip() for row in rows]
    hint = "|".join(filter(None, words))
    if words == [""]:
        hint = str(rows[0]["synopsis"]).removeprefix(f"/{name}").strip()
    made = schema.AvailableCommand(name=name, description="; ".join(str(row["summary"]) for row in rows))
    if hint:
        made.input = schema.AvailableCommandInput(root=schema.UnstructuredCommandInput(hint=hint))
    return made
