"""The paths of a session's files, and the branch that a path refers to.

::

    <root>/<session-id>/                    a session
        current -> branches/<branch>        relative link to the active branch
        branches/<branch>/                  a branch
            session.md  messages.jsonl  preset.md  scope-plan.yml  branch-metadata.yml
            tools.org  system-prompts.org  requests.jsonl  files/
            agents/<agent-id>/              an agent: files as in a branch, its own agents/, no branches/

No other module spells a file name. Functions ending in ``_file``, ``_dir`` or ``_link`` only compute; ``ref_of``
and ``parent_of`` look at the disk.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from anyascii import anyascii

from pyagentd import regularfile
from pyagentd.errors import NotASession
from pyagentd.store import yamlfile

SESSION_FILE = "session.md"
JOURNAL_FILE = "messages.jsonl"
PRESET_FILE = "preset.md"
SCOPE_PLAN_FILE = "scope-plan.yml"
BRANCH_METADATA_FILE = "branch-metadata.yml"
TOOLS_LOG_FILE = "tools.org"
PROMPTS_LOG_FILE = "system-prompts.org"
REQUESTS_FILE = "requests.jsonl"
BRANCHES_DIR = "branches"
AGENTS_DIR = "agents"
FILES_DIR = "files"
CURRENT_LINK = "current"
MAIN_BRANCH = "main"

_DATED = re.compile(r"-\d{8,14}(-|$)")
_OTHER = re.compile(r"[^a-z0-9]+")
_SLUG_LENGTH = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRef:
    """One timeline: a branch of a session, or an agent, which has only one."""

    session_id: str
    session_dir: Path  # of an agent: its own directory
    branch_name: str  # of an agent: "main"
    branch_dir: Path  # absolute and resolved
    is_agent: bool = False

    @property
    def key(self) -> str:
        """The branch's name on the wire: its directory."""
        return str(self.branch_dir)

    @property
    def name(self) -> str:
        """``<session-id>/<branch>``, as people write it."""
        return f"{self.session_id}/{self.branch_name}"


def place_in(name: str) -> Callable[[Path], Path]:
    """Return a function from a directory to the path of ``name`` in it."""
    return lambda directory: directory.absolute() / name


branches_dir = place_in(BRANCHES_DIR)  # the branches of a session
current_link = place_in(CURRENT_LINK)  # the link in a session to its active branch
session_file = place_in(SESSION_FILE)  # the conversation as the user sees it
journal_file = place_in(JOURNAL_FILE)  # the log of exact messages
preset_file = place_in(PRESET_FILE)  # the configuration
scope_plan_file = place_in(SCOPE_PLAN_FILE)  # the session's metadata
branch_metadata_file = place_in(BRANCH_METADATA_FILE)  # the branch's lineage, which "main" does not have
tools_log_file = place_in(TOOLS_LOG_FILE)  # the readable log of tool calls
prompts_log_file = place_in(PROMPTS_LOG_FILE)  # the readable log of system prompts
requests_file = place_in(REQUESTS_FILE)  # the trace of requests to the model
old_requests_file = place_in("requests.1.jsonl")  # the trace that was before
agents_dir = place_in(AGENTS_DIR)  # the agents of a branch or agent
files_dir = place_in(FILES_DIR)  # attachments, and tool output too long for the model


def branch_dir(session_dir: Path, branch_name: str) -> Path:
    """Return the directory of one branch."""
    return branches_dir(session_dir) / branch_name


def session_dir_of(branch_dir: Path) -> Path:
    """Return the directory of the session that a branch belongs to; an agent is its own."""
    place = branch_dir.absolute()
    return place.parent.parent if place.parent.name == BRANCHES_DIR else place


def is_session_dir(directory: Path) -> bool:
    """Return whether ``directory`` has the structure of a session."""
    return os.path.isdir(directory / BRANCHES_DIR)  # noqa: PTH112 - Path raises where nobody may look


def has_conversation(place: Path | str) -> bool:
    """Return whether ``directory`` is of a branch or agent; a missing document is made again from the log."""
    # As text, and the log only if there is no document: a scan checks this for every branch.
    return os.path.isfile(f"{place}/{SESSION_FILE}") or os.path.isfile(f"{place}/{JOURNAL_FILE}")  # noqa: PTH113


def ref_of(path: Path) -> BranchRef:
    """Return the branch that ``path`` means.

    Args:
        path: A branch's or an agent's directory, the ``session.md`` in it, or a session's directory (its active
            branch).

    Raises:
        NotASession: ``path`` is none of these.
    """
    try:
        place = real(path.parent if path.name == SESSION_FILE else path)
    except ValueError as error:
        raise NotASession(f"{str(path)!r} is no path", hint="Leave out the zero byte") from error
    return _ref_at(place, path)


