"""The existing branches and agents, and those whose runs were interrupted by a killed process or a full disk.

The disk is the source: a scan of the root opens no file, a removed entry is noticed when it is looked up, and a
session that another program made is found by the next scan.
"""

import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyagentd import regularfile
from pyagentd.errors import Ambiguous, NotASession, NotFound
from pyagentd.events import one_line
from pyagentd.log import of_session
from pyagentd.messages import Message, Part, ToolResult
from pyagentd.store import atomic, conversation, paths
from pyagentd.store.conversation import Conversation
from pyagentd.store.document.reconcile import View, model_parts
from pyagentd.store.journal import read_rows, row_of
from pyagentd.store.paths import BranchRef

_SHOWN = 8  # sessions that fit a name
_NAME_SHOWN = 60  # characters of a name that cannot be one
_STAMPED = re.compile(r"(.+)-\d{14}(?:-\d+)?")  # a session's id: its name, the time, and a number if need be
_NAME = re.compile(r"[^./][^/]*")  # of a directory that a scan would look at
_LONGEST_NAME = 255  # bytes of a directory's name

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A branch or agent with the agents directly under it."""

    ref: BranchRef
    agents: "tuple[Entry, ...]" = ()

    def with_agents(self) -> "Iterator[Entry]":
        """Yield this entry and all below it."""
        yield self
        for agent in self.agents:
            yield from agent.with_agents()


class Registry:
    """The branches of one sessions root, and of added sessions elsewhere.

    Args:
        root: The sessions root; need not exist.
        agents: The agents root, whose sessions are named agents; need not exist.
        departed: Directories of destroyed agents, resolved, which are no sessions; the caller may change the set.
    """

    def __init__(self, root: Path, *, agents: Path | None = None, departed: Collection[Path] = frozenset()) -> None:
        self._root = root
        self._departed = departed
        self._homes = (root,) if agents is None else (root, agents)
        self._elsewhere: frozenset[Path] = frozenset()
        self._by_name: dict[str, dict[str, BranchRef]] = {}  # "ID/BRANCH" -> key -> ref
        self._known: dict[str, Entry] = {}  # what the last scan found, by key

    @property
    def root(self) -> Path:
        """The sessions root."""
        return self._root

    @property
    def elsewhere(self) -> frozenset[Path]:
        """The known directories of sessions outside the root."""
        return self._elsewhere

    def scan(self) -> "tuple[Entry, ...]":
        """Scan the disk and return everything: branches by session id and name, with their agents.

        May be called from any thread.
        """
        known = self._known
        entries = tuple(self._scan(known))
        found = {entry.ref.key: entry for each in entries for entry in each.with_agents()}
        if found != known:
            names: dict[str, dict[str, BranchRef]] = {}
            for key, entry in found.items():
                names.setdefault(entry.ref.name, {})[key] = entry.ref
            self._by_name = names
        self._known = found
        _log.info("Initialized registry with %d branches", len(found), extra=of_session())
        return entries

    def branches(self) -> list[BranchRef]:
        """Return all existing branches and agents, an agent after its branch."""
        return [entry.ref for each in self.scan() for entry in each.with_agents()]

    def add(self, ref: BranchRef) -> None:
        """Add a branch that was just made or opened; its session is scanned from now on, wherever it is."""
        if self.has_departed(ref):
            return
        if not ref.is_agent:
            self.add_elsewhere([ref.session_dir])
        self._by_name.setdefault(ref.name, {})[ref.key] = ref

    def has_departed(self, ref: BranchRef) -> bool:
        """Return whether a branch belongs to a destroyed agent whose files were kept."""
        return bool(self._departed) and any(ref.branch_dir.is_relative_to(place) for place in (*self._departed,))

    def forget(self, directory: Path) -> None:
        """Forget the entries in ``directory``, which was removed."""
        self._known = {key: each for key, each in self._known.items() if not Path(key).is_relative_to(directory)}
        self._elsewhere -= {place for place in self._elsewhere if place.is_relative_to(directory)}
        for known in self._by_name.values():
            for key in [key for key, ref in known.items() if ref.branch_dir.is_relative_to(directory)]:
                del known[key]

    def add_elsewhere(self, directories: Iterable[Path]) -> None:
        """Scan these directories of sessions, too; those in the root are always scanned."""
        homes = {home.resolve() for home in self._homes}
        self._elsewhere |= {directory for directory in directories if directory.parent not in homes}

    def get(self, session_id: str, branch_name: str = paths.MAIN_BRANCH) -> BranchRef | None:
        """Return the branch with exactly these names, in constant time; None when unknown, gone or not unique."""
        known = dict(self._by_name.get(f"{session_id}/{branch_name}", {}))
        if (place := self._session_dir(session_id)) is not None and _NAME.fullmatch(branch_name):
            ref = _branch_ref(place, session_id, branch_name)
            known[ref.key] = ref
        present = [ref for ref in known.values() if paths.has_conversation(ref.branch_dir)]
        return present[0] if len(present) == 1 else None

    def resolve(self, text: str) -> BranchRef:
        """Return the branch that a person names by ``text``.

        Args:
            text: The id of a session or an agent, or the beginning of one; for a session this is the active branch,
                and ``ID/BRANCH`` is another. Or a directory or file of a session.

        Raises:
            Ambiguous: Several match; the message lists them.
            NotFound: None matches.
            NotASession: It is a path, but not of a session.
        """
        if not text.strip():
            raise NotFound("The name of a session is empty", hint="List them with `pyagentd sessions`")
        if any(len(name.encode("utf-8", "replace")) > _LONGEST_NAME for name in text.split("/")):
            raise NotFound(
                f"The name {one_line(text, _NAME_SHOWN)!r} is too long", hint="List them with `pyagentd sessions`"
            )
        if text.startswith(("/", "~", ".")):
            with suppress(ValueError):  # no user can have this name
                text = os.path.expanduser(text)  # noqa: PTH111 - Path raises
            return paths.ref_of(Path(text))
        if "/" not in text and (place := self._session_dir(text)) is not None:
            return paths.ref_of(place)
        if any(text == place.name for place in (*self._departed,)):
            raise NotFound(f"The agent {text} was destroyed", hint=f"`pyagentd agent init {text}` makes it anew")
        if known := self.get(*text.rsplit("/", 1)):
            return known if "/" in text else paths.ref_of(known.session_dir)
        fitting = _matching_refs(text, self.branches())
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise Ambiguous(
                f"{text!r} fits {len(fitting)} sessions: {_join_names(fitting)}",
                hint="Give more of the id, or a directory",
            )
        if os.path.exists(text):  # noqa: PTH110 - Path raises where it is too long
            return paths.ref_of(Path(text))
        raise NotFound(
            f"No session, branch or agent is called {text!r} in {self._root}",
            hint="List them with `pyagentd sessions`; the beginning of an id is enough",
        )

    def _session_dir(self, session_id: str) -> Path | None:
        """Return where the session with exactly this id lives, without a scan; None if it is not in the root.

        A session's id is looked for before the name of an agent.
        """
        if not _NAME.fullmatch(session_id):
            return None
        places = (home.resolve() / session_id for home in self._homes if self._is_here(home, session_id))
        return next((place for place in places if paths.is_session_dir(place) and not place.is_symlink()), None)

    def _is_here(self, home: Path, name: str) -> bool:
        return not self._departed or home.resolve() / name not in self._departed

    def _scan(self, known: "Mapping[str, Entry]") -> "Iterator[Entry]":
        for home in self._homes:
            root = home.resolve()
            for name in filter(partial(self._is_here, root), _subdirectories(str(root))):
                # Opens no file unless somebody renamed the directory.
                session_id = name if paths.is_dated(name) else _recorded_id(root / name)
                yield from _session_entries(f"{root}/{name}", session_id or name, known)
        for directory in sorted(self._elsewhere):
            if session_id := _recorded_id(directory):
                yield from _session_entries(str(directory), session_id, known)


def _recorded_id(session_dir: Path) -> str:
    """Return the id of a session, whose directory may have another name; "" if it is no session."""
    try:
        return paths.ref_of(session_dir).session_id
    except NotASession:
        return ""


def _matching_refs(text: str, refs: list[BranchRef]) -> list[BranchRef]:
    """Return the ``refs`` with the id, or ID/BRANCH, ``text``; if there are none, those that begin with it.

    Among the latter an exact name (the id up to the time) comes before longer names, and sessions come before agents.
    """
    wanted, _, branch = text.partition("/")
    sessions = [ref for ref in refs if not ref.is_agent]
    named = (
        [ref for ref in refs if ref.session_id == wanted]
        or [ref for ref in sessions if _own_name(ref.session_id) == wanted]
        or [ref for ref in sessions if wanted and ref.session_id.startswith(wanted)]
        or [ref for ref in refs if wanted and ref.session_id.startswith(wanted)]
    )
    if not branch:
        return _one_per_session(named)
    exact = [ref for ref in named if ref.branch_name == branch]
    return exact or [ref for ref in named if ref.branch_name.startswith(branch)]


def _own_name(session_id: str) -> str:
    """Return the name in a session's id, "" for an id without a time."""
    found = _STAMPED.fullmatch(session_id)
    return found[1] if found else ""


