"""A schedule: what a person and the world do to a session, by chance; and what must hold whatever they do.

A message is known by its text, which says its number and never repeats. What the model is sent is compared with the
log at every request (``world``); here is what people see: one run at a time, one end for each, first come first
answered, nothing lost and nothing twice.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from pyagentd.errors import PyagentdError
from pyagentd.events import Event
from pyagentd.store import paths
from pyagentd.store.document import text as document
from pyagentd.store.paths import BranchRef
from tests.simulation import reference
from tests.simulation.client import Client, arrived, lasting
from tests.simulation.editor import Editor
from tests.simulation.reference import Log
from tests.simulation.world import World

_ENV = {"ANTHROPIC_API_KEY": "key"}
_OPERATIONS: Mapping[str, int] = {  # how often, of all
    "send": 30,
    "send_again": 4,
    "cancel": 6,
    "edit": 4,
    "resume_queue": 4,
    "steer": 8,
    "abort": 6,
    "attach": 6,
    "disconnect": 5,
    "approve": 12,
    "deny": 4,
    "compact": 3,
    "rewind": 4,
    "unrewind": 3,
    "fork": 2,
    "rewrite": 3,
    "regenerate": 4,
    "choose_variant": 3,
    "retry_now": 2,
    "rest": 15,
    "stop": 3,
    "kill": 3,
}
_TYPING: Mapping[str, int] = {"type": 12, "leave": 4}
_AFTER: Mapping[str, Mapping[str, int]] = {"rewind": {"unrewind": 60}}  # what has a sense right after another alone


@dataclass
class Said:
    """A message that the daemon took.

    Attributes:
        branch: Where.
        text: As it was last edited.
        cancelled: Whether it was taken back before it was answered.
        steered: Whether it was to go into a run.
        queued: Whether it had to wait.
        typed: Whether it stands in the document since it was sent: taken back, it stays there, as a draft.
    """

    branch: BranchRef
    text: str
    cancelled: bool = False
    steered: bool = False
    queued: bool = False
    typed: bool = False


@dataclass
class Schedule:
    """One schedule; ``run`` it once.

    Attributes:
        typing: Whether somebody edits the document, too, as Emacs does.
        said: By the message's id, in the order in which the daemon took them.
        told: Ends of runs that each client was told, by branch and run; of the present life.
        done: For whoever reads a failure.
    """

    world: World
    random: Random
    operations: int
    typing: bool = False
    said: dict[str, Said] = field(default_factory=dict)
    clients: list[Client] = field(default_factory=list)
    editors: dict[str, Editor] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Do it, in as many lives as it takes, and check what must hold at the end."""
        now_s, settled = 0.0, False
        while not settled:
            settled = len(self.done) >= self.operations
            how, now_s = self.world.live(self._settle if settled else self._live, start_s=now_s)
            self._check_clients(stopped=how == "stop")
            self.clients.clear()
            for editor in self.editors.values():
                editor.check()
            self.editors.clear()
            assert not self.world.wrong, self.world.wrong[0]
            if how == "kill":
                self._forget_unrecorded()
        for branch in self.world.branches:
            self._check(branch)

    async def _live(self) -> str:
        often = {**_OPERATIONS, **_TYPING} if self.typing else _OPERATIONS
        while len(self.done) < self.operations:
            now = {**often, **_AFTER.get(self.done[-1] if self.done else "", {})}
            (name,) = self.random.choices(list(now), list(now.values()))
            self.done.append(name)
            if name in ("stop", "kill"):
                return await self._ended(name)
            try:
                await getattr(self, f"_{name}")(self.random.choice(self.world.branches))
            except PyagentdError as error:
                self.done[-1] += f": {error.code}"
            await asyncio.sleep(self.random.choice((0.0, 0.02, 0.3, 2.0)))
        return await self._ended("stop")

    async def _ended(self, how: str) -> str:
        """Have nobody edit any more when the daemon ends: who edits as it is killed knows no more than then."""
        if how == "stop":
            for key in list(self.editors):
                await self._left(key)
        for editor in self.editors.values():
            editor.leave()
        return how

    async def _settle(self) -> str:
        """Let everything that was begun come to its end, as a person who answers and resumes does."""
        for branch in self.world.branches:
            await self._rest(branch)
        return await self._ended("stop")

    # -- what happens ------------------------------------------------------------------------------------------

    async def _send(self, branch: BranchRef) -> None:
        await self._say(branch, f"Message {len(self.said)}.")

    async def _steer(self, branch: BranchRef) -> None:
        await self._say(branch, f"Message {len(self.said)}, steering.", steer=True)

    async def _say(self, branch: BranchRef, text: str, *, steer: bool = False) -> None:
        """Send, sometimes with an id of the client's own."""
        own = f"msg_client_{len(self.said)}" if self.random.random() < 0.5 else None
        made = await self._call("prompt", branch, text=text, id=own, env=_ENV, steer=steer)
        assert own in (None, made["message"])
        self.said[made["message"]] = Said(branch, text, steered=steer, queued=made["queued"])

    async def _send_again(self, branch: BranchRef) -> None:
        """Send what was sent with an id of the client's: a network that lost the answer."""
        for id, said in list(self.said.items()):
            if id.startswith("msg_client_") and said.branch == branch and said.text.startswith("Message"):
                made = await self._call("prompt", branch, text=said.text, id=id, env=_ENV, steer=said.steered)
                assert made["message"] == id
                return

    async def _type(self, branch: BranchRef) -> None:
        """Write into the document and send what was written."""
        editor = self.editors.get(branch.key)
        if editor is None:
            editor = self._editor(branch)
            await editor.open()
            self.editors[branch.key] = editor
        text, id = f"Message {len(self.said)}.", f"msg_typed_{len(self.said)}"
        made = await editor.type(text, id)
        self.said[id] = Said(branch, text, queued=made["queued"], typed=True)

    def _editor(self, branch: BranchRef) -> Editor:
        async def call(name: str, **arguments: Any) -> Any:
            if name == "send":
                arguments["env"] = _ENV
            return await self._call(name, branch, **arguments)

        return Editor(call)

    async def _leave(self, branch: BranchRef) -> None:
        if branch.key in self.editors:
            await self._left(branch.key)

    async def _left(self, key: str) -> None:
        """Have an editor leave."""
        editor = self.editors.pop(key)
        editor.leave()
        editor.check()
        self.world.kernel.forget(editor)

    async def _cancel(self, branch: BranchRef) -> None:
        if waiting := await self._waiting(branch):
            id = self.random.choice(waiting)
            await self._call("queue_cancel", branch, id=id)
            self.said[id].cancelled = True

    async def _edit(self, branch: BranchRef) -> None:
        if waiting := await self._waiting(branch):
            id = self.random.choice(waiting)
            text = f"Edited {self.said[id].text}"
            await self._call("queue_edit", branch, id=id, text=text)
            self.said[id].text = text

    async def _resume_queue(self, branch: BranchRef) -> None:
        await self._call("queue_resume", branch, env=_ENV)

    async def _abort(self, branch: BranchRef) -> None:
        await self._call("abort", branch)

    async def _attach(self, branch: BranchRef) -> None:
        client = Client()
        client.watch(await self._call("attach", branch, client=client, text=""))
        self.clients.append(client)

    async def _disconnect(self, branch: BranchRef) -> None:
        if self.clients:
            client = self.clients.pop(self.random.randrange(len(self.clients)))
            client.check()
            self.world.kernel.forget(client)

    async def _approve(self, branch: BranchRef) -> None:
        await self._decide("allow")

    async def _deny(self, branch: BranchRef) -> None:
        await self._decide("deny")

    async def _decide(self, decision: str) -> None:
        if asks := list(self.world.kernel.asks.all()):
            await self._answer(str(self.random.choice(asks)["id"]), decision)

    async def _compact(self, branch: BranchRef) -> None:
        await self._call("compact", branch, env=_ENV)

    async def _rewind(self, branch: BranchRef) -> None:
        if visible := self._prompts(branch):
            await self._call("rewind", branch, message=self.random.choice(visible))

    async def _unrewind(self, branch: BranchRef) -> None:
        await self._call("unrewind", branch)

    async def _rewrite(self, branch: BranchRef) -> None:
        if visible := self._prompts(branch):
            text = f"Message {len(self.said)}."
            made = await self._call("edit", branch, message=self.random.choice(visible), text=text, env=_ENV)
            self.said[made["message"]] = Said(branch, text)

    async def _regenerate(self, branch: BranchRef) -> None:
        visible = self._prompts(branch)
        again = self.random.choice(visible) if visible and self.random.random() < 0.5 else None
        await self._call("regenerate", branch, message=again, env=_ENV)

    async def _choose_variant(self, branch: BranchRef) -> None:
        found = (await self._call("variants", branch))["variants"]
        if found:
            one = self.random.choice(found)
            await self._call(
                "choose_variant", branch, message=one["message"], n=self.random.randint(1, len(one["of"]))
            )

    async def _rest(self, branch: BranchRef) -> None:
        """Answer and resume until nothing goes on."""
        for _ in range(200):
            status = await self._call("get_status", branch)
            if status["state"] in ("idle", "error") and not status["queued"]:
                await self._check_replay(branch)
                return
            if (await self._call("queue", branch))["paused"]:
                await self._call("queue_resume", branch, env=_ENV)
            for ask in list(self.world.kernel.asks.all()):
                await self._answer(str(ask["id"]), "allow")
            await asyncio.sleep(1.0)
        raise AssertionError(f"{branch.name} never comes to rest: {status}")

    async def _retry_now(self, branch: BranchRef) -> None:
        await self._call("retry_now", branch)

    async def _fork(self, branch: BranchRef) -> None:
        log = self._log(branch)
        visible = [id for id, row in log.messages.items() if not reference.hidden(row) and not reference.queued(row)]
        if visible and len(self.world.branches) < 3:
            made = await self._call("fork", branch, message=self.random.choice(visible))
            self.world.branches.append(paths.ref_of(Path(made["branch_dir"])))

    def _prompts(self, branch: BranchRef) -> list[str]:
        """Return the messages of the person that the model sees."""
        messages = self._log(branch).messages.items()
        return [id for id, row in messages if row["role"] == "user" and not reference.hidden(row)]

    async def _call(self, name: str, branch: BranchRef, *, client: Client | None = None, **arguments: Any) -> Any:
        operation: Callable[..., Any] = getattr(self.world.service, name)
        async with asyncio.timeout(600):  # of virtual time: whatever hangs
            return await operation(client or Client(), branch=branch.key, **arguments)

    async def _answer(self, ask: str, decision: str) -> None:
        await self.world.service.answer(Client(), ask=ask, decision=decision)

    async def _waiting(self, branch: BranchRef) -> list[str]:
        """Return what waits, without text that would stay in the document as a draft, and be sent with the next."""
        waiting = [item["id"] for item in (await self._call("queue", branch))["items"]]
        return [id for id in waiting if id in self.said and not self.said[id].typed]

    # -- what must hold ----------------------------------------------------------------------------------------

    def _log(self, branch: BranchRef) -> Log:
        return Log.read(branch.branch_dir / "messages.jsonl")

    def _forget_unrecorded(self) -> None:
        """A message of which the person was told nothing yet may be gone with a daemon that was killed."""

    def _check_clients(self, *, stopped: bool) -> None:
        """Who watched until a daemon stopped has the document's text, and knows of every run's end."""
        for client in self.clients:
            client.check()
            if stopped:
                branch = next(branch for branch in self.world.branches if branch.key == client.branch)
                assert client.text == _body(branch)
                assert client.shown.spans == document.read(paths.session_file(branch.branch_dir)).spans
                log = self._log(branch)
                ended = {id for id, row in log.run_rows if row["state"] == "finished" and log.began[id] > client.seq}
                assert ended <= set(client.ends), f"nobody was told of the end of {ended - set(client.ends)}"

    async def _check_replay(self, branch: BranchRef) -> None:
        """What a client was told since it attached comes again from the log."""
        for client in self.clients:
            if client.branch == branch.key:
                again = await self._replayed(branch, client.seq)
                new = [event for event in client.events if not event.seq or event.seq > client.seq]
                assert lasting(again) == lasting(new), "the log tells something else than was told"

    async def _replayed(self, branch: BranchRef, after: int) -> list[Event]:
        found: list[Event] = []
        done = False
        while not done:
            page = await self._call("replay", branch, after=after)
            found += [arrived(branch.key, *event) for event in page["events"]]
            after, done = page["seq"], page["done"]
        return found

    def _check(self, branch: BranchRef) -> None:
        log = self._log(branch)
        self._check_runs(log)
        self._check_messages(branch, log)
        self._check_document(branch, log)

    def _check_runs(self, log: Log) -> None:
        """Every run has one beginning and one end, and the next begins after that."""
        open_run = ""
        for id, row in log.run_rows:
            match row["state"]:
                case "started":
                    assert not open_run, f"{id} began while {open_run} went on"
                    open_run = id
                case "finished":
                    assert open_run == id, f"{id} ended, and {open_run or 'nothing'} went on"
                    open_run = ""
        assert not open_run
        ends = Counter(id for id, row in log.run_rows if row["state"] == "finished")
        assert set(ends) == {id for id, _ in log.run_rows} and set(ends.values()) <= {1}

    def _check_messages(self, branch: BranchRef, log: Log) -> None:
        """All that was said is there once, as it was last edited, and was answered in its order."""
        own = {id: said for id, said in self.said.items() if said.branch == branch}
        for id, said in own.items():
            row = log.messages[id]
            assert log.text(id) == said.text
            assert bool(row["metadata_json"].get("queue_canceled_at")) is said.cancelled
            assert not reference.queued(row), "the queue was drained"
        texts = Counter(log.text(id) for id, row in log.messages.items() if row["role"] == "user")
        assert {text: number for text, number in texts.items() if number > 1} == {}
        steered = {id for id, row in log.messages.items() if "steered" in row["metadata_json"]}
        kept = [id for id, said in own.items() if not said.cancelled and id not in steered]
        answered = [id for id in log.order if id in own]
        assert sorted(answered) == sorted(kept), "each is answered once"
        # What comes after an error is answered at once, and the queue after it.
        waited = [id for id in kept if own[id].queued and not own[id].steered]
        assert [id for id in answered if id in waited] == waited, "first come, first answered"

    def _check_document(self, branch: BranchRef, log: Log) -> None:
        """The document shows every message of the person once, but for those taken back."""
        body = _body(branch)
        said = re.sub(r"^``` compaction .*?^```$", "", body, flags=re.MULTILINE | re.DOTALL)  # may quote the person
        shown = Counter(re.findall(r"^(?:### )?((?:Edited )*Message \d+(?:\.|, steering\.))$", said, re.MULTILINE))
        expected = {log.text(id) for id, row in log.messages.items() if row["role"] == "user" and _is_shown(row)}
        wanted = Counter(text for text in expected if "Message" in text)
        assert shown == wanted, f"missing {wanted - shown}, too many {shown - wanted}\n{body}"


def _body(branch: BranchRef) -> str:
    return document.read(paths.session_file(branch.branch_dir)).body


def _is_shown(row: Mapping[str, Any]) -> bool:
    return not row["metadata_json"].get("queue_canceled_at") and not reference.queued(row)
