"""Programs that only run another one; what counts is the one inside.

Only options named here are known. With any other the command is unreadable: where the inner command begins must be
certain.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyagentd.policy.shell.options import Given, given, is_abbreviated
from pyagentd.policy.shell.program import Program, roles_of
from pyagentd.policy.shell.values import Unreadable, Word, names


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """The options of a wrapper, and how many operands stand before the command it runs."""

    flags: str = ""
    options: Program = Program()  # noqa: RUF009 - frozen
    operands: int = 0
    text: bool = False  # what it runs is a line for a shell, made of the rest of its words


WRAPPERS = {
    "env": Wrapper(
        flags="-i --ignore-environment -0 --null -v --debug",
        options=Program(takes="-u --unset", into="-C --chdir"),
    ),
    "nice": Wrapper(flags="-0 -1 -2 -3 -4 -5 -6 -7 -8 -9", options=Program(takes="-n --adjustment")),
    "nohup": Wrapper(),
    "timeout": Wrapper(
        flags="-f --foreground -p --preserve-status -v --verbose",
        options=Program(takes="-k --kill-after -s --signal"),
        operands=1,
    ),
    "stdbuf": Wrapper(options=Program(takes="-i --input -o --output -e --error")),
    "setsid": Wrapper(flags="-c --ctty -f --fork -w --wait"),
    "ionice": Wrapper(flags="-t --ignore", options=Program(takes="-c --class -n --classdata")),
    "command": Wrapper(flags="-p"),
    "builtin": Wrapper(),
    "busybox": Wrapper(),
    "toybox": Wrapper(),
    "watch": Wrapper(
        flags="-b -c -d -e -g -p -t -w --beep --color --differences --errexit --chgexit --precise --no-title",
        options=Program(takes="-n --interval"),
        text=True,
    ),
}

# Without a command, or with such an option, they only tell something: commands of their own.
_TELLS = {
    "env": names("--help --version"),
    "nice": names("--help --version"),
    "ionice": names("--help --version -h -V -p --pid -P --pgid -u --uid"),
    "command": names("-v -V"),
    "timeout": names("--help --version"),
    "stdbuf": names("--help --version"),
    "setsid": names("--help --version -h -V"),
    "nohup": names("--help --version"),
    "busybox": names("--help --list --list-full --install"),
    "toybox": names("--help --long"),
    "watch": names("--help --version -h -v"),
}
_ALONE = names("env nice ionice busybox toybox")

_SHELLS = names("sh bash dash ash")
_SHELL_FLAGS = frozenset("ceuxvfl")
_SHELL_SETTINGS = names("errexit nounset pipefail xtrace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapped:
    """What a wrapper runs: words, or a line for a shell."""

    words: tuple[Word, ...] = ()
    line: str | None = None
    where: Word | None = None  # the directory it runs in, where another


def unwrap(words: tuple[Word, ...]) -> Wrapped | None:
    """Return what ``words`` run when they are a wrapper with a command, else None.

    Raises:
        Unreadable: Where the command begins cannot be told.
    """
    name = words[0].text.rpartition("/")[2]
    if name in _SHELLS:
        return _shell_line(words)
    wrapper = WRAPPERS.get(name)
    if wrapper is None or (len(words) == 1 and name in _ALONE):
        return None
    if len(words) > 1 and words[1].text in _TELLS.get(name, ()):
        return None
    start, where = _skip(name, wrapper, words)
    rest = words[start:]
    if not rest:
        if name in _ALONE and where is None:
            return None
        raise Unreadable(f"`{name}` has no command")
    if name == "env" and ("=" in rest[0].text):
        raise Unreadable(f"`env` sets the variable `{rest[0].text}`")
    if wrapper.text:
        if any(word.varies for word in rest):
            raise Unreadable(f"`{name}` runs a pattern")
        return Wrapped(line=" ".join(word.text for word in rest), where=where)
    return Wrapped(words=rest, where=where)


def _skip(name: str, wrapper: Wrapper, words: tuple[Word, ...]) -> tuple[int, Word | None]:
    """Return the index of the inner command's first word, and the directory it runs in."""
    at, where = 1, None
    flags, roles = names(wrapper.flags), roles_of(wrapper.options)
    while at < len(words) and words[at].text.startswith("-") and words[at].text != "--":
        if words[at].varies or words[at].text == "-":
            raise Unreadable(f"`{name} {words[at].text}` is not known")
        taken = 1
        for item in (item for item in given(words[:1] + words[at : at + 2], roles) if item.at == 1):
            if (item.role == "unknown" and item.name not in flags) or is_abbreviated(item, words[at]):
                raise Unreadable(f"`{name} {item.name}` is not known")
            if item.value is not None and item.value.varies:
                raise Unreadable(f"`{name} {item.name}` has a pattern")
            if item.role == "into":
                where = item.value
            taken += _took_next(item, words, at)
        at += taken
    if at < len(words) and words[at].text == "--":
        at += 1
    if any(word.varies for word in words[at : at + wrapper.operands]):
        raise Unreadable(f"`{name}` has a pattern")
    return at + wrapper.operands, where


def _took_next(item: Given, words: tuple[Word, ...], at: int) -> bool:
    return item.value is not None and at + 1 < len(words) and item.value is words[at + 1]


def _shell_line(words: tuple[Word, ...]) -> Wrapped | None:
    """Return the line of ``sh -c LINE``; None of a shell that runs a file or its input, a command of its own."""
    at, line = 1, False
    while at < len(words) and (text := words[at].text)[:1] in ("-", "+") and text not in ("-", "--"):
        if words[at].varies:
            raise Unreadable(f"`{words[0].text}` has the pattern `{text}`")
        following = words[at + 1].text if at + 1 < len(words) and not words[at + 1].varies else ""
        option = text.endswith("o") and set(text[1:-1]) <= _SHELL_FLAGS and following in _SHELL_SETTINGS
        if not option and not (text[0] == "-" and set(text[1:]) <= _SHELL_FLAGS):
            if line or any("c" in word.text for word in words[at:] if word.text.startswith("-")):
                raise Unreadable(f"`{words[0].text} {text}` is not known")
            return None
        line = line or "c" in text
        at += 2 if option else 1
    if not line:
        return None
    at += at < len(words) and words[at].text in ("-", "--")
    if at >= len(words):
        raise Unreadable(f"`{words[0].text} -c` has no command")
    if words[at].varies:
        raise Unreadable(f"what `{words[0].text} -c` runs is known only when it runs")
    return Wrapped(line=words[at].text)
