"""The hooks of a project: ``.pyagentd/hooks.toml``, which counts once the user has agreed to exactly what would run.

What is agreed to is the file, the programs and scripts of the project that its commands name, all by content, and
where the project is. When any of that changes, nothing of it runs until the user agrees anew.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyagentd import jsontext, regularfile
from pyagentd.config.file import read_toml
from pyagentd.config.tables import HookSettings, ServerSettings, read_hooks, read_server
from pyagentd.errors import ConfigError
from pyagentd.reader import Source, line_in_json, read
from pyagentd.tools.mcp.connection import at_root
from pyagentd.tools.sandbox.scope import ShellScope

FILE = ".pyagentd/hooks.toml"
DIRECTORY = ".pyagentd/hooks"  # for scripts: no tool writes there

_MOST_BYTES = 1_000_000  # of each file


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectHooks:
    """What a project would have run, as it was read."""

    root: Path
    file: Path
    hash: str  # of all of it
    text: str = ""  # of the file
    hooks: tuple[HookSettings, ...] = ()
    scripts: tuple[tuple[Path, str], ...] = ()  # the project's own programs, with their text
    error: str = ""  # why none of it can be used


def project_hooks(root: Path) -> ProjectHooks | None:
    """Return what the project ``root`` would have run; None when it has no hooks. Reads files."""
    file = root / FILE
    if not os.path.lexists(file):
        return None
    try:
        data = content(file)
        toml = read_toml(file, data)
        hooks = read_hooks(toml.data, Source(place=toml.place, error=ConfigError))
        words = (word for hook in hooks for word in hook.command)
        scripts = [(path, content(path)) for path in scripts_of(root, words)]
    except (OSError, ValueError, ConfigError) as error:
        return ProjectHooks(root=root, file=file, hash="", error=str(error))
    hashed = hashlib.sha256(b"hooks\0" + os.fsencode(root.resolve()) + b"\0" + hashlib.sha256(data).digest())
    for path, code in scripts:
        hashed.update(os.fsencode(path) + b"\0" + hashlib.sha256(code).digest())
    shown = tuple((path, code.decode(errors="replace")) for path, code in scripts)
    text = data.decode(errors="replace")
    return ProjectHooks(root=root, file=file, hash=hashed.hexdigest(), text=text, hooks=hooks, scripts=shown)


def guarded(scope: Callable[[], ShellScope], root: Path) -> Callable[[], ShellScope]:
    """Return ``scope`` with the project's hooks where there are any: a command must not put a guard to sleep."""
    own = [path for name in (FILE, DIRECTORY) if os.path.lexists(path := str(root.resolve() / name))]
    return scope if not own else lambda: replace(known := scope(), protected=(*known.protected, *own))


def scripts_of(root: Path, words: Iterable[str]) -> Iterator[Path]:
    """Yield the files of a project that the words of commands name."""
    resolved, seen = root.resolve(), set[Path]()
    for word in words:
        path = (root / Path(word).expanduser()).resolve()
        if path not in seen and path.is_relative_to(resolved) and path.is_file():
            seen.add(path)
            yield path


def content(path: Path) -> bytes:
    """Return what a file of a project holds; raises ``OSError``, or ``ValueError`` when it is too large."""
    try:
        return regularfile.read_bytes(path, limit=_MOST_BYTES)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error


# The servers of a project: ``.mcp.json``, as other programs write it, and ``.pyagentd/mcp.toml``, as we do.
#
# A server is a program that runs as the user, so none of them is started before the user agreed to exactly what the
# files say: to them, to the programs and scripts of the project that their commands name, all by content, and to
# where the project is. When any of that changes, nothing of it is started until the user agrees anew. Data that a
# command names, such as a database, may change.

OURS = ".pyagentd/mcp.toml"  # tables [NAME], as [mcp.NAME] of the configuration
OTHERS = ".mcp.json"  # {"mcpServers": {NAME: …}}

