"""The metadata of a session and of a branch: ``scope-plan.yml``, ``branch-metadata.yml``, the keys of ``preset.md``.

They are read from disk whenever needed and never cached. Keys are snake_case, values of the two YAML files are texts
as written. For a file that is missing or cannot be parsed the result is None, and the log has the reason. Changing
one value leaves every other byte of the file unchanged.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypedDict

from pyagentd import regularfile
from pyagentd.clock import iso8601
from pyagentd.errors import NotASession, PresetError, StoreError
from pyagentd.log import of_session
from pyagentd.store import atomic, paths, presetfile, yamlfile
from pyagentd.store.journal import row_of
from pyagentd.store.paths import BranchRef

VERSION = "3.0"

_LONGEST_POSITION = 20  # digits

_log = logging.getLogger(__name__)


def read_session_metadata(branch_dir: Path) -> dict[str, str] | None:
    """Return ``scope-plan.yml`` of a branch or agent; None when it is missing or cannot be parsed.

    Keys are ``version``, ``session_id``, ``created``, ``updated`` (ISO 8601), ``preset`` and, of an agent, ``type``
    and ``parent_session_id``; other keys are kept. An older file has ``agent_type`` instead of ``preset``.
    """
    metadata = _read(paths.scope_plan_file(branch_dir))
    if metadata is not None and "preset" not in metadata and "agent_type" in metadata:
        metadata["preset"] = metadata["agent_type"]
    return metadata


def read_branch_metadata(branch_dir: Path) -> dict[str, Any] | None:
    """Return ``branch-metadata.yml``: ``parent_branch``, ``created``, maybe ``branch_point_position``; or None.

    The position is a position of Emacs, from 1; anything but a number is left out.
    """
    read = _read(paths.branch_metadata_file(branch_dir), missing=logging.DEBUG)
    if read is None:
        return None
    values: dict[str, Any] = {**read}
    if (position := values.pop("branch_point_position", "")).isdecimal() and len(position) < _LONGEST_POSITION:
        values["branch_point_position"] = int(position)
    return values


def read_preset_metadata(branch_dir: Path) -> dict[str, Any] | None:
    """Return the keys of ``preset.md`` (``backend``, ``model``, ``temperature``, ``tools``…); None as above.

    Values are plain: texts, numbers, lists, mappings. Keys have underscores even if the file has dashes, and
    ``tools`` is a list of names, however the file writes it.
    """
    file = paths.preset_file(branch_dir)
    if not file.exists():
        _log_missing(file, logging.WARNING)
        return None
    try:
        front = presetfile.read(file).front
    except (PresetError, StoreError) as error:
        _log_unreadable(file, error.message)
        return None
    values: dict[str, Any] = {str(key).replace("-", "_"): _plain_value(value) for key, value in front.items()}
    if "tools" in values:
        values["tools"] = _tool_names(values["tools"])
    return values


def write_scope_plan(
    branch_dir: Path,
    *,
    session_id: str,
    preset: str,
    created: str,
    parent_session_id: str | None = None,
    activity_org_file: str | None = None,
) -> None:
    """Write the metadata of a new session or agent; the caller syncs it.

    ``created`` is in ISO 8601; ``parent_session_id`` is given for an agent, and only for an agent.

    Raises:
        StoreError: The disk refused.
    """
    lineage = {"type": "agent", "parent_session_id": parent_session_id} if parent_session_id is not None else {}
    values = {"version": VERSION, "session_id": session_id, "created": created, "updated": created}
    activity = {"activity_org_file": activity_org_file} if activity_org_file is not None else {}
    text = yamlfile.dump_texts({**values, **lineage, "preset": preset, **activity})
    atomic.write_text(paths.scope_plan_file(branch_dir), text, fsync=False)


def write_branch_metadata(branch_dir: Path, *, parent_branch: str, created: str, position: int) -> None:
    """Write the lineage of a branch; "main" has none.

    ``created`` is in ISO 8601; the parent's document was copied up to ``position`` (of Emacs, from 1).

    Raises:
        StoreError: The disk refused.
    """
    lineage = {"parent_branch": yamlfile.quoted_text(parent_branch), "created": yamlfile.quoted_text(created)}
    text = yamlfile.dump({**lineage, "branch_point_position": position})
    atomic.write_text(paths.branch_metadata_file(branch_dir), text)


def touch_scope_plan(branch_dir: Path, now: datetime) -> None:
    """Set ``updated``; for commands on scope, preset and branches, but not for saving.

    A file that is missing or cannot be parsed is left alone; reading it reports the problem.

    Raises:
        StoreError: The disk refused; the file is untouched.
    """
    set_scope_plan_values(branch_dir, {"updated": iso8601(now)})


def set_scope_plan_values(branch_dir: Path, values: Mapping[str, str]) -> None:
    """Set top-level keys of ``scope-plan.yml``; everything else in the file stays byte for byte.

    Raises:
        StoreError: The disk refused; the file is untouched.
    """
    file = paths.scope_plan_file(branch_dir)
    known = _read(file)
    if known is None:
        return
    text = changed = regularfile.read_text(file)
    for key, value in values.items():
        changed = _with_value(changed, key, value)
    try:
        is_sound = yamlfile.load_texts(changed) == {**known, **values}
    except yamlfile.Malformed:
        is_sound = False
    if not is_sound:  # not one key a line
        try:
            loaded = yamlfile.load(text)
        except yamlfile.Malformed as error:
            _log_unreadable(file, error)
            return
        loaded.update({key: yamlfile.quoted_text(value) for key, value in values.items()})
        changed = yamlfile.dump(loaded)
    if changed != text:
        atomic.write_text(file, changed)


def _with_value(text: str, key: str, value: str) -> str:
    """Return ``text`` with the line of ``key`` changed, or added; a comment behind the value stays."""
    known = rf"""^{re.escape(key)}:[ \t]*(?:"[^"\n]*"|'[^'\n]*'|[^\s#][^\n#]*?|)([ \t]*(?:#.*)?)$"""
    line = re.compile(known, re.MULTILINE)
    written = yamlfile.dump_texts({key: value}).rstrip("\n")
    if line.search(text):
        return line.sub(lambda found: written + found[1], text, count=1)
    return text + ("" if text.endswith("\n") else "\n") + written + "\n"


