"""A turn with everything that writes: reasoning, streamed text, parallel tools, questions, an agent with tools.

``Turn`` drives it in one session of a ``World``, with the disk failing meanwhile, and says what is wrong afterwards.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyagentd.errors import NotFound, PyagentdError
from pyagentd.events import Event
from pyagentd.runtime.approvals import Answer, AskBoard
from pyagentd.store import paths
from pyagentd.store.document.text import read
from pyagentd.store.paths import BranchRef
from tests.faults.disk import spoilt
from tests.faults.files import age_everything, branch_problems, branches_below
from tests.faults.model import EVERYTHING, Model
from tests.runtime.world import Watcher, World, attached


class Approver(Watcher):
    """A client whose user allows everything."""

    def __init__(self, asks: AskBoard) -> None:
        super().__init__()
        self._asks = asks

    def push(self, event: Event) -> None:
        super().push(event)
        if event.kind == "ask":
            asyncio.get_running_loop().call_soon(self._allow, event.args[0]["id"])

    def _allow(self, ask: str) -> None:
        with suppress(NotFound):  # the run ended meanwhile
            self._asks.answer(ask, Answer(decision="allow"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a turn under a failing disk ended, and what was shown of it."""

    reason: str  # of the run, or "refused" when none was started
    message: str
    shown: str
    calls: list[str]  # to the operating system
    hit: bool


class Turn:
    """One session and its conversation."""

    def __init__(self, world: World) -> None:
        world.server.rule = Model()
        (world.project / "a.txt").write_text("alpha\n")
        self.world = world
        self.ref: BranchRef = world.session()
        self.shown: list[str] = []  # one text for each run

    async def begin(self) -> None:
        """Give the session its workspace."""
        async with self.world.kernel.using(self.ref) as branch:
            branch.record_session(workspace_root=self.world.project)

    async def say(self, prompt: str) -> tuple[str, str]:
        """Send ``prompt``, answer what is asked, and return reason and message of the run's one end."""
        kernel = self.world.kernel
        watcher = Approver(kernel.asks)
        try:
            async with kernel.using(self.ref) as branch:
                try:
                    await attached(branch, watcher)
                    await kernel.prompt(branch, text=prompt, options=self.world.options)
                    await watcher.until(lambda: _ends(watcher, self.ref))
                finally:
                    branch.detach(watcher)
            await self._calm()
        finally:
            self.shown.append("".join(event.args[0] for event in watcher.of("insert", self.ref.key)))
        (end,) = _ends(watcher, self.ref)
        return end["reason"], end.get("message") or ""

    async def say_with(self, prompt: str, **fault: Any) -> Ended:
        """Send ``prompt`` while the disk fails as ``fault`` says."""
        with spoilt(**fault) as disk:
            try:
                reason, message = await self.say(prompt)
            except PyagentdError as failure:
                reason, message = "refused", str(failure)
        return Ended(reason=reason, message=message, shown=self.shown[-1], calls=disk.calls, hit=disk.hit)

    def restart(self) -> None:
        """Go on with a new kernel, as after a restart of the daemon."""
        self.world.start()

    async def _calm(self) -> None:
        """Wait until nothing of the run is going on any more."""
        kernel = self.world.kernel
        while kernel.runs:
            await asyncio.wait([branch.task for branch in kernel.runs if branch.task is not None])
        await asyncio.sleep(0)

    # -- what must hold ----------------------------------------------------------------------------------------

    def problems(self) -> list[str]:
        """Return what is wrong with the session as it is on disk."""
        found = [
            f"{ref.branch_dir.name}: {problem}"
            for ref in branches_below(self.ref)
            for problem in branch_problems(ref)
        ]
        body = read(paths.session_file(self.ref.branch_dir)).body
        for shown in self.shown:
            if shown.strip() and body.count(shown.strip()) != 1:
                found.append(f"what was shown is in the document {body.count(shown.strip())} times: {shown[:80]!r}")
        return found


def _ends(watcher: Watcher, ref: BranchRef) -> list[dict[str, Any]]:
    return [event.args[0] for event in watcher.of("run", ref.key) if event.args[0]["phase"] == "finished"]


async def trouble(world: World, **fault: Any) -> tuple[Ended, list[str]]:
    """Have one turn in a new session while the disk fails as ``fault`` says; return its end and what was wrong."""
    turn = Turn(world)
    await turn.begin()
    if (before := await turn.say("Hello."))[0] != "done":
        raise AssertionError(before)
    journal = paths.journal_file(turn.ref.branch_dir)
    written = journal.read_bytes()
    untouched = {name: (turn.ref.branch_dir / name).read_bytes() for name in ("preset.md", "scope-plan.yml")}
    ended = await turn.say_with(EVERYTHING, **fault)
    found: list[str] = []
    if ended.reason in ("error", "refused") and ended.hit:
        found += _unsaid(ended, str(world.kernel.config.sessions_dir), os.strerror(fault["error"]))
    if not journal.read_bytes().startswith(written):
        found.append("rows that were written before are not there any more")
    for name, content in untouched.items():
        if (turn.ref.branch_dir / name).read_bytes() != content:
            found.append(f"{name} is another")
    for prompt in ("And now?", "After a restart?"):
        try:
            reason, message = await turn.say(prompt)
        except PyagentdError as failure:
            reason, message = "refused", str(failure)
        if reason != "done":
            found.append(f"{prompt} {reason}: {message}")
        await turn.world.kernel.shutdown()
        age_everything(turn.ref.session_dir)
        turn.restart()
    return ended, found + turn.problems()


def _unsaid(ended: Ended, root: str, cause: str) -> list[str]:
    """Return whether the message lacks the file or the cause."""
    return [f"{what} is not said: {ended.message!r}" for what in (root, cause) if what not in ended.message]
