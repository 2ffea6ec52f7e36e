"""A question of the daemon as a request for permission, and what was chosen as an answer to it; pure.

The answers of an approval are the daemon's. A question of the model's is asked one by one: its options are what can
be chosen, and what takes words is left to the user's next message.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from acp import Client, RequestError, schema, text_block, tool_content

from pyagentd.acp import updates
from pyagentd.acp.updates import said
from pyagentd.acp.wire import Daemon
from pyagentd.cli.follow import question, told
from pyagentd.errors import PyagentdError

LATER: Final = "later"
IN_WORDS: Final = "The user answers in the next message: end your turn now, and wait for it."

_KINDS: Final[Mapping[str, schema.PermissionOptionKind]] = {
    "allow": "allow_once",
    "session": "allow_always",
    "always": "allow_always",
    "deny": "reject_once",
    "abort": "reject_once",
}
_NAMES: Final[Mapping[str, str]] = {
    "allow": "Allow once",
    "session": "Allow in this session",
    "always": "Always allow in this project",
    "deny": "Deny",
    "abort": "Deny and stop",
}
_SCOPE_NAMES: Final = {**_NAMES, "always": "Always: add it to the scope"}
_PATTERNS: Final = 80  # characters of what would be remembered

Request = tuple[schema.ToolCallUpdate, list[schema.PermissionOption]]


def approval(ask: Mapping[str, Any], branch: str, root: str) -> Request:
    """Return what is asked about a call, and how it can be answered.

    Args:
        ask: As the daemon tells it.
        branch: The conversation that is shown; the ask may be an agent's below it.
        root: Its workspace root.
    """
    tool, arguments = str(ask.get("tool") or ""), _arguments(ask)
    changed = updates.changes(tool, arguments, root)
    text = f"```\n{question(ask, branch)}\n```" if not changed else str(ask.get("reason") or "")
    call = schema.ToolCallUpdate(
        tool_call_id=call_id(ask, branch),
        title=_title(ask, branch, updates.title(tool, arguments, root) if arguments else ""),
        kind=updates.kind(tool),
        status="pending",
        content=[*changed, *([tool_content(text_block(text))] if text else [])],
        locations=updates.locations(arguments, root),
        raw_input=arguments,
    )
    return call, list(_options(ask))


def questions(ask: Mapping[str, Any], branch: str) -> Iterator[Request]:
    """Yield a request for each question of the model's; the options are numbered, see ``picked``."""
    for number, asked in enumerate(ask["questions"]):
        options = [
            schema.PermissionOption(option_id=str(place), name=str(option["label"]), kind="allow_once")
            for place, option in enumerate(asked.get("options") or ())
        ]
        options.append(schema.PermissionOption(option_id=LATER, name="In my next message", kind="reject_once"))
        call = schema.ToolCallUpdate(
            tool_call_id=f"{call_id(ask, branch)}:{number}",
            title=_title(ask, branch, str(asked["question"])),
            kind="other",
            status="pending",
            content=[tool_content(text_block("\n".join(told(asked))))],
        )
        yield call, options


def picked(asked: Mapping[str, Any], option: str) -> str:
    """Return the label of the option that was chosen."""
    return str(asked["options"][int(option)]["label"])


def answered(labels: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of ``answer`` that give the model its answers, one label for each question."""
    return {"decision": "answer", "answers": json.dumps([[label] for label in labels], ensure_ascii=False)}


def call_id(ask: Mapping[str, Any], branch: str) -> str:
    """Return the call that an ask is shown at: the asking one, if it is of this conversation."""
    own = ask.get("tool_call_id") if ask.get("branch") in (None, branch) and ask.get("kind") != "question" else None
    return str(own or f"ask:{ask['id']}")


def _options(ask: Mapping[str, Any]) -> Iterator[schema.PermissionOption]:
    names = _SCOPE_NAMES if ask.get("kind") == "scope" else _NAMES
    patterns = ", ".join(map(str, ask.get("remember") or ()))
    patterns = patterns if len(patterns) <= _PATTERNS else f"{patterns[: _PATTERNS - 1]}…"
    for choice in ask.get("choices") or ("allow", "deny"):
        if choice in _KINDS:
            more = f": {patterns}" if patterns and choice in ("session", "always") else ""
            yield schema.PermissionOption(option_id=choice, name=names[choice] + more, kind=_KINDS[choice])


def _arguments(ask: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        given = json.loads(str(ask.get("input") or "{}"))
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def _title(ask: Mapping[str, Any], branch: str, title: str) -> str:
    title = title or f"{ask.get('tool') or 'A tool'} {ask.get('detail') or ''}".strip()
    is_agents = ask.get("branch") not in (None, branch)
    return f"{ask.get('agent') or 'An agent'}: {title}" if is_agents else title


# Puts the daemon's questions to an editor's user: the first answer wins, wherever it is given.


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
        chosen = await self._choice(*approval(ask, branch, root))
        return self._dismissed() if chosen is None else {"decision": chosen}

    async def _question(self, ask: Mapping[str, Any], branch: str, root: str) -> dict[str, Any] | None:
        labels: list[str] = []
        for asked, request in zip(ask["questions"], questions(ask, branch), strict=True):
            chosen = await self._choice(*request)
            if chosen is None:
                return self._dismissed()
            if chosen == LATER:
                return {"decision": "deny", "reason": IN_WORDS}
            labels.append(picked(asked, chosen))
        return answered(labels)

    async def _choice(self, call: schema.ToolCallUpdate, options: list[schema.PermissionOption]) -> str | None:
        answer = await self._editor.request_permission(session_id=self._session_id, tool_call=call, options=options)
        return answer.outcome.option_id if isinstance(answer.outcome, schema.AllowedOutcome) else None

    def _dismissed(self) -> dict[str, Any] | None:
        """Return the answer of somebody who closed the question: a run must not wait for nobody."""
        return {"decision": "deny", "reason": "The question was dismissed."} if self.listens else None
