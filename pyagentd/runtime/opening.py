"""Opens a branch from disk: folds its log, ends what an earlier daemon left unfinished, and reports what it found.

Blocks, and runs in a thread. A branch on a disk that cannot be written is opened read-only, with the reason. When the
daemon starts, ``SessionTrees`` opens those in which a run, a question or a queue of an earlier daemon waits.
"""

import asyncio
import logging
import os
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pyagentd import regularfile
from pyagentd.clock import Clock
from pyagentd.errors import NotASession, StoreError, ToolError
from pyagentd.llm.backend import Backend, ModelRequest, StreamItem
from pyagentd.messages import ToolCall
from pyagentd.policy.action import Action, Target
from pyagentd.runtime.document_sync import RunText
from pyagentd.runtime.settings import LateArrival
from pyagentd.runtime.status import RESTART, Outcome
from pyagentd.store import atomic, metadata, paths
from pyagentd.store.conversation import Conversation
from pyagentd.store.db import tasks
from pyagentd.store.db.projection import Projection
from pyagentd.store.db.state import State
from pyagentd.store.db.tasks import Hint
from pyagentd.store.document import text
from pyagentd.store.document.files import DocumentChanged, write_document
from pyagentd.store.document.hidden import is_visible, rebuild
from pyagentd.store.document.render import RUN_CLOSE, Insert, Renderer, prompt_text
from pyagentd.store.journal import Journal
from pyagentd.store.paths import BranchRef
from pyagentd.store.registry import RunProgress, SuspendedRun, suspended_runs
from pyagentd.store.trace import OrgLog
from pyagentd.tools.spec import DAY_S, Args, Output, ToolContext, ToolSpec

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel


RESTARTED = "The daemon ended before this was done"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedBranch:
    """A branch as read from disk."""

    journal: Journal
    conversation: Conversation
    renderer: Renderer  # was fed the rows of the last run, if that is resumed
    last_run: RunText | None  # the last run, if the document may lack some of its text
    refusal: str  # why nothing can be written; "" when it can
    notes: tuple[str, ...]  # one line each, for people
    lasting: tuple[str, ...]  # notes about lasting conditions, to be shown once
    emptied: bool  # the document was empty, and was restored from the log
    is_new: bool  # the document lacks its Local Variables: it was restored, or was never written


def open_branch(ref: BranchRef, *, goes_on: bool = False, ended: Outcome | None = None) -> OpenedBranch:
    """Open a branch.

    Args:
        ref: The branch.
        goes_on: Leave its last run unfinished, because it is resumed.
        ended: How its last run ended, if that could not be recorded; None: the end of a daemon cut it off.

    Raises:
        StoreError: Its log cannot be read.
    """
    journal = Journal.open(paths.journal_file(ref.branch_dir))
    try:
        conversation = Conversation(journal.current())
        notes, lasting = tuple(_notes(journal, conversation)), tuple(_lasting_notes(ref, journal, conversation))
        refusal = journal.refusal or refusal_of(ref)
        if not refusal:
            for directory in (ref.branch_dir,) if ref.is_agent else (ref.branch_dir, ref.session_dir):
                atomic.sweep(directory)  # remove drafts of a killed process
            refusal = "" if goes_on else _end_interrupted(ref, journal, conversation, ended)
        lost = "" if refusal else _loss(ref, conversation)
        if lost == "empty":
            with suppress(OSError):  # a crash from here on leaves it missing, which is restored too
                paths.session_file(ref.branch_dir).unlink()
        if lost in ("missing", "empty"):
            # Rebuild the document from the log, including the text so far of a run that is resumed.
            with suppress(DocumentChanged):  # another program just wrote one
                write_document(paths.session_file(ref.branch_dir), rebuild(conversation, is_agent=ref.is_agent))
            if (run := conversation.last_run) is not None and not goes_on:
                conversation.apply(journal.append("run", {**run.data, "state": "kept"}))
            hint = f". {CLEARS}" if lost == "empty" else ""
            notes = (*notes, f"{paths.SESSION_FILE} was {lost}; it was made anew from {paths.JOURNAL_FILE}{hint}")
        renderer = Renderer()
        return OpenedBranch(
            journal=journal,
            conversation=conversation,
            last_run=_last_run(ref, journal, conversation, renderer, is_unwritten=lost == "unwritten"),
            renderer=renderer if goes_on else Renderer(),
            refusal=refusal,
            notes=notes,
            lasting=lasting,
            emptied=lost == "empty",
            is_new=bool(lost),
        )
    except BaseException:
        journal.close()
        raise


