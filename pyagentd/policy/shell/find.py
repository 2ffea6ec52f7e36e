"""``find`` and ``xargs``: programs that run others on what they find."""

from __future__ import annotations

import re

from pyagentd.policy.shell.found import Found, Inner
from pyagentd.policy.shell.options import given, is_abbreviated
from pyagentd.policy.shell.program import Program, roles_of
from pyagentd.policy.shell.values import Unreadable, Word, names

_RUNS = names("-exec -execdir -ok -okdir")
_WRITES = names("-fprint -fprint0 -fls -fprintf")
_LEADING = names("-H -L -P --")
_OTHER_LEADING = re.compile(r"-[EHLPXdfsx]+")  # of other systems; one of them is followed by a directory
_FOLLOWS = names("-H -L -follow")

_XARGS = Program(
    takes="-d --delimiter -E -n --max-args -L -P --max-procs -s --max-chars -I --process-slot-var",
    maybe="-i --replace -l --max-lines -e --eof",
    reads="-a --arg-file",
)
_XARGS_FLAGS = names("-0 --null -r --no-run-if-empty -t --verbose -x --exit -o --open-tty -p --interactive")


def read_find(found: Found) -> None:
    """Add what a ``find`` runs, writes and deletes."""
    words = found.words
    starts = _starts(words)
    at = 1
    while at < len(words):
        text = words[at].text
        if text in _RUNS:
            at = _inner(found, at, starts)
        elif text in _WRITES and at + 1 < len(words):
            found.write(words[at + 1])
        elif text == "-files0-from" and at + 1 < len(words):
            found.read(words[at + 1])
        elif text == "-delete":
            found.deletes(text, at)
            for start in starts or [Word(text="/")]:
                found.write_into(start)
        at += 1


def _starts(words: tuple[Word, ...]) -> list[Word]:
    """Return where it starts, below which everything lies that it finds; empty when that cannot be told."""
    texts = [word.text for word in words]
    if "-files0-from" in texts or not _FOLLOWS.isdisjoint(texts):
        return []
    at = 1
    while at < len(texts) and (texts[at] in _LEADING or texts[at].startswith(("-O", "-D"))):
        at += 2 if texts[at] == "-D" else 1
    if at < len(texts) and _OTHER_LEADING.fullmatch(texts[at]):
        return []
    starts = []
    for word in words[at:]:
        if word.text.startswith("-") or word.text in ("(", ")", "!", ","):
            break
        starts.append(word)
    return [] if any(start.varies for start in starts) else starts or [Word(text=".")]


def _inner(found: Found, at: int, starts: list[Word]) -> int:
    """Add the command after ``-exec``; return the index of its last word."""
    option, words = found.words[at].text, found.words
    end = at + 1
    while end < len(words) and not _ends(words[end - 1].text, words[end].text):
        end += 1
    if end == len(words) or end == at + 1:
        raise Unreadable(f"`{found.program} {option}` has no command that ends in `;` or `+`")
    in_its_directory = option.endswith("dir")
    within = () if in_its_directory else tuple(start.path for start in starts)
    inner = tuple(_put_in(word, "{}", within, leads=in_its_directory) for word in words[at + 1 : end])
    where = tuple(f"{start.path.rstrip('/')}/*" for start in starts or [Word(text="/")]) if in_its_directory else ()
    found.inner.append(Inner(words=inner, where=where))
    return end


def _ends(before: str, text: str) -> bool:
    return text == ";" or (text == "+" and before == "{}")


def _put_in(word: Word, mark: str, within: tuple[str, ...], *, leads: bool) -> Word:
    """Return ``word`` as one that varies where it has ``mark``."""
    if mark not in word.text:
        return word
    return Word(
        text=word.text,
        varies=True,
        leads=word.leads or (leads and word.text.startswith(mark)) or word.text.startswith("-"),
        within=within if word.text == mark else (),
    )


def read_xargs(found: Found) -> None:
    """Add the command that an ``xargs`` runs on words that nobody knows yet."""
    start, mark = _xargs_command(found)
    inner = [*found.words[start:]] or [Word(text="echo")]
    if mark:
        inner = [_put_in(word, mark, (), leads=True) for word in inner]
    else:
        inner.append(Word(text="the words that xargs reads", bare=False, varies=True, leads=True))
    found.inner.append(Inner(words=tuple(inner)))


def _xargs_command(found: Found) -> tuple[int, str]:
    """Return where the command starts and what stands for a word in it ("": words are added at its end)."""
    words, mark, at = found.words, "", 1
    while at < len(words) and words[at].text.startswith("-") and words[at].text != "--":
        taken = 1
        for item in given(words[:1] + words[at : at + 2], roles_of(_XARGS)):
            if item.at != 1:
                continue
            if (item.role == "unknown" and item.name not in _XARGS_FLAGS) or is_abbreviated(item, words[at]):
                raise Unreadable(f"`{found.program} {item.name}` is not known")
            if item.role == "reads":
                found.read(item.value)
            if item.name in ("-I", "-i", "--replace"):
                mark = item.value.text if item.value is not None else "{}"
            if item.value is not None and at + 1 < len(words) and item.value is words[at + 1]:
                taken = 2
        at += taken
    return at + (at < len(words) and words[at].text == "--"), mark
