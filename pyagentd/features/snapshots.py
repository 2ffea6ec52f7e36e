"""File snapshots: taken around tool calls, shown as changes since a turn, and restored on request.

The store is below the sessions root, readable by its owner alone; the project's own repository is neither read nor
written. A turn is a message of the user to the root session of a tree of agents: all changes by its agents belong to
that turn, however long they work. Restoring is a change like any other, so it can be undone.
"""

import asyncio
import contextlib
import logging
import os
import stat
import threading
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict
from weakref import WeakValueDictionary

from pyagentd import regularfile
from pyagentd.clock import new_id
from pyagentd.config import Config
from pyagentd.errors import NotFound, PresetError, PyagentdError, StoreError, ToolError
from pyagentd.events import Event
from pyagentd.policy.action import Action, first_match_folded
from pyagentd.policy.guard import CREDENTIALS, SESSION_RECORDS
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.feature import Feature, Gate
from pyagentd.runtime.run_setup import RunBuilder, protected_paths
from pyagentd.runtime.settings import SendOptions
from pyagentd.runtime.turns import Prompt
from pyagentd.store import atomic, paths
from pyagentd.store.conversation import Conversation
from pyagentd.store.metadata import first_row
from pyagentd.store.paths import BranchRef
from pyagentd.store.snapshots import (
    DIRECTORY,
    EMPTY,
    Change,
    Difference,
    Entry,
    Objects,
    Pruned,
    Records,
    Scan,
    Stats,
    TooMuch,
    Undo,
    assemble,
    difference,
    entries_with_parents,
    entry_at,
    plan_undo,
    prune,
    require_content,
    same,
    since,
)
from pyagentd.tools.files import draft_name, is_binary, parent, sweep
from pyagentd.tools.spec import KeptFiles
from pyagentd.tools.write import unified_diff

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel

log = logging.getLogger(__name__)


# Stores the files that one run's calls change: before and after each call, recorded for the turn it belongs to.
#
# For Write and Edit these are the files they name; for a command, the whole workspace and the files outside it that
# it is known to write; for another program that runs here, the whole workspace. Errors are reported to the user, and
# never make a call fail.

