"""A mission between two turns survives the process."""

import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyagentd.lisp.values import Keyword, LispSet
from pyagentd.mission import CheckpointError, State, delegate
from pyagentd.mission.checkpoint import checkpoint_files, load, save

STATE = State(
    prompt="Count {{x}}",
    signature="(x :int) -> {n :int}",
    turn=2,
    memory={"seen": [1, 2.5, Keyword("a")], "set": LispSet.of([1, "a"])},
    context={"x": 1, "last": None, "nested": {Keyword("k"): {"s": True}}},
    messages=({"role": "user", "content": "Count 1"}, {"role": "assistant", "content": "(inc 1)"}),
    usage={"turns": 2, "cost_usd": 0.01},
    budget={"turns_used": 3, "elapsed_ms": 1200},
    trace=({"number": 1}, {"number": 2}),
    consecutive_failures=1,
)


@pytest.mark.spec("004", "Checkpoint/Resume")
def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    path = save(tmp_path / "new" / "place", STATE)
    assert path.name == "checkpoint-2.json"
    assert load(path) == STATE == load("checkpoint-2.json", path.parent) == load("latest", path.parent)
    assert load(STATE) is STATE
    assert State.from_json(json.loads(json.dumps(STATE.to_json()))) == STATE


def test_a_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    assert stat.S_IMODE(save(tmp_path, STATE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-2.json"], "no drafts are left"


def test_the_latest_is_the_one_written_last(tmp_path: Path) -> None:
    for turn, written in ((9, 100), (1, 200), (2, 300)):
        os.utime(save(tmp_path, State(prompt="p", turn=turn)), (written, written))
    assert [path.name for path in checkpoint_files(tmp_path)] == [
        "checkpoint-9.json",
        "checkpoint-1.json",
        "checkpoint-2.json",
    ]
    assert load("latest", tmp_path).turn == 2
    assert checkpoint_files(tmp_path / "none") == []


def test_half_a_surrogate_pair_comes_back_as_it_was(tmp_path: Path) -> None:
    state = State(prompt="p", turn=1, memory={"half \ud83d": "\ud83d"}, messages=({"role": "user", "content": "ñ"},))
    assert load(save(tmp_path, state)) == state


def test_functions_are_left_out_and_named(tmp_path: Path) -> None:
    again = load(save(tmp_path, State(prompt="p", turn=1, memory={"f": len, "n": 1}, context={"g": {"h": max}})))
    assert again.memory == {"n": 1} and again.context == {}
    assert again.omitted == ("memory/f", "context/g")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "not a checkpoint"),
        ({"prompt": "p"}, "not a checkpoint"),
        ({"version": 99, "prompt": "p", "turn": 1}, "version 99"),
        ({"version": 1, "turn": 1}, "damaged"),
        ({"version": 1, "prompt": "p", "turn": "1"}, "damaged: `turn`"),
        ({"version": 1, "prompt": "p", "turn": 1, "messages": 3}, "damaged: `messages`"),
        ({"version": 1, "prompt": "p", "turn": 1, "trace": ["x"]}, "damaged: `trace"),
        ({"version": 1, "prompt": "p", "turn": 1, "memory": []}, "damaged: `memory`"),
        ({"version": 1, "prompt": "p", "turn": 1, "budget": {"turns_used": "many"}}, "damaged: `budget"),
    ],
)
def test_what_is_no_checkpoint_is_told(tmp_path: Path, data: Any, said: str) -> None:
    path = tmp_path / "checkpoint-1.json"
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(CheckpointError, match=said) as caught:
        load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("checkpoint-7.json", "There are checkpoint-2.json"),
        ("broken.json", "not JSON"),
        ("latin.json", "cannot be read"),
        (".", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, source: str, said: str) -> None:
    save(tmp_path, STATE)
    (tmp_path / "broken.json").write_text("{", "utf-8")
    (tmp_path / "latin.json").write_bytes(b"\xff")
    with pytest.raises(CheckpointError, match=said):
        load(source if source != "." else tmp_path, tmp_path)


def test_the_latest_needs_a_directory_with_one(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="needs a checkpoint_dir"):
        load("latest")
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        load("latest", tmp_path)


@pytest.mark.parametrize("changed", [{"trace": ({},)}, {"messages": ({"role": "user"},)}, {"context": 1}])
def test_a_state_that_was_changed_to_something_else_is_told(changed: dict[str, Any]) -> None:
    step = delegate("Go on", llm=scripted("(return 1)"), resume_from=replace(STATE, **changed))
    assert step.fail is not None and step.fail.reason == "checkpoint_error" and "damaged" in step.fail.message


SECRET = "sk-ant-not-for-files"


class Killed(BaseException):
    """The process ends here."""


def scripted(*answers: Any) -> Any:
    """Return a model that holds a key and ends the process where it is told to."""
    left = list(answers)

    def llm(request: Any, key: str = SECRET) -> str:
        answer = left.pop(0)
        if answer is Killed:
            raise Killed
        return f"```clojure\n{answer}\n```"

    return llm


@pytest.mark.spec("004", "Checkpoint/Resume")
def test_a_mission_whose_process_was_killed_goes_on_behind_its_last_turn(tmp_path: Path) -> None:
    calls: list[str] = []

    def fetch(page: int) -> dict[str, Any]:
        calls.append(f"page {page}")
        return {"_rows": [page] * 3, "page": page}

    options: dict[str, Any] = {
        "signature": "(pages :int) -> {rows :int, seen [:keyword]}",
        "context": {"pages": 2},
        "tools": {"fetch": fetch},
        "checkpoint_dir": tmp_path,
    }
    one = '(do (memory/put :rows (:_rows (call "fetch" {:page 1}))) (memory/put :seen [:one]))'
    rows = '(concat memory/rows (:_rows (call "fetch" {:page 2})))'
    two = f"(do (memory/put :rows {rows}) {{:two (inc (count memory/seen))}})"
    end = '(call "return" {:rows (count memory/rows) :seen (conj memory/seen :two)})'
    with pytest.raises(Killed):
        delegate("Read {{pages}} pages", llm=scripted(one, two, Killed), **options)
    assert [path.name for path in checkpoint_files(tmp_path)] == ["checkpoint-1.json", "checkpoint-2.json"]
    step = delegate("Read {{pages}} pages", llm=scripted(end), resume_from="latest", **options)
    assert step.value == {"rows": 6, "seen": ["one", "two"]}, step.fail
    assert calls == ["page 1", "page 2"] and [turn.number for turn in step.trace] == [1, 2, 3]
    assert step.context["two"] == 2 and step.usage.llm_requests == 3
    earlier = delegate("Read {{pages}} pages", llm=scripted(two, end), resume_from="checkpoint-1.json", **options)
    assert earlier.value == step.value and len(calls) == 3


def test_no_key_is_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    delegate("Wait", llm=scripted("(memory/put :a 1)", '(call "return" 1)'), checkpoint_dir=tmp_path)
    texts = [path.read_text("utf-8") for path in tmp_path.iterdir()]
    assert texts and not [text for text in texts if SECRET in text]


def test_limits_that_are_none_are_refused() -> None:
    with pytest.raises(TypeError, match=r"write Limits\(max_turns=5\)"):
        delegate("p", llm=lambda request: "", limits={"max_turns": 5})
