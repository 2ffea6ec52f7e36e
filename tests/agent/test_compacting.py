"""Compaction of running conversations, against a model with a small window."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyagentd.llm.summary import SYSTEM
from pyagentd.store.align import align
from pyagentd.store.compaction import COMPACTION
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import read
from pyagentd.store.paths import BranchRef
from tests.agent.world import OVERLOADED, Watcher, World, assert_closed, attached, body, rows
from tests.server import Request, answer, refusal, tool_use

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
    async with world.host.using(ref) as branch:
        watcher = Watcher()
        await attached(branch, watcher)
        for prompt, script in turns:
            world.server.say(*script)
            await world.host.prompt(branch, text=prompt, options=world.options)
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
