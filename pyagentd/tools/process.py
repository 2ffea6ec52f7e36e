"""A child process and its descendants, as one process group that can be stopped reliably."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Literal

Leader = Literal["command", "monitor", "launcher"]
"""The first process of the group: the command itself; bubblewrap ("monitor"), whose end ends everything inside; or
our launcher, which ignores SIGTERM and on SIGUSR1 kills all its descendants, also those that left the group."""

_GRACE_S = 0.5  # between SIGTERM and SIGKILL
_POLL_S = 0.02
_LAUNCHER_S = 2.0  # in which the launcher kills what is left; then it is killed itself

_DEVNULL = asyncio.subprocess.DEVNULL


class Group:
    """A process in a session of its own: no terminal, and its process group is its pid.

    Processes that leave the group on purpose (``setsid``) are ended only if a monitor or a launcher is the leader.
    """

    def __init__(self, process: asyncio.subprocess.Process, leader: Leader = "command") -> None:
        self.process = process
        self._leader = leader

    @classmethod
    async def start(
        cls,
        *argv: str,
        cwd: Path,
        env: Mapping[str, str],
        stdin: int = _DEVNULL,
        stdout: int = _DEVNULL,
        stderr: int = _DEVNULL,
        leader: Leader = "command",
        files: tuple[int, ...] = (),
    ) -> "Group":
        """Start ``argv``; the streams are what ``subprocess`` takes, ``files`` are inherited as they are numbered."""
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *argv,
                cwd=cwd,
                env=dict(env),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                pass_fds=files,
            )
        )
        try:
            return cls(await asyncio.shield(starting), leader)
        except asyncio.CancelledError:
            # asyncio would kill the first process alone, and its children would go on.
            starting.add_done_callback(partial(_kill_started, leader))
            await asyncio.wait([starting])
            raise

    async def stop(self, grace_s: float = _GRACE_S) -> None:
        """Ask the whole group to end, wait ``grace_s`` at most, then kill the rest.

        A second cancellation while waiting skips the rest of the grace.
        """
        try:
            if self._ask():
                async with asyncio.timeout(grace_s):
                    while self._is_there():  # noqa: ASYNC110 - nothing tells when a group is empty
                        await asyncio.sleep(_POLL_S)
        except TimeoutError:
            pass
        finally:
            self.kill()
        try:
            async with asyncio.timeout(_LAUNCHER_S if self._leader == "launcher" else None):
                await self.exit_code()
        except TimeoutError:  # a launcher that takes too long to kill the others
            self._signal(signal.SIGKILL)
            await self.exit_code()
        if (transport := getattr(self.process, "_transport", None)) is not None:
            transport.close()  # a pipe that nobody reads to its end would stay open

    async def exit_code(self) -> int:
        """Wait for the process and return its status; asyncio would also wait for pipes that others may hold open."""
        ended = asyncio.ensure_future(self.process.wait())
        try:
            while self.process.returncode is None:
                await asyncio.wait([ended], timeout=_POLL_S)
        finally:
            ended.cancel()
        return self.process.returncode

    def kill(self) -> None:
        """Kill the group at once."""
        if self._leader == "launcher" and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGUSR1)
        else:
            self._signal(signal.SIGKILL)

    def _ask(self) -> bool:
        """Send SIGTERM to the group, but not to a monitor, which would kill the others before they could tidy up."""
        if self._leader != "monitor":
            return self._signal(signal.SIGTERM)
        # The first process of a namespace gets only signals for which it has a handler.
        for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
            with suppress(OSError):
                if pid != self.process.pid and os.getpgid(pid) == self.process.pid:
                    os.kill(pid, signal.SIGTERM)
        return self._is_there()

    def _is_there(self) -> bool:
        return self._signal(0) if self._leader == "command" else self.process.returncode is None

    def _signal(self, number: int) -> bool:
        """Send a signal to the group; 0 only checks. Return whether the group has any process."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)
            return True
        return False


def _kill_started(leader: Leader, starting: asyncio.Future[asyncio.subprocess.Process]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        Group(starting.result(), leader).kill()


@asynccontextmanager
async def worker(module: str, request: bytes) -> AsyncIterator[Group]:
    """Run one of our modules as a program during the block, with ``request`` on its standard input."""
    env = child_environment({})
    if "PYTHONPATH" in os.environ:
        env["PYTHONPATH"] = os.environ["PYTHONPATH"]
    pipe = asyncio.subprocess.PIPE
    group = await Group.start(sys.executable, "-P", "-m", module, cwd=Path("/"), env=env, stdin=pipe, stdout=pipe)
    try:
        assert group.process.stdin is not None
        group.process.stdin.write(request)
        group.process.stdin.close()
        yield group
    finally:
        group.kill()
        await group.exit_code()


# The environment of child processes: an allow-list, without anything that looks like a secret.
#
# Keys of providers are held in the daemon's memory and must never reach a command of the model.

_INHERITED = re.compile(r"PATH|HOME|LANG|LC_\w+|TERM|USER|SHELL|TMPDIR|TZ")
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS(W|PHRASE|$)|_PWD$|_PAT$|CREDENTIAL|^ANTHROPIC_|^OPENAI_", re.IGNORECASE)
# Variables that make a shell or a common program do something else than its command line, which a human approves.
_MEANING = re.compile(
    r"BASH_ENV|ENV|CDPATH|SHELLOPTS|BASHOPTS|BASH_FUNC_.*|BASH_COMPAT|POSIXLY_CORRECT|GLOBIGNORE|EXECIGNORE|IFS|PS4"
    r"|PROMPT_COMMAND|LD_.*|GIT_(?!AUTHOR_|COMMITTER_).*|PAGER|MANPAGER|EDITOR|VISUAL|LESS|LESSOPEN|TAR_OPTIONS"
    r"|GREP_OPTIONS|RIPGREP_CONFIG_PATH|MAKEFLAGS|PYTHONSTARTUP|PYTHONPATH|PERL5OPT|PERL5LIB|RUBYOPT|NODE_OPTIONS"
)


def child_environment(client: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a command; variables of the message's ``client`` override the daemon's."""
    inherited = {name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)}
    possible = {
        name: value for name, value in client.items() if name and "=" not in name and "\0" not in name + value
    }
    usable = {each: possible[each] for each in possible if not is_secret(each) and not _MEANING.fullmatch(each)}
    return {"TERM": "dumb", **inherited, **usable}


def is_secret(name: str) -> bool:
    """Return whether the name of a variable suggests that it holds a secret."""
    return _SECRET.search(name) is not None


def git_files(root: Path, most: int = 20_000) -> list[str] | None:
    """Return files that git tracks or would add, relative to ``root``, at most ``most``; None outside a repository.

    The repository may be an agent's, so git must not run programs that its configuration names.
    """
    listing = ("git", "-c", "core.fsmonitor=false", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z")
    env = {**child_environment({}), "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
    try:
        done = subprocess.run(listing, capture_output=True, timeout=2, env=env)
    except (OSError, subprocess.TimeoutExpired):
        return None
    names = done.stdout.decode(errors="surrogateescape").split("\0")[:-1]
    return names[:most] if done.returncode == 0 else None
