"""Which command lines ``shell_commands`` admits; fails closed.

With a list of names only one simple command is admitted: what a shell would make of anything more (pipes, lists,
substitutions, redirections) cannot be told from its first word. ``"*"`` admits every command; the tool's own question
to a human then decides.
"""

from __future__ import annotations

import re
import shlex

from pyagentd.policy.presets import Commands

ANY = "*"

_META = re.compile(r"[;&|<>()$`\\{}\n\r\0]")


def refusal(command: str, rules: Commands) -> str | None:
    """Return why ``rules`` do not admit ``command``, as the end of a sentence; None when they do."""
    if not command.strip():
        return "there is no command"
    if not rules.allow:
        return "the preset allows no commands (it has no `shell_commands.allow`)"
    if ANY in rules.allow:
        return None
    allowed = ", ".join(rules.allow)
    if found := _META.search(command):
        return f"only a single simple command is allowed, without {found.group()!r} (allowed: {allowed})"
    try:
        words = shlex.split(command)
    except ValueError:
        return "its quotes are not balanced"
    if not any(words[: len(entry)] == entry for entry in map(str.split, rules.allow) if entry):
        return f"`{words[0] if words else command}` is not in `shell_commands.allow` ({allowed})"
    return None


def denied(command: str, rules: Commands) -> str | None:
    """Return the text of ``shell_commands.deny`` that occurs in ``command``, or None."""
    return next((text for text in rules.deny if text in command), None)
