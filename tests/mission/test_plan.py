"""A plan is data: written by a mission, saved with its state, carried out, gone on with."""

import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from pyagentd.mission import MissionFailed, Plan, PlanError, PlanStep, Scripted, create_plan, make_plan, run_plan
from pyagentd.mission.plan import fill
from pyagentd.mission.step import failed_step

FETCH = {"id": "fetch", "tool": "expenses", "args": {"who": "Ada"}}
SUM = {"id": "sum", "program": "{:total (sum-by :amount ctx/fetch)}", "needs": ["fetch"]}
WRITE = {"id": "write", "tool": "report", "args": {"text": "spent {{sum.total}}", "all": "{{fetch}}"}}
PLAN = Plan.of({"steps": [WRITE, FETCH, SUM]}, goal="Report")


def expenses(who: str) -> list[dict[str, Any]]:
    return [{"amount": 1.5, "of": who}, {"amount": 2.0, "of": who}]


def report(text: str, all: list[Any]) -> str:
    return f"{text} in {len(all)}"


TOOLS = {"expenses": expenses, "report": report}


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ("no list", "a vector of steps"),
        ([3], "each step is a map"),
        ([{"id": "a"}], "nothing to do"),
        ([{"id": "a", "tool": "x", "prompt": "y"}], "tool and prompt: give one of"),
        ([FETCH, FETCH], 'Two steps are called "fetch"'),
        ([SUM], 'needs "fetch", which is not a step'),
        ([{"id": "a", "prompt": "{{b.c}}"}], 'needs "b"'),
        ([{"id": "a b", "tool": "x"}], "an id is letters"),
        ([{"id": "a", "tool": 3}], "tool is not a string"),
        ([{"id": "a", "tool": "x", "args": []}], "args is not a map"),
        ([{"id": "a", "tool": "x", "needs": "b"}], "needs is not a vector"),
        ([{"id": "a", "tool": "x", "needs": [["b"]]}], "needs is not a vector of names"),
        ([{"id": "a", "tool": "x", "status": "lost"}], "its status is none of"),
        (
            [{"id": "a", "tool": "x", "needs": ["b"]}, {"id": "b", "tool": "x", "needs": ["a"]}],
            "wait for each other: a, b",
        ),
    ],
)
def test_what_is_wrong_with_a_plan_is_named(steps: Any, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        Plan.of({"steps": steps})


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(PlanError) as caught:
        Plan.of([{"id": "a"}, {"id": "a", "tool": "t", "needs": ["z"]}])
    assert len(caught.value.problems) == 3


def test_an_id_is_made_where_there_is_none() -> None:
    assert [step.id for step in Plan.of([{"tool": "a"}, {"id": "x", "tool": "a"}]).steps] == ["step-1", "x"]


def test_of_a_failed_mission_there_is_no_plan() -> None:
    with pytest.raises(MissionFailed, match="llm_error"):
        Plan.of(failed_step("llm_error", "No"))


def test_steps_wait_for_what_they_need_and_refer_to() -> None:
    assert {step.id: step.predecessors for step in PLAN.steps} == {
        "write": ("sum", "fetch"),
        "fetch": (),
        "sum": ("fetch",),
    }
    assert [step.id for step in PLAN.ready()] == ["fetch"]


@pytest.mark.spec("004", "Plan Persistence")
def test_a_plan_is_carried_out_in_the_order_of_its_needs(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    file = PLAN.save(tmp_path / "plans" / "report.json")
    done = run_plan(
        Plan.load(file), tools=TOOLS, save_to=file, on_step=lambda step: told.append((step.id, step.status))
    )
    assert done.done and done.results["sum"] == {"total": 3.5} and done.results["write"] == "spent 3.5 in 2"
    assert [name for name, status in told if status == "done"] == ["fetch", "sum", "write"]
    assert Plan.load(file) == done and Plan.load(file).goal == "Report"
    assert run_plan(done, tools=TOOLS) == done, "what is done is not done again"


def test_a_failure_stops_the_plan_and_the_next_run_goes_on(tmp_path: Path) -> None:
    calls: list[str] = []

    def broken(text: str, all: list[Any]) -> str:
        calls.append(text)
        raise OSError("no paper") if len(calls) == 1 else None  # type: ignore[misc]

    file = tmp_path / "plan.json"
    stopped = run_plan(PLAN, tools={"expenses": expenses, "report": broken}, save_to=file)
    assert stopped.failed is not None and not stopped.done
    assert stopped.failed.failure == {
        "reason": "tool_error",
        "message": 'The tool "report" failed: no paper',
        "op": "report",
    }
    assert Plan.load(file) == stopped and set(stopped.results) == {"fetch", "sum"}
    assert run_plan(Plan.load(file), tools=TOOLS).done


def test_a_step_that_was_interrupted_is_done_again(tmp_path: Path) -> None:
    running = PLAN.updated(PlanStep(id="fetch", tool="expenses", args={"who": "Ada"}, status="running"))
    assert Plan.load(running.save(tmp_path / "p.json")) == running and not running.ready()
    assert run_plan(running, tools=TOOLS).done


def test_a_plan_with_half_a_surrogate_pair_is_saved(tmp_path):
    plan = Plan(steps=(PlanStep(id="a", program="1", status="done", result="half \ud83d, ñ"),))
    assert Plan.load(plan.save(tmp_path / "p.json")).results == {"a": "half ?, ñ"}


@pytest.mark.parametrize(
    ("step", "reason", "said"),
    [
        ({"tool": "expenses", "args": {}}, "validation_error", "- who: missing"),
        ({"tool": "expenses", "args": {"who": "{{fetch.9.of}}"}}, "eval_error", "{{fetch.9.of}}"),
        ({"program": "(+ 1 nil)"}, "eval_error", ""),
        ({"program": '(call "nothing" {})'}, "tool_not_found", "nothing"),
        ({"program": '(call "expenses" {:whom 1})', "tools": ["expenses"]}, "validation_error", "who"),
        ({"prompt": "Do it"}, "llm_error", ""),
    ],
)
def test_a_step_that_cannot_be_done_says_why(step: dict[str, Any], reason: str, said: str) -> None:
    plan = Plan.of([FETCH, {"id": "a", **step}])
    plan = run_plan(plan, tools=TOOLS, llm=Scripted([]), llm_retry={"max_attempts": 1})
    failure = (plan.failed or PLAN.steps[0]).failure or {}
    assert failure.get("reason") == reason and said in failure["message"]


def test_a_step_may_be_a_mission() -> None:
    judged = {
        "id": "judge",
        "prompt": "Is {{sum.total}} much?",
        "signature": "{much :bool}",
        "tools": ["expenses"],
    }
    llm = Scripted(['(call "return" {:much (> (:total ctx/sum) 3)})'])
    done = run_plan(Plan.of([FETCH, SUM, judged]), tools=TOOLS, llm=llm, context={"limit": 3})
    assert done.results["judge"] == {"much": True}, done.failed
    assert "Is 3.5 much?" in llm.texts[1] and "expenses(" in llm.texts[0]


def test_a_tool_that_is_not_there_stops_everything_before_it_begins() -> None:
    with pytest.raises(PlanError, match='there is no tool "report"'):
        run_plan(PLAN, tools={"expenses": expenses, "reports": report})


def test_results_are_plain_values(tmp_path: Path) -> None:
    plan = Plan.of([{"id": "a", "tool": "t"}, {"id": "b", "program": "{:k :v, :s #{1}}"}])
    done = run_plan(plan, tools={"t": lambda: {"on": date(2026, 1, 2), "of": (1, 2)}})
    assert done.results == {"a": {"on": "2026-01-02", "of": [1, 2]}, "b": {"k": "v", "s": [1]}}
    assert Plan.load(done.save(tmp_path / "p.json")).results == done.results


A = {"n": 1, "l": ["x", "y"], "none": None}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("{{a.n}}", 1),
        ("{{ a.n }} of {{a.l.1}}", "1 of y"),
        ("all: {{a.l}}{{a.none}}", 'all: ["x", "y"]'),
        ({"x": ["{{a.l}}", "plain"]}, {"x": [["x", "y"], "plain"]}),
        ("{{a}}", A),
        (3, 3),
    ],
)
def test_references_are_filled_in(value: Any, expected: Any) -> None:
    assert fill(value, {"a": A}) == expected


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"version": 9, "steps": []}',
        '{"version": 1, "steps": [{"id": "a"}]}',
        '{"version": 1, "steps": [{"id": "a", "program": "1", "status": "failed", "failure": "it failed"}]}',
    ],
)
def test_a_file_without_a_plan_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.json").write_text(text, "utf-8")
    with pytest.raises(PlanError, match=r"p\.json"):
        Plan.load(tmp_path / "p.json")
    with pytest.raises(PlanError, match="cannot be read"):
        Plan.load(tmp_path / "none.json")


