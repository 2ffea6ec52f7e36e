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
    if peer.family != socket.AF_UNIX:
        return _is_held_by_descendant(peer)
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


def _is_held_by_descendant(peer: socket.socket) -> bool:
    """Return whether a process that this one started has the other end of a TCP connection of this machine open.

    One that hides what it has open counts as such.
    """
    if not Path("/proc/self/stat").exists():
        return False
    end = _inode_of(peer.getpeername(), peer.getsockname())
    if end is None:
        return True
    for pid in _family():
        try:
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                if str(descriptor.readlink()) == f"socket:[{end}]":
                    return True
        except FileNotFoundError:  # it ended, or closed it
            continue
        except OSError:
            return True
    return False


def _inode_of(own: tuple[str, int], other: tuple[str, int]) -> str | None:
    """Return the inode of the socket that is bound to ``own`` and connected to ``other``; None when it is closed."""
    wanted = (_as_in_proc(own), _as_in_proc(other))
    for table in ("tcp", "tcp6"):  # the second has IPv4 too, of who asked for both; its address ends in the same
        for line in Path("/proc/net", table).read_text("ascii").splitlines()[1:]:
            fields = line.split()
            if (fields[1][-13:], fields[2][-13:]) == wanted and fields[9] != "0":
                return fields[9]
    return None


def _as_in_proc(address: tuple[str, int]) -> str:
    number = struct.unpack("=I", socket.inet_aton(address[0]))[0]
    return f"{number:08X}:{address[1]:04X}"


def _family() -> list[int]:
    """Return the ids of this process and of all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                parent = int(Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    return found


def _peer_uid(peer: socket.socket) -> int | None:
    try:
        if sys.platform == "darwin":
            credentials = peer.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size)
            return int(_XUCRED.unpack(credentials)[1])
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[1])
    except OSError:
        return None