_TOLD_PATHS = 500  # in one event
_SAID = "files_not_kept"  # in a session's metadata: the last such notice


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKeeper:
    """Stores the files that one run changes; see ``tools.spec.FileKeeper``."""

    snapshots: "Snapshots"
    branch: LiveBranch
    top: BranchRef  # the root of its tree
    run_id: str
    root: Path  # the workspace
    _too_much: list[str] = field(default_factory=list)  # why the workspace is not stored

    @contextlib.asynccontextmanager
    async def around(self, action: Action, call_id: str) -> AsyncIterator[KeptFiles]:
        """Store the files that ``action`` may change, before and after the block."""
        kept = KeptFiles()
        if action.kind not in ("write", "command") and not action.may_change_any_file:
            yield kept
            return
        files = _files(action) if action.kind == "write" else ()
        async with self.snapshots.gate.beside(), self.snapshots.changing(files):
            begun = await self._begin(action, call_id)
            try:
                yield kept
            finally:
                if begun is not None:
                    await _surely(self._end(*begun, kept))
                elif action.kind == "write":
                    self.snapshots.tell(self.branch.ref, files, call_id)

    async def warm(self) -> None:
        """Scan the workspace in advance, so that the first command need not wait for it."""
        async with self.snapshots.gate.beside():
            with contextlib.suppress(PyagentdError):  # reported when a command runs
                await asyncio.to_thread(
                    self.snapshots.workspaces.snapshot, self.root, self.snapshots.denies(self.top)
                )

    async def _begin(self, action: Action, call_id: str) -> tuple[Change, tuple[str, ...]] | None:
        """Store the files before a call; return the change to record, and the files that the call names."""
        is_whole = (action.kind == "command" or action.may_change_any_file) and not self._too_much
        files = _files(action)
        if not is_whole and not files:
            return None
        change = Change(
            id=new_id("snp"),
            turns=self.snapshots.turns(self.branch, self.run_id),
            branch=self.branch.key,
            tool=action.tool,
            detail=action.detail,
            call=call_id,
            run=self.run_id,
            before=EMPTY,
            after=EMPTY,
            began=self.snapshots.now_ms(),
            ended=0,
            root=str(self.root) if is_whole else "",
        )
        beginning = asyncio.ensure_future(asyncio.to_thread(self._before, change, files))
        try:
            return await asyncio.shield(beginning), files
        except TooMuch as error:
            self._say(f"{error.message}: what commands change there cannot be undone, only what Write and Edit do")
            self._too_much.append(error.message)
            return await self._begin(action, call_id)
        except PyagentdError as error:
            self._say(f"The files could not be kept, so this cannot be undone: {error}")
            return None
        except asyncio.CancelledError:
            self.snapshots.kernel.spawn(self._forget(change.id, beginning))  # so that an abort need not wait for it
            raise

    async def _forget(self, change_id: str, beginning: asyncio.Future[Change]) -> None:
        with contextlib.suppress(PyagentdError):
            await beginning
        self.snapshots.records.forget(change_id)

    def _before(self, change: Change, files: tuple[str, ...]) -> Change:
        change = replace(change, before=self._tree(change, files))
        self.snapshots.records.begin(self.top, change, files)
        return change

    def _tree(self, change: Change, files: tuple[str, ...]) -> str:
        root = Path(change.root) if change.root else None
        return self.snapshots.tree_of(files, root, self.snapshots.denies(self.top))

    async def _end(self, begun: Change, files: tuple[str, ...], kept: KeptFiles) -> None:
        try:
            change, changed = await asyncio.to_thread(self._after, begun, files)
        except PyagentdError as error:
            self._say(f"The files could not be kept, so this cannot be undone: {error}")
            return
        kept.before, kept.after = change.before, change.after
        self.snapshots.tell(self.branch.ref, changed, change.call)

    def _after(self, begun: Change, files: tuple[str, ...]) -> tuple[Change, list[str]]:
        """Record what the call changed; return the change and the changed paths."""
        snapshots, records = self.snapshots, self.snapshots.records
        try:
            change = replace(begun, after=self._tree(begun, files), ended=snapshots.now_ms())
            if change.before == change.after:
                records.forget(change.id)
                return change, []
            found = list(difference(snapshots.objects, change.before, change.after, root=change.root))
            if change.root:
                change = replace(change, others=snapshots.recent.of_others(self.top, change.began, found))
            else:
                snapshots.recent.note(self.top, change.ended, found)
            records.append(self.top, change)
        except BaseException:
            records.forget(begun.id)
            raise
        return change, [each.path for each in found if each.path not in change.others]

    def _say(self, text: str) -> None:
        """Notify the user, once a session for each text."""
        log.warning("%s: %s", self.branch.ref.name, text)
        if self.branch.conversation.session.get("metadata_json", {}).get(_SAID) != text:
            self.branch.note_metadata(**{_SAID: text})
            for key in dict.fromkeys((self.branch.key, self.top.key)):
                self.snapshots.kernel.publish(Event("notice", key, 0, ({"text": text},)))


def _files(action: Action) -> tuple[str, ...]:
    """Return the files that a call names and may write."""
    named = action.writes if action.kind == "command" else (*action.paths, *action.writes)
    return tuple(dict.fromkeys(path.resolved for path in named if not path.resolved.startswith("/dev/")))


async def _surely(work: Coroutine[Any, Any, None]) -> None:
    """Wait until ``work`` is done, even if the run is cancelled meanwhile; the cancellation is raised after that."""
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError


# Restoring one file: what would happen to it, and the atomic write.
#
# Files are opened by walking directory descriptors: a symbolic link that an agent put in place of a directory is not
# followed.

