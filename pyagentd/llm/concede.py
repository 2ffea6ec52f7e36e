"""What some models take and others refuse, learned from the first refusal; pure.

Newer Claude models answer 400 to any ``temperature`` and to a fixed thinking budget, and their names do not tell. A
preset written for one model must work with the next, so the request is sent once more without what was refused.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Literal

Json = dict[str, Any]
Concession = Literal["temperature", "thinking budget", "thinking", "effort"]

_EFFORT = ((4_000, "low"), (12_000, "medium"))  # by the largest budget of thinking, in tokens, that means it
_UNSUPPORTED = ("not support", "unsupported", "not available")


def concession(body: Json, refusal: str) -> Concession | None:
    """Return what to give up after the server refused ``body`` with the message ``refusal``, None for nothing."""
    said = refusal.lower()
    if "temperature" in body and "temperature" in said:
        return "temperature"
    if "output_config" in body and ("effort" in said or "output_config" in said):
        return "effort"
    if body.get("thinking", {}).get("type") == "enabled" and "thinking" in said and "adaptive" in said:
        return "thinking budget"
    if "thinking" in body and "thinking" in said and any(word in said for word in _UNSUPPORTED):
        return "thinking"
    return None


def concede(body: Json, concessions: Set[Concession]) -> Json:
    """Return ``body`` without what its model is known to refuse."""
    if "temperature" in concessions:
        body = {key: value for key, value in body.items() if key != "temperature"}
    if "thinking" not in body:
        return body
    if "thinking" in concessions:
        return {key: value for key, value in body.items() if key != "thinking"}
    if "thinking budget" in concessions:
        # The model decides how much to think; without `display` newer models think in silence.
        effort = next((name for most, name in _EFFORT if body["thinking"]["budget_tokens"] <= most), "high")
        body = {
            **body,
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": effort},
        }
    if "effort" in concessions:
        body = {key: value for key, value in body.items() if key != "output_config"}
    return body
