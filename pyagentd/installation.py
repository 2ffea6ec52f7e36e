"""What the daemon itself runs, and where it is installed: none of it is a place where a command could put something.

``PATH`` is the user's, and often has a directory of the workspace (an activated virtual environment). A program found
there is fit for a confined command and never for the daemon, which nothing confines.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyagentd.errors import NotInstalled

DIRECTORIES = (
    "/usr/bin",
    "/bin",
    "/usr/local/bin",
    "/run/current-system/sw/bin",
    "/opt/homebrew/bin",
    "/opt/local/bin",
)
PATH = ":".join(DIRECTORIES)
_SHARED = ("/", "/usr", "/usr/local", "/opt/homebrew", "/opt/local")
_PACKAGES = ("site-packages", "dist-packages")


def program(name: str) -> str | None:
    """Return where the machine has the program ``name``; None when it has none, whatever ``PATH`` says."""
    paths = (f"{directory}/{name}" for directory in DIRECTORIES)
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)  # noqa: PTH113


def installed() -> tuple[Path, ...]:
    """Return the directories that our code and what it imports are loaded from, resolved: no tool changes them.

    They are this package, the packages beside it, and Python: its environment where it is one of its own.
    """
    package = Path(__file__).resolve().parent
    library = Path(os.__file__).resolve().parent
    home = Path("~").expanduser().resolve()
    shared = {*map(Path, _SHARED), home, home / ".local", *home.parents}
    prefixes = (Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix))
    own = (prefix for prefix in prefixes if prefix not in shared)
    beside = (package.parent,) if package.parent.name in _PACKAGES else ()
    return tuple(dict.fromkeys((package, *beside, library, *own)))


@contextmanager
def extra(name: str, feature: str) -> Iterator[None]:
    """Import in the body what the extra ``name`` of our distribution brings.

    Args:
        name: The extra, as in ``pyagentd[mcp]``.
        feature: What needs it, the subject of the error's sentence.

    Raises:
        NotInstalled: It was not installed with the rest.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise NotInstalled(
            f"{feature} needs the Python package {error.name}, which is not installed",
            mend=f"Install the server as pyagentd[{name}], or as pyagentd[full].",
        ) from error
