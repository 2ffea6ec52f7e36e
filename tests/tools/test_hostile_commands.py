"""What a session that is allowed every command (``["*"]``) does with hostile command lines, with and without a cage.

Nothing asks here: the profile allows all, and so does a grant. The lines of ``escapes.hostile`` are judged by the
authority and, where it lets them pass, really run. Those that it does not let pass are run confined all the same, by
confinement alone, many at once.
"""

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyagentd.messages import ToolCall
from pyagentd.policy.action import Action, under
from pyagentd.policy.guard import Context
from pyagentd.policy.presets import Commands, Paths, Preset
from pyagentd.policy.profiles import Profile
from pyagentd.runtime.approvals import Answer, AskedCall, Authority, CallPosition
from pyagentd.tools.invoke import EditedCall, Envelope, invoke
from pyagentd.tools.sandbox.plan import ShellScope
from pyagentd.tools.shell import BASH
from pyagentd.tools.spec import ToolContext
from tests.policy.escapes.commands import SECRET, filled
from tests.policy.escapes.hostile import ASKED, EVERYDAY, HOSTILE
from tests.tools.confined import MECHANISMS

_BATCH = 160
_AT_ONCE = 8  # lines of a batch that run at the same time
_SECONDS = 4  # of one line
_FILES = {
    "a.txt": "one\ntwo\n",
    "b.txt": "one\nthree\n",
    "list.txt": "../outside/secret\n",
    "printall": ",p\n",
    "read.py": 'print(open("../outside/secret").read())\n',
    "write.py": 'open("../outside/pwned", "w")\n',
    "write2.py": 'open("../outside/pwned", "w")\n',
    "write.pl": 'open F, ">../outside/pwned";\n',
    "touch.sh": "#!/bin/sh\ntouch ../outside/pwned\n",
    "hook": "#!/bin/sh\ntouch ../outside/pwned\n",
    "hooks/pre-commit": "#!/bin/sh\ntouch ../outside/pwned\n",
    "parts/run": "#!/bin/sh\ntouch ../outside/pwned\n",
    "sedscript": "w ../outside/pwned\n",
    "edscript": "w ../outside/pwned\n",
    "gdbscript": "shell touch ../outside/pwned\n",
    "shell.sql": ".shell touch ../outside/pwned\n",
    "evil.el": '(eval-when-compile (write-region "x" nil "../outside/pwned"))\n',
    "inc.c": '#include "../outside/secret"\n',
    "ok.c": "int main(void) { return 0; }\n",
    "Makefile": "read:\n\tcat ../outside/secret\nwrite:\n\ttouch ../outside/pwned\nhere:\n\ttouch pwned\n",
    "a.patch": "--- a.txt\n+++ a.txt\n@@ -1,2 +1,2 @@\n-one\n+uno\n two\n",
    "keep.patch": "--- a/keep\n+++ b/keep\n@@ -1 +1 @@\n-keep\n+gone\n",
    "link.patch": (
        "diff --git a/plink b/plink\nnew file mode 120000\n--- /dev/null\n+++ b/plink\n@@ -0,0 +1 @@\n+../outside\n"
        "\\ No newline at end of file\n"
    ),
    "evilhead": "ref: refs/heads/main\n",
    "evilconfig": '[core]\n\tfsmonitor = "touch ../../outside/pwned;"\n',
}
_ALWAYS = ("a.txt", "b.txt", "sub", "link", "rel", "flink", "sublink", "touch.sh")
_OUTSIDE = {
    "secret": f"{SECRET}\n",
    "secret.json": f'{{"a": "{SECRET}"}}\n',
    "keep": "keep\n",
    "urls": "",
    "curlrc": f'write-out = "{SECRET}"\nurl = "file:///dev/null"\n',
    "gitconfig": f"[user]\n\tname = {SECRET}\n",
}


