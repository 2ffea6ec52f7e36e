"""A daemon for the Emacs tests: real frames over a real socket, answers as told.

Started as ``python3 fake-daemon.py [serve] [--detach]``; listens in ``$PYAGENTD_RUNTIME_DIR`` and ends with its last
client, or with its standard input. Methods named ``fake-…`` are its remote control; their ``:text`` is base64, so
that nothing here needs to read or write s-expressions:

    fake-answer (:method M :text T)   answer M with the s-expression T from now on
    fake-error  (:method M :text T)   refuse M with the data T from now on
    fake-silent (:method M :text "")  never answer M
    fake-raw    (:text T)             send T as one frame
    fake-burst  (:count N :text T)    send T as N frames, as fast as possible
    fake-calls  ()                    the calls seen so far, a list of (METHOD ARGS…)
    fake-close  ()                    close the connection without an answer
"""

import asyncio
import base64
import os
import re
import sys
from pathlib import Path

CALL = re.compile(r"\(call (\d+) ([^ )]+) (.*)\)\s*\Z", re.DOTALL)
HELLO = '(:proto 1 :pid 1 :version "0.1.0" :sessions-dir "/nowhere")'


LISTENS: list[int] = []  # who waits for this to listen, as files to write to


def frame(text: str) -> bytes:
    payload = (text + "\n").encode()
    return b"%06x" % len(payload) + payload


def field(args: str, name: str) -> str:
    found = re.search(rf':{name} "?([^" )]*)', args)
    return found.group(1) if found else ""


class Daemon:
    def __init__(self) -> None:
        self.answers: dict[str, str | None] = {"hello": f"return {{}} {HELLO}"}
        self.calls: list[str] = []
        self.clients = 0
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.clients += 1
        try:
            while True:
                size = int(await reader.readexactly(6), 16)
                payload = (await reader.readexactly(size)).decode()
                if found := CALL.match(payload):
                    self.handle(writer, *found.groups())
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self.clients -= 1
            if not self.clients and "--detach" in sys.argv:
                self.ended.set()

    def handle(self, writer: asyncio.StreamWriter, uid: str, method: str, args: str) -> None:
        text = base64.b64decode(field(args, "text")).decode() if method.startswith("fake-") else ""
        answer: str | None = "return {} nil"
        match method:
            case "fake-answer":
                self.answers[field(args, "method")] = "return {} " + text
            case "fake-error":
                self.answers[field(args, "method")] = "return-error {} " + text
            case "fake-silent":
                self.answers[field(args, "method")] = None
            case "fake-raw":
                writer.write(frame(text))
            case "fake-burst":
                writer.write(frame(text) * int(field(args, "count")))
            case "fake-calls":
                answer = "return {} (" + " ".join(self.calls) + ")"
            case "fake-close":
                writer.close()
                return
            case _:
                self.calls.append(f"({method} . {args})")
                answer = self.answers.get(method, answer)
        if answer is not None:
            verb, rest = answer.split(" {} ", 1)
            writer.write(frame(f"({verb} {uid} {rest})"))


async def main() -> None:
    runtime = Path(os.environ["PYAGENTD_RUNTIME_DIR"])
    daemon = Daemon()
    server = await asyncio.start_unix_server(daemon.serve, str(runtime / "daemon.sock"))
    temporary = runtime / "daemon.tmp"
    temporary.write_text(f'(:proto 1 :pid {os.getpid()} :socket "{runtime}/daemon.sock")')
    temporary.replace(runtime / "daemon.eld")
    for writer in LISTENS:
        os.write(writer, b"!")
    if "--detach" not in sys.argv:
        asyncio.get_running_loop().add_reader(0, daemon.ended.set)
    await asyncio.wait_for(daemon.ended.wait(), 300)
    server.close()


if __name__ == "__main__":
    if "--detach" in sys.argv:
        reader, writer = os.pipe()
        if os.fork():
            os.close(writer)
            os.read(reader, 1)  # as the real one, return when it listens
            os._exit(0)
        os.setsid()
        LISTENS.append(writer)
    asyncio.run(main())
