"""The offline stand-in uses the tools it is offered, by rule, and says what it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from pyagentd.errors import ConfigError
from pyagentd.llm.backend import Backend, PartDelta
from pyagentd.llm.offline import DISCLAIMER, offline_backend, pace_from_environment
from pyagentd.messages import Media, Message, Text, ToolCall, ToolResult
from tests.llm.requests import assistant, calls, collect, end, request, said, tool, user

SPAWN = tool(
    "PersistentAgent",
    {"preset": {"type": "string", "enum": ["executor", "explorer", "researcher"]}, "prompt": {"type": "string"}},
)
FILES = {
    "presets/explorer.md": "---\ndescription: Looks around\n---\n\n# Explorer\n\nYou look around.",
    "presets/planner.md": "# Planner\n\nYou plan.",
    "presets/writer.md": "You write.",
    "presets/zed.md": "# Zed",
}
READ_WRITE = (
    tool("Glob"),
    tool("Read", {"file_path": {"type": "string"}}),
    tool("Bash"),
    tool("Write"),
    tool("Grep"),
)


@pytest_asyncio.fixture
async def backend() -> AsyncIterator[Backend]:
    opened = offline_backend(pace_s=0.0)
    yield opened
    await opened.close()


def numbered(text: str) -> str:
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(text.split("\n"), 1))


def result(call: ToolCall) -> ToolResult:
    match call.name:
        case "Glob":
            text = "\n".join(FILES) if call.input["pattern"] == "presets/*.md" else "No files match"
        case "Read" if call.input["file_path"] in FILES:
            text = numbered(FILES[call.input["file_path"]])
        case "PersistentAgent":
            text = f"There are three:\n\n- explorer\n- planner\n\n{DISCLAIMER}: I quote."
        case _:
            return ToolResult(id=call.id, text=f"{call.input} does not exist. Find it with Glob", is_error=True)
    return ToolResult(id=call.id, text=text)


async def converse(
    backend: Backend, *history: Message | str, tools: tuple[Any, ...] = READ_WRITE
) -> tuple[str, list[list[ToolCall]], tuple[Message, ...]]:
    """Run the loop; return the final answer, the calls by step, and the whole conversation."""
    messages = request(*history).messages
    steps: list[list[ToolCall]] = []
    for _ in range(10):
        items = await collect(backend, request(*messages, tools=tools))
        made = calls(items)
        messages = (*messages, assistant(said(items), *made))
        if end(items).stop_reason == "end_turn":
            return said(items), steps, messages
        steps.append(made)
        messages = (*messages, user(*(result(call) for call in made)))
    raise AssertionError("the stand-in does not come to an end")


def told(steps: list[list[ToolCall]]) -> list[list[tuple[str, Mapping[str, Any]]]]:
    return [[(call.name, call.input) for call in step] for step in steps]


async def test_a_greeting_needs_no_tool(backend: Backend) -> None:
    text, steps, _ = await converse(backend, "hello")
    assert steps == []
    assert text.count(DISCLAIMER) == 1
    assert "Read" in text, "it says what it could do"


async def test_the_presets_are_found_then_three_are_read_in_parallel(backend: Backend) -> None:
    text, steps, _ = await converse(backend, "Which presets are there?")
    assert told(steps) == [
        [("Glob", {"pattern": "presets/*.md"})],
        [("Read", {"file_path": path}) for path in list(FILES)[:3]],
    ]
    assert "matches 4 files" in text
    assert "`presets/explorer.md` has 7 lines, and begins with “Explorer”." in text
    assert "Its description is “Looks around”." in text
    assert "`presets/writer.md` has 1 line, and begins with “You write.”." in text
    assert text.count(DISCLAIMER) == 1


async def test_named_files_are_read_at_once(backend: Backend) -> None:
    _, steps, _ = await converse(backend, "Compare presets/planner.md with `presets/zed.md`, please.")
    assert told(steps) == [[("Read", {"file_path": "presets/planner.md"}), ("Read", {"file_path": "presets/zed.md"})]]


@pytest.mark.parametrize(("prompt", "file"), [("read a.py", "a.py"), ("read src/a.c, i.e. that one", "src/a.c")])
async def test_a_file_may_have_a_name_of_one_letter(backend: Backend, prompt: str, file: str) -> None:
    _, steps, _ = await converse(backend, prompt)
    assert told(steps) == [[("Read", {"file_path": file})]]


async def test_an_attachment_is_read_once_and_where_it_is(backend: Backend) -> None:
    prompt = "What is attached?\n\n[zed.md](files/zed.md)\n\nfiles/zed.md is the file /s/main/files/zed.md (5 bytes)."
    _, steps, _ = await converse(backend, prompt)
    assert told(steps) == [[("Read", {"file_path": "/s/main/files/zed.md"})]]


async def test_the_greeting_says_how_to_see_a_question(backend: Backend) -> None:
    text, steps, _ = await converse(backend, "Hello")
    assert not steps and "write `hello` to notes.txt" in text


@pytest.mark.parametrize(
    ("prompt", "pattern"),
    [
        ("What is in pyagentd/llm?", "pyagentd/llm/*"),
        ("Look at src/**/*.py", "src/**/*.py"),
        ("List the files here", "*"),
        ("Summarise the documentation", "**/*.md"),
        ("What do the tests cover?", "tests/**/*.py"),
        ("Look into /etc/ssh/ and/or nothing, see https://example.org/a.html", "/etc/ssh/*"),
    ],
)
async def test_a_prompt_implies_a_pattern(backend: Backend, prompt: str, pattern: str) -> None:
    _, steps, _ = await converse(backend, prompt)
    assert told(steps) == [[("Glob", {"pattern": pattern})]]


@pytest.mark.parametrize(
    ("prompt", "name", "arguments"),
    [
        ("Please run `make test`", "Bash", {"command": "make test"}),
        (
            'Write "hello from an agent" to notes.txt',
            "Write",
            {"file_path": "notes.txt", "content": "hello from an agent\n"},
        ),
        ("Write `hello` to notes/today.md.", "Write", {"file_path": "notes/today.md", "content": "hello\n"}),
        ("Write hello to notes.txt", "Write", {"file_path": "notes.txt", "content": "hello\n"}),
        ("Search the project for `a.b`", "Grep", {"pattern": r"a\.b"}),
    ],
)
async def test_other_tools_are_used_when_asked_for(
    backend: Backend, prompt: str, name: str, arguments: dict[str, Any]
) -> None:
    text, steps, _ = await converse(backend, prompt)
    assert told(steps) == [[(name, arguments)]]
    assert f"{name} " in text and "failed" in text


async def test_an_agent_is_spawned_with_an_errand_it_does_itself(backend: Backend) -> None:
    prompt = "Ask an explorer agent to summarise the presets."
    text, steps, _ = await converse(backend, prompt, tools=(*READ_WRITE, SPAWN))
    [[spawn]] = steps
    assert spawn.name == "PersistentAgent"
    assert spawn.input["preset"] == "explorer"
    assert spawn.input["prompt"].startswith("Summarise the presets. ")
    assert len(spawn.input["description"].split()) <= 5
    assert "> - planner" in text and text.count(DISCLAIMER) == 1
    _, inner, _ = await converse(backend, spawn.input["prompt"], tools=(*READ_WRITE, SPAWN))
    assert [step[0].name for step in inner] == ["Glob", "Read"]


@pytest.mark.parametrize(
    ("prompt", "preset"),
    [
        ("Spawn a sub-agent that reads presets/*.md", "explorer"),
        ("Delegate presets/*.md to the researcher", "researcher"),
        ("Have agents delegate to agents: presets/*.md", "explorer"),
    ],
)
async def test_no_errand_makes_an_agent_spawn_again(backend: Backend, prompt: str, preset: str) -> None:
    items = await collect(backend, request(prompt, tools=(*READ_WRITE, SPAWN)))
    [spawn] = calls(items)
    assert spawn.input["preset"] == preset
    assert "presets/*.md" in spawn.input["prompt"]
    inner = await collect(backend, request(spawn.input["prompt"], tools=(*READ_WRITE, SPAWN)))
    assert [call.name for call in calls(inner)] == ["Glob"]


async def test_a_file_named_after_agents_is_only_read(backend: Backend) -> None:
    _, steps, _ = await converse(backend, "Read pyagentd/runtime/run.py", tools=(*READ_WRITE, SPAWN))
    assert told(steps) == [[("Read", {"file_path": "pyagentd/runtime/run.py"})]]


async def test_without_the_tool_for_agents_it_looks_itself(backend: Backend) -> None:
    _, steps, _ = await converse(backend, "Ask an explorer to list the presets")
    assert [step[0].name for step in steps] == ["Glob", "Read"]


async def test_a_tool_it_was_not_offered_is_named(backend: Backend) -> None:
    text, steps, _ = await converse(backend, "Read presets/zed.md", tools=(tool("Bash"),))
    assert steps == [] and "`Read`" in text and DISCLAIMER in text


async def test_a_failed_tool_is_reported_as_failed(backend: Backend) -> None:
    text, _, _ = await converse(backend, "Read presets/none.md and presets/zed.md")
    assert "Read `presets/none.md` failed: " in text and "does not exist" in text
    assert "`presets/zed.md` has 1 line" in text


async def test_a_pattern_that_matches_nothing_is_reported(backend: Backend) -> None:
    text, steps, _ = await converse(backend, "Look at lost/*.md")
    assert len(steps) == 1 and "No file matches `lost/*.md`" in text


async def test_a_follow_up_is_planned_from_its_own_words(backend: Backend) -> None:
    _, _, conversation = await converse(backend, "Which presets are there?")
    _, steps, conversation = await converse(backend, *conversation, user("Now read presets/zed.md"))
    assert told(steps) == [[("Read", {"file_path": "presets/zed.md"})]]
    text, steps, _ = await converse(backend, *conversation, user("thanks"))
    assert steps == [] and text.startswith("Hello!")


async def test_call_ids_never_repeat(backend: Backend) -> None:
    asked = request("Read presets/zed.md and presets/planner.md", tools=READ_WRITE)
    made = [call.id for _ in range(2) for call in calls(await collect(backend, asked))]
    assert len(set(made)) == 4


async def test_the_same_requests_get_the_same_answers() -> None:
    asked = request("Which presets are there?", tools=READ_WRITE)
    assert await collect(offline_backend(0.0), asked) == await collect(offline_backend(0.0), asked)


async def test_text_comes_word_by_word(backend: Backend) -> None:
    items = await collect(backend, request("hello"))
    words = [item.text for item in items if isinstance(item, PartDelta)]
    assert all(len(word.split()) == 1 for word in words) and len(words) > 10


async def test_the_pace_is_seconds_per_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    items = await collect(offline_backend(0.25), request("hello"))
    assert slept == [0.25] * sum(isinstance(item, PartDelta) for item in items)


@pytest.mark.parametrize(("given", "pace"), [({}, 0.0), ({"PYAGENTD_OFFLINE_PACE": " 0.03 "}, 0.03)])
def test_the_pace_comes_from_the_environment(given: dict[str, str], pace: float) -> None:
    assert pace_from_environment(given) == pace


@pytest.mark.parametrize("given", ["fast", "-1", "nan", "60"])
def test_a_pace_that_is_no_number_of_seconds_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="PYAGENTD_OFFLINE_PACE"):
        pace_from_environment({"PYAGENTD_OFFLINE_PACE": given})


async def test_a_picture_is_seen_but_not_looked_at(backend: Backend) -> None:
    picture = Media(type="image/png", data="A" * 100_000)
    shown = Message(role="user", parts=(picture, Text(text="What is it?")))
    items = await collect(backend, request(shown))
    assert end(items).usage.input < 2000
    assert "a picture, which only a language model" in said(items)
