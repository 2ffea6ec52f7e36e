"""Parses a command line as bash would, and finds the commands it runs and the files it reads and writes.

It knows lists and pipelines of simple commands; every other shell construct is unreadable.
"""

import posixpath
import re
import shlex
import unicodedata
from dataclasses import dataclass

from pyagentd.policy.shell import (
    Effect,
    Findings,
    ShellReading,
    SimpleCommand,
    Unreadable,
    Word,
    names,
    programs,
)
from pyagentd.policy.shell.admission import unlisted_reason, unlisted_wrapper_reason

# Words and operators of a command line, as bash 5 reads them; anything but a literal is unreadable.
#
# Some characters have a meaning in bash that depends on their position. If that is hard to tell, the text is refused:
# a refused command can be written more plainly, a misread one cannot be taken back.

_OPERATORS = sorted(
    {"\n"} | names("&>> <<< <<- ;;& && || |& ;; ;& << >> >| >& <& <> &> ; & | < > ( )"), key=len, reverse=True
)
_REFUSED = {
    "(": "a parenthesis (subshell, function or process substitution)",
    ")": "a parenthesis",
    "<<": "a here-document",
    "<<-": "a here-document",
    "<<<": "a here-string",
    ";;": "`;;`",
    ";&": "`;&`",
    ";;&": "`;;&`",
}
_ENDS_WORD = frozenset(" \t\n;&|<>()")
_ESCAPED_IN_DOUBLE = frozenset('$`"\\\n')
_TWO_DIGITS = re.compile(r"[0-9]{1,2}")
_DESCRIPTOR = re.compile(r"[0-9]+-?|-")
_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zs", "Zl", "Zp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A word, or an operator (``word`` is None)."""

    start: int
    end: int
    word: Word | None = None
    operator: str = ""
    descriptor: str = ""  # the digits right before a redirect


def tokens(text: str) -> list[Token]:
    """Split ``text`` into words and operators.

    Raises:
        Unreadable: It has something that is not a literal, or unbalanced quotes.
    """
    for char in text:  # characters that hide part of the command from the person who approves it
        if char not in " \t\n" and unicodedata.category(char) in _HIDDEN:
            raise Unreadable(f"it has the character U+{ord(char):04X}, which is invisible or looks like another")
    return _Lexer(text).all()


class _Lexer:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._found: list[Token] = []

    def all(self) -> list[Token]:
        text = self._text
        while self._at < len(text):
            char = text[self._at]
            if char in " \t":
                self._at += 1
            elif text.startswith("\\\n", self._at):
                self._at += 2
            elif char == "#":
                end = text.find("\n", self._at)
                self._at = len(text) if end < 0 else end
            elif char in _ENDS_WORD:
                self._operator()
            else:
                self._word()
        return self._found

    def _operator(self, descriptor: str = "", start: int | None = None) -> None:
        start = self._at if start is None else start
        operator = next(op for op in _OPERATORS if self._text.startswith(op, self._at))
        self._at += len(operator)
        if operator in _REFUSED:
            raise Unreadable(f"it has {_REFUSED[operator]}")
        if operator not in ("&&", "||", "\n") and self._text.startswith("\\\n", self._at):
            raise Unreadable("a line is continued right after an operator")
        self._found.append(Token(start=start, end=self._at, operator=operator, descriptor=descriptor))

    def _word(self) -> None:
        start = self._at
        word = _WordReader(self._text, start)
        self._at = word.end
        written = self._text[start : self._at]
        if self._text[self._at : self._at + 1] in ("<", ">"):
            if _TWO_DIGITS.fullmatch(written):
                return self._operator(written, start)
            if word.value.isdigit() or (written.startswith("{") and written.endswith("}")):
                raise Unreadable(f"`{written}` right before a redirect")
        self._found.append(Token(start=start, end=self._at, word=word.word()))
        return None


class _WordReader:
    """Reads one word: its characters, and which of them were quoted."""

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._start = start
        self.end = start
        self._chars: list[tuple[str, bool]] = []  # character, quoted
        self._bare = True
        self._read()

    @property
    def value(self) -> str:
        return "".join(char for char, _ in self._chars)

    def word(self) -> Word:
        """Return the word; refuse one that bash would expand."""
        value, unquoted = self.value, "".join("\0" if quoted else char for char, quoted in self._chars)
        if "{" in unquoted and ("," in value or ".." in value):
            raise Unreadable(f"`{value}` has a brace expansion; quote it or write the words out")
        if "!" in unquoted and unquoted != "!" and re.search(r"(?<!\[)!(?!=)", unquoted):
            raise Unreadable("it has an unquoted `!` in a word")
        home = self._is_home(unquoted, self._text[self._start : self.end])
        varies = value != "[" and any(char in unquoted for char in "*?[")
        leads = varies and (unquoted[0] in "*?[" or value[0] == "-")
        return Word(text=value, bare=self._bare, varies=varies, leads=leads, home=home)

    def _read(self) -> None:
        text = self._text
        while self.end < len(text) and (char := text[self.end]) not in _ENDS_WORD:
            if char == "\\":
                following = text[self.end + 1 : self.end + 2]
                if not following:
                    raise Unreadable("it ends in a backslash")
                self.end += 2
                if following != "\n":
                    self._bare = False
                    self._chars.append((following, True))
            elif char == "'":
                close = text.find("'", self.end + 1)
                if close < 0:
                    raise Unreadable("its quotes are not balanced")
                self._bare = False
                self._chars += [(each, True) for each in text[self.end + 1 : close]]
                self.end = close + 1
            elif char == '"':
                self._read_double_quotes()
            else:
                self._refuse_expansion(char)
                self._chars.append((char, False))
                self.end += 1

    def _read_double_quotes(self) -> None:
        text, at = self._text, self.end + 1
        self._bare = False
        while (char := text[at : at + 1]) != '"':
            if not char:
                raise Unreadable("its quotes are not balanced")
            if char == "\\" and (following := text[at + 1 : at + 2]) in _ESCAPED_IN_DOUBLE:
                if following != "\n":
                    self._chars.append((following, True))
                at += 2
                continue
            self._refuse_expansion(char)
            self._chars.append((char, True))
            at += 1
        self.end = at + 1

    def _refuse_expansion(self, char: str) -> None:
        if char == "`":
            raise Unreadable("it has a command substitution (a backtick)")
        if char == "$":
            following = self._text[self.end : self.end + 2] if self._text[self.end] == "$" else ""
            kind = {"$(": "a substitution `$(`", "$'": "a quote `$'`", '$"': 'a quote `$"`'}.get(following)
            raise Unreadable(f"it has {kind}" if kind else "it has an unquoted `$` (a variable or substitution)")

    @staticmethod
    def _is_home(unquoted: str, written: str) -> bool:
        """Return whether the word begins with ``~``, the user's own home directory."""
        if re.search(r"[=:]~", unquoted) and "=" in unquoted:
            raise Unreadable("it has an unquoted `~` after `=`")
        if not unquoted.startswith("~"):
            return False
        if written != "~" and not written.startswith("~/"):
            raise Unreadable("it has `~` with a name or a quote: perhaps another directory")
        return True


