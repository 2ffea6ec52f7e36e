"""Which files a prompt names or implies; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_QUOTED = re.compile(r"`[^`\n]+`|\"[^\"\n]+\"|“[^”\n]+”")
_WORD = re.compile(r"`([^`\n]+)`|([^\s`]+)")
_PATH = re.compile(r"[~\w./@+*?{}\[\]-]+")
_FILE = re.compile(
    r"^(.*/)?([\w.@+-]{2,}\.[A-Za-z][A-Za-z0-9]{0,8}|\.[A-Za-z][\w.-]+|Makefile|Dockerfile|LICENSE|README)$"
)
_WILD = re.compile(r"[*?\[{]")
_NOT_PATHS = frozenset({"and/or", "either/or", "yes/no", "i/o", "input/output", "/", "*", "**"})

# A word of the prompt → the files it implies, the first that fits; the last row is the most general.
_IMPLIED = (
    (r"presets?", "presets/*.md"),
    (r"tests?", "tests/**/*.py"),
    (r"python|modules?", "**/*.py"),
    (r"elisp|emacs lisp", "**/*.el"),
    (r"markdown|docs?|documentation", "**/*.md"),
    (r"files?|find|read|list|project|directory|folder|repository|codebase", "*"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What to look at: files to read, patterns to find files with."""

    files: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.files or self.globs)

    def __str__(self) -> str:
        return ", ".join(f"`{name}`" for name in self.globs + self.files)


def targets_of(prompt: str) -> Targets:
    """Return the paths and patterns that ``prompt`` names, else the pattern that its words imply."""
    named = named_paths(prompt)
    files = tuple(name for name in named if _FILE.match(name) and not _WILD.search(name))
    globs = tuple(name if _WILD.search(name) else f"{name.rstrip('/')}/*" for name in named if name not in files)
    return Targets(files=files, globs=globs) if named else Targets(globs=_implied(prompt))


def named_paths(prompt: str) -> list[str]:
    """Return the words of ``prompt`` that are paths or patterns, in order and once."""
    found = dict.fromkeys(_clean(quoted or plain) for quoted, plain in _WORD.findall(prompt))
    return [word for word in found if _is_path(word)]


def prose(prompt: str) -> str:
    """Return ``prompt`` without paths and quoted text: what its words mean is looked for here."""
    words = _QUOTED.sub(" ", prompt).split()
    return " ".join(word for word in words if not _is_path(_clean(word)))


def _clean(word: str) -> str:
    """Return ``word`` without punctuation, and without the @ of a mention."""
    return word.strip("\"'“”‘’(),;:!").rstrip(".?").removeprefix("@")


def _is_path(word: str) -> bool:
    if word.lower() in _NOT_PATHS or "//" in word or not _PATH.fullmatch(word):
        return False
    return "/" in word or ("*" in word and "." in word) or _FILE.match(word) is not None


def _implied(prompt: str) -> tuple[str, ...]:
    said = prose(prompt).lower()
    return next(((glob,) for words, glob in _IMPLIED if re.search(rf"\b({words})\b", said)), ())
