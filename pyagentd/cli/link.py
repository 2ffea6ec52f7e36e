"""Connections of commands to the daemon: connect, start it if it does not run, and look up a session.

The daemon resolves a SESSION argument, so that a prefix means the same everywhere; only a relative path is made
absolute here, since the daemon has another working directory.
"""

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from pyagentd import config, installation, llm, store
from pyagentd.config import runtime_dir, sessions_dir
from pyagentd.errors import ConfigError, Unreachable
from pyagentd.wire.client import DaemonClient, connect
from pyagentd.wire.lifecycle import LOG

_CALL_S = 900.0  # timeout of a call: a very long conversation is summarised in pieces
_START_S = 60.0  # timeout for the start of a daemon
_LOST_RACE_S = 1.0  # timeout for the answer of another daemon that started first
_POLL_S = 0.01

# The variables that a run gets from the client's environment; never the whole environment.
_SENT = ("PYAGENTD_BACKEND", "ANTHROPIC_BASE_URL", "PATH")


@contextmanager
def daemon(*, start: bool = True, human: bool = False, name: str = "") -> Iterator[DaemonClient]:
    """Connect to the daemon for the time of the block.

    Args:
        start: Start a detached daemon when none answers.
        human: A human can answer asks here.
        name: The name of this client, if not the program's.

    Raises:
        Unreachable: No daemon answers, and it should not or could not be started.
        ConfigError: The running daemon serves another sessions directory.
    """
    # Uses the environment only: a running daemon is reachable despite an error in the configuration.
    runtime = runtime_dir()
    try:
        link = connect(runtime, human=human, name=name, is_json=True)
    except Unreachable as error:
        if not start:
            raise Unreachable(error.message, hint="`pyagentd serve --detach` starts one") from None
        config.load_config()  # report its errors as such, not as a failed start
        link = _start_daemon(runtime, human=human, name=name)
    with link:
        if start:  # other calls are quick, and a daemon that hangs should be reported soon
            link.timeout = _CALL_S
        served, wanted = link.greeting["sessions_dir"], sessions_dir()
        if start and Path(served).resolve() != wanted.resolve():
            raise ConfigError(
                f"The daemon serves the sessions in {served}, not {wanted}",
                hint="Give each sessions directory a PYAGENTD_RUNTIME_DIR of its own, or run `pyagentd stop` first",
            )
        yield link


def _start_daemon(runtime: Path, *, human: bool, name: str) -> DaemonClient:
    """Start a daemon that outlives this process, and connect to it or to another one that started first."""
    # -P: do not import a directory named pyagentd in the working directory.
    command = (sys.executable, "-P", "-m", "pyagentd", "serve", "--detach")
    try:
        started = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_START_S,
            check=False,
        )
        reason = started.stderr.decode(errors="replace").strip().rpartition("\n")[2].removeprefix("pyagentd: ")
    except subprocess.TimeoutExpired:
        reason = f"it does not serve after {_START_S:g} s"
    deadline = time.monotonic() + _LOST_RACE_S
    while True:
        try:
            return connect(runtime, human=human, name=name, is_json=True)
        except Unreachable as error:
            if time.monotonic() > deadline:
                why = reason.rstrip(".") or error.message
                raise Unreachable(f"The daemon did not start: {why}", hint=f"See {runtime / LOG}") from error
        time.sleep(_POLL_S)


@contextmanager
def session_link(session: str, *, start: bool = True, human: bool = False) -> Iterator[tuple[DaemonClient, str]]:
    """Connect to the daemon for the time of the block; yield the link and the branch that ``session`` names."""
    with daemon(start=start, human=human) as link:
        yield link, str(branch_of(link, session))


def branch_of(link: DaemonClient, session: str) -> Path:
    """Return the branch directory that ``session`` names: an id, a prefix of one, ID/BRANCH, or a path."""
    is_place = session.startswith((".", "~"))
    name = str(Path(os.path.expanduser(session)).absolute()) if is_place else session  # noqa: PTH111 - Path raises
    return Path(link.call("resolve", name=name)["branch_dir"])


