"""Fixtures that every test may use."""

import gc

from hypothesis import HealthCheck, settings

from tests.examples import USUAL
from tests.isolation import the_process_stays_as_it_was
from tests.replies import check_replies
from tests.server.fixtures import model_server

__all__ = ["model_server", "the_process_stays_as_it_was"]

# How busy the machine is fails no test.
settings.register_profile("project", max_examples=USUAL, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")

check_replies()


def pytest_collection_finish() -> None:
    """Who looks for garbage need not look through 12,000 tests."""
    gc.freeze()
