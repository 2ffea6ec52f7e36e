"""Glob patterns over whole absolute paths.

==========  ============================================================================
``*``       any characters of one segment, hidden files too
``?``       one character of a segment; ``[a-c]`` one of a set
``**``      as a whole segment: any number of segments, also none
``/d/**``   everything below ``/d``, not ``/d`` itself
``**/x``    ``x`` at any depth, also right below ``/``
==========  ============================================================================

There is no negation and no brace expansion; case counts. A pattern that ends in ``/`` means everything below.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache

from wcmatch import glob

from pyagentd.errors import BadRequest

# FORCEUNIX and CASE: the same answer on every system. Without REALPATH the library never looks at the disk.
_FLAGS = glob.GLOBSTAR | glob.DOTGLOB | glob.FORCEUNIX | glob.CASE


def matches(pattern: str, path: str) -> bool:
    """Return whether ``pattern`` matches all of the absolute ``path``."""
    return _compiled((pattern,)).match(path)


def first_match(patterns: Iterable[str], path: str) -> str | None:
    """Return the first of ``patterns`` that matches ``path``, or None."""
    patterns = tuple(patterns)
    # One expression for all answers the usual "no" at once: a search asks for every file it finds.
    if not patterns or not _compiled(patterns).match(path):
        return None
    return next(pattern for pattern in patterns if matches(pattern, path))


def under(directory: str) -> str:
    """Return the pattern of everything below ``directory``, whatever characters are in its name."""
    return glob.escape(directory.rstrip("/")) + "/**"


def normalised(pattern: str) -> str:
    """Return ``pattern`` with ``~`` for the user's home and a ``/`` at its end written out."""
    home = os.path.expanduser("~")  # noqa: PTH111 - pathlib would take a "//" or "." of the pattern away
    if pattern == "~" or pattern.startswith("~/"):
        pattern = glob.escape(home.rstrip("/")) + pattern[1:]
    return pattern + "**" if pattern.endswith("/") else pattern


def validate_pattern(pattern: str) -> None:
    """Check that ``pattern`` can match an absolute path at all.

    Raises:
        BadRequest: It cannot: a rule that never matches must not look like one that does.
    """
    if not pattern.startswith(("/", "**/", "~/")):
        raise BadRequest(
            f"The pattern {pattern!r} is not absolute",
            mend="Begin it with /, with ~/ or with **/ for any depth; all below a directory is /DIR/**",
        )
    if any(segment in (".", "..") for segment in pattern.split("/")):
        raise BadRequest(
            f"The pattern {pattern!r} has a . or .. segment, which no path has", mend="Write the directory it means"
        )
    if "\0" in pattern or "\n" in pattern:
        raise BadRequest(f"The pattern {pattern!r} has a control character", mend="Write one pattern a line")


@lru_cache(maxsize=1024)
def _compiled(patterns: tuple[str, ...]) -> glob.WcMatcher[str]:
    return glob.compile([normalised(pattern) for pattern in patterns], flags=_FLAGS, limit=0)
