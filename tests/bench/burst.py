"""One answer into a Markdown buffer that holds a megabyte: as fast as the model can, then at a model's usual rate.

Stock gptel is measured beside us where ``PYAGENTD_GPTEL`` names the directories of ``gptel.el`` and what it needs.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from pyagentd.store.document import text as document
from tests.bench import corpus, peers
from tests.bench.figure import Fact, Figure, Result, at_most
from tests.bench.measure import Spent, median
from tests.bench.references import reference
from tests.bench.world import World
from tests.e2e.emacs import Emacs, EmacsError

_RATE = 200  # deltas a second
_AFTERMATH_S = 3.0  # saving and fontification come when the answer is there, and must not stall Emacs either


def burst(world: World) -> Iterator[Result]:
    """Deltas as fast as the model's server can."""
    size = 20_000 if world.quick else 1_000_000
    daemon = world.daemon()
    branch = world.filled("big", size)
    emacs = world.emacs()
    world.open(emacs, branch)
    for count, times in ((500, 1),) if world.quick else ((5_000, 3), (50_000, 2)):
        yield from _burst(world, emacs, daemon, count, times, size)
    # Last, since they slow down what is measured: other buffers of a megabyte in the same Emacs, and another Emacs.
    count, times = (500, 1) if world.quick else (5_000, 3)
    yield Figure(
        name=f"{count:,} deltas: longest stall of Emacs, again",
        value=max(_stall(world, emacs, count) for _ in range(times)),
        unit="ms",
        reference=max(_plain_stall(world, emacs, count) for _ in range(times)),
        beside="a filter that inserts them, text-mode",
        target=at_most(33),
    )
    with contextlib.suppress(EmacsError):  # it is not there
        gptel = _gptel(world, branch)
        stalls = [_gptel_stall(world, gptel, count) for _ in range(times)]
        yield Figure(
            name="  the same beside gptel",
            value=max(_stall(world, emacs, count) for _ in range(times)),
            unit="ms",
            reference=max(stalls),
            beside="gptel",
            target=at_most(0.3, "ratio"),
        )


def _burst(world: World, emacs: Emacs, daemon: int, count: int, times: int, size: int) -> Iterator[Result]:
    prompt = f"burst {count}"
    reference("bare", world.url, prompt)  # the model encodes what it will say
    bare = [reference("bare", world.url, prompt, before=size) for _ in range(times)]
    sdk = [reference("sdk", world.url, prompt, before=size) for _ in range(times)]
    totals, stalls, costs, exact = [], [], [], True
    for _ in range(times):
        before = world.text(emacs)
        world.type(emacs, prompt)
        spent = Spent(daemon)
        emacs.eval("(progn (bench-watch) t)")
        emacs.eval("(progn (pyagentd-send) t)")
        end = world.finished(emacs)
        costs.append(spent.cpu(daemon))
        time.sleep(_AFTERMATH_S)
        stalls.append(emacs.eval("(bench-unwatch)")[0])
        totals.append(end - emacs.eval("(car bench-sent)"))
        exact &= world.text(emacs) == f"{before}{prompt}\n\n{corpus.text(count)}\n\n### "
    yield Fact(f"{count:,} deltas, 1 MB of Markdown: text exact", exact)
    yield Figure(name="  longest stall of Emacs", value=max(stalls), unit="ms")
    yield Figure(
        name="  prompt sent to run finished",
        value=1000 * median(totals),
        unit="ms",
        reference=1000 * median([cost.total_s for cost in sdk]),
        beside="raw SDK",
        target=at_most(1.5, "ratio"),
    )
    yield Figure(
        name="  daemon CPU",
        value=1000 * median(costs),
        unit="ms",
        reference=1000 * median([cost.cpu_s for cost in bare]),
        beside="bare HTTP reader",
        target=at_most(2.3, "ratio"),
    )


def paced(world: World) -> Iterator[Result]:
    """Deltas at the rate of a fast model."""
    seconds = 1 if world.quick else 10
    size = 20_000 if world.quick else 1_000_000
    count = _RATE * seconds
    prompt = f"paced {_RATE} {seconds}"
    daemon = world.daemon()
    branch = world.filled("big", size)
    emacs = world.emacs()
    world.open(emacs, branch)
    bare = reference("bare", world.url, prompt, before=size)
    world.type(emacs, prompt)
    spent = Spent(daemon, emacs.pid)
    emacs.eval("(progn (pyagentd-send) t)")
    time.sleep(seconds)
    world.finished(emacs)
    ours = spent.cpu(emacs.pid)
    yield Figure(
        name=f"paced {_RATE}/s: daemon CPU per delta",
        value=1e6 * spent.cpu(daemon) / count,
        unit="µs",
        reference=1e6 * bare.cpu_s / count,
        beside="bare HTTP reader",
        target=at_most(4, "ratio"),
    )
    yield Figure(
        name=f"paced {_RATE}/s: Emacs CPU per delta, 1 MB of Markdown",
        value=1000 * ours / count,
        unit="ms",
        reference=1000 * _bare_insertion(world, emacs, count) / count,
        beside="bare filter, text-mode",
        target=at_most(1.0, "ratio"),
    )