def _one_per_session(refs: Iterable[BranchRef]) -> list[BranchRef]:
    """Return the active branch of each session, and every agent; of too many, one branch."""
    branches: dict[Path, list[BranchRef]] = {}
    for ref in refs:
        branches.setdefault(ref.session_dir, []).append(ref)
    kept = []
    for number, (directory, own) in enumerate(branches.items()):
        try:
            kept.append(paths.ref_of(directory) if number < _SHOWN else own[0])
        except NotASession:  # its link is broken: any branch is better than none
            kept += own
    return kept


# A scan visits every branch, so names are joined as text, and entries are made only for new branches.


def _session_entries(session_dir: str, session_id: str, known: "Mapping[str, Entry]") -> "Iterator[Entry]":
    home = f"{session_dir}/{paths.BRANCHES_DIR}"
    return _entries(home, known, lambda name: _branch_ref(Path(session_dir), session_id, name), session_id)


def _agent_entries(branch_dir: str, known: "Mapping[str, Entry]") -> "Iterator[Entry]":
    home = f"{branch_dir}/{paths.AGENTS_DIR}"
    return _entries(home, known, lambda name: paths.agent_ref(Path(home, name)))


def _entries(
    home: str, known: "Mapping[str, Entry]", ref_of: Callable[[str], BranchRef], session_id: str = ""
) -> "Iterator[Entry]":
    for name in _subdirectories(home):
        place = f"{home}/{name}"
        if paths.has_conversation(place):
            entry, agents = known.get(place), tuple(_agent_entries(place, known))
            if entry is None or entry.agents != agents or entry.ref.session_id != (session_id or name):
                entry = Entry(ref=ref_of(name), agents=agents)
            yield entry


