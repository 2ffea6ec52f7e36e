"""Whether ``shell_commands`` admits a command line that was read."""

from __future__ import annotations

from pyagentd.policy.presets import Commands
from pyagentd.policy.shell.values import Effect, ShellReading, SimpleCommand

ANY = "*"
_FREE = frozenset({"cd"})  # it only moves; where later words lead from there is accounted for


def refusal(reading: ShellReading, rules: Commands) -> str | None:
    """Return why ``rules`` do not admit what was read, as the end of a sentence; None when they do."""
    if not reading.commands and reading.unreadable is None:
        return "there is no command"
    if not rules.allow:
        return "the preset allows no commands (it has no `shell_commands.allow`)"
    if ANY in rules.allow:
        return None
    allowed = ", ".join(rules.allow)
    if reading.unreadable is not None:
        return f"what it runs cannot be told: {reading.unreadable} (allowed: {allowed})"
    entries = [tuple(entry.split()) for entry in rules.allow if entry.split()]
    return next((f"{why} ({allowed})" for command in reading.commands if (why := _refused(command, entries))), None)


def admitted_by_name(reading: ShellReading, rules: Commands) -> bool:
    """Return whether entries other than ``*`` admit what was read."""
    named = tuple(entry for entry in rules.allow if entry != ANY)
    return refusal(reading, Commands(allow=named, deny=rules.deny)) is None


def _refused(command: SimpleCommand, entries: list[tuple[str, ...]]) -> str | None:
    if command.words[0] not in _FREE:
        if not any(_is_prefix(entry, command.words) for entry in entries):
            return f"`{_shown(command, entries)}` is not in `shell_commands.allow`"
        for effect in command.effects:
            if not _admits(effect, command, entries):
                *others, last = [f"`{entry}`" for entry in effect.by]
                needed = f"{', '.join(others)} or {last}" if others else last
                return f"{effect.what}; that needs {needed} in `shell_commands.allow`"
    return None


def _shown(command: SimpleCommand, entries: list[tuple[str, ...]]) -> str:
    """Return as many words of ``command`` as an entry for its program has."""
    length = max((len(entry) for entry in entries if entry[0] == command.words[0]), default=1)
    return " ".join(command.words[:length])


def _admits(effect: Effect, command: SimpleCommand, entries: list[tuple[str, ...]]) -> bool:
    if any(tuple(by.split()) in entries for by in effect.by):
        return True
    return effect.at >= 0 and any(len(entry) > effect.at and _is_prefix(entry, command.words) for entry in entries)


def _is_prefix(entry: tuple[str, ...], words: tuple[str, ...]) -> bool:
    return words[: len(entry)] == entry


def denied(command: str, reading: ShellReading, rules: Commands) -> str | None:
    """Return the entry of ``shell_commands.deny`` that ``command`` has, or None.

    It has it when the text occurs in it literally, in the words of one of its commands after quotes are taken away,
    or when a command has the entry's program and options in another order or grouping (``rm -fr`` for ``rm -rf``).
    """
    return next((text for text in rules.deny if text in command or _in_words(text, reading)), None)


def _in_words(text: str, reading: ShellReading) -> bool:
    wanted = " ".join(text.split())
    return wanted != "" and any(
        wanted in " ".join(words) or _same_options(wanted.split(), words)
        for command in reading.commands
        for words in {command.words, command.said}
    )


def _same_options(wanted: list[str], words: tuple[str, ...]) -> bool:
    """Return whether ``words`` begin with the wanted program and subcommand and have at least the wanted options."""
    options = [word for word in wanted if word.startswith("-") and word != "--"]
    names = [word for word in wanted if word not in options]
    if not options or not names:
        return False
    began = [words[0].rpartition("/")[2], *words[1 : len(names)]]
    return began == names and _letters(options) <= _letters(words[1:])


# Long names of the options that people forbid.
_SHORT = {"recursive": "r", "force": "f", "hard": "hard", "all": "a", "delete": "delete"}


def _letters(words: list[str] | tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    for word in words:
        if word == "--":
            break
        if word.startswith("--"):
            name = word[2:].partition("=")[0]
            found |= {short for long, short in _SHORT.items() if name and long.startswith(name)} or {name}
        elif word.startswith("-"):
            found |= set(word[1:].replace("R", "r"))
    return found
