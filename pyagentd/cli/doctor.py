"""The installation: ``pyagentd doctor`` checks it, ``upgrade`` and ``install`` change it."""

import importlib.metadata
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import click

from pyagentd import __version__
from pyagentd.api.models import misspelt
from pyagentd.cli.link import daemon
from pyagentd.cli.models import find as local_servers
from pyagentd.cli.output import ExitCode, colour, json_option, print_json
from pyagentd.config import BackendSettings, Config, load_config
from pyagentd.config.tables import is_address
from pyagentd.errors import BadRequest, ConfigError, PyagentdError, Unreachable
from pyagentd.features.hooks import problem_of
from pyagentd.installation import shipped
from pyagentd.policy.presets import parse_preset
from pyagentd.runtime.presets import configured_profiles
from pyagentd.runtime.system_prompt import skills_of
from pyagentd.store.presetfile import content, decode, find_templates
from pyagentd.tools.mcp.connection import ServerVariables, launch
from pyagentd.tools.sandbox import enclosure
from pyagentd.wire.frames import PROTOCOL

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "missing": ("✗", "red")}


@click.command()
@click.option("--no-emacs", is_flag=True, help="Do not check Emacs (Emacs itself runs this).")
@json_option
def doctor(no_emacs: bool, as_json: bool) -> int:
    """Check the installation. Exits 1 if something needed is missing.

    Starts nothing and changes nothing.
    """
    findings = []
    for finding in all_checks(emacs=not no_emacs):
        findings.append(finding)
        if not as_json:
            mark, shade = _MARKS[finding.level]
            click.echo(
                f"{click.style(mark, fg=shade) if colour(sys.stdout) else mark} {finding.name}: {finding.detail}"
            )
            if finding.hint:
                click.echo(f"    {finding.hint}")
    well = all(finding.level != "missing" for finding in findings)
    if as_json:
        checks = [finding._asdict() for finding in findings]
        print_json({"ok": well, "version": __version__, "protocol": PROTOCOL, "checks": checks})
    return ExitCode.DONE if well else ExitCode.FAILED


# The checks of ``pyagentd doctor``; each yields findings and changes nothing.
#
# A check never raises: what it cannot determine is a finding too.

Level = Literal["ok", "warning", "missing"]

_EMACS_MINIMUM = (28, 1)
_EMACS_S = 20.0
_NETWORK_S = 2.0
_INSTALL_BUBBLEWRAP = "sudo apt-get install -y bubblewrap"
_PROBE = """(progn (require 'package) (package-initialize)
  (princ (format "%s\\t%s" emacs-version (locate-library "markdown-mode"))))"""


class Finding(NamedTuple):
    """One finding of a check."""

    name: str
    level: Level  # "missing": pyagentd does not work without it
    detail: str
    hint: str = ""  # how to fix it


def all_checks(*, emacs: bool = True) -> Iterator[Finding]:
    """Yield every finding, in order of dependency; ``emacs`` is false when Emacs itself runs the checks."""
    # A Python that is too old does not get this far.
    yield Finding("python", "ok", f"{'.'.join(map(str, sys.version_info[:3]))} ({sys.executable})")
    yield from check_packages()
    if emacs:
        yield from check_emacs()
    try:
        config = load_config()
    except PyagentdError as error:
        yield Finding("configuration", "missing", error.message, error.hint or "Edit the file")
        return
    yield Finding(
        "configuration", "ok", str(config.file) + ("" if config.file.exists() else " (not there; defaults)")
    )
    yield check_directory("runtime directory", config.runtime_dir, private=True)
    yield check_directory("sessions directory", config.sessions_dir, private=False)
    yield check_confinement(config)
    yield check_daemon(config)
    yield from check_backend(config)
    yield from check_presets(config)
    yield from check_skills(config)
    yield from check_hooks(config)
    yield from check_servers(config)


