"""Who may talk to the daemon: the user it belongs to, and on TCP whoever holds the token."""

from __future__ import annotations

import hmac
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Final

# Darwin's <sys/un.h>; the module `socket` does not name them.
_SOL_LOCAL: Final = 0
_LOCAL_PEERCRED: Final = 1
_XUCRED: Final = struct.Struct("=IIh16I")


def new_token() -> str:
    """Return a fresh secret of 256 bits."""
    return os.urandom(32).hex()


def token_matches(expected: str, given: object) -> bool:
    """Compare in constant time; what is no string matches nothing."""
    return isinstance(given, str) and hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))


def same_user(peer: socket.socket) -> bool:
    """Return whether the process at the other end of a unix socket runs as the user of this one."""
    return _peer_uid(peer) == os.geteuid()


def is_descendant(peer: socket.socket) -> bool:
    """Return whether the process at the other end was started by this one: a command of an agent, no client.

    A peer that is gone counts as one. Nothing is known of a peer in a container, or on macOS: those do not.
    """
    try:
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    except (OSError, AttributeError):
        return False
    pid = int(struct.unpack("3i", credentials)[0])
    while pid > 0:
        if pid == os.getpid():
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return Path("/proc/self/stat").exists()
    return False


def _peer_uid(peer: socket.socket) -> int | None:
    try:
        if sys.platform == "darwin":
            credentials = peer.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size)
            return int(_XUCRED.unpack(credentials)[1])
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[1])
    except OSError:
        return None
