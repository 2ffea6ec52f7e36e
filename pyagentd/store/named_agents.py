"""``agent.json``: the file of a named agent, its keys and their checks.

It owns name, channel, model, system prompt, permissions and creation time; ``running_tasks`` is written for people
and never read. A change keeps all other keys, known or not, and their order. People edit the file by hand, so errors
name file and line.
"""

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyagentd import reader, regularfile
from pyagentd.clock import Clock, iso8601
from pyagentd.errors import BadRequest, Conflict, NotFound, PresetError, StoreError
from pyagentd.store import atomic, paths, sessions
from pyagentd.store.paths import BranchRef

# The directory of a named agent, beside a session's ``branches/`` and ``current``.
#
# ::
#
#     <agents root>/<name>/
#         agent.json          its configuration
#         docs/               what it always knows
#         sessions/           conversations that were saved
#         workspace/          a git repository, where it works

AGENT_FILE = "agent.json"
DOCS_DIR = "docs"
SAVED_DIR = "sessions"

DECISIVE = (AGENT_FILE, f"{DOCS_DIR}/**", f"{SAVED_DIR}/**", f"{paths.BRANCHES_DIR}/**", paths.CURRENT_LINK)
"""The files of an agent's directory that determine its rights and knowledge: all but its workspace."""


agent_file = paths.place_in(AGENT_FILE)  # of the agent that lives in a directory
docs_dir = paths.place_in(DOCS_DIR)
saved_dir = paths.place_in(SAVED_DIR)
workspace_dir = paths.place_in("workspace")


def named_dir(root: Path, ref: BranchRef) -> Path | None:
    """Return the directory of the named agent with the branch ``ref``; None for other sessions and sub-agents.

    Args:
        root: The agents root, resolved.
        ref: The branch; on disk only the existence of ``agent.json`` is checked.
    """
    if ref.is_agent or ref.session_dir.parent != root:
        return None
    return ref.session_dir if agent_file(ref.session_dir).is_file() else None


def is_below(root: Path, session_dir: Path) -> bool:
    """Return whether a session lives directly in the agents root, and so has ``decisive_places``."""
    return session_dir.resolve().parent == root


def decisive_places(root: Path) -> list[Path]:
    """Return patterns of the ``DECISIVE`` files of every agent in ``root``, existing or not."""
    try:
        directories = sorted(entry for entry in root.iterdir() if not entry.is_symlink() and entry.is_dir())
    except OSError:
        return []
    names = (AGENT_FILE, DOCS_DIR, SAVED_DIR, paths.BRANCHES_DIR)
    return [directory / name for directory in directories for name in names]


KEYS = ("name", "channel_id", "model", "system_prompt", "permissions", "created_at", "running_tasks")

_INDENT = 4

_changing = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFile:
    """The values of an ``agent.json``; None for a missing key or null."""

    path: Path
    values: Mapping[str, Any]  # all of it, keys of others too
    text: str = ""

    @property
    def source(self) -> reader.Source:
        """Where its values are, for errors."""
        place = lambda path: f"{self.path}:{reader.line_in_json(self.text, path)}"  # noqa: E731
        return reader.Source(place=place, error=PresetError)

    @property
    def name(self) -> str | None:
        """What the agent is called."""
        return self._text("name")

    @property
    def model(self) -> str | None:
        """Its model; None: that of its preset."""
        return self._text("model")

    @property
    def system_prompt(self) -> str | None:
        """Its system prompt; None: that of its preset."""
        return self._text("system_prompt")

    @property
    def created_at(self) -> str | None:
        """When it was created, in ISO 8601."""
        return self._text("created_at")

    @property
    def permissions(self) -> str | Mapping[str, Any] | None:
        """The name of a profile, or its lists ``allow`` and ``ask``; None: what its preset says."""
        given: str | Mapping[str, Any] | None = self._read("permissions", str | Mapping[str, Any] | None)
        return given or None

    @property
    def channel_id(self) -> str | None:
        """Where people talk with it, when something outside of here knows that."""
        value = self.values.get("channel_id")
        return None if value is None else str(value)

    def _text(self, key: str) -> str | None:
        text: str | None = self._read(key, str | None)
        return text or None

    def _read(self, key: str, wanted: object) -> Any:
        """Return the value of ``key`` as the type ``wanted``; checked when it is asked for, so others can be used."""
        return reader.read(self.values.get(key), wanted, self.source, (key,))


def read(directory: Path) -> AgentFile:
    """Read the ``agent.json`` in ``directory``.

    Raises:
        NotFound: It is missing.
        PresetError: It is not a JSON object; names file and line.
        StoreError: The disk refused.
    """
    path = agent_file(directory)
    try:
        data = regularfile.read_bytes(path)
    except FileNotFoundError as error:
        raise NotFound(f"{directory} has no {path.name}", hint="It is not a named agent") from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error
    return parse(data, path)