def check_packages() -> Iterator[Finding]:
    """Check that the package's requirements are installed."""
    try:
        required = importlib.metadata.requires("pyagentd") or []
    except importlib.metadata.PackageNotFoundError:
        yield Finding(
            "packages", "missing", "pyagentd itself is not installed", f"{sys.executable} -m pip install -e ."
        )
        return
    of_others = re.compile(r'extra == "(?!daemon"|anthropic")')
    absent = [name for line in required if not of_others.search(line) and (name := _absent(line))]
    if absent:
        line = f"{sys.executable} -m pip install {' '.join(absent)}"
        yield Finding("packages", "missing", ", ".join(absent), line)
    else:
        yield Finding("packages", "ok", "all that it needs are installed")


def _absent(requirement: str) -> str:
    """Return the name of a required package that is not installed in any version, or ""."""
    name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return name
    return ""


def check_emacs() -> Iterator[Finding]:
    """Check Emacs and the Emacs packages that it needs, by running it."""
    name = os.environ.get("EMACS") or "emacs"
    emacs = shutil.which(name)
    if emacs is None:
        yield Finding("emacs", "missing", f"{name} is not on PATH", "sudo apt-get install -y emacs-nox")
        return
    command = [emacs, "--batch", "--eval", _PROBE]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=_EMACS_S, check=True, cwd="/")
        version, markdown = asked.stdout.strip().split("\t")
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        yield Finding("emacs", "missing", f"{emacs} does not start: {error}", f"{emacs} --batch --version")
        return
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers < _EMACS_MINIMUM:
        yield Finding("emacs", "missing", f"{version} is too old", "Install Emacs 28.1 or newer")
    else:
        yield Finding("emacs", "ok", f"{version} ({emacs})")
    if markdown == "nil":
        yield Finding("emacs markdown-mode", "warning", "not installed", "sudo apt-get install -y elpa-markdown-mode")
    else:
        yield Finding("emacs markdown-mode", "ok", markdown)


def check_directory(name: str, path: Path, *, private: bool) -> Finding:
    """Check that we can write to the directory ``path``, or create it; a private one must belong only to us."""
    try:
        found = path.stat()
    except FileNotFoundError:
        parent = next(parent for parent in path.parents if parent.exists())
        if os.access(parent, os.W_OK):
            return Finding(name, "ok", f"{path} (created when needed)")
        return Finding(name, "missing", f"{path} cannot be created", f"sudo install -d -m 700 -o $USER {path}")
    except OSError as error:
        return Finding(name, "missing", f"{path}: {error.strerror}", f"ls -ld {path}")
    if not stat.S_ISDIR(found.st_mode):
        return Finding(name, "missing", f"{path} is not a directory", f"mv {path} {path}.old")
    if private and found.st_uid != os.getuid():
        return Finding(name, "missing", f"{path} is owned by another user", f"sudo chown $USER {path}")
    if private and stat.S_IMODE(found.st_mode) & 0o077:
        return Finding(name, "missing", f"{path} is accessible to other users", f"chmod 700 {path}")
    if not os.access(path, os.W_OK | os.X_OK):
        return Finding(name, "missing", f"{path} is not writable", f"chmod u+rwx {path}")
    return Finding(name, "ok", str(path))


def check_confinement(config: Config) -> Finding:
    """Try the confinement that keeps agents' commands inside their scope."""
    found = enclosure.confinement(config.shell.confinement)
    setting = config.settings["shell.confinement"]
    if config.shell.confinement == "off":
        return Finding("confinement", "warning", f"{enclosure.describe_mechanism(None)} Off by {setting.source}")
    if found is None and config.shell.confinement != "auto":
        detail = f"{config.shell.confinement} ({setting.source}) does not work here; no command will run"
        return Finding("confinement", "missing", detail, _INSTALL_BUBBLEWRAP)
    return Finding(
        "confinement",
        "ok" if found == "bubblewrap" else "warning",
        enclosure.describe_mechanism(found),
        "" if found == "bubblewrap" else _INSTALL_BUBBLEWRAP,
    )


