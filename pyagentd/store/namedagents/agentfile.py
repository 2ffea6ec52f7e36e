"""The file ``agent.json``: what a named agent is, in the keys of SPEC 003 Template Contents.

It owns name, channel, model, system prompt, permissions and when the agent was made (DD-32); ``running_tasks`` is
written for people to read and never believed. A change keeps every key it does not name, known or not, and their
order. People edit the file by hand: what is wrong with it is told with file and line.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyagentd import jsontext, regularfile
from pyagentd.errors import Conflict, NotFound, PresetError, StoreError
from pyagentd.store import atomic
from pyagentd.store.namedagents.layout import agent_file

KEYS = ("name", "channel_id", "model", "system_prompt", "permissions", "created_at", "running_tasks")

_INDENT = 4
_LARGEST = 1 << 20  # bytes
_TEXTS = ("name", "model", "system_prompt", "created_at")

_changing = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFile:
    """What an ``agent.json`` says; None where it says nothing or null."""

    path: Path
    values: Mapping[str, Any]  # all of it, keys of others too

    @property
    def name(self) -> str | None:
        """What the agent is called."""
        return self._text("name")

    @property
    def channel_id(self) -> str | None:
        """Where people talk with it, when something outside of here knows that."""
        value = self.values.get("channel_id")
        return None if value is None else str(value)

    @property
    def model(self) -> str | None:
        """Its model; None: that of its preset."""
        return self._text("model")

    @property
    def system_prompt(self) -> str | None:
        """Its system prompt; None: that of its preset."""
        return self._text("system_prompt")

    @property
    def permissions(self) -> str | Mapping[str, Any] | None:
        """The name of a profile, or its lists ``allow`` and ``ask``; None: what its preset says."""
        value = self.values.get("permissions")
        if value is None or isinstance(value, str | Mapping):
            return value or None
        raise self._wrong("permissions", "the name of a profile, or its lists allow and ask")

    @property
    def created_at(self) -> str | None:
        """When it was made, in ISO 8601."""
        return self._text("created_at")

    def _text(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is None or isinstance(value, str):
            return value or None
        raise self._wrong(key, "a text")

    def _wrong(self, key: str, wanted: str) -> PresetError:
        return PresetError(f"{self.path}: `{key}` is not {wanted}", mend="Correct it, or write null")


def read(directory: Path) -> AgentFile:
    """Return the configuration of the agent that lives in ``directory``.

    Raises:
        NotFound: There is none.
        PresetError: It is no JSON object; names file and line.
        StoreError: The disk refused.
    """
    path = agent_file(directory)
    try:
        data = regularfile.read_bytes(path)
    except FileNotFoundError as error:
        raise NotFound(f"{directory} has no {path.name}", mend="It is no named agent") from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error
    return parse(data, path)


def parse(data: bytes, path: Path) -> AgentFile:
    """Return what a file at ``path`` with the content ``data`` says; raises ``PresetError`` as ``read``."""
    if len(data) > _LARGEST:
        raise PresetError(f"{path} is larger than {_LARGEST} bytes", mend="Keep what is long in docs/")
    try:
        values = jsontext.parse(data.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise PresetError(f"{path}:{error.lineno}: {error.msg}", mend="Correct the JSON there") from error
    except UnicodeDecodeError as error:
        raise PresetError(f"{path}:1: this is no JSON in UTF-8", mend="Save the file in UTF-8") from error
    except ValueError as error:
        raise PresetError(f"{path}: {error}", mend="Correct the JSON there") from error
    if not isinstance(values, dict):
        raise PresetError(f"{path}:1: this is no JSON object", mend='Begin with {"name": …')
    return AgentFile(path=path, values=values)


def change(directory: Path, values: Mapping[str, Any], *, only_if: Mapping[str, Any] | None = None) -> AgentFile:
    """Set keys of ``agent.json`` and return what it said before; all else in it stays.

    Args:
        directory: The agent's.
        values: Keys with what they are to be.
        only_if: Keys with what they have to be so far.

    Raises:
        NotFound, PresetError: As ``read``; the file is untouched.
        Conflict: It does not say ``only_if``; the file is untouched.
        StoreError: The disk refused; the file is its old self.
    """
    with _changing:
        before = read(directory)
        if other := [key for key, value in (only_if or {}).items() if before.values.get(key) != value]:
            raise Conflict(f"{other[0]} was changed meanwhile", mend="Look at it, then change it again")
        after = {**before.values, **values}
        if after != before.values:
            write(directory, after)
    return before


def write(directory: Path, values: Mapping[str, Any]) -> None:
    """Write a whole ``agent.json``; raises ``StoreError``."""
    atomic.write_text(agent_file(directory), json.dumps(values, indent=_INDENT, ensure_ascii=False) + "\n")
