"""What one test leaves in the process is not there for the next; in this order."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from pyagentd import log
from pyagentd.mission import registry


def test_a_test_may_leave_anything(tmp_path: Path) -> None:
    os.environ["PYAGENTD_LEFT"] = "here"
    os.chdir(tmp_path)
    log.setup_logging(tmp_path / "daemon.log", "debug")
    log.conceal("a-key-of-one-test")
    registry.configure({"left": len})


def test_the_next_one_finds_nothing_of_it() -> None:
    package = logging.getLogger("pyagentd")
    assert "PYAGENTD_LEFT" not in os.environ and (Path.cwd() / "pyproject.toml").exists()
    assert (package.level, package.handlers, package.propagate) == (logging.NOTSET, [], True)
    assert log.mask_secrets("a-key-of-one-test") == "a-key-of-one-test"
    assert not registry._configured
