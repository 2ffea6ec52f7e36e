"""What a turn costs does not grow with the conversation, but for what is sent; counted, not timed."""

from __future__ import annotations

import pytest

from pyagentd.store.document import text
from pyagentd.store.document.files import document_cache
from pyagentd.store.document.text import Kind
from tests.runtime.test_cache import turn
from tests.runtime.world import World


async def test_of_the_twelfth_turn_as_little_is_parsed_and_printed_as_of_the_fourth(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[Kind] = []
    one = text._print_bound

    def counted(start: int, end: int, kind: Kind, call_id: str) -> str:
        printed.append(kind)
        return one(start, end, kind, call_id)

    monkeypatch.setattr(text, "_print_bound", counted)
    world.server.say(*(f"Answer {number}." for number in range(12)))
    ref, work = world.session(), []
    for _ in range(12):
        before = document_cache.parsed
        printed.clear()
        await turn(world, ref)
        work.append((document_cache.parsed - before, len(printed)))
    assert work[3] == work[11]
    assert work[11][0] == 0
