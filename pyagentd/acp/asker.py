"""Puts the daemon's questions to an editor's user: the first answer wins, wherever it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from acp import Client, RequestError, schema

from pyagentd.acp import asking
from pyagentd.acp.updates import said
from pyagentd.acp.wire import Daemon
from pyagentd.errors import PyagentdError


class Asker:
    """The questions of one conversation.

    Args:
        session_id: As the editor knows it.
        daemon: Who asks.
        editor: Whose user is asked.

    Attributes:
        listens: Whether a question that is dismissed is an answer: not while its run is being stopped.
    """

    def __init__(self, session_id: str, daemon: Daemon, editor: Client) -> None:
        self.listens = True
        self._session_id = session_id
        self._daemon = daemon
        self._editor = editor
        self._open: dict[str, asyncio.Task[None]] = {}

    def ask(self, ask: Mapping[str, Any], *, branch: str, root: str) -> None:
        """Put a question that is shown on ``branch``, unless it is put already."""
        if ask["id"] not in self._open:
            self._open[ask["id"]] = asyncio.create_task(self._ask(ask, branch, root))

    def withdraw(self, id: str) -> None:
        """Stop waiting for the answer to a question that somebody answered."""
        if (task := self._open.pop(id, None)) is not None:
            task.cancel()

    def stop(self, *, leaves: bool = False) -> None:
        """Stop waiting for every answer; what is asked stays asked. ``leaves``: the run is stopped."""
        if leaves:
            self.listens = False
        for id in [*self._open]:
            self.withdraw(id)

    async def _ask(self, ask: Mapping[str, Any], branch: str, root: str) -> None:
        try:
            choose = self._question if ask.get("kind") == "question" else self._approval
            answer = await choose(ask, branch, root)
            if answer is not None:
                await self._daemon.call("answer", ask=ask["id"], **answer)
        except RequestError as error:
            text = f"\n\n> It waits for an answer (`pyagentd asks`): {error}\n\n"
            await self._editor.session_update(session_id=self._session_id, update=said(text))
        except (ConnectionError, PyagentdError):
            pass  # the editor is gone, or somebody else was faster
        finally:
            if self._open.get(ask["id"]) is asyncio.current_task():
                del self._open[ask["id"]]

    async def _approval(self, ask: Mapping[str, Any], branch: str, root: str) -> dict[str, Any] | None:
        chosen = await self._choice(*asking.approval(ask, branch, root))
        return self._dismissed() if chosen is None else {"decision": chosen}

    async def _question(self, ask: Mapping[str, Any], branch: str, root: str) -> dict[str, Any] | None:
        labels: list[str] = []
        for asked, request in zip(ask["questions"], asking.questions(ask, branch), strict=True):
            chosen = await self._choice(*request)
            if chosen is None:
                return self._dismissed()
            if chosen == asking.LATER:
                return {"decision": "deny", "reason": asking.IN_WORDS}
            labels.append(asking.picked(asked, chosen))
        return asking.answered(labels)

    async def _choice(self, call: schema.ToolCallUpdate, options: list[schema.PermissionOption]) -> str | None:
        answer = await self._editor.request_permission(session_id=self._session_id, tool_call=call, options=options)
        return answer.outcome.option_id if isinstance(answer.outcome, schema.AllowedOutcome) else None

    def _dismissed(self) -> dict[str, Any] | None:
        """Return the answer of somebody who closed the question: a run must not wait for nobody."""
        return {"decision": "deny", "reason": "The question was dismissed."} if self.listens else None
