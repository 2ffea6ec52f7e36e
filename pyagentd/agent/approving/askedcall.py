"""A call that waits for a human: what they are shown of it, and what they make of its arguments."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyagentd import jsontext
from pyagentd.errors import ToolError
from pyagentd.messages import ToolCall
from pyagentd.policy.action import Action
from pyagentd.policy.guard import Ask
from pyagentd.policy.remember import told
from pyagentd.tools.invoke import checked
from pyagentd.tools.spec import ToolContext, ToolSpec

CHOICES = ("allow", "session", "always", "deny", "abort")
ONCE = ("allow", "deny", "abort")  # of what is asked about each time


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCall:
    """One call as the model made it."""

    call: ToolCall
    spec: ToolSpec
    action: Action
    tool_context: ToolContext

    async def fields(self, ask: Ask) -> dict[str, Any]:
        """Return what an ``ask`` row says about the call.

        Raises:
            ToolError: The call could not work: nobody needs to be asked.
        """
        spec, action = self.spec, self.action
        preview, reason, warnings = "", ask.reason, [] if ask.is_routine else [ask.reason]
        if spec.preview is not None:
            bound = self.tool_context.bound_to(action)
            preview = await asyncio.to_thread(spec.preview, dict(self.call.input), bound)
        if spec.caution is not None and (caution := await asyncio.to_thread(spec.caution, self.tool_context)):
            reason, warnings = f"{reason}. {caution}", [*warnings, caution]
        return {
            "tool_call_id": self.call.id,
            "tool": spec.name,
            "action": str(action),
            "detail": action.detail,
            "reason": reason,
            "warning": ". ".join(warnings),  # what of the reason a human must see; the rest are rules
            "preview": preview,
            "kind": "tool",
            "choices": list(ONCE if spec.confirm == "always" else CHOICES),
            "remember": list(ask.remember),
            "covers": [told(pattern) for pattern in ask.remember],
            "project": str(self.tool_context.root),
            "commands": list(_commands(action)),
            "input": json.dumps(dict(self.call.input), ensure_ascii=False),
            "path": action.paths[0].lexical if action.kind == "write" and action.paths else None,
        }

    def edited(self, text: str) -> tuple[dict[str, Any], Action]:
        """Return arguments that a human wrote as JSON as the tool gets them, and what they do.

        Raises:
            ToolError: They are no JSON, or do not fit the tool.
        """
        try:
            given = jsontext.parse(text)
        except ValueError as error:
            raise ToolError(f"they are no JSON: {error}") from None
        args = checked(self.spec.name, self.spec.input_schema, given)
        return args, self.spec.action(args, self.tool_context)


def _commands(action: Action) -> Sequence[str]:
    """Return every command in a command line; none when that cannot be told of all of it."""
    if action.shell is None or action.shell.unreadable:
        return ()
    return [command.text for command in action.shell.commands]