def _plain_value(value: Any) -> Any:
    """Return a loaded value as plain Python values, without the library's formatting data."""
    match value:
        case None | bool():
            return value
        case int():
            return int(value)
        case float():
            return float(value)
        case Mapping():
            return {str(key): _plain_value(inner) for key, inner in value.items()}
        case list():
            return [_plain_value(inner) for inner in value]
    return str(value)


def _tool_names(tools: Any) -> list[str]:
    match tools:
        case str():
            return re.findall(r"[^\s,]+", tools)
        case dict():
            return [name for name, rule in tools.items() if isinstance(rule, dict) and rule.get("allowed")]
        case list():
            return [str(name) for name in tools]
    return []


def _read(file: Path, missing: int = logging.WARNING) -> dict[str, str] | None:
    """Return the keys of a file; ``missing`` is the level at which its absence is logged."""
    try:
        return yamlfile.load_texts(regularfile.read_text(file))
    except FileNotFoundError:
        _log_missing(file, missing)
    except (OSError, UnicodeDecodeError) as error:
        _log_unreadable(file, error)
    except yamlfile.Malformed as error:
        _log_unreadable(file, f"{error} (line {error.line})" if error.line else error)
    return None


def _log_missing(file: Path, level: int) -> None:
    _log.log(level, "No %s in %s", file.name, file.parent, extra=_log_context(file))


def _log_unreadable(file: Path, error: object) -> None:
    _log.error("Failed to parse %s in %s: %s", file.name, file.parent, error, extra=_log_context(file))


def _log_context(file: Path) -> dict[str, Path | None]:
    return of_session(paths.session_dir_of(file.parent))


# The tree of branches of a session, from the ``branch-metadata.yml`` of each.
#
# It is read from disk whenever needed. A branch whose parent is gone or unknown is a root; if hand-edited files make
# a circle, its first branch counts as a root.


class BranchRow(TypedDict):
    """A branch in the tree of its session."""

    name: str
    branch: str
    branch_dir: str
    file: str
    parent: str | None  # the branch it was made from; it may be gone
    created: str | None  # ISO 8601; of "main" when the session was
    position: int | None  # where it begins in the parent's document
    current: bool  # the active one
    depth: int
    last: bool  # the last child of its parent
    agents: int


def branches(session_dir: Path) -> list[BranchRef]:
    """Return the branches of a session, "main" first, the others by name and so by time.

    Raises:
        StoreError: The disk refused.
    """
    places = _directories(paths.branches_dir(session_dir))
    named = sorted(places, key=lambda place: (place.name != paths.MAIN_BRANCH, place.name))
    return [paths.ref_of(place) for place in named if paths.has_conversation(place)]


def agents(branch_dir: Path) -> list[Path]:
    """Return the directories of the agents directly under a branch or an agent, without links.

    Raises:
        StoreError: The disk refused.
    """
    return [place for place in _directories(paths.agents_dir(branch_dir)) if place.is_dir()]