Becomes = Literal["restore", "delete", "create", "conflict", "unkept"]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What restoring would do to one path.

    ``conflict`` is a file that somebody else changed too: it stays, and the user chooses between both versions.
    """

    path: str
    becomes: Becomes
    target: Entry | None
    now: Entry | None
    reason: str = ""


def put(path: str, entry: Entry, content: bytes) -> None:
    """Write a file or link at ``path`` atomically, replacing what exists."""
    with parent(path, create=True) as (directory, name):
        temporary = draft_name()
        try:
            if entry.is_link:
                os.symlink(content, temporary, dir_fd=directory)
            else:
                descriptor = os.open(temporary, _NEW, 0o600, dir_fd=directory)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fchmod(descriptor, stat.S_IMODE(entry.mode))
                    os.fsync(descriptor)
            os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise


def sweep_beside(files: Iterable[str]) -> None:
    """Remove the drafts that a killed daemon left beside ``files``."""
    for each in {path.rpartition("/")[0]: path for path in files}.values():
        sweep(each)


def remove(proposal: Proposal) -> None:
    """Remove the current file, link or empty directory of a proposal."""
    with parent(proposal.path) as (directory, name):
        if proposal.now is not None and proposal.now.is_dir:
            os.rmdir(name, dir_fd=directory)
        else:
            os.unlink(name, dir_fd=directory)


def removals(wanted: Iterable[Proposal]) -> list[Proposal]:
    """Return the proposals to remove first: no target, or one of another kind; innermost first."""

    def goes(each: Proposal) -> bool:
        if each.now is None:
            return False
        return each.target is None or each.now.is_dir != each.target.is_dir

    return sorted(filter(goes, wanted), key=lambda each: each.path, reverse=True)


def creations(wanted: Iterable[Proposal]) -> list[Proposal]:
    """Return the proposals with a target, outermost first."""
    return sorted((each for each in wanted if each.target is not None), key=lambda each: each.path)


# What tools wrote recently, and for which session.


class _Written(NamedTuple):
    ended: int
    session: str
    path: str
    after: Entry | None


class RecentEdits:
    """What Write and Edit wrote recently, and for which session: a command that ran meanwhile did not change these.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._written: deque[_Written] = deque(maxlen=2000)
        self._lock = threading.Lock()

    def note(self, top: BranchRef, ended: int, found: Iterable[Difference]) -> None:
        """Note the changes that a call of the session ``top`` made."""
        with self._lock:
            self._written.extend(_Written(ended, top.key, each.path, each.after) for each in found)

    def of_others(self, top: BranchRef, began: int, found: Iterable[Difference]) -> tuple[str, ...]:
        """Return the paths of ``found`` that other sessions wrote since ``began``, with the same content."""
        with self._lock:
            others = {
                (each.path, each.after) for each in self._written if each.session != top.key and each.ended >= began
            }
        return tuple(each.path for each in found if (each.path, each.after) in others) if others else ()


# The user's messages that a change belongs to: files are restored to before such a message.


def last_turn(conversation: Conversation) -> str:
    """Return the id of the user's last message, "" if there is none."""

    def is_turn(row: Mapping[str, Any]) -> bool:
        metadata = row.get("metadata_json", {})
        return row.get("role") == "user" and not metadata.get("queued_at") and not metadata.get("queue_canceled_at")

    return next((each.id for each in reversed(conversation.messages.values()) if is_turn(each.row)), "")


def turns_from(conversation: Conversation, message_id: str) -> frozenset[str]:
    """Return the ids of the user's messages from ``message_id`` on.

    Raises:
        NotFound: There is no such message of the user.
    """
    messages = list(conversation.messages.values())
    at = next((index for index, each in enumerate(messages) if each.id == message_id), None)
    if at is None:
        raise NotFound(f"There is no message {message_id}", hint="`pyagentd show SESSION --json` has their ids")
    if messages[at].role != "user":
        raise NotFound(
            f"{message_id} is not a message of yours", hint="Name one of yours: files go back to before it"
        )
    return frozenset(each.id for each in messages[at:] if each.role == "user")


