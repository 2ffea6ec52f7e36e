"""What the daemon offers its clients: one short method per operation.

A method takes the client that calls and keyword arguments, and returns plain values; how both travel is the business
of ``rpc``. Errors are those of ``errors.py``. The table ``operations`` is the whole interface.
"""

from __future__ import annotations

import json
import os
import re
import resource
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, get_args

from pyagentd import __version__
from pyagentd.agent.asks import Answer, Decision
from pyagentd.agent.authority import compile_grants
from pyagentd.agent.branch import LiveBranch
from pyagentd.agent.host import Host
from pyagentd.agent.persist import Version
from pyagentd.agent.settings import SendOptions, document_settings
from pyagentd.errors import BadRequest, NotFound, PyagentdError
from pyagentd.events import Sink
from pyagentd.policy.patterns import under
from pyagentd.policy.presets import DEFAULT_PRESET, Preset
from pyagentd.sexp import SexpError, plist_to_dict
from pyagentd.store import metadata, paths, sessions
from pyagentd.store.atomic import write_text
from pyagentd.store.paths import BranchRef
from pyagentd.store.registry import Registry

# A reply larger than this goes by file (DESIGN §5 Sizes).
INLINE_LIMIT = 512 * 1024


class Client(Sink, Protocol):
    """The caller, as far as operations care."""

    human: bool  # somebody is there to answer questions