_PROGRAMS = re.compile(
    r"\.(pyw?|pyz|[cm]?[jt]s|[jt]sx|sh|bash|zsh|fish|ksh|rb|p[lm]|php|lua|tcl|r|jl|el|clj|cljs|exs?|erl|go|rs|java|jar|class|"
    r"kts|groovy|scala|swift|csx?|fsx|dll|so|dylib|exe|bat|cmd|ps1|wasm|awk|sed|mk)",
    re.IGNORECASE,
)
_INTERPRETER = re.compile(
    r"(python|pypy|node|nodejs|deno|bun|ruby|perl|php|lua|luajit|bash|sh|dash|zsh|ksh|fish|tclsh|Rscript|julia|java|"
    r"groovy|tsx|ts-node|pwsh|emacs|guile|osascript|awk|make)[0-9.]*"
)
_NO_SCRIPT = frozenset(("-m", "-c", "-e", "-p", "--eval", "--print"))  # what follows is no file


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
        scripts: dict[Path, bytes] = {}
        for each in list(servers.values()):
            try:
                scripts |= server_scripts(root, [each])
            except (OSError, ValueError) as error:
                problems.append(f"{each.source}: the MCP server {each.name}: {error}")
                del servers[each.name]
    except (OSError, ValueError, ConfigError) as error:
        return ProjectServers(root=root, hash="", error=str(error))
    if not servers and not problems:
        return None
    hashed = hashlib.sha256(b"mcp\0" + os.fsencode(root.resolve()))
    for path, data in (*texts, *scripts.items()):
        hashed.update(b"\0" + os.fsencode(path) + b"\0" + hashlib.sha256(data).digest())
    return ProjectServers(
        root=root,
        hash=hashed.hexdigest(),
        files=_shown(texts),
        servers=tuple(servers.values()),
        scripts=_shown(list(scripts.items())),
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

    One that cannot be used is added to ``problems`` and in no other's way.
    """
    path: tuple[str, ...] = ()
    if file.name == OTHERS:
        try:
            tables: Any = jsontext.parse(data)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
        text, path = data.decode(errors="replace"), ("mcpServers",)
        source = Source(place=lambda each: f"{file}:{line_in_json(text, each)}", error=ConfigError, lenient=True)
        tables = read(tables, Mapping[str, Any], source).get("mcpServers", {})
    else:
        toml = read_toml(file, data)
        tables, source = toml.data, Source(place=toml.place, error=ConfigError)
    for name, table in read(tables, Mapping[str, Any], source, path).items():
        try:
            # Who trusts a project has read what it runs, not what its servers will say of themselves.
            yield replace(read_server(name, table, source, (*path, name)), of_project=True, trusted=False)
        except ConfigError as error:
            problems.append(str(error))


def _words(server: ServerSettings, root: Path) -> Iterator[str]:
    """Yield what may name a program or a script of the project, also as seen from where the command runs."""
    place = root / at_root(server.cwd, root)
    words = [at_root(each, root) for each in server.command]
    awaited = False  # the script of an interpreter
    for number, word in enumerate(words):
        files = [path for path in (root / Path(word).expanduser(), place / word) if path.is_file()]
        if files and (number == 0 or awaited or any(map(_is_program, files))):
            awaited = False
            yield from map(str, files)
        elif _INTERPRETER.fullmatch(Path(word).name):
            awaited = True
        elif word in _NO_SCRIPT:
            awaited = False


def _is_program(file: Path) -> bool:
    """Return whether a file is run rather than read: by its name, its mode or its first bytes."""
    if not file.suffix or _PROGRAMS.fullmatch(file.suffix) or os.access(file, os.X_OK):
        return True
    try:
        return content(file)[:2] == b"#!"
    except (OSError, ValueError):
        return False


def _shown(files: list[tuple[Path, bytes]]) -> tuple[tuple[Path, str], ...]:
    return tuple((path, data.decode(errors="replace")) for path, data in files)
