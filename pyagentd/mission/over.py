"""Run a mission over many items on any ``concurrent.futures.Executor``; each result is written as a row of JSON.

A run can continue a file that has rows already. An item whose worker was lost is run again by another; a failed
mission is a row and does not end the run. Mission and item are sent to the workers, API keys never are: a model reads
its key from the environment of the process that calls it.
"""

import fcntl
import hashlib
import importlib
import json
import math
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from pyagentd.errors import UserError
from pyagentd.installation import extra
from pyagentd.lisp import values
from pyagentd.mission.delegation import Mission
from pyagentd.mission.firewall import public
from pyagentd.mission.runtime import Event, error_text

ATTEMPTS = 4
"""How often an item is tried when its workers are lost."""
THREADS = 8
_PER_THREAD = 8  # items in flight for each thread of a Dask worker, so that it is never idle
_LOST = {"BrokenExecutor", "CancelledError", "KilledWorker", "CommClosedError", "LostRunner", "_BegunBefore"}
_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 60.0
_MOST_PAUSES = 12  # pauses in a row in which the rate limit let no item through: six minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The result of one item."""

    index: int  # of the item, from 0
    key: str  # hashes of mission and item, and the number of equal items before it
    item: Any
    ok: bool
    value: Any = None  # a JSON value
    fail: Mapping[str, str] | None = None  # ``{"reason", "message"}`` of a failed mission
    # ``turns``, ``input_tokens``, ``output_tokens``, ``cost_usd``, ``duration_ms``
    usage: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the row as a line of the file."""
        return json.dumps({each.name: getattr(self, each.name) for each in fields(self)}, ensure_ascii=False)


def version(mission: Mission[Any]) -> str:
    """Return a hash of a mission: prompt, options, names of functions."""
    identity = json.dumps([mission.prompt, dict(mission.options)], sort_keys=True, default=_describe)
    return hashlib.sha256(identity.encode()).hexdigest()[:12]


def _describe(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if name := getattr(value, "__qualname__", None):
        return f"{getattr(value, '__module__', '')}:{name}"
    if " at 0x" not in (shown := repr(value)):
        return shown
    parts: Any = None  # a repr with an address differs between processes, so the parts are described instead
    if isinstance(value, partial):
        parts = [value.func, value.args, value.keywords]
    elif is_dataclass(value):
        parts = {each.name: getattr(value, each.name) for each in fields(value) if each.repr}
    return [_describe(type(value)), parts]


def keys(mission: Mission[Any], items: Iterable[Any]) -> list[str]:
    """Return the key of each item's row."""
    of_mission, seen, found = version(mission), Counter[str](), []
    for item in items:
        digest = hashlib.sha256(json.dumps(item, sort_keys=True, default=_describe).encode()).hexdigest()[:16]
        found.append(f"{of_mission}-{digest}-{seen[digest]}")
        seen[digest] += 1
    return found


def import_tool(name: str) -> Callable[..., Any]:
    """Return the function ``MODULE:NAME``.

    Raises:
        UserError: There is no such function.
    """
    module, colon, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]
    except (ImportError, AttributeError, ValueError) as error:
        hint = "Write MODULE:FUNCTION; the module must be importable where the mission runs (PYTHONPATH)"
        message = f"The tool {name} cannot be loaded: {error}" if colon else f"{name} is not a tool"
        raise UserError(message, hint=hint) from error


@dataclass(frozen=True, slots=True)
class _Reply:
    """The reply of a worker: plain values only."""

    ok: bool
    value: Any
    fail: Mapping[str, str] | None
    usage: Mapping[str, float]
    throttled: int = 0  # how often the provider's rate limit refused
    refused: bool = False  # whether it failed because of that


