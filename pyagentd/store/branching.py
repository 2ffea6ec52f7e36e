"""Making a branch of a session on disk: complete, or not at all (neighbours A.2).

A branch gets the document and the log up to a prompt of its parent, the configuration byte for byte, and copies of
the parent's agents and files. ``session.md`` comes last, since a directory without it is no branch, and the link
``current`` is moved when everything is there.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pyagentd import regularfile
from pyagentd.clock import Clock, iso8601, stamp
from pyagentd.errors import BadRequest, Busy, NotFound, StoreError
from pyagentd.log import of_session
from pyagentd.store import atomic, document, lineage, metadata, paths
from pyagentd.store.branchpoints import Before, BranchPoint, Outline, cut, kinds, outline
from pyagentd.store.copies import copy_settled
from pyagentd.store.journal import Journal, read_rows
from pyagentd.store.paths import BranchRef
from pyagentd.store.sessions import built

DEFAULT_NAME = "branch"

_CONFIGURATION = (paths.SCOPE_PLAN_FILE, paths.PRESET_FILE)
_NAME_BYTES = 200  # with time and suffix below what a file system allows
_UNFIT = ("Cc", "Cs", "Zl", "Zp")  # NUL, escapes for terminals, halves of surrogate pairs, line ends

_log = logging.getLogger(__name__)


def read_outline(branch: BranchRef) -> Outline:
    """Return where in the saved document of ``branch`` another branch can begin.

    Raises:
        StoreError: The disk refused.
    """
    # The document first: what is in it is in the log, which is written before it.
    saved = document.read(paths.session_file(branch.branch_dir))
    return outline(saved, read_rows(paths.journal_file(branch.branch_dir)))


def choose(found: Outline, *, message_id: str | None = None, offset: int | None = None) -> BranchPoint:
    """Return the prompt that is meant: by its message, by an offset inside it, or else the last.

    Raises:
        NotFound: There is no such prompt, or none at all.
    """
    if not found.points:
        raise NotFound("There is no prompt to branch at", mend="Write and send one first")
    if message_id is not None:
        chosen = [point for point in found.points if point.message_id == message_id]
    elif offset is not None:
        chosen = [point for point in found.points if point.reach[0] <= offset <= point.reach[1]]
        chosen.sort(key=lambda point: not point.start <= offset <= point.end)
    else:
        chosen = [found.points[-1]]
    if chosen:
        return chosen[0]
    if message_id is not None:
        what = "is no prompt of the user" if message_id in found.conversation.messages else "is not in this branch"
        raise NotFound(f"Message {message_id} {what}", mend="Only prompts that stand in the document can be chosen")
    raise NotFound(f"There is no prompt at position {(offset or 0) + 1}", mend="Put point into a prompt of yours")


def create_branch(
    parent: BranchRef,
    *,
    message_id: str | None = None,
    offset: int | None = None,
    include: bool = True,
    name: str = DEFAULT_NAME,
    missing_run: str | None = None,
    clock: Clock,
) -> BranchRef:
    """Make a branch of ``parent`` that begins at one of its prompts, and make it the active one.

    Args:
        parent: A branch of a session; what is in its files counts.
        message_id: The prompt, by its recorded message.
        offset: Or by an offset (code points from 0) inside it; with neither it is the last prompt.
        include: Whether the branch keeps the prompt itself.
        name: Becomes, as it is, the end of the branch's name ``<YYYYMMDDHHMMSS>-<name>``.
        missing_run: The id of a run whose text has not reached the document, for want of somebody's saving it.
        clock: For the name and the metadata.

    Raises:
        BadRequest: ``name`` cannot be part of a file name, or ``parent`` is an agent.
        NotFound: There is no such prompt, or the parent lacks ``scope-plan.yml`` or ``preset.md``.
        Busy: A run of the parent that would be copied has not ended, or is missing from the document.
        StoreError: The disk refused. As with all errors, nothing was made.
    """
    if parent.is_agent:
        raise BadRequest(f"{parent.session_id} is an agent, which has no branches", mend="Branch its session")
    now = clock.now()
    wanted = f"{stamp(now)}-{checked_name(name)}"
    configuration = _configuration(parent)
    found = read_outline(parent)
    point = choose(found, message_id=message_id, offset=offset)
    before = Before(found, point, include=include)
    _require_ended(parent, before, missing_run)
    end = point.cut(include=include)
    about = of_session(parent.session_dir)
    try:
        with built(paths.branches_dir(parent.session_dir), wanted) as (draft, place):
            _log.info("Creating branch: %s from parent: %s", place.name, parent.branch_name, extra=about)
            _log.info("Created branch directory: %s", place, extra=about)
            _fill(draft, parent, configuration, before)
            metadata.write_branch_metadata(
                draft, parent_branch=parent.branch_name, created=iso8601(now), position=end + 1
            )
            _write_document(draft, found, end, about)
        try:
            point_current(parent.session_dir, place.name)
        except BaseException:
            atomic.discard(place)
            raise
    except StoreError as error:
        _log.error("Failed to create branch %s: %s", wanted, error, extra=about)
        raise
    _log.info("Branch created successfully: %s", place.name, extra=about)
    return BranchRef(
        session_id=parent.session_id, session_dir=parent.session_dir, branch_name=place.name, branch_dir=place
    )


def switch(branch: BranchRef) -> None:
    """Make ``branch`` the active one of its session.

    Raises:
        BadRequest: It is an agent.
        StoreError: The disk refused; the active branch is the same as before.
    """
    if branch.is_agent:
        raise BadRequest(f"{branch.session_id} is an agent, which has no branches", mend="Name a branch of a session")
    point_current(branch.session_dir, branch.branch_name)


def point_current(session_dir: Path, branch_name: str) -> None:
    """Point the link ``current`` at a branch, relatively (SPEC 001 Current branch symlink).

    Raises:
        StoreError: The disk refused; the link is what it was.
    """
    link = paths.current_link(session_dir)
    old = str(link.readlink()) if link.is_symlink() else None
    target = f"{paths.BRANCHES_DIR}/{branch_name}"
    try:
        atomic.replace_link(link, target)
    except StoreError:
        if old is not None and link.is_symlink() and str(link.readlink()) != old:  # moved, but not synced
            with suppress(StoreError):
                atomic.replace_link(link, old)
        raise
    _log.debug("Updated current symlink: %s", branch_name, extra=of_session(session_dir))


def checked_name(name: str) -> str:
    """Return ``name`` if it can end the name of a branch, as it is.

    Raises:
        BadRequest: It cannot.
    """
    problem = _problem(name)
    if problem:
        raise BadRequest(f"{name[:40]!r} cannot name a branch: it {problem}", mend="Take a short plain name")
    return name


def _problem(name: str) -> str:
    if not name.strip():
        return "is empty"
    if name.startswith("."):
        return "begins with a dot"
    if "/" in name:
        return "has a slash"
    if any(unicodedata.category(char) in _UNFIT for char in name):
        return "has a character that cannot be printed"
    return "is too long" if len(name.encode()) > _NAME_BYTES else ""


def _require_ended(parent: BranchRef, before: Before, missing_run: str | None) -> None:
    if before.open_run() is not None:
        raise Busy(
            f"{parent.name} is answering a prompt before that point", mend="Wait for the answer, or abort it first"
        )
    if missing_run is not None and before.keeps_run(missing_run):
        raise Busy(f"The editor of {parent.name} has not saved the last answer", mend="Save it there, then branch")


def _configuration(parent: BranchRef) -> Mapping[str, bytes]:
    """Return the content of the files that a branch inherits as they are."""
    content: dict[str, bytes] = {}
    for name in _CONFIGURATION:
        file = parent.branch_dir / name
        try:
            content[name] = regularfile.read_bytes(file)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(f"cannot read {file}: {error.strerror}") from error
    missing = [name for name in _CONFIGURATION if name not in content]
    if missing:
        listed = " and ".join(missing)
        _log.error("Cannot branch %s: missing %s", parent.branch_dir, listed, extra=of_session(parent.session_dir))
        raise NotFound(f"{parent.branch_dir} has no {listed}", mend="Copy it there from another branch, then go on")
    return content


def _fill(place: Path, parent: BranchRef, configuration: Mapping[str, bytes], before: Before) -> None:
    """Put everything but the document into the branch."""
    for name, content in configuration.items():
        atomic.write_bytes(place / name, content)
    _write_log(paths.journal_file(place), before)
    files = paths.files_dir(parent.branch_dir)
    if files.is_dir() and not files.is_symlink():
        atomic.copy_tree(files, paths.files_dir(place))
    _copy_agents(parent, place)


def _write_log(file: Path, before: Before) -> None:
    journal = Journal.open(file)
    try:
        journal.append_many(before.facts())
        journal.sync()
    finally:
        journal.close()


def _copy_agents(parent: BranchRef, place: Path) -> None:
    about = of_session(parent.session_dir)
    agents = lineage.agents(parent)
    if agents:
        atomic.make_dirs(paths.agents_dir(place))
    for agent in agents:
        copy_settled(agent, paths.agents_dir(place) / agent.name)
        _log.debug("Copied agent directory: %s", agent.name, extra=about)
    _log.info("Copied %d agent directories to branch", len(agents), extra=about)


def _write_document(place: Path, found: Outline, end: int, about: Mapping[str, Path | None]) -> None:
    kept = cut(found.document, end)
    atomic.write_bytes(paths.session_file(place), document.format_file(kept).encode("utf-8", "surrogateescape"))
    _log.info(
        "Copied truncated context: %d -> %d chars, bounds: %d types",
        len(found.document.body),
        end + 1,
        kinds(kept.spans),
        extra=about,
    )
