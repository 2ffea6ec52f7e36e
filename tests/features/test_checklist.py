"""Ten points of what makes an agent pleasant to work with, each through what clients can call."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import pytest

from pyagentd.api import Service
from pyagentd.store.db.projection import Projection
from pyagentd.store.paths import BranchRef, ref_of
from tests.runtime.world import Watcher, World, assert_closed, attached, last_of, rows
from tests.server import answer, text, tool_use


class Talk:
    """One session, a client, and the daemon's operations."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.service: Service = world.service()
        self.ref: BranchRef = world.session()
        self.client = Watcher()
        self.env = dict(world.options.env)

    async def say(self, said: str, *replies: Any) -> None:
        self.world.server.say(*replies)
        async with self.world.kernel.using(self.ref) as branch:
            await attached(branch, self.client)
            await self.service.prompt(self.client, branch=self.ref.key, text=said, env=self.env)
            await self.client.finished(branch)
            branch.detach(self.client)

    async def quiet(self) -> None:
        while tasks := [branch.task for branch in self.world.kernel.runs if branch.task is not None]:
            await asyncio.wait(tasks)

    def messages(self) -> list[dict[str, Any]]:
        return list(last_of(rows(self.ref), "message").values())

    def prompts(self) -> list[str]:
        return [message["id"] for message in self.messages() if message["role"] == "user"]


@pytest.fixture
async def talk(world: World) -> Talk:
    return Talk(world)


@pytest.mark.spec("B.10", "tables inspectable")
async def test_the_three_tables_can_be_asked_with_sql(talk: Talk) -> None:
    await talk.say("Hi.", "Hello.")
    kernel = talk.world.kernel
    await asyncio.to_thread(Projection(kernel.state, kernel.config.sessions_dir).update, talk.ref)
    with kernel.state.reading() as db:
        (session,) = db.execute("SELECT session_id FROM chat_sessions").fetchall()
        roles = db.execute("SELECT role FROM chat_messages ORDER BY created_at, id").fetchall()
        texts = db.execute("SELECT json_extract(data_json, '$.text') FROM chat_parts WHERE type = 'text'").fetchall()
    assert session == (talk.ref.session_id,)
    assert roles == [("user",), ("assistant",)]
    assert sorted(texts) == [("Hello.",), ("Hi.",)]


@pytest.mark.spec("B.10", "non-DB export")
async def test_a_session_can_be_exported_without_the_database(talk: Talk) -> None:
    await talk.say("Hi.", "Hello.")
    given = await talk.service.export(talk.client, branch=talk.ref.key, format="jsonl")
    lines = [json.loads(line) for line in given["text"].splitlines()]
    assert [line["type"] for line in lines[:3]] == ["session", "message", "part"]
    shown = json.loads((await talk.service.show(talk.client, branch=talk.ref.key))["json"])
    assert [each["message"]["role"] for each in shown["messages"]] == ["user", "assistant"]


@pytest.mark.spec("B.10", "token breakdown")
async def test_tokens_are_told_by_message_in_five_buckets(talk: Talk) -> None:
    await talk.say("Hi.", "Hello.")
    usage = await talk.service.usage(talk.client, branch=talk.ref.key)
    buckets = {"input", "output", "reasoning", "cache_read", "cache_write"}
    (message,) = usage["messages"]
    assert set(message["tokens"]) == set(usage["own"]["tokens"]) == buckets
    assert message["tokens"] == usage["own"]["tokens"] and usage["own"]["total"] > 0


@pytest.mark.spec("B.10", "system prompt persisted/reproducible")
async def test_the_system_prompt_of_any_answer_can_be_had_again(talk: Talk) -> None:
    await talk.say("Hi.", "Hello.")
    trace = json.loads((await talk.service.trace(talk.client, branch=talk.ref.key))["json"])
    sent = talk.world.server.last.body["system"]
    assert trace["system"] == "\n\n".join(block["text"] for block in sent)
    (said,) = [message for message in talk.messages() if message["role"] == "assistant"]
    digest = hashlib.sha256(trace["system"].encode()).hexdigest()
    assert said["metadata_json"]["system_prompt_digest"] == digest
    assert "You are main." in (talk.ref.branch_dir / "system-prompts.org").read_text()


