"""Who may talk to the daemon: the user it belongs to, and on TCP whoever holds the token."""

from __future__ import annotations

import hmac
import os
import socket
import struct
import sys
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


def _peer_uid(peer: socket.socket) -> int | None:
    try:
        if sys.platform == "darwin":
            credentials = peer.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size)
            return int(_XUCRED.unpack(credentials)[1])
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[1])
    except OSError:
        return None
