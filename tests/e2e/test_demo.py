"""The demo that README promises: the main job through two batch Emacsen, without a key."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.server import ModelServer, answer

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_runs_the_main_job_without_a_key(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "OLLAMA_HOST": "127.0.0.1:9", "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    command = ["bash", str(ROOT / "scripts" / "demo.sh")]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert "the offline stand-in answers" in said
    assert "asked: tool:PersistentAgent:explorer" in said
    assert "overlay: Explorer Task: look at presets/*.md  Waiting..." in said
    assert "Calling Tools... (+1)" in said
    first, second = said.split("Emacs, the second: find-file")
    assert "agents/explorer-" in first
    conversation = second.split("The conversation")[1]
    assert conversation.count("### What presets are there") == 1
    assert "### Thank you. And how long is README.md?" in conversation
    assert "The agent's own" in conversation


def test_the_demo_has_a_server_of_this_machine_answer_when_told(tmp_path: Path, model_server: ModelServer) -> None:
    model_server.models = ("qwen3",)
    model_server.rule = lambda request: answer("There are ten.")
    env = {"HOME": str(tmp_path), "LANG": "C.UTF-8", "PATH": os.environ["PATH"], "LOCAL": "1"}
    env["OLLAMA_HOST"] = model_server.url
    command = ["bash", str(ROOT / "scripts" / "demo.sh")]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert f"a server on this machine: ollama at {model_server.url}/v1 has qwen3" in done.stdout, done.stderr
    assert 'Its model answers: "qwen3"' in done.stdout
    assert model_server.last.body["model"] == "qwen3"