def real(path: Path) -> Path:
    """Return ``path`` with links resolved, up to a circle of links, for which `Path.resolve` raises an error.

    Raises:
        ValueError: It holds a zero byte.
    """
    return Path(os.path.realpath(path))


def _ref_at(place: Path, path: Path) -> BranchRef:
    """Return the branch at a resolved place; ``path`` is for the error."""
    if has_conversation(place):
        if place.parent.name == BRANCHES_DIR:
            return _branch_ref(place)
        if place.parent.name == AGENTS_DIR and has_conversation(place.parent.parent):
            return agent_ref(place)
    elif is_session_dir(place):
        return ref_of(_active_branch(place))
    raise NotASession(
        f"{path} is not a session",
        hint=f"A session has {BRANCHES_DIR}/NAME/{SESSION_FILE}; give its directory or file",
    )


def agent_ref(directory: Path) -> BranchRef:
    """Return the agent that lives in ``directory``, which is absolute and resolved."""
    return BranchRef(
        session_id=directory.name,
        session_dir=directory,
        branch_name=MAIN_BRANCH,
        branch_dir=directory,
        is_agent=True,
    )


def parent_of(ref: BranchRef) -> BranchRef | None:
    """Return the branch or agent that an agent was spawned by; None for a branch of a session."""
    place = ref.branch_dir.parent.parent
    return _ref_at(place, place) if ref.is_agent else None


def ancestors_of(ref: BranchRef) -> tuple[BranchRef, ...]:
    """Return the ancestors of ``ref``, its parent first."""
    parent = parent_of(ref)
    return () if parent is None else (parent, *ancestors_of(parent))


def root_of(ref: BranchRef) -> BranchRef:
    """Return the session's branch at the root of the tree of ``ref``."""
    return (ref, *ancestors_of(ref))[-1]


class BranchPlaces(TypedDict):
    """The names and paths of a branch or agent."""

    session_id: str
    branch_name: str
    session_dir: str
    branch_dir: str
    branch: str
    file: str  # session.md


def describe_branch(ref: BranchRef) -> BranchPlaces:
    """Return the names and paths of a branch, as clients get them."""
    return {
        "session_id": ref.session_id,
        "branch_name": ref.branch_name,
        "session_dir": str(ref.session_dir),
        "branch_dir": ref.key,
        "branch": ref.key,
        "file": f"{ref.key}/{SESSION_FILE}",  # as text: lists have many
    }


def _branch_ref(place: Path) -> BranchRef:
    session_dir = place.parent.parent
    return BranchRef(
        session_id=_session_id(session_dir.name, place),
        session_dir=session_dir,
        branch_name=place.name,
        branch_dir=place,
    )


def is_dated(name: str) -> bool:
    """Return whether the directory name ``name`` has the form of an id, a date in it."""
    return _DATED.search(name) is not None


def _session_id(name: str, place: Path) -> str:
    # A directory somebody else named (~/emacs-activities/NAME/session) has its id in the metadata.
    if is_dated(name):
        return name
    try:
        return yamlfile.load_texts(regularfile.read_text(scope_plan_file(place))).get("session_id") or name
    except (OSError, UnicodeDecodeError, yamlfile.Malformed):
        return name


def _active_branch(session_dir: Path) -> Path:
    current = real(current_link(session_dir))
    home = branches_dir(session_dir)
    # A link that leads out of the session is not followed.
    if current.parent == home and has_conversation(current):
        return current
    main = home / MAIN_BRANCH
    if has_conversation(main):
        return main
    raise NotASession(
        f"{session_dir} has no active branch",
        hint=f"Point its link {CURRENT_LINK!r} at {BRANCHES_DIR}/NAME, or name a branch",
    )


# Ids of sessions and agents, which name their directories. Making them unique on disk is the work of ``sessions``: it
# adds ``-2``, ``-3`` when a directory exists.


def slugify(name: str, *, fallback: str = "session") -> str:
    """Return ``name`` as lowercase words joined by single dashes, at most 60 characters."""
    slug = _OTHER.sub("-", anyascii(name).lower()).strip("-")
    return slug[:_SLUG_LENGTH].rstrip("-") or fallback


def session_id(name: str, stamp: str) -> str:
    """Return the id of a new session called ``name``; ``stamp`` is ``clock.stamp(now)``."""
    return f"{slugify(name)}-{stamp}"


def agent_id(preset: str, stamp: str, description: str) -> str:
    """Return the id of a new agent; both model-supplied parts are slugified, so it is one path segment."""
    return f"{slugify(preset, fallback='agent')}-{stamp}-{slugify(description, fallback='task')}"
