"""The servers of a project: ``.mcp.json``, as other programs write it, and ``.pyagentd/mcp.toml``, as we do.

A server is a program that runs as the user, so none of them is started before the user agreed to exactly what the
files say: to them, to the programs and scripts of the project that their commands name, all by content, and to where
the project is. When any of that changes, nothing of it is started until the user agrees anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyagentd.agent.hooking.projecthooks import content, scripts_of
from pyagentd.config.mcp import ServerSettings, read_server
from pyagentd.errors import ConfigError
from pyagentd.tools.mcp.launch import at_root

OURS = ".pyagentd/mcp.toml"  # tables [NAME], as [mcp.NAME] of the configuration
OTHERS = ".mcp.json"  # {"mcpServers": {NAME: …}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectServers:
    """What a project would have started, as it was read."""

    root: Path
    hash: str  # of all of it; "" when it cannot be used
    files: tuple[tuple[Path, str], ...] = ()  # with their text
    servers: tuple[ServerSettings, ...] = ()
    scripts: tuple[tuple[Path, str], ...] = ()  # the project's own programs, with their text
    error: str = ""  # why none of it, or not all, can be used


def project_servers(root: Path) -> ProjectServers | None:
    """Return what the project ``root`` would have started; None when it names no servers. Reads files."""
    files = [file for name in (OTHERS, OURS) if os.path.lexists(file := root / name)]
    if not files:
        return None
    try:
        texts = [(file, content(file)) for file in files]
        problems: list[str] = []
        found = (each for file, data in texts for each in _servers(file, data, problems))
        servers = {each.name: each for each in found}  # ours come last and win
        scripts = server_scripts(root, servers.values())
    except (OSError, ValueError, ConfigError) as error:
        return ProjectServers(root=root, hash="", error=str(error))
    if not servers and not problems:
        return None
    hashed = hashlib.sha256(b"mcp\0" + os.fsencode(root.resolve()))
    for path, data in (*texts, *scripts):
        hashed.update(b"\0" + os.fsencode(path) + b"\0" + hashlib.sha256(data).digest())
    return ProjectServers(
        root=root,
        hash=hashed.hexdigest(),
        files=_shown(texts),
        servers=tuple(servers.values()),
        scripts=_shown(scripts),
        error="; ".join(problems),
    )


def server_scripts(root: Path, servers: Iterable[ServerSettings]) -> list[tuple[Path, bytes]]:
    """Return the files of the project ``root`` that the commands of servers name, with what they hold.

    Raises ``OSError``, or ``ValueError`` when one is too large.
    """
    words = (word for each in servers for word in _words(each, root))
    return [(path, content(path)) for path in scripts_of(root, words)]


def _servers(file: Path, data: bytes, problems: list[str]) -> Iterator[ServerSettings]:
    """Yield the servers of a file; raises ``ValueError`` or ``ConfigError``.

    What we cannot reach of another program's file is added to ``problems`` and in nobody's way.
    """
    strict = file.name != OTHERS
    try:
        tables: Any = tomllib.loads(data.decode()) if strict else json.loads(data)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    if not strict:
        tables = tables.get("mcpServers", {}) if isinstance(tables, Mapping) else None
    if not isinstance(tables, Mapping):
        raise ConfigError(f'{file}: it has no table of servers, such as {{"mcpServers": {{}}}}')
    for name, table in tables.items():
        try:
            # Who trusts a project has read what it runs, not what its servers will say of themselves.
            yield replace(read_server(name, table, str(file), strict=strict), of_project=True, trusted=False)
        except ConfigError as error:
            if strict:
                raise
            problems.append(str(error))


def _words(server: ServerSettings, root: Path) -> Iterator[str]:
    """Yield what may name a file of the project: the words of a command, also as seen from where it runs."""
    place = root / at_root(server.cwd, root)
    for word in (at_root(each, root) for each in server.command):
        yield word
        yield str(place / word)


def _shown(files: list[tuple[Path, bytes]]) -> tuple[tuple[Path, str], ...]:
    return tuple((path, data.decode(errors="replace")) for path, data in files)
