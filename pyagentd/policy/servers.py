"""Which servers of tools a preset wants: the key ``mcp`` of its front matter.

::

    mcp: all                        # every configured one; what a session gets without the key
    mcp: [tracker, docs]            # these; [] or none: no server; what an agent gets without the key
    mcp:
      tracker: true
      docs: {tools: ["search*"]}    # of that one only these tools
      own: {command: [npx, some-server]}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from pyagentd.config.tables import ServerSettings, read_server
from pyagentd.errors import ConfigError

_ALL, _NONE = "all", "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedServers:
    """What a preset says."""

    all: bool = False
    names: tuple[str, ...] = ()  # of configured ones
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by name: patterns of the tools that count
    own: tuple[ServerSettings, ...] = ()  # written out

    def of(self, known: Mapping[str, ServerSettings]) -> tuple[list[ServerSettings], list[str]]:
        """Return the servers of those ``known``, and the names that none of them has."""
        own = {each.name: each for each in self.own}
        names = dict.fromkeys([*(known if self.all else ()), *self.names, *self.only, *own])
        every = {**known, **own}
        found = [self._narrowed(every[name]) for name in names if name in every and every[name].enabled]
        return found, [name for name in names if name not in every]

    def _narrowed(self, server: ServerSettings) -> ServerSettings:
        return replace(server, tools=self.only[server.name]) if server.name in self.only else server


def read_wanted(value: object, place: str) -> WantedServers:
    """Return what the value of the key says.

    Raises:
        ConfigError: It is of the wrong kind.
    """
    match value:
        case str():
            words = re.findall(r"[^\s,]+", value)
            if _ALL in words:
                return WantedServers(all=True)
            return WantedServers(names=tuple(word for word in words if word != _NONE))
        case bool():
            return WantedServers(all=value)
        case list():
            return _joined(place, [_listed(each, place) for each in value])
        case Mapping():
            return _joined(place, [(str(name), each) for name, each in value.items()])
    raise ConfigError(f"{place}: `mcp` is a {type(value).__name__}", mend=_MEND)


_MEND = "It should be all, none, a list of names, or a table of servers"


def _listed(each: object, place: str) -> tuple[str, object]:
    if isinstance(each, str):
        return each, True
    if isinstance(each, Mapping) and isinstance(each.get("name"), str):
        return str(each["name"]), {key: value for key, value in each.items() if key != "name"}
    if isinstance(each, Mapping) and len(each) == 1:
        ((name, table),) = each.items()
        return str(name), table
    raise ConfigError(f"{place}: `mcp` lists what is neither a name nor a server", mend=_MEND)


def _joined(place: str, rows: list[tuple[str, object]]) -> WantedServers:
    names, only, own = list[str](), dict[str, tuple[str, ...]](), list[ServerSettings]()
    for name, table in rows:
        if table is True or table is None:
            names.append(name)
        elif isinstance(table, Mapping) and table.keys() == {"tools"}:
            only[name] = tuple(_texts(table["tools"], name, place))
        elif table is not False:
            own.append(replace(read_server(name, table, place), trusted=False))  # only config.toml may say so
    return WantedServers(names=tuple(names), only=only, own=tuple(own))


def _texts(value: object, name: str, place: str) -> Iterator[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ConfigError(f"{place}: tools of the MCP server {name} is not a list of texts")
    yield from map(str, value)