def check_daemon(config: Config) -> Finding:
    """Check whether a daemon answers; without one all is well, since it starts on demand."""
    try:
        with daemon(start=False) as link:
            state = link.call("status")
    except Unreachable as error:
        if (config.runtime_dir / "daemon.eld").exists():
            return Finding(
                "daemon",
                "warning",
                f"not running; the last one left its files: {error.message}",
                "pyagentd serve --detach",
            )
        return Finding("daemon", "ok", "not running (starts on demand)")
    except (PyagentdError, OSError) as error:
        return Finding("daemon", "missing", str(error), "pyagentd stop; pyagentd serve --detach")
    running = f"running (pid {state['pid']}, version {state.get('version')})"
    if state.get("version") != __version__:
        return Finding("daemon", "warning", f"{running}; this is version {__version__}", "pyagentd stop")
    return Finding("daemon", "ok", running)


def check_backend(config: Config) -> Iterator[Finding]:
    """Check the default backend: its key, and whether its server is reachable."""
    try:
        backend = config.backend(config.backend_override or config.default.backend or "anthropic")
    except PyagentdError as error:
        yield Finding("backend", "missing", error.message, error.hint)
        return
    if backend.kind == "offline":
        yield Finding("backend", "ok", f"{backend.name}: a stand-in, no language model; needs no key")
        return
    if backend.kind in EXTRAS and not is_installed(backend.kind):
        detail = f"{backend.name} needs packages that are not installed"
        yield Finding("backend", "missing", detail, f"pyagentd install {backend.kind}")
    key = _key(backend)
    yield key
    if backend.kind in ("bedrock", "vertex") and not backend.base_url:
        yield Finding("backend", "ok", f"{backend.name}: {EXTRAS[backend.kind]}, whose SDK knows the address")
    else:
        yield _server(backend)
    if key.level != "ok":
        for each in local_servers():
            yield Finding("local models", "ok", each.words, "To use them: pyagentd models --local --use")


def _key(backend: BackendSettings) -> Finding:
    if backend.key_env is None or not backend.needs_key:
        return Finding("key", "ok", f"not needed for {backend.name}")
    if os.environ.get(backend.key_env):
        return Finding("key", "ok", f"${backend.key_env} is set")
    line = (
        f"export {backend.key_env}=…, or put it into ~/.authinfo.gpg; without a key: export PYAGENTD_BACKEND=offline"
    )
    return Finding("key", "warning", f"${backend.key_env} is not set (Emacs may have it in auth-source)", line)


def _server(backend: BackendSettings) -> Finding:
    address = backend.base_url or "https://api.anthropic.com"
    if not is_address(address):
        return Finding(
            "backend", "missing", f"{backend.name}: {address!r} is not an HTTP address", "Correct base_url"
        )
    url = urlsplit(address)
    try:
        place = (url.hostname or "", url.port or (443 if url.scheme == "https" else 80))
        with socket.create_connection(place, timeout=_NETWORK_S):
            pass
    except OSError as error:
        return Finding("backend", "warning", f"{backend.name} at {address} is not reachable: {error}", "")
    return Finding("backend", "ok", f"{backend.name} at {address}")


def check_servers(config: Config) -> Iterator[Finding]:
    """Check that the variables and programs of the user's MCP servers exist; start none."""
    for problem in config.mcp_problems:
        yield Finding("mcp servers", "warning", problem, "Correct it in config.toml, or: pyagentd mcp remove NAME")
    around = ServerVariables(
        root=Path.home(),
        apart=config.runtime_dir,
        variable=lambda name: os.environ.get(name, ""),
        keys=config.key_variables,
    )
    good = []
    for each in (server for server in config.mcp if server.enabled):
        try:
            command = launch(each, around).command
        except ConfigError as error:
            yield Finding(f"mcp {each.name}", "warning", error.message, error.hint)
            continue
        if command and not shutil.which(command[0]):
            detail = f"program {command[0]} not found ({each.source})"
            yield Finding(f"mcp {each.name}", "warning", detail, "Install it, or set enabled = false there")
        else:
            good.append(each.name)
    if good:
        yield Finding("mcp servers", "ok", f"{', '.join(good)} (pyagentd mcp test NAME tries one)")


def check_hooks(config: Config) -> Iterator[Finding]:
    """Check that the programs of the user's hooks exist; run none."""
    for hook in config.hooks:
        if problem := problem_of(hook, config.file.parent):
            yield Finding(f"hook {hook.event}", "warning", problem, f"Correct it in {hook.source}")


