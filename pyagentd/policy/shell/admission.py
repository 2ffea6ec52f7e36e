"""Decides whether a preset's ``shell_commands`` allow a command; ``*`` means less if nothing confines the command."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pyagentd.policy.shell import (
    ANY,
    HERE,
    Argument,
    Effect,
    Findings,
    ShellReading,
    SimpleCommand,
    Word,
    arguments,
    is_abbreviated,
    names,
    operands_of,
    roles_of,
)

# The programs that ``shell_commands: allow: ["*"]`` admits if nothing confines the command.
#
# An unconfined command reaches whatever its user reaches, so a human is asked about a program that is not listed. A
# listed program is known completely: every option, and which of its arguments are paths. It opens no other files,
# runs nothing, follows no links that it comes across, and makes none. Before you add a program, look for options that
# name files, for lists of file names that it reads from a file (also as ``@FILE``), for directories that it enters,
# and at the program of that name on a Mac: an option without an argument there must have none here. In doubt leave it
# out. What it writes is defined in ``programs``.


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The admitted options of a program, and the kind of its operands."""

    flags: str = ""  # options without an argument
    takes: str = ""  # with an argument that is not a path
    maybe: str = ""  # with such an argument, if it is attached
    operands: Literal["paths", "text", "words", "written", "pattern", "script", "tests", "found", "git"] = "paths"
    # paths: read or listed. text: no path, and nothing is an option. words: no path. written: see ``programs``.
    # pattern, script: the first is none, unless an option gives it; paths follow. tests, found, git: see below.
    here: bool = False  # without an operand it uses the current directory


_SUMS = Options(flags="-b --binary -t --text -z --zero --tag")
_TEXT = Options(operands="text")
_TESTS = Options(operands="tests")

UNDERSTOOD: dict[str, Options] = {
    **dict.fromkeys(names("pwd echo printf true false : exit basename dirname seq sleep whoami id uname"), _TEXT),
    **dict.fromkeys(names("nproc logname groups tr which type command"), _TEXT),
    **dict.fromkeys(names("test ["), _TESTS),
    **dict.fromkeys(names("md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum"), _SUMS),
    "date": Options(flags="-u --utc -R", maybe="-I --iso-8601", operands="words"),
    "cat": Options(flags="-A -b -e -E -n -s -t -T -u -v --number --show-all --squeeze-blank"),
    "head": Options(flags="-q -v -z", takes="-n --lines -c --bytes"),
    "tail": Options(flags="-q -v -z", takes="-n --lines -c --bytes"),
    "wc": Options(flags="-c -m -l -L -w --bytes --chars --lines --words"),
    "nl": Options(takes="-b -d -f -h -i -l -n -s -v -w", flags="-p"),
    "tac": Options(flags="-b -r", takes="-s"),
    "rev": Options(),
    "cut": Options(flags="-s -n -z --complement", takes="-b -c -d -f --output-delimiter --delimiter --fields"),
    "paste": Options(flags="-s -z", takes="-d"),
    "fold": Options(flags="-b -s", takes="-w"),
    "expand": Options(flags="-i", takes="-t"),
    "unexpand": Options(flags="-a", takes="-t"),
    "comm": Options(flags="-1 -2 -3 -z --check-order --nocheck-order"),
    "join": Options(flags="-i -z", takes="-1 -2 -a -e -o -t -v"),
    "cmp": Options(flags="-b -l -s"),
    "sort": Options(flags="-b -d -f -g -h -i -M -n -r -R -s -u -V -z -c -C --reverse --unique", takes="-k --key -t"),
    "uniq": Options(flags="-c -d -D -i -u -z --count --repeated", takes="-f -s -w"),
    "od": Options(flags="-b -c -d -o -v -x", takes="-A -j -N -t"),
    "hexdump": Options(flags="-b -c -C -d -o -v -x", takes="-n -s"),
    "base64": Options(flags="-d --decode", takes="-w --wrap"),
    "stat": Options(takes="-c --format --printf"),
    "file": Options(flags="-b -i -k --brief --mime --mime-type --mime-encoding"),
    "readlink": Options(flags="-e -f -m -n -z"),
    "realpath": Options(flags="-e -m -q -s -z"),
    "ls": Options(
        flags="""
        -1 -a -A -b -B -c -C -d -f -F -g -G -h -i -k -l -m -n -N -o -p -q -Q -r -R -s -S -t -u -U -v -x -X -Z
        --all --almost-all --directory --human-readable --recursive --reverse --size --full-time
        --group-directories-first
        """,
        takes="--time-style --sort --time",
        maybe="--color --classify",
        here=True,
    ),
    "du": Options(
        flags="-a -b -c -h -k -m -s -S -x --summarize --human-readable --total", takes="-d --max-depth", here=True
    ),
    "find": Options(operands="found"),
    "grep": Options(
        flags="""
        -a -b -c -E -F -G -h -H -i -I -l -L -n -o -P -q -s -T -v -w -x -z --count --extended-regexp --fixed-strings
        --ignore-case --invert-match --line-number --no-filename --with-filename --only-matching --quiet --silent
        --word-regexp --line-regexp --files-with-matches --files-without-match
        """,
        takes="-A -B -C -m -e --regexp --after-context --before-context --max-count",
        maybe="--color --colour",
        operands="pattern",
    ),
    "sed": Options(
        flags="-n -E -r -s -u -z --quiet --silent --regexp-extended", takes="-e --expression", operands="script"
    ),
    "git": Options(operands="git"),
    "cp": Options(flags="-f -i -n -p -T -u -v --force --verbose --update", takes="-t", operands="written"),
    "rm": Options(flags="-f -i -I -v --force --verbose", operands="written"),
    "rmdir": Options(flags="-v --verbose", operands="written"),
    "mkdir": Options(flags="-p -v --parents --verbose", operands="written"),
    "touch": Options(flags="-a -c -m --no-create", operands="written"),
    "tee": Options(flags="-a -i --append", operands="written"),
}

