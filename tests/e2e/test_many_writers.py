"""Two Emacsen, a shell, stock gptel and a run change one document at once: nothing is lost, nothing is doubled.

Whatever packages in an Emacs do to the text, also without a word to change hooks, all have the same text at the end.

A few edits; ``make test-edits`` makes ``PYAGENTD_WRITES`` of each writer, ``PYAGENTD_TEST_SEED`` other ones. What is
written are words that occur once, so that the end can be told from a list of what was written and deleted.

Other programs write the whole file as they have read it, and would undo what the daemon wrote in between: here they
read and write it while the daemon stands still.

Stock gptel is taken from ``PYAGENTD_GPTEL``, directories with ``gptel.el`` and what it needs, or from the packages of
this machine's Emacs.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import string
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyagentd.store.document.text import parse, read
from tests.e2e.conftest import System
from tests.e2e.emacs import ELPA, ROOT, Emacs, wait_for
from tests.e2e.test_conversation import FINISHED, send
from tests.e2e.test_manners import body
from tests.e2e.test_several_emacsen import ATTACHED, opened
from tests.e2e.valve import Valve
from tests.server import ModelServer, answer, text

CHANGES = ROOT / "tests" / "elisp" / "changes.el"
WRITES = int(os.environ.get("PYAGENTD_WRITES", "12"))
SEED = int(os.environ.get("PYAGENTD_TEST_SEED", "1"))
GPTEL = [place for place in os.environ.get("PYAGENTD_GPTEL", "").split(os.pathsep) if place] or [
    str(place) for place in ELPA if place.name.startswith(("gptel", "compat", "transient"))
]
Change = Callable[[float, str, bool], str | None]
WORD = re.compile("[0-9a-z]+ ")

# Changes the buffer at a place between words, and returns the word that is deleted.
_CHANGE = r"""(defun writer-change (place new delete)
  (save-excursion
    (save-restriction
      (widen)
      (goto-char (point-max))
      (when (re-search-backward "\n\n.*Local Variables:" nil t) ; which stock gptel shows
        (narrow-to-region (point-min) (point)))
      (goto-char (+ (point-min) (floor (* place (- (point-max) (point-min))))))
      (skip-chars-backward "^ \n")
      (let ((gone ""))
        (when (and delete (looking-at "[0-9a-z]+ "))
          (setq gone (match-string-no-properties 0))
          (delete-region (match-beginning 0) (match-end 0)))
        (insert new)
        gone))))"""
_STOCK = """(progn
  (require 'markdown-mode nil t)
  (require 'compat nil t)
  (require 'gptel)
  (require 'gptel-anthropic)
  (setq make-backup-files nil create-lockfiles nil
        gptel-model 'claude-test
        gptel-backend (gptel-make-anthropic "Claude" :key "none" :models '(claude-test)))
  t)"""
# As somebody does who opens the file, turns on gptel's mode, changes something and saves; nil where the roles that a
# shell has moved keep the mode from being turned on.
_EDIT = """(with-current-buffer (find-file-noselect %s t)
  (revert-buffer t t)
  (unless (derived-mode-p 'text-mode) (text-mode))
  (gptel-mode -1)
  (condition-case nil
      (let ((save-silently t))
        (gptel-mode)
        (prog1 (list (writer-change %s %s %s)) (save-buffer)))
    (args-out-of-range (setq gptel-mode nil))))"""


class Written:
    """What was written and deleted."""

    def __init__(self) -> None:
        self.words: set[str] = set()
        self.deleted: set[str] = set()
        self._lock = threading.Lock()

    def note(self, new: str, gone: str) -> None:
        with self._lock:
            self.words.update(WORD.findall(new))
            self.deleted.update(WORD.findall(gone))

    def wrong(self, found: str) -> list[str]:
        """Return what is wrong with a text."""
        said = WORD.findall(found)
        problems = [f"lost: {word}" for word in sorted(self.words - self.deleted) if word not in said]
        problems += [f"doubled: {word}" for word in sorted({word for word in said if said.count(word) > 1})]
        problems += [f"came back: {word}" for word in sorted(self.deleted) if word in said]
        problems += [f"from nowhere: {word}" for word in said if word not in self.words]
        torn = WORD.sub("", found).translate(str.maketrans("", "", "\n#")).strip()
        return [*problems, f"torn: {torn}"] if torn else problems


class Writer:
    """One who makes random changes, by a function that makes one and returns what it deleted; None: it could not."""

    def __init__(self, name: str, written: Written, change: Change) -> None:
        self._random = random.Random(f"{SEED} {name}")
        self._name, self._number, self._written, self._change = name, 0, written, change
        self._replaces = name in "ab"

    def write(self, pause_s: float) -> None:
        """Make one change, and pause."""
        self._number += 1
        how = self._random.random()
        new = "" if how < 0.2 else f"{self._name}{self._number}{self._random.choice(string.ascii_lowercase)} "
        if how > 0.8:
            new += self._random.choice(["\n", "\n\n", f"{self._name}{self._number} "])
        replaces = self._replaces and how < 0.35  # what is replaced by another program is two changes for the daemon
        gone = self._change(self._random.random(), new, not new or replaces)
        if gone is not None:
            self._written.note(new, gone)
        time.sleep(self._random.random() * pause_s)


def _states(pid: int) -> Iterator[str]:
    """Yield the state of each thread of a process."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        yield (task / "stat").read_text().rpartition(")")[2].split()[0]


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        # The signal is only on its way: a thread may still put a file in its place.
        wait_for(lambda: set(_states(pid)) == {"T"}, "the daemon to stand still")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def lisp(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def by_emacs(emacs: Emacs) -> Change:
    emacs.eval(f"(progn {_CHANGE} t)")

    def change(place: float, new: str, delete: bool) -> str:
        return str(emacs.eval(f"(writer-change {place} {lisp(new)} {'t' if delete else 'nil'})"))

    return change


class Others:
    """Programs that know nothing of the daemon; one of them at a time."""

    def __init__(self, system: System, file: Path) -> None:
        self._system, self._file, self._pid = system, file, system.daemon_pid()
        self._turn = threading.Lock()
        self._count = 0

    def by_shell(self, place: float, new: str, delete: bool) -> str | None:
        """Change the file with sed, which replaces it, or write it anew, in two pieces."""
        with self._turn:
            self._count += 1
            with standing_still(self._pid):
                found = self._file.read_bytes().decode()
                words = list(WORD.finditer(found, 0, len(parse(found).body)))
                if not words:
                    return None
                word = words[int(place * len(words))]
                if self._count % 2:
                    put = "" if delete else word[0] + new.replace("\n", "\\n")
                    subprocess.run(["sed", "-i", f"s/{word[0]}/{put}/", self._file], check=True)
                else:
                    text = found[: word.start() if delete else word.end()] + new + found[word.end() :]
                    half = len(text.encode()) // 2
                    piece = ["dd", "bs=1M", "status=none"]
                    subprocess.run([*piece, f"of={self._file}"], check=True, input=text.encode()[:half])
            if self._count % 2 == 0:
                with self._file.open("ab") as opened:
                    opened.write(text.encode()[half:])
            return word[0] if delete else ""

    def by_gptel(self, emacs: Emacs) -> Change:
        emacs.eval(_STOCK)
        emacs.eval(f"(progn {_CHANGE} t)")
        file = lisp(str(self._file))

        def change(place: float, new: str, delete: bool) -> str | None:
            with self._turn, standing_still(self._pid):
                saved = emacs.eval(_EDIT % (file, place, lisp(new), "t" if delete else "nil"))
            return str(saved[0]) if saved else None

        return change


def run_all(writers: list[Writer], pause_s: float) -> None:
    failures: list[BaseException] = []

    def write(writer: Writer) -> None:
        try:
            for _ in range(WRITES):
                writer.write(pause_s)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=write, args=(writer,), daemon=True) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("with_gptel", [False, True], ids=["emacs and a shell", "gptel, too"])
def test_all_write_at_once(system: System, model_server: ModelServer, with_gptel: bool) -> None:
    if with_gptel and not any((Path(place) / "gptel.el").exists() for place in GPTEL):
        pytest.skip("gptel is not installed; PYAGENTD_GPTEL names its directory")
    system.use_server(model_server.url)
    _, branch = system.new()
    file = branch / "session.md"
    one, other = opened(system, branch), opened(system, branch)
    written = Written()
    said = [f"r{number:03} " for number in range(max(20, WRITES))]
    written.note("".join(said), "")
    written.note("p0 ", "")
    valve = Valve(answer(text("".join(said), chunks=len(said))))
    model_server.say(valve)
    send(one, "p0 ")
    wait_for(lambda: "p0" in body(other), "the prompt to be shown")
    others = Others(system, file)
    changes = {"a": by_emacs(one), "b": by_emacs(other), "c": others.by_shell}
    if with_gptel:
        changes["d"] = others.by_gptel(stock(system))
    writers = [Writer(name, written, change) for name, change in changes.items()]
    done = threading.Event()
    speaker = threading.Thread(target=lambda: [valve.let(1) for _ in said if not done.wait(0.2)], daemon=True)
    speaker.start()
    try:
        run_all(writers, 0.4)
    finally:
        done.set()
        valve.open()
    for emacs in (one, other):
        emacs.wait(FINISHED)
        emacs.eval("(progn (pyagentd-sync--look) (save-buffer) t)")
    wait_for(lambda: body(one) == body(other) == read(file).body, "all to have the same text")
    problems = written.wrong(read(file).body)
    assert not problems, "\n".join([f"seed {SEED}", *problems, read(file).body])
    for emacs in (one, other):
        emacs.wait(f"(and {ATTACHED} (not (buffer-modified-p)) (verify-visited-file-modtime))")
    document = read(file)
    assert not document.stale and not document.damage


def test_what_no_change_hook_is_told_of_reaches_all(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    _, branch = system.new()
    one, other = opened(system, branch), opened(system, branch)
    said = [f"r{number:03} " for number in range(max(20, WRITES))]
    valve = Valve(answer(text("".join(said), chunks=len(said))))
    model_server.say(valve)
    send(one, "p0 ")
    wait_for(lambda: "p0" in body(other), "the prompt to be shown")
    for number, emacs in enumerate((one, other)):
        emacs.eval(f"(progn (load {lisp(str(CHANGES))}) (random {lisp(f'{SEED} {number}')}) t)")
        emacs.eval("(progn (buffer-enable-undo) (setq-default create-lockfiles nil) t)")  # for indirect buffers
    for _ in said:
        valve.let(1)
        for emacs in (one, other):
            emacs.eval("(progn (dotimes (_ 5) (changes-make) (accept-process-output nil 0.002)) t)")
    valve.open()
    for emacs in (one, other):
        emacs.wait(FINISHED)
        emacs.eval("(progn (save-buffer) t)")
    wait_for(lambda: body(one) == body(other) == read(branch / "session.md").body, "all to have the same text")


def stock(system: System) -> Emacs:
    """Return an Emacs without anything of ours."""
    emacs = system.emacs(load=())
    for place in GPTEL:
        emacs.eval(f"(progn (push {lisp(place)} load-path) t)")
    return emacs
