"""Operations of a client that offers the buffers and tools of its Emacs."""

from __future__ import annotations

import json
import logging
from typing import Any

from pyagentd.agent.emacs.clients import Offered
from pyagentd.agent.emacs.offered import OfferedTool, offered_tool
from pyagentd.errors import BadRequest
from pyagentd.service.group import Client, Group

_log = logging.getLogger(__name__)


class EmacsOperations(Group):
    """What Emacs shows and can do."""

    async def emacs_offer(self, client: Client, *, buffers: bool = False, tools: str = "[]") -> dict[str, Any]:
        """Offer ``buffers`` and ``tools``, a JSON list of definitions, in place of what this client offered before.

        The answer is ``{tools: (name…), refused: ({name, why}…), spill}``; what is too long for a frame is put into
        a file ``emacs-…`` in the directory ``spill``.
        """
        usable: dict[str, OfferedTool] = {}
        refused = []
        for said in _definitions(tools):
            try:
                tool = offered_tool(said)
                usable[tool.name] = tool
            except BadRequest as error:
                name = str(said.get("name") or "") if isinstance(said, dict) else ""
                refused.append({"name": name, "why": str(error)})
        self._host.emacs.offer(client, Offered(buffers=buffers, tools=tuple(usable.values())))
        _log.info("%s offers%s and %d tools", client.name, " its buffers" if buffers else "", len(usable))
        return {"tools": list(usable), "refused": refused, "spill": str(self._host.config.runtime_dir)}

    async def emacs_answer(
        self, client: Client, *, id: str, answer: str | None = None, path: str | None = None
    ) -> dict[str, Any]:
        """Answer an ``emacs`` event with a JSON object, or the file with it; ``accepted``: it was waited for."""
        return {"accepted": await self._host.emacs.answer(client, id, answer, path)}


def _definitions(text: str) -> list[Any]:
    try:
        said = json.loads(text or "[]")
    except ValueError as wrong:
        raise BadRequest(f"The tools are no JSON: {wrong}") from wrong
    if not isinstance(said, list):
        raise BadRequest("The tools are no JSON list")
    return said