UNDERSTOOD_WRAPPERS = names("env nice nohup timeout stdbuf command builtin sh bash dash")

_GIT = Options(
    flags="""
    --stat --shortstat --numstat --summary --oneline --graph --decorate --all --branches --tags --name-only
    --name-status --cached --staged --short -s --long --branch -b --porcelain -p -u --patch --no-patch --raw
    --no-color -w --ignore-all-space --ignore-space-change --ignore-blank-lines --abbrev-commit --no-merges --merges
    --first-parent --reverse --follow -M -C --find-renames --no-ext-diff --no-textconv --minimal --patience --check
    --exit-code --quiet -q --show-toplevel --is-inside-work-tree --show-current --verify --tags --always --long
    --others --modified --deleted --exclude-standard -o -m -i -z --no-renames -e
    """,
    takes="-n --max-count --since --until --after --before --author --grep --skip -S -G",
    maybe="""
    -U --unified --format --pretty --color --abbrev --date --diff-filter --word-diff --untracked-files --ignored
    """,
)
_GIT_LOOKS = names("status diff log show blame ls-files rev-parse describe shortlog")
_FIND_TAKES = names("-name -iname -path -ipath -wholename -iwholename -type -maxdepth -mindepth -size -mtime -mmin")
_FIND_FLAGS = names("-print -print0 -ls -empty -prune -depth -mount -xdev -not ! -o -a -or -and ( ) ,")
_COUNT = re.compile(r"-\d+")
_SCRIPTS = names("-e --regexp --expression")
_TEST_WORDS = names("= == != < > ! ] ( )")


def unlisted_wrapper_reason(name: str) -> str | None:
    """Return the end of a sentence that says why a wrapper is not understood; None if it is."""
    return None if name in UNDERSTOOD_WRAPPERS else _unknown_program(name)


