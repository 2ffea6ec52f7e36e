"""An import goes only where the room table allows; a back edge fails here before it becomes a habit."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Set
from pathlib import Path

import pytest

import pyagentd
from pyagentd import llm
from pyagentd.daemon import FEATURES
from pyagentd.runtime.feature import Feature

PACKAGE = Path(pyagentd.__file__).parent
BASE_FILES = {
    "__init__",
    "clock",
    "config",
    "errors",
    "events",
    "installation",
    "log",
    "messages",
    "reader",
    "regularfile",
    "words",
}

# An import goes up this table only (docs/ARCHITECTURE.md, "Rooms").
MAY_IMPORT: dict[str, Set[str]] = {
    "base": set(),
    "wire": {"base"},
    "lisp": {"base"},
    "store": {"base"},
    "policy": {"base"},
    "llm": {"base"},
    "tools": {"base", "policy", "store"},
    "mission": {"base", "lisp", "store", "llm", "tools"},
}
_BELOW = frozenset(MAY_IMPORT)
MAY_IMPORT |= {
    "runtime": _BELOW,
    "features": _BELOW | {"runtime"},
    "api": _BELOW | {"runtime", "features"},
}
# Command line, protocols of other editors and composition root may import everything.
_TOP = ("cli", "acp", "daemon", "__main__")
MAY_IMPORT |= dict.fromkeys(_TOP, frozenset({*MAY_IMPORT, "cli", "acp", "daemon"}))

MODULES = sorted(PACKAGE.rglob("*.py"))


def room_of(parts: tuple[str, ...]) -> str:
    """Return the room of a module given by its path or name below the package."""
    if parts[:2] == ("wire", "sexp"):  # a format, which files have as well as frames
        return "base"
    return "base" if not parts or parts[0] in BASE_FILES else parts[0]


def imported(tree: ast.AST) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield line and name, below the package, of everything of ours that is imported, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import hides where it goes"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            first, *rest = name.split(".")
            if first == "pyagentd":
                # `from pyagentd import __version__` and `door` are names of the package itself.
                parts = () if rest and (rest[0].startswith("__") or rest == ["door"]) else tuple(rest)
                yield node.lineno, parts


def back_edges(source: str, room: str) -> list[str]:
    return [
        f"line {line}: {room} imports {'.'.join(parts)}"
        for line, parts in imported(ast.parse(source))
        if room_of(parts) not in {room, *MAY_IMPORT[room]}
    ]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_what_its_room_may(module):
    room = room_of(module.relative_to(PACKAGE).with_suffix("").parts)
    assert room in MAY_IMPORT, f"{room} is in no room: name it in the table"
    assert back_edges(module.read_text("utf-8"), room) == []


@pytest.mark.parametrize(
    "source",
    [
        "from pyagentd.store.paths import ref_of",
        "from pyagentd import store",
        "import pyagentd.store.paths",
        "def f():\n    from pyagentd.store import paths",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pyagentd.agent import run",
        "from pyagentd.unheard_of import x",
    ],
)
def test_every_form_of_a_back_edge_is_seen(source):
    assert len(back_edges(source, "policy")) == 1


def test_allowed_imports_pass():
    source = "import re\nfrom pyagentd import __version__, clock\nfrom pyagentd.policy.a import b"
    assert back_edges(source, "policy") == []


def test_the_table_has_no_cycle_between_rooms():
    settled: set[str] = set()
    rooms = dict(MAY_IMPORT)
    for room in _TOP:
        rooms.pop(room)
    while rooms:
        ready = {room for room, below in rooms.items() if below <= settled}
        assert ready, f"these import each other: {sorted(rooms)}"
        settled |= ready
        for room in ready:
            rooms.pop(room)


def at_run_time(body: list[ast.stmt]) -> Iterator[tuple[str, ...]]:
    """Yield what a module of ours imports when it is loaded: not what only the type checker sees."""
    for node in body:
        if not (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        ):
            yield from (parts for _, parts in imported(node))


def module_of(parts: tuple[str, ...]) -> Path | None:
    """Return the file of a name below the package: of the module, or of the module that has it."""
    for named in (parts, parts[:-1]):
        for file in (PACKAGE.joinpath(*named).with_suffix(".py"), PACKAGE.joinpath(*named, "__init__.py")):
            if named and file.is_file():
                return file
    return None


IMPORTS = {
    module: {module_of(parts) for parts in at_run_time(ast.parse(module.read_text("utf-8")).body)} - {module}
    for module in MODULES
}


def test_no_two_modules_need_each_other_when_they_are_loaded():
    settled: set[Path] = set()
    while left := IMPORTS.keys() - settled:
        ready = {module for module in left if not IMPORTS[module] & left}
        assert ready, f"these import each other: {sorted(str(each.relative_to(PACKAGE)) for each in left)}"
        settled |= ready


def test_a_feature_is_listed_once_and_the_runtime_names_none():
    assert len(set(FEATURES)) == len(FEATURES)
    defined = {kind for kind in _below(Feature) if kind.__module__.startswith("pyagentd.")}
    assert defined == set(FEATURES)


def _below(kind: type[Feature]) -> set[type[Feature]]:
    return {each for child in kind.__subclasses__() for each in (child, *_below(child))}


def test_imports_of_ours_stand_at_the_top():
    """What is loaded later is behind the door of its room (``pyagentd.door``)."""
    below = {
        f"{module.relative_to(PACKAGE)}:{line}"
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for line, _ in imported(node)
    }
    assert below == set()


HEAVY = ("aiohttp", "anthropic", "click", "httpx", "jsonschema", "mcp", "openai", "pydantic")


def test_the_daemon_loads_at_most_150_modules_of_ours_and_no_sdk():
    """Each takes time at every start, and memory that most daemons never use."""
    source = "import sys, pyagentd.daemon; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True).stdout.split()
    ours = [name for name in loaded if name.split(".")[0] == "pyagentd"]
    assert len(ours) <= 150
    assert not {name.split(".")[0] for name in loaded} & set(HEAVY)


def test_a_command_that_only_asks_the_daemon_loads_what_talks_to_it():
    """What it loads takes time at each `pyagentd status` and each completion of a command's name."""
    source = "import sys, pyagentd.cli.daemon; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True).stdout.split()
    rooms = {".".join(name.split(".")[:2]) for name in loaded if name.startswith("pyagentd.")}
    inside = {name for name in loaded if name.startswith(("pyagentd.config.", "pyagentd.llm.", "pyagentd.store."))}
    assert not inside, "a door loads it for the commands that need it"
    assert not rooms & {"pyagentd.api", "pyagentd.features", "pyagentd.log", "pyagentd.runtime"}
    assert not {"asyncio", "msgspec", "platformdirs", "ruamel"} & set(loaded)


def test_a_door_loads_what_it_names_and_nothing_else():
    assert llm.offline is sys.modules["pyagentd.llm.offline"]
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = llm.nonsense