def _git(root: Path, *args: str) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(root), "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *who, *args], cwd=root, env=env, check=True, capture_output=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directories that the lines are written for, to be copied: ``root``, ``outside`` and ``home``."""
    base = tmp_path_factory.mktemp("model")
    root, outside, home = base / "root", base / "outside", base / "home"
    for name, text in _FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for script in ("touch.sh", "hook", "hooks/pre-commit", "parts/run"):
        (root / script).chmod(0o755)
    (root / "sub").mkdir()
    outside.mkdir()
    for name, text in _OUTSIDE.items():
        (outside / name).write_text(text)
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_rsa").write_text(f"{SECRET}\n")
    (home / ".gitconfig").write_text("[user]\n\tname = A\n\temail = a@example.org\n")
    _git(root, "init", "-q", "--template=")
    (root / ".git/hooks").mkdir()
    _git(root, "add", "a.txt")
    _git(root, "commit", "-qm", "one")
    (root / "a.txt").write_text("one\ntwo\nthree\n")
    _git(root, "commit", "-qam", "two")
    _git(root, "checkout", "-qb", "other")
    (root / "glink").symlink_to("../outside")
    _git(root, "add", "glink")
    _git(root, "commit", "-qm", "link")
    _git(root, "checkout", "-q", "main")
    _git(root, "gc", "-q", "--prune=now")
    shutil.rmtree(root / ".git/logs")
    with tarfile.open(root / "evil.tar", "w") as archive:
        link = tarfile.TarInfo("d")
        link.type, link.linkname = tarfile.SYMTYPE, "../outside"
        archive.addfile(link)
    with tarfile.open(root / "evil.tgz", "w:gz") as archive:
        archive.addfile(link)
    with tarfile.open(root / "plain.tar", "w") as archive:
        archive.add(root / "a.txt", "pwned")
    with tarfile.open(root / "up.tar", "w") as archive:
        archive.add(root / "a.txt", "../outside/pwned")
    with zipfile.ZipFile(root / "evil.zip", "w") as zipped:
        entry = zipfile.ZipInfo("d")
        entry.create_system, entry.external_attr = 3, 0o120777 << 16
        zipped.writestr(entry, "../outside")
        zipped.writestr("pwned", "x")
    with zipfile.ZipFile(root / "plain.zip", "w") as zipped:
        zipped.writestr("pwned", "x")
    (root / "sublink").symlink_to("../outside")
    (root / "link").symlink_to("../outside")
    (root / "rel").symlink_to("../outside")
    (root / "flink").symlink_to("../outside/secret")
    return base


class Place:
    """A copy of the model; for one line only of what that can be about, which is much quicker."""

    def __init__(self, model: Path, base: Path, text: str = "") -> None:
        def not_needed(directory: str, names: list[str]) -> list[str]:
            if not text or directory != str(model / "root"):
                return []
            return [name for name in names if name not in _ALWAYS and name.lower().removeprefix(".")[:4] not in text]

        shutil.copytree(model, base, symlinks=True, ignore=not_needed)
        self.base, self.root, self.outside, self.home = base, base / "root", base / "outside", base / "home"
        self._before = self._kept()

    def line(self, text: str) -> str:
        return filled(text, str(self.root), str(self.outside))

    def _kept(self) -> dict[str, bytes]:
        files = [path for top in (self.outside, self.home) for path in sorted(top.rglob("*"))]
        made = [path for path in self.base.iterdir() if path.name not in ("root", "outside", "home")]
        return {str(path): path.read_bytes() if path.is_file() else b"" for path in (*files, *made)}

    def is_harmed(self, printed: str, *, inside: bool = True) -> bool:
        """Return whether something outside is another, or the secret is in what was printed or in the workspace."""
        return self._kept() != self._before or SECRET.lower() in printed.lower() or (inside and self._has_secret())

    def _has_secret(self) -> bool:
        files = (path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink())
        return any(SECRET.encode() in path.read_bytes() for path in files)


def _context(root: Path, scope: ShellScope) -> ToolContext:
    spool = root.parent / "spool"
    return ToolContext(
        root=root,
        branch_dir=root.parent / "branch",
        spool_dir=spool,
        readable=lambda path: True,
        scope=lambda: scope,
        env={"PATH": os.environ["PATH"]},
    )


