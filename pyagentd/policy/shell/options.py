"""Options and operands of one command, taken apart as getopt does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from pyagentd.policy.shell.values import Word

Role = Literal[
    "takes",  # has an argument that does no harm
    "maybe",  # has an argument that does no harm, but only where it is attached
    "suffix",  # has an argument: what is added to names of files
    "script",  # has an argument: a program in a small language, which is read
    "reads",  # has an argument: a file it reads
    "writes",  # has an argument: a file it writes
    "into",  # has an argument: a directory it writes into
    "runs",  # has an argument: what it runs
    "does",  # has no argument and makes the program run something
    "deletes",  # has no argument and makes the program delete
    "drops",  # has no argument and makes the program write where it is
    "unknown",  # nothing is known of it
    "operand",
]
WITH_ARGUMENT = frozenset({"takes", "suffix", "script", "reads", "writes", "into", "runs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One option or operand as given."""

    role: Role
    name: str  # "-o", "--output" (in full), or "" of an operand
    value: Word | None  # its argument; an operand itself
    at: int  # index of its word
    certain: bool = True  # False: perhaps it is the argument of the option before


def given(words: tuple[Word, ...], roles: Mapping[str, Role]) -> Iterator[Given]:
    """Yield the options and operands that follow the program's name.

    Operands and options may be mixed, short options bundled, long ones abbreviated. Where an abbreviation may mean
    several options it means the most dangerous one.
    """
    at, perhaps_taken = 1, False  # whether this word may be the argument of the one before
    while at < len(words):
        word = words[at]
        if word.text == "--" and not perhaps_taken:
            for index in range(at + 1, len(words)):
                yield Given(role="operand", name="", value=words[index], at=index)
            return
        if word.text == "-" or not word.text.startswith("-"):
            yield Given(role="operand", name="", value=word, at=at)
            at, perhaps_taken = at + 1, False
        else:
            whole = word.text.startswith("--") or (len(word.text) > 2 and word.text.partition("=")[0] in roles)
            read = _long(words, at, roles) if whole else _short(words, at, roles)
            yield from (replace(item, certain=False) for item in read) if perhaps_taken else read
            value = read[-1].value if read else None
            took = value is not None and value is following(words, at)
            # What looks like an option is looked at as one even if it may be an argument, and then its own argument
            # may be an operand.
            certain = took and not perhaps_taken and not words[at + 1].text.startswith("-")
            at, perhaps_taken = at + (2 if certain else 1), took and not certain


def is_abbreviated(item: Given, word: Word) -> bool:
    """Return whether the option in ``word`` is written in part, so that others may take it for another."""
    return item.name.startswith("--") and word.text.partition("=")[0] != item.name


def _long(words: tuple[Word, ...], at: int, roles: Mapping[str, Role]) -> list[Given]:
    word = words[at]
    name, equals, attached = word.text.partition("=")
    role, full, certain = _role_of_long(name, roles)
    value = None
    if equals:
        value = Word(text=attached, bare=False, varies=word.varies)
    elif role in WITH_ARGUMENT and (certain or role != "takes"):
        value = following(words, at)
    return [Given(role=role, name=full, value=value, at=at)]


def _role_of_long(name: str, roles: Mapping[str, Role]) -> tuple[Role, str, bool]:
    if name in roles:
        return roles[name], name, True
    meant = [option for option in roles if option.startswith(name) and option.startswith("--")]
    meant.sort(key=lambda option: roles[option] == "takes")
    return (roles[meant[0]], meant[0], False) if meant else ("unknown", name, True)


def _short(words: tuple[Word, ...], at: int, roles: Mapping[str, Role]) -> list[Given]:
    word, found = words[at], []
    for index, letter in enumerate(word.text[1:], start=2):
        role = roles.get(f"-{letter}", "unknown")
        value = None
        if role == "maybe" or role in WITH_ARGUMENT:
            rest = word.text[index:]
            attached = Word(text=rest, bare=False, varies=word.varies) if rest else None
            value = attached or (None if role == "maybe" else following(words, at))
        found.append(Given(role=role, name=f"-{letter}", value=value, at=at))
        if role == "maybe" or role in WITH_ARGUMENT:
            break
    return found


def following(words: tuple[Word, ...], at: int) -> Word | None:
    """Return the word after the one at index ``at``, if there is one."""
    return words[at + 1] if at + 1 < len(words) else None