BLANK = 1024  # bytes of white space at most
CLEARS = "If the conversation is to be forgotten, type /context clear"


def _loss(ref: BranchRef, conversation: Conversation) -> Literal["", "missing", "empty", "unwritten"]:
    """Return what the document lacks; ``unwritten`` if the first run was cut off before anything was written."""
    file = paths.session_file(ref.branch_dir)
    if conversation.messages and not file.exists():
        return "missing"
    try:
        if file.stat().st_size > BLANK or regularfile.read_bytes(file, limit=BLANK).strip():
            return ""
    except OSError:
        return ""
    if not is_visible(conversation):
        return ""
    # The log has the settings that a daemon wrote, and which runs' texts the document has.
    written = conversation.session.get("metadata_json", {}).get("settings")
    runs = [run.is_kept for run in conversation.runs.values()]
    return "unwritten" if written is None and runs == [False] else "empty"


def refusal_of(ref: BranchRef) -> str:
    """Return why nothing can be written to a branch, "" if it seems writable; a quick check.

    Raises:
        StoreError: Its log cannot be read.
    """
    log = paths.journal_file(ref.branch_dir)
    try:
        atomic.close_fd(atomic.open_append(log, create=False))
    except FileNotFoundError:
        pass  # it can be created in the directory
    except StoreError as error:
        return error.message
    if not os.access(ref.branch_dir, os.W_OK | os.X_OK):
        # A document is replaced, not overwritten, so the directory must be writable.
        read_only = os.statvfs(ref.branch_dir).f_flag & os.ST_RDONLY
        return f"{ref.branch_dir}: {'the file system is read-only' if read_only else 'permission denied'}"
    return ""


def _end_interrupted(ref: BranchRef, journal: Journal, conversation: Conversation, ended: Outcome | None) -> str:
    """Record the end of an interrupted run; return why that could not be recorded, or ""."""
    rows = list(open_ends(conversation, RESTARTED if ended is None else ended.message or "aborted"))
    run = conversation.last_run
    if run is not None and not run.is_finished:
        if _has_end(ref, journal, conversation):
            # The run ended, but the log was cut off. Its text must not be written into the document again.
            rows += [("run", {**run.data, "state": state, "reason": "restart"}) for state in ("finished", "kept")]
        else:
            cut = ended or Outcome(reason="aborted", text="", code=RESTART, message=RESTARTED)
            rows.append(("run", {**run.data, "state": "finished", "reason": cut.recorded, "error": cut.error}))
    tools = OrgLog(ref.branch_dir)
    try:
        for row in journal.append_many(rows):
            conversation.apply(row)
            if row.type == "part" and row.data["type"].startswith("tool-"):
                tools.tool(row.data["data_json"], row.data["updated_at"])
    except StoreError as error:
        return error.message
    tools.flush()
    return ""


def _has_end(ref: BranchRef, journal: Journal, conversation: Conversation) -> bool:
    """Return whether the document shows the end of the last run, which the log lacks."""
    last = _last_run(ref, journal, conversation, Renderer())
    calls = [part for part in conversation.parts.values() if part.data.get("state") == "input-available"]
    if last is None or calls:
        return False
    try:
        doc = text.read(paths.session_file(ref.branch_dir))
    except StoreError:
        return False
    marker, lacking = last.missing_inserts(doc, "")
    # The log may lack the end of the answer, too.
    inside = next((span for span in doc.spans if span.start <= marker < span.end), None)
    end = inside.end if inside else marker
    return not lacking and end > last.anchor and doc.body.startswith(RUN_CLOSE, end)


