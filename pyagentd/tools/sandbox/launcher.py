"""Runs one command and ends everything it started, where bubblewrap is missing; with Landlock where that answers.

A program of its own: it is started by path, imports nothing of ours, and stays outside of what it confines. It adopts
whatever the command leaves behind (``PR_SET_CHILD_SUBREAPER``), also what made a session of its own, and kills it
when the command ends, when it is told to (SIGUSR1), or when the daemon is gone. SIGTERM is for the command.

Its one argument is a file descriptor with JSON: ``argv``, ``abi`` of Landlock (0: not confined), ``rules``
(``[[path, rights]…]``), ``network``. It ends as the command does.
"""

import ctypes
import json
import os
import platform
import resource
import signal
import struct
import sys
from typing import Any, NoReturn

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_RULE_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << n for n in range(4))
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_NET_TCP = 0b11  # bind, connect
_SCOPES = 0b11  # abstract sockets, signals

_RIGHTS = {
    "list": _READ_DIR,
    "read": _EXECUTE | _READ_FILE | _READ_DIR,
    "device": _READ_FILE | _WRITE_FILE | _READ_DIR | _TRUNCATE | _IOCTL_DEV,
    "write": -1,
}

_PR_CAPBSET_DROP = 24
_CAPABILITIES = 64  # more than there are
_KEPT = (0, 1, 3, 4, 5, 6, 7)  # those about owners and modes of files, and about changing the user

_AF_UNIX, _AF_NETLINK, _AF_VSOCK = 1, 16, 40
_SECCOMP_RET_ALLOW, _SECCOMP_RET_EACCES, _SECCOMP_RET_ENOSYS = 0x7FFF0000, 0x0005000D, 0x00050026
_IO_URING_SETUP = 425
# machine: (its name for the kernel, numbers of socket and truncate, numbers from here on are another table)
_MACHINES = {"x86_64": (0xC000003E, 41, 76, 0x40000000), "aarch64": (0xC00000B7, 198, 45, 0xFFFFFFFF)}

_libc = ctypes.CDLL(None, use_errno=True)


def _check_call(what: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        _fail(f"{what}: {os.strerror(number)}")
    return result


def _fail(message: str) -> NoReturn:
    os.write(2, f"pyagentd: the command could not be confined ({message}) and was not run\n".encode())
    os._exit(126)


def _prctl(what: str, option: int, argument: int) -> None:
    zero = ctypes.c_ulong(0)
    _check_call(what, _libc.prctl(option, ctypes.c_ulong(argument), zero, zero, zero))


# -- Landlock ------------------------------------------------------------------------------------------------------


def _restrict(abi: int, rules: list[list[str]], network: bool) -> None:
    handled = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1  # the rights to files that this kernel knows
    values = [handled, _NET_TCP if abi >= 4 and not network else 0, _SCOPES if abi >= 6 else 0]
    known = values[: 1 if abi < 4 else 2 if abi < 6 else 3]
    attributes = struct.pack(f"={len(known)}Q", *known)
    ruleset = _check_call("ruleset", _libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0))
    for path, rights in rules:
        _allow(ruleset, path, _RIGHTS[rights] & handled)
    _prctl("privileges", _PR_SET_NO_NEW_PRIVS, 1)
    _check_call("Landlock", _libc.syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return  # gone meanwhile: then it allows nothing
    if not os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112
        rights &= _OF_FILES
    if rights:
        attributes = struct.pack("=Qi", rights, descriptor)
        _check_call(path, _libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, attributes, 0))
    os.close(descriptor)


# -- what Landlock does not know: sockets by family, and before its version 3 who cuts a file by its name -----------


def _filter_sockets(network: bool, truncates: bool) -> None:
    """Refuse sockets of the machine (the daemon's is one) and, without ``network``, all others; pairs remain."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        _fail(f"sockets cannot be filtered on {platform.machine()}")
    audit, socket, truncate, other = machine
    families = [(_AF_UNIX, False), (_AF_VSOCK, False)] if network else [(_AF_NETLINK, True)]
    load, equal, above, done = 0x20, 0x15, 0x35, 0x06
    program = [
        (load, 0, 0, 4), (equal, 1, 0, audit), (done, 0, 0, _SECCOMP_RET_EACCES),
        (load, 0, 0, 0), (above, 0, 1, other), (done, 0, 0, _SECCOMP_RET_ENOSYS),
        (equal, 0, 1, _IO_URING_SETUP), (done, 0, 0, _SECCOMP_RET_ENOSYS),
        (equal, 0, 1, truncate), (done, 0, 0, _SECCOMP_RET_ALLOW if truncates else _SECCOMP_RET_EACCES),
        (equal, 1, 0, socket), (done, 0, 0, _SECCOMP_RET_ALLOW),
        (load, 0, 0, 16),
    ]  # fmt: skip
    for family, allowed in families:
        program += [(equal, 0, 1, family), (done, 0, 0, _SECCOMP_RET_ALLOW if allowed else _SECCOMP_RET_EACCES)]
    program.append((done, 0, 0, _SECCOMP_RET_ALLOW if network else _SECCOMP_RET_EACCES))
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in program))
    head = struct.pack("@HP", len(program), ctypes.addressof(code))
    _prctl("privileges", _PR_SET_NO_NEW_PRIVS, 1)
    _check_call("sockets", _libc.prctl(_PR_SET_SECCOMP, 2, head, 0, 0))


def _drop_capabilities() -> None:
    """Take from root what reaches beyond files; with some of it Landlock's word about processes does not count."""
    for capability in range(_CAPABILITIES):
        if capability not in _KEPT:
            _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0)  # fails for who has none


# -- the command and what it leaves --------------------------------------------------------------------------------


def _run(spec: dict[str, Any]) -> NoReturn:
    """Become the command."""
    try:
        if spec["abi"]:
            _drop_capabilities()
            _restrict(spec["abi"], spec["rules"], spec["network"])
            _filter_sockets(spec["network"], truncates=spec["abi"] >= 3)
        os.execv(spec["argv"][0], spec["argv"])
    except BaseException as error:
        _fail(repr(error))


def _children() -> list[int]:
    """Return the processes whose parent we are, adopted ones too."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError):
                continue
            if parent == os.getpid():
                found.append(int(name))
    return found


def _end_all() -> None:
    """Kill all descendants: each that dies hands its children to us."""
    while children := _children():
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for pid in children:
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                continue


def _stop(number: int, frame: object) -> NoReturn:
    _end_all()
    os._exit(137)


def main() -> NoReturn:
    """Do what the descriptor given as argument says."""
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        spec = json.loads(file.read())
    # A handler and not SIG_IGN, which the command would inherit.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    signal.signal(signal.SIGUSR1, _stop)
    _prctl("adoption", _PR_SET_CHILD_SUBREAPER, 1)
    _prctl("parent", _PR_SET_PDEATHSIG, signal.SIGUSR1)
    if os.getppid() == 1 and spec["parent"] != 1:
        os._exit(137)
    child = os.fork()
    if child == 0:
        _run(spec)
    status = -1
    while status < 0:
        pid, ended = os.wait()
        if pid == child:
            status = ended
    _end_all()
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) not in (9, 19) else None
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128)


if __name__ == "__main__":
    main()
