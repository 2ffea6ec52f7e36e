"""The daemon's log: one rotating private file, each line with its session, branch and run.

Code logs with ``logging.getLogger(__name__)`` and lazy arguments; whoever owns a task says once, with ``context``,
what it works for. Prompt and tool bodies are logged at DEBUG only. Secrets never reach the file: a key known to the
process is registered with ``conceal``, and what has a key's shape is masked even if nobody did.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

LOG_NAME = "daemon.log"

_MAX_BYTES = 2_000_000
_BACKUPS = 3
_FORMAT = "%(asctime)s %(levelname)-7s %(name)s%(work)s: %(message)s"
_KEY_SHAPE = re.compile(r"\bsk-[A-Za-z0-9_-]{12,}")
_MASK = "[secret]"

_work: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("work", default=())
_secrets: set[str] = set()


def setup_logging(path: Path, level: str) -> None:
    """Send the package's log to ``path`` (created 0600, rotated at 2 MB) from ``level`` up, and nowhere else."""
    handler = _PrivateFileHandler(path, maxBytes=_MAX_BYTES, backupCount=_BACKUPS, encoding="utf-8", delay=True)
    handler.addFilter(_add_work)
    handler.setFormatter(_ConcealingFormatter(_FORMAT))
    logger = logging.getLogger("pyagentd")
    for old in logger.handlers[:]:
        logger.removeHandler(old)
        old.close()
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False


@contextmanager
def context(**work: str) -> Iterator[None]:
    """Add ``session=…``, ``branch=…`` or ``run=…`` to every line logged inside, also by tasks started there."""
    token = _work.set(tuple((dict(_work.get()) | work).items()))
    try:
        yield
    finally:
        _work.reset(token)


def conceal(secret: str) -> None:
    """Keep ``secret`` out of the log from now on."""
    if secret:
        _secrets.add(secret)


def concealed(text: str) -> str:
    """Return ``text`` with every known secret, and whatever looks like an API key, masked."""
    for secret in _secrets:
        text = text.replace(secret, _MASK)
    return _KEY_SHAPE.sub(_MASK, text)


def _add_work(record: logging.LogRecord) -> bool:
    named = " ".join(f"{name}={value}" for name, value in _work.get())
    record.work = f" [{named}]" if named else ""
    return True


class _ConcealingFormatter(logging.Formatter):
    """Masks the finished line, so that arguments and tracebacks are covered too."""

    def format(self, record: logging.LogRecord) -> str:
        return concealed(super().format(record))


class _PrivateFileHandler(RotatingFileHandler):
    """A rotating file nobody else can read, from its first byte."""

    def _open(self) -> TextIOWrapper:
        stream = open(  # noqa: SIM115  (the handler closes it)
            self.baseFilename,
            self.mode,
            encoding=self.encoding,
            opener=lambda path, flags: os.open(path, flags, 0o600),
        )
        assert isinstance(stream, TextIOWrapper)
        return stream