def open_ends(conversation: Conversation, why: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows, type and data, that end every open part and every open question.

    Text is kept as far as it came; a call gets ``why`` as its error.
    """
    for part in [conversation.parts[part_id] for part_id in conversation.open_parts]:
        match part.data.get("state"):
            case "streaming":
                yield "part", {**part.row, "data_json": {**part.data, "text": part.text, "state": "done"}}
            case "input-available":
                data = {**part.data, "state": "output-error", "errorText": why}
                yield "part", {**part.row, "data_json": data, "tool_state": data["state"]}
    for ask in conversation.asks.values():
        if ask["decision"] is None:
            yield "ask", {**ask, "decision": "abort", "decided_reason": why}


def _last_run(
    ref: BranchRef, journal: Journal, conversation: Conversation, renderer: Renderer, *, is_unwritten: bool = False
) -> RunText | None:
    """Return the last run's text and feed its rows to ``renderer``; with the prompt if nothing was written."""
    run = conversation.last_run
    if run is None or run.is_kept:
        return None
    inserts = [insert for row in journal.rows(after=run.first_seq - 1) for insert in renderer.feed(row)]
    message = conversation.messages.get(run.data["message_id"])
    inserted = run.data.get("prompt")
    if is_unwritten and message is not None:
        inserted = prompt_text("", message.text, is_agent=ref.is_agent)
    if inserted:
        inserts.insert(0, Insert(inserted, None, "", run.first_seq - 1))
    prompt = message.text if message else str(run.data.get("behind") or "")
    return RunText(
        prompt=run.data.get("above") or prompt,
        asked=prompt,
        inserted_prompt=bool(inserted),
        anchor=0 if is_unwritten else run.data.get("anchor") or 0,
        inserts=inserts,
    )


def _notes(journal: Journal, conversation: Conversation) -> Iterator[str]:
    if journal.torn:
        yield f"{paths.JOURNAL_FILE}: its last line was not written to its end and is dropped"
    root = conversation.session.get("workspace_root")
    if root and not Path(root).is_dir():
        yield f"The workspace {root} does not exist on this machine; tools cannot run there"


def _lasting_notes(ref: BranchRef, journal: Journal, conversation: Conversation) -> list[str]:
    notes = []
    if journal.damaged:
        lines = "1 damaged line is" if journal.damaged == 1 else f"{journal.damaged} damaged lines are"
        notes.append(f"{paths.JOURNAL_FILE}: {lines} skipped; what can be read is used, nothing is removed")
    name = (metadata.read_session_metadata(ref.branch_dir) or {}).get("session_id")
    if name and name != ref.session_id:
        notes.append(f"This session was called {name}; its directory was renamed, so it is {ref.session_id} now")
    noted = conversation.session.get("metadata_json", {}).get("noted", ())
    return [note for note in notes if note not in noted]


# Resuming a run after its daemon ended.
#
# The calls of its last request are made again only if that is safe: calls that have not begun, whether a human has
# answered or must still be asked, and calls without side effects. A call whose agent exists waits for that agent. Any
# other call that had begun is closed as aborted. The client that sent the message is gone, with its environment and
# keys: those of the client that answers are used instead (``settings.LateArrival``).

Rejoin = Callable[[ToolCall], Awaitable[Output | None]]
"""Waits for the agent that a call spawned, and returns the call's result; None if it spawned none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedRun:
    """The state from which a run is resumed.

    Attributes:
        standing: The recorded part of its answer.
        begun: Ids of the calls with side effects that had begun.
        rejoin: Waits again for the agent of a call.
    """

    standing: RunProgress
    begun: frozenset[str]
    rejoin: Rejoin

    def stand_in(self, call: ToolCall) -> ToolSpec:
        """Return a tool for a call that had begun: it waits for the call's agent, or fails as aborted."""

        async def run(args: Args, ctx: ToolContext) -> Output:
            result = await self.rejoin(call)
            if result is None:
                raise ToolError(RESTARTED)
            return result

        return ToolSpec(
            name=call.name,
            description="",
            input_schema={"type": "object", "properties": {}},
            kind="meta",
            timeout_s=DAY_S,
            run=run,
            describe=lambda args, ctx: Target(detail=""),
        )


async def decided_before(action: Action) -> None:
    """Allow a call that was decided before the daemon ended; see ``tools.invoke.Authorise``."""


class DeferredBackend:
    """The backend of a resumed run, created at its first request, so that the key is needed only then.

    Args:
        make: Returns the backend and the model's name; raises like ``settings.backend_for``.
    """

    def __init__(self, make: Callable[[], tuple[Backend, str]]) -> None:
        self._make = make
        self._made: tuple[Backend, str] | None = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamItem], None]:
        """Send ``request``; see ``llm.backend.Backend``."""
        if self._made is None:
            self._made = self._make()
        backend, model = self._made
        batches = backend.stream(replace(request, model=model))
        try:
            async for batch in batches:
                yield batch
        finally:
            await batches.aclose()

    async def close(self) -> None:
        """Do nothing: the factory closes its backends."""