def _stall(world: World, emacs: Emacs, count: int) -> float:
    """Return by how many ms Emacs is late at most while an answer comes into a session, and shortly after."""
    emacs.eval("(progn (switch-to-buffer (car (pyagentd-place-buffers))) t)")
    world.type(emacs, f"burst {count}")
    emacs.eval("(progn (bench-watch) t)")
    emacs.eval("(progn (pyagentd-send) t)")
    world.finished(emacs)
    return _watched(emacs)


def _plain_stall(world: World, emacs: Emacs, count: int) -> float:
    """Return the same where a filter inserts each delta as it comes, in a plain buffer."""
    size = _plain_buffer(emacs)
    with peers.listening(world.system.home, peers.trickle(corpus.pieces(count), 1e9)) as socket:
        emacs.eval("(progn (bench-watch) t)")
        emacs.eval(f'(progn (bench-bare-insert "{socket}" (current-buffer)) t)')
        emacs.wait(f"(= (buffer-size) {size + len(corpus.text(count))})")
        return _watched(emacs)


def _gptel(world: World, branch: Path) -> Emacs:
    """Return an Emacs with gptel, in a buffer with the text of a session; raises ``EmacsError`` without gptel."""
    emacs = world.emacs()
    places = " ".join(f'"{place}"' for place in os.environ.get("PYAGENTD_GPTEL", "").split(os.pathsep) if place)
    copy = world.system.project / "gptel.md"
    copy.write_text(document.read(branch / "session.md").body)
    emacs.eval(
        f"(progn (setq load-path (append '({places}) load-path)) (require 'compat nil t) (require 'gptel)"
        " (require 'gptel-anthropic) (setq gptel-model 'bench gptel-backend"
        f' (gptel-make-anthropic "Bench" :host "{world.url.removeprefix("http://")}" :protocol "http" :stream t'
        '  :key "none" :models \'(bench)))'
        f' (switch-to-buffer (find-file-noselect "{copy}")) (gptel-mode) '
        " (add-hook 'gptel-post-response-functions (lambda (&rest _) (setq bench-finished '((0 done)))) nil t) t)"
    )
    return emacs


def _gptel_stall(world: World, emacs: Emacs, count: int) -> float:
    """Return by how many ms Emacs is late at most while gptel gets the answer, and shortly after."""
    emacs.eval("(with-silent-modifications (put-text-property 10 (point-max) 'gptel 'response) t)")
    before = emacs.eval("(buffer-size)")
    world.type(emacs, f"\n\n### burst {count}")
    emacs.eval("(progn (bench-watch) t)")
    emacs.eval("(progn (gptel-send) t)")
    world.finished(emacs)
    assert emacs.eval("(buffer-size)") > before + len(corpus.text(count)), "gptel got another answer"
    return _watched(emacs)


def _watched(emacs: Emacs) -> float:
    time.sleep(_AFTERMATH_S)
    return float(emacs.eval("(bench-unwatch)")[0])


def _plain_buffer(emacs: Emacs) -> int:
    """Show the text of the session in a plain buffer; return its size."""
    emacs.eval(
        '(progn (switch-to-buffer "plain") (text-mode) (buffer-disable-undo) (erase-buffer) '
        "(insert-buffer-substring (car (pyagentd-place-buffers))) (set-buffer-modified-p nil) "
        "(goto-char (point-max)) (recenter -1) t)"
    )
    return int(emacs.eval("(buffer-size)"))


def _bare_insertion(world: World, emacs: Emacs, count: int) -> float:
    """Return the CPU time of Emacs when a filter inserts each delta as it comes, in a plain buffer."""
    size = _plain_buffer(emacs)
    with peers.listening(world.system.home, peers.trickle(corpus.pieces(count), _RATE)) as socket:
        spent = Spent(emacs.pid)
        emacs.eval(f'(progn (bench-bare-insert "{socket}" (current-buffer)) t)')
        time.sleep(count / _RATE)
        emacs.wait(f"(= (buffer-size) {size + len(corpus.text(count))})")
        return spent.cpu(emacs.pid)
