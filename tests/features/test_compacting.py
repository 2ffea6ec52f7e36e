"""Compaction of running conversations, against a model with a small window."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyagentd.errors import BadRequest, Busy
from pyagentd.features.compaction import compact
from pyagentd.features.history import History
from pyagentd.llm.prompts import SYSTEM
from pyagentd.runtime.queue import Submission
from pyagentd.store.conversation import COMPACTION, Conversation
from pyagentd.store.document.reconcile import align
from pyagentd.store.document.text import read
from pyagentd.store.paths import BranchRef
from tests.runtime.test_resume import awake, begin, ended, restart, say
from tests.runtime.world import OVERLOADED, Watcher, World, assert_closed, attached, body, rows
from tests.server import Request, answer, refusal, silent, tool_use

WINDOW = 4000
CONFIG = f"""
[model."model-main"]
context_window = {WINDOW}
max_output = 1000

[model."model-small"]
context_window = 2000
max_output = 1000

[compaction]
retry_on_transient = 1
"""
SUMMARY = "## Goal\nTell stories.\n\n## Progress\nSome.\n\n## Decisions\nNone.\n\n## Next Steps\nMore."
TOO_LONG = refusal(400, "invalid_request_error", "prompt is too long: 4100 tokens > 4000 maximum")


@pytest.fixture
async def small(world: World) -> World:
    """A world whose models hold little."""
    (world.home / "config.toml").write_text(CONFIG)
    world.start()
    return world


def is_summary(request: Request) -> bool:
    system = request.body.get("system") or [{"text": ""}]
    return bool(system[0]["text"] == SYSTEM)


def story(tokens: int, used: int = 10) -> Any:
    """An answer of about so many tokens, after which the conversation has ``used``."""
    return answer("blah " * (tokens * 4 // 5) + ".", usage={"input_tokens": used - tokens, "output_tokens": tokens})


async def talk(
    world: World, ref: BranchRef, *turns: tuple[str, list[Any]], seen: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Send prompts one after the other, each with what the model's server says; return the last end."""
    end: dict[str, Any] = {}
    async with world.kernel.using(ref) as branch:
        watcher = Watcher()
        await attached(branch, watcher)
        for prompt, script in turns:
            world.server.say(*script)
            await world.kernel.prompt(branch, text=prompt, options=world.options)
            if seen is not None:
                await watcher.until(lambda: any(e.args[0]["phase"] == "finished" for e in watcher.of("run")))
                seen += [{"kind": e.kind, **e.args[0]} for e in watcher.of("status") + watcher.of("notice")]
            end = await watcher.finished(branch)
        branch.detach(watcher)
    return end


def markers(ref: BranchRef) -> list[dict[str, Any]]:
    return [row.data["data_json"] for row in rows(ref) if row.type == "part" and row.data["type"] == COMPACTION]


def sent(world: World, *, summaries: bool = False) -> list[Any]:
    return [plain(r.body["messages"]) for r in world.server.requests if is_summary(r) is summaries]


def plain(messages: list[dict[str, Any]]) -> Any:
    """Messages without breakpoints of the cache."""
    return json.loads(json.dumps(messages).replace(', "cache_control": {"type": "ephemeral"}', ""))


def next_view(ref: BranchRef) -> tuple[Any, ...]:
    return align(read(ref.branch_dir / "session.md"), Conversation(rows(ref))).view


def roles_and_heads(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(m["role"], (m["content"][0].get("text") or m["content"][0]["type"])[:24]) for m in messages]


THREE = [("One", [story(100, 200)]), ("Two", [story(600, 1500)]), ("Three", [story(50, 3100)])]


@pytest.mark.spec(
    "002", "How is a compaction stored in the DB, and how does it support UIs that show a divider or the summary?"
)
async def test_at_the_threshold_the_beginning_is_summarised_and_the_last_turns_stay(small: World) -> None:
    ref = small.session()
    await talk(small, ref, *THREE, ("Four", [SUMMARY, "Done"]))
    (marker,) = markers(ref)
    prompts = {r.data["data_json"].get("text"): r.data["message_id"] for r in rows(ref) if r.type == "part"}
    assert marker["summary"] == SUMMARY
    assert (marker["auto"], marker["tail_start_id"]) == (True, prompts["Three"])
    assert roles_and_heads(sent(small)[-1]) == [
        ("user", "<conversation_summary>\n#"), ("assistant", "blah blah blah blah blah"), ("user", "Four"),
    ]  # fmt: skip
    (asked,) = sent(small, summaries=True)
    assert "[user]\nOne" in asked[0]["content"][0]["text"] and "Three" not in asked[0]["content"][0]["text"]
    assert "``` compaction (automatic: 4 messages, " in body(ref) and SUMMARY in body(ref)
    assert assert_closed(ref)["reason"] == "done"


