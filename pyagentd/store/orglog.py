"""The readable logs of a branch: ``tools.org`` and ``system-prompts.org``, which nothing but a person ever reads.

Append-only Org text. They repeat what ``messages.jsonl`` and ``preset.md`` own, so a
log that cannot be written is a warning and never more. Lines that Org would take for its own are quoted with a comma,
as Org itself does.
"""

import json
import logging
import os
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any

from pyagentd import regularfile
from pyagentd.errors import StoreError
from pyagentd.store import atomic, paths
from pyagentd.store.document.render import writable

log = logging.getLogger(__name__)

LONGEST = 20_000  # characters of a result, or of one argument, that are repeated here

_ORG_SYNTAX = re.compile(r"^([ \t]*)(,*(?:\*|#\+))", re.MULTILINE)
_QUOTED = re.compile(r"^([ \t]*),(,*(?:\*|#\+))", re.MULTILINE)
_LAST_PROMPT = re.compile(
    r"^\*\* New Prompt\n\n?#\+begin_example\n(.*?)\n?^#\+end_example$", re.MULTILINE | re.DOTALL
)
_HEADING = "* System Prompt Change: "


class OrgLog:
    """The logs of the branch in ``branch_dir``."""

    def __init__(self, branch_dir: Path) -> None:
        self._tools = paths.tools_log_file(branch_dir)
        self._prompts = paths.prompts_log_file(branch_dir)
        self._due: list[tuple[Mapping[str, Any], int]] = []  # calls that are not written yet
        self._taking = Lock()

    def tool(self, data: Mapping[str, Any], now_ms: int) -> None:
        """Note a finished call for ``flush``; ``data`` is the part in AI SDK form, ``now_ms`` when it finished."""
        self._due.append((data, now_ms))

    def flush(self) -> None:
        """Add the calls that were noted; from any thread."""
        with self._taking:
            due, self._due = self._due, []
        if due:
            _append(self._tools, "".join(tool_entry(data, _time(now_ms)) for data, now_ms in due))

    def system_prompt(self, text: str, now_ms: int) -> None:
        """Add the system prompt of a run, unless it is the one that was added last."""
        try:
            known = regularfile.read_bytes(self._prompts, limit=regularfile.LOG).decode("utf-8", "replace")
        except FileNotFoundError:
            known = ""
        except OSError as error:
            log.warning("cannot read %s: %s", self._prompts, error.strerror)
            return
        previous = last_prompt(known)
        if previous != writable(text):
            _append(self._prompts, prompt_entry(text, previous, _time(now_ms)))


def tool_entry(data: Mapping[str, Any], time: str) -> str:
    """Return a call with its result as an Org entry; ``time`` as ``Tue Jan 20 19:26:03 2026``."""
    failed = data["state"] == "output-error"
    result = str(data.get("errorText" if failed else "output", ""))
    where = data.get("metadata", {}).get("output_path")
    properties = {"TIMESTAMP": time, "TOOL_CALL_ID": data["toolCallId"], **({"STATE": "error"} if failed else {})}
    arguments = json.dumps(_abbreviated(data["input"]), ensure_ascii=False, indent=2)
    name = str(data["type"]).removeprefix("tool-")
    return (
        f"* Tool Call: {_one_line(name)}\n{_drawer(properties)}\n"
        f"** Arguments\n#+begin_src json\n{_body(arguments)}\n#+end_src\n\n"
        f"** Result\n{_example(_shortened(result, where))}\n\n"
    )


def prompt_entry(text: str, previous: str | None, time: str) -> str:
    """Return a system prompt, and the one before it if there was one, as an Org entry."""
    before = f"** Previous Prompt\n{_example(previous)}\n\n" if previous is not None else ""
    return f"{_HEADING}{time}\n{_drawer({'TIMESTAMP': time})}\n{before}** New Prompt\n{_example(text)}\n\n"


def last_prompt(content: str) -> str | None:
    """Return the system prompt that was added last to a log with this ``content``; None when there is none."""
    start = content.rfind(f"\n{_HEADING}") + 1
    found = _LAST_PROMPT.search(content, start)
    return _QUOTED.sub(r"\1\2", found[1]) if found else None


def _append(path: Path, text: str) -> None:
    try:
        descriptor = atomic.open_append(path)
        try:
            atomic.append_fd(descriptor, writable(text).encode(), path)
        finally:
            os.close(descriptor)
    except StoreError as error:
        log.warning("the log was not written: %s", error)


def _time(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms / 1000).astimezone().strftime("%a %b %e %H:%M:%S %Y")


def _drawer(properties: Mapping[str, str]) -> str:
    lines = [":PROPERTIES:", *(f":{name}: {_one_line(value)}" for name, value in properties.items()), ":END:"]
    return "".join(f"  {line}\n" for line in lines)


def _example(text: str) -> str:
    return f"#+begin_example\n{_body(text)}\n#+end_example"


def _body(text: str) -> str:
    return _ORG_SYNTAX.sub(r"\1,\2", text)


def _one_line(text: str) -> str:
    return " ".join(str(text).split())


def _shortened(text: str, where: object) -> str:
    if where:
        text = text[:LONGEST]
        return f"{text}\n[The whole output is in {where}]" if str(where) not in text else text
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n[{len(text) - LONGEST} more characters]"


def _abbreviated(value: Any) -> Any:
    """Return a JSON value with its very long texts cut."""
    match value:
        case str():
            return _shortened(value, None)
        case Mapping():
            return {key: _abbreviated(item) for key, item in value.items()}
        case list() | tuple():
            return [_abbreviated(item) for item in value]
    return value