class Session:
    """A session that may run everything in its workspace, and what its user is asked."""

    def __init__(self, root: Path, *, interactive: bool, allow: tuple[str, ...] = ("*",)) -> None:
        patterns = (under(str(root)),)
        self._preset = Preset(
            name="p", backend="b", model="m", paths=Paths(read=patterns, write=patterns), shell=Commands(allow=allow)
        )
        self._interactive = interactive
        self._ctx = _context(root, ShellScope(read=patterns, write=patterns, commands=allow, confine=False))
        self.asked: list[str] = []

    def _rules(self) -> Context:
        everything = re.compile(".*", re.DOTALL)
        return Context(
            preset=self._preset,
            interactive=self._interactive,
            profile=Profile(name="open", allow=(everything,)),
            grants=(everything,),
        )

    async def _asked(self, fields: object, shown: object) -> Answer:
        self.asked.append(str(fields))
        return Answer(decision="deny")

    async def run(self, command: str) -> tuple[Envelope, bool]:
        """Run ``command`` as a model has it run; return what it gets, and whether it was let pass."""
        passed = False

        def witness(tool: str, action: str, decision: str, *_: object, **__: object) -> None:
            nonlocal passed
            passed = decision == "allow"

        authority = Authority(context=self._rules, ask_human=self._asked, stop=lambda: None, witness=witness)
        args = {"command": command, "timeout_ms": _SECONDS * 1000}
        call = ToolCall(id="c", name="Bash", input=args)

        async def authorise(action: Action) -> EditedCall | None:
            return await authority.authorise(AskedCall(call, BASH, action, self._ctx), CallPosition())

        return await invoke(BASH, args, self._ctx, authorise), passed


