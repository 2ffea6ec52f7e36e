"""What a line of the daemon's log says, and what it never says."""

import contextvars
import logging
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyagentd import log

LOGGER = logging.getLogger("pyagentd.test")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(log, "_secrets", set())
    path = tmp_path / "daemon.log"
    log.setup_logging(path, "info")
    yield path
    package = logging.getLogger("pyagentd")
    for handler in package.handlers[:]:
        package.removeHandler(handler)
        handler.close()
    package.propagate = True


def test_a_line_names_session_branch_and_run_of_its_context(file: Path) -> None:
    with log.context(session="notes-1", branch="main"), log.context(run="run_2"):
        LOGGER.info("step %d", 3)
    LOGGER.info("outside")
    inside, outside = file.read_text().splitlines()
    assert inside.endswith("INFO    pyagentd.test [session=notes-1 branch=main run=run_2]: step 3")
    assert outside.endswith("INFO    pyagentd.test: outside")


def test_lines_below_the_level_are_left_out(file: Path) -> None:
    LOGGER.debug("a prompt's body")
    LOGGER.warning("shown")
    assert "body" not in file.read_text()


def test_a_concealed_key_appears_neither_in_arguments_nor_in_a_traceback(file: Path) -> None:
    log.conceal("hunter2-token")
    try:
        raise ValueError("refused hunter2-token and sk-ant-api03-AAAABBBBCCCC")
    except ValueError:
        LOGGER.exception("with %s", "hunter2-token")
    text = file.read_text()
    assert "hunter2" not in text
    assert "AAAABBBB" not in text
    assert "ValueError: refused [secret] and [secret]" in text


def test_a_stand_in_for_a_key_leaves_the_log_readable(file: Path) -> None:
    log.conceal("k")
    LOGGER.info("asked for a key")
    assert "asked for a key" in file.read_text()


def test_the_file_is_private_from_its_first_byte(file: Path) -> None:
    LOGGER.info("hello")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_setting_up_again_writes_each_line_once(file: Path) -> None:
    log.setup_logging(file, "info")
    LOGGER.info("once")
    assert file.read_text().count("once") == 1


def test_a_record_about_a_session_is_told_to_who_caused_it_and_nobody_else(file: Path, tmp_path: Path) -> None:
    told: list[tuple[str, str, str]] = []
    logger = logging.getLogger("pyagentd.store.test")

    def call() -> None:
        log.forward_records(lambda *record: told.append(record))
        logger.debug("branch %s", "main", extra=log.of_session(tmp_path))
        logger.info("nothing of a session's")
        logger.warning("all", extra=log.of_session())

    contextvars.copy_context().run(call)  # like a task
    logger.error("nobody asked", extra=log.of_session(tmp_path))
    assert told == [("debug", "branch main", str(tmp_path)), ("warn", "all", "")]
    assert "branch main" not in file.read_text() and "nobody asked" in file.read_text()
