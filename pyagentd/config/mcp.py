"""Servers of the Model Context Protocol: ``[mcp.NAME]`` of ``config.toml``, of a preset, or a project's file.

::

    [mcp.files]                             # a program, which speaks on its standard input and output
    command = ["npx", "-y", "@modelcontextprotocol/server-filesystem", "${root}"]
    env = { LEVEL = "debug" }               # beside PATH, HOME and the like; nothing else is passed on

    [mcp.tracker]                           # or a server on the web (streamable HTTP)
    url = "https://tracker.example.org/mcp"
    headers = { Authorization = "Bearer ${TRACKER_TOKEN}" }
    tools = ["search", "get_*"]             # only these; without it, all
    timeout = 60                            # seconds for one call; start_timeout (30) for its start
    trusted = true                          # what it says only to look is not asked about
    enabled = true

A project's ``.mcp.json`` says the same in the words of other programs (``mcpServers``). Nothing is expanded here:
what ``${NAME}`` stands for is known when a server is started.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyagentd.errors import ConfigError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
CALL_S = 60.0
START_S = 30.0
MOST_S = 24 * 60 * 60.0

_KEYS = (
    "command", "args", "env", "cwd", "url", "headers", "tools", "timeout", "start_timeout", "trusted", "enabled",
    "type", "transport",
)  # fmt: skip
_STDIO = ("stdio",)
_HTTP = ("http", "streamable-http", "streamableHttp")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """One server, as it is written down."""

    name: str
    command: tuple[str, ...] = ()  # a program and its arguments; of a server on the web empty
    env: tuple[tuple[str, str], ...] = ()  # variables of the program
    cwd: str = ""  # where it runs; "": in a directory of its own, one of a project in the workspace root
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    tools: tuple[str, ...] | None = None  # patterns as in a shell; None: all
    call_s: float = CALL_S
    start_s: float = START_S
    trusted: bool = False  # its word is believed that a tool only looks
    enabled: bool = True
    source: str = ""  # FILE:LINE, or FILE
    of_project: bool = False  # a project's file names it, which the user trusts as it is
    literal: bool = False  # its texts mean what they say: ${NAME} and ~ stand for nothing


def read_server(name: str, table: object, place: str, *, strict: bool = True) -> ServerSettings:
    """Return the server that a table describes.

    Args:
        name: What it is called.
        table: Its keys and values, see above.
        place: Where that is written, for errors.
        strict: Keys that nothing reads are an error; other programs' files may have them.

    Raises:
        ConfigError: Something of it is not possible; names the place.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{place}: {name!r} is no name for an MCP server",
            mend="Use at most 32 letters, digits, _ and -, the first no _ or -",
        )
    if not isinstance(table, Mapping):
        raise ConfigError(f"{place}: the MCP server {name} is not a table")
    keys = _Keys(name, table, place)
    unknown = [str(key) for key in table if key not in _KEYS]
    if strict and unknown:
        raise ConfigError(f"{place}: unknown key {unknown[0]!r} of the MCP server {name}; known: {', '.join(_KEYS)}")
    keys.check_type()
    command, url = keys.command(), keys.text("url")
    if bool(command) == bool(url):
        raise ConfigError(
            f"{place}: the MCP server {name} needs either a command or a url",
            mend='Write command = ["PROGRAM", "ARGUMENT"] or url = "https://…"',
        )
    if url and not re.match(r"https?://[^/]|\$\{", url):
        raise ConfigError(f"{place}: {url!r} of the MCP server {name} is no address; it begins with https://")
    return ServerSettings(
        name=name,
        command=command,
        env=keys.pairs("env"),
        cwd=keys.text("cwd"),
        url=url,
        headers=keys.pairs("headers"),
        tools=keys.texts("tools"),
        call_s=keys.seconds("timeout", CALL_S),
        start_s=keys.seconds("start_timeout", START_S),
        trusted=keys.flag("trusted", default=False),
        enabled=keys.flag("enabled", default=True) and not (not strict and keys.flag("disabled", default=False)),
        source=place,
    )


@dataclass(frozen=True, slots=True)
class _Keys:
    """Reads the values of one server, with errors that say where."""

    name: str
    table: Mapping[str, Any]
    place: str

    def _wrong(self, key: str, wanted: str) -> ConfigError:
        return ConfigError(f"{self.place}: {key} of the MCP server {self.name} is not {wanted}")

    def check_type(self) -> None:
        """Refuse what other programs can reach and we cannot."""
        kind = self.table.get("type") or self.table.get("transport")
        if kind is not None and kind not in (*_STDIO, *_HTTP):
            raise ConfigError(
                f"{self.place}: the MCP server {self.name} has the type {kind!r}, which cannot be reached",
                mend="Known: stdio, http (streamable HTTP)",
            )

    def command(self) -> tuple[str, ...]:
        value, more = self.table.get("command", ()), self.texts("args") or ()
        words = (value,) if isinstance(value, str) else value
        if not isinstance(words, tuple | list) or not all(isinstance(each, str) and each for each in words):
            raise self._wrong("command", "a program, or a list of it and its arguments")
        return (*words, *more) if words else ()

    def text(self, key: str) -> str:
        value = self.table.get(key, "")
        if not isinstance(value, str):
            raise self._wrong(key, "a text")
        return value

    def texts(self, key: str) -> tuple[str, ...] | None:
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self._wrong(key, "a list of texts")
        return tuple(value)

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        value = self.table.get(key, {})
        if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value.values()):
            raise self._wrong(key, "a table of texts")
        return tuple((str(name), str(text)) for name, text in value.items())

    def seconds(self, key: str, default: float) -> float:
        value = self.table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST_S:
            raise self._wrong(key, f"a number of seconds up to {MOST_S:g}")
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.table.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value
