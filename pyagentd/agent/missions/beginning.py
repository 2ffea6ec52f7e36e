"""The mission that a message begins, or goes on with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyagentd.agent.missions.contract import Assignment, contract_of
from pyagentd.agent.missions.cutoff import begun, unfinished
from pyagentd.agent.missions.records import state_of
from pyagentd.policy.presets import Preset
from pyagentd.store.conversation import Conversation


def mission_of(run_id: str, preset: Preset, conversation: Conversation, given: Mapping[str, Any]) -> Assignment:
    """Return what a run is to fulfil whose preset promises a signature.

    Args:
        run_id: Its id; the log knows it where an earlier daemon began it.
        preset: As it holds for the run.
        conversation: What was said before.
        given: What the message carries: {context, template}, or {resume}, the id of a run.

    Raises:
        PresetError: The signature or the template cannot be read.
        BadRequest: That run cannot go on.
    """
    own = conversation.missions.get(run_id)
    if own is None:
        resumes = bool(given.get("resume"))
        cut_off = str(given.get("resume") or "") or unfinished(conversation)
    else:
        cut_off = run_id if "turn" in own else str(own["start"].get("resumed") or "")
        resumes = bool(cut_off)
    return Assignment(
        contract=contract_of(preset),
        given=given,
        cut_off=cut_off,
        state=state_of(conversation, cut_off) if cut_off else None,
        first=begun(conversation, cut_off) if cut_off else None,
        resumes=resumes,
    )
