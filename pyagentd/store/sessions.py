"""Making sessions and agents on disk: complete, or not at all.

A name is claimed by making its directory, which only one can; ``session.md`` comes last, since a directory without
it is no branch: whatever dies half-way leaves nothing that a scan would find. Whether something *should* be made
(the parent is a session, the preset loads, the depth is allowed) is the caller's to know beforehand.
"""

from __future__ import annotations

import functools
import itertools
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pyagentd import ids
from pyagentd.clock import Clock, iso8601, stamp
from pyagentd.errors import BadRequest, StoreError
from pyagentd.log import of_session
from pyagentd.store import atomic, metadata, paths, presetfile
from pyagentd.store.paths import BranchRef

_ID = re.compile(r"[\w][\w.@+-]{0,199}")  # one segment of a path, and one word of `ID/BRANCH`

_log = logging.getLogger(__name__)


def create_session(
    root: Path,
    name: str,
    *,
    preset_name: str,
    preset_text: str,
    paths_read: Sequence[str] | None = None,
    paths_write: Sequence[str] | None = None,
    clock: Clock,
    session_dir: Path | None = None,
    session_id: str | None = None,
    activity_org_file: str | None = None,
) -> BranchRef:
    """Make a session with one empty branch, "main".

    Args:
        root: The sessions root; made when missing.
        name: What the user calls it; the id is derived from it.
        preset_name: Recorded in the metadata.
        preset_text: Becomes ``preset.md``.
        paths_read: Patterns to add to the preset's ``paths.read``.
        paths_write: Patterns to add to the preset's ``paths.write``; with neither, the preset is copied as it is.
        clock: For the id and the metadata.
        session_dir: Where the session is to live instead of ``<root>/<id>``; absent or empty.
        session_id: Its id, made by somebody else (activities); the directory may have another name (DD-41).
        activity_org_file: The document of the activity it belongs to, for the metadata.

    Raises:
        BadRequest: The directory is in use, or ``session_id`` cannot be the id of a session there.
        PresetError: The preset is malformed.
        StoreError: The disk refused; nothing is left behind.
    """
    now = clock.now()
    text = _session_preset(preset_text, preset_name, paths_read, paths_write)
    place, session_id = _claim_session(root, session_dir, session_id, ids.session_id(name, stamp(now)))
    with complete_or_absent(place):
        branch_dir = paths.branch_dir(place, paths.MAIN_BRANCH)
        atomic.make_dirs(branch_dir)
        atomic.replace_link(paths.current_link(place), f"{paths.BRANCHES_DIR}/{paths.MAIN_BRANCH}")
        atomic.write_text(paths.preset_file(branch_dir), text)
        metadata.write_scope_plan(
            branch_dir,
            session_id=session_id,
            preset=preset_name,
            created=iso8601(now),
            activity_org_file=activity_org_file,
        )
        atomic.write_text(paths.session_file(branch_dir), "")
    _log.info("Created session directory: %s", place, extra=of_session(place))
    return BranchRef(session_id=session_id, session_dir=place, branch_name=paths.MAIN_BRANCH, branch_dir=branch_dir)


def create_agent(
    parent: BranchRef,
    *,
    preset_name: str,
    preset_text: str,
    description: str,
    read: Sequence[str],
    write_default: Sequence[str] = presetfile.DEFAULT_WRITE,
    deny: Sequence[str] = (),
    clock: Clock,
) -> BranchRef:
    """Make an agent under the branch ``parent``.

    Args:
        parent: The branch or agent that spawns it.
        preset_name: Recorded in the metadata; begins the id.
        preset_text: Becomes ``preset.md``, with its ``paths`` set.
        description: What the agent is for; ends the id.
        read: Becomes the preset's ``paths.read``.
        write_default: Becomes ``paths.write`` of a preset that has none.
        deny: Patterns to deny beside the standard four and the preset's own.
        clock: For the id and the metadata.

    Raises:
        PresetError: The preset is malformed.
        StoreError: The disk refused; nothing is left behind.
    """
    now = clock.now()
    text = _agent_preset(preset_text, preset_name, tuple(read), tuple(write_default), tuple(deny))
    place = claim(paths.agents_dir(parent.branch_dir), ids.agent_id(preset_name, stamp(now), description))
    with complete_or_absent(place):
        atomic.write_text(paths.preset_file(place), text)
        metadata.write_scope_plan(
            place,
            session_id=place.name,
            preset=preset_name,
            created=iso8601(now),
            parent_session_id=parent.session_id,
        )
        atomic.write_text(paths.session_file(place), "")
    _log.info("Created agent directory: %s", place, extra=of_session(place))
    return paths.agent_ref(place)


@functools.lru_cache(maxsize=64)
def _agent_preset(
    text: str, name: str, read: tuple[str, ...], write_default: tuple[str, ...], deny: tuple[str, ...]
) -> str:
    template = presetfile.parse(text, Path(f"{name}.md"))
    return presetfile.with_paths(template, read=read, write_default=write_default, deny=deny)


def _session_preset(text: str, name: str, read: Sequence[str] | None, write: Sequence[str] | None) -> str:
    if read is None and write is None:
        return text
    template = presetfile.parse(text, Path(f"{name}.md"))
    own_read = template.patterns("read") or ()
    return presetfile.with_paths(template, read=(*own_read, *(read or ())), write_default=(), also_write=write or ())


def claim(home: Path, wanted: str) -> Path:
    """Make and return ``home/wanted``, or the first of ``-2``, ``-3``… that is free (DD-5)."""
    while True:
        atomic.make_dirs(home)
        place = home.resolve()
        names = itertools.chain([wanted], (f"{wanted}-{number}" for number in itertools.count(2)))
        try:
            return next(place / name for name in names if atomic.make_dir_exclusive(place / name))
        except StoreError:
            if home.is_dir():
                raise  # else another agent that could not be made took the empty directory away


def _claim_session(root: Path, session_dir: Path | None, given: str | None, made: str) -> tuple[Path, str]:
    """Make the directory of a session and return it with the session's id: the given one, or one made for it."""
    if given is not None and not _ID.fullmatch(given):
        raise BadRequest(f"{given[:80]!r} is no session id", mend="Use letters, digits, dots, dashes; no slash")
    if session_dir is None:
        place = claim(root, made) if given is None else _claim_given(root / given)
        return place, place.name
    dated = paths.is_dated(session_dir.name)
    if dated and given is not None and given != session_dir.name:
        raise BadRequest(
            f"The directory {session_dir.name} has the form of an id, which {given} is not",
            mend="Give the directory the session's id, or a name without a date",
        )
    return _claim_given(session_dir), given or (session_dir.name if dated else made)


def _claim_given(session_dir: Path) -> Path:
    atomic.make_dirs(session_dir.parent)
    place = session_dir.parent.resolve() / session_dir.name
    if not atomic.make_dir_exclusive(place) and (not place.is_dir() or any(place.iterdir())):
        raise BadRequest(f"{place} is in use", mend="Name a directory that is absent or empty")
    return place


@contextmanager
def complete_or_absent(place: Path) -> Iterator[None]:
    """Remove the directory ``place`` if the block fails."""
    try:
        yield
    except BaseException:
        atomic.discard(place)
        if place.parent.name == paths.AGENTS_DIR:
            with suppress(OSError):  # it holds other agents
                place.parent.rmdir()
        raise