async def test_what_the_next_run_reads_is_what_this_one_sent(small: World) -> None:
    ref = small.session()
    await talk(small, ref, *THREE, ("Four", [SUMMARY, "Done"]), ("Five", ["Well"]))
    *_, before, after = sent(small)
    assert after[: len(before)] == before  # the provider's cache is good for it
    assert len(markers(ref)) == 1


async def test_a_long_run_is_compacted_between_its_steps(small: World) -> None:
    (small.project / "a.txt").write_text("word " * 1200)
    read_it = tool_use("Read", file_path=str(small.project / "a.txt"))
    again = tool_use("Read", file_path=str(small.project / "a.txt"), offset=1)
    ref = small.session()
    script = [
        answer("First", read_it, usage={"input_tokens": 100}),
        answer("Second", again, usage={"input_tokens": 1700}),
        SUMMARY,
        answer("Third", usage={"input_tokens": 1900}),
    ]
    await talk(small, ref, ("Read it twice", script), ("And?", ["Well"]))
    (marker,) = markers(ref)
    assert marker["metadata"]["tail_start_part_id"]
    assert "The user's words:\n\nRead it twice" in marker["summary"]
    *_, before, after = sent(small)
    assert [(m["role"], *[b["type"] for b in m["content"]]) for m in before] == [
        ("user", "text"), ("assistant", "text", "tool_use"), ("user", "tool_result"),
    ]  # fmt: skip
    assert after[: len(before)] == before
    text = body(ref)
    assert text.index("Second") < text.index("``` compaction") < text.index("Third")


async def test_the_request_stays_word_for_word_however_often_its_run_is_compacted(small: World) -> None:
    def reads(number: int, used: int) -> Any:
        path = small.project / f"f{number}.txt"
        path.write_text("x " * 1500)
        return answer(tool_use("Read", file_path=str(path)), usage={"input_tokens": used, "output_tokens": 5})

    ref = small.session()
    long = [reads(1, 500), reads(2, 3500), SUMMARY, reads(3, 500), reads(4, 3500), SUMMARY, "Done"]
    async with small.kernel.using(ref) as branch:
        watcher = Watcher()
        await attached(branch, watcher)
        small.server.say(*long)
        await small.kernel.prompt(branch, text="Do exactly this", options=small.options)
        await small.kernel.submit(branch, Submission(text="And shortly", options=small.options, steer=True))
        await watcher.finished(branch)
        branch.detach(watcher)
    request = "## Current Request\nThe user's words:\n\nDo exactly this\n\nAnd shortly"
    assert [marker["summary"] for marker in markers(ref)] == [f"{SUMMARY}\n\n{request}"] * 2
    assert request in sent(small)[-1][0]["content"][0]["text"]


@pytest.mark.spec(
    "002",
    "How should errors be designed — what auto-retries, what hard-fails, and is a hard-failed session dead forever?",
)
async def test_a_summary_that_fails_for_now_is_tried_again_and_then_done_without(small: World) -> None:
    ref, seen = small.session(), list[dict[str, Any]]()
    await talk(small, ref, *THREE, ("Four", [OVERLOADED, OVERLOADED, "Done anyway"]), seen=seen)
    assert markers(ref) == []
    assert body(ref).count("Done anyway") == 1
    assert len(sent(small, summaries=True)) == 2
    assert any("Not compacted" in event.get("text", "") for event in seen)
    assert any(event.get("phase") == "COMPACT" for event in seen)


async def test_a_prompt_that_the_server_finds_too_long_is_compacted_and_sent_once_more(small: World) -> None:
    ref = small.session()
    await talk(
        small, ref, ("One", [story(100, 200)]), ("Two", [story(600, 900)]), ("Three", [TOO_LONG, SUMMARY, "Done"])
    )
    assert len(markers(ref)) == 1
    assert assert_closed(ref)["reason"] == "done"


