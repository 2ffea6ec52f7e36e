"""One agent of another library, run to its end: ``python -m tests.bench.rival_agents NAME URL TURNS``.

Runs with the Python in which the libraries are installed, which need not be ours; so nothing of ours is imported.
"""

import asyncio
import sys
from pathlib import Path


def read_file(file_path: str) -> str:
    """Read a file."""
    return Path(file_path).read_text()


def pydantic_ai(url: str, turns: int) -> str:
    from pydantic_ai import Agent, UsageLimits
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    agent = Agent(AnthropicModel("bench", provider=AnthropicProvider(api_key="test", base_url=url)))
    agent.tool_plain(read_file)

    async def run() -> str:
        parts = []
        limits = UsageLimits(request_limit=None)
        async with agent.run_stream(f"turns {turns}", usage_limits=limits) as streamed:
            async for piece in streamed.stream_text(delta=True):
                parts.append(piece)
        return "".join(parts)

    return asyncio.run(run())


def openai_agents(url: str, turns: int) -> str:
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    model = OpenAIChatCompletionsModel("bench", AsyncOpenAI(api_key="test", base_url=f"{url}/v1"))
    agent = Agent(name="reader", model=model, tools=[function_tool(read_file)])

    async def run() -> str:
        streamed = Runner.run_streamed(agent, f"turns {turns}", max_turns=turns + 5)
        async for _ in streamed.stream_events():
            pass
        return str(streamed.final_output)

    return asyncio.run(run())


_AGENTS = {"pydantic-ai": pydantic_ai, "openai-agents": openai_agents}


if __name__ == "__main__":
    print(_AGENTS[sys.argv[1]](sys.argv[2], int(sys.argv[3])))