def check_skills(config: Config) -> Iterator[Finding]:
    """Check that the user's skills can be read, and exist where the configuration says."""
    for place in config.own.more_skills:
        if not place.is_dir():
            detail = f"{place} is not a directory ({config.settings['skills.paths'].source})"
            yield Finding("skills", "warning", detail, "Correct [skills] paths there")
    for file, error in skills_of(config, None).broken:
        yield Finding(f"skill {file.parent.name}", "warning", error.message, error.hint or f"$EDITOR {file}")


def check_presets(config: Config) -> Iterator[Finding]:
    """Check that every preset can be read, and for keys and tools that are probably misspelt."""
    templates = find_templates([shipped("presets"), config.presets_dir])
    source = config.settings["presets.dir"].source
    broken = source != "default" and not config.presets_dir.is_dir()
    if broken:
        detail = f"{config.presets_dir} is not a directory ({source})"
        yield Finding("presets", "warning", detail, f"mkdir -p {config.presets_dir}, or correct [presets] dir there")
    for name, path in templates.items():
        try:
            file = decode(content(path, links=True), path)
            parse_preset(name, file.front, file.body, str(path), profiles=configured_profiles(config))
        except PyagentdError as error:
            broken = True
            yield Finding(f"preset {name}", "missing", error.message, error.hint or f"$EDITOR {path}")
            continue
        for line, text in misspelt(file.front):
            broken = True
            yield Finding(f"preset {name}", "warning", f"{path}:{line}: {text}", f"$EDITOR +{line} {path}")
    if not templates:
        yield Finding("presets", "missing", f"none in {shipped('presets')}", "Reinstall the package: make setup")
    elif not broken:
        yield Finding("presets", "ok", ", ".join(sorted(templates)))


# ``pyagentd upgrade`` installs a newer version, ``pyagentd install`` packages that only some features need.
#
# Emacs installs each version into its own virtual environment, all in one directory. ``complete.eld`` marks an
# environment as complete, and Emacs uses the newest that works with its package. An upgrade creates another
# environment beside the current one, which is kept; nothing changes until the new one is complete. In an environment
# that Emacs did not create, this prints the command that upgrades it. Extras are added to the current environment.

COMPLETE = "complete.eld"
_PIP_INSTALL = ("-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check")
EXTRAS = {
    "acp": "other editors (the Agent Client Protocol)",
    "bedrock": "Claude at Amazon Bedrock",
    "dask": "missions on several machines",
    "epc": "scripts in Python that talk to the daemon",
    "mcp": "servers of tools (the Model Context Protocol)",
    "otel": "traces and numbers for OpenTelemetry",
    "vertex": "Claude at Google Vertex",
    "watch": "watching files",
}


@click.command()
@click.argument("extras", metavar="[NAME]...", nargs=-1, type=click.Choice(list(EXTRAS)))
def install(extras: tuple[str, ...]) -> None:
    """Install the optional Python packages of the feature NAME; without NAME, list the features."""
    if not extras:
        for name, words in EXTRAS.items():
            click.echo(f"{name:8} {'installed' if is_installed(name) else '-':9}  {words}")
        return
    if sys.prefix == sys.base_prefix:
        wanted = " ".join(f"'{each}'" for name in extras for each in requirements(name))
        raise BadRequest("This Python is the system's own", hint=f"Install with its package manager: {wanted}")
    packages = sorted({each for name in extras for each in requirements(name)})
    if uv := shutil.which("uv"):
        _run(uv, "pip", "install", "--python", sys.executable, *packages)
    else:
        _run(*pip_install(sys.executable), *packages)
    _note_complete(Path(sys.prefix), __version__)
    click.echo(f"installed {', '.join(extras)}; a daemon that runs uses it from now on")


def requirements(extra: str) -> list[str]:
    """Return the packages that an extra of our distribution adds to a usual installation."""
    lines = importlib.metadata.requires("pyagentd") or []
    named = [line.partition(";")[0].strip() for line in lines if f'extra == "{extra}"' in line.replace("'", '"')]
    return [line for line in named if not line.startswith("pyagentd[")]


