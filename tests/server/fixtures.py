"""Fixtures of the model server; ``tests/conftest.py`` imports them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.server import ModelServer


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    """A model's server on a free port of loopback."""
    with ModelServer() as server:
        yield server
