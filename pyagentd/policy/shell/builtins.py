"""What bash itself does when a command is one of its builtins."""

from __future__ import annotations

from pyagentd.policy.shell.values import Unreadable, Word, names

# They change what later words mean, run text, or evaluate an argument as an expression, which can run commands.
REFUSED = names(
    """
    . alias bind chdir compgen complete compopt coproc declare dirs enable eval exec export fc getopts hash history
    jobs let local logout mapfile popd pushd read readarray readonly set shopt source suspend trap typeset
    unalias unset
    """
)
# These do nothing of the kind, except with the options below.
HARMLESS = names(
    """
    : [ bg break builtin caller cd command continue disown echo exit false fg help kill printf pwd return shift test
    times true type ulimit umask wait
    """
)
_EVALUATES = {"printf": names("-v"), "wait": names("-p"), "test": names("-v -R"), "[": names("-v -R")}


def check(words: tuple[Word, ...]) -> None:
    """Refuse a builtin that changes what the rest of the line means, or that runs what it is given."""
    name = words[0].text
    if name in REFUSED:
        raise Unreadable(f"`{name}` runs text or changes what later words mean")
    looked_at = words[1:2] if name == "printf" else words[1:]
    for option in _EVALUATES.get(name, ()):
        if any(word.text.startswith(option) or word.leads for word in looked_at):
            raise Unreadable(f"`{name} {option}` evaluates what follows it")


def destination(words: tuple[Word, ...]) -> Word:
    """Return where a ``cd`` goes.

    Raises:
        Unreadable: That cannot be told.
    """
    if len(words) == 1:
        return Word(text="~", home=True)
    if len(words) > 2 or words[1].varies or words[1].text.startswith(("-", "+")) or not words[1].text:
        raise Unreadable("`cd` with anything but one plain directory")
    return words[1]
