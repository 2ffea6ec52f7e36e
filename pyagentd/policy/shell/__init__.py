"""Parses a shell command without running it: what it runs, reads, writes and deletes; the unreadable is denied.

``read`` parses a line; ``refusal`` and ``matching_deny`` compare it with ``shell_commands``. The rules:

1. Every simple command of the line must be admitted by an entry of ``allow``: it begins with the entry's words, so
   ``git`` admits every ``git``, and ``git log`` only that. What a wrapper, ``find -exec`` or ``sh -c`` runs is a
   command of its own. A program named by its path is not the program of that name. ``cd`` to a literal path is free.
2. An entry admits a program's plain purpose. An *effect* of an option needs its own allowance: an entry that names it
   (``find -delete``), one that spells the command out up to that option, or the program with just that purpose:
   ``rm`` for whatever deletes, ``sh`` or ``bash`` for whatever runs unknown commands.
3. Files that are known to be read or written (redirects, options, operands of programs that write) are ``reads`` and
   ``writes``; the guard compares them with ``paths``, even if everything else is allowed.
4. For an unknown program, allowing its name allows whatever it does.
5. If nothing confines a command, ``*`` admits only the programs of ``admission.UNDERSTOOD``, and their path operands
   count as read. A line that may make links and names other paths is unreadable.
6. Only a human who sees the whole text can admit a command that is unreadable.

``grammar`` parses the line, ``programs`` knows what each program does, ``admission`` decides. Nothing here looks at
the disk, and the grammar is bash's with a clean environment, no aliases and no ``extglob``.
"""

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Literal, get_args

from pyagentd import door

if TYPE_CHECKING:
    from pyagentd.policy.shell.admission import is_allowed_by_name, matching_deny, refusal
    from pyagentd.policy.shell.grammar import read
else:
    __getattr__ = door(
        __name__, is_allowed_by_name="admission", matching_deny="admission", refusal="admission", read="grammar"
    )

__all__ = [
    "ANY",
    "COMMAND_DEVICES",
    "Effect",
    "ShellReading",
    "SimpleCommand",
    "is_allowed_by_name",
    "matching_deny",
    "read",
    "refusal",
]


# The result of parsing a command line.

ANY = "*"
"""In ``shell_commands``: every program."""


class Unreadable(Exception):
    """A command that cannot be parsed with certainty; the message is the end of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word of a command, without its quotes."""

    text: str
    bare: bool = True  # nothing in it was quoted or escaped
    varies: bool = False  # a pattern, or a wrapper's placeholder: known only when the command runs
    leads: bool = False  # ... and its value could be read as an option
    home: bool = False  # begins with the user's own ~
    within: tuple[str, ...] = ()  # directories that certainly contain it, if it varies (``find -exec``)

    @property
    def path(self) -> str:
        """The word as a path: ``~/x`` is in the home directory, a literal ``~`` becomes ``./~``."""
        return f"./{self.text}" if self.text.startswith("~") and not self.home else self.text

    @property
    def directory(self) -> "Word":
        """The directory of the file with this name."""
        return Word(text=posixpath.dirname(self.text) or ".", home=self.home and "/" in self.text)


HERE = Word(text=".")
"""The directory in which a command starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """An effect of one word of a command beyond its program's plain purpose."""

    what: str  # "`find -delete` deletes files"
    by: tuple[str, ...]  # entries of ``shell_commands.allow``; each of them admits it
    at: int = -1  # index of the word; an entry that spells the command out up to here admits it too; -1: none can


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleCommand:
    """One program with its arguments."""

    words: tuple[str, ...]  # without quotes, wrappers (`timeout 5`) and harmless options before a subcommand
    text: str  # as written, with its wrappers
    all_words: tuple[str, ...]  # every word, wrappers too
    effects: tuple[Effect, ...] = ()
    writes: bool = False  # it writes known files: by a redirect, an option or an operand

    @property
    def plain(self) -> bool:
        """Whether it has no effects beyond those of program and subcommand, and writes no known file."""
        return not self.effects and not self.writes


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellReading:
    """The commands of a line, and the paths that it reads and writes.

    A path is as written: relative ones start at the workspace root, and ``~`` is the user's home. ``DIR/*`` means
    files in ``DIR`` whose names are known only when the command runs.
    """

    commands: tuple[SimpleCommand, ...] = ()  # all, also those inside wrappers, `find -exec` and `sh -c`
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    unreadable: str | None = None  # why the rest is unknown, the end of a sentence
    # What counts only where nothing confines the command:
    looks: tuple[str, ...] = ()  # path operands of the programs in ``admission.UNDERSTOOD``
    repositories: tuple[str, ...] = ()  # directories in which git looks for its repository
    unlisted: str | None = None  # why not all commands are in ``admission.UNDERSTOOD``; the end of a sentence
    behind_links: str | None = None  # why a path may then lead elsewhere; the end of a sentence