def unlisted_reason(found: Findings) -> str | None:
    """Return which part of an examined command is not understood, as the end of a sentence, or None.

    Adds the command's path operands to ``found.looks``.
    """
    words, name = found.words, found.program
    known = UNDERSTOOD.get(name)
    if known is None:
        return _unknown_program(name)
    match known.operands:
        case "text":
            why = None
        case "tests":
            for word in words[1:]:
                if word.text and not word.text.startswith("-") and word.text not in _TEST_WORDS:
                    found.look(word)
            why = None
        case "found":
            why = _unlisted_find_reason(words, found)
        case "git":
            why = _unlisted_git_reason(words, found)
        case _:
            why = _unlisted_argument_reason(name, known, words, found)
    if found.effects:
        return next(iter(found.effects)).what
    if varying := next((word.text for word in words if word.varies), None):
        return f"what `{varying}` becomes is known only when it runs"
    return why


def _unknown_program(name: str) -> str:
    return f"`{name}` is not one of the programs that are known well enough"


def _unlisted_argument_reason(name: str, known: Options, words: tuple[Word, ...], found: Findings) -> str | None:
    items = list(arguments(words, roles_of(known)))
    operands = operands_of(items)
    if known.operands in ("pattern", "script") and not any(item.name in _SCRIPTS for item in items):
        operands = operands[1:]
    if known.operands not in ("words", "written"):
        for word in operands or ([HERE] if known.here else []):
            found.look(word)
    wrong = next((item for item in items if not _is_known(item, known, words)), None)
    return f"`{name} {words[wrong.at].text}` is not an option that is known well enough" if wrong else None


def _is_known(item: Argument, known: Options, words: tuple[Word, ...]) -> bool:
    text = words[item.at].text
    if item.role == "operand":
        return item.certain
    if not item.certain or is_abbreviated(item, words[item.at]):
        return False
    if item.role == "unknown":
        return (item.name in known.flags.split() and item.value is None) or bool(_COUNT.fullmatch(text))
    return item.role == "maybe" or (item.value is not None and not item.value.text.startswith("-"))


def _unlisted_find_reason(words: tuple[Word, ...], found: Findings) -> str | None:
    at, starts = 1, 0
    while at < len(words) and not words[at].text.startswith("-") and words[at].text not in _FIND_FLAGS:
        found.look(words[at])
        at, starts = at + 1, starts + 1
    if not starts:
        found.look(HERE)
    while at < len(words):
        if words[at].text not in _FIND_TAKES | _FIND_FLAGS:
            return f"`find {words[at].text}` is not known well enough"
        at += 2 if words[at].text in _FIND_TAKES else 1
    return None


def _unlisted_git_reason(words: tuple[Word, ...], found: Findings) -> str | None:
    if len(words) < 2 or words[1].text not in _GIT_LOOKS:
        return f"`git {' '.join(word.text for word in words[1:2])}` is not known well enough"
    if found.where is not None and not found.where.text:
        return "`git -C` goes nowhere"
    found.repository = True
    found.look(HERE)
    # Any operand may be a file, even outside the repository: `git diff` compares such files directly.
    return _unlisted_argument_reason(f"git {words[1].text}", _GIT, words[1:], found)


# Whether ``shell_commands`` admits a parsed command line.

_FREE = frozenset({"cd"})  # it only changes the directory, which later paths take into account


def refusal(reading: ShellReading, allow: Sequence[str]) -> str | None:
    """Return why ``shell_commands.allow`` does not admit a command line, as the end of a sentence, or None."""
    if not reading.commands and reading.unreadable is None:
        return "there is no command"
    if not allow:
        return "the preset allows no commands (it has no `shell_commands.allow`)"
    if ANY in allow:
        return None
    allowed = ", ".join(allow)
    if reading.unreadable is not None:
        return f"what it runs cannot be told: {reading.unreadable} (allowed: {allowed})"
    entries = [tuple(entry.split()) for entry in allow if entry.split()]
    return next(
        (f"{why} ({allowed})" for command in reading.commands if (why := _command_refusal(command, entries))), None
    )


