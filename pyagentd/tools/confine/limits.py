"""What one command may use up; room for any ordinary build, an end for what runs away.

====================  ======================  =======================================================
processes, threads    4,096                   of the user where nothing confines, else of the command
open files            65,536 (16,384 soft)
size of a file        16 GiB
processor time        10 min for each core    of one process; a command has 10 min at most
address space         256 GiB, soft           a sanitizer that reserves more lifts it: ``ulimit -v unlimited``
core dumps            none
====================  ======================  =======================================================

A limit of the daemon's own that is lower stays.
"""

from __future__ import annotations

import os

_PROCESSES = 4_096
_FILES_SOFT, _FILES_HARD = 16_384, 65_536
_FILE_KIB = 16 * 1024 * 1024
_CPU_S = 600
_ADDRESS_KIB = 256 * 1024 * 1024

_RAISED = f"""
ulimit -c 0; ulimit -u {_PROCESSES}; ulimit -f {_FILE_KIB}; ulimit -t {_CPU_S * (os.cpu_count() or 1)}
ulimit -Hn {_FILES_HARD}; ulimit -Sn {_FILES_SOFT}; ulimit -Sv {_ADDRESS_KIB}"""

# ``exec`` keeps the pid; what the shell cannot set (macOS knows fewer) is left as it is.
_SCRIPT = "{ " + "; ".join(_RAISED.strip().split("\n")) + '; } 2>/dev/null; exec /bin/bash -c "$1"'


def limited(command: str) -> tuple[str, ...]:
    """Return the argv that runs ``command`` with bash under the limits."""
    return "/bin/bash", "--noprofile", "--norc", "-c", _SCRIPT, "bash", command
