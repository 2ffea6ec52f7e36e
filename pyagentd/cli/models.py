"""``pyagentd models``: the available models, including those of servers on this machine."""

import json
import os
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple

import click

from pyagentd import regularfile
from pyagentd.cli.link import daemon, run_environment
from pyagentd.cli.output import ExitCode, json_option, print_json, print_reply
from pyagentd.config import config_file
from pyagentd.config.loading import read_config_file
from pyagentd.config.tables import SERVICES
from pyagentd.errors import ConfigError
from pyagentd.llm import catalog
from pyagentd.store import atomic, configfile
from pyagentd.words import printable

DAEMON_NOTE = ". The daemon reads it when it starts: pyagentd stop lets the next command start a new one"

_LARGEST = 20_000_000  # bytes of a table of models
_LONGEST_S = 60.0  # for a table on the web


@click.command()
@click.option("--refresh", is_flag=True, help="Ask the providers again, even if they were asked today.")
@click.option("--local", is_flag=True, help="Look for servers on this machine instead: Ollama, llama.cpp and others.")
@click.option("--use", is_flag=True, help="Make the first server found the default backend, in config.toml.")
@click.option(
    "--catalogue",
    metavar="[FILE|URL]",
    is_flag=False,
    flag_value=catalog.SOURCE,
    help="Renew prices, windows and abilities from LiteLLM's table: theirs on the web, or FILE.",
)
@json_option
def models(refresh: bool, local: bool, use: bool, catalogue: str | None, as_json: bool) -> int:
    """List the models that your API keys give access to, with their known facts.

    Each provider is asked at most once a day. If it cannot be asked, known names are listed.
    """
    if local or use:
        return _local(apply=use, as_json=as_json)
    if catalogue is not None:
        return _renew(catalogue, as_json=as_json)
    env = run_environment(os.environ)
    with daemon() as link:
        reply = link.call("models", refresh=refresh, env=env)
    found: list[dict[str, Any]] = reply["providers"]
    print_reply(
        {each["name"]: {name: each[name] for name in each if name != "name"} for each in found},
        printable(catalog.provider_lines(found)),
        as_json=as_json,
    )
    return ExitCode.DONE


def _renew(source: str, *, as_json: bool) -> int:
    made = catalog.catalogue_of(_fetch(source))
    file = catalog.catalogue_file(config_file(os.environ))
    atomic.make_dirs(file.parent)
    atomic.write_text(file, catalog.catalogue_text(made))
    text = f"{file} knows {len(made)} models now{DAEMON_NOTE}."
    print_reply({"file": str(file), "models": len(made)}, text, as_json=as_json)
    return ExitCode.DONE


def _fetch(source: str) -> bytes:
    try:
        if not source.startswith(("https://", "http://")):
            return regularfile.read_bytes(Path(source), limit=_LARGEST, links=True)
        with urllib.request.urlopen(source, timeout=_LONGEST_S) as answer:
            data: bytes = answer.read(_LARGEST)
    except (OSError, HTTPException, ValueError) as error:
        hint = "Nothing has changed. To use a file that you downloaded: pyagentd models --catalogue FILE"
        raise ConfigError(f"{source} cannot be read ({error})", hint=hint) from error
    return data


def _local(*, apply: bool, as_json: bool) -> int:
    """Print the servers on this machine; exit 1 if there is none."""
    found = find()
    if as_json:
        print_json([each._asdict() for each in found])
    elif not found:
        click.echo("No server of models answers on the usual ports of this machine.")
    for each in () if as_json else found:
        click.echo(printable(each.words))
    if found and apply:
        written = use(found[0], file := config_file(os.environ))
        click.echo(f"\nAdded to {file}{DAEMON_NOTE}.\n\n{written}", err=as_json)
    return ExitCode.DONE if found else ExitCode.FAILED


# Model servers on this machine: found on their usual ports; one of them can be added to ``config.toml``.

_ASK_S = 0.5  # timeout for a port; all are asked in parallel
_MOST = 1 << 20  # bytes of a server's list


class LocalServer(NamedTuple):
    """A local server that answered."""

    name: str  # of a service
    url: str
    models: tuple[str, ...]  # chat models; not empty

    @property
    def words(self) -> str:
        """A description of the server and its models."""
        more = f" and {len(self.models) - 3} more" if len(self.models) > 3 else ""
        return f"{self.name} at {self.url} has {', '.join(self.models[:3])}{more}"


def find(env: Mapping[str, str] = os.environ) -> list[LocalServer]:
    """Return the local servers that list a model, in the order of ``SERVICES``; takes half a second at most.

    ``OLLAMA_HOST`` is the address of Ollama, as for Ollama itself.
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
    """Make a server the default backend: append it to the configuration and return the appended text.

    Raises:
        ConfigError: The file has a default backend, or a backend of that name; or it cannot be read.
        StoreError: The file cannot be written.
    """
    known = read_config_file(file)
    if "default" in known.data or server.name in known.data.get("backend", {}):
        raise ConfigError(f"{file} has [default] or [backend.{server.name}] already", hint="Edit it by hand")
    backend = {"kind": server.name, "base_url": server.url, "model": server.models[0]}
    table = configfile.table(("backend", server.name), backend)
    table += "\n" + configfile.table(("default",), {"backend": server.name})
    configfile.append(file, table)
    return table


def _models(url: str) -> tuple[str, ...]:
    """Return the models that a server lists; empty if none answers in the expected form."""
    request = urllib.request.Request(f"{url}/models", headers={"Authorization": "Bearer no-key"})  # as runs send it
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_ASK_S) as answer:
            listed = json.loads(answer.read(_MOST))["data"]
        names = [str(each["id"]) for each in listed]
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return ()
    return tuple(name for name in names if "embed" not in name.lower())
