"""Session directories: creating, naming, restoring and trashing them."""

import functools
import hashlib
import itertools
import logging
import os
import re
import secrets
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyagentd.clock import Clock, epoch_ms, iso8601, stamp
from pyagentd.errors import BadRequest, NotFound, StoreError
from pyagentd.log import of_session
from pyagentd.store import atomic, metadata, paths, presetfile
from pyagentd.store.journal import Journal, session_row
from pyagentd.store.paths import BranchRef

_log = logging.getLogger(__name__)

_HINT = "Make the trash usable (its place is ~/.local/share/Trash), or remove the directory yourself"


def move_to_trash(directory: Path) -> None:
    """Move ``directory`` with all that is in it to the system's trash, from where the user can restore it.

    Raises:
        NotFound: It is not there.
        StoreError: There is no trash for this disk, or it refuses; the directory is where it was.
    """
    # Loaded when it is needed: where the desktop's library is installed it takes longer than the rest of us.
    from send2trash import send2trash

    if not directory.is_dir():
        raise NotFound(f"{directory} is gone already")
    try:
        send2trash(str(directory))
    except OSError as error:
        why = error.strerror or str(error)
        raise StoreError(f"{directory} cannot be moved to the trash: {why}", hint=_HINT) from error
    if directory.exists():
        raise StoreError(f"{directory} cannot be moved to the trash: it is still there", hint=_HINT)
    _log.info("Moved to the trash: %s", directory)


def has_trash(directory: Path) -> bool:
    """Return whether what is in ``directory`` can be moved to a trash: to the user's own, or one of its disk."""
    if sys.platform == "darwin":
        return True
    home = Path("~").expanduser()
    place = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share") / "Trash"
    try:
        if directory.lstat().st_dev != home.lstat().st_dev:
            top = next(each for each in (directory, *directory.parents) if each.is_mount())
            place = top / f".Trash-{os.getuid()}"
        there = next(each for each in (place, *place.parents) if each.exists())
    except OSError:
        return False
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def delete(directory: Path) -> None:
    """Remove ``directory`` for good: all of it, or, as far as anybody can see by its name, nothing.

    Raises:
        StoreError: The disk refused; the directory is where it was.
    """
    draft = directory.with_name(f".{directory.name}.{secrets.token_hex(8)}")
    atomic.move(directory, draft)
    discard(draft)


def discard(directory: Path) -> None:
    """Remove as much of ``directory`` as can be, what is read-only too."""
    for place, _, _ in os.walk(directory):
        try:
            Path(place).chmod(stat.S_IRWXU)
        except OSError as error:
            _log.warning("%s could not be removed: %s", place, error)
    atomic.discard(directory)


# Making sessions and agents on disk: complete, or not at all.
#
# What is made is filled under a hidden name, which only one can have, and gets its own in one step: whatever dies
# half-way leaves nothing that a scan would find, and the next daemon removes it. Whether something *should* be made
# (the parent is a session, the preset loads, the depth is allowed) is the caller's to know beforehand.

_ID = re.compile(r"[\w][\w.@+-]{0,199}")  # one segment of a path, and one word of `ID/BRANCH`

DRAFT = ".new-"  # begins the name of what is being made; whoever lists directories passes over it
_claiming = threading.Lock()