def _branch_ref(session_dir: Path, session_id: str, name: str) -> BranchRef:
    place = Path(f"{session_dir}/{paths.BRANCHES_DIR}/{name}")
    return BranchRef(session_id=session_id, session_dir=session_dir, branch_name=name, branch_dir=place)


def _subdirectories(directory: str) -> list[str]:
    """Return the names of real directories in ``directory``, sorted, without hidden ones."""
    try:
        with os.scandir(directory) as entries:
            return sorted(e.name for e in entries if not e.name.startswith(".") and e.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _join_names(refs: list[BranchRef]) -> str:
    same_id = len({ref.name for ref in refs}) < len(refs)
    names = [ref.key if same_id or ref.is_agent else ref.name for ref in refs]
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


# Finding agents under a branch whose runs were interrupted by a killed process or a disk error.
#
# Only the end of each log is read: the last row of a complete run says that all its text is in the document. Opening
# the others decides what to do about them.

_TAIL: Final = 4096  # bytes; the last rows of a run that ended well are short


def unfinished_agents(branch_dir: Path) -> list[BranchRef]:
    """Return the agents below ``branch_dir``, at any depth, whose last run may lack its end or some of its text.

    Drafts that a killed process left beside their files are removed.
    """
    home = paths.agents_dir(branch_dir)
    found = []
    for place in map(home.joinpath, _subdirectories(str(home))):
        if paths.has_conversation(place):
            atomic.sweep(place)
            if not is_finished(paths.journal_file(place)):
                found.append(paths.agent_ref(place))
            found += unfinished_agents(place)
    return found


def is_finished(log: Path) -> bool:
    """Return whether the last row of ``log`` says that all text of its last run is in the document."""
    try:
        tail = regularfile.read_end(log, _TAIL, limit=regularfile.LOG)
    except OSError:
        return True
    for line in reversed(tail.split(b"\n")):
        row = row_of(line)
        if row is not None and row.type == "run":
            return row.data.get("state") == "kept"
        if row is not None and row.type in ("message", "part", "delta"):
            return False
    return not tail


# Finding runs that were suspended when their daemon ended: they waited for a human, or for agents that did.
#
# Logs are read and nothing is written. A run is suspended if one of its unfinished calls has a question without an
# answer, or with an answer that was not carried out yet, or an agent that is suspended itself; and if its result is
# still needed: by nobody else for the branch at the root and for background agents, by the spawning call for others.


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendedRun:
    """A suspended run."""

    ref: BranchRef
    run_id: str
    asks: tuple[str, ...]  # ids of its questions without an answer
    answered: tuple[str, ...]  # ids of those whose answer nothing has come of yet
    is_first: bool  # no other run waits for it


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The answer of a suspended run so far.

    Attributes:
        message: Its recorded message; the last one if the user steered the run.
        earlier: The answers before that.
        done: Its finished steps in the model's view: answers and results.
        step: The answer of the last step.
        results: The recorded results of the last step's calls, by call id.
    """

    message: conversation.Message
    earlier: tuple[conversation.Message, ...]
    done: tuple[Message, ...]
    step: tuple[Part, ...]
    results: Mapping[str, ToolResult]


def suspended_runs(root: BranchRef) -> dict[str, SuspendedRun]:
    """Return the suspended runs in the tree of a session's branch, by branch key, parents first.

    Raises:
        StoreError: A log cannot be read.
    """
    unfinished = unfinished_agents(root.branch_dir)
    if paths.has_conversation(root.branch_dir) and not is_finished(paths.journal_file(root.branch_dir)):
        unfinished.append(root)
    return _awaited_runs(root, _waiting_candidates(unfinished))


def run_progress(conversation: Conversation) -> RunProgress | None:
    """Return the progress of the last run, None if all its calls have results."""
    message = next(
        (conversation.messages[part.row["message_id"]] for part in _open_calls(conversation)),
        None,
    )
    if message is None:
        return None
    messages = _messages_of_run(conversation, message)
    *before, last = message.steps()
    view = View()
    for each in messages:
        if each.role == "user":
            view.add_user(each.text)
            continue
        for step in each.steps():
            view.add_recorded(step)
    for step in before:
        view.add_recorded(step)
    results = {}
    for part in last:
        if part.is_tool and (result := part.result) is not None:
            call_id = str(part.data["toolCallId"])
            results[call_id] = ToolResult(id=call_id, text=result[0], is_error=result[1])
    earlier = tuple(each for each in messages if each.role == "assistant")
    return RunProgress(
        message=message, earlier=earlier, done=view.to_messages(), step=tuple(model_parts(last)), results=results
    )


def _messages_of_run(conversation: Conversation, last: conversation.Message) -> list[conversation.Message]:
    """Return the messages of the last run before ``last``: answers and steering messages."""
    run = conversation.last_run
    prompt = str(run.data.get("message_id")) if run else ""
    if prompt not in conversation.messages:
        return []
    order = list(conversation.messages)
    between = order[order.index(prompt) + 1 : order.index(last.id)]
    return [message for id in between if not (message := conversation.messages[id]).is_hidden]


@dataclass(frozen=True, slots=True)
class _Candidate:
    ref: BranchRef
    run: Mapping[str, Any]
    session: Mapping[str, Any]
    calls: frozenset[str]  # without a result
    asks: tuple[str, ...]
    answered: tuple[str, ...]


def _waiting_candidates(refs: Iterable[BranchRef]) -> dict[str, _Candidate]:
    """Return the candidates with waiting runs, by key, children before parents."""
    waiting: dict[str, _Candidate] = {}
    for ref in sorted(refs, key=lambda each: len(each.branch_dir.parts), reverse=True):
        candidate = _candidate(ref)
        if candidate is None:
            continue
        agents = (agent for agent in waiting.values() if _is_awaited(agent, ref.key, candidate))
        if candidate.asks or candidate.answered or any(agents):
            waiting[ref.key] = candidate
    return waiting


def _awaited_runs(root: BranchRef, waiting: Mapping[str, _Candidate]) -> dict[str, SuspendedRun]:
    """Leave out runs whose result nobody needs any more."""
    wanted: dict[str, SuspendedRun] = {}
    for key, candidate in reversed([*waiting.items()]):
        above = str(candidate.ref.branch_dir.parent.parent)
        first = key == root.key or bool(candidate.session.get("background"))
        if first or (above in wanted and _is_awaited(candidate, above, waiting[above])):
            wanted[key] = SuspendedRun(
                ref=candidate.ref,
                run_id=candidate.run["id"],
                asks=candidate.asks,
                answered=candidate.answered,
                is_first=first,
            )
    return wanted


def _is_awaited(agent: _Candidate, key: str, above: _Candidate) -> bool:
    session = agent.session
    return (
        str(agent.ref.branch_dir.parent.parent) == key
        and session.get("parent_run_id") == above.run["id"]
        and session.get("parent_call_id") in above.calls
    )


def _candidate(ref: BranchRef) -> _Candidate | None:
    conversation = Conversation(read_rows(paths.journal_file(ref.branch_dir)))
    run = conversation.last_run
    if run is None or run.is_finished:
        return None
    calls = _open_call_ids(conversation)
    asks = tuple(ask["id"] for ask in _asks_about(conversation, calls) if ask["decision"] is None)
    return _Candidate(ref, run.data, conversation.session, calls, asks, answered_questions(conversation))


def answered_questions(conversation: Conversation) -> tuple[str, ...]:
    """Return the questions of the last run whose answer nothing has come of, while calls of it have not begun."""
    calls = _open_call_ids(conversation)
    if calls <= conversation.begun:
        return ()
    return tuple(ask["id"] for ask in _asks_about(conversation, calls) if ask["decision"] not in (None, "abort"))


def _asks_about(conversation: Conversation, calls: frozenset[str]) -> list[dict[str, Any]]:
    run = conversation.last_run
    if run is None:
        return []
    asks = conversation.asks.values()
    return [ask for ask in asks if ask.get("run_id") == run.data["id"] and ask.get("tool_call_id") in calls]


def _open_call_ids(conversation: Conversation) -> frozenset[str]:
    return frozenset(str(part.data["toolCallId"]) for part in _open_calls(conversation))


def _open_calls(conversation: Conversation) -> Iterator[conversation.Part]:
    return (part for part in conversation.parts.values() if part.data.get("state") == "input-available")