def run_item(mission: Mission[Any], item: Any) -> _Reply:
    """Run a mission for one item, in a worker; tools given as ``MODULE:NAME`` are imported here."""
    throttled = 0
    observer = mission.options.get("telemetry")

    def telemetry(event: Event) -> None:
        nonlocal throttled
        throttled += event.name == "llm_exception" and event.metadata.get("reason") == "rate_limit"
        if observer is not None:
            observer(event)

    try:
        tools: Any = mission.options.get("tools")
        if isinstance(tools, Sequence):
            tools = [import_tool(tool) if isinstance(tool, str) else tool for tool in tools]
        elif isinstance(tools, Mapping):
            tools = {name: import_tool(tool) if isinstance(tool, str) else tool for name, tool in tools.items()}
        step = mission._for_item(item, {"tools": tools, "telemetry": telemetry}).run()
    except Exception as error:  # an error of a tool or a callback fails one item, not the run
        return _Reply(False, None, {"reason": "error", "message": error_text(error)}, {}, throttled)
    used = step.usage
    usage = {
        "turns": used.turns,
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "cost_usd": used.cost_usd,
        "duration_ms": used.duration_ms,
    }
    value = values.to_python(public(step.lisp_value)) if step.ok else None
    fail = None if step.fail is None else {"reason": step.fail.reason, "message": step.fail.message}
    ended_by = None if step.fail is None else (step.fail.reason, step.fail.details.get("reason"))
    refused = throttled > 0 and ended_by == ("llm_error", "rate_limit")
    return _Reply(step.ok, json.loads(json.dumps(value, default=_plain)), fail, usage, throttled, refused)


def _plain(value: object) -> object:
    return sorted(value, key=str) if isinstance(value, set | frozenset) else str(value)


class _Window:
    """The number of items in flight: halved when the provider's rate limit refuses, then raised again gradually.

    All workers share it, so that those that were not refused slow down as well.
    """

    def __init__(self, most: int) -> None:
        self._most, self._size = most, float(most)
        self._pause_s, self._until, self._pauses = _PAUSE_S, 0.0, 0

    def room(self, running: int) -> bool:
        return running < int(self._size) and time.monotonic() >= self._until

    @property
    def is_shut(self) -> bool:
        """Whether the rate limit has let no item through for so long that waiting is pointless."""
        return self._pauses >= _MOST_PAUSES

    @property
    def rest_s(self) -> float:
        """Seconds until the next item may be sent."""
        return max(0.0, self._until - time.monotonic())

    def note(self, throttled: int, *, refused: bool) -> None:
        if not refused:
            self._pauses = 0
        if not throttled:
            self._size, self._pause_s = min(self._most, self._size + 1 / self._size), _PAUSE_S
        elif time.monotonic() >= self._until:  # once for all items that were in flight together
            self._size = max(1.0, self._size / 2)
            self._until = time.monotonic() + self._pause_s
            self._pauses += refused
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)


class Workers:
    """Runs items in an executor, ``most`` at a time; an executor that lost its workers is replaced by a new one."""

    def __init__(self, make: Callable[[], Executor], most: int, *, owned: bool = True) -> None:
        self._make, self.most, self._owned = make, most, owned
        self._executor: Executor | None = None

    @classmethod
    def of(cls, executor: "str | Executor | Workers", most: int | None = None) -> "Workers":
        """Return workers for ``threads``, ``processes``, ``dask://HOST:PORT``, or an executor.

        Args:
            executor: One of them; an executor object is not closed.
            most: How many items are in flight; None: as many as there are workers, and some more with Dask.

        Raises:
            UserError: There is no such executor, or no scheduler answers there.
        """
        match executor:
            case Workers():
                return executor
            case Executor() if type(executor).__module__.startswith("distributed."):
                return _DaskWorkers(executor._client, most, owned=False)  # type: ignore[attr-defined]
            case Executor():
                return cls(lambda: executor, most or 4 * THREADS, owned=False)
            case "threads":
                number = most or THREADS
                return cls(partial(ThreadPoolExecutor, number, "mission"), number)
            case "processes":
                number = most or os.cpu_count() or 1
                spawn = get_context("spawn")  # a fork would have the locks of our threads
                # Workers ignore Ctrl-C, which goes to all processes of a terminal: begun items are already paid for.
                deaf = (signal.signal, (signal.SIGINT, signal.SIG_IGN))
                return cls(partial(ProcessPoolExecutor, number, spawn, *deaf), number)
            case str() if executor.startswith("dask://"):
                address = executor.removeprefix("dask://")
                with extra("dask", "dask://"):
                    from distributed import Client
                try:
                    connect: Any = Client  # it is not typed
                    client = connect(f"tcp://{address}", timeout=10, set_as_default=False)
                except OSError as error:
                    hint = "Start one: dask scheduler"
                    raise UserError(f"No Dask scheduler answers at {address}", hint=hint) from error
                return _DaskWorkers(client, most)
        raise UserError(f"There is no executor {executor!r}", hint="threads, processes or dask://HOST:PORT")

    def submit(self, mission: Mission[Any], item: Any) -> "Future[_Reply]":
        """Submit an item to a worker."""
        if self._executor is None:
            self._executor = self._make()
        try:
            return self._executor.submit(run_item, mission, item)
        except RuntimeError:  # its workers are gone: BrokenExecutor is one
            self._executor = self._make()
            return self._executor.submit(run_item, mission, item)

    def close(self) -> None:
        """Shut down the workers that this object started."""
        if self._owned and self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)