def is_installed(extra: str) -> bool:
    """Return whether all packages of an extra are installed, in any version."""
    return not any(map(_absent, requirements(extra)))


def _note_complete(environment: Path, version: str) -> None:
    """Record the contents of an environment for Emacs, if Emacs created it."""
    if (environment / COMPLETE).is_file():
        names = " ".join(f'"{name}"' for name in EXTRAS if is_installed(name))
        (environment / COMPLETE).write_text(f'(:version "{version}" :extras ({names}))')


@click.command()
@click.argument("requirement", required=False)
def upgrade(requirement: str | None) -> None:
    """Install the newest version that works with the installed Emacs package.

    REQUIREMENT selects another version (pyagentd[daemon]==0.2.1) or a file. If the server was not installed by Emacs,
    this prints the command that upgrades it. Sessions and configuration are not changed.
    """
    here = Path(sys.prefix)
    if not (here / COMPLETE).is_file():
        click.echo(f"This server was not installed from Emacs. To upgrade it:\n    {other_way(here)}")
        return
    extras = ",".join(["daemon", *filter(is_installed, EXTRAS)])
    new = install_beside(here, requirement or f"pyagentd[{extras}]~={__version__}")
    version = installed_version(new)
    shutil.copy(here / COMPLETE, new)
    _note_complete(new, version)
    for old in here.parent.iterdir():
        if old.name[:1].isdigit() and old not in (here, new):
            shutil.rmtree(old, ignore_errors=True)
    click.echo(f"installed {version} (this was {__version__}) into {new}")
    click.echo("`pyagentd stop` ends the daemon of before; the next command starts the new one")


def other_way(prefix: Path) -> str:
    """Return the command that upgrades the environment at ``prefix``."""
    checkout = Path(__file__).resolve().parents[2]
    if (prefix / "uv-receipt.toml").is_file():
        return "uv tool upgrade pyagentd"
    if (prefix / "pipx_metadata.json").is_file():
        return "pipx upgrade pyagentd"
    if (checkout / "pyproject.toml").is_file():
        return f"git -C {checkout} pull && make -C {checkout} setup"
    return f"{sys.executable} -m pip install --upgrade 'pyagentd[daemon]'"


def install_beside(here: Path, requirement: str) -> Path:
    """Create a new environment with ``requirement`` beside ``here`` and return it; a failure leaves no files.

    Raises:
        PyagentdError: uv or pip failed; they have printed the reason.
    """
    names = (f"{__version__}-{number}" for number in range(2, 10_000))
    new = next(path for name in names if not (path := here.parent / name).exists())
    python = str(new / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python"))
    try:
        if uv := shutil.which("uv"):
            _run(uv, "venv", "--no-project", "--python", getattr(sys, "_base_executable", sys.executable), str(new))
            _run(uv, "pip", "install", "--python", python, requirement)
        else:
            _run(sys.executable, "-I", "-m", "venv", str(new))
            _run(python, *_PIP_INSTALL, requirement)
        _run(python, "-I", "-m", "pyagentd", "--version")
    except PyagentdError:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return new


def pip_install(python: str) -> tuple[str, ...]:
    """Return the command that installs packages beside ``python``, with a pip first where Emacs has left it out."""
    if subprocess.run([python, "-I", "-c", "import pip"], cwd="/", capture_output=True, check=False).returncode:
        _run(python, "-I", "-m", "ensurepip")
    return (python, *_PIP_INSTALL)


def installed_version(environment: Path) -> str:
    """Return the version of the server in ``environment``."""
    (found,) = environment.glob("[Ll]ib/**/site-packages/pyagentd-*.dist-info")
    return found.name.removeprefix("pyagentd-").removesuffix(".dist-info")


def _run(*command: str) -> None:
    click.echo(f"$ {' '.join(command)}", err=True)
    if code := subprocess.run(command, cwd="/", check=False).returncode:
        hint = f"Version {__version__} is still used."
        raise PyagentdError(f"{Path(command[0]).name} ended with status {code}", hint=hint)
