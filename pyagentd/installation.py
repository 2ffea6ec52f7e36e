"""Finds the programs that the daemon runs, and where it is installed; commands of agents cannot write there.

The user's ``PATH`` often has a directory of the workspace (an activated virtual environment). A program from there
may run in a confined command, but never in the daemon, which nothing confines.
"""

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from pyagentd.errors import NotInstalled, PyagentdError, UserError

DIRECTORIES = (
    "/usr/bin",
    "/bin",
    "/usr/local/bin",
    "/run/current-system/sw/bin",
    "/opt/homebrew/bin",
    "/opt/local/bin",
)
PATH = ":".join(DIRECTORIES)
_SHARED = ("/", "/usr", "/usr/local", "/opt/homebrew", "/opt/local")
_PACKAGES = ("site-packages", "dist-packages")


def program(name: str) -> str | None:
    """Return the machine's own program ``name``, without regard to ``PATH``; None if it has none."""
    paths = (f"{directory}/{name}" for directory in DIRECTORIES)
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)  # noqa: PTH113


def code_directories() -> tuple[Path, ...]:
    """Return the directories of our code and of its imports, resolved, which no tool may change.

    They are this package, the packages beside it, and Python, or its virtual environment.
    """
    return _directories(sys.prefix, sys.base_prefix, Path.home())


@lru_cache(maxsize=1)
def _directories(prefix: str, base_prefix: str, home: Path) -> tuple[Path, ...]:
    package = Path(__file__).resolve().parent
    library = Path(os.__file__).resolve().parent
    home = home.resolve()
    shared = {*map(Path, _SHARED), home, home / ".local", *home.parents}
    prefixes = (Path(prefix).resolve() for prefix in (prefix, base_prefix))
    own = (prefix for prefix in prefixes if prefix not in shared)
    beside = (package.parent,) if package.parent.name in _PACKAGES else ()
    return tuple(dict.fromkeys((package, *beside, library, *own)))


@lru_cache
def shipped(name: str) -> Path:
    """Return the directory ``name`` of the package's data files, installed or in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / name
    return installed if installed.is_dir() else package.parent / name


@contextmanager
def extra(name: str, feature: str) -> Iterator[None]:
    """Turn a failed import in the body into an error that names the extra to install.

    Args:
        name: The extra, as in ``pyagentd[mcp]``.
        feature: What needs it, the subject of the error's sentence.

    Raises:
        NotInstalled: It was not installed with the rest.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        # The program has what its models need; only the library comes without.
        how = f"Run `pyagentd install {name}`, or M-x pyagentd-install-extra in Emacs."
        raise NotInstalled(
            f"{feature} needs the Python package {error.name}, which is not installed",
            hint=f"Install pyagentd[{name}]." if name == "anthropic" else how,
        ) from error


# Detaching from the terminal or editor that started the daemon.
#
# The caller waits on a pipe until the daemon listens or has failed, so that it can report a failure.

READY = b"ready"


def in_background(run: Callable[[Callable[[], None]], None], *, errors: Path) -> int:
    """Run ``run`` in a detached process; return 0 once it has called the function it is given.

    Args:
        run: The daemon; gets a function to call when it is ready.
        errors: The file that its standard error goes to, once it is ready.

    Raises:
        UserError: It ended before it was ready; the message is its own.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run_detached(run, writing, errors)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        message = pipe.read()
    if message == READY:
        return 0
    raise UserError(message.decode("utf-8", "replace") or "The daemon ended before it was ready")


def _run_detached(run: Callable[[Callable[[], None]], None], pipe: int, errors: Path) -> None:
    """Fork again, so that the daemon has no parent to wait for it and can get no terminal; does not return.

    The caller hears once, over the pipe; later failures go to the log.
    """
    os.setsid()
    if os.fork():
        os._exit(0)
    is_told = False

    def tell(message: bytes) -> None:
        nonlocal is_told
        is_told = True  # the number of the pipe may soon be another file's
        # The caller may not have waited: the socket is usable before this message.
        with contextlib.suppress(BrokenPipeError):
            os.write(pipe, message)
        os.close(pipe)

    def ready() -> None:
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR)
        log = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for source, target in ((null, 0), (null, 1), (log, 2)):
            os.dup2(source, target)
        for spare in (null, log):
            if spare > 2:  # else it is a standard stream that was closed when we were started
                os.close(spare)
        tell(READY)

    code = 1
    try:
        run(ready)
        code = 0
    except BaseException as error:
        if is_told:
            traceback.print_exc()
        else:
            tell((str(error) if isinstance(error, PyagentdError) else f"{type(error).__name__}: {error}").encode())
    finally:
        sys.stderr.flush()
        os._exit(code)
