"""What is found out about one command while its words are read."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyagentd.policy.shell.options import WITH_ARGUMENT, Role
from pyagentd.policy.shell.values import Effect, Unreadable, Word, names

_SHELLS = ("sh", "bash")  # who may run these may run anything
_NOWHERE = names("/dev/null /dev/stdin /dev/stdout /dev/stderr /dev/zero /dev/full /dev/random /dev/urandom")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """A command inside another."""

    words: tuple[Word, ...]
    where: tuple[str, ...] = ()  # directories it starts in, seen from where the outer one starts; none: the same


@dataclass(slots=True, kw_only=True)
class Found:
    """The effects, paths and inner commands of one command."""

    words: tuple[Word, ...]
    effects: dict[Effect, None] = field(default_factory=dict)  # in order, each once
    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    inner: list[Inner] = field(default_factory=list)
    where: Word | None = None  # the directory it goes to first
    fed: bool = False  # something reaches its standard input: a pipe or a file
    links: bool = False  # it may make links, or move them to where they lead elsewhere
    looks: list[str] = field(default_factory=list)
    repository: bool = False  # it looks for a git repository where it is

    @property
    def program(self) -> str:
        """The program as written."""
        return self.words[0].text

    def runs(self, option: str, at: int = -1, what: str = "runs what its argument says") -> None:
        """Note that it runs something that cannot be told."""
        self._effect(option, what, at, _SHELLS)

    def deletes(self, option: str, at: int = -1, what: str = "deletes files") -> None:
        """Note that it deletes files."""
        self._effect(option, what, at, ("rm",))

    def read(self, word: Word | None) -> None:
        """Note that it reads this file."""
        self.reads += _file_or_inside(word)

    def look(self, word: Word | None) -> None:
        """Note that it is given this file or directory to look at."""
        self.looks += _file_or_inside(word)

    def write(self, word: Word | None, *, links: bool = True) -> None:
        """Note that it writes or removes this file; with ``links`` also where a link of that name leads."""
        if word is None or word.path in _NOWHERE:
            return
        if not word.varies:
            self.writes += [*_passed(word.path), word.path]
        elif word.within and not links:
            self.writes += [f"{directory.rstrip('/')}/*" for directory in word.within]
        else:
            raise Unreadable(
                f"`{self.program}` writes to `{word.text}`, and which files that is cannot be told; name them"
            )

    def write_beside(self, word: Word) -> None:
        """Note that it writes files in the same directory, under names made from this one."""
        if not word.varies:
            self.write_into(Word(text=posixpath.dirname(word.text) or ".", home=word.home and "/" in word.text))

    def write_into(self, directory: Word, name: str = "*") -> None:
        """Note that it writes a file in this directory."""
        if directory.varies:
            raise Unreadable(f"`{self.program}` writes into `{directory.text}`, which is a pattern")
        self.writes += [*_passed(directory.path), f"{directory.path.rstrip('/')}/{name}"]

    def _effect(self, option: str, what: str, at: int, like: tuple[str, ...]) -> None:
        name = f"{self.program} {option}".strip()
        self.effects[Effect(what=f"`{name}` {what}", by=(*like, name), at=at)] = None


def _file_or_inside(word: Word | None) -> list[str]:
    if word is None or word.path == "-" or word.path in _NOWHERE:
        return []
    inside = word.path.rpartition("/")[2] in ("", ".", "..")  # a directory: what is read is in it
    return [f"{word.path.rstrip('/')}/*" if inside else word.path]


def _passed(path: str) -> list[str]:
    """Return the directories that ``path`` leaves again by ``..``: they may be made on the way."""
    parts = path.split("/")
    return [
        "/".join(parts[:index])
        for index in range(1, len(parts))
        if parts[index] == ".." and parts[index - 1] not in ("", ".", "..", "~")
    ]


def literal(words: tuple[Word, ...], roles: Mapping[str, Role]) -> None:
    """Refuse a word that could turn into an option when the command runs.

    Args:
        words: The command.
        roles: What is known of the program's options; where that is nothing, ``--`` after one may be its argument.
    """
    flag = True
    for word in words[1:]:
        if word.text == "--" and flag and not word.varies:
            return
        if word.leads:
            raise Unreadable(
                f"what `{word.text}` becomes could be an option of `{words[0].text}`; quote it or begin it with ./"
            )
        flag = not word.text.startswith("-") or (
            bool(roles) and all(_is_flag(each, roles) for each in _options(word))
        )


def _options(word: Word) -> list[str]:
    return [word.text] if word.text.startswith("--") else [f"-{letter}" for letter in word.text[1:]]


def _is_flag(option: str, roles: Mapping[str, Role]) -> bool:
    return "=" in option or not any(role in WITH_ARGUMENT for name, role in roles.items() if name.startswith(option))