class _BegunBefore(Exception):
    """Dask repeats an item that had begun on a lost worker."""


class _DaskReply(Future[_Reply]):
    """The reply to an item; an item that a worker has begun cannot be cancelled: it is already paid for."""

    def __init__(self, has_begun: Callable[[], bool]) -> None:
        super().__init__()
        self._has_begun = has_begun

    def cancel(self) -> bool:
        """Cancel the item if no worker has begun it."""
        return not self._has_begun() and super().cancel()


class _DaskWorkers(Workers):
    """Workers of a Dask cluster; an item is begun only once.

    By default Dask repeats every item that a lost worker held, even those whose results have arrived here and are
    written. So each submission has a mark at the scheduler: a worker that finds it set does not run the item, and
    this process decides whether to submit it again.
    """

    def __init__(self, client: Any, most: int | None, *, owned: bool = True) -> None:
        self.most = most or _PER_THREAD * max(1, sum(client.nthreads().values()))
        self._client, self._owned = client, owned
        self._marks = ["pyagentd", uuid4().hex]
        self._number = count()

    def submit(self, mission: Mission[Any], item: Any) -> "Future[_Reply]":
        mark = [*self._marks, str(next(self._number))]
        # Dask's own executor never reports a result that was lost with its worker while it was fetched.
        asked = self._client.submit(_begin_once, mark, mission, item, pure=False)
        done = _DaskReply(lambda: self._client.get_metadata(mark, None) is not None)
        done.add_done_callback(lambda each: asked.cancel() if each.cancelled() else None)
        asked.add_done_callback(partial(_pass_on, done))
        return done

    def close(self) -> None:
        self._client.set_metadata(self._marks, None)
        if self._owned:
            self._client.close()


def _pass_on(done: "Future[_Reply]", answer: Any) -> None:
    """Set the result of ``answer``, a future of Dask, in ``done``."""
    if done.set_running_or_notify_cancel():
        try:
            done.set_result(answer.result())
        except BaseException as error:
            done.set_exception(error)


def _begin_once(mark: list[str], mission: Mission[Any], item: Any) -> _Reply:
    """Run a mission for one item in a worker of Dask, unless ``mark`` shows that it was begun before."""
    from distributed import get_client  # certainly installed in a Dask worker

    client: Any = get_client()
    if client.get_metadata(mark, None) is not None:
        raise _BegunBefore
    client.set_metadata(mark, True)
    return run_item(mission, item)


@dataclass(slots=True, kw_only=True)
class Summary:
    """The outcome of a run."""

    total: int = 0  # items
    before: int = 0  # items with a row from an earlier run
    done: int = 0  # items that got a row in this run
    failed: int = 0  # failed ones among ``done``
    cost_usd: float = 0.0  # of ``done``
    stopped: str = ""  # why the run ended before all items had a row