def parse(data: bytes, path: Path) -> AgentFile:
    """Parse ``data``, the content of ``path``; raises ``PresetError`` as ``read``."""
    try:
        values = reader.parse(text := data.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise PresetError(f"{path}:{error.lineno}: {error.msg}", hint="Correct the JSON there") from error
    except UnicodeDecodeError as error:
        raise PresetError(f"{path}:1: this is not JSON in UTF-8", hint="Save the file in UTF-8") from error
    except ValueError as error:
        raise PresetError(f"{path}: {error}", hint="Correct the JSON there") from error
    if not isinstance(values, dict):
        raise PresetError(f"{path}:1: this is not a JSON object", hint='Begin with {"name": …')
    return AgentFile(path=path, values=values, text=text)


def change(directory: Path, values: Mapping[str, Any], *, only_if: Mapping[str, Any] | None = None) -> AgentFile:
    """Set keys of ``agent.json``, keep all others, and return the file before the change.

    Args:
        directory: The agent's directory.
        values: The new values by key.
        only_if: The expected present values by key.

    Raises:
        NotFound, PresetError: As ``read``; the file is untouched.
        Conflict: A present value differs from ``only_if``; the file is unchanged.
        StoreError: The disk failed; the file is unchanged.
    """
    with _changing:
        before = read(directory)
        if other := [key for key, value in (only_if or {}).items() if before.values.get(key) != value]:
            raise Conflict(f"{other[0]} was changed meanwhile", hint="Look at it, then change it again")
        after = {**before.values, **values}
        if after != before.values:
            write(directory, after)
    return before


def write(directory: Path, values: Mapping[str, Any]) -> None:
    """Write a whole ``agent.json``; raises ``StoreError``."""
    atomic.write_configuration(agent_file(directory), json.dumps(values, indent=_INDENT, ensure_ascii=False) + "\n")


# Making the directory of a named agent, completely or not at all.
#
# As with any session, neither a scan nor another creation ever finds an incomplete one. The directory of a destroyed
# agent whose files were kept is used again: existing files stay, missing ones are added.

Prepare = Callable[[Path], None]
"""Turns a directory with files into a git repository with a first commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """The material for a new agent."""

    template: Path  # a directory with agent.json, docs/ and workspace/
    values: Mapping[str, Any]  # keys of agent.json that are given; others are the template's
    preset_name: str
    preset_text: str  # becomes preset.md, with rights for the workspace

    def preset_of(self, place: Path) -> str:
        """Return the preset for the agent in ``place``."""
        inside, docs = f"{workspace_dir(place)}/**", f"{docs_dir(place)}/**"
        return sessions.with_rights(self.preset_text, self.preset_name, read=(inside, docs), write=(inside,))


def make(root: Path, name: str, material: Material, *, prepare: Prepare, clock: Clock) -> BranchRef:
    """Make the directory of the agent ``name`` below ``root``; ``prepare`` is called with its workspace.

    Raises:
        Conflict: The directory's name is taken.
        PresetError: The template's agent.json, or the preset, is malformed.
        StoreError: The disk refused. Nothing is left behind in any case.
    """
    place = root.resolve() / name
    if place.exists() or place.is_symlink():
        raise Conflict(f"{place} exists already", hint="Choose another name, or move that away")

    def complete(_: str, branch_dir: Path) -> None:
        draft = paths.session_dir_of(branch_dir)
        _fill(draft, material.template)
        values = {**read(draft).values, **material.values, "name": name, "created_at": iso8601(clock.now())}
        write(draft, values)
        prepare(workspace_dir(draft))

    return sessions.create_session(
        root,
        name,
        preset_name=material.preset_name,
        preset_text=material.preset_of(place),
        clock=clock,
        session_id=name,
        fill=complete,
    )


def adopt(root: Path, name: str, material: Material, *, prepare: Prepare, clock: Clock) -> BranchRef:
    """Use the directory of a destroyed agent ``name`` again; given values are merged into its ``agent.json``.

    Its conversation, documents, saved contexts and workspace are unchanged. Raises as ``make``; existing files are
    never removed.
    """
    place = root.resolve() / name
    before = read(place)  # what cannot be read is not taken up
    if (owner := before.values.get("name")) not in (name, "", None):
        raise PresetError(f"{before.path} is of the agent {owner!r}", hint=f"Call that agent {owner!r}, or move it")
    _fill(place, material.template)
    created = before.created_at or iso8601(clock.now())
    if not paths.is_session_dir(place):
        with sessions.build_directory(place, paths.BRANCHES_DIR, exactly=True) as (draft, _):
            main = draft / paths.MAIN_BRANCH
            atomic.make_dirs(main)
            text, preset = material.preset_of(place), material.preset_name
            sessions.fill_timeline(main, text, session_id=name, preset=preset, created=created)
            atomic.sync_tree(draft)
    if not paths.current_link(place).is_symlink():
        atomic.replace_link(paths.current_link(place), f"{paths.BRANCHES_DIR}/{paths.MAIN_BRANCH}")
    if not (workspace_dir(place) / ".git").exists():
        prepare(workspace_dir(place))
    change(place, {**material.values, "name": name, "created_at": created})
    return paths.ref_of(place)


def _fill(directory: Path, template: Path) -> None:
    """Copy the files of ``template`` that ``directory`` lacks, and make the directories that every agent has."""
    for entry in sorted(template.iterdir()):
        target = directory / entry.name
        if target.exists() or target.is_symlink():
            continue
        if entry.is_dir() and not entry.is_symlink():
            with sessions.build_directory(directory, entry.name, exactly=True) as (draft, _):
                atomic.copy_tree(entry, draft)
        elif entry.is_file() and not entry.is_symlink():
            atomic.write_bytes(target, regularfile.read_bytes(entry, limit=regularfile.DOCUMENT))
    for made in (docs_dir, saved_dir, workspace_dir):
        atomic.make_dirs(made(directory))


# Names of named agents: a name is also a directory and the id of a session.

LONGEST = 64

_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_-]{{0,{LONGEST - 1}}}")


def is_name(text: str) -> bool:
    """Return whether ``text`` is a valid name for an agent."""
    return _NAME.fullmatch(text) is not None


def validate_name(text: str) -> str:
    """Return ``text``; raises ``BadRequest`` if it is no valid name for an agent."""
    if not is_name(text):
        raise BadRequest(
            f"{text[:80]!r} is not a name of an agent",
            hint=f"Use up to {LONGEST} letters A-Z a-z, digits, hyphens and underscores, no hyphen first",
        )
    return text
