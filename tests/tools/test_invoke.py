import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyagentd.errors import ToolError
from pyagentd.policy.action import Action, Target
from pyagentd.tools.invoke import invoke
from pyagentd.tools.spec import Args, Output, ToolContext, ToolSpec, schema_of
from tests.tools.conftest import Call, allow

Run = Callable[[Args, ToolContext], Awaitable[str | Output]]


def tool(run: Run, **fields: Any) -> ToolSpec:
    spec = ToolSpec(
        name="Tool",
        description="A tool",
        input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": False},
        kind="meta",
        run=run,
        describe=lambda args, ctx: Target(detail=args.get("text", "")),
    )
    return replace(spec, **fields)


async def echo(args: Args, ctx: ToolContext) -> str:
    return f"said {args['text']}"


def raises(error: BaseException) -> Run:
    async def run(args: Args, ctx: ToolContext) -> str:
        raise error

    return run


async def test_a_result_comes_in_an_envelope(call: Call) -> None:
    envelope = await call(tool(echo), text="x")
    assert (envelope.ok, envelope.text, envelope.truncated, envelope.output_path) == (True, "said x", False, None)


async def test_arguments_are_checked_before_anybody_is_asked(ctx: ToolContext) -> None:
    async def never(action: Action) -> None:
        raise AssertionError("asked")

    envelope = await invoke(tool(echo), {"text": 3}, ctx, never)
    assert (envelope.ok, envelope.text.startswith('Tool: "text" must be a string')) == (False, True)


async def test_what_is_wrong_with_arguments_is_said_in_few_words(call: Call) -> None:
    envelope = await call(tool(echo), **{f"{number}{'x' * 100}": 1 for number in range(5_000)})
    assert len(envelope.text) < 10_000 and '"0x' in envelope.text and "there is more" in envelope.text


async def test_a_long_error_is_cut_and_kept_like_a_long_result(call: Call) -> None:
    def impossible(args: Args, ctx: ToolContext) -> Target:
        raise ToolError("no\n" * 200_000)

    envelope = await call(tool(echo, describe=impossible), text="x")
    assert not envelope.ok and envelope.truncated and len(envelope.text) < 201_000
    assert envelope.output_path is not None and len(envelope.output_path.read_text()) >= 600_000


async def test_a_refusal_is_the_text_and_the_tool_does_not_run(call: Call) -> None:
    async def deny(action: Action) -> None:
        raise ToolError(f"no {action}", hint="Ask for it")

    ran = False

    async def run(args: Args, ctx: ToolContext) -> str:
        nonlocal ran
        ran = True
        return ""

    envelope = await call(tool(run), authorise=deny, text="x")
    assert (envelope.ok, envelope.text, envelope.duration_ms) == (False, "no tool:Tool:x. Ask for it", 0)
    assert not ran


@pytest.mark.spec(
    "002",
    "How should errors be designed — what auto-retries, what hard-fails, and is a hard-failed session dead forever?",
)
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ToolError("it is so", hint="Do this"), "it is so. Do this"),
        (FileNotFoundError(2, "No such file or directory", "/a/b"), "No such file or directory: /a/b"),
        (ValueError("bad"), "Tool failed: ValueError: bad"),
        (RecursionError("deep"), "Tool failed: RecursionError: deep"),
        (TimeoutError("theirs"), "Tool failed: TimeoutError: theirs"),
    ],
)
async def test_whatever_a_tool_raises_is_told_to_the_model(call: Call, error: Exception, text: str) -> None:
    envelope = await call(tool(raises(error)))
    assert (envelope.ok, envelope.text) == (False, text)


async def test_a_broken_tool_is_an_error_too(call: Call, ctx: ToolContext) -> None:
    def describe(args: Args, ctx: ToolContext) -> Target:
        raise KeyError("path")

    assert not (await call(tool(echo, describe=describe))).ok
    assert not (await invoke(tool(echo), None, ctx, allow)).ok


async def test_a_tool_that_takes_too_long_is_stopped(call: Call) -> None:
    stopped = asyncio.Event()

    async def wait(args: Args, ctx: ToolContext) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    envelope = await call(tool(wait, timeout_s=0.05))
    assert (envelope.ok, envelope.text) == (False, "Tool did not finish within 0.05 s and was stopped")
    assert stopped.is_set()
    assert envelope.duration_ms >= 50


async def test_waiting_for_an_approval_is_not_limited_and_does_not_count(call: Call) -> None:
    async def ask(action: Action) -> None:
        await asyncio.sleep(0.1)  # longer than the tool itself may take

    envelope = await call(tool(echo, timeout_s=0.05), authorise=ask, text="x")
    assert envelope.ok
    assert envelope.duration_ms < 100


async def test_cancellation_passes_through(call: Call) -> None:
    started = asyncio.Event()

    async def wait(args: Args, ctx: ToolContext) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    task = asyncio.ensure_future(call(tool(wait)))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_long_text_is_cut_at_a_line_and_kept(call: Call, ctx: ToolContext) -> None:
    whole = "".join(f"{n:>9}\n" for n in range(1, 30_001))

    async def long(args: Args, ctx: ToolContext) -> str:
        return whole

    envelope = await call(tool(long))
    assert (envelope.ok, envelope.truncated) == (True, True)
    assert envelope.output_path is not None
    assert envelope.output_path.parent == ctx.spool_dir
    assert envelope.output_path.read_text() == whole
    shown, _, notice = envelope.text.partition("[")
    assert shown == whole[:200_000]
    assert notice == (
        f"Only the beginning is shown. The whole output is in {envelope.output_path}: "
        f'read on with Read(file_path="{envelope.output_path}", offset=20001) or search it with Grep.]'
    )


async def test_one_long_line_is_cut_between_characters(call: Call) -> None:
    async def long(args: Args, ctx: ToolContext) -> str:
        return "€" * 100_000

    envelope = await call(tool(long))
    assert envelope.text.startswith("€" * 66_666 + "\n[Only the beginning")


async def test_text_that_just_fits_is_left_alone(call: Call, ctx: ToolContext) -> None:
    async def fitting(args: Args, ctx: ToolContext) -> str:
        return "x" * 200_000

    envelope = await call(tool(fitting))
    assert (envelope.truncated, len(envelope.text)) == (False, 200_000)
    assert not ctx.spool_dir.exists()


async def test_output_that_cannot_be_kept_does_not_make_the_call_fail(
    tmp_path: Path, call: Call, ctx: ToolContext
) -> None:
    (tmp_path / "file").touch()

    async def long(args: Args, ctx: ToolContext) -> str:
        return "x\n" * 200_000

    envelope = await call(tool(long), within=replace(ctx, spool_dir=tmp_path / "file" / "below"))
    assert (envelope.ok, envelope.truncated, envelope.output_path) == (True, True, None)
    assert envelope.text.endswith("the rest could not be kept: Not a directory.]")


async def test_the_tool_gets_the_paths_that_were_authorised(call: Call, ctx: ToolContext, root: Path) -> None:
    from pyagentd.tools.spec import describe_file

    async def run(args: Args, ctx: ToolContext) -> str:
        return ctx.paths[0].resolved

    spec = tool(run, describe=lambda args, ctx: describe_file({"file_path": args["text"]}, ctx))
    assert (await call(spec, text="a/../b")).text == f"{root}/b"


def test_a_provider_is_told_name_description_and_schema() -> None:
    assert schema_of(tool(echo)) == {
        "name": "Tool",
        "description": "A tool",
        "input_schema": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "additionalProperties": False,
        },
    }