def run_over(
    mission: Mission[Any],
    items: Sequence[Any],
    output: Path,
    *,
    executor: "str | Executor | Workers" = "threads",
    resume: bool = False,
    ordered: bool = False,
    max_concurrency: int | None = None,
    max_cost_usd: float | None = None,
    progress: Callable[[Summary, Row | None], None] = lambda summary, row: None,
) -> Summary:
    """Run ``mission`` for each item and write a row for each to ``output``, JSONL.

    Args:
        mission: The mission with its model and tools; its limits apply to each item. A tool may be "MODULE:FUNCTION".
        items: JSON values: contexts, or values of the mission's only parameter.
        output: The file; it is locked against other processes.
        executor: ``threads``, ``processes``, ``dask://HOST:PORT`` or any executor.
        resume: Continue a file that has rows; without it such a file is an error.
        ordered: Write rows in the order of the items, not as they finish.
        max_concurrency: How many items are in flight.
        max_cost_usd: The limit for the whole file, earlier rows included; no item begins beyond it.
        progress: Called after each row, and once before.

    Raises:
        UserError: The file, an item or the executor cannot be used; nothing was begun.
    """
    for number, item in enumerate(items, 1):
        try:
            mission._for_item(item, {})
        except UserError as error:
            raise UserError(f"Item {number}: {error}") from error
    named = keys(mission, items)
    with ExitStack() as stack:
        file, rows = stack.enter_context(_open_output(output, resume=resume))
        spent = sum(float(row.get("usage", {}).get("cost_usd") or 0) for row in rows.values())
        summary = Summary(total=len(items), cost_usd=0.0)
        todo = deque(number for number, key in enumerate(named) if key not in rows)
        summary.before = len(items) - len(todo)
        progress(summary, None)
        if not todo:
            return summary
        workers = Workers.of(executor, max_concurrency)
        if workers is not executor:
            stack.callback(workers.close)
        write = _Writer(file, list(todo) if ordered else None)
        limits = mission.options.get("limits")
        each_usd = float(mission.options.get("max_cost_usd") or (limits and limits.max_cost_usd) or 0.0)
        most_usd = math.inf if max_cost_usd is None else max_cost_usd
        loop = _Loop(mission, items, named, workers, _Window(workers.most), todo, each_usd, most_usd, spent)
        try:
            for row in loop.rows():
                write.add(row)
                summary.done += 1
                summary.failed += not row.ok
                summary.cost_usd += row.usage.get("cost_usd", 0.0)
                progress(summary, row)
        finally:
            try:
                for row in loop.rest():
                    write.add(row)
            finally:
                write.flush()
        summary.stopped = loop.stopped
    return summary


@dataclass(slots=True)
class _Loop:
    """Submits items to workers, and again those that were lost."""

    _mission: Mission[Any]
    _items: Sequence[Any]
    _named: Sequence[str]  # the keys of their rows
    _workers: Workers
    _window: _Window
    _todo: deque[int]
    _each_usd: float
    _most_usd: float
    _spent_usd: float
    _losses: Counter[int] = field(default_factory=Counter)
    _suspects: set[int] = field(
        default_factory=set
    )  # one of them ended its worker, and its pool; each runs alone now
    _paid: dict[int, Mapping[str, float]] = field(default_factory=dict)  # for attempts that the rate limit ended
    _running: dict[Future[_Reply], int] = field(default_factory=dict)
    stopped: str = ""

    def rows(self) -> Iterator[Row]:
        """Yield the rows as items finish."""
        while self._todo or self._running:
            self._submit()
            if not self._running:
                if self.stopped:
                    return
                time.sleep(min(1.0, self._window.rest_s))
                continue
            pause = self._window.rest_s or None
            for future in wait(self._running, timeout=pause, return_when=FIRST_COMPLETED).done:
                if (row := self._row(self._running.pop(future), future)) is not None:
                    yield row

    def rest(self) -> Iterator[Row]:
        """Submit no more; yield the rows of the running items as they finish, since they are already paid for."""
        running = {future: number for future, number in self._running.items() if not future.cancel()}
        for future in as_completed(running):
            if future.exception() is None and (row := self._row(running[future], future)) is not None:
                yield row

    def _submit(self) -> None:
        if self._window.is_shut and not self._running:
            self.stopped = "The provider's rate limit let no request through for minutes. Continue with --resume"
        while self._todo and not self._window.is_shut and self._window.room(len(self._running)):
            if self._spent_usd + self._each_usd * (1 + len(self._running)) > self._most_usd or (
                self._spent_usd >= self._most_usd
            ):
                if not self._running:
                    self.stopped = f"The budget of {self._most_usd:g} US dollars is spent. Raise it and add --resume"
                return
            number = self._todo[0]
            if self._running and self._suspects and not self._suspects.isdisjoint({number, *self._running.values()}):
                return
            self._todo.popleft()
            self._running[self._workers.submit(self._mission, self._items[number])] = number

    def _row(self, number: int, future: "Future[_Reply]") -> Row | None:
        """Return the row of an item; None if it is tried again."""
        try:
            done = future.result()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the worker is lost, or item or mission cannot be sent to one
            self._losses[number] += 1
            # A lost worker, not a fault of the item?
            kinds = {each.__name__ for each in type(error).__mro__}
            is_lost = isinstance(error, OSError | CancelledError) or bool(kinds & _LOST)
            if self._losses[number] < ATTEMPTS and is_lost:
                if isinstance(error, BrokenExecutor):
                    self._suspects.add(number)
                self._todo.appendleft(number)
                return None
            done = _Reply(False, None, {"reason": "worker", "message": error_text(error) or type(error).__name__}, {})
        self._window.note(done.throttled, refused=done.refused)
        self._spent_usd += done.usage.get("cost_usd", 0.0)
        paid = self._paid.pop(number, {})
        usage = {name: paid.get(name, 0) + done.usage.get(name, 0) for name in {**paid, **done.usage}}
        if done.refused:
            self._paid[number] = usage
            self._todo.appendleft(number)
            return None
        self._suspects.discard(number)
        return Row(
            index=number,
            key=self._named[number],
            item=self._items[number],
            ok=done.ok,
            value=done.value,
            fail=done.fail,
            usage=usage,
        )


