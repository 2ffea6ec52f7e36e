"""What the daemon imports, reads and opens before its first hello, and from there to its first request.

``python -m tests.bench.start_table`` prints a table: how many modules of each package, and every file and socket,
each line with what it is for. A line without a reason is one that nobody has justified.
"""

import fnmatch
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pyagentd.wire.client import connect
from tests.bench.references import ROOT
from tests.server import ModelServer

_HOOK = """
import json, os, runpy, sys, time
out = os.open({out!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
seen = set()
told = ("open", "sqlite3.connect", "os.listdir", "os.scandir", "socket.bind", "socket.connect", "subprocess.Popen")
def hook(event, args):
    if event in told:
        what = args[1] if event.startswith("socket") else args[0]
        if event == "open" and str(what).endswith((".py", ".pyc")):
            return
        os.write(out, (json.dumps([time.time(), event, str(what), len(sys.modules)]) + "\\n").encode())
sys.addaudithook(hook)
import threading
def modules():
    known = set(sys.modules)
    os.write(out, (json.dumps([time.time(), "modules", sorted(known), 0]) + "\\n").encode())
    while True:
        time.sleep(0.02)
        new = set(sys.modules) - known
        if new:
            known |= new
            os.write(out, (json.dumps([time.time(), "modules", sorted(new), 0]) + "\\n").encode())
threading.Thread(target=modules, daemon=True).start()
sys.argv = ["pyagentd", "serve"]
runpy.run_module("pyagentd", run_name="__main__", alter_sys=True)
"""

# What is opened, as a pattern of its path below the home, and why.
_FILES = {
    "*/config.toml": "what the user configured",
    "*/run": "the runtime directory: its mode is checked, because the socket in it is the way in",
    "*/run/*.sock": "the socket that clients connect to",
    "*/run/daemon.log": "what goes wrong",
    "*/run/*": "the lock that keeps a second daemon out, and the file that tells clients where this one is",
    "*/sessions": "which sessions there are; below it runs are looked for that the last daemon left",
    "*/sessions/state.db*": "schedules, grants, settings and the audit",
    "*/sessions/.pyagentd.lock": "the lock that keeps a second daemon from these sessions",
    "*/sessions/*": "the session that is talked to",
    "*/agents*": "the configuration of named agents",
    "*/presets*": "the presets that can be named",
    "*/project*": "the workspace: instructions, skills and git's branch for the system prompt",
    "*.pem": "certificates that servers of models are checked against",
    "*.crt": "certificates that servers of models are checked against",
    "*/openssl.cnf": "settings of TLS",
    "/etc/localtime": "the time zone",
    "*/zoneinfo/*": "the time zone",
    "/etc/passwd": "the name of the user, for the audit",
    "/etc/nsswitch.conf": "the name of the user, for the audit",
    "/proc/*": "whether a process lives, and what the kernel can enclose",
    "/sys/*": "what the kernel can enclose",
    "/dev/*": "standard streams",
    "*/pyagentd/*": "data of the package: presets, the catalog of models, texts",
    "*/skills*": "the skills that an agent can read, of the package, the user and the project",
    "*-agents": "the configuration of named agents",
    "*/catalogue.json": "the user's list of models, if there is one",
    "/presets/*": "the presets that can be named",
    "/presets": "the presets that can be named",
    "('127.0.0.1', *": "the model",
    ":memory:": "whether SQLite can search texts",
    "/usr/bin/git": "git's branch, for the system prompt",
    "/pyagentd": "looked through by the import system",
    "DESCRIPTOR": "what was opened by descriptor, as a file object",
    ".": "looked through by the import system",
    "*.dist-info*": "whether an optional part is installed",
    "*.so*": "a compiled module",
    "*site-packages*": "looked through by the import system",
    "*lib/python*": "looked through by the import system",
}
_PACKAGES = {
    "pyagentd": "ours",
    "stdlib": "Python's own",
    "msgspec": "reads configuration and arguments",
    "ruamel": "front matter and metadata, with comments kept",
    "aiohttp": "HTTP to models; from the first conversation on",
    "anyascii": "names of sessions as paths",
    "click": "the command line that starts the daemon",
    "truststore": "the system's certificates",
    "wcmatch": "patterns of paths in rules",
    "bracex": "part of wcmatch",
    "platformdirs": "where files of a user belong",
    "regex": "patterns of rules, with a limit of time",
    **dict.fromkeys(
        ("attr", "yarl", "idna", "aiohappyeyeballs", "multidict", "propcache", "frozenlist", "aiosignal"),
        "part of aiohttp",
    ),
    "cython_runtime": "part of aiohttp",
    "typing_extensions": "part of aiohttp",
}


