"""A preset with a signature answers with a mission: recorded, shown, stopped and told as any run."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from pyagentd.errors import PresetError
from pyagentd.features.usage import facts_of
from pyagentd.runtime.approvals import Answer
from pyagentd.runtime.usage import session_usage
from pyagentd.store.document.render import replay
from tests.features.missions.contracted import COUNTS, RETURN, contracted, phases, said
from tests.features.test_usage import CONFIG
from tests.runtime.delegation import converse, ends, system_of
from tests.runtime.prefix import assert_prefix
from tests.runtime.world import Watcher, World, assert_closed, attached, body, rows
from tests.server import answer, refusal


async def test_a_mission_answers_with_a_value_that_reads_well(world: World) -> None:
    (world.project / "a.txt").write_text("one\ntwo\n")
    ref = contracted(world)
    world.server.say(
        said(f'(call "Glob" {{:pattern "*.txt" :path "{world.project}"}})'),
        said('(call "return" {:count (count (split-lines ctx/last)) :names (split-lines ctx/last)})', "That is all."),
    )
    watcher = await converse(world, ref, "What is there?")
    (end,) = ends(watcher, ref)
    assert end["reason"] == "done", end
    text = body(ref)
    assert "I look." in text and "That is all." in text
    assert "``` tool (program" in text and "``` tool (Glob" in text
    assert f'```json\n{{\n  "count": 1,\n  "names": [\n    "{world.project}/a.txt"' in text
    assert watcher.text(ref.key) in text, "who watched saw what is in the file"
    assert_closed(ref)
    assert phases(ref)["end"]["value"] == {"count": 1, "names": [f"{world.project}/a.txt"]}


async def test_a_mission_costs_what_its_session_costs(world: World) -> None:
    (world.home / "config.toml").write_text(CONFIG.replace("model-main", "model-counter"), encoding="utf-8")
    world.start()
    ref = contracted(world)
    world.server.say(said(RETURN))
    await converse(world, ref)
    async with world.kernel.using(ref) as branch:
        spent = session_usage(branch.conversation, facts_of(world.kernel))
    assert spent.cost_usd and phases(ref)["end"]["usage"]["cost_usd"] == pytest.approx(spent.cost_usd)


async def test_more_calls_than_a_preset_allows_end_a_mission_in_the_middle_of_its_program(world: World) -> None:
    ref = contracted(world, more="max-calls: 3")
    world.server.say(said(f'(count (map (fn [n] (call "Glob" {{:pattern "*" :path "{world.project}"}})) (range 9)))'))
    watcher = await converse(world, ref)
    (end,) = ends(watcher, ref)
    assert end["reason"] == "error" and "limit of tool calls (3) reached" in end["message"]
    assert body(ref).count("``` tool (Glob") == 3
    assert assert_closed(ref)["error"]["code"] == "budget"


async def test_calls_of_a_program_run_in_parallel_and_stand_in_its_order(world: World) -> None:
    for name in "abc":
        (world.project / f"{name}.txt").write_text(name * 3)
    ref = contracted(world, more="parallel: 2")
    path = f'(str "{world.project}/" n ".txt")'
    read = f'(pmap (fn [n] (call "Read" {{:file_path {path}}})) ["c" "a" "b"])'
    world.server.say(said(f'(return {{:count 3 :names (map (fn [t] (re-find #"[abc]{{3}}" t)) {read})}})'))
    await converse(world, ref)
    assert phases(ref)["end"]["value"] == {"count": 3, "names": ["ccc", "aaa", "bbb"]}
    assert_closed(ref)


async def test_a_call_beside_one_that_failed_is_recorded_as_cancelled(world: World) -> None:
    ref = contracted(world)
    world.server.say(
        said('(pcalls (fn [] (call "Bash" {:command "echo hi > /dev/null"})) (fn [] (throw "this one fails")))'),
        said(RETURN),
    )
    watcher = await converse(world, ref)
    (end,) = ends(watcher, ref)
    assert end["reason"] == "done", end
    assert "another one beside it failed" in body(ref)
    assert "this one fails" in body(ref)
    assert_closed(ref)


async def test_programs_can_run_in_a_process_of_their_own(world: World) -> None:
    (world.project / "a.txt").write_text("one\ntwo\n")
    ref = contracted(world, more="isolation: process")
    world.server.say(
        said(f'(call "Glob" {{:pattern "*.txt" :path "{world.project}"}})'),
        said('(call "return" {:count (count (split-lines ctx/last)) :names []})'),
    )
    await converse(world, ref, "What is there?")
    assert phases(ref)["end"]["value"] == {"count": 1, "names": []}


async def test_a_string_is_an_answer_in_words(world: World) -> None:
    ref = contracted(world, ":string")
    world.server.say(said('(call "return" "All is well.")'))
    await converse(world, ref)
    assert body(ref).endswith("All is well.\n\n### ")


async def test_the_presets_own_words_come_before_the_language(world: World) -> None:
    ref = contracted(world)
    world.server.say(said(RETURN))
    await converse(world, ref)
    system = system_of(world.server.last)
    assert "You are counter." in system and COUNTS in system and "Read(file_path :string" in system
    assert "tools" not in world.server.last.body, "a program calls tools, the model does not"


async def test_what_a_program_may_not_do_is_an_error_that_the_model_reads(world: World) -> None:
    (world.home / "secret").write_text("x")
    ref = contracted(world)
    world.server.say(said(f'(call "Read" {{:file_path "{world.home}/secret"}})'), said(RETURN))
    await converse(world, ref)
    read = world.server.last.messages[-1]["content"][-1]["text"]
    assert "tool_error" in read and "Read" in read and "outside" in read
    assert "request_scope_expansion" not in read and "`fail`" in read, "advice that it can follow"
    assert '"x"' not in body(ref)


async def test_a_human_is_asked_about_what_a_program_does(world: World) -> None:
    ref = contracted(world)
    world.server.say(said('(call "Bash" {:command "echo hi"})'), said('(call "return" {:count 1 :names [ctx/last]})'))
    watcher = Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Go.", options=world.options)
        await watcher.until(lambda: watcher.of("ask"))
        (ask,) = (event.args[0] for event in watcher.of("ask"))
        assert ask["tool"] == "Bash" and "echo hi" in ask["input"]
        world.kernel.asks.answer(ask["id"], Answer(decision="allow"))
        end = await watcher.finished(branch)
    assert end["reason"] == "done"
    assert phases(ref)["end"]["value"]["names"][0].startswith("hi")


async def test_the_value_that_does_not_fit_is_not_the_answer(world: World) -> None:
    ref = contracted(world)
    world.server.say(said('(call "return" {:count "many"})'), said(RETURN))
    await converse(world, ref)
    assert "count" in world.server.last.messages[-1]["content"][-1]["text"]
    assert phases(ref)["end"]["ok"]


@pytest.mark.parametrize(("ends_with", "where"), [("return", "value"), ("fail", "fail")])
async def test_keys_that_are_collections_are_told_as_their_text(world: World, ends_with: str, where: str) -> None:
    ref = contracted(world, signature=":map", tools="Read")
    world.server.say(said(f'(call "{ends_with}" (group-by (juxt :c :m) [{{:c "a" :m 1}} {{:c "b" :m 2}}]))'))
    watcher = await converse(world, ref, "Go.")
    told = phases(ref)["end"][where]
    assert (told if where == "value" else told["details"]) == {
        '["a" 1]': [{"c": "a", "m": 1}],
        '["b" 2]': [{"c": "b", "m": 2}],
    }
    assert (ends(watcher, ref)[0]["reason"] == "done") is (where == "value")


async def test_a_mission_that_gives_up_says_why(world: World) -> None:
    ref = contracted(world)
    world.server.say(said('(call "fail" {:reason :not_found :message "No such customer"})'))
    watcher = await converse(world, ref)
    (end,) = ends(watcher, ref)
    assert end["reason"] == "error" and "not_found" in end["message"] and "No such customer" in end["message"]
    assert "No such customer" in body(ref)
    assert assert_closed(ref)["error"]["code"] == "mission-failed"


async def test_an_answer_without_a_program_is_reminded_of_it(world: World) -> None:
    ref = contracted(world)
    world.server.say("I would rather chat.", said(RETURN))
    watcher = await converse(world, ref)
    assert ends(watcher, ref)[0]["reason"] == "done"
    assert "I would rather chat." in body(ref)
    assert "program" in world.server.last.messages[-1]["content"][-1]["text"]


async def test_the_models_server_is_asked_again_by_the_backend_and_its_refusal_is_the_end(world: World) -> None:
    ref = contracted(world)
    world.server.say(refusal(400, "invalid_request_error", "no such model"))
    watcher = await converse(world, ref)
    (end,) = ends(watcher, ref)
    assert end["reason"] == "error" and "no such model" in end["message"]
    assert_closed(ref)
    assert len(world.server.requests) == 1


async def test_turns_are_limited_by_the_preset(world: World) -> None:
    ref = contracted(world, more="max-turns: 2")
    world.server.say(said("1"), said("2"), said("3"))
    watcher = await converse(world, ref)
    assert "max_turns_exceeded" in ends(watcher, ref)[0]["message"]
    assert len(world.server.requests) == 2


@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_aborting_stops_a_program_that_would_run_for_ever(world: World, isolation: str) -> None:
    ref = contracted(world, more=f"isolation: {isolation}")
    world.server.say(said("(loop [n 0] (recur (inc n)))"))
    watcher = Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Go.", options=world.options)
        await watcher.phase(branch, "TOOL")
        assert await world.kernel.abort(branch)
        assert (await watcher.finished(branch))["reason"] == "aborted"
    assert_closed(ref)


async def test_aborting_stops_a_command_of_a_program(world: World) -> None:
    ref = contracted(world)
    world.server.say(said('(call "Bash" {:command "sleep 600"})'))
    watcher = Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Go.", options=world.granted("tool:Bash:.*"))
        await watcher.until(
            lambda: any("Bash sleep 600" in (e.args[0].get("tools") or []) for e in watcher.of("status"))
        )
        assert await world.kernel.abort(branch)
        assert (await watcher.finished(branch))["reason"] == "aborted"
    assert_closed(ref)


async def test_replay_is_what_was_told_live(world: World) -> None:
    ref = contracted(world)
    world.server.say(said('(call "Glob" {:pattern "*"})'), "No program.", said(RETURN))
    watcher = await converse(world, ref)
    inserts = [event.args[0] for event in watcher.of("insert", ref.key)]
    assert "".join(inserts) == "".join(insert.text for insert in replay(rows(ref), 0))
    assert_prefix(world.server.requests)


# -- what the message says -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("*.md", "Count *.md, at most 3."),
        ('{"pattern": "*.el", "most": 7}', "Count *.el, at most 7."),
        ("pattern: *.py\nmost: 2", "Count *.py, at most 2."),
    ],
)
async def test_inputs_come_from_the_message(world: World, message: str, told: str) -> None:
    one = message == "*.md"
    signature = f"(pattern :string{'' if one else ', most :int'}) -> :any"
    prompt = "Count {{pattern}}, at most 3." if one else "Count {{pattern}}, at most {{most}}."
    ref = contracted(world, signature, more=f"prompt: {json.dumps(prompt)}")
    world.server.say(said('(call "return" ctx/pattern)'))
    await converse(world, ref, message)
    assert told in system_of(world.server.last)
    assert phases(ref)["end"]["ok"]


async def test_a_message_without_the_inputs_is_told_what_they_are(world: World) -> None:
    ref = contracted(world, "(a :string, b :int) -> :any", more='prompt: "{{a}} {{b}}"')
    watcher = await converse(world, ref, "Hello!")
    assert "inputs a, b" in ends(watcher, ref)[0]["message"]
    assert not world.server.requests


async def test_braces_of_a_message_are_no_placeholders(world: World) -> None:
    ref = contracted(world, ":any")
    world.server.say(said('(call "return" ctx/message)'))
    await converse(world, ref, "What does {{x}} mean in {% jinja %}?")
    assert phases(ref)["end"]["value"] == "What does {{x}} mean in {% jinja %}?"


async def test_what_was_said_before_is_data_of_the_next_mission(world: World) -> None:
    ref = contracted(world, ":any")
    world.server.say(said('(call "return" "first")'), said('(call "return" ctx/earlier)'))
    await converse(world, ref, "One.")
    await converse(world, ref, "Two.")
    assert phases(ref)["end"]["value"] == [{"prompt": "One.", "answer": "first"}]


async def test_firewalled_fields_are_for_programs_only(world: World) -> None:
    ref = contracted(world, "{count :int, _ids [:int]}")
    world.server.say(said('(call "return" {:count 2 :_ids [4711 4712]})'))
    await converse(world, ref)
    assert "4711" not in body(ref).partition("The mission ended")[2]
    assert phases(ref)["end"]["value"] == {"count": 2, "_ids": [4711, 4712]}


async def test_a_broken_signature_is_told_before_anything_is_recorded(world: World) -> None:
    ref = contracted(world, "{count :in")
    async with world.kernel.using(ref) as branch:
        with pytest.raises(Exception, match=r"signature.*counter|signature.*main") as caught:
            await world.kernel.prompt(branch, text="Go.", options=world.options)
    assert "line 1" in str(caught.value)
    assert not [row for row in rows(ref) if row.type == "run"]


@pytest.mark.parametrize("written", ["{count :int}", "[:int]", "{count: int}"])
def test_a_signature_without_quotes_is_told_to_have_some(world: World, written: str) -> None:
    world.preset("counter", model=f"m\nsignature: {written}")
    with pytest.raises(PresetError, match="put it in quotes"):
        world.kernel.presets.template("counter")


async def test_headless_missions_are_denied_what_would_be_asked(world: World) -> None:
    ref = contracted(world)
    world.server.say(said('(call "Bash" {:command "echo hi"})'), said(RETURN))
    async with world.kernel.using(ref) as branch:
        options = replace(world.options, interactive=False)
        watcher = Watcher()
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Go.", options=options)
        await watcher.finished(branch)
    assert "approv" in world.server.last.messages[-1]["content"][-1]["text"]


async def test_a_chat_goes_on_where_a_mission_was(world: World) -> None:
    """The programs are calls like any others for whoever answers next."""
    ref = contracted(world)
    world.server.say(said('(call "Glob" {:pattern "*"})'), said(RETURN), answer("I see."))
    await converse(world, ref, "Count.")
    (ref.branch_dir / "preset.md").write_text((world.presets / "main.md").read_text())
    watcher = await converse(world, ref, "What did you do?")
    assert ends(watcher, ref)[0]["reason"] == "done"
    names = [b["name"] for m in world.server.last.messages for b in m["content"] if b["type"] == "tool_use"]
    assert names == ["program", "Glob", "program"]


def test_a_daemon_without_missions_does_not_load_the_language() -> None:
    """It has to answer within a third of a second of its start."""
    rooms = ("pyagentd.lisp", "pyagentd.mission")
    look = f"import sys, pyagentd.daemon; print([name for name in sys.modules if name.startswith({rooms})])"
    assert subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout == "[]\n"
