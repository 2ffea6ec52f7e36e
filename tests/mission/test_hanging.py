"""A mission whose tool or model never answers ends at its deadline, and nothing keeps Python from exiting."""

import subprocess
import sys

import pytest

_SETUP = """
import asyncio, sys, threading
from pyagentd.mission import Scripted, adelegate, delegate

def blocking(): threading.Event().wait()
async def awaiting(): await asyncio.Event().wait()
async def stubborn():
    while True:
        try: await asyncio.Event().wait()
        except asyncio.CancelledError: threading.Event().wait()
def programs(): return Scripted(['(call "hang" {})'] * 9)
def parallel(): return Scripted(['(pmap (fn [n] (call "hang" {})) [1 2 3])'] * 9)
def silent(request): threading.Event().wait()
options = {"mission_timeout_s": 0.3, "isolation": ISOLATION}
"""
_CALLS = {
    "sync": 'step = delegate("Go.", llm=programs(), tools={"hang": TOOL}, **options)',
    "async": 'step = asyncio.run(adelegate("Go.", llm=programs(), tools={"hang": TOOL}, **options))',
    "parallel": 'step = delegate("Go.", llm=parallel(), tools={"hang": TOOL}, **options)',
    "parallel, async": 'step = asyncio.run(adelegate("Go.", llm=parallel(), tools={"hang": TOOL}, **options))',
    "model": 'step = delegate("Go.", llm=silent, **options)',
    "model, async": 'step = asyncio.run(adelegate("Go.", llm=silent, **options))',
}
_CASES = [
    (call, tool, isolation)
    for call in _CALLS
    for tool in (["blocking"] if "model" in call else ["blocking", "awaiting"])
    for isolation in ("none", "process")
]


@pytest.mark.parametrize(("call", "tool", "isolation"), _CASES)
def test_it_ends_at_its_deadline_and_the_process_exits(call: str, tool: str, isolation: str) -> None:
    report = "\nprint(step.fail.reason, step.usage.duration_ms)"
    script = _SETUP.replace("ISOLATION", repr(isolation)) + _CALLS[call].replace("TOOL", tool) + report
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    reason, took_ms = run.stdout.split()
    assert reason == "mission_timeout"
    assert 300 <= int(took_ms) < 30_000