# The workspaces whose files are stored before and after commands, each scanned by one thread at a time.
#
# Not part of a workspace, though inside it: ``.git``, what ``.gitignore`` files exclude, pyagentd's own directories,
# and denied directories. Of files that may hold secrets only the names are stored, never the content.

SECRETS = ("**/.env", "**/.env.*", "**/*.pem", "**/*.key", "**/id_rsa", "**/id_ed25519", "**/*.kdbx")

_KEPT = 6  # workspaces in memory
_WORTH_SAVING = 200  # files read in one scan


class Workspaces:
    """Takes snapshots of whole workspaces; every method blocks, for a thread."""

    def __init__(self, config: Config, objects: Objects, stats: Stats) -> None:
        self._objects = objects
        self._stats = stats
        self._own = {str(place.resolve()) for place in (config.sessions_dir, config.runtime_dir)}
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[threading.Lock, Scan]] = OrderedDict()

    def snapshot(self, root: Path, denies: tuple[str, ...]) -> Entry:
        """Store the directory ``root``, absolute and resolved, without the content that ``denies`` match; return it.

        Raises:
            TooMuch: It is too large.
            StoreError: The disk refused.
        """
        if root == Path("/"):
            raise TooMuch("The root directory cannot be a workspace with snapshots")
        key = _key(root, denies)
        with self._lock:
            lock, scan = self._known.get(key) or (threading.Lock(), self._new(root, denies, key))
            self._known[key] = lock, scan
            self._known.move_to_end(key)
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        with lock:
            try:
                entry = scan.snapshot()
            except OSError as error:
                raise StoreError(f"{root}: {error.strerror}") from error
            if scan.read >= _WORTH_SAVING:
                self._stats.save(key, scan.known())
        return entry

    def is_known(self, root: Path, denies: tuple[str, ...]) -> bool:
        """Return whether ``root`` was scanned before."""
        return _key(root, denies) in self._known

    def forget(self) -> None:
        """Forget all scans, so that everything is stored again: objects may be gone."""
        with self._lock:
            self._known.clear()
            self._stats.clear()

    def _new(self, root: Path, denies: tuple[str, ...], key: str) -> Scan:
        secret = is_secret(denies)

        def left_out(path: str, is_directory: bool) -> bool:
            return is_directory and (path in self._own or secret(f"{path}/-"))

        return Scan(str(root), self._objects, left_out=left_out, secret=secret, known=self._stats.load(key))


def _key(root: Path, denies: tuple[str, ...]) -> str:
    return "\n".join((str(root), *denies))


