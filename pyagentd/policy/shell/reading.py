"""From the text of a command line to what it runs, reads and writes."""

from __future__ import annotations

import posixpath
import re
import shlex

from pyagentd.policy.shell import programs as builtins
from pyagentd.policy.shell.arguments import (
    apply,
    read_awk,
    read_dd,
    read_find,
    read_git,
    read_sed,
    read_tar,
    read_xargs,
)
from pyagentd.policy.shell.grammar import Simple, check_program, parse
from pyagentd.policy.shell.programs import ALIASES, PLAIN, PROGRAMS, unwrap
from pyagentd.policy.shell.understood import misunderstood
from pyagentd.policy.shell.values import (
    Found,
    ShellReading,
    SimpleCommand,
    Unreadable,
    Word,
    literal,
    names,
    roles_of,
)

_MAX_DEPTH = 6  # commands inside commands
_MAX_PLACES = 8  # directories a line may be in
_MAX_LENGTH = 30_000  # characters
_MAX_PATHS = 1_000
_PLAIN_WRAPPERS = names("env nice nohup timeout stdbuf command builtin sh bash dash")
_VERSION = re.compile(r"[-.\d]+$")

_READERS = {
    "find": read_find, "gfind": read_find, "sed": read_sed, "gsed": read_sed, "awk": read_awk, "gawk": read_awk,
    "mawk": read_awk, "nawk": read_awk, "original-awk": read_awk, "tar": read_tar, "gtar": read_tar,
    "bsdtar": read_tar, "dd": read_dd,
}  # fmt: skip

Places = tuple[str, ...]  # directories a command may start in; "" is the workspace root


def read(command: str) -> ShellReading:
    """Return what ``command`` runs, reads and writes when bash runs it."""
    reader = _Reader()
    try:
        if len(command) > _MAX_LENGTH:
            raise Unreadable("it is too long")
        reader.line(command, ("",), 0)
    except Unreadable as reason:
        reader.unreadable = str(reason)
    return ShellReading(
        commands=tuple(reader.commands),
        reads=tuple(dict.fromkeys(reader.reads)),
        writes=tuple(dict.fromkeys(reader.writes)),
        unreadable=reader.unreadable,
        looks=tuple(dict.fromkeys(reader.looks)),
        repositories=tuple(dict.fromkeys(reader.repositories)),
        unlisted=reader.unlisted or _climbs(reader),
        behind_links=reader.behind_links(),
    )


def _climbs(reader: _Reader) -> str | None:
    """Return why the paths of a line that also writes may be others by then: what ``..`` is above may be replaced."""
    climbing = [path for path in (*reader.reads, *reader.writes, *reader.looks) if ".." in path.split("/")[1:]]
    return f"it changes files, and `{climbing[0]}` goes up again" if reader.writes and climbing else None


