"""Which branch of a session comes from which: the tree that ``branch-metadata.yml`` of each branch tells.

Read from disk whenever needed. A branch whose parent is gone or was never told is a root; files edited by hand so
that branches descend from each other in a circle are read as if the first of them had no parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyagentd.errors import NotASession, StoreError
from pyagentd.store import metadata, paths
from pyagentd.store.paths import BranchRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A branch in the tree of its session.

    Attributes:
        ref: The branch.
        parent: The branch it was made from, as recorded, or None; it may be gone.
        created: When it was made, ISO 8601; of "main" when the session was, None if nothing says so.
        position: The Emacs position (from 1) in the parent's document where it begins, or None.
        current: Whether it is the session's active branch.
        depth: How many branches that are there it descends from.
        last: Whether it is the last child of its parent.
    """

    ref: BranchRef
    parent: str | None
    created: str | None
    position: int | None
    current: bool
    depth: int
    last: bool


def branches(session_dir: Path) -> list[BranchRef]:
    """Return the branches of a session, "main" first, the others in the order of their names, which is that of time.

    Raises:
        StoreError: The disk refused.
    """
    places = _directories(paths.branches_dir(session_dir))
    named = sorted(places, key=lambda place: (place.name != paths.MAIN_BRANCH, place.name))
    return [paths.ref_of(place) for place in named if paths.session_file(place).is_file()]


def agents(branch: BranchRef) -> list[Path]:
    """Return the directories of the agents directly under a branch or an agent.

    Raises:
        StoreError: The disk refused.
    """
    return [place for place in _directories(paths.agents_dir(branch.branch_dir)) if place.is_dir()]


def with_agents(branch: BranchRef) -> Iterator[BranchRef]:
    """Yield a branch or agent and all agents below it.

    Raises:
        StoreError: The disk refused.
    """
    yield branch
    for place in agents(branch):
        if paths.session_file(place).is_file():
            yield from with_agents(paths.agent_ref(place))


def active(session_dir: Path) -> str | None:
    """Return the name of a session's active branch; None when it has none."""
    try:
        return paths.ref_of(session_dir).branch_name
    except NotASession:
        return None


def tree(session_dir: Path) -> list[Node]:
    """Return the branches of a session, each after the one it was made from.

    Raises:
        StoreError: The disk refused.
    """
    refs = {ref.branch_name: ref for ref in branches(session_dir)}
    told = {name: metadata.read_branch_metadata(ref.branch_dir) or {} for name, ref in refs.items()}
    parents = {name: None if name == paths.MAIN_BRANCH else told[name].get("parent_branch") for name in refs}
    chosen = active(session_dir)
    return [
        Node(
            ref=refs[name],
            parent=parents[name],
            created=told[name].get("created") or _session_created(refs[name]),
            position=told[name].get("branch_point_position"),
            current=name == chosen,
            depth=depth,
            last=last,
        )
        for name, depth, last in _in_order(parents)
    ]


def lineage(branch: BranchRef) -> tuple[str, ...]:
    """Return the names of the branches that ``branch`` descends from, its parent first.

    A parent that is gone is named, and ends the line.
    """
    line: list[str] = []
    name = branch.branch_name
    while name != paths.MAIN_BRANCH:
        told = metadata.read_branch_metadata(paths.branch_dir(branch.session_dir, name)) or {}
        parent = told.get("parent_branch")
        if not parent or "/" in parent or parent in (*line, branch.branch_name):
            break
        line.append(parent)
        name = parent
    return tuple(line)


def _directories(home: Path) -> list[Path]:
    """Return what is in ``home``, by name, without what is hidden or a link; nothing where there is no ``home``."""
    try:
        return [
            place for place in sorted(home.iterdir()) if not place.name.startswith(".") and not place.is_symlink()
        ]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StoreError(f"cannot read {home}: {error.strerror}") from error


def _in_order(parents: Mapping[str, str | None]) -> Iterator[tuple[str, int, bool]]:
    """Yield name, depth and whether it is the last child, parents before their children."""
    children: dict[str | None, list[str]] = {}
    for name, parent in parents.items():
        children.setdefault(parent if parent in parents else None, []).append(name)
    seen: set[str] = set()
    # At the bottom every branch: what no root leads to descends from itself.
    stack = [*_stacked(parents, 0, single=True), *_stacked(children.get(None, ()), 0)]
    while stack:
        name, depth, last = stack.pop()
        if name not in seen:
            seen.add(name)
            yield name, depth, last
            stack += _stacked([child for child in children.get(name, ()) if child not in seen], depth + 1)


def _stacked(names: Iterable[str], depth: int, *, single: bool = False) -> list[tuple[str, int, bool]]:
    """Return siblings in the order in which a stack gives them back; ``single`` ones are not among each other."""
    listed = list(names)
    return [(name, depth, single or name == listed[-1]) for name in reversed(listed)]


def _session_created(ref: BranchRef) -> str | None:
    return (metadata.read_session_metadata(ref.branch_dir) or {}).get("created")
