"""Fixtures of all tests here."""

from tests.logs import logs_are_closed

__all__ = ["logs_are_closed"]