def is_secret(denies: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a predicate for paths whose content must not be stored."""
    patterns = tuple(dict.fromkeys((*CREDENTIALS, *SECRETS, *SESSION_RECORDS, *denies)))
    return lambda path: first_match_folded(patterns, path) is not None


_PRUNE_EVERY_MS = 86_400_000
_GONE_MS = 86_400_000  # changes are kept so long after their session was deleted: it may come back from the trash

Conflicts = Literal["keep", "copy", "overwrite"]

CHANGED_SINCE = "it was changed since by somebody else"
NOT_KEPT = "its content was not kept: it is too large, may hold secrets, or could not be read"
PROTECTED = "no tool may write there"


class KeptFile(TypedDict):
    """A file that was not restored."""

    path: str
    reason: str


class RestoreReply(TypedDict):
    """The result of a restore."""

    id: str  # for undo-restore; "" if there was nothing to do
    restored: list[str]
    kept: list[KeptFile]
    copies: list[str]  # old versions, beside the files
    note: str  # a summary in one line


class Snapshots(Feature):
    """The snapshots of all sessions."""

    def __init__(self, kernel: "Kernel") -> None:
        super().__init__(kernel)
        self._forbidden = (*CREDENTIALS, *SESSION_RECORDS, *protected_paths(kernel.config))
        directory = kernel.config.sessions_dir / DIRECTORY
        self.objects = Objects(directory)
        self.records = Records(directory)
        self.workspaces = Workspaces(kernel.config, self.objects, Stats(directory))
        self.recent = RecentEdits()

        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.gate = Gate()  # storing and restoring run together, pruning runs alone
        self._begun = False

    # -- runs ----------------------------------------------------------------------------------------------------

    def context_for(self, run: "RunBuilder") -> Mapping[str, Any]:
        """Return the keeper of the files that a run's calls change."""
        if not self._begun:
            self._begun = True
            self.kernel.spawn(self._recover())
        root = run.root.resolve()
        keeper = RunKeeper(snapshots=self, branch=run.branch, top=run.top, run_id=run.run_id, root=root)
        if "Bash" in run.preset.tools and not self.workspaces.is_known(root, self.denies(run.top)):
            self.kernel.spawn(keeper.warm())  # scan the workspace in advance
        return {"keeping": keeper}

    async def before_prompt(self, branch: LiveBranch, prompt: Prompt, options: SendOptions, run_id: str) -> Prompt:
        """Return ``prompt`` with the id of the last change before it, for the message's metadata."""
        head = "" if prompt.message_id else self.records.head(branch.top)
        return replace(prompt, metadata={**prompt.metadata, "snapshot_id": head}) if head else prompt

    def turns(self, branch: LiveBranch, run_id: str) -> tuple[str, ...]:
        """Return the user's messages that a run works for, the root session's first."""
        run = branch.conversation.runs.get(run_id)
        found = [] if run is None else [str(run.data["message_id"])]
        if (last := last_turn(branch.conversation)) and last not in found:
            found.insert(0, last)  # steering: it was read during the run
        ref = branch.ref
        session: Mapping[str, Any] = branch.conversation.session
        while ref.is_agent:
            if above := session.get("parent_message_id"):
                found.append(str(above))
            parent = paths.parent_of(ref)
            if parent is None:
                break
            live = self.kernel.opened(parent.key)
            session = first_row(parent.branch_dir) if live is None else live.conversation.session
            ref = parent
        return tuple(reversed(found))

    def tell(self, ref: BranchRef, changed: Sequence[str], call_id: str) -> None:
        """Tell the clients of a branch, and of its root session, which files changed."""
        if changed:
            facts = {"paths": list(changed[:_TOLD_PATHS]), "call_id": call_id, "more": len(changed) > _TOLD_PATHS}
            for key in dict.fromkeys((ref.key, paths.root_of(ref).key)):
                self.kernel.publish(Event("files", key, 0, (facts,)))

    def now_ms(self) -> int:
        """Return the time as changes record it, in milliseconds."""
        return self.kernel.clock.now_ms()

    def denies(self, ref: BranchRef) -> tuple[str, ...]:
        """Return the paths that a session denies its tools: they are not stored."""
        try:
            return self.kernel.presets.of_branch(ref).paths.deny
        except (PresetError, StoreError):
            return ()

    def tree_of(self, files: Iterable[str], root: Path | None, denies: tuple[str, ...]) -> str:
        """Store ``files`` and all of ``root`` as they are now, and return the id of the tree of ``/``; blocks.

        Raises:
            TooMuch: ``root`` is too large.
            StoreError: The disk refused.
        """
        outside = (path for path in files if root is None or not Path(path).is_relative_to(root))
        entries = list(entries_with_parents(outside, self.objects))
        if root is not None:
            entries.append((str(root), self.workspaces.snapshot(root, denies)))
        return assemble(self.objects, entries)

    @contextlib.asynccontextmanager
    async def changing(self, files: Iterable[str]) -> AsyncIterator[None]:
        """Keep other tools from changing ``files`` during the block."""
        async with contextlib.AsyncExitStack() as stack:
            for path in sorted(set(files)):
                await stack.enter_async_context(self._locks.setdefault(path, asyncio.Lock()))
            yield

    # -- housekeeping: calls without a recorded end, and pruning ---------------------------------------------------

    async def _recover(self) -> None:
        """Record the changes of calls that an earlier daemon left without an end; then prune if due."""
        try:
            async with self.gate.beside():
                await asyncio.to_thread(self.close_unfinished)
            if await asyncio.to_thread(self._is_prune_due):
                log.info("snapshots: %s", await self.prune())
        except (PyagentdError, OSError) as error:
            log.warning("snapshots: %s", error)

    def close_unfinished(self) -> None:
        """Record what calls without an end changed, marked as doubtful; blocks."""
        for key, files, begun in self.records.unfinished():
            live = self.kernel.opened(begun.branch)
            if begun.run and live is not None and live.run is not None and live.run.id == begun.run:
                continue  # it is still running
            sweep_beside(files)
            try:
                top = paths.ref_of(Path(key))
                after = self.tree_of(files, Path(begun.root) if begun.root else None, self.denies(top))
                if after == begun.before:
                    self.records.forget(begun.id)
                else:
                    self.records.append(top, replace(begun, after=after, ended=self.now_ms(), doubtful=True))
            except (PyagentdError, OSError) as error:
                log.warning("changes of %s before the daemon ended cannot be read: %s", begun.detail, error)
                self.records.forget(begun.id)

    def _is_prune_due(self) -> bool:
        """Return whether it is time to prune, and record the time if so."""
        marker, now_ms = self.kernel.config.sessions_dir / DIRECTORY / "pruned", self.now_ms()
        if not marker.parent.is_dir():
            return False
        with contextlib.suppress(OSError, ValueError):
            if abs(now_ms - int(regularfile.read_text(marker))) < _PRUNE_EVERY_MS:  # the clock may have jumped
                return False
        atomic.write_text(marker, str(now_ms), fsync=False)
        return True

    async def prune(self) -> Pruned:
        """Remove changes that are old, of deleted sessions, or over the limit; waits until no files are being stored.

        Raises:
            StoreError: The disk refused.
        """
        now = self.now_ms()

        def is_gone(change: Change) -> bool:
            return change.ended < now - _GONE_MS and not Path(change.branch).is_dir()

        async with self.gate.alone():
            self.workspaces.forget()
            return await asyncio.to_thread(prune, self.records, self.objects, now_ms=now, gone=is_gone)

    # -- what was changed ----------------------------------------------------------------------------------------

    async def changes(self, ref: BranchRef, message_id: str | None) -> list[Change]:
        """Return the changes since a message of the user in a branch or agent; with None, all of them.

        Raises:
            NotFound: There is no such message.
            StoreError: The records cannot be read.
        """
        known = await asyncio.to_thread(self.records.of, paths.root_of(ref))
        if message_id is None:
            return [each for each in known if not ref.is_agent or f"{each.branch}/".startswith(f"{ref.key}/")]
        async with self.kernel.using(ref) as branch:
            return since(known, turns_from(branch.conversation, message_id))

    async def last_turn(self, ref: BranchRef) -> str:
        """Return the id of the user's last message in a branch, "" if there is none."""
        async with self.kernel.using(ref) as branch:
            return last_turn(branch.conversation)

    # -- restoring files ---------------------------------------------------------------------------------------
    #
    # Previewed first, each file written atomically, and undoable itself. What somebody else changed since stays
    # unless the user decides otherwise. Files are opened by walking directory descriptors, so a symbolic link that an
    # agent put in place of a directory is not followed; nothing is written where no tool may write.

    async def preview(
        self, ref: BranchRef, message_id: str | None, only: Collection[str] | None = None
    ) -> list[dict[str, Any]]:
        """Return what restoring to before ``message_id`` would change, ``{path, change, reason, diff}`` each.

        Raises:
            NotFound: There is no such message.
            StoreError: Recorded content is not in the store any more.
        """
        changes = await self.changes(ref, message_id)

        def rows() -> list[dict[str, Any]]:
            return [
                {"path": each.path, "change": each.becomes, "reason": each.reason, "diff": self._diff(each)}
                for each in self._proposals(self._undos(changes, only))
            ]

        return await asyncio.to_thread(rows)

    async def restore(
        self,
        ref: BranchRef,
        message_id: str | None,
        only: Collection[str] | None = None,
        conflicts: Conflicts = "keep",
    ) -> RestoreReply:
        """Restore files to what they were when ``message_id`` was sent.

        Args:
            ref: The branch or agent whose changes are undone, with those of its agents.
            message_id: One of the user's messages in it; None means from its beginning.
            only: Absolute paths of files and directories; None means all.
            conflicts: For files changed since by somebody else: keep, write the old version beside it, or overwrite.

        Raises:
            NotFound: There is no such message.
            StoreError: A write failed, or recorded content is not in the store any more.
        """
        changes = await self.changes(ref, message_id)
        return await self._undo(ref, changes, only, conflicts)

    async def undo(self, ref: BranchRef, change_id: str) -> RestoreReply:
        """Undo one change; raises as ``restore``."""
        changes = await self.changes(paths.root_of(ref), None)
        found = [change for change in changes if change.id == change_id]
        if not found:
            raise NotFound(f"There is no change {change_id}", hint="Restoring tells the id that undoes it")
        return await self._undo(ref, found, None, "keep")

    async def _undo(
        self, ref: BranchRef, changes: Sequence[Change], only: Collection[str] | None, conflicts: Conflicts
    ) -> RestoreReply:
        turn = await self.last_turn(paths.root_of(ref))
        own = await self.last_turn(ref) if ref.is_agent else turn
        async with self.gate.beside():
            undos = await asyncio.to_thread(self._undos, changes, only)
            async with self.changing(each.path for each in undos):

                def perform() -> RestoreReply:  # files are compared after they are locked
                    return self._perform(ref, (turn, own), self._proposals(undos), conflicts)

                done = await asyncio.to_thread(perform)
        self.tell(ref, done["restored"], "")
        done["note"] = f"{len(done['restored'])} restored"
        if kept := done["kept"]:
            done["note"] += f", {len(kept)} kept ({kept[0]['reason']})"
        if done["copies"]:
            done["note"] += f"; the old version is in {', '.join(done['copies'])}"
        return done

    # -- planning ------------------------------------------------------------------------------------------------

    def _undos(self, changes: Sequence[Change], only: Collection[str] | None) -> list[Undo]:
        def is_wanted(path: str) -> bool:
            return only is None or any(path == each or path.startswith(each.rstrip("/") + "/") for each in only)

        return [each for path, each in plan_undo(self.objects, changes).items() if is_wanted(path)]

    def _proposals(self, undos: Iterable[Undo]) -> list[Proposal]:
        proposals = []
        for undo in undos:
            # A file whose content was not stored is compared by its stat.
            now = entry_at(undo.path, content=undo.expected is None or undo.expected.is_kept)
            becomes: Becomes
            if same(now, undo.target):
                continue
            # A file is removed only if that can be undone: it may be the user's, from an ignored directory.
            if (wanted := undo.target or undo.expected) is not None and not wanted.is_kept:
                becomes, reason = "unkept", NOT_KEPT
            elif first_match_folded(self._forbidden, undo.path):
                becomes, reason = "unkept", PROTECTED
            elif undo.doubt or not same(now, undo.expected):
                becomes, reason = "conflict", undo.doubt or CHANGED_SINCE
            else:
                becomes, reason = "delete" if undo.target is None else "create" if now is None else "restore", ""
            proposals.append(Proposal(path=undo.path, becomes=becomes, target=undo.target, now=now, reason=reason))
        return proposals

    def _diff(self, proposal: Proposal) -> str:
        """Return what restoring would change, as a unified diff against the current file."""
        if (proposal.now and proposal.now.is_dir) or (proposal.target and proposal.target.is_dir):
            return ""
        if proposal.becomes == "unkept" or (proposal.now and not proposal.now.is_kept):
            return ""
        now = _content_now(proposal.path, proposal.now)
        target = None if proposal.target is None else self.objects.get("blob", proposal.target.id)
        if proposal.target is not None and target is None:
            return "[the old version is not in the store any more]"
        if is_binary(now or b"") or is_binary(target or b""):
            return f"Binary file: {len(now or b'')} bytes now, {len(target or b'')} bytes then"
        before = None if now is None else now.decode(errors="replace")
        shown = unified_diff(before, (target or b"").decode(errors="replace"), proposal.path)
        if target is None:
            shown = shown.replace(f"+++ {proposal.path}", "+++ /dev/null", 1)
        if not shown and proposal.now is not None and proposal.target is not None:
            return f"mode {stat.S_IMODE(proposal.now.mode):o} now, {stat.S_IMODE(proposal.target.mode):o} then"
        return shown

    # -- performing ----------------------------------------------------------------------------------------------

    def _perform(
        self, ref: BranchRef, turns: tuple[str, ...], proposals: Sequence[Proposal], conflicts: Conflicts
    ) -> RestoreReply:
        done: RestoreReply = {"id": "", "restored": [], "kept": [], "copies": [], "note": ""}
        wanted = []
        for each in proposals:
            if each.becomes == "unkept" or (each.becomes == "conflict" and conflicts != "overwrite"):
                done["kept"].append({"path": each.path, "reason": each.reason})
                is_file = each.target is not None and not each.target.is_dir
                if each.becomes == "conflict" and conflicts == "copy" and is_file:
                    self._copy(each, done)
            else:
                wanted.append(each)
        if not wanted:
            return done
        now = self.now_ms()
        files = [each.path for each in wanted]
        before = self.tree_of(files, None, ())
        change = Change(
            id=new_id("snp"),
            turns=tuple(dict.fromkeys(filter(None, turns))),
            branch=ref.key,
            kind="restore",
            before=before,
            after=before,
            began=now,
            ended=now,
        )
        self.records.begin(paths.root_of(ref), change, tuple(files))
        sweep_beside(files)
        for each in removals(wanted):
            self._step(remove, each, done)
        for each in creations(wanted):
            self._step(self._create, each, done)
        failed = {row["path"] for row in done["kept"]}
        done["restored"] = [path for path in files if path not in failed]
        if (after := self.tree_of(files, None, ())) == before:
            self.records.forget(change.id)
        else:  # so that the restore can be undone
            self.records.append(paths.root_of(ref), replace(change, after=after))
            done["id"] = change.id
        return done

    def _step(self, step: Callable[[Proposal], None], proposal: Proposal, done: RestoreReply) -> None:
        try:
            step(proposal)
        except (OSError, PyagentdError) as error:
            reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            done["kept"].append({"path": proposal.path, "reason": reason})

    def _create(self, proposal: Proposal) -> None:
        entry = proposal.target
        assert entry is not None
        if entry.is_dir:
            with parent(proposal.path, create=True) as (directory, name), contextlib.suppress(FileExistsError):
                os.mkdir(name, stat.S_IMODE(entry.mode) or 0o755, dir_fd=directory)
            return
        content = require_content(self.objects.get("blob", entry.id), f"The old version of {proposal.path}")
        put(proposal.path, entry, content)

    def _copy(self, proposal: Proposal, done: RestoreReply) -> None:
        """Write the old version beside a file that is kept."""
        number = 1
        while os.path.lexists(f"{proposal.path}.~{number}~"):
            number += 1
        path = f"{proposal.path}.~{number}~"
        with contextlib.suppress(OSError, StoreError, ToolError):
            self._create(replace(proposal, path=path))
            done["copies"].append(path)


def _content_now(path: str, now: Entry | None) -> bytes | None:
    if now is None:
        return None
    try:
        if now.is_link:
            return os.fsencode(os.readlink(path))  # noqa: PTH115
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return None
