"""A real directory tree with an inside, an outside, sessions and credentials, and every way of leaving the inside."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

SECRET = "SECRET-4711"
RECORDS = (
    "session.md",
    "preset.md",
    "scope-plan.yml",
    "branch-metadata.yml",
    "messages.jsonl",
    "agent.json",
    "tools.org",
    "system-prompts.org",
)
CREDENTIALS = (".ssh/id_ed25519", ".authinfo", ".netrc", ".aws/credentials", ".gnupg/key", ".git-credentials")
LONG_CHAIN = 60  # links one after the other; the kernel gives up after 40


@dataclass(frozen=True, slots=True)
class Tree:
    """Where things are."""

    top: Path

    @property
    def root(self) -> Path:
        """The workspace root; read and write scope."""
        return self.top / "root"

    @property
    def sessions(self) -> Path:
        """The sessions root."""
        return self.top / "sessions"

    @property
    def branch(self) -> Path:
        """The running session's branch."""
        return self.sessions / "mine-20260101000000" / "branches" / "main"

    @property
    def elsewhere(self) -> Path:
        """A branch of a session outside the sessions root."""
        return self.top / "activity" / "session" / "branches" / "main"

    @property
    def home(self) -> Path:
        """The user's home."""
        return self.top / "home"

    def filled(self, text: str) -> str:
        """Return ``text`` with ``{root}``, ``{top}``, ``{branch}``… filled in."""
        for name in ("root", "sessions", "branch", "elsewhere", "home", "top"):
            text = text.replace(f"{{{name}}}", str(getattr(self, name)))
        return text

    def guarded(self) -> dict[str, str]:
        """Return everything that must not change: all but what may be written inside, with content."""
        inside = (self.root / "private", self.root / ".env", self.root / ".git", self.root / "café")
        found: dict[str, str] = {}
        for place in (*(each for each in self.top.iterdir() if each != self.root), *inside):
            for path in (place, *sorted(place.rglob("*"))) if place.is_dir() and not place.is_symlink() else (place,):
                found[str(path)] = _told(path)
        return found


def _told(path: Path) -> str:
    if path.is_symlink():
        return f"link to {path.readlink()}"
    return path.read_text() if path.is_file() else "directory"


def build(top: Path) -> Tree:
    """Make the tree below ``top``, an empty directory."""
    tree = Tree(top)
    root = tree.root
    for file in (
        "outside/secret.txt",
        "outside/deep/er/secret.txt",
        "root-other/secret.txt",
        "rooted.txt",
        "secret.txt",
    ):
        _put(top / file)
    for file in ("private/key.txt", ".env", "sub/.env", ".git/config", "sub/.git/HEAD", "café/key.txt"):
        _put(root / file)
    for file in (
        "a.txt",
        "src/code.py",
        "src/deep/er/code.py",
        "with space.txt",
        "~/file.txt",
        "..a/file.txt",
        "a..b",
    ):
        _put(root / file, "inside\n")
    for branch in (tree.branch, tree.elsewhere, tree.branch.parent / "topic"):
        for place in (branch, branch / "agents" / "explorer-1-look", branch / "agents" / "a-1" / "agents" / "b-1"):
            for name in RECORDS:
                _put(place / name)
    for file in ("state.db", "state.db-wal", "mine-20260101000000/session.log"):
        _put(tree.sessions / file)
    for file in ("run/daemon.eld", "run/daemon.log", "config/config.toml", "config/presets/mine.md"):
        _put(top / file)
    (top / "config" / "config.toml").write_text("")
    for name in CREDENTIALS:
        _put(tree.home / name)
    (tree.sessions / "mine-20260101000000" / "current").symlink_to("branches/main")
    _links(tree)
    return tree


def _put(file: Path, text: str = SECRET) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def _links(tree: Tree) -> None:
    root, top = tree.root, tree.top
    links = {
        "out": "../outside",
        "out.txt": "../outside/secret.txt",
        "abs": str(top / "outside"),
        "abs.txt": str(top / "outside" / "secret.txt"),
        "dangling": "../outside/new.txt",
        "dangling-abs": str(top / "outside" / "new.txt"),
        "dangling-dir": "../outside/new",
        "dangling-in": "src/new.txt",
        "up": "..",
        "here": ".",
        "slash": "/",
        "loop": "loop",
        "loop-1": "loop-2",
        "loop-2": "loop-1",
        "chain-1": "chain-2",
        "chain-2": "src/chain-3",
        "src/chain-3": "../chain-4",
        "chain-4": "../outside/secret.txt",
        "src/up-2": "../..",
        "src/deep/up-3": "../../../outside",
        "to-private": "private",
        "to-env": ".env",
        "to-git": "sub/.git",
        "proc-root": "/proc/self/root",
        "proc-cwd": "/proc/self/cwd",
        "fds": "/dev/fd",
        "to-home": str(tree.home),
        "to-branch": str(tree.branch),
        "to-elsewhere": str(tree.elsewhere),
        "to-preset": str(tree.branch / "preset.md"),
        "to-sessions": str(tree.sessions),
        "out-and-back": "../outside/back",
        "in.txt": "a.txt",
        "in": "src",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    (top / "outside" / "back").symlink_to("../root/src")
    (root / "long-0").symlink_to("../outside/secret.txt")
    for number in range(1, LONG_CHAIN):
        (root / f"long-{number}").symlink_to(f"long-{number - 1}")


def hard_links(tree: Tree) -> None:
    """Give files outside a second name inside."""
    for record in ("preset.md", "messages.jsonl"):
        os.link(tree.branch / record, tree.root / f"hard-{record}")
    os.link(tree.top / "outside" / "secret.txt", tree.root / "hard.txt")
