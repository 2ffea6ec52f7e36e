"""The conversations that were saved: files, and the rows by which they are found.

Every session has some; those of a named agent are files in its ``sessions/``, others' are among the files of their
branch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyagentd.errors import BadRequest, NotFound
from pyagentd.store import contexts, paths
from pyagentd.store.contexts import Context
from pyagentd.store.conversation import Conversation
from pyagentd.store.db import agents
from pyagentd.store.db.agents import ContextRow
from pyagentd.store.document import hidden
from pyagentd.store.named_agents import named_dir, saved_dir
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel


class Owner(NamedTuple):
    """Whose contexts those of a branch are, and where their files are."""

    name: str  # of a named agent, or a session's id
    directory: Path
    is_named: bool


class Archive:
    """The saved conversations of one daemon's sessions."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    async def history(self, ref: BranchRef) -> list[ContextRow]:
        """Return the saved conversations of an agent or a session, the last one first."""
        owner = self.owner(ref)
        await self._adopt(owner)
        return await asyncio.to_thread(agents.of, self._kernel.state, owner.name)

    async def last(self, ref: BranchRef) -> ContextRow | None:
        """Return what was saved last of an agent or a session and has a row, if anything."""
        return next(iter(await asyncio.to_thread(agents.of, self._kernel.state, self.owner(ref).name)), None)

    async def known(self, agent_name: str) -> list[ContextRow]:
        """Return the saved conversations of an agent that may be gone, the last one first.

        Of one that is gone those of all that were ever called this.
        """
        row = await asyncio.to_thread(agents.find, self._kernel.state, agent_name)
        is_there = row is not None and row.status != "destroyed"
        return await asyncio.to_thread(agents.of if is_there else agents.ever, self._kernel.state, agent_name)

    async def get(self, ref: BranchRef, id: str) -> ContextRow:
        """Return the saved conversation of an agent or a session whose id is, or begins with, ``id``.

        Raises:
            NotFound, BadRequest: There is none, or there are several.
        """
        owner = self.owner(ref)
        await self._adopt(owner)
        found = await asyncio.to_thread(agents.find_context, self._kernel.state, id, owner.name) if id else []
        if not found:
            raise NotFound(
                f"{owner.name} has no saved context {id}", mend="`pyagentd context history` lists those there are"
            )
        if len(found) > 1:
            listed = ", ".join(row.id for row in found[:8])
            raise BadRequest(f"Several contexts begin with {id}: {listed}", mend="Give more of the id")
        return found[0]

    def owner(self, ref: BranchRef) -> Owner:
        """Return whose the contexts of a branch are."""
        named = named_dir(self._kernel.config.agents_dir.resolve(), ref)
        if named is not None:
            return Owner(named.name, saved_dir(named), is_named=True)
        return Owner(ref.session_id, contexts.contexts_dir(ref), is_named=False)

    async def put(self, ref: BranchRef, context: Context, *, first_id: str, last_seq: int) -> ContextRow:
        """Save a conversation and return its row.

        Args:
            ref: Where it was.
            context: The conversation.
            first_id: Of its first message.
            last_seq: The last row of the log that it knows.

        Raises:
            StoreError: The disk refused.
        """
        owner, journal = self.owner(ref), paths.journal_file(ref.branch_dir)

        def write() -> ContextRow:
            path = contexts.write(owner.directory, context)
            row = replace(row_of(context, path), first_seq=contexts.first_row(journal, first_id), last_seq=last_seq)
            agents.put_context(self._kernel.state, row)
            return row

        return await asyncio.to_thread(write)

    async def _adopt(self, owner: Owner) -> None:
        """Give files that the database does not know their rows: an agent's directory may be older than it."""

        def adopt() -> None:
            known = {row.file_path for row in agents.of(self._kernel.state, owner.name)}
            present = {str(path) for path in owner.directory.glob("*.json")} if owner.directory.is_dir() else set()
            for path in sorted(present - known):
                context = contexts.readable(Path(path))
                if context is not None:
                    agents.put_context(
                        self._kernel.state, replace(row_of(context, Path(path)), agent_name=owner.name)
                    )

        await asyncio.to_thread(adopt)


def row_of(context: Context, path: Path) -> ContextRow:
    """Return the row of a context whose file is at ``path``."""
    return ContextRow(
        id=context.id,
        agent_name=context.agent_name,
        description=context.description,
        saved_at=context.saved_at,
        message_count=context.message_count,
        file_path=str(path),
        trigger=context.trigger,
    )


# Saved conversations in words, for people.

ID = 8  # characters of an id that are shown


def left(conversation: Conversation) -> list[str]:
    """Return what whoever opens a branch is told of the conversation that was put behind there, if none goes on."""
    if hidden.visible(conversation):
        return []
    last = next((each for each in reversed(hidden.groups(conversation)) if each.by == hidden.CONTEXT), None)
    notice = last.messages[0].metadata.get("notice") if last else None
    return [str(notice)] if notice else []


def listing(name: str, found: Sequence[Mapping[str, Any]]) -> str:
    """Return the lines that ``/context history`` shows.

    Args:
        name: The agent's, or the session's.
        found: The conversations, ``{id, agent_name, description, saved_at, message_count}``, the last one first.
    """
    if not found:
        return f"No saved sessions for {name}"
    return "\n".join([f"Sessions for {found[0]['agent_name']}:", *map(_line, found)])


def span(seconds: float) -> str:
    """Return a span of time in its largest even unit: ``30 minutes``, ``90 seconds``, ``1 hour``."""
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        if (seconds >= size and seconds % size == 0) or size == 1:
            return f"{seconds / size:g} {unit}{'' if seconds == size else 's'}"
    raise AssertionError(seconds)


def _line(row: Mapping[str, Any]) -> str:
    count = row["message_count"]
    gone = ", its file is gone" if row.get("gone") else ""
    said = f"{row['description']} ({count} message{'' if count == 1 else 's'}{gone})"
    return f"  [{row['id'][:ID]}] {_local(row['saved_at'])} - {said}"


def _local(saved_at: str) -> str:
    try:
        return datetime.fromisoformat(saved_at).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return saved_at
