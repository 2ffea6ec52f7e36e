"""What this machine can confine commands with; tried for real, once."""

from __future__ import annotations

import os
import subprocess
from functools import lru_cache

from pyagentd import installation
from pyagentd.config import Confinement
from pyagentd.tools.confine import landlock
from pyagentd.tools.confine.scope import Mechanism

_TRIAL_S = 10.0
_TRIAL = (
    *("--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"),
    *("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run", "--", "/bin/bash", "-c", ":"),
)
# Root in a container may make namespaces only as the owner of a new one for users.
_EXTRA: tuple[tuple[str, ...], ...] = ((), ("--unshare-user",))


def confinement(wanted: Confinement = "auto") -> Mechanism | None:
    """Return what commands are confined with; None: nothing, because nothing answers or the user wants it so."""
    if wanted in ("auto", "bubblewrap") and bubblewrap() is not None:
        return "bubblewrap"
    if wanted in ("auto", "landlock") and landlock.abi():
        return "landlock"
    return None


def bubblewrap() -> tuple[str, ...] | None:
    """Return how ``bwrap`` is called here, with the options this machine needs; None when it does not work."""
    found = _bubblewrap()
    if found is not None and not os.access(found[0], os.X_OK):  # it was removed meanwhile, or is elsewhere now
        _bubblewrap.cache_clear()
        found = _bubblewrap()
    return found


@lru_cache(maxsize=1)
def _bubblewrap() -> tuple[str, ...] | None:
    program = installation.program("bwrap")
    return next(((program, *extra) for extra in _EXTRA if _answers(program, extra)), None) if program else None


def _answers(program: str, extra: tuple[str, ...]) -> bool:
    try:
        done = subprocess.run(
            [program, *extra, *_TRIAL], stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRIAL_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def told(mechanism: Mechanism | None) -> str:
    """Return what a person should know about ``mechanism``, a sentence."""
    match mechanism:
        case "bubblewrap":
            return "Commands see only the scope of their agent (bubblewrap)."
        case "landlock":
            version = landlock.abi()
            network = "" if version >= 4 else " The kernel does not limit connections itself; a filter does."
            return (
                f"Commands may touch only the scope of their agent (Landlock {version}), a little less exactly than "
                f"with bubblewrap.{network}"
            )
        case None:
            return "Commands are not confined: their arguments are not limited to the scope of their agent."
