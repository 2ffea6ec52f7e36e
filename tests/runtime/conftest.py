"""Fixtures of this room."""

from tests.runtime.fixtures import world

__all__ = ["world"]
