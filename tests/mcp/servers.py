"""The servers that tests talk to, as tables of the configuration."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REFERENCE = HERE.parents[1] / ".mcp-servers" / "node_modules" / ".bin"

needs_reference = pytest.mark.skipif(
    shutil.which("node") is None or not REFERENCE.is_dir(), reason="node or the reference servers are missing"
)


def plain(*words: str) -> list[str]:
    """The command of the server in plain Python."""
    return [sys.executable, "-S", str(HERE / "plain.py"), *words]


def reference(name: str, *words: str) -> list[str]:
    """The command of an official reference server, such as "everything"."""
    return [str(REFERENCE / f"mcp-server-{name}"), *words]


def table(name: str, command: list[str] | None = None, **values: object) -> str:
    """A table of ``config.toml``."""
    given = values if command is None else {"command": command, **values}
    return f"[mcp.{name}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in given.items())


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    return json.dumps(value)