def create_session(
    root: Path,
    name: str,
    *,
    preset_name: str,
    preset_text: str,
    clock: Clock,
    session_dir: Path | None = None,
    session_id: str | None = None,
    activity_org_file: str | None = None,
    fill: Callable[[str, Path], object] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> BranchRef:
    """Make a session with one empty branch, "main".

    Args:
        root: The sessions root; made when missing.
        name: What the user calls it; the id is derived from it.
        preset_name: Recorded in the metadata.
        preset_text: Becomes ``preset.md``.
        clock: For the id and the metadata.
        session_dir: Where the session is to live instead of ``<root>/<id>``; absent or empty.
        session_id: Its id, made by somebody else (activities); the directory may have another name.
        activity_org_file: The document of the activity it belongs to, for the metadata.
        fill: Called with the session's id and the branch's directory before anybody can see them.
        facts: What the log says of the session from the start, such as ``workspace_root``; None records nothing.

    Raises:
        BadRequest: The directory is in use, or ``session_id`` cannot be the id of a session there.
        StoreError: The disk refused; nothing is left behind.
    """
    now = clock.now()
    home, wanted, is_given = _place_of(root, session_dir, session_id, paths.session_id(name, stamp(now)))
    with build_directory(home, wanted, exactly=is_given) as (draft, place):
        if session_id is None:  # of a directory that somebody else named, the one that was made
            own = session_dir is None or paths.is_dated(place.name)
            session_id = place.name if own else paths.session_id(name, stamp(now))
        branch_dir = paths.branch_dir(draft, paths.MAIN_BRANCH)
        atomic.make_dirs(branch_dir)
        atomic.replace_link(paths.current_link(draft), f"{paths.BRANCHES_DIR}/{paths.MAIN_BRANCH}")
        fill_timeline(
            branch_dir,
            preset_text,
            session_id=session_id,
            preset=preset_name,
            created=iso8601(now),
            activity_org_file=activity_org_file,
        )
        if fill is not None:
            fill(session_id, branch_dir)
        if facts is not None:
            _record(branch_dir, session_row(id=session_id, now_ms=epoch_ms(now), **facts))
        atomic.sync_tree(draft)
    _log.info("Created session directory: %s", place, extra=of_session(place))
    return paths.ref_of(place)


def fill_timeline(directory: Path, preset_text: str, **facts: Any) -> None:
    """Put what every branch and agent has into ``directory``; the caller syncs it.

    ``facts`` are those of ``metadata.write_scope_plan``.
    """
    atomic.write_text(paths.preset_file(directory), preset_text, fsync=False)
    metadata.write_scope_plan(directory, **facts)
    atomic.write_text(paths.session_file(directory), "", fsync=False)


def create_agent(
    parent: BranchRef,
    *,
    preset_name: str,
    preset_text: str,
    description: str,
    read: Sequence[str],
    deny: Sequence[str] = (),
    clock: Clock,
    facts: Mapping[str, Any] | None = None,
) -> BranchRef:
    """Make an agent under the branch ``parent``.

    Args:
        parent: The branch or agent that spawns it.
        preset_name: Recorded in the metadata; begins the id.
        preset_text: Becomes ``preset.md``, with its ``paths`` set.
        description: What the agent is for; ends the id.
        read: Becomes the preset's ``paths.read``.
        deny: Patterns to deny beside the standard four and the preset's own.
        clock: For the id and the metadata.
        facts: What its log says of it from the start, beside its parent; None records nothing.

    Raises:
        PresetError: The preset is malformed.
        StoreError: The disk refused; nothing is left behind.
    """
    now = clock.now()
    text = _agent_preset(preset_text, preset_name, tuple(read), tuple(deny))
    home = paths.agents_dir(parent.branch_dir)
    with build_directory(home, paths.agent_id(preset_name, stamp(now), description)) as (draft, place):
        fill_timeline(
            draft,
            text,
            session_id=place.name,
            preset=preset_name,
            created=iso8601(now),
            parent_session_id=parent.session_id,
        )
        if facts is not None:
            above = {"parent_id": parent.session_id, "parent_branch": parent.branch_name}
            _record(draft, session_row(id=place.name, now_ms=epoch_ms(now), **above, **facts))
        atomic.sync_tree(draft)
    _log.info("Created agent directory: %s", place, extra=of_session(place))
    return paths.agent_ref(place)


def _record(branch_dir: Path, session: Mapping[str, Any]) -> None:
    """Append the row of a session to the log of a branch that nobody can see yet; the caller syncs it."""
    journal = Journal.open(paths.journal_file(branch_dir))
    try:
        journal.append("session", session)
    finally:
        journal.close()


@functools.lru_cache(maxsize=64)
def _agent_preset(text: str, name: str, read: tuple[str, ...], deny: tuple[str, ...]) -> str:
    template = presetfile.parse(text, Path(f"{name}.md"))
    return presetfile.with_paths(template, read=read, deny=deny)


@functools.lru_cache(maxsize=64)
def with_rights(text: str, name: str, *, read: tuple[str, ...], write: tuple[str, ...]) -> str:
    """Return the text of a preset with these patterns added to its ``paths``; raises ``PresetError``."""
    template = presetfile.parse(text, Path(f"{name}.md"))
    own_read = template.patterns("read") or ()
    return presetfile.with_paths(template, read=(*own_read, *read), write_default=(), also_write=write)


def _place_of(root: Path, session_dir: Path | None, given: str | None, made: str) -> tuple[Path, str, bool]:
    """Return where a session is to be, its directory's name there, and whether it may have no other name."""
    if given is not None and not _ID.fullmatch(given):
        raise BadRequest(f"{given[:80]!r} is not a session id", hint="Use letters, digits, dots, dashes; no slash")
    if session_dir is None:
        return root, given or made, given is not None
    if paths.is_dated(session_dir.name) and given is not None and given != session_dir.name:
        raise BadRequest(
            f"The directory {session_dir.name} has the form of an id, which {given} is not",
            hint="Give the directory the session's id, or a name without a date",
        )
    return session_dir.parent, session_dir.name, True


@contextmanager
def build_directory(home: Path, wanted: str, *, exactly: bool = False) -> Iterator[tuple[Path, Path]]:
    """Have a directory made in one step: under a hidden name until the block ends, absent if it fails.

    Args:
        home: Where it is to be; made when missing.
        wanted: Its name, with ``-2``, ``-3``… behind it where that is taken.
        exactly: It may have no other name.

    Yields:
        The directory to fill, and the one that it becomes.

    Raises:
        BadRequest: The name is taken, and ``exactly`` was said.
        StoreError: The disk refused.
    """
    draft, place = _reserve(home, wanted, exactly=exactly)
    try:
        yield draft, place
        with suppress(OSError):  # an empty directory may have been there; a full one is refused
            place.rmdir()
        atomic.move(draft, place)
    except BaseException:
        atomic.discard(draft if draft.exists() else place)
        if home.name == paths.AGENTS_DIR:
            with suppress(OSError):  # it holds other agents
                home.rmdir()
        raise


def _reserve(home: Path, wanted: str, *, exactly: bool) -> tuple[Path, Path]:
    while True:
        atomic.make_dirs(home)
        resolved = home.resolve()
        try:
            for number in itertools.count(1):
                place = resolved / (wanted if number == 1 else f"{wanted}-{number}")
                draft = draft_of(place)
                if _is_free(place, empty=exactly) and _claim_draft(draft):
                    if _is_free(place, empty=exactly):
                        return draft, place
                    atomic.discard(draft)  # somebody else was done in between
                elif exactly:
                    raise BadRequest(f"{place} is in use", hint="Name a directory that is absent or empty")
        except StoreError:
            if home.is_dir():
                raise  # else another agent that could not be made took the empty directory away


def draft_of(place: Path) -> Path:
    """Return where the directory ``place`` is made."""
    return place.with_name(f"{DRAFT}{hashlib.sha256(os.fsencode(place.name)).hexdigest()[:24]}")


def _claim_draft(draft: Path) -> bool:
    with _claiming:  # of two threads one takes it away
        with suppress(OSError):
            if atomic.is_abandoned(draft.lstat().st_ctime):  # outside of the root nobody sweeps
                atomic.discard(draft)
        return atomic.make_dir_exclusive(draft)


def _is_free(place: Path, *, empty: bool) -> bool:
    if not os.path.lexists(place):
        return True
    return empty and not place.is_symlink() and place.is_dir() and not any(place.iterdir())


def sweep_drafts(root: Path) -> None:
    """Remove what a killed daemon was making below the sessions root; what cannot be removed stays."""
    for session in _subdirectories(root):
        for branch in _subdirectories(paths.branches_dir(session)):
            _sweep_agents(branch)


def _sweep_agents(place: Path) -> None:
    for agent in _subdirectories(paths.agents_dir(place)):
        _sweep_agents(agent)


def _subdirectories(home: Path) -> list[Path]:
    """Return the directories in ``home``, from which drafts that nobody writes any more are removed."""
    found = []
    with suppress(OSError), os.scandir(home) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                continue
            if not entry.name.startswith(DRAFT):
                found.append(Path(entry.path))
            elif atomic.is_abandoned(entry.stat(follow_symlinks=False).st_ctime):
                _log.info("Removing %s, which was only partly made", entry.path)
                atomic.discard(Path(entry.path))
    return found