class Service:
    """The operations, on one host."""

    def __init__(
        self, host: Host, registry: Registry, *, stop: Callable[[], None], clients: Callable[[], int]
    ) -> None:
        self._host = host
        self._registry = registry
        self._stop = stop
        self._clients = clients
        self._started = time.monotonic()

    def operations(self) -> Mapping[str, Callable[..., Awaitable[Any]]]:
        """Return every operation by its name on the wire."""
        return {
            "create-session": self.create_session,
            "resolve": self.resolve,
            "sessions": self.sessions,
            "presets": self.presets,
            "attach": self.attach,
            "detach": self.detach,
            "saved": self.saved,
            "lease": self.lease,
            "send": self.send,
            "prompt": self.prompt,
            "abort": self.abort,
            "answer": self.answer,
            "asks": self.asks,
            "show": self.show,
            "status": self.status,
            "stop": self.stop,
        }

    # -- sessions ----------------------------------------------------------------------------------------------

    async def create_session(
        self,
        client: Client,
        *,
        name: str,
        preset: str = DEFAULT_PRESET,
        root: str | None = None,
        session_dir: str | None = None,
    ) -> dict[str, Any]:
        """Create a session; with ``root`` (a project) it may read and write everything below it."""
        parsed, text = self._host.presets.template(preset)
        workspace = _directory(root) if root else None
        inside = None if workspace is None else [under(str(workspace))]
        ref = sessions.create_session(
            self._host.config.sessions_dir,
            name,
            preset_name=parsed.name,
            preset_text=text,
            paths_read=inside,
            paths_write=inside,
            clock=self._host.clock,
            session_dir=_expanded(session_dir) if session_dir else None,
        )
        self._registry.add(ref)
        async with self._host.using(ref) as branch:
            branch.record_session(workspace_root=workspace or Path.home(), agent=preset)
        return _described(ref)

    async def resolve(self, client: Client, *, name: str) -> dict[str, Any]:
        """Return the branch that an id, a prefix, ID/BRANCH or a directory means."""
        return _described(self._registry.resolve(name))

    async def sessions(self, client: Client) -> dict[str, Any]:
        """Return every branch and agent under the sessions root with what its metadata says."""
        self._registry.scan()
        return {"sessions": [self._listed(ref) for ref in self._registry.refs()]}

    async def presets(self, client: Client, *, root: str | None = None) -> dict[str, Any]:
        """Return the preset templates, the broken ones with their error; ``root`` is the project they are for."""
        return {"presets": [self._template(name, file) for name, file in self._host.presets.templates().items()]}

    async def show(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return the conversation as canonical JSON (neighbours B.10), in the reply or, when large, as a file."""
        async with self._host.using(self._ref(branch)) as live:
            live.recorder.flush()
            text = json.dumps(live.conversation.canonical(), ensure_ascii=False)
        if len(text) < INLINE_LIMIT:
            return {"json": text}
        return {"path": str(_spill(self._host.config.runtime_dir, live.ref, text))}

    # -- one branch --------------------------------------------------------------------------------------------

    async def attach(
        self,
        client: Client,
        *,
        branch: str,
        sha256: str | None = None,
        seq: int | None = None,
        mode: str = "edit",
    ) -> dict[str, Any]:
        """Watch a branch, and edit it when nobody else does, from the text that has hash ``sha256``."""
        if mode not in ("edit", "view"):
            raise BadRequest(f"{mode!r} is no mode", mend="edit or view")
        async with self._host.using(self._ref(branch)) as live:
            preset = self._host.presets.of_branch(live.ref)
            answer = await live.attach(client, sha256=sha256, seq=seq, mode="view" if mode == "view" else "edit")
            if answer is None:
                return {"branch": live.key, "reread": True}
            return {**answer, **self._described_live(live, preset)}

    async def detach(self, client: Client, *, branch: str) -> None:
        """Stop watching; a run goes on, and the daemon writes its text from now on."""
        if (live := self._host.opened(branch)) is not None:
            async with self._host.using(live.ref):
                live.detach(client)

    async def saved(self, client: Client, *, branch: str, sha256: str, seq: int, marker: int | None = None) -> None:
        """Note that the editor saved everything up to event ``seq``, the run's marker at position ``marker``."""
        offset = None if marker is None else marker - 1
        self._open(branch).saved(client, Version(sha256=sha256, seq=seq, marker=offset))

    async def lease(self, client: Client, *, branch: str, take: bool = False) -> dict[str, Any]:
        """Ask to become the editor of a branch that is attached; granted when nobody else is, or with ``take``."""
        live = self._open(branch)
        if client not in live.sinks:
            raise NotFound(f"{branch} is not attached by this client", mend="Attach it first")
        return {"editor": live.keeper.lease(client, None, take=take)}

    async def send(
        self,
        client: Client,
        *,
        branch: str,
        sha256: str,
        end: int,
        env: Mapping[str, str] | Sequence[Any] = (),
        key: str | None = None,
        allow: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Run the prompt that ends at position ``end`` of the saved document with hash ``sha256``."""
        options = _options(client, env, key, allow)
        async with self._host.using(self._ref(branch)) as live:
            run = await self._host.send(live, sha256=sha256, end=end - 1, options=options)
            return {"run": run, "seq": live.recorder.last_seq}

    async def prompt(
        self,
        client: Client,
        *,
        branch: str,
        text: str,
        env: Mapping[str, str] | Sequence[Any] = (),
        key: str | None = None,
        allow: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Run ``text`` as the next prompt; it is put at the end of the document."""
        options = _options(client, env, key, allow)
        async with self._host.using(self._ref(branch)) as live:
            run = await self._host.prompt(live, text=text, options=options)
            return {"run": run, "seq": live.recorder.last_seq}

    async def abort(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Stop the branch's run."""
        live = self._host.opened(self._ref(branch).key)
        return {"aborted": live is not None and await self._host.abort(live)}

    # -- asks --------------------------------------------------------------------------------------------------

    async def answer(self, client: Client, *, ask: str, decision: str, reason: str = "") -> dict[str, Any]:
        """Answer a question; ``accepted`` says whether this answer was the first."""
        for known in get_args(Decision):
            if decision == known:
                return {"accepted": self._host.asks.answer(ask, Answer(decision=known, reason=reason))}
        raise BadRequest(f"{decision!r} is no decision", mend="allow, deny or abort")

    async def asks(self, client: Client) -> dict[str, Any]:
        """Return all open questions."""
        return {"asks": self._host.asks.all()}

    # -- the daemon --------------------------------------------------------------------------------------------

    async def status(self, client: Client) -> dict[str, Any]:
        """Return what the daemon is doing: times in seconds, memory in bytes."""
        return {
            "pid": os.getpid(),
            "version": __version__,
            "uptime": round(time.monotonic() - self._started, 3),
            "clients": self._clients(),
            "runs": len(self._host.runs),
            "memory": _memory(),
            "sessions_dir": str(self._host.config.sessions_dir),
        }

    async def stop(self, client: Client) -> None:
        """Stop the daemon; runs in flight are aborted and recorded as such."""
        self._stop()

    # -- inside ------------------------------------------------------------------------------------------------

    def _ref(self, branch: str) -> BranchRef:
        live = self._host.opened(branch)
        return live.ref if live is not None else self._registry.resolve(branch)

    def _open(self, branch: str) -> LiveBranch:
        live = self._host.opened(branch)
        if live is None:
            raise NotFound(f"{branch} is not attached", mend="Attach it first")
        return live

    def _described_live(self, live: LiveBranch, preset: Preset) -> dict[str, Any]:
        settings = document_settings(preset)
        return {
            "session_id": live.ref.session_id,
            "agents": self._host.agents.running(live.key),
            "asks": self._host.asks.open_for(live.key),
            "preset": (metadata.read_session_metadata(live.ref.branch_dir) or {}).get("preset"),
            "model": preset.model,
            "settings": {
                "model": settings.model,
                "backend": settings.backend,
                "tools": settings.tools,
                "temperature": settings.temperature,
            },
        }

    def _listed(self, ref: BranchRef) -> dict[str, Any]:
        live = self._host.opened(ref.key)
        facts = metadata.read_session_metadata(ref.branch_dir) or {}
        return {
            **_described(ref),
            "agent": ref.is_agent,
            "preset": facts.get("preset"),
            "created": facts.get("created"),
            "state": live.status["state"] if live else "idle",
        }

    def _template(self, name: str, file: Path) -> dict[str, Any]:
        try:
            preset = self._host.presets.read(file, name)
        except PyagentdError as error:
            return {"name": name, "source": str(file), "error": str(error)}
        return {"name": name, "description": preset.description, "mode": preset.mode, "source": str(file)}


def _described(ref: BranchRef) -> dict[str, Any]:
    return {
        "session_id": ref.session_id,
        "branch_name": ref.branch_name,
        "session_dir": str(ref.session_dir),
        "branch_dir": str(ref.branch_dir),
        "branch": ref.key,
        "file": str(paths.session_file(ref.branch_dir)),
    }


def _expanded(path: str) -> Path:
    return Path(path).expanduser()


def _directory(path: str) -> Path:
    place = _expanded(path).resolve()
    if not place.is_dir():
        raise BadRequest(f"{path} is no directory", mend="Name the project's directory")
    return place


def _options(
    client: Client, env: Mapping[str, str] | Sequence[Any], key: str | None, allow: Sequence[str]
) -> SendOptions:
    try:
        grants = compile_grants(list(allow))
    except re.error as error:
        raise BadRequest(f"{error.pattern!r} is no regular expression: {error}") from None
    return SendOptions(interactive=client.human, env=_environment(env), api_key=key, grants=grants)


def _environment(env: Mapping[str, str] | Sequence[Any]) -> dict[str, str]:
    """Return the client's variables; they travel as a plist, ``(:NAME "value" …)``."""
    try:
        variables = env if isinstance(env, Mapping) else plist_to_dict(list(env))
    except SexpError as error:
        raise BadRequest(f"env is no plist of variables: {error}") from None
    return {name: str(value) for name, value in variables.items() if value is not None}


def _memory() -> int:
    """Return the resident memory of this process in bytes."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


def _spill(runtime_dir: Path, ref: BranchRef, text: str) -> Path:
    path = runtime_dir / f"show-{ref.session_id}-{ref.branch_name}.json"
    write_text(path, text, fsync=False)
    return path