async def test_a_server_that_holds_less_than_is_known_gets_shorter_requests_until_one_is_accepted(
    small: World,
) -> None:
    most, refused = 1100, list[int]()

    def rule(request: Request) -> Any:
        size = len("".join(block.get("text", "") for m in request.body["messages"] for block in m["content"]))
        if size > most:
            refused.append(size)
            return TOO_LONG
        return answer(SUMMARY if is_summary(request) else "Done")

    ref = small.session()
    tales = [(f"Turn {number}", [story(250, 300 + number)]) for number in range(4)]
    await talk(small, ref, *tales)
    small.server.rule = rule
    await talk(small, ref, ("And now?", []))
    assert assert_closed(ref)["reason"] == "done" and body(ref).count("Done") == 1
    assert len(refused) == len(set(refused)), "nothing is sent again that was refused"


@pytest.mark.parametrize("usage", [{"input_tokens": 0, "output_tokens": 0}, {"input_tokens": 0, "output_tokens": 9}])
async def test_tokens_that_a_server_does_not_report_are_estimated(small: World, usage: dict[str, int]) -> None:
    ref, seen = small.session(), list[dict[str, Any]]()
    tale = answer("blah " * 800, usage=usage)
    small.server.rule = lambda request: answer(SUMMARY) if is_summary(request) else tale
    async with small.kernel.using(ref) as branch:
        watcher = Watcher()
        await attached(branch, watcher)
        for number in range(6):
            await small.kernel.prompt(branch, text=f"Turn {number}", options=small.options)
            await watcher.until(lambda: any(event.args[0]["phase"] == "finished" for event in watcher.of("run")))
            await watcher.until(lambda: watcher.of("context"))  # it comes with a beat, also behind the end
            seen += [event.args[0] for event in watcher.of("context")]
            await watcher.finished(branch)
        branch.detach(watcher)
    assert markers(ref), "it was compacted"
    assert seen and all(told["estimated"] for told in seen if told["used"])
    assert max(told["used"] for told in seen) > 1500
    assert outgoing(small) < 4 * WINDOW


def outgoing(world: World) -> int:
    """The characters of the longest conversation that was sent."""
    return max(len(json.dumps(r.body["messages"])) for r in world.server.requests if not is_summary(r))


async def test_what_does_not_fit_whatever_is_done_is_refused_and_nothing_is_lost(small: World) -> None:
    ref = small.session()
    end = await talk(small, ref, *THREE, ("Four " + "word " * 4000, [SUMMARY]))
    assert end["reason"] == "error"
    assert "Fork it" in end["message"]
    assert assert_closed(ref)["error"]["code"] == "context_overflow"
    assert "Four word" in body(ref)


async def test_a_model_with_a_smaller_window_compacts_first(small: World) -> None:
    ref = small.session()
    await talk(small, ref, ("One", [story(100, 200)]), ("Two", [story(600, 1500)]))
    preset = ref.branch_dir / "preset.md"
    preset.write_text(preset.read_text().replace("model-main", "model-small"))
    await talk(small, ref, ("Three", [SUMMARY, "Small"]))
    assert len(markers(ref)) == 1
    assert small.server.last.body["model"] == "model-small"


async def test_old_tool_outputs_go_before_anything_is_summarised(small: World) -> None:
    file = small.project / "a.txt"
    file.write_text("word " * 300)

    def read() -> Any:
        return tool_use("Read", file_path=str(file))

    script = [answer(f"Step {n}", read(), usage={"input_tokens": 300 * n if n < 10 else 1700}) for n in range(1, 11)]
    ref = small.session()
    await talk(small, ref, ("Read it often", [*script, "Done"]), ("And?", ["Well"]))
    assert sent(small, summaries=True) == []
    first = markers(ref)[0]
    assert first["summary"] == "" and len(first["metadata"]["pruned"]) == 4
    *_, before, after = sent(small)
    stubs = [b for m in before for b in m["content"] if b["type"] == "tool_result" and "output pruned" in str(b)]
    assert len(stubs) == 4
    assert after[: len(before)] == before


async def compacted(world: World, ref: BranchRef, *script: Any) -> dict[str, Any]:
    """Compact as a user does; return the end that was told."""
    async with world.kernel.using(ref) as branch:
        watcher = Watcher()
        await attached(branch, watcher)
        world.server.say(*script)
        await compact(world.kernel, branch, world.options)
        end = await watcher.finished(branch)
        branch.detach(watcher)
    return end