def main() -> None:
    """Print both tables."""
    home = Path(tempfile.mkdtemp(prefix="pb-", dir="/tmp"))
    for name in ("project", "sessions", "presets"):
        (home / name).mkdir()
    with ModelServer() as model:
        out = home / "events"
        env = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "PYAGENTD_SESSIONS_DIR": str(home / "sessions"),
            "PYAGENTD_RUNTIME_DIR": str(home / "run"),
            "PYAGENTD_CONFIG": str(home / "config.toml"),
            "PYAGENTD_TITLES": "off",
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": "test",
        }
        hook = _HOOK.replace("{out!r}", repr(str(out)))
        with subprocess.Popen([sys.executable, "-c", hook], env=env, cwd=home / "project") as daemon:
            try:
                hello, request = _use(home)
            finally:
                daemon.terminate()
                daemon.wait(30)
        events = [json.loads(line) for line in out.read_text().splitlines()]
    _table("From the start to hello", [event for event in events if event[0] <= hello], home)
    _table("From hello to the first request", [event for event in events if hello < event[0] <= request], home)


def _use(home: Path) -> tuple[float, float]:
    """Say hello and send a prompt; return when each was answered."""
    deadline = time.monotonic() + 30
    while True:
        try:
            client = connect(home / "run")
            break
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    hello = time.time()
    with client:
        made = client.call("create-session", name="first", preset="explorer", root=str(home / "project"))
        client.call("prompt", branch=made["branch_dir"], text="Hello?")
        time.sleep(2)
    return hello, time.time()


def _table(title: str, events: list[list[object]], home: Path) -> None:
    modules = Counter(_package(str(name)) for event in events if event[1] == "modules" for name in event[2])  # type: ignore[attr-defined]
    print(f"\n{title}\n")
    print(f"{'':10}{'number':>7}  what, and what for")
    for package, count in modules.most_common():
        print(f"{'modules':10}{count:>7}  {package}: {_PACKAGES.get(package, '(no reason given)')}")
    told = ((str(event[1]).split(".")[-1], _shown(str(event[2]), home)) for event in events if event[1] != "modules")
    looked = _reason("lib/python3")
    opened = Counter((event, "" if _reason(what) == looked else what) for event, what in told)
    for (event, what), count in sorted(opened.items()):
        print(f"{event:10}{count:>7}  {f'{what}: {_reason(what)}' if what else looked}")


def _package(module: str) -> str:
    top = module.partition(".")[0]
    return "stdlib" if top in sys.stdlib_module_names or top.startswith("_") else top


def _shown(path: str, home: Path) -> str:
    if path.isdigit():
        return "DESCRIPTOR"
    path = re.sub(r"\.new-[0-9a-f]+|first-[0-9]{14}", "SESSION", re.sub(r"\.[0-9a-f]{16}\.tmp", ".tmp", path))
    for prefix, name in ((str(ROOT), ""), (str(home), "~"), (sys.prefix, "ENV"), (sys.base_prefix, "PYTHON")):
        if path.startswith(prefix):
            return f"{name}{path.removeprefix(prefix)}" or "."
    return path


def _reason(what: str) -> str:
    return next(_matching(what), "(no reason given)")


def _matching(what: str) -> Iterator[str]:
    for pattern, reason in _FILES.items():
        if fnmatch.fnmatch(what, pattern) or what == pattern:
            yield reason


if __name__ == "__main__":
    main()
