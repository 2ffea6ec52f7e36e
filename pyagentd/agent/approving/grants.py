"""What humans allowed for more than once: for a session's whole tree, or for a project for good.

A grant is a regular expression over whole action strings, exactly as it was shown (``policy.remember``). Those of a
session are in the row of the session at the root of the tree and hold for its agents too; a branch or a copy of it
begins without. Those of a project are settings of ``state.db``, by workspace root. All are kept in memory while the
daemon runs, since every decision reads them; only the daemon writes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyagentd.clock import epoch_ms
from pyagentd.errors import BadRequest, StoreError
from pyagentd.policy.profiles import compile_action
from pyagentd.store.db.state import Damaged, State
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:  # the host owns the grants; they are written through the branches it opens
    from pyagentd.agent.host import Host

Kind = Literal["session", "project"]

_SETTING = "grants:"  # + workspace root
_UNREAD = object()

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One remembered approval."""

    kind: Kind
    action: str  # the regular expression, as it was shown
    at: int  # epoch ms
    ask: str  # the id of the ask it answered
    by: str  # the client through which it came
    pattern: re.Pattern[str]  # ``action``, compiled

    def facts(self) -> dict[str, Any]:
        """Return it as it is recorded."""
        return {"action": self.action, "at": self.at, "ask": self.ask, "by": self.by}


class Grants:
    """All grants of a host.

    Args:
        host: Opens the branches whose rows have the grants of sessions.
        state: Has those of projects.
    """

    def __init__(self, host: Host, state: State) -> None:
        self._host = host
        self._state = state
        self._sessions: dict[str, tuple[object, tuple[Grant, ...]]] = {}  # as recorded and compiled, by root's key
        self._projects: dict[str, tuple[Grant, ...]] = {}  # by workspace root
        self._given: set[tuple[str, str]] = set()  # to sessions, since the daemon began: root's key and expression
        self._writing = asyncio.Lock()

    async def load(self, root: BranchRef, workspace: Path) -> None:
        """Have the grants that hold below ``root`` and in ``workspace`` at hand; nothing is raised.

        Grants that cannot be read do not hold: then a human is asked again.
        """
        if root.key not in self._sessions:
            with contextlib.suppress(StoreError):
                async with self._host.using(root):
                    self._of_session(root)
        if str(workspace) not in self._projects:
            try:
                self._projects[str(workspace)] = await asyncio.to_thread(self._read, workspace)
            except StoreError as error:
                log.warning("grants of %s: %s", workspace, error)

    def patterns(self, root: BranchRef, workspace: Path) -> tuple[re.Pattern[str], ...]:
        """Return what holds now, of what was loaded."""
        return tuple(grant.pattern for grant in self.listed(root, workspace))

    def listed(self, root: BranchRef, workspace: Path) -> tuple[Grant, ...]:
        """Return the grants that hold now, those of the session first, each kind oldest first."""
        return (*self._of_session(root), *self._projects.get(str(workspace), ()))

    async def remember(
        self, kind: Kind, root: BranchRef, workspace: Path, actions: Sequence[str], *, ask: str, by: str
    ) -> tuple[str, ...]:
        """Let ``actions`` happen from now on; return those that were not remembered already.

        Raises:
            BadRequest: One is no regular expression.
            StoreError: The disk refused; nothing is remembered.
        """
        at = epoch_ms(self._host.clock.now())
        new = [
            Grant(kind=kind, action=action, at=at, ask=ask, by=by, pattern=compile_action(action))
            for action in actions
        ]
        async with self._writing:
            await self.load(root, workspace)
            known = [grant for grant in self.listed(root, workspace) if grant.kind == kind]
            had = {grant.action for grant in known}
            added = [grant for grant in new if grant.action not in had]
            if added:
                await self._keep(kind, root, workspace, [*known, *added])
        return tuple(grant.action for grant in added)

    async def revoke(self, root: BranchRef, workspace: Path, action: str, kind: Kind | None = None) -> int:
        """Take back the grants whose expression is ``action``, of either kind or of one; return how many.

        Raises:
            StoreError: The disk refused.
        """
        revoked = 0
        async with self._writing:
            await self.load(root, workspace)
            for each in (kind,) if kind else ("session", "project"):
                known = [grant for grant in self.listed(root, workspace) if grant.kind == each]
                left = [grant for grant in known if grant.action != action]
                if len(left) < len(known):
                    await self._keep(each, root, workspace, left)
                    revoked += len(known) - len(left)
        return revoked

    def _of_session(self, root: BranchRef) -> tuple[Grant, ...]:
        """Return the grants of the session, from its row where the branch is open."""
        recorded, grants = self._sessions.get(root.key, (_UNREAD, ()))
        live = self._host.opened(root.key)
        if live is not None and (now := live.conversation.session.get("permissions_json")) is not recorded:
            grants = _compiled("session", now)
            self._sessions[root.key] = (now, grants)
        if grants and self._host.origins.foreign(root):  # whose word those in its log are, nobody knows
            return tuple(grant for grant in grants if (root.key, grant.action) in self._given)
        return grants

    async def _keep(self, kind: Kind, root: BranchRef, workspace: Path, grants: Sequence[Grant]) -> None:
        facts = [grant.facts() for grant in grants]
        if kind == "session":
            async with self._host.using(root) as live:
                live.require_writable()
                live.note_session(permissions_json=facts)
                await live.recorder.commit()
                self._given.update((root.key, grant.action) for grant in grants)
                self._of_session(root)
        else:
            await asyncio.to_thread(self._write, workspace, facts)
            self._projects[str(workspace)] = tuple(grants)

    def _read(self, workspace: Path) -> tuple[Grant, ...]:
        try:
            return _compiled("project", self._state.get(f"{_SETTING}{workspace}"))
        except Damaged:
            return ()

    def _write(self, workspace: Path, facts: list[dict[str, Any]]) -> None:
        try:
            self._state.put(f"{_SETTING}{workspace}", facts)
        except Damaged:  # there is a new file now
            self._state.put(f"{_SETTING}{workspace}", facts)


def _compiled(kind: Kind, recorded: object) -> tuple[Grant, ...]:
    """Return what was recorded; what is no grant is passed over: a human is asked again."""
    found = []
    for each in recorded if isinstance(recorded, list) else ():
        action = each.get("action") if isinstance(each, Mapping) else None
        if not isinstance(action, str):
            continue
        try:
            pattern = compile_action(action)
        except BadRequest:
            log.warning("a grant is no regular expression and does not hold: %r", action)
            continue
        at, ask, by = int(each.get("at") or 0), str(each.get("ask") or ""), str(each.get("by") or "")
        found.append(Grant(kind=kind, action=action, at=at, ask=ask, by=by, pattern=pattern))
    return tuple(found)
