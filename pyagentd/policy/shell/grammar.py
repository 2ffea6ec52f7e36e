"""Lists and pipelines of simple commands; every other construct of the shell is unreadable."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyagentd.policy.shell.lexer import Token, tokens
from pyagentd.policy.shell.values import Unreadable, Word, names

KEYWORDS = names("if then else elif fi case esac for select while until do done in function { } ! [[ ]] coproc time")

_PROGRAM = re.compile(r"[A-Za-z0-9_./:][A-Za-z0-9_./:+@%,-]*|\[")  # no look-alikes of other scripts
_REDIRECTS = names("< > >> >| >& <& <> &> &>>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirect:
    """One redirect to or from a file."""

    operator: str
    target: Word


@dataclass(frozen=True, slots=True, kw_only=True)
class Simple:
    """One simple command as written."""

    words: tuple[Word, ...]  # at least one
    redirects: tuple[Redirect, ...]
    text: str
    piped: bool  # one of several of a pipeline, or in the background: a shell of its own
    fed: bool  # a pipe or a file is its standard input
    then: str  # what follows its pipeline: "&&", "||", ";" (also a new line), "&", or "" at the end


def parse(text: str) -> list[Simple]:
    """Return the simple commands of ``text`` in order.

    Raises:
        Unreadable: It has something that this grammar does not know.
    """
    return _Parser(text).all()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._at = 0

    def all(self) -> list[Simple]:
        found: list[Simple] = []
        self._newlines()
        while self._at < len(self._tokens):
            found += self._pipeline()
        return found

    def _pipeline(self) -> list[Simple]:
        parts = [self._simple(first=True)]
        while self._operator() in ("|", "|&"):
            self._at += 1
            self._newlines()
            parts.append(self._simple(first=False))
        then = self._operator().replace("\n", ";")
        self._at += 1
        self._newlines()
        if then in ("&&", "||") and self._at >= len(self._tokens):
            raise Unreadable(f"nothing follows `{then}`")
        piped = len(parts) > 1 or then == "&"
        return [
            Simple(
                words=words,
                redirects=redirects,
                text=text,
                piped=piped,
                fed=index > 0 or any("<" in redirect.operator for redirect in redirects),
                then=then,
            )
            for index, (words, redirects, text) in enumerate(parts)
        ]

    def _simple(self, *, first: bool) -> tuple[tuple[Word, ...], tuple[Redirect, ...], str]:
        start = self._at
        if first:
            self._prefixes()
        words: list[Word] = []
        redirects: list[Redirect] = []
        while token := self._peek():
            if token.word is not None:
                words.append(token.word)
                self._at += 1
            elif token.operator in _REDIRECTS:
                redirects += self._redirect(token)
            else:
                break
        if not words:
            raise Unreadable(self._nothing(bool(redirects)))
        check_program(words[0])
        written = self._text[self._tokens[start].start : self._tokens[self._at - 1].end]
        return tuple(words), tuple(redirects), written

    def _prefixes(self) -> None:
        """Skip ``!`` and ``time [-p]``, which bash takes as words of its own at the start of a pipeline."""
        while (token := self._peek()) and token.word is not None and token.word.bare:
            if token.word.text == "time":
                self._at += 1
                following = self._peek()
                if following and following.word is not None and following.word.text == "-p":
                    self._at += 1
            elif token.word.text == "!":
                self._at += 1
            else:
                return

    def _redirect(self, token: Token) -> list[Redirect]:
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
        if token.operator in (">&", "<&") and _is_descriptor(word.text):
            return []
        if token.operator == "<&" or (token.operator == ">&" and token.descriptor):
            raise Unreadable(f"`{token.operator}` with a file")
        if word.text.startswith(("/dev/tcp/", "/dev/udp/")):
            raise Unreadable("a redirect to the network")
        if not word.text:
            raise Unreadable("a redirect to a file without a name")
        return [Redirect(operator=token.operator, target=word)]

    def _peek(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _operator(self) -> str:
        token = self._peek()
        return token.operator if token else ""

    def _newlines(self) -> None:
        while self._operator() == "\n":
            self._at += 1

    def _nothing(self, redirected: bool) -> str:
        if redirected:
            return "a redirect without a command"
        operator = self._operator().replace("\n", "the end of a line")
        return f"there is no command before `{operator}`" if operator else "a command is missing at its end"


def check_program(word: Word) -> None:
    """Refuse a program that is not named plainly.

    Raises:
        Unreadable: With the reason.
    """
    if word.varies or word.home or not word.text:
        raise Unreadable(f"the program to run is `{word.text}`, which is no plain name")
    if word.text in KEYWORDS:
        raise Unreadable(f"`{word.text}` begins a construct of the shell")
    if "=" in word.text:
        raise Unreadable(f"`{word.text}` sets a variable")
    if not _PROGRAM.fullmatch(word.text):
        raise Unreadable(f"the program to run is `{word.text}`, which is no plain name")


def _is_descriptor(text: str) -> bool:
    digits = text.removesuffix("-")
    return text == "-" or (digits.isascii() and digits.isdigit())
