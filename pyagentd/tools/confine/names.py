"""Which entries of a directory the rules are about, told from their names without looking at anything else.

A pattern ``P/**`` is about everything below ``P``, so it comes to the directory ``P`` itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from wcmatch import fnmatch

from pyagentd.policy.patterns import matches, normalised

Effect = Literal["hide", "fixed", "git", "leave", "found"]
"""What becomes of an entry: not seen, not seen because of where it is, a git directory, not looked into, sought."""

_WILD = re.compile(r"[*?\[\\]")
_BELOW = "/**"


def base_of(pattern: str) -> tuple[str, bool]:
    """Return the pattern of the entry that ``pattern`` comes to, and whether it means what is below that."""
    pattern = normalised(pattern)
    below = pattern.endswith(_BELOW)
    while pattern.endswith(_BELOW):
        pattern = pattern[: -len(_BELOW)]
    return pattern, below


def floats(pattern: str) -> bool:
    """Return whether ``pattern`` is about a name wherever it stands, so that moving it changes nothing."""
    base, _ = base_of(pattern)
    return base.startswith("**/") and base.count("/") == 1


def literal(pattern: str) -> str | None:
    """Return the path that is all ``pattern`` matches; None when it has a wildcard."""
    plain = re.sub(r"\\(.)", "", pattern)
    return None if re.search(r"[*?\[]", plain) else re.sub(r"\\(.)", r"\1", pattern)


def literal_prefix(pattern: str) -> str:
    """Return the deepest directory under which all matches of ``pattern`` are, without a slash at its end."""
    fixed = []
    for segment in pattern.split("/"):
        if (text := literal(segment)) is None:
            break
        fixed.append(text)
    else:
        fixed.pop()
    return "/".join(fixed)


class Rules:
    """Patterns and their effects, asked about one entry at a time; of several, the first rule counts."""

    def __init__(self, rules: Iterable[tuple[str, Effect]]) -> None:
        self.rules = tuple(dict.fromkeys(rules))
        self._literal: dict[str, list[tuple[int, str, Effect, bool]]] = {}
        self._wild: list[tuple[int, str, Effect, bool]] = []
        wild: list[str] = []
        for index, (pattern, effect) in enumerate(self.rules):
            base, below = base_of(pattern)
            last = base.rpartition("/")[2]
            if (name := literal(last)) is not None:
                self._literal.setdefault(name, []).append((index, base, effect, below))
            else:
                self._wild.append((index, base, effect, below))
                wild.append(_name_matcher(last))
        self._any_wild = re.compile("|".join(wild) or "(?!)")

    def effect(self, directory: str, name: str, is_directory: bool) -> Effect | None:
        """Return what becomes of ``name`` in ``directory``, a path with a slash at its end."""
        near = self._literal.get(name, [])
        if self._any_wild.match(name):
            near = [*near, *self._wild]
        if not near:
            return None
        path = directory + name
        for _, base, effect, below in sorted(near):
            if (is_directory or not below) and matches(base, path):
                return effect
        return None


def _name_matcher(segment: str) -> str:
    """Return a regular expression of one segment; ``**`` is any name."""
    return str(fnmatch.translate("*" if segment == "**" else segment, flags=fnmatch.DOTMATCH | fnmatch.CASE)[0][0])
