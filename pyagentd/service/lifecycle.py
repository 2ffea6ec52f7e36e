"""Operations on a session's life: renaming, archiving, duplicating and deleting it, and reading its metadata.

Deleting moves to the system's trash. Title and archive state are facts of the whole session, so they are recorded in
each of its branches; an agent has its own.
"""

from __future__ import annotations

import asyncio
import unicodedata
from pathlib import Path
from typing import Any, Literal, get_args

from pyagentd.agent.host import Host
from pyagentd.clock import epoch_ms
from pyagentd.errors import BadRequest, Busy
from pyagentd.events import Event
from pyagentd.service.group import TITLE_LENGTH, Client, Group, described, expanded
from pyagentd.store import branching, metadata, paths
from pyagentd.store import branching as copies
from pyagentd.store import metadata as lineage
from pyagentd.store.named_agents import named_dir
from pyagentd.store.paths import BranchRef
from pyagentd.store.trash import move_to_trash

What = Literal["session", "branch", "agent"]


class Lifecycle(Group):
    """Sessions and agents as things that come and go."""

    async def rename(self, client: Client, *, branch: str, title: str) -> dict[str, Any]:
        """Give a session, or an agent, another title; ids and directories never change.

        ``note``: what is to be said where that is not the name, or nil.
        """
        wanted = " ".join(title.split())
        if not _is_title(wanted):
            raise BadRequest(f"{title[:40]!r} is no title", mend=f"Give one line of up to {TITLE_LENGTH} characters")
        ref = self._ref(branch)
        await self._note(ref, title=wanted)
        self._touch(*_timelines(ref))
        named = _named(self._host, ref)
        note = f"This is its title; {named} is still its name: `pyagentd agent rename {named} NAME` gives it another"
        return {**described(ref), "title": wanted, "note": note if named else None}

    async def archive(self, client: Client, *, branch: str, undo: bool = False) -> dict[str, Any]:
        """Leave a session, or an agent, out of lists from now on, or with ``undo`` no longer; it is not changed."""
        ref = self._ref(branch)
        archived_at = None if undo else epoch_ms(self._host.clock.now())
        await self._note(ref, archived_at=archived_at)
        return {**described(ref), "archived_at": archived_at}

    async def duplicate(self, client: Client, *, branch: str, name: str | None = None) -> dict[str, Any]:
        """Copy a session with all its branches, agents and files; the copy has an id of its own.

        Of a named agent it is the conversation alone that is copied; ``note`` says so, otherwise it is nil.
        """
        ref = self._ref(branch)
        if ref.is_agent:
            raise BadRequest(f"{ref.session_id} is an agent", mend="Duplicate the session it belongs to")
        if self._host.origins.foreign(ref):  # a copy would be the user's own
            raise BadRequest(f"{ref.session_id} is not from this machine", mend="Read its preset.md, then trust it")
        for live in self._host.inside(ref.session_dir):
            if live.run is not None or live.starting.locked():
                raise Busy(f"{live.ref.name} is answering", mend="Wait for the answer, or abort it first")
            live.recorder.flush()
            await live.keeper.flush()
        made = await asyncio.to_thread(
            copies.duplicate_session, ref, root=self._host.config.sessions_dir, name=name, clock=self._host.clock
        )
        self._registry.add(made)
        self._tell_written(*_all_of(made))
        named = _named(self._host, ref)
        note = f"The copy is a session without a name: prompt, permissions and docs of {named} are not copied"
        return {**described(made), "note": note if named else None}

    async def delete(self, client: Client, *, branch: str, what: str | None = None) -> dict[str, Any]:
        """Move a session, a branch or an agent to the trash.

        Without ``what`` an agent's ref means the agent, a branch's ref the branch, or the session if it is all of it.
        A named agent is destroyed instead (``agent-destroy``), which tells what is lost and saves its conversation.
        """
        ref = self._ref(branch)
        chosen = _what(ref, what)
        if chosen == "session" and (named := _named(self._host, ref)):
            raise BadRequest(
                f"{named} is a named agent; deleting would leave its record and what it does behind",
                mend=f"Destroy it: `pyagentd agent destroy {named}`, in Emacs M-x pyagentd-agent-destroy",
            )
        directory = ref.session_dir if chosen == "session" else ref.branch_dir
        heir = _heir(ref) if chosen == "branch" else None
        gone = _all_of(ref) if chosen == "session" else list(lineage.with_agents(ref))
        async with self._host.removing(directory):
            await self._host.tasks.end_within(directory)
            await asyncio.to_thread(move_to_trash, directory)
        await self._host.schedules.forget(directory)
        if heir is not None:
            branching.point_current(ref.session_dir, heir)
        self._tell_written(*gone)
        self._registry.forget(directory)
        return {"trashed": [str(directory)]}

    async def session_metadata(self, client: Client, *, directory: str) -> dict[str, Any] | None:
        """Return what ``scope-plan.yml`` of a branch or agent says; nil when it is missing or cannot be parsed."""
        return _told(metadata.read_session_metadata(_place(directory)))

    async def preset_metadata(self, client: Client, *, directory: str) -> dict[str, Any] | None:
        """Return the keys of ``preset.md`` of a branch or agent; nil when it is missing or cannot be parsed."""
        return _told(metadata.read_preset_metadata(_place(directory)))

    async def branch_metadata(self, client: Client, *, directory: str) -> dict[str, Any] | None:
        """Return what ``branch-metadata.yml`` says; nil when it is missing, as in "main", or cannot be parsed."""
        return _told(metadata.read_branch_metadata(_place(directory)))

    async def _note(self, ref: BranchRef, **facts: Any) -> None:
        """Record facts of a session in each of its branches and tell who watches them."""
        for sibling in _timelines(ref):
            async with self._host.using(sibling) as live:
                live.note_session(**facts)
                session = live.conversation.session
                told = {"title": session.get("title") or "", "archived_at": session.get("archived_at")}
                live.publish(Event("session", live.key, 0, (told,)))
            self._tell_written(sibling)