def lisp(plan: str) -> str:
    return f'(call "return" (call "create_plan" {{:steps {plan}}}))'


GOOD = '[{:id "fetch" :tool "expenses" :args {:who "Ada"}} {:id "sum" :program "(count ctx/fetch)" :needs ["fetch"]}]'


@pytest.mark.spec("004", "tools vs tool_catalog")
def test_a_mission_plans_with_tools_it_cannot_call() -> None:
    called: list[str] = []
    catalog = {"expenses": (called.append, "(who :string) -> [{amount :float}]")}
    llm = Scripted(['(call "expenses" {:who "Ada"})', lisp(GOOD)])
    step = make_plan("Report what {{who}} spent", tool_catalog=catalog, llm=llm, context={"who": "Ada"})
    plan = Plan.of(step, goal="Report")
    assert [each.id for each in plan.steps] == ["fetch", "sum"] and not called
    assert "expenses(who :string) -> [{amount :float}]" in llm.texts[0] and "what Ada spent" in llm.texts[1]
    assert step.trace[0].error.reason == "tool_not_found"
    assert run_plan(plan, tools=TOOLS).results["sum"] == 2


@pytest.mark.parametrize("plan", ['[{:id "a" :tool "expence"}]', '[{:id "a"}]', "[1]"])
def test_a_bad_plan_is_told_while_it_can_be_mended(plan: str) -> None:
    llm = Scripted([lisp(plan), lisp(GOOD)])
    step = make_plan("Plan", tool_catalog=TOOLS, llm=llm)
    assert step.ok and len(step.trace) == 2 and step.trace[0].error.reason in ("tool_error", "validation_error")


