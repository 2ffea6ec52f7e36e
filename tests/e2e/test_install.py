"""From the package's file to the first answer, as a new user would go: an empty home, two commands, one question.

It makes the package, compiles it in Emacs, and fetches the server's Python packages, which takes as long as it takes:
it only runs by ``make test-install``, and in bare Debian systems by ``make test-install-debian``. What needs neither
the network nor a root is in ``tests/test_packaging.py``.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pyagentd import __version__
from tests.e2e.emacs import wait_for

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
WIDTH, HEIGHT = 100, 40


@pytest.fixture
def package() -> Path:
    """The package's file, made just now."""
    subprocess.run([sys.executable, ROOT / "scripts" / "dist.py"], check=True, capture_output=True)
    return ROOT / "dist" / f"pyagentd-{__version__}.tar"


def environment(home: Path, tools: Path | None) -> dict[str, str]:
    """What a new user's Emacs has: nothing of ours; ``tools`` is a further directory of programs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYAGENTD_", "XDG_"))}
    kept |= {"HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8", "PYAGENTD_BACKEND": "offline"}
    kept["PATH"] = f"{f'{tools}:' if tools else ''}/usr/local/bin:/usr/bin:/bin"
    # pip tries six times: where each may take three minutes, one silent connection costs a quarter of an hour.
    kept["PIP_DEFAULT_TIMEOUT"] = "20"
    return kept


class Terminal:
    """An Emacs of its own in tmux, started as a user starts it."""

    def __init__(self, home: Path, env: dict[str, str], command: Sequence[str | Path] = ("emacs", "-nw")) -> None:
        self.env = env
        self._socket = str(home / "t")
        size = ["-x", str(WIDTH), "-y", str(HEIGHT)]
        self._tmux("-f", "/dev/null", "new-session", "-d", "-s", "e", *size, "-c", str(home), *map(str, command))

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", self._socket, *arguments]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=True).stdout

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p", "-t", "e")

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", "-t", "e", text)

    def key(self, name: str) -> None:
        self._tmux("send-keys", "-t", "e", {"RET": "Enter"}.get(name, name))

    def close(self) -> None:
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], env=self.env, capture_output=True, check=False)


class Graphical:
    """An Emacs with windows on a display that nobody sees; keys come by its server."""

    def __init__(self, home: Path, env: dict[str, str]) -> None:
        self.env = env | {"GSETTINGS_BACKEND": "memory", "XDG_RUNTIME_DIR": str(home / "run")}
        (home / "run").mkdir(mode=0o700)
        reader, writer = os.pipe()
        display = ["Xvfb", "-displayfd", str(writer), "-screen", "0", "1280x900x24", "-nolisten", "tcp", "-noreset"]
        self._display = subprocess.Popen(display, pass_fds=[writer], stderr=subprocess.DEVNULL)
        os.close(writer)
        with os.fdopen(reader) as number:
            self.env["DISPLAY"] = f":{number.readline().strip()}"
        emacs = shlex.split(subprocess.check_output([ROOT / "scripts" / "graphical-emacs.sh"], text=True))
        # Unpacked beside the installed one, it cannot compile natively.
        options = ["--eval", "(setq native-comp-deferred-compilation nil comp-enable-subr-trampolines nil)"]
        self._emacs = subprocess.Popen([*emacs, *options, "-f", "server-start"], env=self.env, cwd=home)
        self._server = home / "run" / "emacs" / "server"
        wait_for(self._server.exists, "the server of Emacs")

    def _said(self, form: str) -> str:
        command = ["emacsclient", "-s", str(self._server), "--eval", form]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=True).stdout

    def screen(self) -> str:
        # What was only in the echo area for a moment is among the messages.
        return self._said(
            """(mapconcat
                (lambda (buffer)
                  (with-current-buffer buffer
                    (concat (format-mode-line header-line-format) "\n"
                            (buffer-substring-no-properties (point-min) (point-max)))))
                (cons (messages-buffer) (mapcar #'window-buffer (window-list nil t))) "\n")"""
        )

    def type(self, text: str) -> None:
        self._events(f'(append "{text}" nil)')

    def key(self, name: str) -> None:
        self._events(f'(listify-key-sequence (kbd "{name}"))')

    def _events(self, form: str) -> None:
        self._said(f"(setq unread-command-events (append unread-command-events {form}))")

    def close(self) -> None:
        for process in (self._emacs, self._display):
            process.kill()
            process.wait()


class Clock:
    """What each part of the way took."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()
        self._laps: list[str] = []

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self._laps.append(f"{name} {now - self._last:.1f} s")
        self._last = now

    def __str__(self) -> str:
        return f"{self._last - self._began:.0f} s ({', '.join(self._laps)})"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """An empty home whose name is short enough for a socket below it."""
    directory = Path(subprocess.check_output(["mktemp", "-d", "/tmp/pa-XXXXXX"], text=True).strip())
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def uv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with uv, as users install it; where it cannot be had the test is skipped."""
    place = tmp_path_factory.mktemp("uv")
    fetched = [sys.executable, "-m", "pip", "install", "-q", "--target", str(place), "uv"]
    if subprocess.run(fetched, capture_output=True, check=False).returncode:
        pytest.skip("uv cannot be fetched")
    return place / "bin"


def walk(emacs: Terminal | Graphical, package: str, tool: str) -> Clock:
    """Type the two commands and a question, and wait for what each brings."""

    def until(*texts: str) -> None:
        wait_for(lambda: any(text in shown for shown in [emacs.screen()] for text in texts), f"{texts}", 240.0)

    def command(name: str, prompt: str, answer: str) -> None:
        """Call a command that asks one thing, and answer that."""
        emacs.key("M-x")
        until("M-x")
        emacs.type(name)
        emacs.key("RET")
        until(prompt)
        emacs.type(answer)
        emacs.key("RET")

    try:
        until("GNU Emacs")
        clock = Clock()
        command("package-install-file", "Package file name", package)
        until("Done (Total of")
        clock.lap("package")
        command("pyagentd-session", "Session name", "first")
        until(f"It fetches Python packages with {tool}")
        clock.lap("question")
        emacs.key("y")
        until("is installed (", "Ready")  # the first is not there for long
        clock.lap("server")
        until("Ready")
        clock.lap("session")
        emacs.type("What is in notes.txt? Read it yourself.")
        emacs.key("C-c")
        emacs.key("RET")
        until("begins with “alpha”")
        clock.lap("answer")
    finally:
        print(emacs.screen()[-4000:])
    return clock


class Debian:
    """A bare Debian system below a directory, with its Emacs and Python, and an ordinary account, ann.

    Args:
        suite: Its name, such as trixie.
        directory: Where it is, or is made.
    """

    def __init__(self, suite: str, directory: Path) -> None:
        self.directory = directory
        if not (directory / "var/lib/ready").exists():
            shutil.rmtree(directory, ignore_errors=True)
            subprocess.run(["debootstrap", "--variant=minbase", suite, directory], check=True, capture_output=True)
            packages = ["ca-certificates", "emacs-nox", "python3", "python3-venv"]
            self.run("apt-get", "-q", "update")
            self.run(
                "env",
                "DEBIAN_FRONTEND=noninteractive",
                "apt-get",
                "-qy",
                "--no-install-recommends",
                "install",
                *packages,
            )
            self.run("/usr/sbin/useradd", "--create-home", "ann")
            (directory / "var/lib/ready").touch()
        shutil.rmtree(directory / "home/ann")
        self.run("install", "-d", "-o", "ann", "-g", "ann", "/home/ann")

    def inside(self, *command: str | Path, account: str = "ann", offline: bool = False) -> list[str | Path]:
        """Return what runs ``command`` in there, by ``account``; how pip reaches its index here holds there, too."""
        # The mounts are gone with the last of its processes.
        mounts = "mount -t proc proc $0/proc && mount --rbind /dev $0/dev && cd $0"
        for source in [
            "/etc/resolv.conf",
            "/etc/pip.conf",
            *filter(None, map(os.environ.get, _CERTIFICATES)),
            *_indexes(),
        ]:
            if Path(source).is_dir():
                mounts += f" && mkdir -p .{source} && mount --bind -o ro {source} .{source}"
            elif Path(source).is_file():
                mounts += f" && mkdir -p .{Path(source).parent} && cp -L {source} .{source}"
        enter = ["unshare", "--mount", *(["--net"] if offline else []), "bash", "-c"]
        enter.append(f'{mounts} && exec chroot --userspec="$1" . env -i -C "$2" "${{@:3}}"')
        home = "/root" if account == "root" else f"/home/{account}"
        env = environment(Path(home), None)
        kept = [f"{name}={value}" for name, value in env.items() if name in _KEPT or name.startswith("PIP_")]
        return [*enter, self.directory, f"{account}:{account}", home, *kept, *command]

    def run(self, *command: str | Path, account: str = "root", offline: bool = False) -> None:
        """Run ``command`` in there, by ``account``."""
        command_line = self.inside(*command, account=account, offline=offline)
        run = subprocess.run(command_line, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr


_CERTIFICATES = ("PIP_CERT", "SSL_CERT_FILE")
_KEPT = ("HOME", "LANG", "PATH", "PYAGENTD_BACKEND", "TERM", *_CERTIFICATES)


def _indexes() -> list[str]:
    """Return the local directories that pip is configured to look into."""
    said = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    return re.findall(r"(?:(?<=file://)|(?<=[ '=]))/[^\s'\\]+", said)


@pytest.mark.e2e
@pytest.mark.skipif(os.environ.get("PYAGENTD_TEST_INSTALL") != "debian", reason="make test-install-debian")
@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_an_ordinary_account_of_a_bare_debian_installs_it_in_two_steps(suite: str, home: Path) -> None:
    debian = Debian(suite, ROOT / "build" / "debian" / suite)
    there = debian.directory / "home/ann"
    subprocess.run(["git", "clone", "-q", ROOT, there / "pyagentd"], check=True)
    (there / "notes.txt").write_text("alpha\n")
    debian.run("chown", "-R", "ann:ann", "/home/ann")
    debian.run("python3", "pyagentd/scripts/dist.py", account="ann", offline=True)
    emacs = Terminal(home, dict(os.environ), debian.inside("emacs", "-nw"))
    try:
        clock = walk(emacs, f"~/pyagentd/dist/pyagentd-{__version__}.tar", "pip")
        print(f"{suite}: from the package to the first answer {clock}")
    finally:
        emacs.close()
        debian.run("sh", "-c", ".emacs.d/pyagentd/server/*/bin/pyagentd stop || true", account="ann")


def commands_of_readme() -> list[str]:
    """The commands of README that install the command line and ask something, from the package's directory."""
    section = README.partition("## Without Emacs")[2].partition("\n## ")[0]
    commands = re.findall(r"^    (.+)$", section, re.MULTILINE)
    assert 1 < len(commands) <= 3 and " ask " in commands[-1]
    return commands


@pytest.mark.e2e
@pytest.mark.skipif(os.environ.get("PYAGENTD_TEST_INSTALL") != "debian", reason="make test-install-debian")
@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_an_ordinary_account_of_a_bare_debian_installs_the_command_line_in_three_commands(suite: str) -> None:
    debian = Debian(suite, ROOT / "build" / "debian" / suite)
    there = debian.directory / "home/ann"
    subprocess.run(["git", "clone", "-q", ROOT, there / "pyagentd"], check=True)
    debian.run("chown", "-R", "ann:ann", "/home/ann")
    debian.run("python3", "pyagentd/scripts/dist.py", account="ann", offline=True)
    began = time.monotonic()
    script = "cd pyagentd\n" + "\n".join(commands_of_readme())
    line = debian.inside("bash", "-ec", script, account="ann")
    run = subprocess.run(line, capture_output=True, text=True, check=False, timeout=900)
    debian.run("sh", "-c", ".local/pyagentd/bin/pyagentd stop || true", account="ann")
    assert run.returncode == 0 and "stand-in" in run.stdout, run.stdout + run.stderr
    print(f"{suite}: the command line to its first answer {time.monotonic() - began:.0f} s")


def pythons() -> list[str]:
    """The interpreters that are here, by version: those on PATH, of pyenv, and named by PYAGENTD_TEST_PYTHONS."""
    found = [sys.executable, *os.environ.get("PYAGENTD_TEST_PYTHONS", "").split()]
    found += [shutil.which(f"python3.{minor}") or "" for minor in range(11, 15)]
    found += map(str, Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python3"))
    known = {}
    for each in filter(None, found):
        ask = [each, "-c", "import sys; print(sys.version_info[0], sys.version_info[1])"]
        said = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.split()
        if said and (version := (int(said[0]), int(said[1]))) >= (3, 11):
            known.setdefault(version, each)
    return [known[version] for version in sorted(known)]


def run_within(seconds: int, command: Sequence[str | Path], env: dict[str, str], directory: Path) -> str:
    """Run ``command`` and return what it printed; where it fails or takes too long, that says how far it came."""
    output = directory / "output"
    with output.open("w") as file:
        process = subprocess.Popen(command, env=env, cwd=directory, stdout=file, stderr=file)
        try:
            status: int | str = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = f"not done after {seconds} s"
            process.kill()
            process.wait()
    printed = output.read_text("utf-8")
    assert status == 0, f"{command}: {status}\n{printed[-4000:]}"
    return printed


@pytest.mark.e2e
@pytest.mark.skipif(os.environ.get("PYAGENTD_TEST_INSTALL") != "1", reason="make test-install")
@pytest.mark.parametrize("tool", ["uv tool install", "pipx install", "pip install"])
def test_each_python_that_is_here_installs_the_built_files(tool: str, home: Path, tmp_path: Path) -> None:
    """The wheel by uv and pipx, the sdist by pip; each answers a question afterwards."""
    files = tmp_path / "dist"
    subprocess.run([sys.executable, ROOT / "scripts" / "dist.py", files], check=True, capture_output=True)
    tools = tmp_path / "tools"
    subprocess.run([sys.executable, "-m", "venv", tools], check=True)
    run_within(600, [tools / "bin/pip", "install", "uv", "pipx"], environment(home, None), home)
    wheel, sdist = f"{next(files.glob('*.whl'))}[daemon]", f"{next(files.glob('*.tar.gz'))}[daemon]"
    (home / "notes.txt").write_text("alpha\n")
    for python in pythons():
        env = environment(home, tools / "bin") | {"PIPX_HOME": str(home / "pipx"), "UV_PYTHON_DOWNLOADS": "never"}
        line = {
            "uv tool install": [["uv", "tool", "install", "--force", "--python", python, wheel]],
            "pipx install": [["pipx", "install", "--force", "--python", python, wheel]],
            "pip install": [[python, "-m", "venv", home / "env"], [home / "env/bin/pip", "install", sdist]],
        }[tool]
        began = time.monotonic()
        for command in line:
            run_within(600, command, env, home)
        program = home / ("env/bin" if tool == "pip install" else ".local/bin") / "pyagentd"
        ask = [program, "ask", "What is in notes.txt? Read it yourself."]
        try:
            assert "begins with “alpha”" in run_within(120, ask, env, home)
        finally:
            subprocess.run([program, "stop"], env=env, cwd=home, capture_output=True, check=False, timeout=60)
        print(f"{tool}: answered with {python} after {time.monotonic() - began:.0f} s")
        shutil.rmtree(home / "env", ignore_errors=True)


@pytest.mark.e2e
@pytest.mark.skipif(os.environ.get("PYAGENTD_TEST_INSTALL") != "1", reason="make test-install")
@pytest.mark.parametrize(("kind", "tool"), [(Terminal, "pip"), (Terminal, "uv"), (Graphical, "pip")])
def test_from_the_package_to_the_first_answer_in_two_steps(
    package: Path, home: Path, kind: type[Terminal | Graphical], tool: str, request: pytest.FixtureRequest
) -> None:
    (home / "notes.txt").write_text("alpha\n")
    env = environment(home, request.getfixturevalue("uv") if tool == "uv" else None)
    emacs = kind(home, env)
    try:
        clock = walk(emacs, str(package), tool)
        print(f"{kind.__name__}, {tool}: from the package to the first answer {clock}")
    finally:
        emacs.close()
        stop = [sys.executable, "-m", "pyagentd", "stop"]
        subprocess.run(stop, env={**emacs.env, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False)
