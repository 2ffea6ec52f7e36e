"""What belongs to the process is for every test as it was for the one before it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def the_process_stays_as_it_was() -> Iterator[None]:
    """Put back what a test left changed: the environment, the directory, loggers, and what the package remembers."""
    with _environment(), _loggers(), _memory():
        yield


@contextmanager
def _environment() -> Iterator[None]:
    before, place = dict(os.environ), Path.cwd()
    yield
    # pytest says there which test runs.
    if any(before.get(name) != value for name, value in os.environ.items() if not name.startswith("PYTEST_")) or (
        before.keys() - os.environ.keys()
    ):
        os.environ.clear()
        os.environ.update(before)
    os.chdir(place)


@contextmanager
def _loggers() -> Iterator[None]:
    """Whoever sets up logging changes what later tests find in ``caplog``."""
    names = ("pyagentd", "pyagentd.store", "asyncio")
    before = [_facts(logging.getLogger(name)) for name in names]
    yield
    for name, (level, handlers, propagate) in zip(names, before, strict=True):
        logger = logging.getLogger(name)
        if _facts(logger) == (level, handlers, propagate):
            continue
        for handler in [handler for handler in logger.handlers if handler not in handlers]:
            logger.removeHandler(handler)
            handler.close()
        logger.setLevel(level)
        logger.propagate = propagate


def _facts(logger: logging.Logger) -> tuple[int, list[logging.Handler], bool]:
    return logger.level, list(logger.handlers), logger.propagate


@contextmanager
def _memory() -> Iterator[None]:
    """Keys to be masked, models registered for the process, its configuration; rooms nobody loaded have none."""
    log, registry = sys.modules.get("pyagentd.log"), sys.modules.get("pyagentd.mission.registry")
    secrets = set(log._secrets) if log else set()
    models = registry._configured if registry else {}
    yield
    if (log := sys.modules.get("pyagentd.log")) and log._secrets != secrets:
        log._secrets.clear()
        log._secrets.update(secrets)
    if (registry := sys.modules.get("pyagentd.mission.registry")) and registry._configured is not models:
        registry.configure(models)
    if costs := sys.modules.get("pyagentd.mission.models"):
        costs._config.cache_clear()
