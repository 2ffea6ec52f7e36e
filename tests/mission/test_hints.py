"""What a mission knows about a mistake is told where the language alone would lead astray."""

from __future__ import annotations

import pytest

from pyagentd.mission.delegation import delegate
from pyagentd.mission.registry import Scripted
from tests.mission.test_loop import RETURN_1, code, told

TOOLS = {"search": (lambda query: [query], "(query :string) -> [:string]"), "get_user": lambda: 1}


def hint_of(*programs: str) -> str:
    llm = Scripted([*map(code, programs), code(RETURN_1)])
    delegate("Go.", llm=llm, tools=TOOLS, tool_catalog={"plan": TOOLS["search"]}, context={"rows": [1, 2]})
    return told(llm)


@pytest.mark.parametrize(
    ("programs", "hint"),
    [
        (['(search {:query "x"})'], 'Call a tool as (call "search" {:query …}).'),
        (['(tool/search "x")'], 'Call a tool as (call "search" {:query …}).'),
        (["(get-user)"], 'Call a tool as (call "get_user" {}).'),
        (["(map search [1])"], 'Call a tool as (call "search" {:query …}).'),
        (["(def xs [1 2])", "(count xs)"], "What def names lasts for one program."),
        (["(defn total [x] x)", "(total 1)"], "keep data with (memory/put :total …) and read memory/total"),
        (["(count xs)"], "Bind it with let, or read ctx/xs"),
        (['(println "a")'], "Note: What is printed is not shown; you read what a program evaluates to"),
        (["(do (println 1) nil)"], "end it with what you want to see."),
        (["(count ctx/row)"], "Note: There is no ctx/row, it is nil; did you mean ctx/rows?"),
    ],
)
def test_the_mend_is_named(programs, hint):
    assert hint in hint_of(*programs)


@pytest.mark.parametrize(
    "program", ["(do (println 1) 2)", "(count ctx/other)", "(count ctx/rows)", '(str "ctx/row")']
)
def test_there_is_no_note_where_nothing_is_wrong(program):
    assert "Note:" not in hint_of(program)


def test_a_return_that_rests_on_a_mistyped_name_is_asked_about_once():
    wrong, right = code('(call "return" (count ctx/row))'), code('(call "return" (count ctx/rows))')
    llm = Scripted([wrong, right])
    assert delegate("Go.", llm=llm, context={"rows": [1, 2]}).value == 2
    assert "The value was not returned yet:\n- There is no ctx/row, it is nil; did you mean ctx/rows?" in told(llm)
    step = delegate("Go.", llm=Scripted([wrong, wrong]), context={"rows": [1, 2]})
    assert (step.value, step.warnings) == (0, ("There is no ctx/row, it is nil; did you mean ctx/rows?",))
    assert delegate("Go.", llm=Scripted([wrong]), context={"rows": [1]}, max_turns=1).value == 0