def child_agents(branch: BranchRef) -> list[BranchRef]:
    """Return the agents directly under a branch or an agent, by name; none if the directory cannot be read."""
    try:
        places = agents(branch.branch_dir)
    except StoreError:
        return []
    return [paths.agent_ref(each) for each in places if paths.has_conversation(each)]


def with_agents(branch: BranchRef) -> Iterator[BranchRef]:
    """Yield a branch or agent and all agents below it.

    Raises:
        StoreError: The disk refused.
    """
    yield branch
    for place in agents(branch.branch_dir):
        if paths.has_conversation(place):
            yield from with_agents(paths.agent_ref(place))


def active(session_dir: Path) -> str | None:
    """Return the name of a session's active branch; None when it has none."""
    try:
        return paths.ref_of(session_dir).branch_name
    except NotASession:
        return None


def tree(session_dir: Path) -> list[BranchRow]:
    """Return the branches of a session, each after its parent.

    Raises:
        StoreError: The disk refused.
    """
    refs = {ref.branch_name: ref for ref in branches(session_dir)}
    entries = {name: read_branch_metadata(ref.branch_dir) or {} for name, ref in refs.items()}
    parents = {name: None if name == paths.MAIN_BRANCH else entries[name].get("parent_branch") for name in refs}
    chosen = active(session_dir)
    return [
        {
            "name": name,
            "branch": refs[name].key,
            "branch_dir": refs[name].key,
            "file": str(paths.session_file(refs[name].branch_dir)),
            "parent": parents[name],
            "created": entries[name].get("created")
            or (read_session_metadata(refs[name].branch_dir) or {}).get("created"),
            "position": entries[name].get("branch_point_position"),
            "current": name == chosen,
            "depth": depth,
            "last": last,
            "agents": len(agents(refs[name].branch_dir)),
        }
        for name, depth, last in _in_order(parents)
    ]


def lineage(branch: BranchRef) -> tuple[str, ...]:
    """Return the names of the branches that ``branch`` descends from, its parent first.

    A parent that is gone is the last one.
    """
    line: list[str] = []
    name = branch.branch_name
    while name != paths.MAIN_BRANCH:
        values = read_branch_metadata(paths.branch_dir(branch.session_dir, name)) or {}
        parent = values.get("parent_branch")
        if not parent or "/" in parent or parent in (*line, branch.branch_name):
            break
        line.append(parent)
        name = parent
    return tuple(line)


def _directories(home: Path) -> list[Path]:
    """Return the entries of ``home`` by name, without hidden ones and links; none if it does not exist."""
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
    # At the bottom of the stack every branch, for those in circles, which no root leads to.
    stack = [*_stack_order(parents, 0, single=True), *_stack_order(children.get(None, ()), 0)]
    while stack:
        name, depth, last = stack.pop()
        if name not in seen:
            seen.add(name)
            yield name, depth, last
            stack += _stack_order([child for child in children.get(name, ()) if child not in seen], depth + 1)


def _stack_order(names: Iterable[str], depth: int, *, single: bool = False) -> list[tuple[str, int, bool]]:
    """Return siblings in the order for a stack; ``single`` ones are not drawn as siblings of each other."""
    listed = list(names)
    return [(name, depth, single or name == listed[-1]) for name in reversed(listed)]


# The facts that a session was made with, for lists, without reading its conversation.

_BEGINNING = 64 * 1024  # bytes; the session's first row is among the first of its log


def workspace_root(branch_dir: Path) -> str:
    """Return the workspace root of a branch, which never changes; "" if it was not recorded."""
    return next((str(root) for row in _session_rows(branch_dir) if (root := row.get("workspace_root"))), "")


def first_row(branch_dir: Path) -> Mapping[str, Any]:
    """Return the first ``session`` row of a branch or agent, with the facts it was made with; {} if there is none."""
    return next(_session_rows(branch_dir), {})


def agents_by_call(branch: BranchRef) -> dict[str, BranchRef]:
    """Return the agents directly under a branch by the tool call that spawned each; reads their logs and blocks."""
    return {str(first_row(each.branch_dir).get("parent_call_id")): each for each in child_agents(branch)}


def _session_rows(branch_dir: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with regularfile.open_binary(paths.journal_file(branch_dir), limit=regularfile.LOG) as log:
            beginning = log.read(_BEGINNING)
    except OSError:
        return
    for row in map(row_of, beginning.split(b"\n")):
        if row is not None and row.type == "session":
            yield row.data