class _Reader:
    def __init__(self) -> None:
        self.commands: list[SimpleCommand] = []
        self.reads: list[str] = []
        self.writes: list[str] = []
        self.unreadable: str | None = None
        self.looks: list[str] = []
        self.repositories: list[str] = []
        self.unlisted: str | None = None
        self._fed = False  # whether a pipe or a file is the input of what is read now
        self._link_makers: list[str] = []
        self._naming = 0  # commands that name a path and make no links

    def behind_links(self) -> str | None:
        """Return why a path may lead elsewhere when its command runs, None when it cannot."""
        if self._link_makers and self._naming + len(self._link_makers) > 1:
            return f"`{self._link_makers[0]}` may make links behind which another of its paths lies; use two calls"
        return None

    def line(self, text: str, places: Places, depth: int) -> None:
        """Read ``text``, following where ``cd`` may lead: after ``cd X &&`` to X, after ``cd X;`` perhaps."""
        if depth > _MAX_DEPTH:
            raise Unreadable("commands are nested too deeply")
        here = everywhere = places
        for part in parse(text):
            moved = self._part(part, here, depth)
            everywhere = tuple(dict.fromkeys(everywhere + moved))
            if len(everywhere) > _MAX_PLACES:
                raise Unreadable("it changes the directory too often")
            if part.then != "&&":
                here = everywhere
            elif moved:
                here = moved

    def _part(self, part: Simple, places: Places, depth: int) -> Places:
        """Add one simple command; return where it moves the shell."""
        writes = len(self.writes)
        for redirect in part.redirects:
            target = Found(words=(redirect.target,))
            if "<" in redirect.operator:
                target.read(redirect.target)
            if ">" in redirect.operator:
                target.write(redirect.target)
            self._paths(target, places)
        fed, self._fed = self._fed, self._fed or part.fed
        try:
            return self._command(part.words, part.text, places, depth, writes, in_shell=not part.piped)
        finally:
            self._fed = fed

    def _command(
        self, words: tuple[Word, ...], text: str, places: Places, depth: int, writes: int, *, in_shell: bool = False
    ) -> Places:
        """Add the command that ``words`` run in the end; ``writes`` is the count of paths before it."""
        said = tuple(word.text for word in words)
        by_shell = True  # words name a builtin before they name a program
        while True:
            check_program(words[0])
            if by_shell:
                builtins.check(words)
            wrapped = unwrap(words)
            if wrapped is None:
                break
            if "/" in words[0].text:  # some file of that name, whatever it does
                self.commands.append(_simple(words, text, said))
            self._note_wrapper(words[0].text)
            by_shell = by_shell and words[0].text in ("command", "builtin")
            if wrapped.where is not None:
                places = _moved(wrapped.where, places)
            if wrapped.line is not None:
                self.line(wrapped.line, places, depth + 1)
                return ()
            words = wrapped.words
        if by_shell and words[0].text == "cd":
            self.commands.append(_simple(words, text, said))
            to = _moved(builtins.destination(words), places)
            return to if in_shell else ()
        self._program(words, text, said, places, depth, writes)
        return ()

    def _program(
        self, words: tuple[Word, ...], text: str, said: tuple[str, ...], places: Places, depth: int, writes: int
    ) -> None:
        found = Found(words=words, fed=self._fed)
        words = examine(found)
        unlisted = misunderstood(found, words)  # for every one: it also says what that looks at
        self.unlisted = self.unlisted or unlisted
        if found.repository:
            where = found.where and _moved(found.where, places)
            self.repositories += [place or "." for place in where or places]
        if found.where is not None:
            places = _moved(found.where, places)
        self._paths(found, places)
        if words[0].text != "xargs":
            self.commands.append(_simple(words, text, said, found, writes=len(self.writes) > writes))
        for inner in found.inner:
            inside = tuple(_join(place, where) for place in places for where in inner.where) or places
            if depth >= _MAX_DEPTH:
                raise Unreadable("commands are nested too deeply")
            whole = text if words[0].text == "xargs" else shlex.join(word.text for word in inner.words)
            self._command(inner.words, whole, inside, depth + 1, len(self.writes))

    def _note_wrapper(self, name: str) -> None:
        if name not in _PLAIN_WRAPPERS:
            self.unlisted = self.unlisted or f"`{name}` is not one of the programs that are known well enough"

    def _paths(self, found: Found, places: Places) -> None:
        self.reads += [_join(place, path) for path in found.reads for place in places]
        self.writes += [_join(place, path) for path in found.writes for place in places]
        self.looks += [_join(place, path) for path in found.looks for place in places]
        if found.links:
            self._link_makers.append(found.program)
        elif found.reads or found.writes or found.looks:
            self._naming += 1
        if len(self.reads) + len(self.writes) + len(self.looks) > _MAX_PATHS:
            raise Unreadable("it names too many files")


def examine(found: Found) -> tuple[Word, ...]:
    """Add what is known of the program to ``found``; return its words, without harmless options before a subcommand.

    A program that is not known is read by nobody: whoever allows it by name decides that it may do whatever it does.
    """
    words = found.words
    name = words[0].text.rpartition("/")[2]
    name = name if name in PROGRAMS or name in PLAIN else _VERSION.sub("", name) or name
    name = ALIASES.get(name, name)
    if name in PLAIN:
        return words
    literal(words, roles_of(PROGRAMS[name]) if name in PROGRAMS else {})
    if name == "git":
        return read_git(found)
    if name == "xargs":
        read_xargs(found)
    elif name in _READERS:
        _READERS[name](found)
    elif name in PROGRAMS:
        apply(PROGRAMS[name], found)
    return words


def _simple(
    words: tuple[Word, ...], text: str, said: tuple[str, ...], found: Found | None = None, *, writes: bool = False
) -> SimpleCommand:
    effects = tuple(found.effects) if found else ()
    return SimpleCommand(
        words=tuple(word.text for word in words), text=text, said=said, effects=effects, writes=writes
    )


def _moved(to: Word, places: Places) -> Places:
    """Return where ``cd`` leads; ``..`` once as the shell takes it and once as the system does."""
    reached = [_join(place, to.path) for place in places]
    plain = [
        posixpath.normpath(path) if ".." in path.split("/") and not path.startswith("~") else path for path in reached
    ]
    return tuple("" if path == "." else path for path in dict.fromkeys(reached + plain))


def _join(place: str, path: str) -> str:
    return path if not place or path.startswith(("/", "~")) else f"{place.rstrip('/')}/{path.removeprefix('./')}"
