"""Print how many files and functions of ours a prompt and a tool call pass: ``python -m tests.bench.trace_prompt``.

A daemon with a profiler (a process of its own) takes three prompts of one session over its socket, with a model
server on HTTP. Counted is the second prompt, whose session is warm, and the call of ``Read`` of the third; not what
the index does meanwhile, in a thread of its own, about the turn before.
``--list`` also prints each file with its functions, in the order in which they were first entered.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType

from tests.bench.references import ROOT
from tests.server import ModelServer, tool_use
from tests.server.answers import answer

_OURS = str(ROOT / "pyagentd") + os.sep
_FRAME = "Connection.data_received"
_REQUEST = "ClientSession._request"  # aiohttp
_APPEND = "Journal.append_many"
_PROMPT = "What is here?"

Step = tuple[str, str, str]
"""(file, function, states of the tool calls that it records)."""


def main() -> int:
    """Trace, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.trace_prompt", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print every file with its functions")
    parser.add_argument("--daemon", metavar="OUT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.daemon:
        return _daemon(Path(options.daemon))
    steps = _traced()
    frames, requests = ([at for at, step in enumerate(steps) if step[1] == mark] for mark in (_FRAME, _REQUEST))
    prompt = frames[-2]
    request = next(at for at in requests if at > prompt)
    called, done = (
        next(at for at, step in enumerate(steps) if state in step[2].split())
        for state in ("input-available", "output-available")
    )
    answer_begins = max(at for at in requests if at < called)
    print(f"{'':58}{'files':>7}{'functions':>11}{'calls':>8}{'switches':>10}")
    for what, part in (
        ("a prompt, from its frame to the request", steps[prompt:request]),
        ("a tool call, from the answer's first byte to its row", steps[answer_begins : called + 1]),
        ("a tool call, from the answer's first byte to its result's row", steps[answer_begins : done + 1]),
    ):
        _report(what, [step for step in part if step[0].startswith(_OURS)], each=options.list)
    return 0


def _report(what: str, part: list[Step], *, each: bool) -> None:
    files: dict[str, list[str]] = {}
    for file, function, _ in part:
        names = files.setdefault(file.removeprefix(_OURS), [])
        if function not in names:
            names.append(function)
    switches = sum(one[0] != other[0] for one, other in itertools.pairwise(part))
    print(f"{what:58}{len(files):>7}{sum(map(len, files.values())):>11}{len(part):>8}{switches:>10}")
    if each:
        for file, names in files.items():
            print(f"  {file}: {', '.join(names)}")


def _traced() -> list[Step]:
    with tempfile.TemporaryDirectory(prefix="pyagentd-trace-") as home, ModelServer() as model:
        project, runtime, out = Path(home, "project"), Path(home, "run"), Path(home, "steps.json")
        project.mkdir()
        (project / "notes.md").write_text("A note.\n")
        Path(home, "pyagentd").mkdir()
        Path(home, "pyagentd", "config.toml").write_text("[titles]\nenabled = false\n")
        environment = os.environ | {
            "HOME": home,
            "PYAGENTD_RUNTIME_DIR": str(runtime),
            "PYAGENTD_SESSIONS_DIR": str(Path(home, "sessions")),
            "XDG_CONFIG_HOME": home,
            "ANTHROPIC_API_KEY": "test",
            "ANTHROPIC_BASE_URL": model.url,
        }
        command = [sys.executable, "-m", "tests.bench.trace_prompt", "--daemon", str(out)]
        daemon = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            assert daemon.stdout is not None
            assert daemon.stdout.readline(), "the daemon did not start"
            script = "from tests.bench import trace_prompt as t; import sys; t.converse(*sys.argv[1:])"
            model.say("Nothing.", "Nothing.", answer(tool_use("Read", file_path="notes.md")), "A note.")
            subprocess.run(
                [sys.executable, "-c", script, str(runtime), str(project)],
                cwd=ROOT,
                env=environment,
                check=True,
                timeout=20,
            )
        finally:
            daemon.terminate()
            daemon.wait(60)
        return [tuple(step) for step in json.loads(out.read_text())]


def converse(runtime: str, project: str) -> None:
    """Have three prompts answered in a new session."""
    from pyagentd.store.document.text import body_sha256, read
    from pyagentd.wire.client import connect

    with connect(Path(runtime)) as client:
        made = client.call("create-session", name="traced", preset="explorer", root=project)
        branch = made["branch_dir"]
        body = read(Path(branch) / "session.md").body
        client.call("attach", branch=branch, sha256=body_sha256(body))
        for _ in range(3):
            client.call("prompt", branch=branch, text=_PROMPT)
            for event in client.events(timeout=60):
                if event.kind == "run" and event.args[0]["phase"] == "finished":
                    assert event.args[0]["reason"] == "done", event.args
                    break


def _daemon(out: Path) -> int:
    """Serve until terminated, and write down which functions were entered meanwhile."""
    from pyagentd.cli import serve
    from pyagentd.config.loading import load_config

    steps: list[Step] = []

    def entered(frame: FrameType, event: str, _: object) -> None:
        if threading.current_thread().name == "indexer":
            return
        code = frame.f_code
        if event == "return" and code.co_qualname == _APPEND:
            steps.append(
                (
                    code.co_filename,
                    code.co_qualname,
                    " ".join(row.data.get("tool_state", "") for row in frame.f_locals.get("rows", ())),
                )
            )
        elif event == "call" and (code.co_filename.startswith(_OURS) or code.co_qualname == _REQUEST):
            steps.append((code.co_filename, code.co_qualname, ""))

    threading.setprofile(entered)
    sys.setprofile(entered)
    try:
        settings = load_config()
        serve._serve(settings, None, ready=lambda: print("ready", flush=True))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        out.write_text(json.dumps(steps))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
