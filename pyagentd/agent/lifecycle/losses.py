"""What would be lost with a named agent: what its user is asked about before it is destroyed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyagentd.agent.lifecycle import creating
from pyagentd.agent.lifecycle.worktree import Worktree, look
from pyagentd.store import contexts, metadata, named_agents, trash
from pyagentd.store.db import schedules
from pyagentd.store.db.projection import Projection
from pyagentd.store.db.tasks import Task

if TYPE_CHECKING:
    from pyagentd.agent.host import Host

_MOST_FILES = 100_000
_UNITS = ("B", "kB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """What there is of an agent; counts, sizes in bytes."""

    name: str
    directory: Path
    files: int
    size: int
    more: bool  # there are more files than were counted
    trash: bool  # the directory would go to the system's trash
    worktree: Worktree | None  # None: its workspace is no repository, or cannot be asked
    contexts: int  # files of saved conversations
    messages: int  # of the conversation that goes on
    tasks: tuple[Task, ...]  # that run
    asks: int  # open questions
    runs: int  # answers in flight
    schedules: int  # turns that would come by themselves

    def told(self) -> dict[str, Any]:
        """Return it as clients are told, without the text."""
        git = asdict(self.worktree) if self.worktree else {"branch": None, "uncommitted": None, "unpushed": None}
        tasks = [{"id": task.id, "command": task.command, "started_at": task.started_at} for task in self.tasks]
        counted = ("name", "files", "size", "more", "trash", "contexts", "messages", "asks", "runs", "schedules")
        return {"dir": str(self.directory), **{key: getattr(self, key) for key in counted}, **git, "tasks": tasks}

    def lines(self, *, keep_files: bool) -> list[str]:
        """Return what people are told before they confirm."""
        return list(self._ended()) if keep_files else [*self._removed(), *self._ended()]

    def _removed(self) -> Iterator[str]:
        where = "go to the trash" if self.trash else "are deleted for good: there is no trash for them"
        least = "more than " if self.more else ""
        yield f"{least}{_many(self.files, 'file')} ({_size(self.size)}) in {self.directory} {where}"
        if self.worktree is not None and self.worktree.uncommitted:
            yield f"{_many(self.worktree.uncommitted, 'file')} in its workspace not committed"
        if self.worktree is not None and self.worktree.unpushed:
            yield f"{_many(self.worktree.unpushed, 'commit')} in its workspace not pushed anywhere"
        if self.contexts:
            yield _many(self.contexts, "saved conversation")
        if self.messages:
            yield f"the conversation that goes on ({_many(self.messages, 'message')}), saved with the files"

    def _ended(self) -> Iterator[str]:
        if self.runs:
            yield f"{_many(self.runs, 'answer')} in flight, cut off"
        for task in self.tasks:
            yield f"the running command {task.command!r} ({task.id}), ended"
        if self.asks:
            yield f"{_many(self.asks, 'open question')}, dismissed"
        if self.schedules:
            yield f"{_many(self.schedules, 'scheduled turn')}, cancelled"


async def of(host: Host, name: str) -> Losses:
    """Return what would be lost with the agent ``name``; raises as ``creating.agent_dir``."""
    place = await asyncio.to_thread(creating.agent_dir, host, name)
    messages = 0
    for timeline in metadata.branches(place):
        async with host.using(timeline) as branch:  # what waits for a human from before goes on, and asks
            messages += await asyncio.to_thread(contexts.count, branch.conversation.snapshot())
    live = {branch.key: branch for branch in host.inside(place)}
    asks = len(host.asks.within(str(place)))
    tasks = tuple(task for task in await host.tasks.of(name) if task.status == "running")
    key = Projection(host.state, host.config.sessions_dir).key(place)

    def counted() -> Losses:
        files, size, more = _counted(place)
        return Losses(
            name=name,
            directory=place,
            files=files,
            size=size,
            more=more,
            trash=trash.has_trash(place),
            worktree=look(named_agents.workspace_dir(place)),
            contexts=len(list(named_agents.saved_dir(place).glob("*.json"))),
            messages=messages,
            tasks=tasks,
            asks=asks,
            runs=sum(branch.run is not None for branch in live.values()),
            schedules=sum(_within(Path(key), each.branch_dir) for each in schedules.find(host.state)),
        )

    return await asyncio.to_thread(counted)


def _within(place: Path, path: str) -> bool:
    return Path(path).is_relative_to(place)


def _counted(place: Path) -> tuple[int, int, bool]:
    """Return how many files there are in a directory, their size, and whether there are more."""
    files = size = 0
    for directory, _, names in os.walk(place):
        for name in names:
            if files >= _MOST_FILES:
                return files, size, True
            files += 1
            try:
                size += (Path(directory) / name).lstat().st_size
            except OSError:  # gone meanwhile
                continue
    return files, size, False


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _size(count: float) -> str:
    for unit in _UNITS[:-1]:
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} {_UNITS[-1]}"
