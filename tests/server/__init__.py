"""An HTTP server for tests and benchmarks: Anthropic's Messages API, Chat Completions, OpenAI's Responses API.

Own code on both sides of the socket would hide a shared misunderstanding, so nothing here imports pyagentd. What a
server says is scripted with the helpers of ``answers`` and ``streams``; ``rules`` refuses what the real API would.
"""

from tests.server.answers import (
    Answer,
    Block,
    answer,
    error_event,
    malformed,
    raw,
    redacted_thinking,
    refusal,
    silent,
    text,
    thinking,
    tool_use,
)
from tests.server.http import Request
from tests.server.server import ModelServer
from tests.server.streams import burst, paced, tool_turns

__all__ = [
    "Answer",
    "Block",
    "ModelServer",
    "Request",
    "answer",
    "burst",
    "error_event",
    "malformed",
    "paced",
    "raw",
    "redacted_thinking",
    "refusal",
    "silent",
    "text",
    "thinking",
    "tool_turns",
    "tool_use",
]
