"""The timeline of a branch: runs, requests, decisions and costs, for the inspector; pure.

The log knows runs and tools, the trace what was sent and how long it took, the audit who allowed what. Nothing here
is kept anywhere else: it is made anew whenever somebody looks.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyagentd.runtime.usage import FactsOf
from pyagentd.store.conversation import Conversation, usage_of
from pyagentd.store.db.audit import Entry
from pyagentd.store.journal import Served, served_by
from pyagentd.store.trace import TracedStep

_PROMPT = 200  # characters
_PARAMETERS = (
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "temperature",
    "thinking",
    "reasoning_effort",
    "reasoning",
)


def timeline(
    conversation: Conversation, steps: Iterable[TracedStep], decisions: Iterable[Entry], facts_of: FactsOf
) -> list[dict[str, Any]]:
    """Return the runs of a branch, oldest first, each with its ``steps`` and ``decisions``.

    Steps are numbered over all runs. Requests beside the conversation, such as those of a compaction, are steps with
    another ``purpose``; a run that only they know has no ``message_id``.
    """
    runs: dict[str, dict[str, Any]] = {
        id: _run(conversation, state.data) | {"steps": [], "decisions": []} for id, state in conversation.runs.items()
    }
    results, providers = _results(conversation), _providers(conversation)
    for number, step in enumerate(steps, 1):
        run = runs.setdefault(step.run_id, {"id": step.run_id, "message_id": None, "steps": [], "decisions": []})
        run["steps"].append(
            {"number": number, **_step(step, results, facts_of, providers.get(str(run["message_id"]), ""))}
        )
    for entry in decisions:
        if entry.run_id in runs:
            runs[entry.run_id]["decisions"].append(_decision(entry))
    return list(runs.values())


def catalogue(step: TracedStep | None) -> dict[str, Any]:
    """Return the system prompt and the tools that the model was told of last; empty before the first request."""
    head = step.head if step is not None else {}
    first = (step.messages or ({},))[0] if step is not None else {}
    system = head.get("system") or head.get("instructions") or ()
    if first.get("role") == "system":  # as Chat Completions have it
        system = first.get("content") or ()
    texts = [str(block.get("text", "")) for block in system if isinstance(block, Mapping)]
    return {
        "system": "\n\n".join(texts) if not isinstance(system, str) else system,
        "tools": [{key: tool[key] for key in tool if key != "cache_control"} for tool in _tools(head)],
    }


def _run(conversation: Conversation, data: Mapping[str, Any]) -> dict[str, Any]:
    message = conversation.messages.get(str(data["message_id"]))
    metadata = message.metadata if message is not None else {}
    text = message.text if message is not None else ""
    return {
        "id": data["id"],
        "message_id": data["message_id"],
        "prompt": text if len(text) <= _PROMPT else f"{text[: _PROMPT - 1]}…",
        "created_at": message.row.get("created_at") if message is not None else None,
        "trigger": metadata.get("trigger"),
        "agent": metadata.get("agent"),
        "hidden": bool(message is not None and message.is_hidden),
        "interactive": bool(data.get("interactive")),
        "allow": list(data.get("allow") or ()),
        "reason": data.get("reason"),
        "error": data.get("error"),
    }


def _step(
    step: TracedStep, results: Mapping[str, Mapping[str, Any]], facts_of: FactsOf, provider: str
) -> dict[str, Any]:
    answer, model = step.answer, str(step.head.get("model", ""))
    usage = answer.get("usage")
    prices = facts_of(Served(provider, model)).prices
    return {
        "step": step.step,
        "purpose": step.purpose,
        "at": step.at,
        "model": model,
        "parameters": {name: step.head[name] for name in _PARAMETERS if name in step.head},
        "messages": None if step.messages is None else len(step.messages),
        "new_messages": None if step.messages is None else len(step.messages) - step.same,
        "tools": [str(tool.get("name")) for tool in _tools(step.head)],
        "duration_ms": answer.get("duration_ms"),
        "first_token_ms": answer.get("first_token_ms"),
        "attempts": answer.get("attempts"),
        "retries": answer.get("retries") or [],
        "usage": usage,
        "cost_usd": prices.of(usage_of(usage)) if prices is not None and usage else None,
        "stop_reason": answer.get("stop_reason"),
        "error": answer.get("error"),
        "calls": [{**call, **results.get(str(call.get("id")), {})} for call in answer.get("calls") or ()],
    }


def _providers(conversation: Conversation) -> dict[str, str]:
    """Return which backend answered, by the id of the user's message."""
    providers: dict[str, str] = {}
    asked = ""
    for message in conversation.messages.values():
        if message.role == "user":
            asked = message.id
        elif message.role == "assistant":
            providers.setdefault(asked, served_by(message.row).provider)
    return providers


def _results(conversation: Conversation) -> dict[str, dict[str, Any]]:
    """Return what became of every call, by its id."""
    return {
        str(part.data["toolCallId"]): {
            "state": part.data.get("state"),
            "duration_ms": (part.data.get("metadata") or {}).get("duration_ms"),
            "error": str(part.data.get("errorText", "")).partition("\n")[0] or None,
        }
        for part in conversation.parts.values()
        if part.is_tool
    }


def _decision(entry: Entry) -> dict[str, Any]:
    return {
        "at": entry.at_ms,
        "tool": entry.tool,
        "action": entry.action,
        "decision": entry.decision,
        "rule": entry.rule,
        "reason": entry.reason or None,
        "by": entry.by,
    }


def _tools(head: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    tools = (tool.get("function", tool) for tool in head.get("tools") or () if isinstance(tool, Mapping))
    return [tool for tool in tools if isinstance(tool, Mapping) and "name" in tool]