def watch(link: DaemonClient, branch_dir: Path) -> Mapping[str, Any]:
    """Subscribe to the events of a branch; return the reply of ``attach``."""
    state: Mapping[str, Any] = link.call("attach", branch=str(branch_dir))
    return state


def watched_run(link: DaemonClient, session: str) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Attach to ``session``; return its state, and the arguments for a call that begins a run: branch and env."""
    state = watch(link, branch_of(link, session))
    env = run_environment(os.environ, state["settings"]["backend"])
    return state, {"branch": state["branch"], "env": env}


def session_filter(link: DaemonClient, session: str | None) -> str | None:
    """Return a list's filter for ``session``: a path's branch, or a name unchanged (it may be a deleted session)."""
    return str(branch_of(link, session)) if session and session.startswith((".", "~")) else session


def json_text(answer: Mapping[str, Any]) -> str:
    """Return the JSON of a reply, from a file if it is too large for a frame."""
    return answer.get("json") or Path(answer["path"]).read_text("utf-8")


def rows_of(answer: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the rows under ``name`` of a reply, from a JSON file if they are too large for a frame."""
    path = answer.get("path")
    rows: list[dict[str, Any]] = (json.loads(Path(path).read_bytes()) if path else answer)[name]
    return rows


def run_environment(env: Mapping[str, str], backend: str = "") -> dict[str, str]:
    """Return the variables of ``env`` for a run, and the key of ``backend`` if ``env`` has it.

    A key is sent only for the backend that is configured to use it, never to another server. Without ``backend`` it
    is the default one.
    """
    try:
        loaded = config.load_config(env)
        named = env.get("PYAGENTD_BACKEND") or backend or loaded.default.backend or "anthropic"
        known = loaded.backend(named)
    except ConfigError:  # the run will report it
        return {name: env[name] for name in _SENT if name in env}
    return {name: env[name] for name in (*_SENT, known.key_env) if name and name in env}


def complete_session(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of sessions that begin with ``incomplete``, from the disk."""
    found: list[str] = importlib.import_module("pyagentd.cli.completion").session_ids(incomplete)
    return found


def complete_named(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of named agents that begin with ``incomplete``, from the disk."""
    try:
        files = config.load_config().agents_dir.glob(f"*/{store.named_agents.AGENT_FILE}")
    except ConfigError:
        return []
    return sorted(file.parent.name for file in files if file.parent.name.startswith(incomplete))


def complete_model(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the models that begin with ``incomplete``, see ``models_known``."""
    return [CompletionItem(name, help=words) for name, words in models_known().items() if name.startswith(incomplete)]


def models_known() -> dict[str, str]:
    """Return the names of listed and known models, each with its known facts as text."""
    try:
        loaded = config.load_config()
    except ConfigError:
        return {}
    offline = {name for name, each in loaded.backends.items() if each.kind == "offline"}
    listed = {
        name: each.models for name, each in store.modellists.read(loaded.sessions_dir).items() if name not in offline
    }
    own = {name: (*filter(None, (each.model,)), *each.models) for name, each in loaded.backends.items()}
    found: dict[str, str] = {}
    for backends in (own, listed, {"anthropic": llm.catalog.shipped_models()}):
        for backend, names in backends.items():
            for name in names:
                known = llm.catalog.words(llm.catalog.facts(name, loaded, backend=backend).to_wire())
                found.setdefault(name, ", ".join(filter(None, (backend, known))))
    return found


def complete_agent(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the shipped and the user's presets that begin with ``incomplete``; starts no daemon."""
    try:
        own = [config.load_config().presets_dir]
    except ConfigError:
        own = []
    return sorted(
        name
        for name in store.presetfile.find_templates([installation.shipped("presets"), *own])
        if name.startswith(incomplete)
    )
