"""What is killed, and when: drawn by a seed, so that a moment can be had again."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

Victim = Literal["daemon", "daemon twice", "emacs", "both"]
Clock = Literal["event", "model", "bytes", "time"]

# About how much of each a whole conversation has; a moment beyond its end finds everything at rest.
SPAN: dict[Clock, int] = {"event": 130, "model": 190, "bytes": 42_000, "time": 3500}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One moment.

    Attributes:
        victim: Who is killed.
        in_emacs: Whether the conversation is led in Emacs, or without it.
        clock: What is counted: events a client was sent, events the model sent, bytes of the log, milliseconds.
        at: How many of them.
        again_after_s: How long the next daemon lives when it is killed, too.
        impatient: Whether the user of Emacs goes on without waiting for the next daemon.
    """

    seed: str
    victim: Victim
    in_emacs: bool
    clock: Clock
    at: int
    again_after_s: float
    impatient: bool

    def __str__(self) -> str:
        place = "Emacs" if self.in_emacs else "no Emacs"
        return f"{self.seed}: {self.victim} at {self.clock} {self.at}, {place}{', impatient' * self.impatient}"


def plan_of(seed: int, number: int) -> Plan:
    """Return the moment ``number`` of ``seed``."""
    pick = random.Random(f"{seed}/{number}")
    in_emacs = pick.random() < 0.75
    victims = get_args(Victim) if in_emacs else ("daemon", "daemon twice")
    clock: Clock = pick.choice(get_args(Clock))
    return Plan(
        seed=f"{seed}/{number}",
        victim=pick.choice(victims),
        in_emacs=in_emacs,
        clock=clock,
        at=pick.randrange(1, SPAN[clock]),
        again_after_s=pick.random() * 0.4,
        impatient=pick.random() < 0.4,
    )


class Trigger:
    """Counts up to the moment of a plan, from whatever thread, and then acts once.

    Attributes:
        fired: Set when it has acted.
    """

    def __init__(self, plan: Plan, act: Callable[[], None]) -> None:
        self.fired = threading.Event()
        self._plan = plan
        self._act = act
        self._count = 0
        self._lock = threading.Lock()

    def tick(self, clock: Clock) -> None:
        """Count one."""
        if clock == self._plan.clock:
            with self._lock:
                self._count += 1
                due = self._count == self._plan.at
            if due:
                self.fire()

    def fire(self) -> None:
        """Act now, if that was not done yet."""
        with self._lock:
            if not self.fired.is_set():
                self._act()
                self.fired.set()

    def watch(self, log: Path) -> None:
        """Count the bytes of ``log``, or the time, in a thread."""
        if self._plan.clock in ("bytes", "time"):
            threading.Thread(target=self._watch, args=(log,), daemon=True).start()

    def _watch(self, log: Path) -> None:
        due = time.monotonic() + self._plan.at / 1000
        while not self.fired.is_set():
            if self._plan.clock == "time":
                done = time.monotonic() >= due
            else:
                done = False
                with suppress(OSError):
                    done = log.stat().st_size >= self._plan.at
            if done:
                self.fire()
            time.sleep(0.0005)
