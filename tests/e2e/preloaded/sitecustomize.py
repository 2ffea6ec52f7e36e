"""Read by every Python below a test: has ``pyagentd`` run in a fork of what is loaded, see ``tests.e2e.forks``.

Where anything is out of the ordinary (a terminal, further files, no such server) Python goes on as it always does.
"""

import os
import sys


def _arguments() -> list[str] | None:
    """Return the arguments of ``pyagentd``, or None if another program is run."""
    words = sys.orig_argv[1:]
    while words and words[0].startswith("-") and words[0] != "-m":
        words = words[1:]
    if words[:2] == ["-m", "pyagentd"]:
        return words[2:]
    return words[1:] if words and words[0].rpartition("/")[2] == "pyagentd" else None


def _is_usual() -> bool:
    unusual = any(name.startswith("PYTHON") and name != "PYTHONPATH" for name in os.environ)
    # With the one that this is read from; loading pathlib would take longer than all that is done here.
    descriptors = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    return not (
        unusual
        or os.environ.get("LANG") != "C.UTF-8"
        or len(descriptors) != 4
        or not {"0", "1", "2"} <= descriptors
        or any(map(os.isatty, range(3)))
    )


def _begin() -> None:
    address = os.environ.get("PYAGENTD_TEST_FORKS")
    if address and (arguments := _arguments()) is not None and _is_usual():
        sys.path.insert(0, __file__.rpartition("/")[0])
        import attending

        attending.attend(address, arguments)


_begin()
