"""How a turn ends: cancelled before the daemon has answered the prompt, or in events that were lost."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from pyagentd.acp.conversation import Conversation
from pyagentd.acp.files import Prompt
from pyagentd.errors import NotFound
from pyagentd.events import Event

OPENED = {
    "attach": {"branch": "/s/main", "settings": {}, "seq": 9},
    "show": {"json": json.dumps({"messages": []}), "seq": 0},
    "agents-available": {"agents": []},
    "rows": {"rows": [], "done": True},
}


class Slow:
    """A daemon whose answer to a prompt, ``reply``, waits; ``begins`` says that the turn of one that waits comes."""

    def __init__(self, reply: dict[str, Any], *, begins: bool = False) -> None:
        self.reply, self.begins = reply, begins
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()
        self.was_asked = asyncio.Event()
        self.conversation: Any = None
        self.lost: list[list[Any]] = []  # events that the editor did not get

    async def call(self, method: str, timeout: float = 0, **arguments: Any) -> Any:
        if method in OPENED:
            return OPENED[method]
        if method == "replay":
            return {"events": [each for each in self.lost if each[1] > arguments["after"]], "seq": 9, "done": True}
        self.asked.append(method)
        if method == "prompt":
            self.message = arguments["id"]
            self.was_asked.set()
            await self.may_answer.wait()
            return {"message": self.message, **self.reply}
        if method == "queue-cancel":
            assert arguments["id"] == self.message
            if self.begins:
                raise NotFound("It does not wait")
            self._tell("queue", {"gone": {"id": self.message, "why": "canceled"}})
        elif method == "abort":
            self._tell("run", {"id": "run_1", "phase": "started", "message_id": self.message})
            self._tell("run", {"id": "run_1", "phase": "finished", "reason": "aborted"})
        return {}

    def _tell(self, kind: str, said: dict[str, Any]) -> None:
        self.conversation.take(Event(kind, "/s/main", 0, (said,)))


async def conversation(daemon: Slow, place: Path) -> Conversation:
    given: Any = daemon
    editor: Any = None
    daemon.conversation = made = Conversation("s", place, given, editor)
    await made.open(tells_history=False)
    return made


@pytest.mark.parametrize(
    ("reply", "begins", "asked"),
    [
        ({"run": None, "queued": True}, False, ["prompt", "queue-cancel"]),  # somebody else's run goes on
        ({"run": None, "queued": True}, True, ["prompt", "queue-cancel", "abort"]),
        ({"run": "run_1", "queued": False}, False, ["prompt", "abort"]),
    ],
)
async def test_what_is_cancelled_before_its_answer_is_taken_back_after_it(
    tmp_path: Path, reply: dict[str, Any], begins: bool, asked: list[str]
) -> None:
    daemon = Slow(reply, begins=begins)
    opened = await conversation(daemon, tmp_path)
    turn = asyncio.create_task(opened.prompt(Prompt("Go.", ())))
    await daemon.was_asked.wait()
    await opened.cancel()
    daemon.may_answer.set()
    async with asyncio.timeout(10):
        assert await turn == "cancelled"
    assert daemon.asked == asked
    await opened.close(detaches=False)


async def test_what_is_cancelled_before_it_is_sent_is_not_sent(tmp_path: Path) -> None:
    daemon = Slow({})
    opened = await conversation(daemon, tmp_path)
    turn = asyncio.create_task(opened.prompt(Prompt("Go.", ())))
    await asyncio.sleep(0)
    await opened.cancel()
    assert await turn == "cancelled"
    assert daemon.asked == []
    await opened.close(detaches=False)


async def test_a_command_is_stopped_before_it_is_answered(tmp_path: Path) -> None:
    daemon = Slow({"ended": "aborted"})
    opened = await conversation(daemon, tmp_path)
    turn = asyncio.create_task(opened.prompt(Prompt("/compact", ())))
    await daemon.was_asked.wait()
    await opened.cancel()
    assert daemon.asked == ["prompt", "abort"]
    daemon.may_answer.set()
    assert await turn == "cancelled"
    await opened.close(detaches=False)


async def test_a_turn_ends_whose_end_is_among_the_events_that_were_lost(tmp_path: Path) -> None:
    daemon = Slow({"run": "run_1", "queued": False})
    opened = await conversation(daemon, tmp_path)
    turn = asyncio.create_task(opened.prompt(Prompt("Go.", ())))
    await daemon.was_asked.wait()
    daemon.may_answer.set()
    begun = {"id": "run_1", "phase": "started", "message_id": daemon.message}
    ended = {"id": "run_1", "phase": "finished", "reason": "aborted", "message": ""}
    daemon.lost = [["run", 4, json.dumps(begun)], ["run", 9, json.dumps(ended)]]
    opened.take(Event("resync", "/s/main", 3))
    async with asyncio.timeout(10):
        assert await turn == "cancelled"
    await opened.close(detaches=False)