def test_a_plan_that_was_not_looked_over_is_looked_over_at_the_end() -> None:
    llm = Scripted(['(call "return" {:steps [{:id "a" :tool "unknown"}]})'])
    step = make_plan("Plan", tool_catalog=TOOLS, llm=llm)
    assert step.fail is not None and step.fail.reason == "validation_error" and '"unknown"' in step.fail.message


def test_the_tool_gives_the_plan_back_as_it_was_stated() -> None:
    tool = create_plan(TOOLS)
    stated = {"steps": [FETCH, SUM]}
    assert json.loads(json.dumps(tool.call(tool.prepare(stated).args))) == stated


async def later() -> str:
    return "late"


@pytest.mark.parametrize(
    ("step", "status", "said"),
    [
        ({"program": '(fail {:reason :x :message "no"})'}, "failed", "no"),
        ({"program": '(call "return" 5)'}, "done", 5),
        ({"tool": "object"}, "failed", "has no value in the language"),
        ({"tool": "later"}, "done", "late"),
        ({"tool": "typed"}, "failed", "does not fit"),
        ({"tool": "leave"}, "failed", "end the process"),
    ],
)
def test_a_step_ends_as_it_would_in_a_mission(step, status, said):
    tools = {"object": lambda: object(), "later": later, "typed": (lambda: "x", "() -> :int"), "leave": sys.exit}
    tools["leave"] = (lambda: sys.exit(3), "() -> :any")
    plan = run_plan(Plan.of([{"id": "a", **step}]), tools=tools)
    ended = plan.steps[0]
    assert ended.status == status
    assert ended.result == said if status == "done" else said in ended.failure["message"]


def test_a_prompt_without_a_model_is_a_failed_step() -> None:
    plan = run_plan(Plan(steps=(PlanStep(id="a", program="1"), PlanStep(id="b", prompt="Say {{a}}"))))
    assert plan.results == {"a": 1}
    assert plan.failed and plan.failed.failure and "llm is NoneType" in plan.failed.failure["message"]
    assert run_plan(plan, llm=Scripted(['(call "return" ctx/a)'])).done


def test_the_tools_of_a_planning_mission_may_be_a_list() -> None:
    def who() -> str:
        return "Ada"

    program = '(call "return" (call "create_plan" {:steps [{:id "a" :tool "expenses" :args {:who (call "who")}}]}))'
    step = make_plan("Plan", tool_catalog=TOOLS, llm=Scripted([program]), tools=[who])
    assert Plan.of(step).steps[0].args == {"who": "Ada"}
    refused = make_plan("Plan", tool_catalog=TOOLS, llm=Scripted([]), tools={"return": who})
    assert refused.fail and refused.fail.reason == "reserved_tool_name"
