"""Which preset templates there are, and where; their content is read by who uses one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def shipped_dir() -> Path:
    """Return the directory of the presets that come with the package, installed or in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "presets"
    return installed if installed.is_dir() else package.parent / "presets"


def find_templates(dirs: Sequence[Path]) -> dict[str, Path]:
    """Return every template by name, the file's without ``.md``.

    Args:
        dirs: Where to look: shipped, the user's, the trusted project's; a later one wins (DD-37). One that is
            missing or cannot be listed holds none.
    """
    return {file.stem: file for directory in dirs for file in _markdown_files(directory)}


def _markdown_files(directory: Path) -> list[Path]:
    try:
        entries = sorted(directory.iterdir())
    except OSError:
        return []
    return [file for file in entries if file.suffix == ".md" and not file.name.startswith(".") and file.is_file()]