@pytest.mark.spec(
    "002", "How is a compaction stored in the DB, and how does it support UIs that show a divider or the summary?"
)
async def test_by_hand_everything_is_summarised_and_the_draft_stays_below(small: World) -> None:
    ref = small.session()
    await talk(small, ref, ("One", ["First"]), ("Two", ["Second"]))
    file = ref.branch_dir / "session.md"
    file.write_text(file.read_text().replace("Second\n\n### ", "Second\n\n### A draft"))
    assert (await compacted(small, ref, SUMMARY))["reason"] == "done"
    (marker,) = markers(ref)
    assert (marker["auto"], marker["tail_start_id"], marker["summary"]) == (False, None, SUMMARY)
    assert body(ref).endswith(f"Second\n\n``` compaction (4 messages, ~6 tokens)\n{SUMMARY}\n```\n\n### A draft")
    assert next_view(ref)[0].parts[1].text == "A draft"
    await talk(small, ref, ("Three", ["Third"]))
    assert [b["text"] for m in sent(small)[-1] for b in m["content"]][1:] == ["A draft", "Three"]


@pytest.mark.spec("002", "Can a user rewind past a compaction back to a turn the compaction summarized?")
async def test_rewinding_past_a_compaction_gives_the_whole_history_back(small: World) -> None:
    ref = small.session()
    await talk(small, ref, ("One", ["First"]), ("Two", ["Second"]))
    before = next_view(ref)
    await compacted(small, ref, SUMMARY)
    await talk(small, ref, ("Three", ["Third"]))
    first = next(row.data["message_id"] for row in rows(ref) if row.data.get("data_json", {}).get("text") == "Two")
    async with small.kernel.using(ref) as branch:
        await History(small.kernel).rewind(branch, first)
    assert next_view(ref) == before[:3]
    async with small.kernel.using(ref) as branch:
        await History(small.kernel).unrewind(branch)
    assert next_view(ref)[0].parts[0].text.startswith("<conversation_summary>")


async def test_by_hand_works_after_an_error_and_not_while_a_run_goes_on(small: World) -> None:
    ref = small.session()
    await talk(small, ref, ("One", ["First"]), ("Two", [refusal(400, "invalid_request_error", "no")]))
    assert (await compacted(small, ref, SUMMARY))["reason"] == "done"
    assert "``` error" in body(ref) and body(ref).count("``` compaction") == 1
    async with small.kernel.using(ref) as branch:
        watcher = Watcher()
        await attached(branch, watcher)
        small.server.say(answer("Slow", hang_after=2))
        await small.kernel.prompt(branch, text="Three", options=small.options)
        with pytest.raises(Busy):
            await compact(small.kernel, branch, small.options)
        await small.kernel.abort(branch)
        branch.detach(watcher)


async def test_an_aborted_compaction_costs_nothing(small: World) -> None:
    ref = small.session()
    await talk(small, ref, ("One", ["First"]))
    text = body(ref)
    async with small.kernel.using(ref) as branch:
        watcher = Watcher()
        await attached(branch, watcher)
        small.server.say(answer(SUMMARY, hang_after=2))
        await compact(small.kernel, branch, small.options)
        await watcher.phase(branch, "COMPACT")
        assert branch.status["state"] == "busy"
        await small.kernel.abort(branch)
        assert (await watcher.finished(branch))["reason"] == "aborted"
        branch.detach(watcher)
    assert (markers(ref), body(ref)) == ([], text)
    await talk(small, ref, ("Two", ["Second"]))
    assert len(next_view(ref)) == 4


async def test_a_summary_that_fails_by_hand_is_an_error_and_leaves_the_text_alone(small: World) -> None:
    ref = small.session()
    await talk(small, ref, ("One", ["First"]))
    text = body(ref)
    end = await compacted(small, ref, refusal(404, "not_found_error", "model: model-main"))
    assert end["reason"] == "error" and "404" in end["message"]
    assert body(ref) == text


async def test_nothing_is_compacted_where_nothing_was_said(small: World) -> None:
    ref = small.session()
    async with small.kernel.using(ref) as branch:
        with pytest.raises(BadRequest, match="nothing to compact"):
            await compact(small.kernel, branch, small.options)
    await talk(small, ref, ("One", ["First"]))
    await compacted(small, ref, SUMMARY)
    async with small.kernel.using(ref) as branch:
        with pytest.raises(BadRequest, match="nothing to compact"):
            await compact(small.kernel, branch, small.options)


