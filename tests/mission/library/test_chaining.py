"""A step is the context of the next mission, unless it failed."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import pytest

from pyagentd.errors import UserError
from pyagentd.lisp.values import Keyword
from pyagentd.mission import Fail, Scripted, Step, delegate
from pyagentd.mission.checks import ChainedFailure, chained
from pyagentd.mission.step import failed


@dataclass
class Data:
    a: int


class Model:
    def model_dump(self) -> dict[str, Any]:
        return {"a": 1}


@pytest.mark.parametrize("context", [{"a": 1}, OrderedDict(a=1), Data(1), Model(), Step(ok=True, value={"a": 1})])
def test_what_has_names_is_a_context(context: Any) -> None:
    assert chained(context).context == {"a": 1} and chained(context).signature is None


@pytest.mark.spec("004", "Auto-Chaining with Step Structs")
@pytest.mark.spec("004", "DD-6: Auto-Chaining with Step Detection")
def test_a_step_brings_its_value_and_its_signature() -> None:
    step = Step(ok=True, value={"a": "x"}, lisp_value={Keyword("a"): Keyword("x")}, signature="() -> {a :keyword}")
    assert chained(step).context == {Keyword("a"): Keyword("x")} and chained(step).signature == "() -> {a :keyword}"
    assert chained(step, "{a :any}").signature == "{a :any}"
    assert chained(Step(ok=True, value=[1, 2], signature="[:int]")).context == {"value": [1, 2]}
    assert chained(None).context == {}


@pytest.mark.spec("004", "Auto-Chaining with Failed Steps")
@pytest.mark.spec("004", "Error reason chained_failure")
def test_a_failure_is_kept_whole() -> None:
    first = failed("llm_error", "No answer", op="llm", details={"attempts": 3})
    with pytest.raises(ChainedFailure) as caught:
        chained(first)
    assert caught.value.fail == Fail(
        reason="chained_failure",
        message="The mission whose result was to be the context failed: llm_error: No answer",
        op="llm",
        details={
            "original_failure": {
                "reason": "llm_error",
                "message": "No answer",
                "op": "llm",
                "details": {"attempts": 3},
            }
        },
    )
    llm = Scripted([])
    step = delegate("Go on", llm=llm, context=delegate("And on", llm=llm, context=first))
    assert step.fail is not None and step.fail.reason == "chained_failure" and not llm.requests
    assert step.fail.details["original_failure"]["details"]["original_failure"]["reason"] == "llm_error"


@pytest.mark.parametrize("context", [3, "text", [1], Data])
def test_what_has_no_names_is_refused(context: Any) -> None:
    with pytest.raises(UserError, match="has no names"):
        chained(context)


def test_types_go_along() -> None:
    first = delegate(
        "Find", signature="{count :int, _ids [:int]}", llm=Scripted(['(call "return" {:count 2 :_ids [8881 8882]})'])
    )
    llm = Scripted(['(call "return" (+ ctx/count (count ctx/_ids)))'])
    step = delegate("How many are {{count}}?", context=first, llm=llm)
    assert step.value == 4
    assert "How many are 2?" in llm.texts[1] and not any("8881" in text for text in llm.texts)
