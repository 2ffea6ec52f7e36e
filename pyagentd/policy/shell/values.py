"""What a reading of a command line consists of."""

from __future__ import annotations

from dataclasses import dataclass


class Unreadable(Exception):
    """The grammar cannot say what a command does; the message is the end of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word of a command after its quotes are taken away."""

    text: str
    bare: bool = True  # nothing in it was quoted or escaped
    varies: bool = False  # a pattern, or what a wrapper puts in: known only when the command runs
    leads: bool = False  # ... and what comes could be read as an option
    home: bool = False  # begins with the user's own ~
    within: tuple[str, ...] = ()  # directories below which it lies for certain, where it varies (``find -exec``)

    @property
    def path(self) -> str:
        """As a path: ``~/x`` is the home directory's, a literal ``~`` is spelled ``./~``."""
        return f"./{self.text}" if self.text.startswith("~") and not self.home else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a command does beyond its program's plain purpose, because of one of its words."""

    what: str  # "`find -delete` deletes files"
    by: tuple[str, ...]  # entries of ``shell_commands.allow``; each of them admits it
    at: int = -1  # index of the word; an entry that spells the command out up to here admits it too; -1: none can


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleCommand:
    """One program with its arguments."""

    words: tuple[str, ...]  # after quotes; wrappers (`timeout 5`) and harmless options before a subcommand are gone
    text: str  # as written, with its wrappers
    said: tuple[str, ...]  # every word, wrappers too
    effects: tuple[Effect, ...] = ()
    writes: bool = False  # it writes files that are known: by a redirect, an option or an operand

    @property
    def executes(self) -> bool:
        """Whether its options make it do more than its program's plain purpose."""
        return bool(self.effects)

    @property
    def plain(self) -> bool:
        """Whether it does nothing beyond what program and subcommand say, and writes no file that is known."""
        return not self.effects and not self.writes


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellReading:
    """What a command line runs, and which paths it names to read and to write.

    A path is as written: relative ones start in the workspace root, and ``~`` is the user's home. ``DIR/*`` stands
    for files in ``DIR`` whose names are known only when the command runs.
    """

    commands: tuple[SimpleCommand, ...] = ()  # every one, also those inside wrappers, `find -exec` and `sh -c`
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    unreadable: str | None = None  # why the rest cannot be told, the end of a sentence
    # What counts only where nothing confines the command:
    looks: tuple[str, ...] = ()  # paths that programs of ``understood`` are given to look at
    repositories: tuple[str, ...] = ()  # directories in which git looks for its repository
    unlisted: str | None = None  # why not every program and argument is one of ``understood``; the end of a sentence
    behind_links: str | None = None  # why a path may lead elsewhere by then; the end of a sentence


def names(text: str) -> frozenset[str]:
    """Return the words of ``text``, for tables that people read."""
    return frozenset(text.split())