log = logging.getLogger(__name__)

# Hints for the next daemon: the branches in which something waits (``store.db.tasks``).
#
# Writing them is asynchronous and best effort: changes are gathered while earlier ones are written, and a failure is
# only logged.


class WaitingRun(NamedTuple):
    """A question, queued message or background result that an earlier daemon left waiting."""

    ref: BranchRef
    kind: str
    id: str


class PendingHints:
    """The hints of one sessions root; ``note`` neither blocks nor raises.

    Args:
        state: The database.
        projection: Maps branches to their names in the database.
        clock: Gives the time of a hint.
        own: Runs a coroutine in a task that the daemon awaits before it ends.
    """

    def __init__(
        self,
        state: State,
        projection: Projection,
        clock: Clock,
        own: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._state = state
        self._projection = projection
        self._clock = clock
        self._own = own
        self._changes: dict[Hint, bool] = {}  # True: to be noted
        self._writing = False

    def note(self, branch: BranchRef, kind: str, id: str, *, waits: bool = True) -> None:
        """Record that something waits in a branch, or, without ``waits``, that it does not any more."""
        self._changes[Hint(self._projection.key(branch.branch_dir), kind, id)] = waits
        if not self._writing:
            self._writing = True
            self._own(self._write())

    def found(self) -> list[WaitingRun]:
        """Return what waits, and delete the hints of branches that are gone; blocks, for a thread."""
        waiting = []
        try:
            for hint in tasks.found(self._state):
                try:
                    ref = paths.ref_of(self._projection.directory(hint.branch_dir))
                except NotASession:
                    tasks.forget_branch(self._state, hint.branch_dir)
                else:
                    waiting.append(WaitingRun(ref, hint.kind, hint.id))
        except StoreError as error:
            log.warning(
                "cannot look for waiting questions and queues; sessions do so when they are opened: %s", error
            )
        return waiting

    async def _write(self) -> None:
        while self._changes:
            changes, self._changes = self._changes, {}
            noted = [hint for hint, new in changes.items() if new]
            forgotten = [hint for hint, new in changes.items() if not new]
            now_ms = self._clock.now_ms()
            try:
                await asyncio.to_thread(tasks.change, self._state, noted, forgotten, now_ms=now_ms)
            except StoreError as error:
                log.warning("%s", error)
        self._writing = False


# Finding and resuming suspended runs, once for each tree of sessions.
#
# Opening a branch with a suspended run resumes the run. The tree of a branch is scanned before any of its branches is
# opened, so no client sees a run that is neither in flight nor over. The topmost branches with a suspended run are
# opened at once, and their runs open the agents that they wait for.

ASKED_AGAIN_S = 10.0  # how long to wait until questions of an earlier daemon are asked again


class SessionTrees:
    """Finds the suspended runs of earlier daemons in trees of sessions.

    Args:
        kernel: Opens the branches.

    Attributes:
        suspended: The suspended runs by the key of their branch; opening the branch resumes the run.
        late: The environment of clients for the resumed runs of a tree, by its root's key.
    """

    def __init__(self, kernel: "Kernel") -> None:
        self._kernel = kernel
        self._looks: dict[str, asyncio.Task[None]] = {}  # scans in progress, by the root's key
        self._looked: set[str] = set()  # keys of scanned roots; a finished task would keep its client in memory
        self.suspended: dict[str, SuspendedRun] = {}
        self.late: defaultdict[str, LateArrival] = defaultdict(LateArrival)
        self._expected: dict[str, str] = {}  # ids of questions that will be asked again, with their runs
        self._found: set[str] = set()  # ids of all questions found
        self._moved = asyncio.Event()
        self._waking: asyncio.Task[None] | None = None

    # -- finding -----------------------------------------------------------------------------------------------

    def wake_all(self) -> None:
        """Scan the trees in which something waits, and resume their runs and queues, in the background."""
        self._waking = self._kernel.spawn(self._wake_all())

    async def wake(self, ref: BranchRef) -> None:
        """Scan the tree of a branch, or wait until it is scanned."""
        root = paths.root_of(ref)
        if root.key in self._looked:
            return
        if (task := self._looks.get(root.key)) is None:
            task = self._looks[root.key] = self._kernel.spawn(self._look(root))
        await asyncio.shield(task)

    async def awake(self) -> None:
        """Wait until the known open questions of an earlier daemon are asked again, with a time limit."""
        if self._waking is not None:
            await asyncio.shield(self._waking)
            self._waking = None
        if not self._expected:
            return
        try:
            async with asyncio.timeout(ASKED_AGAIN_S):
                while self._expected:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            log.error("%d questions of an earlier daemon were not asked again", len(self._expected))
            self._expected.clear()

    async def _wake_all(self) -> None:
        owed, hints = {}, self._kernel.hints
        for ref, kind, id in await asyncio.to_thread(hints.found):
            await self.wake(ref)
            if kind in ("background", "queue"):
                owed[ref.key] = ref
            elif id not in self._found:
                hints.note(ref, kind, id, waits=False)
        for ref in owed.values():  # opening it delivers results and queued messages
            self._kernel.spawn(self._kernel.hold(ref))

    async def _look(self, root: BranchRef) -> None:
        try:
            tree = await asyncio.to_thread(suspended_runs, root)
        except StoreError as error:  # reported to the client that opens it
            log.warning("%s", error)
            return
        finally:
            self._looked.add(root.key)
            del self._looks[root.key]
        found = tree.values()
        asked = [ask for each in found for ask in (*each.asks, *each.answered)]
        if not found or any(map(self._kernel.asks.knows, asked)):  # a copied session must not resume them
            return
        self.suspended.update(tree)
        asks = {ask: each.run_id for each in found for ask in each.asks}
        self._expected.update(asks)
        self._found.update(asks, *(each.answered for each in found))
        log.info("%s: %d runs resumed, %d questions open", root.name, len(tree), len(asks))
        for each in found:
            if each.is_first:
                self._kernel.spawn(self._kernel.hold(each.ref))

    # -- resuming ----------------------------------------------------------------------------------------------

    def below(self, ref: BranchRef) -> list[BranchRef]:
        """Return the agents below a branch with suspended runs that other runs wait for, nearest first."""
        awaited = (each.ref for each in self.suspended.values() if not each.is_first)
        return [agent for agent in awaited if agent.branch_dir.is_relative_to(ref.branch_dir)]

    def on_asked(self, ask_id: str) -> None:
        """Handle a question that is asked again."""
        if self._expected.pop(ask_id, None) is not None:
            self._moved.set()

    def on_run_ended(self, run_id: str) -> None:
        """Stop expecting questions of a run."""
        for ask_id in [ask for ask, run in self._expected.items() if run == run_id]:
            self.on_asked(ask_id)
