"""What the log of a branch tells of its missions: the task, the turns, and how each ended.

Plain values for programs and screens, the same while a mission runs and afterwards. Nothing here needs the mission
language.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pyagentd.features.mission_tool import dumped
from pyagentd.features.spawning import children, session_row
from pyagentd.messages import Usage
from pyagentd.store.conversation import Conversation, Part
from pyagentd.store.paths import BranchRef

PROGRAM = "program"
"""A program is recorded as a call of this tool, which no model is offered: its argument is ``program``,
its result what the model reads next."""

_SHOWN = 4000  # characters of one result

Report = dict[str, Any]


# Resuming a mission that was cut off: it goes on after the last finished turn, whichever run that was in. A mission
# that was resumed and cut off again before a turn stands where the run before it stood; without any turn it begins
# anew.

_NO_ANSWER = frozenset({"error", "aborted"})


def unfinished(conversation: Conversation) -> str:
    """Return the id of the last mission's run if that neither fulfilled its task nor gave up, else "".

    Messages behind it that failed before they began anything change nothing.
    """
    for run in reversed(conversation.runs.values()):
        if not run.is_finished:
            return ""
        rows = conversation.missions.get(run.data["id"], {})
        if "start" in rows:
            return str(run.data["id"]) if "end" not in rows else ""
        if run.data.get("reason") not in _NO_ANSWER:
            return ""
    return ""


def standing(conversation: Conversation, run_id: str) -> Mapping[str, Any] | None:
    """Return the last row that says where the mission of a run stands; None while no turn of it has ended."""
    return next((rows["turn"] for rows in _chain(conversation, run_id) if "turn" in rows), None)


def begun(conversation: Conversation, run_id: str) -> Mapping[str, Any] | None:
    """Return the row that says what the mission of a run was asked first."""
    return next((rows["start"] for rows in reversed(_chain(conversation, run_id)) if "start" in rows), None)


def _chain(conversation: Conversation, run_id: str) -> list[Mapping[str, Mapping[str, Any]]]:
    """Return the rows of a mission by phase, run by run, the last one first."""
    chain: list[Mapping[str, Mapping[str, Any]]] = []
    seen: set[str] = set()
    while run_id and run_id not in seen:
        seen.add(run_id)
        chain.append(rows := conversation.missions.get(run_id, {}))
        run_id = str(rows.get("start", {}).get("resumed") or "")
    return chain


def missions(conversation: Conversation, ref: BranchRef) -> list[Report]:
    """Return the missions of a branch, the first one first.

    Each is ``{run, state, prompt, signature, inputs, tools, max_turns, resumed, can_resume, started_at, duration_ms,
    ok, value, text, fail, usage, turns}``; state is "running", "done", "error", "aborted" or "restart", ``text`` the
    value as JSON. A turn is ``{number, said, program, result, ok, state, duration_ms, usage, calls}``, a call of it
    ``{id, name, input, result, state, duration_ms, branch}``: ``branch`` is the agent or mission that it started.
    """
    below = {str(session_row(child).get("parent_call_id")): child.key for child in children(ref)}
    resumable = unfinished(conversation)
    return [
        _mission(conversation, run_id, rows, below) | {"can_resume": run_id == resumable}
        for run_id, rows in conversation.missions.items()
        if "start" in rows and run_id in conversation.runs
    ]


def ending(conversation: Conversation, run_id: str) -> Mapping[str, Any] | None:
    """Return how the mission of a run ended: ``{ok, value, fail, usage}``; None while nobody knows."""
    return conversation.missions.get(run_id, {}).get("end")


def _mission(
    conversation: Conversation, run_id: str, rows: Mapping[str, Mapping[str, Any]], below: Mapping[str, str]
) -> Report:
    run, start, end = conversation.runs[run_id], rows["start"], rows.get("end") or {}
    prompt = conversation.messages.get(run.data["message_id"])
    parts = list(_parts(conversation, run_id))
    said = ("signature", "inputs", "tools", "max_turns", "resumed")
    return {
        "run": run_id,
        "state": str(run.data.get("reason") or "done") if run.is_finished else "running",
        "prompt": start.get("message") or start.get("prompt"),
        **{name: start.get(name) for name in said},
        "started_at": prompt.row.get("created_at") if prompt else None,
        "duration_ms": (end.get("usage") or {}).get("duration_ms"),
        "ok": end.get("ok"),
        "value": end.get("value"),
        "text": dumped(end["value"], indent=2) if end.get("ok") else None,
        "fail": end.get("fail") or run.data.get("error"),
        "usage": end.get("usage"),
        "turns": list(_turns(parts, below, _before(conversation, start))),
    }


def _parts(conversation: Conversation, run_id: str) -> Iterator[Part]:
    """Yield the parts of the model's messages in a run."""
    asked = conversation.runs[run_id].data["message_id"]
    inside = False
    for message in conversation.messages.values():
        if message.role == "user":
            inside = message.id == asked
        elif inside:
            yield from message.parts


def _before(conversation: Conversation, start: Mapping[str, Any]) -> int:
    """Return how many turns a mission had before the run that goes on with it."""
    stood = standing(conversation, str(start.get("resumed") or ""))
    return int(stood["turn"]) if stood else 0


def _turns(parts: Sequence[Part], below: Mapping[str, str], number: int) -> Iterator[Report]:
    """Yield the turns behind turn ``number``.

    Each begins where a request to the model did, and has a program or words that ask for one.
    """
    step: list[Part] = []
    for part in [*parts, None]:
        if part is not None and part.type != "step-start":
            step.append(part)
            continue
        if any(each.is_tool or each.type == "reasoning" or _cost(each) for each in step):
            number += 1
            yield _turn(number, step, below)
        step = [part] if part is not None else []


def _turn(number: int, step: Sequence[Part], below: Mapping[str, str]) -> Report:
    program = next((part for part in step if part.type == f"tool-{PROGRAM}"), None)
    texts = [part.text for part in step if part.type in ("text", "reasoning") and part.text]
    usage = next((cost for part in step if (cost := _cost(part))), None)
    turn: Report = {"number": number, "said": "\n\n".join(texts), "program": None, "result": None, "usage": usage}
    if program is not None:
        turn |= _outcome(program) | {"program": str(program.data["input"].get("program", ""))}
    calls = [part for part in step if part.is_tool and part is not program]
    return turn | {"calls": [_call(part, below) for part in calls]}


def _call(part: Part, below: Mapping[str, str]) -> Report:
    call_id = str(part.data["toolCallId"])
    name = part.type.removeprefix("tool-")
    told = {"id": call_id, "name": name, "input": part.data["input"], "branch": below.get(call_id)}
    return told | _outcome(part)


def _outcome(part: Part) -> Report:
    result = part.result
    state = "running" if result is None else "failed" if result[1] else "done"
    text = None if result is None else result[0]
    cut = text if text is None or len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text):,} characters)"
    return {"state": state, "result": cut, "duration_ms": (part.data.get("metadata") or {}).get("duration_ms")}


def _cost(part: Part) -> dict[str, int] | None:
    """Return what the request that a part begins used."""
    known = part.data.get("usage") if part.type == "step-start" else None
    return asdict(Usage(**known)) if isinstance(known, Mapping) else None
