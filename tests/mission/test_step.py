"""A step as plain JSON, and turns back from it."""

import json

from pyagentd.mission import step as trace
from pyagentd.mission.delegation import delegate
from pyagentd.mission.registry import Scripted
from tests.mission.answers import code


def test_a_turn_comes_back_with_the_missions_inside_its_calls():
    def child() -> list[int]:
        return delegate("Inner.", llm=Scripted([code('(call "return" [1 2])')])).unwrap()

    llm = Scripted([code('(call "child")'), code("(/ 1 0)"), code('(call "fail" {:reason :no :message "m"})')])
    step = delegate("Go.", llm=llm, tools={"child": child}, signature="{n :int}")
    written = json.loads(json.dumps(trace.plain(step)))
    assert (written["ok"], written["fail"]["reason"], written["signature"]) == (False, "no", "() -> {n :int}")
    assert written["usage"]["turns"] == 4
    turns = [trace.turn_from_json(turn) for turn in written["trace"]]
    assert [trace.plain(turn) for turn in turns] == written["trace"]
    (call,) = turns[0].tool_calls
    assert (call.name, call.result, call.children[0].trace[0].program) == ("child", [1, 2], '(call "return" [1 2])')
    assert turns[1].error.reason == "eval_error"


def test_what_json_cannot_say_is_its_text():
    assert trace.plain({1: {2}, "k": (len,)}) == {"1": [2], "k": [str(len)]}