KEYWORDS = names("if then else elif fi case esac for select while until do done in function { } ! [[ ]] coproc time")

_PROGRAM = re.compile(r"[A-Za-z0-9_./:][A-Za-z0-9_./:+@%,-]*|\[")  # no look-alikes from other scripts
_REDIRECTS = names("< > >> >| >& <& <> &> &>>")


Redirect = tuple[str, Word]
"""The operator of a redirect, and its file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simple:
    """One simple command as written."""

    words: tuple[Word, ...]  # at least one
    redirects: tuple[Redirect, ...]
    text: str
    piped: bool  # part of a pipeline, or in the background: in a subshell
    fed: bool  # a pipe or a file is its standard input
    then: str  # what follows its pipeline: "&&", "||", ";" (also a new line), "&", or "" at the end


def parse(text: str) -> list[Simple]:
    """Parse ``text`` into its simple commands, in order.

    Raises:
        Unreadable: It has a construct that this grammar does not know.
    """
    return _Parser(text).all()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._at = 0

    def all(self) -> list[Simple]:
        found: list[Simple] = []
        self._skip_newlines()
        while self._at < len(self._tokens):
            found += self._read_pipeline()
        return found

    def _read_pipeline(self) -> list[Simple]:
        token = self._peek()
        if token and token.word is not None and token.word.bare and token.word.text == "time":
            self._at += 1  # a keyword of bash before a pipeline
        parts = [self._read_simple()]
        while self._operator() in ("|", "|&"):
            self._at += 1
            self._skip_newlines()
            parts.append(self._read_simple())
        then = self._operator().replace("\n", ";")
        self._at += 1
        self._skip_newlines()
        if then in ("&&", "||") and self._at >= len(self._tokens):
            raise Unreadable(f"nothing follows `{then}`")
        piped = len(parts) > 1 or then == "&"
        return [
            Simple(
                words=words,
                redirects=redirects,
                text=text,
                piped=piped,
                fed=index > 0 or any("<" in operator for operator, _ in redirects),
                then=then,
            )
            for index, (words, redirects, text) in enumerate(parts)
        ]

    def _read_simple(self) -> tuple[tuple[Word, ...], tuple[Redirect, ...], str]:
        start = self._at
        words: list[Word] = []
        redirects: list[Redirect] = []
        while token := self._peek():
            if token.word is not None:
                words.append(token.word)
                self._at += 1
            elif token.operator in _REDIRECTS:
                redirects += self._read_redirect(token)
            else:
                break
        if not words:
            before = self._operator().replace("\n", "the end of a line")
            if redirects:
                raise Unreadable("a redirect without a command")
            raise Unreadable(
                f"there is no command before `{before}`" if before else "a command is missing at its end"
            )
        check_program(words[0])
        written = self._text[self._tokens[start].start : self._tokens[self._at - 1].end]
        return tuple(words), tuple(redirects), written

    def _read_redirect(self, token: Token) -> list[Redirect]:
        self._at += 1
        target = self._peek()
        if target is None or target.word is None:
            raise Unreadable(f"no file follows `{token.operator}`")
        self._at += 1
        word = target.word
        if word.varies:
            raise Unreadable(f"a redirect to the pattern `{word.text}`")
        if token.operator in (">&", "<&") and (not word.bare or (word.text.startswith("-") and word.text != "-")):
            # Bash takes quotes away twice here, and ends the word after `-`.
            raise Unreadable(f"`{token.operator}` with more than a plain name")
        if token.operator in (">&", "<&") and _DESCRIPTOR.fullmatch(word.text):
            return []
        if token.operator == "<&" or (token.operator == ">&" and token.descriptor):
            raise Unreadable(f"`{token.operator}` with a file")
        if word.text.startswith(("/dev/tcp/", "/dev/udp/")):
            raise Unreadable("a redirect to the network")
        if not word.text:
            raise Unreadable("a redirect to a file without a name")
        return [(token.operator, word)]

    def _peek(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _operator(self) -> str:
        token = self._peek()
        return token.operator if token else ""

    def _skip_newlines(self) -> None:
        while self._operator() == "\n":
            self._at += 1


def check_program(word: Word) -> None:
    """Refuse a program whose name is not a plain word.

    Raises:
        Unreadable: With the reason.
    """
    if word.varies or word.home or not word.text:
        raise Unreadable(f"the program to run is `{word.text}`, which is not a plain name")
    if word.text in KEYWORDS:
        raise Unreadable(f"`{word.text}` begins a construct of the shell")
    if "=" in word.text:
        raise Unreadable(f"`{word.text}` sets a variable")
    if not _PROGRAM.fullmatch(word.text):
        raise Unreadable(f"the program to run is `{word.text}`, which is not a plain name")


# From a command line to the commands that it runs and the files that it reads and writes.

_MAX_DEPTH = 6  # commands inside commands
_MAX_PLACES = 8  # possible directories of a line
_MAX_LENGTH = 30_000  # characters
_MAX_PATHS = 150_000  # characters of all paths, each plus a constant for the cost of resolving it
_EACH_PATH = 100

Places = tuple[str, ...]  # directories a command may start in; "" is the workspace root


def read(command: str) -> ShellReading:
    """Return the commands that bash would run for ``command``, and the paths that they read and write."""
    reader = _Reader()
    try:
        if len(command) > _MAX_LENGTH:
            raise Unreadable("it is too long")
        reader.read_line(command, ("",), 0)
    except Unreadable as reason:
        reader.unreadable = str(reason)
    climbing = [path for path in (*reader.reads, *reader.writes, *reader.looks) if ".." in path.split("/")[1:]]
    if reader.writes and climbing:  # the line may replace the directory before ``..``
        reader.unlisted = reader.unlisted or f"it changes files, and `{climbing[0]}` goes up again"
    behind = None
    if reader.link_makers and reader.naming + len(reader.link_makers) > 1:
        behind = f"`{reader.link_makers[0]}` may make links behind which another of its paths lies; use two calls"
    return ShellReading(
        commands=tuple(reader.commands),
        reads=tuple(dict.fromkeys(reader.reads)),
        writes=tuple(dict.fromkeys(reader.writes)),
        unreadable=reader.unreadable,
        looks=tuple(dict.fromkeys(reader.looks)),
        repositories=tuple(dict.fromkeys(reader.repositories)),
        unlisted=reader.unlisted,
        behind_links=behind,
    )


class _Reader:
    def __init__(self) -> None:
        self.commands: list[SimpleCommand] = []
        self.reads: list[str] = []
        self.writes: list[str] = []
        self.unreadable: str | None = None
        self.looks: list[str] = []
        self.repositories: list[str] = []
        self.unlisted: str | None = None
        self._fed = False  # whether the current input is a pipe or a file
        self.link_makers: list[str] = []
        self.naming = 0  # commands that name a path and make no links
        self._room = _MAX_PATHS

    def read_line(self, text: str, places: Places, depth: int) -> None:
        """Read ``text`` and follow ``cd``: after ``cd X &&`` the directory is X, after ``cd X;`` it may be."""
        if depth > _MAX_DEPTH:
            raise Unreadable("commands are nested too deeply")
        here = everywhere = places
        before = ""
        for part in parse(text):
            moved = self._read_part(part, here, depth)
            everywhere = tuple(dict.fromkeys(everywhere + moved))
            if len(everywhere) > _MAX_PLACES:
                raise Unreadable("it changes the directory too often")
            if part.then != "&&" or before == "||":  # A || cd B && C: after A, C runs in the first directory
                here = everywhere
            elif moved:
                here = moved
            before = part.then

    def _read_part(self, part: Simple, places: Places, depth: int) -> Places:
        """Add one simple command; return the directories to which it may move the shell."""
        writes = len(self.writes)
        for operator, file in part.redirects:
            target = Findings(words=(file,))
            if "<" in operator:
                target.read(file)
            if ">" in operator:
                target.write(file)
            self._add_paths(target, places)
        fed, self._fed = self._fed, self._fed or part.fed
        try:
            return self._read_command(part.words, part.text, places, depth, writes, in_shell=not part.piped)
        finally:
            self._fed = fed

    def _read_command(
        self, words: tuple[Word, ...], text: str, places: Places, depth: int, writes: int, *, in_shell: bool = False
    ) -> Places:
        """Add the command that ``words`` finally run; ``writes`` is the number of written paths before it."""
        all_words = tuple(word.text for word in words)
        by_shell = True  # bash looks for a builtin before a program
        while True:
            check_program(words[0])
            if by_shell:
                programs.check(words)
            wrapped = programs.unwrap(words)
            if wrapped is None:
                break
            if "/" in words[0].text:  # some file of that name, with unknown effects
                self._add_command(words, text, all_words)
            self.unlisted = self.unlisted or unlisted_wrapper_reason(words[0].text)
            by_shell = by_shell and words[0].text in ("command", "builtin")
            if isinstance(wrapped, str):
                self.read_line(wrapped, places, depth + 1)
                return ()
            words = wrapped
        if by_shell and words[0].text == "cd":
            self._add_command(words, text, all_words)
            to = _places_after_cd(programs.cd_target(words), places)
            return to if in_shell else ()
        self._read_program(words, text, all_words, places, depth, writes)
        return ()

    def _read_program(
        self, words: tuple[Word, ...], text: str, all_words: tuple[str, ...], places: Places, depth: int, writes: int
    ) -> None:
        found = Findings(words=words, fed=self._fed)
        programs.examine(found)
        words = found.words
        unlisted = unlisted_reason(found)  # called for every command, since it also notes paths
        self.unlisted = self.unlisted or unlisted
        if found.repository:
            where = found.where and _places_after_cd(found.where, places)
            self.repositories += [place or "." for place in where or places]
        if found.where is not None:
            places = _places_after_cd(found.where, places)
        self._add_paths(found, places)
        if words[0].text != "xargs":
            self._add_command(words, text, all_words, tuple(found.effects), writes=len(self.writes) > writes)
        for inner in found.inner:
            inside = tuple(_join(place, where) for place in places for where in inner.where) or places
            if depth >= _MAX_DEPTH:
                raise Unreadable("commands are nested too deeply")
            whole = text if words[0].text == "xargs" else shlex.join(word.text for word in inner.words)
            self._read_command(inner.words, whole, inside, depth + 1, len(self.writes))

    def _add_command(
        self,
        words: tuple[Word, ...],
        text: str,
        all_words: tuple[str, ...],
        effects: tuple[Effect, ...] = (),
        *,
        writes: bool = False,
    ) -> None:
        plain = tuple(word.text for word in words)
        self.commands.append(
            SimpleCommand(words=plain, text=text, all_words=all_words, effects=effects, writes=writes)
        )

    def _add_paths(self, found: Findings, places: Places) -> None:
        for known, named in ((self.reads, found.reads), (self.writes, found.writes), (self.looks, found.looks)):
            for path in (_join(place, each) for each in named for place in places):
                known.append(path)
                self._room -= len(path) + _EACH_PATH
                if self._room < 0:
                    raise Unreadable("it names too many files, or their names are too long")
        if found.links:
            self.link_makers.append(found.program)
        elif found.reads or found.writes or found.looks:
            self.naming += 1


def _places_after_cd(to: Word, places: Places) -> Places:
    """Return the directories that ``cd`` may lead to; ``..`` is resolved as the shell and as the system does."""
    reached = [_join(place, to.path) for place in places]
    plain = [
        posixpath.normpath(path) if ".." in path.split("/") and not path.startswith("~") else path for path in reached
    ]
    return tuple("" if path == "." else path for path in dict.fromkeys(reached + plain))


def _join(place: str, path: str) -> str:
    return path if not place or path.startswith(("/", "~")) else f"{place.rstrip('/')}/{path.removeprefix('./')}"