@pytest.fixture
def at_home(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``~`` is the home of the model, as the daemon sees it too."""
    monkeypatch.setenv("HOME", str(tmp_path / "place/home"))
    return tmp_path / "place"


def test_there_are_many_lines_and_none_twice() -> None:
    assert len(HOSTILE) >= 362
    assert len(set(HOSTILE)) == len(HOSTILE)


async def test_unconfined_no_line_reaches_outside_and_what_is_not_understood_is_denied_where_nobody_is_asked(
    model: Path, at_home: Path
) -> None:
    place, harmful, passed = Place(model, at_home), [], []
    for text in HOSTILE:
        done, was_run = await Session(place.root, interactive=False).run(place.line(text))
        if place.is_harmed(done.text, inside=was_run):
            harmful.append(text)
        if was_run:
            passed.append(text)
        if was_run or place.is_harmed(done.text, inside=False):
            shutil.rmtree(at_home)
            place = Place(model, at_home)
    assert harmful == []
    assert len(passed) < 10  # else somebody made the list longer than it should be


async def test_unconfined_everyday_commands_run_without_a_question(model: Path, at_home: Path) -> None:
    place = Place(model, at_home)
    session = Session(place.root, interactive=False)
    for text in EVERYDAY:
        done, _ = await session.run(text)
        assert done.ok, (text, done.text)


@pytest.mark.parametrize("text", ASKED)
async def test_unconfined_what_is_not_understood_is_asked_about_in_plain_words(
    text: str, model: Path, at_home: Path
) -> None:
    place = Place(model, at_home)
    asking, alone = Session(place.root, interactive=True), Session(place.root, interactive=False)
    denied, _ = await alone.run(text)
    assert not denied.ok
    assert "No human can be asked" in denied.text
    await asking.run(text)
    assert len(asking.asked) == 1
    assert "with your rights, not confined" in asking.asked[0] or "two calls" in asking.asked[0]


async def test_unconfined_a_program_that_is_allowed_by_name_runs_but_reads_only_inside(
    model: Path, at_home: Path
) -> None:
    place = Place(model, at_home)
    session = Session(place.root, interactive=False, allow=("*", "make", "cat", "tar"))
    done, _ = await session.run("make --version")
    assert done.ok
    for text in ("cat ../outside/secret", "cat link/secret", "cat flink"):
        done, _ = await session.run(text)
        assert "outside `paths.read`" in done.text, text


@pytest.mark.parametrize(
    "text", ["tar xf evil.tar && cat d/secret", "git checkout -q other; cat glink/secret", "unzip -qo evil.zip; ls d"]
)
async def test_unconfined_a_path_that_may_lie_behind_a_link_of_the_same_line_is_refused(
    text: str, model: Path, at_home: Path
) -> None:
    place = Place(model, at_home)
    session = Session(place.root, interactive=False, allow=("tar", "unzip", "git", "cat", "ls"))
    done, was_run = await session.run(text)
    assert not was_run
    assert "may make links" in done.text and "two calls" in done.text
    alone, _ = await session.run(text.split(";")[0].split(" &&")[0])
    assert alone.ok, alone.text


async def test_unconfined_git_looks_only_into_a_repository_that_begins_inside(model: Path, at_home: Path) -> None:
    place = Place(model, at_home)
    inner = Session(place.root / "sub", interactive=False)
    done, was_run = await inner.run("git log")
    assert not was_run
    assert "outside `paths.read`" in done.text


async def test_unconfined_git_takes_no_directory_for_a_repository_that_only_looks_like_one(
    model: Path, at_home: Path
) -> None:
    place = Place(model, at_home)
    shutil.rmtree(place.root / ".git")
    for name in ("objects", "refs"):
        (place.root / name).mkdir()
    (place.root / "HEAD").write_text("ref: refs/heads/main\n")
    (place.root / "config").write_text('[core]\n\tbare = true\n[alias]\n\tx = "!touch ../outside/pwned"\n')
    done, _ = await Session(place.root, interactive=False).run("git log")
    assert "safe.bareRepository" in done.text or "not a git repository" in done.text


@pytest.mark.parametrize("line", ["cat {}", "cat < {}", "cat p{}"])
async def test_unconfined_a_path_that_is_another_file_for_each_program_is_refused(
    model: Path, at_home: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    place = Place(model, at_home)
    monkeypatch.chdir("/")  # as the daemon is
    (place.root / "p").symlink_to("/proc/self/cwd")
    there = f"/proc/self/cwd{place.root}/a.txt" if "p{}" not in line else f"{place.root}/a.txt"
    done, was_run = await Session(place.root, interactive=False).run(line.format(there))
    assert not was_run
    assert "is another file for each program" in done.text


async def test_unconfined_a_program_that_the_agent_may_replace_is_not_the_one_of_that_name(
    model: Path, at_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(model, at_home)
    shutil.copy(place.root / "touch.sh", place.root / "sub/ls")
    monkeypatch.setenv("PATH", f"{place.root}/sub:{os.environ['PATH']}")
    done, was_run = await Session(place.root, interactive=False).run("ls")
    assert not was_run
    assert "which this agent may change" in done.text


def _batches(lines: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for at in range(0, len(lines), _BATCH):
        yield lines[at : at + _BATCH]


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_confined_no_line_reaches_outside_though_nobody_judges_it(
    mechanism: str, model: Path, tmp_path: Path
) -> None:
    for number, lines in enumerate(_batches(HOSTILE)):
        places = [Place(model, tmp_path / f"{number}-{index}", text) for index, text in enumerate(lines)]
        patterns = tuple(under(str(place.root)) for place in places)
        scope = ShellScope(read=patterns, write=patterns, commands=("*",), wanted=mechanism)  # type: ignore[arg-type]
        script = "\n".join(
            f"{'wait -n; ' if index >= _AT_ONCE else ''}{_guarded(place, text)}"
            for index, (place, text) in enumerate(zip(places, lines, strict=True))
        )

        async def allowed(action: object) -> None:
            return None

        done = await invoke(
            BASH, {"command": f"{script}\nwait", "timeout_ms": 300_000}, _context(places[0].root, scope), allowed
        )
        assert "bwrap:" not in done.text and "could not be confined" not in done.text
        for place, text in zip(places, lines, strict=True):
            printed = (place.root / "printed").read_text(errors="replace")
            assert not place.is_harmed(printed), (text, printed[:2000])
            await asyncio.to_thread(shutil.rmtree, place.base)


def _guarded(place: Place, text: str) -> str:
    """Return shell code that runs a line in its own workspace, beside the others."""
    run = f"HOME={place.home} timeout -k 1 {_SECONDS} bash -c {shlex.quote(place.line(text))}"
    return f"(cd {place.root} && {{ {run}; }} < /dev/null > printed 2>&1) &"
