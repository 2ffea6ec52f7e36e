"""What git needs inside, and what of a git directory a command may not change.

Git runs programs that ``config`` and ``hooks`` name, for whoever uses the repository next. Of the user's own
configuration a command gets who commits, not the rest, which may hold keys.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from pyagentd import installation, regularfile

ONLY_REAL_REPOSITORIES = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.bareRepository",
    "GIT_CONFIG_VALUE_0": "explicit",
}
"""Variables with which git takes no directory for a repository that only has the files of one, which any tool can
write: its ``config`` would name programs that git runs. For where nothing confines a command."""

_PASSED_ON = r"^(user\.(name|email)|init\.defaultbranch|safe\.directory)$"
_ASKING_S = 5.0
_PARTS = ("config", "config.worktree")
_HOOKS = "hooks"
_COMMON = "commondir"
_MOST_MODULES = 200


def decisive(directory: str) -> Iterator[str]:
    """Yield the paths below the git directory ``directory`` that are read-only, those of its submodules too."""
    yield from _decisive(directory)
    modules = Path(directory, "modules")
    if modules.is_dir():
        for found, _ in zip(modules.rglob("HEAD"), range(_MOST_MODULES), strict=False):
            yield from _decisive(str(found.parent))


def _decisive(directory: str) -> Iterator[str]:
    for part in _PARTS:
        path = f"{directory}/{part}"
        if os.path.isfile(path) and not os.path.islink(path):  # noqa: PTH113, PTH114
            yield path
    yield f"{directory}/{_HOOKS}"  # also where there is none: it could be made


def redirections(decisive: Iterable[str]) -> set[str]:
    """Return the files that would lead git to another ``config`` and other hooks; a main repository has none."""
    return {f"{path.rpartition('/')[0]}/{_COMMON}" for path in decisive}


def of_worktree(root: Path) -> str | None:
    """Return the git directory that the linked work tree ``root`` belongs to.

    The repository must name this work tree too: a file that a command wrote must not open a directory to it.
    """
    try:
        text = regularfile.read_text(root / ".git")
        if not text.startswith("gitdir: "):
            return None
        entry = Path(os.path.realpath(root / text[len("gitdir: ") :].strip()))
        back = regularfile.read_text(entry / "gitdir").strip()
    except (OSError, UnicodeDecodeError):
        return None
    common = entry.parent.parent
    said = entry.parent.name == "worktrees" and os.path.realpath(back) == os.path.realpath(root / ".git")
    return str(common) if said and common.name == ".git" and (common / "HEAD").is_file() else None


def configuration(env: Mapping[str, str]) -> str:
    """Return the text of a configuration with who the user is, as git reads it."""
    home = env.get("HOME", "")
    files = (f"{home}/.gitconfig", f"{env.get('XDG_CONFIG_HOME') or f'{home}/.config'}/git/config")
    return _configuration(home, tuple(map(_stamp, files)))


def _stamp(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116
    except OSError:
        return None


@lru_cache(maxsize=8)
def _configuration(home: str, stamps: tuple[int | None, ...]) -> str:
    program = installation.program("git")
    if stamps == (None, None) or program is None:
        return ""
    asking = [program, "config", "--global", "--includes", "-z", "--get-regexp", _PASSED_ON]
    try:
        said = subprocess.run(
            asking,
            cwd="/",
            env={"HOME": home, "PATH": installation.PATH},
            capture_output=True,
            timeout=_ASKING_S,
            check=True,
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.SubprocessError):
        return ""
    pairs = (entry.split("\n", 1) for entry in said.split("\0") if "\n" in entry)
    return "".join(_line(key, value) for key, value in pairs)


def _line(key: str, value: str) -> str:
    section, _, name = key.partition(".")
    escaped = re.sub(r'(["\\])', r"\\\1", value).replace("\n", "\\n")
    return f'[{section}]\n\t{name} = "{escaped}"\n'
