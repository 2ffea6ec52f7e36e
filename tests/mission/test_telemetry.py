"""What a mission tells while it runs, and that it tells it then."""

import pytest

from pyagentd.mission.delegation import delegate
from pyagentd.mission.options import LLMError
from pyagentd.mission.registry import Scripted
from pyagentd.mission.runtime import Event
from tests.mission.answers import RETURN_1, code


@pytest.mark.spec("004", "Telemetry Events")
def test_every_turn_stops_before_the_next_begins():
    events: list[Event] = []
    tools = {"get": lambda: 5}
    step = delegate("Go.", llm=Scripted([code('(call "get")'), code(RETURN_1)]), tools=tools, telemetry=events.append)
    assert [event.name for event in events] == [
        "mission_start",
        *("turn_start", "llm_start", "llm_stop", "program_start", "tool_start", "tool_stop", "turn_stop"),
        *("turn_start", "llm_start", "llm_stop", "program_start", "turn_stop"),
        "mission_stop",
    ]
    assert events[0].path == ("ptc", "subagent", "mission_start")
    stops = [event for event in events if event.name == "turn_stop"]
    assert [(event.metadata["turn"], event.metadata["program"]) for event in stops] == [
        (1, '(call "get")'),
        (2, RETURN_1),
    ]
    assert stops[0].metadata["feedback"] == step.trace[0].feedback
    assert stops[1].metadata["feedback"] is None
    assert stops[0].metadata["tool_calls"][0].result == 5
    assert events[-1].metadata["step"] == step and events[-1].measurements["turns"] == 2


def test_spans_nest():
    events: list[Event] = []

    def child() -> int:
        return delegate("Inner.", llm=Scripted([code(RETURN_1)])).unwrap()

    delegate(
        "Go.", llm=Scripted([code('(call "return" (call "child"))')]), tools={"child": child}, telemetry=events.append
    )
    by_start = {
        event.span_id: event for event in events if event.name.endswith("_start") and "program" not in event.name
    }
    missions = [event for event in events if event.name == "mission_start"]
    assert [event.metadata["depth"] for event in missions] == [0, 1]
    assert missions[0].parent_span_id is None
    tool = by_start[missions[1].parent_span_id]
    assert (tool.name, tool.metadata["tool"]) == ("tool_start", "child")
    assert by_start[by_start[tool.parent_span_id].parent_span_id] == missions[0]
    for event in events:
        if event.name.endswith(("_stop", "_exception")):
            assert by_start[event.span_id].parent_span_id == event.parent_span_id


def test_failures_are_told_too():
    events: list[Event] = []

    def boom() -> int:
        raise ValueError("kaput")

    llm = Scripted([LLMError("rate_limit", "slow"), code('(call "boom")'), code(RETURN_1)])
    delegate("Go.", llm=llm, tools={"boom": boom}, telemetry=events.append, sleep=lambda seconds: None)
    told = {event.name: event for event in events if event.name.endswith("_exception")}
    assert told["llm_exception"].metadata["reason"] == "rate_limit"
    assert told["tool_exception"].metadata["error"] == 'The tool "boom" failed: kaput'
    (failed, _) = [event for event in events if event.name == "turn_stop"]
    assert (failed.metadata["ok"], failed.metadata["reason"]) == (False, "tool_error")


def test_a_mission_that_cannot_start_is_told():
    events: list[Event] = []
    delegate("{{x}}", llm=Scripted([]), telemetry=events.append)
    assert [event.name for event in events] == ["mission_start", "mission_stop"]
    assert events[1].metadata["reason"] == "template_error"


def test_a_listener_that_fails_costs_nothing(caplog):
    def broken(event: Event) -> None:
        raise RuntimeError("listener")

    assert delegate("Go.", llm=Scripted([code(RETURN_1)]), telemetry=broken).ok
    assert "A telemetry listener failed at mission_start" in caplog.text


def test_durations_are_those_of_the_turn():
    now = [0.0]
    events: list[Event] = []

    def slow(request):
        now[0] += 0.02
        return code("1" if request["turn"] < 3 else RETURN_1)

    delegate("Go.", llm=slow, telemetry=events.append, monotonic=lambda: now[0])
    assert [e.measurements["duration_ms"] for e in events if e.name == "turn_stop"] == [20, 20, 20]
    assert events[-1].measurements["duration_ms"] == 60
