"""Glob patterns over whole absolute paths.

==========  ============================================================================
``*``       any characters of one segment, hidden files too
``?``       one character of a segment; ``[a-c]`` one of a set
``**``      as a whole segment: any number of segments, also none
``/d/**``   everything below ``/d``, not ``/d`` itself
``**/x``    ``x`` at any depth, also right below ``/``
==========  ============================================================================

There is no negation and no brace expansion; case counts, except where something is forbidden.
A pattern that ends in ``/`` means everything below.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from wcmatch import glob

from pyagentd.errors import BadRequest

# FORCEUNIX and CASE: the same answer on every system. Without REALPATH the library never looks at the disk.
_FLAGS = glob.GLOBSTAR | glob.DOTGLOB | glob.FORCEUNIX | glob.CASE


# HFS+ leaves these out of names: with one of them in it, ``.git`` is still ``.git``.
_IGNORED = dict.fromkeys([*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF])

_WILD = re.compile(r"[*?/]+")
_SPECIAL = re.compile(r"[*?\[\\]")


def matches(pattern: str, path: str) -> bool:
    """Return whether ``pattern`` matches all of the absolute ``path``."""
    literal, matcher = _prepared(normalised(pattern))
    # A search asks about every file it finds: looking for a word is fifty times cheaper than matching.
    return literal in path and matcher.match(path)


def first_match(patterns: Iterable[str], path: str) -> str | None:
    """Return the first of ``patterns`` that matches ``path``, or None."""
    return next((pattern for pattern in patterns if matches(pattern, path)), None)


def first_match_folded(patterns: tuple[str, ...], path: str) -> str | None:
    """Return the first of ``patterns`` that forbids ``path``: matched without regard to case and composition.

    Some file systems take ``.ENV`` for ``.env``, and one form of ``é`` for the other; a prohibition holds there too.
    """
    name = _folded(path)
    for pattern, literal, matcher in _prepared_folded(patterns):
        if literal in name and matcher.match(name):
            return pattern
    return None


def under(directory: str) -> str:
    """Return the pattern of everything below ``directory``, whatever characters are in its name."""
    return _literal(directory.rstrip("/")) + "/**"


def exactly(path: str) -> str:
    """Return the pattern of ``path`` alone, whatever characters are in its name."""
    return _literal(path)


def normalised(pattern: str) -> str:
    """Return ``pattern`` with ``~`` for the user's home and a ``/`` at its end written out."""
    if pattern.startswith("~/"):
        home = os.path.expanduser("~")  # noqa: PTH111 - as text; no Path is made here
        pattern = _literal(home.rstrip("/")) + pattern[1:]
    return pattern + "**" if pattern.endswith("/") else pattern


def validate_pattern(pattern: str, *, shown: str | None = None) -> None:
    """Check that ``pattern`` can match an absolute path at all; errors show ``shown`` in its place.

    Raises:
        BadRequest: It cannot: a rule that never matches must not look like one that does.
    """
    named = pattern if shown is None else shown
    if not pattern.startswith(("/", "**/", "~/")):
        raise BadRequest(
            f"The pattern {named!r} is not absolute",
            mend="Begin it with /, with ~/ or with **/ for any depth; all below a directory is /DIR/**",
        )
    if any(segment in (".", "..") for segment in pattern.split("/")):
        raise BadRequest(
            f"The pattern {named!r} has a . or .. segment, which no path has", mend="Write the directory it means"
        )
    if "\0" in pattern or "\n" in pattern:
        raise BadRequest(f"The pattern {named!r} has a control character", mend="Write one pattern a line")


def _folded(text: str) -> str:
    """Return ``text`` as the least distinguishing file system keeps it."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text.translate(_IGNORED)).casefold())


@lru_cache(maxsize=1024)
def _prepared_folded(patterns: tuple[str, ...]) -> tuple[tuple[str, str, glob.WcMatcher[str]], ...]:
    return tuple((pattern, *_prepared(_folded(normalised(pattern)))) for pattern in patterns)


def _literal(path: str) -> str:
    """Return the pattern of ``path``; what needs no escape has none, since people read these."""
    return _SPECIAL.sub(r"\\\g<0>", path)


@lru_cache(maxsize=4096)
def _prepared(pattern: str) -> tuple[str, glob.WcMatcher[str]]:
    """Return a text that occurs in every path ``pattern`` matches, and its matcher."""
    plain = re.split(r"[\[\\]", pattern, maxsplit=1)[0]  # what follows a set or an escape is not taken literally
    return max(_WILD.split(plain), key=len), glob.compile(pattern, flags=_FLAGS)
