"""Logs that tests open by hand."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyagentd.store.journal import Journal


@pytest.fixture(autouse=True)
def logs_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close every log that a test opened and is done with: the descriptors of a process are not many."""
    opened: list[Journal] = []
    original = Journal.open

    def noted(path: Path) -> Journal:
        opened.append(original(path))
        return opened[-1]

    monkeypatch.setattr(Journal, "open", noted)
    yield
    for journal in opened:
        journal.close()
