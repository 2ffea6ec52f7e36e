"""The package as it is installed: byte-compiled, once for each state of its files."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ELPA = sorted(Path("/usr/share/emacs/site-lisp/elpa").glob("*")) if Path("/usr/share/emacs").exists() else []
CACHE = ROOT / ".pytest_cache" / "emacs"


def load_path(*places: Path) -> list[str]:
    """Return the options that have Emacs find the package's needs, and what is at ``places``."""
    return [word for place in (*ELPA, *places) for word in ("-L", str(place))]


@functools.cache
def elisp() -> Path:
    """Return a directory with the package, compiled by whichever test process comes first.

    A file that does not compile is there as its source.
    """
    sources = sorted((ROOT / "elisp").glob("*.el"))
    made = CACHE / f"elisp-{_digest(sources)}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.is_dir():
            for old in CACHE.glob("elisp-*.part"):
                shutil.rmtree(old)
            _compile(sources, part := made.with_suffix(".part"))
            part.rename(made)
    return made


def native() -> Path:
    """Return a directory for what Emacs compiles natively of its own, which every new home would have it do again."""
    place = CACHE / "eln-cache"
    place.mkdir(parents=True, exist_ok=True)
    return place


def _digest(sources: Iterable[Path]) -> str:
    read = hashlib.sha256()
    for source in sources:
        read.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return read.hexdigest()[:16]


def _compile(sources: Iterable[Path], place: Path) -> None:
    place.mkdir()
    copies = [str(shutil.copy(source, place)) for source in sources]
    command = ["emacs", "-Q", "--batch", *load_path(place), "-f", "batch-byte-compile", *copies]
    subprocess.run(command, capture_output=True, check=False)
