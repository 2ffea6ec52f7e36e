"""Reading ``requests.jsonl``: the steps of a branch, and the exact request of each.

Lines that are damaged or torn are passed over. A request whose beginning is gone, because the file that held it was
replaced (``trace.LARGEST``), is listed without its messages.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyagentd import regularfile
from pyagentd.errors import NotFound, StoreError
from pyagentd.store import paths
from pyagentd.store.trace import line_of

_BLOBS = ("system", "tools")


@dataclass(slots=True, kw_only=True)
class TracedStep:
    """One request and its answer; of a request that was sent again in another form, the last one."""

    id: str
    run_id: str
    step: int  # within the run, from 1
    purpose: str
    at: int  # epoch ms
    head: Mapping[str, Any]  # everything but the messages, as sent
    same: int  # how many messages the request before had already
    messages: list[dict[str, Any]] | None  # without breakpoints; None: they are gone
    marks: list[tuple[int, int, Any]]
    answer: Mapping[str, Any] = field(default_factory=dict)  # see ``trace``; {} when there is none

    @property
    def body(self) -> dict[str, Any]:
        """The request as it was sent.

        Raises:
            NotFound: Its beginning was traced too long ago.
        """
        if self.messages is None:
            raise NotFound(f"Of step {self.step} of {self.run_id} only the end is kept", mend="Look at a later one")
        messages = list(self.messages)
        for number, block, value in self.marks:
            messages[number] = copy.deepcopy(messages[number])
            messages[number]["content"][block]["cache_control"] = value
        return {**self.head, "messages": messages}


def read_trace(branch_dir: Path) -> list[TracedStep]:
    """Return the traced steps of a branch, oldest first.

    Raises:
        StoreError: The disk refused; a missing file is an empty trace.
    """
    steps: dict[tuple[str, str, int], TracedStep] = {}
    by_id: dict[str, TracedStep] = {}
    blobs: dict[str, Any] = {}
    for line in _lines(branch_dir):
        match line:
            case {"type": "blob", "digest": str(digest), "data": data}:
                blobs[digest] = data
            case {"type": "request"}:
                step = _step(line, by_id, blobs)
                by_id[step.id] = steps[step.run_id, step.purpose, step.step] = step
            case {"type": "answer", "id": str(id)} if id in by_id:
                by_id[id].answer = {key: value for key, value in line.items() if key not in _WRITERS}
    return list(steps.values())


_WRITERS = ("type", "id", "run_id", "step", "count", "chain", "known")


def _step(line: Mapping[str, Any], before: Mapping[str, TracedStep], blobs: Mapping[str, Any]) -> TracedStep:
    messages: list[dict[str, Any]] | None = list(line["messages"])
    base, same = line["base"], line["same"]
    if base is not None:
        known = before[base].messages if base in before else None
        messages = None if known is None else [*known[:same], *line["messages"]]
    head = {
        name: blobs.get(value["digest"], value) if name in _BLOBS and isinstance(value, dict) else value
        for name, value in line["head"].items()
    }
    return TracedStep(
        id=line["id"],
        run_id=line["run_id"],
        step=line["step"],
        purpose=line["purpose"],
        at=line["at"],
        head=head,
        same=same,
        messages=messages,
        marks=[tuple(mark) for mark in line["marks"]],
    )


def _lines(branch_dir: Path) -> Iterator[dict[str, Any]]:
    for path in (paths.old_requests_file(branch_dir), paths.requests_file(branch_dir)):
        try:
            content = regularfile.read_bytes(path, limit=regularfile.LOG)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error
        for line in content.split(b"\n"):
            if (value := line_of(line)) is not None:
                yield value


def as_json(body: Mapping[str, Any]) -> str:
    """Return a request as the bytes that were sent had it."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))
