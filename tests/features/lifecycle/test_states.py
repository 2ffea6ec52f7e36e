"""The life of an agent as a table."""

from __future__ import annotations

import pytest

from pyagentd.features.idling import TRANSITIONS, AgentEvent, AgentState, next_state

H, L = AgentEvent, AgentState


@pytest.mark.parametrize(
    ("life", "happening", "next"),
    [
        (L.CREATED, H.MADE, L.IDLE),
        (L.IDLE, H.MESSAGE, L.ACTIVE),
        (L.IDLE, H.RESTORE, L.ACTIVE),
        (L.IDLE, H.SHUTDOWN, L.IDLE),
        (L.IDLE, H.DESTROY, L.DESTROYED),
        (L.ACTIVE, H.MESSAGE, L.ACTIVE),
        (L.ACTIVE, H.SAVE, L.ACTIVE),
        (L.ACTIVE, H.RESTORE, L.ACTIVE),
        (L.ACTIVE, H.CLEAR, L.IDLE),
        (L.ACTIVE, H.IDLE_TIMEOUT, L.IDLE),
        (L.ACTIVE, H.SHUTDOWN, L.IDLE),
        (L.ACTIVE, H.DESTROY, L.DESTROYED),
    ],
)
def test_every_arrow_of_the_diagram(life: AgentState, happening: AgentEvent, next: AgentState) -> None:
    assert next_state(life, happening) is next


def test_there_is_no_other_arrow() -> None:
    assert set(TRANSITIONS) == set(AgentState)
    assert sum(len(moves) for moves in TRANSITIONS.values()) == 12
    assert [next_state(L.DESTROYED, happening) for happening in AgentEvent] == [None] * len(AgentEvent)
    for happening in (H.SAVE, H.CLEAR, H.IDLE_TIMEOUT):
        assert next_state(L.IDLE, happening) is None, "there is nothing to save or to clear"
