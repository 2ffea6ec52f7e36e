"""What ``.gitignore`` files say about a path: the nearest one that says anything decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """One ``.gitignore``, and those of the directories above."""

    directory: str  # ends with "/"
    spec: GitIgnoreSpec
    above: Rules | None


def ignores(rules: Rules | None, path: str, is_directory: bool) -> bool:
    """Return whether the absolute ``path`` is ignored."""
    while rules is not None:
        relative = path[len(rules.directory) :] + ("/" if is_directory else "")
        said = rules.spec.check_file(relative).include
        if said is not None:
            return said
        rules = rules.above
    return False


def with_rules(directory: str, text: bytes, above: Rules | None) -> Rules | None:
    """Return ``above`` with the rules of the ``.gitignore`` of ``directory``, which has this ``text``."""
    if not text:
        return above
    from pathspec import GitIgnoreSpec  # not at the start of every daemon

    try:
        spec = GitIgnoreSpec.from_lines(text.decode(errors="replace").splitlines())
    except ValueError:  # a malformed file ignores nothing
        return above
    return Rules(directory, spec, above)