def is_allowed_by_name(reading: ShellReading, allow: Sequence[str]) -> bool:
    """Return whether entries other than ``*`` admit a command line."""
    return refusal(reading, [entry for entry in allow if entry != ANY]) is None


def _command_refusal(command: SimpleCommand, entries: list[tuple[str, ...]]) -> str | None:
    if command.words[0] not in _FREE:
        if not any(_is_prefix(entry, command.words) for entry in entries):
            # Show as many words as the longest entry for the program has.
            length = max((len(entry) for entry in entries if entry[0] == command.words[0]), default=1)
            return f"`{' '.join(command.words[:length])}` is not in `shell_commands.allow`"
        for effect in command.effects:
            if not _is_effect_allowed(effect, command, entries):
                *others, last = [f"`{entry}`" for entry in effect.by]
                needed = f"{', '.join(others)} or {last}" if others else last
                return f"{effect.what}; that needs {needed} in `shell_commands.allow`"
    return None


def _is_effect_allowed(effect: Effect, command: SimpleCommand, entries: list[tuple[str, ...]]) -> bool:
    if any(tuple(by.split()) in entries for by in effect.by):
        return True
    return effect.at >= 0 and any(len(entry) > effect.at and _is_prefix(entry, command.words) for entry in entries)


def _is_prefix(entry: tuple[str, ...], words: tuple[str, ...]) -> bool:
    return words[: len(entry)] == entry


def matching_deny(command: str, reading: ShellReading, deny: Iterable[str]) -> str | None:
    """Return the entry of ``shell_commands.deny`` that matches ``command``, or None.

    It matches if its text occurs in the line, or in the words of one of its commands without quotes, or if a command
    has the entry's program and options in another order or grouping (``rm -fr`` for ``rm -rf``).
    """
    wordings = {words for each in reading.commands for words in (each.words, each.all_words)}
    for text in deny:
        wanted = " ".join(text.split())
        if text in command or (wanted and any(_has(wanted, words) for words in wordings)):
            return text
    return None


def _has(wanted: str, words: tuple[str, ...]) -> bool:
    """Return whether ``words`` contain the wanted text, or its program, subcommand and options in any order.

    Options before a subcommand are skipped, with or without values: ``git -c a=b push``.
    """
    if wanted in " ".join(words):
        return True
    options = [word for word in wanted.split() if word.startswith("-") and word != "--"]
    program = [word for word in wanted.split() if word not in options]
    last = _last_with_all(options, words) if options and program else 0
    name = words[0].rpartition("/")[2]
    return any(
        wanted in " ".join((words[0], *words[start : start + len(wanted)]))
        or (start <= last and [name, *words[start : start + len(program) - 1]] == program)
        for start in _starts(words)
    )


def _starts(words: tuple[str, ...]) -> Iterator[int]:
    """Yield where the words after the program may begin: right behind it, and behind options before a subcommand."""
    yield 1
    for at in range(1, len(words)):
        if words[at] == "--" or not (words[at].startswith("-") or (at > 1 and words[at - 1].startswith("-"))):
            return
        yield at + 1


def _last_with_all(options: list[str], words: tuple[str, ...]) -> int:
    """Return the last index from which on ``words`` have all of the options; 0 if they do not."""
    last: dict[str, int] = {}
    for at, word in enumerate(words[1:], start=1):
        if word == "--":
            break
        last |= dict.fromkeys(_option_letters(word), at)
    return min(last.get(letter, 0) for option in options for letter in _option_letters(option) or {""})


# Long names of options that people often deny.
_SHORT = {"recursive": "r", "force": "f", "hard": "hard", "all": "a", "delete": "delete"}


def _option_letters(word: str) -> set[str]:
    if word.startswith("--"):
        name = word[2:].partition("=")[0]
        return {short for long, short in _SHORT.items() if name and long.startswith(name)} or {name}
    return set(word[1:].replace("R", "r")) if word.startswith("-") else set()
