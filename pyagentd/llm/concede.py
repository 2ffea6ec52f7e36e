"""What some models take and others refuse, learned from the first refusal; pure.

Newer Claude models answer 400 to any ``temperature`` and to a fixed thinking budget, and their names do not tell. A
preset written for one model must work with the next, so the request is sent once more without what was refused.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Literal

Json = dict[str, Any]
Concession = Literal["temperature", "thinking budget"]


def concession(body: Json, refusal: str) -> Concession | None:
    """Return what to give up after the server refused ``body`` with the message ``refusal``, None for nothing."""
    said = refusal.lower()
    if "temperature" in body and "temperature" in said:
        return "temperature"
    if body.get("thinking", {}).get("type") == "enabled" and "thinking" in said and "adaptive" in said:
        return "thinking budget"
    return None


def concede(body: Json, concessions: Set[Concession]) -> Json:
    """Return ``body`` without what its model is known to refuse."""
    if "temperature" in concessions:
        body = {key: value for key, value in body.items() if key != "temperature"}
    if "thinking budget" in concessions and "thinking" in body:
        # The model decides how much to think; without `display` newer models think in silence.
        body = {**body, "thinking": {"type": "adaptive", "display": "summarized"}}
    return body
