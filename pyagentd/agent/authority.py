"""Who may do what in one run: the pure decision of ``policy`` joined with the questions to a human.

A model's word is never an authority: what an action touches is computed by the tool from its checked arguments, the
preset's rules come from disk, and grants come from the client that sent the message.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pyagentd.agent.asks import Answer
from pyagentd.errors import ToolError
from pyagentd.messages import ToolCall
from pyagentd.policy.guard import Action, Allow, Ask, Context, Deny, ResolvedPath, decide
from pyagentd.tools.spec import ToolContext, ToolSpec

AskHuman = Callable[[Mapping[str, Any]], Awaitable[Answer]]


class Authority:
    """Decides for one run.

    Args:
        context: Reads the rules anew for every decision, so a change of ``preset.md`` counts at once.
        ask_human: Records and shows a question (fields of an ``ask`` row without id) and waits for its answer.
        stop: Called when the human answers a question by stopping the run; cancels its task.
    """

    def __init__(self, *, context: Callable[[], Context], ask_human: AskHuman, stop: Callable[[], object]) -> None:
        self._context = context
        self._ask_human = ask_human
        self._stop = stop

    def for_call(
        self, spec: ToolSpec, call: ToolCall, tool_context: ToolContext
    ) -> Callable[[Action], Awaitable[None]]:
        """Return the check that ``invoke`` makes before it runs ``call``."""

        async def authorise(action: Action) -> None:
            match decide(action, self._context(), spec.confirm):
                case Allow():
                    return
                case Deny(reason):
                    raise ToolError(reason)
                case Ask(reason):
                    await self._ask(spec, call, action, reason, tool_context.bound_to(action))

        return authorise

    def readable(self, path: ResolvedPath) -> bool:
        """Return whether a file that a search found may be read without a question."""
        action = Action(tool="Read", detail=path.lexical, kind="read", paths=(path,), command=None)
        return isinstance(decide(action, self._context(), False), Allow)

    async def _ask(
        self, spec: ToolSpec, call: ToolCall, action: Action, reason: str, tool_context: ToolContext
    ) -> None:
        preview = ""
        if spec.preview is not None:
            preview = await asyncio.to_thread(spec.preview, dict(call.input), tool_context)
        answer = await self._ask_human(
            {
                "tool_call_id": call.id,
                "tool": spec.name,
                "action": str(action),
                "detail": action.detail,
                "reason": reason,
                "preview": preview,
            }
        )
        if answer.decision == "abort":
            self._stop()
            await asyncio.get_running_loop().create_future()  # the cancellation arrives here
        if answer.decision == "deny":
            why = f": {answer.reason}" if answer.reason else ""
            raise ToolError(f"The user denied {spec.name}{why}.")


def compile_grants(patterns: list[str]) -> tuple[re.Pattern[str], ...]:
    """Compile ``--allow`` patterns; they match a whole action string, newlines included (DD-16).

    Raises:
        re.error: A pattern is malformed.
    """
    return tuple(re.compile(pattern, re.DOTALL) for pattern in patterns)
