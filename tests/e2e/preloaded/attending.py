"""Stands where the process of a command would: hands its signals on, and ends as that ends."""

import json
import os
import signal
import socket

_HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)


def attend(address: str, arguments: list[str]) -> None:
    """Have the command run, and end with its exit code; return when that cannot be."""
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(address)
    except OSError:
        return
    umask = os.umask(0o22)
    order = {
        "arguments": arguments,
        "env": dict(os.environ),
        "cwd": os.getcwd(),  # noqa: PTH109 (loading pathlib takes longer than all that is done here)
        "umask": umask,
        "leads": os.getsid(0) == os.getpid(),
    }
    body = json.dumps(order).encode("utf-8", "surrogateescape")
    socket.send_fds(link, [len(body).to_bytes(4, "big")], [0, 1, 2])
    link.sendall(body)
    for number in _HANDED_ON:
        signal.signal(number, lambda number, frame: link.send(bytes([number])))
    code, number = link.recv(2) or (255, 0)
    if number:
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(code)
