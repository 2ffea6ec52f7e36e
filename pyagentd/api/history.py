"""Operations on history: rewind, edit and regenerate, variants, forks, restoring files, saved conversations."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict, cast

from pyagentd.api.group import NOTHING, Client, Env, Group, reply_of, send_options, typed_title
from pyagentd.errors import BadRequest, Busy, NotFound
from pyagentd.features import history as looking
from pyagentd.features.contexts import KEPT, Contexts
from pyagentd.features.history import History, HistoryChange, chosen_prompt, fork_of, forks_of, variants_of
from pyagentd.features.snapshots import Conflicts, RestoreReply, Snapshots
from pyagentd.runtime.queue import Receipt
from pyagentd.store import paths
from pyagentd.store.contexts import Trigger
from pyagentd.store.conversation import Conversation
from pyagentd.store.db import agents
from pyagentd.store.db.agents import ContextRow
from pyagentd.store.paths import BranchPlaces, BranchRef, describe_branch
from pyagentd.store.snapshots import Pruned

_SHOWN = 200  # characters of a variant


class HistoryRun(HistoryChange):
    """The messages that were hidden and shown, and the new run."""

    run: str | None
    message: str
    seq: int


class VariantRow(TypedDict):
    """One variant of a message."""

    n: int  # from 1
    message: str
    current: bool
    turns: int
    text: str  # the beginning


class MessageVariants(TypedDict):
    """The variants of a message, oldest first."""

    message: str
    of: list[VariantRow]


class VariantsReply(TypedDict):
    """Variants by message."""

    variants: list[MessageVariants]


class PromptRow(TypedDict):
    """A prompt to rewind to."""

    message_id: str
    text: str  # the beginning
    created_at: int | None  # epoch ms


class HistoryReply(TypedDict):
    """The Emacs positions of hidden turns and variants in the document, and the prompts."""

    revision: int | None  # of the document; nil if nothing is hidden
    hidden: list[tuple[int, int, int, str | None]]  # begin, end, number of turns, what hid them
    variants: list[tuple[int, int, str, int, int]]  # begin, end, message, shown variant (0: none), number of variants
    prompts: list[PromptRow]  # oldest first


class ForkReply(BranchPlaces):
    """The ids and paths of a fork."""

    dir: str


class ForkRow(TypedDict):
    """A session that was forked from another."""

    session_id: str
    dir: str
    branch: str
    file: str
    message: str | None  # the last message that it copied
    parent_branch: str | None
    created: str | None  # ISO 8601


class ForksReply(TypedDict):
    """Forks, oldest first."""

    forks: list[ForkRow]


_SNAPSHOTS_SHOWN = 400_000  # characters of all diffs in one reply


class ChangeRow(TypedDict):
    """What restoring would do to a file."""

    path: str
    change: Literal["restore", "create", "delete", "conflict", "unkept"]
    reason: str
    diff: str | None  # from the current file; nil: the reply had no room for it


class ChangesReply(TypedDict):
    """What restoring would do to files."""

    files: list[ChangeRow]


class SavedConversation(TypedDict):
    """A saved conversation."""

    id: str
    agent_name: str  # the name of the agent, or the id of its session
    description: str
    saved_at: str  # ISO 8601
    trigger: Trigger
    message_count: int
    file: str


class ListedConversation(SavedConversation):
    """A saved conversation, and whether it can be restored."""

    gone: bool  # its file is missing


class ConversationHistory(TypedDict):
    """Saved conversations, the last one first."""

    contexts: list[ListedConversation]


class ClearReply(TypedDict):
    """The result of clearing a conversation."""

    messages: int
    note: str


class Histories(Group):
    """Rewinding, variants, forks, restoring files, saved conversations."""

    async def rewind(self, client: Client, *, branch: str, message: str, files: bool = False) -> HistoryChange:
        """Hide everything after the user's message ``message``; with ``files`` undo the turns' changes to files."""
        async with self._kernel.using(self._ref(branch)) as live:
            return await self._history.rewind(live, message, files=files)

    async def unrewind(self, client: Client, *, branch: str) -> HistoryChange:
        """Reverse the last rewind."""
        async with self._kernel.using(self._ref(branch)) as live:
            return await self._history.unrewind(live)

    async def edit(
        self,
        client: Client,
        *,
        branch: str,
        message: str,
        text: str,
        env: Env = NOTHING,
        allow: Sequence[str] = (),
    ) -> HistoryRun:
        """Hide the user's message ``message`` and everything after it, and run ``text`` instead."""
        options = send_options(client, env, allow)
        async with self._kernel.using(self._ref(branch)) as live:
            changed, submitted = await self._history.edit(live, message, text, options)
        return _with_run(changed, submitted)

    async def regenerate(
        self,
        client: Client,
        *,
        branch: str,
        message: str | None = None,
        env: Env = NOTHING,
        allow: Sequence[str] = (),
    ) -> HistoryRun:
        """Run the last prompt again, or that of ``message``; the answer so far becomes a variant of the new one."""
        options = send_options(client, env, allow)
        async with self._kernel.using(self._ref(branch)) as live:
            changed, submitted = await self._history.regenerate(live, message, options)
        return _with_run(changed, submitted)

    async def variants(self, client: Client, *, branch: str, message: str | None = None) -> VariantsReply:
        """Return the variants of ``message``, or of all messages that have some, oldest first."""
        async with self._kernel.using(self._ref(branch)) as live:
            conversation = live.conversation
            asked = [id for id, _, _ in looking.shown_variants(conversation)] if message is None else [message]
            return {"variants": [{"message": id, "of": _variants(conversation, id)} for id in asked]}

    async def choose_variant(self, client: Client, *, branch: str, message: str, n: int) -> HistoryChange:
        """Show variant ``n`` (from 1) of ``message``, with the turns that came after it."""
        async with self._kernel.using(self._ref(branch)) as live:
            return await self._history.choose(live, message, n)

    async def prompt_text(self, client: Client, *, branch: str, message: str) -> str:
        """Return the recorded text of the user's message ``message``."""
        async with self._kernel.using(self._ref(branch)) as live:
            return chosen_prompt(live.conversation, message).text

    async def history(self, client: Client, *, branch: str) -> HistoryReply:
        """Return the document's regions of hidden turns and of messages with variants, and the prompts."""
        async with self._kernel.using(self._ref(branch)) as live:
            conversation = live.conversation.snapshot()
            now = await live.document.look()
            found = await asyncio.to_thread(looking.history, now.document, now.revision, conversation)
            return cast(HistoryReply, {**found, "prompts": looking.prompts(conversation)})

    async def fork(
        self, client: Client, *, branch: str, message: str | None = None, title: str | None = None
    ) -> ForkReply:
        """Create a session with the conversation up to ``message``, by default all of it."""
        wanted = typed_title(title) if title and title.strip() else None
        async with self._kernel.using(self._ref(branch)) as live:
            made = await fork_of(self._kernel, live, message, title=wanted)
        self._registry.add(made)
        self._tell_written(made)
        return {**describe_branch(made), "dir": str(made.session_dir)}

    async def forks(self, client: Client, *, branch: str) -> ForksReply:
        """Return the sessions that were forked from a session, oldest first."""
        ref = self._ref(branch)
        refs = [entry.ref for entry in self._registry.scan()]
        return {"forks": cast(list[ForkRow], await asyncio.to_thread(forks_of, ref, refs))}

    @property
    def _history(self) -> History:
        return History(self._kernel)

    async def changes(
        self, client: Client, *, branch: str, message: str | None = None, paths: Sequence[str] | None = None
    ) -> ChangesReply:
        """Return what restoring files to their state before a user's message would do.

        ``message`` nil means the whole session, ``last`` the last message. A file that another program changed since
        is a ``conflict``, which restoring keeps by default; of an ``unkept`` file there is no old version.
        """
        ref = self._ref(branch)
        found = await self._kernel.feature(Snapshots).preview(ref, await self._message(ref, message), paths)
        room = _SNAPSHOTS_SHOWN
        for row in found:
            room -= len(row["diff"])
            if room < 0:
                row["diff"] = None
        return {"files": cast(list[ChangeRow], found)}

    async def restore(
        self,
        client: Client,
        *,
        branch: str,
        message: str | None = None,
        paths: Sequence[str] | None = None,
        conflicts: Conflicts = "keep",
    ) -> RestoreReply:
        """Restore files to their state before a user's message.

        ``paths`` are files and directories, nil all; ``conflicts`` says what to do with files that another program
        changed since: keep, copy (save the old version beside it) or overwrite.
        """
        ref = self._ref(branch)
        self._require_quiet(ref)
        since = await self._message(ref, message)
        return await self._kernel.feature(Snapshots).restore(ref, since, paths, conflicts)

    async def undo_restore(self, client: Client, *, branch: str, id: str) -> RestoreReply:
        """Undo a restore."""
        ref = self._ref(branch)
        self._require_quiet(ref)
        return await self._kernel.feature(Snapshots).undo(ref, id)

    async def prune_snapshots(self, client: Client) -> Pruned:
        """Delete old snapshots now."""
        return await self._kernel.feature(Snapshots).prune()

    async def _message(self, ref: BranchRef, message: str | None) -> str | None:
        """Return the message id: ``message`` itself, or for "last" the user's last message."""
        return await self._kernel.feature(Snapshots).last_turn(ref) if message == "last" else message

    def _require_quiet(self, ref: BranchRef) -> None:
        """Raise ``Busy`` while an agent of the session may change files."""
        for live in self._kernel.inside(paths.root_of(ref).branch_dir):
            if live.run is not None:
                raise Busy(f"{live.ref.name} is answering", hint="Wait for the answer, or abort it first")

    async def context_save(
        self,
        client: Client,
        *,
        branch: str,
        description: str = "",
        env: Env = NOTHING,
    ) -> SavedConversation:
        """Save the conversation and continue it; without ``description`` a model writes one."""
        options = send_options(client, env, ())
        async with self._kernel.using(self._ref(branch)) as live:
            return _saved_conversation(await self._kernel.feature(Contexts).save(live, description, options=options))

    async def context_clear(self, client: Client, *, branch: str) -> ClearReply:
        """Start a new conversation without saving the current one, which the model no longer sees."""
        async with self._kernel.using(self._ref(branch)) as live:
            cleared = await self._kernel.feature(Contexts).clear(live)
        return {"messages": cleared, "note": KEPT}

    async def context_restore(self, client: Client, *, branch: str, id: str) -> SavedConversation:
        """Replace the current conversation by the saved one whose id is, or begins with, ``id``."""
        async with self._kernel.using(self._ref(branch)) as live:
            return _saved_conversation(await self._kernel.feature(Contexts).restore(live, id))

    async def context_get(self, client: Client, *, branch: str, id: str) -> SavedConversation:
        """Return the saved conversation of a branch's session or agent whose id is, or begins with, ``id``."""
        return _saved_conversation(await self._kernel.feature(Contexts).get(self._ref(branch), id))

    async def context_history(
        self, client: Client, *, branch: str | None = None, agent: str | None = None
    ) -> ConversationHistory:
        """Return the saved conversations of a branch's session or agent, the last one first.

        ``agent`` may name a destroyed agent: the records of its conversations are kept.
        """
        if (branch is None) == (agent is None):
            raise BadRequest("Name a branch or an agent", hint="`pyagentd list contexts SESSION`: those of one")
        saved = self._kernel.feature(Contexts)
        found = await saved.known(agent) if agent else await saved.history(self._ref(branch or ""))
        if agent and not found and await asyncio.to_thread(agents.find, self._kernel.state, agent) is None:
            hint = "List them with /agent list, on the command line with `pyagentd agent list`"
            raise NotFound(f"There is, and was, no agent called {agent[:80]!r}", hint=hint)
        gone = await asyncio.to_thread(lambda: [not Path(row.file_path).is_file() for row in found])
        rows = zip(found, gone, strict=True)
        return {"contexts": [{**_saved_conversation(row), "gone": is_gone} for row, is_gone in rows]}


def _with_run(changed: HistoryChange, made: Receipt) -> HistoryRun:
    return {**changed, "run": made.run_id, "message": made.message_id, "seq": made.seq}


def _variants(conversation: Conversation, message_id: str) -> list[VariantRow]:
    return [
        {
            "n": number,
            "message": variant.first.id,
            "current": variant.group is None,
            "turns": len(variant.messages),
            "text": variant.first.text[:_SHOWN],
        }
        for number, variant in enumerate(variants_of(conversation, message_id), 1)
    ]


def _saved_conversation(row: ContextRow) -> SavedConversation:
    return reply_of(SavedConversation, row, file=row.file_path)
