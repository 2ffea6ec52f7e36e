"""Servers of models on this machine: looks for them on their usual ports, and writes one into ``config.toml``."""

import json
import os
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

from pyagentd.config.loading import read_config_file
from pyagentd.config.tables import SERVICES
from pyagentd.errors import ConfigError
from pyagentd.store import atomic

_ASK_S = 0.5  # each port; all are asked at once
_MOST = 1 << 20  # bytes of a list


class LocalServer(NamedTuple):
    """A server that answers."""

    name: str  # of a service
    url: str
    models: tuple[str, ...]  # that can talk; not empty

    @property
    def words(self) -> str:
        """What it is and has, in words."""
        more = f" and {len(self.models) - 3} more" if len(self.models) > 3 else ""
        return f"{self.name} at {self.url} has {', '.join(self.models[:3])}{more}"


def find(env: Mapping[str, str] = os.environ) -> list[LocalServer]:
    """Return the servers that answer with a model, in the order of ``SERVICES``; takes half a second at most.

    ``OLLAMA_HOST`` says where Ollama is, as it does for Ollama itself.
    """
    places = {name: known.base_url for name, known in SERVICES.items() if known.key_env is None and known.base_url}
    if host := env.get("OLLAMA_HOST", "").strip().rstrip("/"):
        address = host.split("://")[-1].replace("0.0.0.0", "127.0.0.1")
        places["ollama"] = f"http://{address}{'' if ':' in address else ':11434'}/v1"
    with ThreadPoolExecutor(len(places)) as pool:
        listed = pool.map(_models, places.values())
    return [
        LocalServer(name, url, models) for (name, url), models in zip(places.items(), listed, strict=True) if models
    ]


def use(server: LocalServer, file: Path) -> str:
    """Have a server answer where no other backend is named: write that to the configuration and return what.

    Raises:
        ConfigError: The file has a default backend, or one of that name; or it cannot be read.
        StoreError: It cannot be written.
    """
    known = read_config_file(file)
    if "default" in known.data or server.name in known.data.get("backend", {}):
        raise ConfigError(f"{file} has [default] or [backend.{server.name}] already", hint="Edit it by hand")
    name = json.dumps(server.name)
    table = (
        f'[backend.{name}]\nkind = {name}\nbase_url = "{server.url}"\nmodel = {json.dumps(server.models[0])}\n\n'
        f"[default]\nbackend = {name}\n"
    )
    atomic.make_dirs(file.parent)
    atomic.write_text(file, f"{known.text.rstrip()}\n\n{table}" if known.text.strip() else table)
    return table


def _models(url: str) -> tuple[str, ...]:
    """Return the models that a server lists; none where nobody answers in that form."""
    request = urllib.request.Request(f"{url}/models", headers={"Authorization": "Bearer no-key"})  # as runs send it
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_ASK_S) as answer:
            listed = json.loads(answer.read(_MOST))["data"]
        names = [str(each["id"]) for each in listed]
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return ()
    return tuple(name for name in names if "embed" not in name.lower())
