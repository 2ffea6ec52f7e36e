"""Operations on slash commands: which there are, and one that is asked for without a prompt."""

from __future__ import annotations

import json
from typing import Any

from pyagentd.agent.commands.answering import Answered
from pyagentd.service.commands.builtin import told
from pyagentd.service.group import Client, Group
from pyagentd.service.options import told_submitted


class SlashCommands(Group):
    """What is typed behind a slash."""

    async def commands(self, client: Client, *, branch: str | None = None) -> dict[str, Any]:
        """Return the commands of a conversation, or without ``branch`` those that hold anywhere: ``{commands}``.

        Each has ``name`` (without the slash, words with one space between), ``summary``, ``synopsis``, ``origin`` and
        ``arguments``, each with ``name``, ``hint`` (how it is written), ``summary``, ``required``, ``takes`` ("word",
        "rest" or "flag"), ``values`` (what completes it: "agents", "keys", "models", "permissions", "contexts",
        "tasks", "commands" or "") and ``choices``. Nobody outside is asked for them.
        """
        ref = self._ref(branch) if branch else None
        found = await self._host.commands.of(ref)
        return {"commands": [told(command) for command in found.values()]}


def told_answered(made: Answered) -> dict[str, Any]:
    """Return what became of a command, in the shape of what becomes of a message.

    ``command`` is ``{name, text, json, code, recorded, began}``: the answer, for people and as JSON for programs; the
    code of an error or nil; whether both stand in the conversation; the run that the command began and that goes on,
    such as a compaction, or nil. ``run`` is nil where they do not, unless the command
    sent a message to the model: then it is that run, or ``queued`` says that the message waits.
    """
    command = {
        "name": made.name,
        "text": made.text,
        "json": json.dumps(made.data, ensure_ascii=False),
        "code": made.code or None,
        "recorded": made.is_recorded,
        "began": made.began or None,
    }
    if made.submitted is not None:
        return {**told_submitted(made.submitted), "command": command}
    run, message = made.run_id or None, made.message_id or None
    return {"run": run, "message": message, "queued": False, "seq": made.seq, "ended": "done", "command": command}