def _named(host: Host, ref: BranchRef) -> str:
    """Return the name of the named agent that ``ref`` is a branch of; "" of everything else."""
    place = named_dir(host.config.agents_dir.resolve(), ref)
    return place.name if place is not None else ""


def _timelines(ref: BranchRef) -> list[BranchRef]:
    """Return all branches of a session; of an agent, itself."""
    return [ref] if ref.is_agent else lineage.branches(ref.session_dir)


def _all_of(ref: BranchRef) -> list[BranchRef]:
    """Return all branches of a session and all agents in them."""
    return [each for branch in _timelines(ref) for each in lineage.with_agents(branch)]


def _is_title(text: str) -> bool:
    return 0 < len(text) <= TITLE_LENGTH and not any(unicodedata.category(char) in ("Cc", "Cs") for char in text)


def _what(ref: BranchRef, wanted: str | None) -> What:
    """Return what is to be deleted.

    Raises:
        BadRequest: ``ref`` is no such thing, or the only branch of its session.
    """
    if wanted is not None and wanted not in get_args(What):
        raise BadRequest(f"{wanted!r} cannot be deleted", mend="session, branch or agent")
    if ref.is_agent:
        if wanted not in (None, "agent"):
            raise BadRequest(f"{ref.session_id} is an agent, no {wanted}")
        return "agent"
    if wanted == "agent":
        raise BadRequest(f"{ref.name} is no agent", mend="Say session or branch")
    is_only = len(lineage.branches(ref.session_dir)) < 2
    if wanted == "branch" and is_only:
        raise BadRequest(f"{ref.name} is the only branch of its session", mend="Delete the session")
    return "session" if wanted == "session" or is_only else "branch"


def _heir(ref: BranchRef) -> str | None:
    """Return which branch is to be the active one when ``ref`` is gone; None when another one is already."""
    if lineage.active(ref.session_dir) != ref.branch_name:
        return None
    others = [other.branch_name for other in lineage.branches(ref.session_dir) if other.key != ref.key]
    wanted = (*lineage.lineage(ref), paths.MAIN_BRANCH, others[0])
    return next(name for name in wanted if name in others)


def _place(directory: str) -> Path:
    return expanded(directory).absolute()


def _told(values: dict[str, Any] | dict[str, str] | None) -> dict[str, Any] | None:
    return dict(values) if values is not None else None