def names(text: str) -> frozenset[str]:
    """Return the words of ``text``, for readable tables."""
    return frozenset(text.split())


# Options and operands of one command, parsed as by getopt.

Role = Literal[
    "takes",  # has a harmless argument
    "maybe",  # has a harmless argument, but only if it is attached
    "suffix",  # has an argument: a part of file names that the program derives
    "script",  # has an argument: a program in a small language, which is parsed
    "reads",  # has an argument: a file it reads
    "writes",  # has an argument: a file it writes
    "into",  # has an argument: a directory it writes into
    "runs",  # has an argument: what it runs
    "does",  # has no argument and makes the program run something
    "deletes",  # has no argument and makes the program delete
    "drops",  # has no argument and makes the program write into the current directory
    "unknown",  # not in the tables
    "operand",
]
WITH_ARGUMENT = frozenset({"takes", "suffix", "script", "reads", "writes", "into", "runs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One option or operand of a command line."""

    role: Role
    name: str  # "-o", "--output" (in full), or "" of an operand
    value: Word | None  # its argument; an operand itself
    at: int  # index of its word
    certain: bool = True  # False: it may be the argument of the option before


def arguments(words: tuple[Word, ...], roles: Mapping[str, Role]) -> Iterator[Argument]:
    """Yield the options and operands after the program's name.

    Operands and options may be mixed, short options bundled, long ones abbreviated. An ambiguous abbreviation means
    the most dangerous of its options.
    """
    at, perhaps_taken = 1, False  # whether the current word may be the argument of the one before
    while at < len(words):
        word = words[at]
        if word.text == "--" and not perhaps_taken:
            for index in range(at + 1, len(words)):
                yield Argument(role="operand", name="", value=words[index], at=index)
            return
        if word.text == "-" or not word.text.startswith("-"):
            yield Argument(role="operand", name="", value=word, at=at)
            at, perhaps_taken = at + 1, False
        else:
            whole = word.text.startswith("--") or (len(word.text) > 2 and word.text.partition("=")[0] in roles)
            read = _read_long_option(words, at, roles) if whole else _read_short_options(words, at, roles)
            yield from (replace(item, certain=False) for item in read) if perhaps_taken else read
            value = read[-1].value if read else None
            took = value is not None and value is next_word(words, at)
            # A word that looks like an option is also parsed as one when it may be an argument; its own argument may
            # then be an operand.
            certain = took and not perhaps_taken and not words[at + 1].text.startswith("-")
            at, perhaps_taken = at + (2 if certain else 1), took and not certain


def operands_of(items: Iterable[Argument]) -> list[Word]:
    """Return the operands among ``items``."""
    return [item.value for item in items if item.role == "operand" and item.value is not None]


def is_abbreviated(item: Argument, word: Word) -> bool:
    """Return whether the option in ``word`` is abbreviated, so that another version may take it for another one."""
    return item.name.startswith("--") and word.text.partition("=")[0] != item.name


def _read_long_option(words: tuple[Word, ...], at: int, roles: Mapping[str, Role]) -> list[Argument]:
    word = words[at]
    name, equals, attached = word.text.partition("=")
    if len(name) > 3 and name[1:] in roles:  # programs with long options on one dash accept two as well
        name = name[1:]
    meant = [option for option in roles if option.startswith(name) and option.startswith("--")]
    meant = [name] if name in roles else sorted(meant, key=lambda option: roles[option] == "takes")
    full, certain = (meant[0], name in roles) if meant else (name, True)
    role, value = roles.get(full, "unknown"), None
    if equals:
        value = Word(text=attached, bare=False, varies=word.varies)
    elif role in WITH_ARGUMENT and (certain or role != "takes"):
        value = next_word(words, at)
    return [Argument(role=role, name=full, value=value, at=at)]


def _read_short_options(words: tuple[Word, ...], at: int, roles: Mapping[str, Role]) -> list[Argument]:
    word, found = words[at], []
    for name, role in roles.items():  # such as zip's `-lf`, whose argument may be attached
        if len(name) > 2 and name[1] != "-" and role in WITH_ARGUMENT and word.text.startswith(name):
            rest = Word(text=word.text[len(name) :], bare=False, varies=word.varies)
            found.append(Argument(role=role, name=name, value=rest, at=at))
    for index, letter in enumerate(word.text[1:], start=2):
        role = roles.get(f"-{letter}", "unknown")
        value = None
        if role == "maybe" or role in WITH_ARGUMENT:
            text = word.text[index:]
            attached = Word(text=text, bare=False, varies=word.varies) if text else None
            value = attached or (None if role == "maybe" else next_word(words, at))
        found.append(Argument(role=role, name=f"-{letter}", value=value, at=at))
        if role == "maybe" or role in WITH_ARGUMENT:
            break
    return found


def next_word(words: tuple[Word, ...], at: int) -> Word | None:
    """Return the word after the one at index ``at``, if there is one."""
    return words[at + 1] if at + 1 < len(words) else None


# Findings about one command while its words are parsed; ``programs`` fills them in.

_SHELLS = ("sh", "bash")  # a permission for one of these permits anything
_LONGEST_PATH = 4_095  # bytes
COMMAND_DEVICES = names("/dev/null /dev/stdin /dev/stdout /dev/stderr /dev/zero /dev/full /dev/random /dev/urandom")
"""Devices that any command may use: they belong to it, or store nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """A command that another command runs."""

    words: tuple[Word, ...]
    where: tuple[str, ...] = ()  # its directories, relative to the outer command's; none: the same


@dataclass(slots=True, kw_only=True)
class Findings:
    """Effects, paths and inner commands of one command, as found so far."""

    words: tuple[Word, ...]
    effects: dict[Effect, None] = field(default_factory=dict)  # in order, each once
    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    inner: list[Inner] = field(default_factory=list)
    where: Word | None = None  # the directory that it changes to first
    fed: bool = False  # something reaches its standard input: a pipe or a file
    links: bool = False  # it may make links, or move them so that they lead elsewhere
    looks: list[str] = field(default_factory=list)
    repository: bool = False  # it looks for a git repository in its directory

    @property
    def program(self) -> str:
        """The program's name as written."""
        return self.words[0].text

    def runs(self, option: str, at: int = -1, what: str = "runs what its argument says") -> None:
        """Note that it runs something unknown."""
        self._add_effect(option, what, at, _SHELLS)

    def deletes(self, option: str, at: int = -1, what: str = "deletes files") -> None:
        """Note that it deletes files."""
        self._add_effect(option, what, at, ("rm",))

    def read(self, word: Word | None) -> None:
        """Note that it reads this file."""
        self.reads += _file_or_inside(word)

    def look(self, word: Word | None) -> None:
        """Note that it reads or lists this file or directory, given as an operand."""
        self.looks += _file_or_inside(word)

    def write(self, word: Word | None, *, links: bool = True) -> None:
        """Note that it writes or removes this file; with ``links`` also the target of a link of that name."""
        if word is None or word.path in COMMAND_DEVICES:
            return
        if not word.varies:
            self.writes += [*_left_directories(word.path), word.path]
        elif word.within and not links:
            self.writes += [f"{directory.rstrip('/')}/*" for directory in word.within]
        else:
            raise Unreadable(
                f"`{self.program}` writes to `{word.text}`, and which files that is cannot be told; name them"
            )

    def write_beside(self, word: Word) -> None:
        """Note that it writes other files into this file's directory, with names derived from its name."""
        if not word.varies:
            self.write_into(word.directory)

    def write_into(self, directory: Word, name: str = "*") -> None:
        """Note that it writes a file into this directory."""
        if directory.varies:
            raise Unreadable(f"`{self.program}` writes into `{directory.text}`, which is a pattern")
        self.writes += [*_left_directories(directory.path), f"{directory.path.rstrip('/')}/{name}"]

    def _add_effect(self, option: str, what: str, at: int, like: tuple[str, ...]) -> None:
        name = f"{self.program} {option}".strip()
        self.effects[Effect(what=f"`{name}` {what}", by=(*like, name), at=at)] = None


def _file_or_inside(word: Word | None) -> list[str]:
    if word is None or word.path == "-" or word.path in COMMAND_DEVICES:
        return []
    inside = word.path.rpartition("/")[2] in ("", ".", "..")  # a directory: files in it are read
    return [f"{word.path.rstrip('/')}/*" if inside else word.path]


def _left_directories(path: str) -> list[str]:
    """Return the directories in ``path`` that a later ``..`` leaves: the command may create them."""
    if len(path) > _LONGEST_PATH:
        raise Unreadable("a path in it is longer than the system takes")
    parts = path.split("/")
    return [
        "/".join(parts[:index])
        for index in range(1, len(parts))
        if parts[index] == ".." and parts[index - 1] not in ("", ".", "..", "~")
    ]


def refuse_late_options(words: tuple[Word, ...], roles: Mapping[str, Role]) -> None:
    """Refuse a word that could become an option when the command runs.

    If the program's options are unknown (no ``roles``), ``--`` after an option may be its argument.
    """
    takes_nothing = True  # the word before is not an option that takes this one as its argument
    for word in words[1:]:
        if word.text == "--" and takes_nothing and not word.varies:
            return
        if word.leads:
            raise Unreadable(
                f"what `{word.text}` becomes could be an option of `{words[0].text}`; quote it or begin it with ./"
            )
        takes_nothing = not word.text.startswith("-") or (
            bool(roles) and all(_is_flag(each, roles) for each in _options(word))
        )


def _options(word: Word) -> list[str]:
    return [word.text] if word.text.startswith("--") else [f"-{letter}" for letter in word.text[1:]]


def _is_flag(option: str, roles: Mapping[str, Role]) -> bool:
    return "=" in option or not any(role in WITH_ARGUMENT for name, role in roles.items() if name.startswith(option))


# The entries of the table of programs, and the roles of their options.

Operands = Literal[
    "",  # read, or not files
    "written",
    "removed",
    "copied",  # all but the last are copied to the last
    "moved",  # the same, and the sources are removed
    "linked",  # the same; a write to a hard link changes its source
    "first",  # the first is written
    "second",  # all but the first are written
    "moded",  # the same; the first is a mode, which may look like an option
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The roles of a program's options and operands."""

    takes: str = ""
    maybe: str = ""  # an argument only if it is attached
    script: str = ""
    reads: str = ""
    writes: str = ""
    into: str = ""
    runs: str = ""
    does: str = ""  # no argument: makes it run something
    deletes: str = ""  # no argument
    drops: str = ""  # no argument: makes it write files in the current directory
    operands: Operands = ""
    here: bool = False  # it writes files in the current directory, or in the argument of an ``into`` option
    beside: str = ""  # with one of these, or always with "*", it writes others beside what it writes
    suffix: str = ""  # options whose argument becomes part of file names
    template: str = ""  # a regular expression: a written file name that matches is known only when the program runs
    one_dash: bool = False  # long options may have a single dash
    makes: str = ""  # with one of these, every operand is written
    feeds: int = 0  # with fewer operands than this it takes commands from its standard input
    links: bool = False  # it may make links
    remote: bool = False  # a name with a colon before its first slash is on another host
    prints: str = ""  # with one of these, it writes none of this
    code: str = ""  # a regular expression: an operand or argument of ``takes`` that matches has an effect
    what: str = "runs something"  # the effect of such an argument, and of the options of ``does``


@cache
def roles_of(row: object) -> dict[str, Role]:
    """Return the role of each option in an entry: the name of the field that lists it."""
    return {option: role for role in get_args(Role) for option in getattr(row, role, "").split()}
