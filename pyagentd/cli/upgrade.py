"""``pyagentd upgrade``: installs a newer version where Emacs installed this one; elsewhere says which command does.

What Emacs installs is a virtual environment for each version, in one directory; ``complete.eld`` in it says that it
is whole, and Emacs takes the newest that works with its package. So an upgrade is another such environment beside
this one: until it is complete nothing changes, and the one before is kept.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from pyagentd import __version__
from pyagentd.errors import PyagentdError

COMPLETE = "complete.eld"


@click.command()
@click.argument("requirement", default=f"pyagentd[full]~={__version__}")
def upgrade(requirement: str) -> None:
    """Install the newest version that works with the installed Emacs package.

    REQUIREMENT is another one: a version (pyagentd[full]==0.2.1), or a file. Where it was not Emacs that installed
    the server, this prints the command that upgrades it. Sessions and configuration stay as they are.
    """
    here = Path(sys.prefix)
    if not (here / COMPLETE).is_file():
        click.echo(f"This server was not installed from Emacs. To upgrade it:\n    {other_way(here)}")
        return
    new = install_beside(here, requirement)
    version = installed_version(new)
    (new / COMPLETE).write_text(f'(:version "{version}")')
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
    return f"{sys.executable} -m pip install --upgrade 'pyagentd[full]'"


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
