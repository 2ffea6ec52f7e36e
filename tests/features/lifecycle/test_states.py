"""The life of an agent as a table."""

from __future__ import annotations

import pytest

from pyagentd.features.idling import TRANSITIONS, Happening, Life, after

H, L = Happening, Life


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
def test_every_arrow_of_the_diagram(life: Life, happening: Happening, next: Life) -> None:
    assert after(life, happening) is next


def test_there_is_no_other_arrow() -> None:
    assert set(TRANSITIONS) == set(Life)
    assert sum(len(moves) for moves in TRANSITIONS.values()) == 12
    assert [after(L.DESTROYED, happening) for happening in Happening] == [None] * len(Happening)
    for happening in (H.SAVE, H.CLEAR, H.IDLE_TIMEOUT):
        assert after(L.IDLE, happening) is None, "there is nothing to save or to clear"
