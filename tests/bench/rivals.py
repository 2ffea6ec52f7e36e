"""The same job by other programs, as a table in Markdown: ``python -m tests.bench.rivals`` (make bench-peers).

The job is one prompt to a model on this machine which calls the tool that reads a file, so many times, one call an
answer, and then says a word. Each program runs it from its start to its end: one that talks to a daemon also with
the daemon running. What is not installed is skipped with a line. Nothing is sent anywhere but to the local model.

Libraries are looked for in the Python of ``--python``, programs in ``--bin`` and on the PATH.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyagentd import __version__
from tests.bench.crowd_server import NOTE
from tests.bench.measure import Spent, median, memory_mb
from tests.bench.references import ROOT
from tests.bench.world import World
from tests.server import ModelServer, answer, tool_use
from tests.server.http import Request

_FILE = "note.md"
_ASKED = re.compile(r"\bturns (\d+)\b")
_READS = re.compile(r"read(_?file)?", re.IGNORECASE)
_TIMEOUT_S = 180


def respond(directory: Path) -> Any:
    """Return the rule of a model that has each program's own tool read the file."""

    def rule(request: Request) -> Any:
        body = json.dumps(request.body)
        asked = [int(number) for number in _ASKED.findall(body)]
        done = sum(_results(message) for message in request.messages)
        reading = next((tool for tool in _tools(request) if _READS.fullmatch(tool["name"])), None)
        if reading is None or not asked or done >= max(asked):
            return answer("done")
        name = next(name for name in reading["properties"] if "path" in name.lower())
        return answer(tool_use(reading["name"], id=f"toolu_{done}", **{name: str(directory / _FILE)}))

    return rule


def _tools(request: Request) -> Iterator[dict[str, Any]]:
    for tool in request.body.get("tools", ()):
        told = tool.get("function", tool)
        schema = told.get("input_schema") or told.get("parameters") or {}
        yield {"name": told.get("name", ""), "properties": schema.get("properties", {})}