class _Writer:
    """Writes rows as they are added, or in the order of ``order``."""

    def __init__(self, file: IO[bytes], order: Sequence[int] | None) -> None:
        self._file = file
        self._order = None if order is None else deque(order)
        self._kept: dict[int, Row] = {}

    def add(self, row: Row) -> None:
        if self._order is None:
            self._write([row])
            return
        self._kept[row.index] = row
        ready = []
        while self._order and self._order[0] in self._kept:
            ready.append(self._kept.pop(self._order.popleft()))
        self._write(ready)

    def flush(self) -> None:
        """Write the rows that still wait for earlier ones."""
        self._write([self._kept[number] for number in sorted(self._kept)])
        self._kept.clear()

    def _write(self, rows: Iterable[Row]) -> None:
        if data := "".join(f"{row.to_json()}\n" for row in rows).encode("utf-8", "replace"):
            self._file.write(data)
            self._file.flush()


@contextmanager
def _open_output(output: Path, *, resume: bool) -> Iterator[tuple[IO[bytes], dict[str, dict[str, Any]]]]:
    """Open and lock the file of rows; yield it and its rows by key. An incomplete last line is removed.

    Raises:
        UserError: It has rows without ``resume``, is not a file of rows, or another process writes it.
    """
    if output.exists() and not output.is_file():  # a pipe or a terminal: its rows cannot be read back
        raise UserError(f"{output} is not a regular file", hint="Name a file: --resume reads its rows")
    try:
        file = output.open("a+b")
    except OSError as error:
        raise UserError(f"{output} cannot be written: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"{output} is written by another process") from error
        file.seek(0)
        data = file.read()
        if data and not resume:
            raise UserError(f"{output} exists", hint="Continue it with --resume, or name another --output")
        whole = data[: data.rfind(b"\n") + 1]
        rows: dict[str, dict[str, Any]] = {}
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                row = json.loads(line)
                rows[row["key"]] = row
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(f"{output}:{number} is not a row of a mission over items") from error
        file.truncate(len(whole))
        yield file, rows


def read_items(text: str, name: str) -> list[Any]:
    """Return the values of JSON lines; empty lines are left out.

    Raises:
        UserError: A line is not JSON; names file and line.
    """
    items = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                items.append(json.loads(line))
            except ValueError as error:
                raise UserError(f"{name}:{number}: {error}", hint="One JSON value on each line") from error
    return items
