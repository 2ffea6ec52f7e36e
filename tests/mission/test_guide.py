"""What docs/missions.md shows is what happens."""

import doctest
import importlib
from pathlib import Path

import pytest

import pyagentd

ROOT = Path(pyagentd.__file__).parent.parent


def test_the_examples_of_the_guide_run() -> None:
    failed, tried = doctest.testfile(str(ROOT / "docs/missions.md"), module_relative=False, verbose=False)
    assert tried > 50 and not failed


@pytest.mark.parametrize("module", ["tools"])
def test_the_examples_in_docstrings_run(module: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"pyagentd.mission.{module}"))
    assert tried and not failed