def _results(message: Mapping[str, Any]) -> int:
    content = message.get("content")
    blocks = content if isinstance(content, list) else ()
    return (message["role"] == "tool") + sum(block.get("type") == "tool_result" for block in blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a run of the job took; CPU and memory of all processes of the program that it starts."""

    wall_s: float
    cpu_s: float
    memory_mb: float


class Job:
    """Runs programs on one job."""

    def __init__(self, directory: Path, turns: int) -> None:
        self.directory = directory
        self.turns = turns

    def run(self, command: Sequence[str], env: Mapping[str, str], *others: int) -> Cost:
        """Return what a program costs, with processes that run already; raises if it does not do the job."""
        _waited_cpu()
        spent, began = Spent(*others), time.perf_counter()
        peak = [0.0]
        with subprocess.Popen(
            command,
            cwd=self.directory,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            watching = threading.Thread(target=_watch, args=(process, peak, others))
            watching.start()
            try:
                out, err = process.communicate(timeout=_TIMEOUT_S)
            finally:
                process.kill()
                watching.join()
        wall_s = time.perf_counter() - began
        if process.returncode or "done" not in out:
            raise RuntimeError((err or out).strip()[-400:] or f"exit {process.returncode}")
        return Cost(wall_s=wall_s, cpu_s=_waited_cpu() + sum(map(spent.cpu, others)), memory_mb=peak[0])


_counted = [0.0]


def _waited_cpu() -> float:
    """Return the CPU time of processes that ended since the last call."""
    now = sum(os.times()[2:4])
    before, _counted[0] = _counted[0], now
    return now - before


def _watch(process: subprocess.Popen[str], peak: list[float], others: Sequence[int]) -> None:
    while process.poll() is None:
        total = 0.0
        for pid in (*_family(process.pid), *others):
            try:
                total += memory_mb(pid)
            except (OSError, ProcessLookupError):
                continue
        peak[0] = max(peak[0], total)
        time.sleep(0.05)


def _family(pid: int) -> Iterator[int]:
    yield pid
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [child for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return
    for child in children:
        yield from _family(int(child))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A program that does the job."""

    name: str
    version: str
    command: Sequence[str]  # with {turns} where that stands
    env: Mapping[str, str]
    others: Sequence[int] = ()  # processes that count too


def rivals(options: argparse.Namespace, world: World, url: str) -> Iterator[Rival | str]:
    """Yield each program, or a line why it is skipped."""
    system, prompt = world.system, "turns {turns}"
    asking = [*system.command("ask", "--preset", "explorer"), prompt]
    daemon = world.daemon()
    yield Rival(name="pyagentd, daemon running", version=__version__, command=asking, env=system.env, others=[daemon])
    plain = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(system.home), "ANTHROPIC_BASE_URL": url}
    plain |= {"ANTHROPIC_API_KEY": "test-key", "NO_PROXY": "127.0.0.1", "PYTHONPATH": str(ROOT)}
    for name in ("pydantic-ai", "openai-agents"):
        package = "pydantic-ai-slim" if name == "pydantic-ai" else name
        version = _output([options.python, "-c", f"import importlib.metadata as m; print(m.version({package!r}))"])
        if not version:
            yield f"{name}: not installed in {options.python}"
            continue
        agent = [options.python, "-m", "tests.bench.rival_agents", name, url, "{turns}"]
        yield Rival(name=f"{name} (library)", version=version, command=agent, env=plain)
    path = os.pathsep.join([options.bin, os.environ["PATH"]]) if options.bin else os.environ["PATH"]
    quiet = {**plain, "PATH": path, "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1"}
    quiet |= {"DISABLE_ERROR_REPORTING": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    if (claude := shutil.which("claude", path=path)) is None:
        yield "Claude Code: no program `claude` (npm install @anthropic-ai/claude-code)"
    else:
        command = [claude, "-p", prompt, "--allowedTools", "Read", "--model", "claude-sonnet-4-5"]
        yield Rival(name="Claude Code", version=_output([claude, "--version"]), command=command, env=quiet)
    if (opencode := shutil.which("opencode", path=path)) is None:
        yield "opencode: no program `opencode` (npm install opencode-ai)"
    else:
        told = {
            "provider": {"anthropic": {"options": {"baseURL": f"{url}/v1", "apiKey": "test-key"}}},
            "autoupdate": False,
            "share": "disabled",
        }
        env = {**quiet, "OPENCODE_CONFIG_CONTENT": json.dumps(told), "OPENCODE_DISABLE_MODELS_FETCH": "1"}
        command = [opencode, "run", "--model", "anthropic/claude-sonnet-4-5", prompt]
        yield Rival(name="opencode", version=_output([opencode, "--version"]), command=command, env=env)


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip().removesuffix(" (Claude Code)")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rivals", description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the Python that has the libraries")
    parser.add_argument("--bin", default="", help="a directory with the programs")
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="pb-", dir="/tmp"))
    server = ModelServer()
    server.rule = respond(home / "project")
    with server:
        world = World(home, server.url, quick=True)
        try:
            (world.system.project / _FILE).write_text(NOTE)
            few, many = Job(world.system.project, 1), Job(world.system.project, options.turns)
            print(f"One prompt with 1 and with {options.turns} calls of a tool that reads a file of 1 kB; medians.\n")
            print(
                f"| program | version | 1 call: s | CPU s | {options.turns} calls: s | CPU s | CPU ms a call | MB |"
            )
            print("|---|---|---|---|---|---|---|---|")
            for rival in rivals(options, world, server.url):
                print(rival if isinstance(rival, str) else _row(rival, few, many, options.times), flush=True)
        finally:
            world.system.close()
            shutil.rmtree(home, ignore_errors=True)


def _row(rival: Rival, few: Job, many: Job, times: int) -> str:
    def middle(job: Job) -> Cost:
        command = [word.replace("{turns}", str(job.turns)) for word in rival.command]
        costs = [job.run(command, rival.env, *rival.others) for _ in range(times)]
        middle_cpu = median([cost.cpu_s for cost in costs])
        return next(cost for cost in costs if cost.cpu_s == middle_cpu)

    try:
        short, long = middle(few), middle(many)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return f"{rival.name} {rival.version}: skipped, it does not do the job here: {' '.join(str(error).split())}"
    each = 1000 * (long.cpu_s - short.cpu_s) / (many.turns - few.turns)
    return (
        f"| {rival.name} | {rival.version} | {short.wall_s:.2f} | {short.cpu_s:.2f} | {long.wall_s:.2f} "
        f"| {long.cpu_s:.2f} | {each:.1f} | {long.memory_mb:.0f} |"
    )


if __name__ == "__main__":
    main()
