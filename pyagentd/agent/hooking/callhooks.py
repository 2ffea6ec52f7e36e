"""The hooks that are asked about tool calls: one may forbid a call, change its arguments, or add to its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyagentd.agent.hooking.hookprocess import Word
from pyagentd.errors import ToolError
from pyagentd.policy.action import Action

if TYPE_CHECKING:  # who asks hooks makes these
    from pyagentd.agent.hooking.hooks import Hooks, Moment

MOST_TEXT = 100_000  # characters of one field that hooks are told


@dataclass(frozen=True, slots=True)
class RunHooks:
    """Asks about the calls of one run; see ``tools.around.Hooking``."""

    _hooks: Hooks
    _moment: Moment

    async def before(
        self, tool: str, args: Mapping[str, Any], action: Action, call_id: str
    ) -> Mapping[str, Any] | None:
        """Return what hooks want in place of ``args``, or None; raises ``ToolError`` when one forbids the call."""
        facts: dict[str, Any] = {"tool": tool, "input": dict(args), "action": str(action), "call_id": call_id}
        changed = False
        async for source, word in self._hooks.words("tool.before", self._moment, lambda: facts, tool):
            why = refusal(word)
            if why is None and (denied := word.changes.get("deny")):
                why = str(denied)
            if why is not None:
                if self._moment.witness is not None:
                    self._moment.witness(tool, str(action), "deny", f"hook {source}", why)
                raise ToolError(f"A hook of the user's forbids this: {why}")
            if isinstance(wanted := word.changes.get("input"), dict):
                facts["input"], changed = wanted, True
        return facts["input"] if changed else None

    async def after(
        self, tool: str, args: Mapping[str, Any], text: str, ok: bool, duration_ms: int, call_id: str
    ) -> str:
        """Return what hooks add to a result."""
        facts = {
            "tool": tool,
            "input": dict(args),
            "call_id": call_id,
            "ok": ok,
            "output": text[:MOST_TEXT],
            "duration_ms": duration_ms,
        }
        added = []
        async for _, word in self._hooks.words("tool.after", self._moment, lambda: facts, tool):
            if word.blocks is not None:
                added.append(word.blocks)
            if isinstance(more := word.changes.get("append"), str) and more:
                added.append(more)
        return "\n".join(f"[hook] {each}" for each in added)


def refusal(word: Word) -> str | None:
    """Return why a hook blocks: by its exit code, or ``{"block": REASON}``."""
    if word.blocks is None and (said := word.changes.get("block")):
        return str(said)
    return word.blocks
