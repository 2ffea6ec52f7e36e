"""``pyagentd upgrade`` installs a newer version, ``pyagentd install`` the packages that only some features need.

Emacs installs each version into a virtual environment of its own, all in one directory; the file ``complete.eld``
marks an environment as complete, and Emacs uses the newest one that works with its package. An upgrade makes another
such environment beside the present one, which is kept; nothing changes until it is complete. In any other environment
this prints the command that upgrades it. Extras are added to the environment that runs, whoever made it.
"""

import importlib.metadata
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from pyagentd import __version__
from pyagentd.errors import BadRequest, PyagentdError

COMPLETE = "complete.eld"
EXTRAS = {
    "acp": "other editors (the Agent Client Protocol)",
    "bedrock": "Claude at Amazon Bedrock",
    "dask": "missions on several machines",
    "epc": "scripts in Python that talk to the daemon",
    "gemini": "Gemini",
    "mcp": "servers of tools (the Model Context Protocol)",
    "otel": "traces and numbers for OpenTelemetry",
    "vertex": "Claude at Google Vertex",
    "watch": "watching files",
}


@click.command()
@click.argument("extras", metavar="[NAME]...", nargs=-1, type=click.Choice(list(EXTRAS)))
def install(extras: tuple[str, ...]) -> None:
    """Install the Python packages of a feature that a usual installation lacks; without NAME, list them."""
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
        _run(sys.executable, "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check", *packages)
    _note_complete(Path(sys.prefix), __version__)
    click.echo(f"installed {', '.join(extras)}; a daemon that runs uses it from now on")


def requirements(extra: str) -> list[str]:
    """Return what the extra of our distribution requires beyond a usual installation."""
    lines = importlib.metadata.requires("pyagentd") or []
    named = [line.partition(";")[0].strip() for line in lines if f'extra == "{extra}"' in line.replace("'", '"')]
    return [line for line in named if not line.startswith("pyagentd[")]


def is_installed(extra: str) -> bool:
    """Return whether all that the extra requires is there, in whatever version."""
    for line in requirements(extra):
        try:
            importlib.metadata.version(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0])
        except importlib.metadata.PackageNotFoundError:
            return False
    return True


def _note_complete(environment: Path, version: str) -> None:
    """Tell Emacs what an environment has, where it was Emacs that made it."""
    if (environment / COMPLETE).is_file():
        names = " ".join(f'"{name}"' for name in EXTRAS if is_installed(name))
        (environment / COMPLETE).write_text(f'(:version "{version}" :extras ({names}))')


@click.command()
@click.argument("requirement", required=False)
def upgrade(requirement: str | None) -> None:
    """Install the newest version that works with the installed Emacs package.

    REQUIREMENT is another one: a version (pyagentd[daemon]==0.2.1), or a file. Where it was not Emacs that installed
    the server, this prints the command that upgrades it. Sessions and configuration stay as they are.
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
    """Return a new environment beside ``here`` that has ``requirement``; what fails leaves nothing.

    Raises:
        PyagentdError: uv or pip failed; they have said why.
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
            _run(python, "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check", requirement)
        _run(python, "-I", "-m", "pyagentd", "--version")
    except PyagentdError:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return new


def installed_version(environment: Path) -> str:
    """Return the version of the server in ``environment``."""
    (found,) = environment.glob("[Ll]ib/**/site-packages/pyagentd-*.dist-info")
    return found.name.removeprefix("pyagentd-").removesuffix(".dist-info")


def _run(*command: str) -> None:
    _echo(command)
    if code := subprocess.run(command, cwd="/", check=False).returncode:
        hint = f"Version {__version__} is still used."
        raise PyagentdError(f"{Path(command[0]).name} ended with status {code}", hint=hint)


def _echo(command: Sequence[str]) -> None:
    click.echo(f"$ {' '.join(command)}", err=True)
