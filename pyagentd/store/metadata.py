"""The metadata of a session and of a branch: ``scope-plan.yml`` and ``branch-metadata.yml``, nothing more.

Read from disk whenever needed and never cached (SPEC 001 Filesystem as source of truth). Keys are snake_case as in
the files, values are texts as written. Scope is no business of these files: it lives in ``preset.md``.
"""

from __future__ import annotations

import logging
from pathlib import Path

from pyagentd.store import atomic, paths, yamlfile

VERSION = "3.0"

_log = logging.getLogger(__name__)


def read_session_metadata(branch_dir: Path) -> dict[str, str] | None:
    """Return ``scope-plan.yml`` of a branch or agent; None when it is missing or cannot be parsed.

    Keys are ``version``, ``session_id``, ``created``, ``updated`` (ISO 8601), ``preset`` and, of an agent, ``type``
    and ``parent_session_id``; keys of others are passed on. An older file says ``agent_type`` for ``preset``.
    """
    metadata = _read(paths.scope_plan_file(branch_dir))
    if metadata is not None and "preset" not in metadata and "agent_type" in metadata:
        metadata["preset"] = metadata["agent_type"]
    return metadata


def read_branch_metadata(branch_dir: Path) -> dict[str, str] | None:
    """Return ``branch-metadata.yml``: ``parent_branch``, ``created``, maybe ``branch_point_position``; or None."""
    return _read(paths.branch_metadata_file(branch_dir))


def is_agent_session(branch_dir: Path) -> bool:
    """Return whether the metadata says that this is an agent."""
    metadata = read_session_metadata(branch_dir)
    return metadata is not None and metadata.get("type") == "agent"


def write_scope_plan(
    branch_dir: Path, *, session_id: str, preset: str, created: str, parent_session_id: str | None = None
) -> None:
    """Write the metadata of a new session or agent.

    Args:
        branch_dir: Where to.
        session_id: Its own id.
        preset: Name of the preset its ``preset.md`` was copied from.
        created: When, in ISO 8601.
        parent_session_id: Given for an agent, and only for an agent: the session that spawned it.

    Raises:
        StoreError: The disk refused.
    """
    lineage = {"type": "agent", "parent_session_id": parent_session_id} if parent_session_id is not None else {}
    values = {"version": VERSION, "session_id": session_id, "created": created, "updated": created}
    text = yamlfile.dump_texts({**values, **lineage, "preset": preset})
    atomic.write_text(paths.scope_plan_file(branch_dir), text)


def _read(file: Path) -> dict[str, str] | None:
    try:
        return yamlfile.load_texts(file.read_text("utf-8"))
    except FileNotFoundError:
        _log.debug("No %s in %s", file.name, file.parent)
    except (OSError, UnicodeDecodeError) as error:
        _log.error("Failed to parse %s in %s: %s", file.name, file.parent, error)
    except yamlfile.Malformed as error:
        where = f" (line {error.line})" if error.line else ""
        _log.error("Failed to parse %s in %s: %s%s", file.name, file.parent, error, where)
    return None
