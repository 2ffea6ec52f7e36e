"""Fixtures that every test may use."""

from tests.server.fixtures import model_server

__all__ = ["model_server"]
