"""The daemon's log: one rotating private file, each line with its session, branch and run.

Code logs with ``logging.getLogger(__name__)`` and lazy arguments; the code that starts a task sets its session,
branch and run once, with ``context``. Bodies of prompts and tools are logged at DEBUG only. Secrets never reach the
file: a key known to the process is registered with ``conceal``, and text that looks like a key is masked in any case.

A record with ``extra=of_session(directory)`` is about a session (created, branched, unreadable). It also goes to the
client whose call caused it (``forward_records``), which shows it in its own log.
"""

import inspect
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from weakref import WeakMethod

_MAX_BYTES = 2_000_000
_BACKUPS = 3
_FORMAT = "%(asctime)s %(levelname)-7s %(name)s%(work)s: %(message)s"
_KEY_SHAPE = re.compile(r"\bsk-[A-Za-z0-9_-]{12,}")
_MASK = "[secret]"
_SHORTEST = 8  # characters of a key; masking the "x" that a local server takes for one would leave nothing readable

_work: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("work", default=())
_secrets: set[str] = set()

Teller = Callable[[str, str, str], None]
"""Takes level (debug, info, warn, error), text, and the session's directory or ""."""

_ids: list[Callable[[], Mapping[str, str]]] = []  # at most one

# Weak: a timer keeps the context it was made in until its time has come, and so would keep a client that has gone.
_teller: ContextVar[Callable[[], Teller | None]] = ContextVar("teller", default=lambda: None)
_LEVELS = ((logging.ERROR, "error"), (logging.WARNING, "warn"), (logging.INFO, "info"), (0, "debug"))


def setup_logging(path: Path, level: str) -> None:
    """Send the package's log to ``path`` (created 0600, rotated at 2 MB) from ``level`` up."""
    handler = _PrivateFileHandler(path, maxBytes=_MAX_BYTES, backupCount=_BACKUPS, encoding="utf-8", delay=True)
    handler.addFilter(_add_work)
    handler.setFormatter(_ConcealingFormatter(_FORMAT))
    handler.setLevel(level.upper())
    logger = logging.getLogger("pyagentd")
    for old in logger.handlers[:]:
        logger.removeHandler(old)
        old.close()
    logger.addHandler(handler)
    logger.addHandler(_SessionHandler())
    logger.setLevel(level.upper())
    # The reader of a session's records decides which of them it shows.
    logging.getLogger("pyagentd.store").setLevel(logging.DEBUG)
    logger.propagate = False


def of_session(directory: Path | None = None) -> dict[str, Path | None]:
    """Return the ``extra`` of a log record about the session in ``directory``, or about all sessions."""
    return {"session_dir": directory}


def forward_records(teller: Teller) -> None:
    """Pass records about sessions to ``teller`` in the rest of this task, and in tasks and threads it starts."""
    _teller.set(WeakMethod(teller) if inspect.ismethod(teller) else lambda: teller)


@contextmanager
def context(**work: str) -> Iterator[None]:
    """Add ``session=…``, ``branch=…`` or ``run=…`` to every line logged inside, also by tasks started there."""
    token = _work.set(tuple((dict(_work.get()) | work).items()))
    try:
        yield
    finally:
        _work.reset(token)


def correlate(ids: Callable[[], Mapping[str, str]]) -> None:
    """Add what ``ids`` returns, such as a trace id, to every line; replaces an earlier function."""
    _ids[:] = [ids]


def conceal(secret: str) -> None:
    """Keep ``secret`` out of the log from now on; a text below 8 characters is too short for a key and ignored."""
    if len(secret) >= _SHORTEST:
        _secrets.add(secret)


def mask_secrets(text: str) -> str:
    """Return ``text`` with every known secret, and whatever looks like an API key, masked."""
    for secret in _secrets:
        text = text.replace(secret, _MASK)
    return _KEY_SHAPE.sub(_MASK, text)


def _add_work(record: logging.LogRecord) -> bool:
    traced = _ids[0]() if _ids else {}
    named = " ".join(f"{name}={value}" for name, value in (*_work.get(), *traced.items()))
    record.work = f" [{named}]" if named else ""
    return True


class _ConcealingFormatter(logging.Formatter):
    """Masks the finished line, so that arguments and tracebacks are covered too."""

    def format(self, record: logging.LogRecord) -> str:
        return mask_secrets(super().format(record))


class _SessionHandler(logging.Handler):
    """Passes on records about sessions."""

    def emit(self, record: logging.LogRecord) -> None:
        teller = _teller.get()()
        if teller is None or not hasattr(record, "session_dir"):
            return
        directory: Path | None = record.session_dir
        level = next(name for number, name in _LEVELS if record.levelno >= number)
        teller(level, mask_secrets(record.getMessage()), "" if directory is None else str(directory))


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
