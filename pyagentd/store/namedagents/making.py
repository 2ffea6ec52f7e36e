"""Making the directory of a named agent: complete, or not at all (SPEC 003 Creation Flow 2 to 4).

It is made under a hidden name and gets its own when it is complete, so neither a scan nor another creation ever
finds half of one. The directory of an agent that was destroyed and kept its files is taken up again (DD-17): what is
in it stays, what is missing is added.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyagentd import regularfile
from pyagentd.clock import Clock, iso8601
from pyagentd.errors import Conflict, PresetError
from pyagentd.store import atomic, paths, sessions
from pyagentd.store.namedagents import agentfile, layout
from pyagentd.store.paths import BranchRef

Prepare = Callable[[Path], None]
"""Makes of a directory with files a repository with a first commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What an agent is made of."""

    template: Path  # a directory with agent.json, docs/ and workspace/
    values: Mapping[str, Any]  # keys of agent.json that are given; others are the template's
    preset_name: str
    preset_text: str  # becomes preset.md, with rights for the workspace


def shipped_template() -> Path:
    """Return the template that comes with the package, installed or in a checkout."""
    package = Path(__file__).resolve().parents[2]
    installed = package / "template"
    return installed if installed.is_dir() else package.parent / "template"


def make(root: Path, name: str, material: Material, *, prepare: Prepare, clock: Clock) -> BranchRef:
    """Make the directory of the agent ``name`` and return its branch.

    Args:
        root: The agents root; made when missing.
        name: Checked by the caller.
        material: What it is made of.
        prepare: Called with the new workspace.
        clock: For when it was made.

    Raises:
        Conflict: Something has the directory's name.
        PresetError: The template's agent.json, or the preset, is malformed.
        StoreError: The disk refused. Nothing is left behind in any case.
    """
    atomic.make_dirs(root)
    place, draft = root / name, root / f".{name}.{secrets.token_hex(8)}"
    try:
        _session(draft, place, name, material, clock)
        _fill(draft, material.template)
        values = {**agentfile.read(draft).values, **material.values, "name": name, "created_at": iso8601(clock.now())}
        agentfile.write(draft, values)
        prepare(layout.workspace_dir(draft))
        if place.exists() or place.is_symlink():
            raise Conflict(f"{place} exists already", mend="Take another name, or move that away")
        atomic.move(draft, place)
    except BaseException:
        atomic.discard(draft)
        raise
    return paths.ref_of(place)


def adopt(root: Path, name: str, material: Material, *, prepare: Prepare, clock: Clock) -> BranchRef:
    """Take up the directory that an agent ``name`` left; given values are merged into its ``agent.json``.

    Its conversation, documents, saved contexts and workspace stay as they are. Raises as ``make``; what was there
    before is never removed.
    """
    place = root.resolve() / name
    before = agentfile.read(place)  # what cannot be read is not taken up
    for key, value in before.values.items():
        if key == "name" and value not in (name, "", None):
            raise PresetError(
                f"{before.path} is of the agent {value!r}", mend=f"Call that agent {value!r}, or move it"
            )
    _fill(place, material.template)
    if not paths.is_session_dir(place):
        draft = place.with_name(f".{name}.{secrets.token_hex(8)}")
        try:
            _session(draft, place, name, material, clock)
            atomic.move(paths.branches_dir(draft), paths.branches_dir(place))
        finally:
            atomic.discard(draft)
    if not paths.current_link(place).is_symlink():
        atomic.replace_link(paths.current_link(place), f"{paths.BRANCHES_DIR}/{paths.MAIN_BRANCH}")
    if not (layout.workspace_dir(place) / ".git").exists():
        prepare(layout.workspace_dir(place))
    created = before.created_at or iso8601(clock.now())
    agentfile.change(place, {**material.values, "name": name, "created_at": created})
    return paths.ref_of(place)


def _session(draft: Path, place: Path, name: str, material: Material, clock: Clock) -> None:
    """Make the session in ``draft``, with rights in the workspace that ``place`` will have."""
    workspace = layout.workspace_dir(place.parent.resolve() / place.name)
    sessions.create_session(
        draft.parent,
        name,
        preset_name=material.preset_name,
        preset_text=material.preset_text,
        paths_read=[f"{workspace}/**", f"{layout.docs_dir(workspace.parent)}/**"],
        paths_write=[f"{workspace}/**"],
        clock=clock,
        session_dir=draft,
        session_id=name,
    )


def _fill(directory: Path, template: Path) -> None:
    """Copy what ``template`` has and ``directory`` lacks, and make the directories that every agent has."""
    for entry in sorted(template.iterdir()):
        target = directory / entry.name
        if target.exists() or target.is_symlink():
            continue
        if entry.is_dir() and not entry.is_symlink():
            atomic.copy_tree(entry, target)
        elif entry.is_file() and not entry.is_symlink():
            atomic.write_bytes(target, regularfile.read_bytes(entry, limit=regularfile.DOCUMENT))
    for made in (layout.docs_dir, layout.saved_dir, layout.workspace_dir):
        atomic.make_dirs(made(directory))
