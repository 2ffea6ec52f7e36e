"""Operations on hooks: which there are, trusting those of a project, and functions of a client as hooks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from pyagentd.agent.hooking.projecthooks import ProjectHooks, project_hooks
from pyagentd.config.tables import HookSettings
from pyagentd.errors import BadRequest
from pyagentd.service.group import Client, Group, directory

_SHOWN = 100_000  # characters of all scripts in one answer

_log = logging.getLogger(__name__)


class HookOperations(Group):
    """Who is asked before and told after."""

    async def hooks(self, client: Client, *, root: str | None = None) -> dict[str, Any]:
        """Return the hooks of the user and of the project ``root``.

        The answer is ``{hooks: ({event, command, timeout, tools, source, origin, trusted}…), hash, scripts:
        ({path, text}…), file, text, error}``; ``origin`` is user or project, ``text`` what the project's ``file``
        says, ``scripts`` are the project's own programs that its hooks run, ``hash`` is what ``trust-hooks`` takes,
        "" when the project has none.
        """
        found = [_told(hook, "user", True) for hook in self._host.config.hooks]
        project = await self._project(root)
        if project is None:
            return {"hooks": found, "hash": "", "scripts": [], "file": "", "text": "", "error": ""}
        trusted, room = self._host.hooks.trusts(project), _SHOWN
        found += [_told(hook, "project", trusted) for hook in project.hooks]
        scripts = []
        for path, text in project.scripts:
            shown = (
                text if len(text) <= room else f"{text[: max(0, room)]}\n[{len(text) - max(0, room)} more characters]"
            )
            scripts.append({"path": str(path), "text": shown})
            room -= len(text)
        return {
            "hooks": found,
            "hash": project.hash,
            "scripts": scripts,
            "file": str(project.file),
            "text": project.text,
            "error": project.error,
        }

    async def trust_hooks(self, client: Client, *, root: str, hash: str) -> dict[str, Any]:
        """Trust the hooks of the project ``root`` as they were when ``hash`` was told."""
        project = await self._project(root)
        if project is None or project.error:
            raise BadRequest(
                f"{root} has no hooks that can be used{': ' + project.error if project else ''}",
                mend="They are in .pyagentd/hooks.toml",
            )
        if project.hash != hash:
            raise BadRequest(f"The hooks of {root} have changed since", mend="Look at them again (pyagentd hooks)")
        await asyncio.to_thread(self._host.presets.trust.add, [hash])
        _log.info("%s trusts the hooks in %s (%s)", client.name, project.file, hash)
        return {"trusted": [" ".join(hook.command) for hook in project.hooks]}

    async def hook_functions(self, client: Client, *, events: Sequence[str] | None = None) -> dict[str, Any]:
        """Have this client asked about ``events`` of branches it watches, by ``hook`` events, from now on."""
        self._host.hooks.clients.offer(client, tuple(events or ()))
        return {"events": list(events or ())}

    async def hook_answer(self, client: Client, *, id: str, answer: str) -> dict[str, Any]:
        """Answer a ``hook`` event with a JSON object; ``accepted`` tells whether anybody still waited for it."""
        return {"accepted": self._host.hooks.clients.answer(client, id, answer)}

    async def _project(self, root: str | None) -> ProjectHooks | None:
        return None if root is None else await asyncio.to_thread(lambda: project_hooks(directory(root)))


def _told(hook: HookSettings, origin: str, trusted: bool) -> dict[str, Any]:
    return {
        "event": hook.event,
        "command": list(hook.command),
        "timeout": hook.timeout_s,
        "tools": hook.tools.pattern if hook.tools else None,
        "source": hook.source,
        "origin": origin,
        "trusted": trusted,
    }
