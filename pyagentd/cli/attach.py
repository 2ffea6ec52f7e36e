"""``pyagentd attach``: what a session said, then what it says."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pyagentd.cli.follow import Ending, Follower
from pyagentd.cli.interrupt import Interrupts
from pyagentd.cli.link import branch_of, complete_session, daemon, watch
from pyagentd.cli.outcome import ExitCode
from pyagentd.cli.output import dim, json_option, note, shown
from pyagentd.cli.views import JsonView, TextView, View, event_object
from pyagentd.events import Event

if TYPE_CHECKING:
    from pyagentd.wire.client import DaemonClient

_QUIET = ("idle", "error")


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option(
    "--from",
    "after",
    type=click.IntRange(min=0),
    metavar="SEQ",
    help="Begin after the event with this seq (default: with --json 0, else where the present answer begins).",
)
@click.option("--until-idle", is_flag=True, help="End as soon as nothing is running and nothing is queued.")
@json_option
def attach(session: str, after: int | None, until_idle: bool, as_json: bool) -> int:
    """Show what SESSION said from the beginning or from SEQ on, then follow it until Ctrl-C, whoever sends to it.

    With --json each event is a line; "seq" is where --from goes on. What is true only now has the seq 0.
    """
    human = sys.stdin.isatty() and sys.stdout.isatty() and not as_json
    with daemon(human=human) as link:
        branch_dir = branch_of(link, session)
        view: View = _AttachedView() if as_json else _Text()
        begin = 0 if after is None and as_json else after
        following = _Attached(link, branch_dir, view, human=human, until_idle=until_idle, after=begin)
        ending = following.attach()
    if ending.reason == "error" and not as_json:
        note(ending.message)
    if ending.reason == "detached":
        return ExitCode.INTERRUPTED
    return ExitCode.FAILED if ending.reason == "error" and until_idle else ExitCode.DONE


class _Text(TextView):
    """The answers as they come, each below its question: others may have asked it."""

    def show(self, event: Event) -> None:
        """Print what ``event`` adds."""
        if event.kind != "prompt":
            super().show(event)
            return
        self.pause()
        print(dim(shown(f"› {event.args[0]}", sys.stdout), sys.stdout), flush=True)


class _AttachedView(JsonView):
    """One event a line, the same live and again; the lines of one row in one write, only the last with its number."""

    def __init__(self) -> None:
        super().__init__()
        self._held: list[Event] = []  # of a row that goes on

    def show(self, event: Event) -> None:
        """Print ``event``, unless more of its row is to come."""
        self._held.append(event)
        if not event.seq and (event.kind == "insert" or len(self._held) > 1):
            return
        held, self._held = self._held, []
        sys.stdout.write("".join(f"{json.dumps(_told(each), ensure_ascii=False)}\n" for each in held))
        sys.stdout.flush()

    def pause(self) -> None:
        """Drop what is not whole: whoever goes on gets it then."""
        self._held.clear()


def _told(event: Event) -> dict[str, Any]:
    told = event_object(event)
    if event.kind == "prompt":
        told.pop("place", None)  # for who writes the document
    return told


class _Attached(Follower):
    """Follows a session, not one run of it.

    Args:
        link: The daemon.
        branch_dir: The branch.
        view: Where its events go.
        human: Put asks to the user at this terminal.
        until_idle: End when nothing runs and nothing waits.
        after: The last event that was seen; None begins with the run in flight.
    """

    def __init__(
        self,
        link: DaemonClient,
        branch_dir: Path,
        view: View,
        *,
        human: bool,
        until_idle: bool,
        after: int | None,
    ) -> None:
        super().__init__(link, str(branch_dir), "", view, human=human)
        self._branch_dir = branch_dir
        self._until_idle = until_idle
        self._after = after
        self._known = 0  # the row up to which attaching told everything

    def attach(self) -> Ending:
        """Show what was, and follow until the user leaves, or until it is idle."""
        try:
            with Interrupts() as interrupts:
                ending = self._catch_up()
                return ending or self._until(None, lambda: interrupts.count > 0) or Ending("detached")
        finally:
            self._view.pause()

    def _catch_up(self) -> Ending | None:
        """Attach, and show what came until then."""
        state = watch(self._link, self._branch_dir)
        self._branch, upto = state["branch"], int(state["seq"])
        for event in self._replayed(upto):
            self._view.show(event)
        self._seq = self._after = self._known = upto
        if items := state.get("todo"):
            self._view.show(Event("todo", self._branch, 0, ({"items": items},)))
        for ask in state.get("asks") or ():
            if ask["branch"] != self._branch:  # an agent's: it is in the agent's log
                self._view.show(Event("ask", self._branch, 0, (ask,)))
            if self._human:
                self._put(ask)
        status = state["status"]
        self._view.show(Event("status", self._branch, 0, (status,)))
        return self._idle(status)

    def _replayed(self, upto: int) -> Iterator[Event]:
        while self._after is None or self._after < upto:
            page = self._link.call("replay", branch=self._branch, after=self._after, upto=upto)
            for kind, seq, *rest in page["events"] or ():
                args = rest if kind in ("insert", "prompt") else [json.loads(rest[0])]
                yield Event(kind, self._branch, seq, tuple(args))
            self._after = int(page["seq"])
            if page["done"]:
                return

    def _take(self, event: Event) -> Ending | None:
        if event.kind == "resync":
            self._after = self._seq
            return self._catch_up()
        if event.branch == self._branch and 0 < event.seq <= self._known:
            return None  # recorded before we attached, and told after
        ending = super()._take(event)
        if ending is None and event.kind == "status" and event.branch == self._branch:
            ending = self._idle(event.args[0])
        return ending

    def _idle(self, status: Mapping[str, Any]) -> Ending | None:
        if not self._until_idle or status["state"] not in _QUIET:
            return None
        if status["state"] == "error":
            return Ending("error", str(status.get("message") or ""))
        return None if status.get("queued") else Ending("done")
