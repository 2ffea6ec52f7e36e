"""One moment: a conversation up to it, the kill, the way back, and what must hold then."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pyagentd.cli.output import ExitCode
from pyagentd.errors import PyagentdError
from pyagentd.store import atomic, paths
from pyagentd.store.document.text import read
from pyagentd.wire.client import connect
from tests.e2e.conftest import System
from tests.e2e.emacs import Emacs, EmacsError, wait_for
from tests.faults.files import branch_problems, branches_below
from tests.faults.model import EVERYTHING, FAIL, Model
from tests.kill.plan import Plan, Trigger
from tests.kill.recorder import Recorder
from tests.server import ModelServer, Request
from tests.server.answers import Scripted
from tests.server.http import Pause, Reply, Step, event_stream

GOODBYE = "Goodbye."
_FINISHED = "(memq (plist-get pyagentd-status :state) '(idle error))"
_ATTACHED = f"(and (eq pyagentd-attach-state t) {_FINISHED})"
_TEXT = "(save-restriction (widen) (buffer-substring-no-properties (point-min) (point-max)))"
# What Emacs shows is written down before anything else happens.
_LOG = """(advice-add 'pyagentd-insert :after
  (lambda (text &rest _)
    (let ((write-region-annotate-functions nil) (coding-system-for-write 'utf-8))
      (write-region (concat text "\\0") nil %s t 'quiet))))"""


@dataclass(slots=True)
class Result:
    """What came of a moment."""

    plan: Plan
    reached: bool = False  # before the conversation was over
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Counted:
    """A model whose events are counted as they are sent."""

    def __init__(self, model: Callable[[Request], Scripted], tick: Callable[[], None]) -> None:
        self._model, self._tick = model, tick

    def __call__(self, request: Request) -> Scripted:
        self._given = self._model(request)
        return self

    def reply(self, request: Request) -> Reply:
        reply = self._given.reply(request)
        if reply.body is not None:
            return reply
        return event_stream(self._steps(reply))

    def _steps(self, reply: Reply) -> Iterator[Step]:
        for step in reply.steps:
            if not isinstance(step, Pause):
                self._tick()
            yield step


@contextmanager
def system_for(server: ModelServer) -> Iterator[System]:
    """Give the command line and Emacs of a user with an own home."""
    home = Path(tempfile.mkdtemp(prefix="pk-", dir="/tmp"))
    system = System(home)
    system.use_server(server.url)
    (system.project / "a.txt").write_text("alpha\n")
    try:
        yield system
    finally:
        system.close()
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _attendant(runtime: Path) -> Iterator[None]:
    """Have somebody allow what a daemon asks again that an earlier one had asked."""
    leaving = threading.Event()

    def attend() -> None:
        while not leaving.wait(0.1):
            with suppress(PyagentdError, OSError), connect(runtime, human=True, name="attendant") as link:
                while not leaving.wait(0.1):
                    for ask in link.call("asks")["asks"] or ():
                        link.call("answer", ask=ask["id"], decision="allow")

    thread = threading.Thread(target=attend, name="attendant", daemon=True)
    thread.start()
    try:
        yield
    finally:
        leaving.set()
        thread.join(20)


class Moment:
    """Runs one plan in a system."""

    def __init__(self, plan: Plan, system: System, server: ModelServer) -> None:
        self.result = Result(plan)
        self._plan, self._system, self._server = plan, system, server
        self._trigger = Trigger(plan, self._kill)
        self._shown: list[Recorder] = []
        self._emacs: Emacs | None = None
        self._logs: list[Path] = []

    def run(self) -> Result:
        """Have it, and return what was wrong."""
        began = time.monotonic()
        try:
            self._begin()
            self._converse()
            self._trigger.fire()
            self._come_back()
            with _attendant(self._system.runtime):
                self._go_on()
            self._system.ok("stop")
            self.result.problems += self._problems()
        except (AssertionError, PyagentdError, OSError) as failure:
            self.result.problems.append(f"{type(failure).__name__}: {failure}; {self._last_words()}")
        finally:
            self._close()
        self.result.seconds = time.monotonic() - began
        return self.result

    # -- before ------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        model = Model(agent="explorer")
        self._server.rule = model
        self._session, self._branch = self._system.new("kill")
        if self._plan.in_emacs:
            self._open_emacs()
        self._record(lambda: self._trigger.tick("event"))
        self._server.rule = Counted(model, lambda: self._trigger.tick("model"))
        self._trigger.watch(paths.journal_file(self._branch))

    def _converse(self) -> None:
        for prompt in ("Hello.", EVERYTHING, FAIL, "Hello again."):
            if self._trigger.fired.is_set():
                return
            with suppress(EmacsError, PyagentdError, OSError):  # who is asked may be killed meanwhile
                self._say(prompt)
        self.result.reached = False

    def _say(self, prompt: str) -> None:
        if self._emacs is not None:
            self._emacs.eval(f"(progn (goto-char (point-max)) (insert {json.dumps(prompt)}) (pyagentd-send) t)")
            wait_for(lambda: self._trigger.fired.is_set() or self._emacs_says(_FINISHED), f"the end of {prompt!r}")
        else:
            with connect(self._system.runtime) as link:
                link.call("prompt", branch=str(self._branch), text=prompt, env=self._environment())
            wait_for(lambda: self._trigger.fired.is_set() or self._idle(), f"the end of {prompt!r}")
        self.result.reached = self._trigger.fired.is_set()

    # -- the kill and after ------------------------------------------------------------------------------------

    def _kill(self) -> None:
        if self._plan.victim != "emacs":
            os.kill(self._shown[0].daemon_pid, signal.SIGKILL)
        if self._plan.victim in ("emacs", "both"):
            assert self._emacs is not None
            os.kill(self._emacs.pid, signal.SIGKILL)

    def _come_back(self) -> None:
        if self._plan.victim in ("emacs", "both"):
            assert self._emacs is not None
            self._emacs.close()
            self._emacs = None
        if self._plan.victim != "emacs":
            wait_for(lambda: _gone(self._shown[0].daemon_pid), "the daemon to be gone")
        if self._plan.victim == "daemon twice":
            self._kill_the_next()
        if self._plan.in_emacs and self._emacs is None:
            self._open_emacs()
        elif self._plan.in_emacs and not self._plan.impatient:
            wait_for(lambda: self._emacs_says("(not (pyagentd-rpc-connected-p))"), "Emacs to notice")

    def _kill_the_next(self) -> None:
        """Have a new daemon heal the session, and kill it while it does."""
        self._system.run("serve", "--detach")  # unless Emacs was faster
        pid = self._system.daemon_pid()
        with suppress(PyagentdError, AssertionError):
            late = Recorder(self._system.runtime, self._branch)
            self._shown.append(late)
        time.sleep(self._plan.again_after_s)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: _gone(pid), "the next daemon to be gone")

    def _go_on(self) -> None:
        """Have one more turn, whose request the model's server accepts."""
        before = len(self._server.requests)

        def asked() -> bool:
            requests = [request for request in self._server.requests[before:] if request.body.get("tools")]
            return any(GOODBYE in json.dumps(request.messages[-1]) for request in requests)

        if self._emacs is not None:
            if not self._plan.impatient or self._plan.victim == "emacs":
                self._insist("(progn (driver-attach) t)", "Emacs to attach")
                self._emacs.wait(_ATTACHED, 30)
            self._send_goodbye(asked)
            self._emacs.eval("(progn (save-buffer) t)")
            emacs, file = self._emacs, self._branch / "session.md"
            try:
                wait_for(lambda: emacs.eval(_TEXT) == read(file).body, "the file to have what Emacs shows", 10)
            except AssertionError:
                self.result.problems.append("Emacs shows something else than the file has")
        else:
            self._system.run("asks")  # starts a daemon, which asks again what the last one left open
            wait_for(self._idle, "the run to be over")
            self._system.ok("send", self._session, GOODBYE)
        if not asked():
            self.result.problems.append("the model was not asked again")

    def _send_goodbye(self, asked: Callable[[], bool]) -> None:
        emacs = self._emacs
        assert emacs is not None
        # A file that a daemon wrote while Emacs had none is one that changed: Emacs asks, and the user has it read.
        self._insist(f"(progn (goto-char (point-max)) (insert {json.dumps(GOODBYE)}) t)", "the message to be typed")
        self._insist("(progn (goto-char (point-max)) (pyagentd-send) t)", "the message to be sent")

        def finished() -> bool:
            if self._emacs_says("(null (plist-get pyagentd-status :state))"):  # the daemon that was told is gone
                self._insist("(progn (goto-char (point-max)) (pyagentd-send) t)", "the message to be sent again")
            return self._emacs_says(_FINISHED) and asked()  # it waits for a run that goes on

        wait_for(finished, "the answer", 30)
        if emacs.eval("(plist-get pyagentd-status :state)") != "idle":
            said = emacs.eval('(format "%s" pyagentd-status)')
            self.result.problems.append(f"the last turn failed: {said}")

    # -- what must hold ----------------------------------------------------------------------------------------

    def _problems(self) -> Iterator[str]:
        ref = paths.ref_of(self._branch)
        self._sweep_after_emacs()
        for one in branches_below(ref):
            yield from (f"{one.branch_dir.name}: {problem}" for problem in branch_problems(one))
        for recorder in self._shown:
            for branch, runs in recorder.shown.items():
                yield from _unshown(Path(branch), runs)
        for log in self._logs:
            yield from self._unshown_by_emacs(log)
        yield from self._of_the_root()

    def _sweep_after_emacs(self) -> None:
        """Have go what a killed Emacs was writing, as it does after a while."""
        for draft in self._branch.glob(".session.md.??????.tmp"):
            os.utime(draft, (0, 0))
        atomic.sweep(self._branch)

    def _unshown_by_emacs(self, log: Path) -> Iterator[str]:
        body, position = read(self._branch / "session.md").body, 0
        for text in log.read_text().split("\0")[:-1] if log.exists() else ():
            found = body.find(text, position)
            if found < 0:
                yield f"Emacs showed what is not in the document: {text!r}"
                return
            position = found + len(text)

    def _of_the_root(self) -> Iterator[str]:
        for name in ("daemon.sock", "daemon.eld"):
            if (self._system.runtime / name).exists():
                yield f"{name} is left in the runtime directory"
        state = self._system.sessions / "state.db"
        if state.exists():
            with sqlite3.connect(state) as link:
                if (said := link.execute("pragma integrity_check").fetchone()[0]) != "ok":
                    yield f"state.db: {said}"

    # -- helpers -----------------------------------------------------------------------------------------------

    def _open_emacs(self) -> None:
        self._emacs = self._system.emacs()
        log = self._system.home / f"shown-{len(self._logs)}"
        self._logs.append(log)
        self._emacs.eval(f"(progn {_LOG % json.dumps(str(log))} t)")
        self._emacs.eval(f'(progn (find-file "{self._branch}/session.md") (driver-attach) t)')
        self._emacs.eval('(progn (goto-char (point-max)) (when (= 1 (point)) (insert "### ")) t)')

    def _record(self, on_event: Callable[[], None]) -> None:
        self._shown.append(Recorder(self._system.runtime, self._branch, on_event))

    def _insist(self, command: str, what: str) -> None:
        """Give a command until it works, as people do while a daemon comes and goes."""
        emacs = self._emacs
        assert emacs is not None

        def given() -> bool:
            try:
                return bool(emacs.eval(command, 40))
            except EmacsError:
                with suppress(EmacsError):
                    emacs.eval("(progn (driver-attach) t)", 40)
                return False

        wait_for(given, what, 30)

    def _emacs_says(self, form: str) -> bool:
        assert self._emacs is not None
        try:
            return bool(self._emacs.eval(form))
        except (EmacsError, OSError):
            return False

    def _idle(self) -> bool:
        said = self._system.run("status", "--json")
        return said.returncode == ExitCode.UNREACHABLE or json.loads(said.stdout)["runs"] == 0

    def _last_words(self) -> str:
        logs = sorted(self._system.home.glob("e*/emacs.log"))
        alive = self._emacs is not None and not _gone(self._emacs.pid)
        return f"Emacs, alive: {alive}, said {logs[-1].read_text()[-300:]!r}" if logs else "no Emacs"

    def _environment(self) -> dict[str, str]:
        return {name: self._system.env[name] for name in ("PYAGENTD_BACKEND", "ANTHROPIC_BASE_URL", "PATH")}

    def _close(self) -> None:
        if self._emacs is not None:
            self._emacs.close()
        for recorder in self._shown:
            recorder.stop()


def _unshown(branch: Path, runs: list[list[str]]) -> Iterator[str]:
    """Yield what was shown of a branch and is not in its document exactly once, in one piece for each run."""
    body = read(branch / "session.md").body
    for texts in runs:
        shown = "".join(texts).strip()
        if len(shown) > 8 and body.count(shown) != 1:
            yield f"{branch.name}: what was shown is in the document {body.count(shown)} times: {shown[-90:]!r}"


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