@pytest.mark.spec("B.10", "aborted run truthful")
async def test_an_aborted_run_is_kept_as_far_as_it_came(talk: Talk) -> None:
    talk.world.server.say(answer(text("word " * 200, chunks=200), pause_s=0.01))
    async with talk.world.kernel.using(talk.ref) as branch:
        await attached(branch, talk.client)
        await talk.service.prompt(talk.client, branch=talk.ref.key, text="Talk.", env=talk.env)
        await talk.client.until(lambda: "word" in talk.client.text(talk.ref.key))
        assert (await talk.service.abort(talk.client, branch=talk.ref.key))["aborted"]
    assert assert_closed(talk.ref)["reason"] == "aborted"
    (part,) = [
        row["data_json"] for row in last_of(rows(talk.ref), "part").values()
        if row["type"] == "text" and "word" in row["data_json"]["text"]
    ]  # fmt: skip
    assert 0 < part["text"].count("word") < 200 and part["state"] == "done"


@pytest.mark.spec("B.10", "reload does not cancel")
async def test_a_client_that_goes_away_and_comes_back_cancels_nothing(talk: Talk) -> None:
    talk.world.server.say(answer(text("word " * 30, chunks=30), pause_s=0.005))
    async with talk.world.kernel.using(talk.ref) as branch:
        await attached(branch, talk.client)
        await talk.service.prompt(talk.client, branch=talk.ref.key, text="Talk.", env=talk.env)
        await talk.client.until(lambda: "word" in talk.client.text(talk.ref.key))
    talk.world.kernel.forget(talk.client)
    await talk.quiet()
    assert assert_closed(talk.ref)["reason"] == "done"
    again = await talk.service.replay(Watcher(), branch=talk.ref.key, after=0)
    said = "".join(event[2] for event in again["events"] if event[0] == "insert")
    assert said.count("word") == 30


@pytest.mark.spec("B.10", "rewind+edit+resend keeps history")
async def test_rewind_edit_and_resend_keep_what_was_there(talk: Talk) -> None:
    await talk.say("First.", "One.")
    await talk.say("Secnod.", "What?")
    (_, second) = talk.prompts()
    talk.world.server.say("Two.")
    await talk.service.edit(talk.client, branch=talk.ref.key, message=second, text="Second.", env=talk.env)
    await talk.quiet()
    hidden = [message for message in talk.messages() if message["metadata_json"].get("hidden_at")]
    assert [message["role"] for message in hidden] == ["user", "assistant"]
    sent = json.dumps(talk.world.server.last.messages)
    assert "Second." in sent and "Secnod." not in sent and "One." in sent
    assert "Secnod." in (talk.ref.branch_dir / "messages.jsonl").read_text()


@pytest.mark.spec("B.10", "fork queryable from the parent")
async def test_a_fork_can_be_found_from_its_parent(talk: Talk) -> None:
    await talk.say("First.", "One.")
    made = await talk.service.fork(talk.client, branch=talk.ref.key, title="Another way")
    found = (await talk.service.forks(talk.client, branch=talk.ref.key))["forks"]
    assert [each["session_id"] for each in found] == [made["session_id"]]
    assert ref_of(talk.world.kernel.config.sessions_dir / made["session_id"]).session_id == made["session_id"]


@pytest.mark.spec("B.10", "watchdog reachable")
async def test_a_program_of_the_users_can_refuse_a_call(world: World) -> None:
    watchdog = world.home / "watchdog"
    watchdog.write_text('#!/bin/sh\necho "Not on a Sunday." >&2\nexit 2\n')
    watchdog.chmod(0o755)
    (world.home / "config.toml").write_text(f'[[hooks.tool.before]]\ncommand = ["{watchdog}"]\n')
    world.start()
    talk = Talk(world)
    await talk.say("Look.", answer(tool_use("Read", id="toolu_1", file_path=str(world.project / "a.txt"))), "No.")
    (call,) = [row for row in last_of(rows(talk.ref), "part").values() if row["type"] == "tool-Read"]
    assert call["data_json"]["state"] == "output-error" and "Not on a Sunday." in call["data_json"]["errorText"]


@pytest.mark.spec("B.10", "status queryable")
async def test_the_status_can_be_asked_at_any_time(talk: Talk) -> None:
    asked = talk.service.get_status
    assert (await asked(talk.client, branch=talk.ref.key))["state"] == "idle"
    talk.world.server.say(answer(text("word " * 30, chunks=30), pause_s=0.01))
    async with talk.world.kernel.using(talk.ref):
        await talk.service.prompt(talk.client, branch=talk.ref.key, text="Talk.", env=talk.env)
        status = await asked(talk.client, branch=talk.ref.key)
        assert status["state"] == "busy" and status["started_at"]
        await talk.service.abort(talk.client, branch=talk.ref.key)
    assert (await asked(talk.client, branch=talk.ref.key))["state"] == "idle"