async def test_what_is_too_long_for_one_request_is_summarised_in_pieces(small: World) -> None:
    ref = small.session()
    await talk(small, ref, *[(f"Prompt {n}", [story(1200, 1300)]) for n in range(6)])
    requests = len(small.server.requests)
    small.server.say(*[f"Summary {n}" for n in range(20)])
    await compacted(small, ref)
    asked = [r.body["messages"][0]["content"][0]["text"] for r in small.server.requests[requests:]]
    assert 2 < len(asked) < 20
    assert all(f"<earlier_summary>\nSummary {n - 1}\n" in text for n, text in enumerate(asked) if n)
    (marker,) = markers(ref)
    assert marker["metadata"]["strategy"] == "chunked" and marker["summary"] == f"Summary {len(asked) - 1}"


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_a_run_that_compacted_goes_on_after_a_restart_with_what_it_saw(small: World, how: str) -> None:
    (small.project / "a.txt").write_text("word " * 1150)
    ref = small.session()
    small.server.say(
        answer("First", tool_use("Read", file_path=str(small.project / "a.txt")), usage={"input_tokens": 100}),
        answer("Second", tool_use("Read", file_path=str(small.project / "a.txt")), usage={"input_tokens": 1700}),
        SUMMARY,
        answer("Third", tool_use("Bash", command="echo hi"), usage={"input_tokens": 1900}),
    )
    await begin(small, ref, "Read it twice", asks=1)
    before = sent(small)[-1]
    assert "conversation_summary" in before[0]["content"][0]["text"]
    ref = await restart(small, ref, how)
    (ask,) = await awake(small, ref, 1)
    small.server.say("It says hi.")
    await say(small, ask)
    await ended(small)
    after = sent(small)[-1]
    assert after[: len(before)] == before
    assert assert_closed(ref)["reason"] == "done"


async def test_aborting_a_run_while_it_compacts_keeps_the_message(small: World) -> None:
    ref = small.session()
    await talk(small, ref, *THREE)
    async with small.kernel.using(ref) as branch:
        watcher = Watcher()
        await attached(branch, watcher)
        small.server.say(answer(SUMMARY, hang_after=2))
        await small.kernel.prompt(branch, text="Four", options=small.options)
        await watcher.phase(branch, "COMPACT")
        await small.kernel.abort(branch)
        assert (await watcher.finished(branch))["reason"] == "aborted"
        branch.detach(watcher)
    assert markers(ref) == [] and "### Four" in body(ref)


async def test_a_daemon_that_ends_while_it_compacts_leaves_everything_as_it_was(small: World) -> None:
    ref = small.session()
    await talk(small, ref, ("One", ["First"]))
    async with small.kernel.using(ref) as branch:
        watcher = Watcher()
        await attached(branch, watcher)
        small.server.say(answer(SUMMARY, hang_after=2))
        await compact(small.kernel, branch, small.options)
        await watcher.phase(branch, "COMPACT")
        text = body(ref)
        branch.detach(watcher)
        ref = await restart(small, ref, "killed")
    await talk(small, ref, ("Two", ["Second"]))
    assert markers(ref) == [] and body(ref).startswith(text[: text.index("First")])
    assert "``` error" not in body(ref)
    assert assert_closed(ref)["reason"] == "done"


async def test_a_queued_message_is_answered_after_the_compaction(small: World) -> None:
    ref = small.session()
    await talk(small, ref, ("One", ["First"]))
    async with small.kernel.using(ref) as branch:
        watcher = Watcher()
        await attached(branch, watcher)
        small.server.say(answer(SUMMARY, pause_s=0.01), "Second")
        await compact(small.kernel, branch, small.options)
        given = await small.kernel.submit(branch, Submission(text="Two", options=small.options))
        assert given.queued
        await watcher.until(lambda: not small.kernel.runs and not branch.queue.waiting)
        branch.detach(watcher)
    assert "conversation_summary" in sent(small)[-1][0]["content"][0]["text"]
    assert body(ref).index("``` compaction") < body(ref).index("### Two") < body(ref).index("Second")


async def test_a_prompt_that_got_no_answer_is_summarised_too_and_stands_above_the_block(small: World) -> None:
    ref = small.session()
    await talk(small, ref, ("One", ["First"]))
    async with small.kernel.using(ref) as branch:
        watcher = Watcher()
        await attached(branch, watcher)
        small.server.say(silent())
        await small.kernel.prompt(branch, text="Two", options=small.options)
        await watcher.phase(branch, "WAIT")
        await small.kernel.abort(branch)
        await watcher.finished(branch)
        branch.detach(watcher)
    await compacted(small, ref, SUMMARY)
    assert markers(ref)[0]["summary"] == f"{SUMMARY}\n\n## Current Request\nThe user's words:\n\nTwo"
    assert body(ref).index("### Two") < body(ref).index("``` compaction")
    aligned = align(read(ref.branch_dir / "session.md"), Conversation(rows(ref)))
    assert (aligned.edits, aligned.notes) == ((), ())
