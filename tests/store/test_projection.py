"""The tables say what the files say, however they came to be what they are."""

import json
import shutil
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyagentd.runtime.usage import tokens_used
from pyagentd.store import paths
from pyagentd.store.db.projection import Projection
from pyagentd.store.db.state import State
from pyagentd.store.document import text as document
from pyagentd.store.sessions import create_session
from tests.examples import examples
from tests.store.places import PRESET, StandingClock, new_agent
from tests.store.shelf import Recorded, Shelf, dump, update
from tests.store.talk import Call, Step, Turn, texts, turns


@pytest.fixture
def shelf(tmp_path):
    made = Shelf(tmp_path / "sessions")
    yield made
    made.close()


def anew(shelf, place):
    """What an index has that is built from the same files from nothing."""
    state = State(place)
    try:
        update(Projection(state, shelf.root), shelf.registry)
        return dump(state)
    finally:
        state.close()


def assert_same_as_anew(shelf, place):
    shelf.update()
    mine, fresh = dump(shelf.state), anew(shelf, place)
    for sessions in (mine, fresh):  # how far the log was read and how is no fact about a session
        sessions["chat_sessions"] = [row[:-3] + row[-2:-1] for row in sessions["chat_sessions"]]
    assert mine == fresh


def test_what_was_said_is_found_with_its_role(shelf):
    ref = shelf.new("thing", ("How do I frobnicate?", "With a spanner."))
    calls = (Call(name="Bash", input={"command": "make widget\ninstall"}, result="12 gadgets built"),)
    shelf.talk(ref).say("Go on", "Done.", reasoning="perhaps a crowbar", calls=calls)
    shelf.write(ref)
    assert shelf.said("frobnicate") == [("user", "How do I frobnicate?")]
    assert shelf.said("spanner") == [("assistant", "With a spanner.")]
    assert [hit["kind"] for hit in shelf.find("crowbar")] == ["reasoning"]
    for words in ("install", "gadgets", "bash widget built"):
        assert [hit["kind"] for hit in shelf.find(words)] == ["tool"], words
    assert [hit["kind"] for hit in shelf.find("thing")] == ["title"]


def test_what_a_turn_costs_the_index_grows_at_most_with_the_session(shelf):
    taken = []  # thousands of instructions of SQLite's machine
    with shelf.state.writing() as db:
        db.set_progress_handler(lambda: taken.append(1), 1000)
    costs = {}
    for length in (50, 400):
        ref = shelf.new(f"of-{length}", *[("question", "answer")] * length)
        shelf.update()
        shelf.talk(ref).say("another", "one")
        shelf.write(ref)
        taken.clear()
        shelf.update()
        costs[length] = len(taken)
    assert costs[50] > 0
    assert costs[400] < 20 * costs[50]  # the square would be 64 times as much


def test_rows_have_the_columns_of_the_schema(shelf):
    ref = shelf.new("thing", ("question", "answer"), title="A title", workspace_root="/p", parent_id="up")
    answer = list(shelf.talk(ref).conversation.messages.values())[-1]
    usage = {"input": 1, "output": 2, "reasoning": 3, "cache_read": 4, "cache_write": 5}
    row = answer.row | {"metadata_json": {"model": "m-1", "usage": usage}}
    shelf.talk(ref).record("message", **row)
    shelf.write(ref)
    shelf.update()
    with shelf.state.reading() as db:
        cursor = db.execute("SELECT * FROM chat_sessions")
        session = dict(zip([column[0] for column in cursor.description], cursor.fetchone(), strict=True))
        parts = db.execute('SELECT message_id, "index", type, data_json FROM chat_parts').fetchall()
    assert session["id"] == f"{ref.session_id}/branches/main"
    assert (session["title"], session["workspace_root"], session["parent_id"]) == ("A title", "/p", "up")
    assert (session["agent"], session["preset"], session["total_tokens"]) == ("main", "minimal", 15)
    assert [session[name] for name in ("prompt_tokens", "completion_tokens", "cache_write")] == [1, 2, 5]
    assert json.loads(session["model_json"])["model_id"] == "m-1"
    recorded = [(part.row["message_id"], part.row["index"], part.type, part.data) for part in _parts(shelf, ref)]
    assert sorted((m, i, t, json.loads(d)) for m, i, t, d in parts) == sorted(recorded, key=lambda row: row[:3])


def _compacted(shelf, ref, id, tail, tokens, **metadata):
    at = {"session_id": "s", "created_at": 5, "updated_at": 5}
    usage = {"usage": {"input": 1000}, **metadata}
    shelf.talk(ref).record("message", id=id, role="assistant", metadata_json=usage, **at)
    data = {"type": "data-compaction", "summary": "So far.", "tail_start_id": tail, "summary_tokens": tokens}
    part = {"id": f"prt-{id}", "message_id": id, "index": 0, "type": "data-compaction", "data_json": data}
    shelf.talk(ref).record("part", **part, **at)


def test_after_a_compaction_the_columns_count_its_tail_and_its_summary(shelf):
    ref = shelf.new("thing", ("one", "1"), ("two", "2"))
    answers = [message for message in shelf.talk(ref).conversation.messages.values() if message.role == "assistant"]
    for number, answer in enumerate(answers):
        usage = {"usage": {"input": 500 if not number else 30, "output": 10, "reasoning": 20, "cache_read": 5}}
        shelf.talk(ref).record("message", **answer.row | {"metadata_json": usage, "created_at": 1 + number})

    def totals():
        shelf.write(ref)
        shelf.update()
        with shelf.state.reading() as db:
            return db.execute("SELECT prompt_tokens, total_tokens FROM chat_sessions").fetchone()

    assert totals() == (530, 600)
    _compacted(shelf, ref, "msg_zc1", answers[1].id, 7)
    assert totals() == (37, 72)
    _compacted(shelf, ref, "msg_zc2", None, 9)
    assert totals() == (9, 9)
    _compacted(shelf, ref, "msg_zc2", None, 9, hidden_at=1)
    assert totals() == (37, 72)
    assert tokens_used(shelf.talk(ref).conversation).total == 72


def _parts(shelf, ref):
    return [part for message in shelf.talk(ref).conversation.messages.values() for part in message.parts]


def edited(shelf, ref, old, new):
    talk = shelf.talk(ref)
    body = talk.document.body
    at = body.index(old)
    shift = len(new) - len(old)
    spans = tuple(
        span._replace(start=span.start + shift * (span.start > at), end=span.end + shift * (span.end > at))
        for span in talk.document.spans
    )
    talk.document = replace(talk.document, body=body.replace(old, new, 1), spans=spans)
    talk.document = document.parse(document.format_file(talk.document))
    shelf.write(ref)


@pytest.mark.parametrize("is_known", [True, False])
def test_an_edit_of_the_document_counts_before_the_log_has_it(shelf, is_known):
    ref = shelf.new("thing", ("first question", "the wrong answer"), ("second question", "more of it"))
    if is_known:
        shelf.update()
    edited(shelf, ref, "wrong answer", "right answer")
    assert shelf.said("right") == [("assistant", "the right answer")]
    assert not shelf.find("wrong")
    edited(shelf, ref, "right answer", "wrong answer")
    assert shelf.said("wrong") == [("assistant", "the wrong answer")]
    assert not shelf.find("right")


def test_a_recorded_edit_replaces_what_was_edited(shelf):
    ref = shelf.new("thing", ("first question", "the wrong answer"))
    shelf.update()
    edited(shelf, ref, "wrong", "right")
    part = next(part for part in _parts(shelf, ref) if part.text == "the wrong answer")
    shelf.talk(ref).record("edit", part_id=part.id, text="the right answer")
    shelf.write(ref)
    assert shelf.said("answer") == [("assistant", "the right answer")]
    assert not shelf.find("wrong")


def test_what_was_removed_is_found_on_request_only(shelf):
    ref = shelf.new("thing", ("first question", "some answer"), ("second question", "another"))
    shelf.update()
    edited(shelf, ref, "some answer", "")
    assert not shelf.find("some")
    assert [hit["hidden"] for hit in shelf.find("some", hidden=True)] == [True]


def test_a_draft_is_found_until_it_is_sent(shelf):
    ref = shelf.new("thing", ("question", "answer"))
    shelf.update()
    shelf.talk(ref).type("What about zeppelins?")
    shelf.write(ref)
    (draft,) = shelf.find("zeppelins")
    assert (draft["message_id"], draft["role"], draft["preview"]) == (None, "user", "What about zeppelins?")
    shelf.talk(ref).document = replace(shelf.talk(ref).document, body=shelf.talk(ref).document.body[:-21])
    shelf.talk(ref).say("What about zeppelins?", "They fly.")
    shelf.write(ref)
    (sent,) = shelf.find("zeppelins")
    assert sent["message_id"] is not None


def test_a_document_without_a_log_is_found_by_its_roles(shelf):
    ref = shelf.new("thing", ("which airship", "the zeppelin"))
    paths.journal_file(ref.branch_dir).unlink()
    assert shelf.said("airship zeppelin") == []
    assert shelf.said("airship") == [("user", "which airship")]
    assert shelf.said("zeppelin") == [("assistant", "the zeppelin")]


def test_a_log_that_was_lost_takes_no_text_along(shelf):
    ref = shelf.new("thing", ("which airship", "the zeppelin"))
    assert shelf.find("zeppelin")[0]["message_id"] is not None
    paths.journal_file(ref.branch_dir).unlink()
    assert shelf.said("zeppelin") == [("assistant", "the zeppelin")]


def test_an_answer_is_found_before_it_is_in_the_document(shelf):
    ref = shelf.new("thing", ("question", "answer"))
    shelf.update()
    talk = shelf.talk(ref)
    before = talk.document
    talk.say("and the zeppelin", "It flies over the hangar")
    talk.rows.pop()  # the run's text has not all reached the document
    after, talk.document = talk.document, before
    shelf.write(ref)
    assert shelf.said("hangar") == [("assistant", "It flies over the hangar")]
    talk.document = replace(after, body=after.body[: after.body.index(" the hangar")])
    talk.document = replace(
        talk.document, spans=tuple(s._replace(end=min(s.end, len(talk.document.body))) for s in after.spans)
    )
    shelf.write(ref)
    assert shelf.said("hangar") == [("assistant", "It flies over the hangar")]
    assert len(shelf.find("flies")) == 1


def test_an_edit_above_makes_nothing_of_an_answer_that_is_half_in_the_document(shelf):
    ref = shelf.new("thing", ("question", "the wrong answer"))
    talk = shelf.talk(ref)
    talk.say("and the zeppelin", "It flies over the hangar")
    talk.rows.pop()
    body = talk.document.body[: talk.document.body.index(" the hangar")]
    spans = tuple(span._replace(end=min(span.end, len(body))) for span in talk.document.spans)
    talk.document = replace(talk.document, body=body, spans=spans)
    edited(shelf, ref, "wrong", "right")
    assert shelf.said("hangar") == [("assistant", "It flies over the hangar")]
    assert shelf.said("right") == [("assistant", "the right answer")]


def test_text_that_is_streaming_is_found(shelf):
    ref = shelf.new("thing", ("question", "answer"))
    shelf.update()
    talk = shelf.talk(ref)
    talk.type("go")
    run = talk.start(talk.user("go"))
    message = talk.message("assistant")
    part = talk.part(message, 0, "text", {"type": "text", "text": "", "state": "streaming"})
    for text in ("The zep", "pelin", " flies"):
        talk.record("delta", part_id=part, text=text)
        shelf.write(ref)
        shelf.update()
    assert shelf.said("zeppelin") == [("assistant", "The zeppelin flies")]
    talk.part(message, 0, "text", {"type": "text", "text": "The zeppelin flies.", "state": "done"}, id=part)
    talk.finish(run)
    shelf.write(ref)
    assert shelf.said("zeppelin") == [("assistant", "The zeppelin flies.")]


def test_a_message_in_several_branches_is_one_hit_in_the_active_one(shelf):
    ref = shelf.new("thing", ("which airship", "the zeppelin"))
    shelf.update()
    other = shelf.branch(ref, "20260205123100-try")
    (hit,) = shelf.find("zeppelin")
    assert (hit["branch_dir"], hit["copies"]) == (ref.key, 1)
    (ref.session_dir / "current").unlink()
    (ref.session_dir / "current").symlink_to("branches/20260205123100-try")
    (hit,) = shelf.find("zeppelin")
    assert (hit["branch_dir"], hit["copies"]) == (other.key, 1)


def test_agents_are_found_and_archived_sessions_only_on_request(shelf):
    ref = shelf.new("thing", ("question", "the zeppelin"), archived_at=5)
    agent = new_agent(ref, "look for airships")
    shelf.talks[agent.key] = Recorded()
    shelf.talk(agent).session()
    shelf.talk(agent).say("where is it", "in the hangar")
    shelf.write(agent)
    assert not shelf.find("zeppelin") and not shelf.find("hangar")
    assert len(shelf.find("zeppelin", archived=True)) == 1
    (hit,) = shelf.find("hangar", archived=True)
    assert (hit["agent"], hit["session_id"]) == (True, agent.session_id)


def test_what_is_deleted_is_no_longer_found(shelf):
    ref = shelf.new("thing", ("question", "the zeppelin"))
    other = shelf.branch(ref, "20260205123100-try")
    assert shelf.find("zeppelin")[0]["copies"] == 1
    shutil.rmtree(other.branch_dir)
    assert shelf.find("zeppelin")[0]["copies"] == 0
    shutil.rmtree(ref.session_dir)
    assert not shelf.find("zeppelin")
    assert not any(dump(shelf.state).values())


def test_a_session_elsewhere_has_its_directory_for_a_key(shelf, tmp_path):
    place = tmp_path / "activity" / "session"
    ref = create_session(
        shelf.root, "trip", preset_name="p", preset_text=PRESET, clock=StandingClock(), session_dir=place
    )
    shelf.registry.add(ref)
    (hit,) = shelf.find("trip")
    assert hit["branch_dir"] == ref.key


def test_files_written_by_another_program_are_noticed_by_their_stamps(shelf):
    ref = shelf.new("thing", ("question", "the zeppelin"))
    shelf.update()
    assert shelf.projection.update(ref) == 0
    other = Recorded()
    other.session()
    other.say("of another machine", "the balloon")
    shelf.talks[ref.key] = other
    shelf.write(ref)
    assert not shelf.find("zeppelin")
    assert shelf.said("balloon") == [("assistant", "the balloon")]


def test_damaged_rows_hide_nothing_else(shelf):
    ref = shelf.new("thing", ("question", "the zeppelin"))
    with paths.journal_file(ref.branch_dir).open("a") as journal:
        journal.write('{"seq": 999, "type": "part"\n\0\0\0\n{"seq":1000,"type":"future","data":{}}\n{"torn')
    assert shelf.said("zeppelin") == [("assistant", "the zeppelin")]


def test_rows_that_another_program_wrote_are_indexed_without_what_is_of_another_type(shelf):
    ref = shelf.new("thing", ("question", "the zeppelin"))
    talk = shelf.talk(ref)
    part = next(reversed(talk.conversation.parts.values())).row
    talk.record("session", id="s", archived_at={"a": 1})
    talk.record("part", **{**part, "tool_call_id": ["x"], "tool_state": {"a": 1}})
    talk.record("part", **{**part, "id": "other", "index": 10**30})
    shelf.write(ref)
    assert shelf.said("zeppelin")[0] == ("assistant", "the zeppelin")


def test_whatever_json_can_say_can_be_indexed(shelf):
    ref = shelf.new("thing")
    odd = {"a": [None, True, 1e300, "half \ud800 pair"]}
    shelf.talk(ref).say("odd \udcff question", "ok", calls=(Call(input=odd, result="nul \0 byte"),))
    message = next(reversed(shelf.talk(ref).conversation.messages.values()))
    shelf.talk(ref).record("message", **{**message.row, "metadata_json": {"usage": {"input": float("nan")}}})
    shelf.write(ref)
    assert [hit["kind"] for hit in shelf.find("half pair")] == ["tool"]
    assert shelf.find("odd question")[0]["role"] == "user"


def test_a_row_whose_other_texts_are_half_a_surrogate_pair_is_indexed(shelf):
    ref = shelf.new("thing", ("question", "the zeppelin"))
    half = "half \ud800"
    shelf.talk(ref).say("And?", "ok", calls=(Call(input={}, result="an airship"),))
    conversation = shelf.talk(ref).conversation
    part = next(part for part in conversation.parts.values() if part.row.get("tool_call_id"))
    shelf.talk(ref).record(
        "session", **{**conversation.session, "parent_id": half, "workspace_root": half, "agent": half}
    )
    shelf.talk(ref).record("part", **{**part.row, "tool_state": half})
    shelf.write(ref)
    assert shelf.said("zeppelin") == [("assistant", "the zeppelin")]
    assert [hit["kind"] for hit in shelf.find("airship")] == ["tool"]


def test_a_row_whose_id_is_half_a_surrogate_pair_is_left_out_and_the_others_are_found(shelf, caplog):
    ref = shelf.new("thing", ("question", "the zeppelin"))
    message = next(reversed(shelf.talk(ref).conversation.messages.values()))
    shelf.talk(ref).record("message", **{**message.row, "id": "half \ud800"})
    shelf.write(ref)
    assert shelf.said("zeppelin") == [("assistant", "the zeppelin")]
    assert "1 rows are not indexed" in caplog.text
    shelf.talk(ref).record("delta", part_id="half \ud800", text="more")
    shelf.talk(ref).say("And now?", "An airship.")
    shelf.write(ref)
    assert shelf.said("airship") == [("assistant", "An airship.")]


ACTIONS = ("turn", "edit", "cut", "draft", "branch", "delete", "record", "touch", "lose", "index", "title")


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_an_index_kept_up_to_date_equals_one_built_from_nothing(tmp_path_factory, data):
    shelf = Shelf(tmp_path_factory.mktemp("shelf") / "sessions")
    refs = [shelf.new("one", ("first question", "first answer")), shelf.new("two")]
    for number in range(data.draw(st.integers(1, 8))):
        if not refs:
            break
        action, ref = data.draw(st.sampled_from(ACTIONS)), data.draw(st.sampled_from(refs))
        talk = shelf.talk(ref)
        match action:
            case "turn":
                talk.chunk = data.draw(st.sampled_from([0, 3]))
                talk.play(data.draw(turns))
            case "edit" | "cut" if talk.document.body:
                body = talk.document.body
                start = data.draw(st.integers(0, len(body) - 1))
                old = body[start : start + data.draw(st.integers(1, 30))]
                edited(shelf, ref, old, data.draw(texts) if action == "edit" else "")
            case "draft":
                talk.type(data.draw(texts))
            case "record" if talk.conversation.parts:
                part = data.draw(st.sampled_from(sorted(talk.conversation.parts)))
                talk.record(
                    "edit", part_id=part, **data.draw(st.sampled_from([{"hidden": True}, {"text": "new"}, {}]))
                )
            case "branch":
                refs.append(shelf.branch(ref, f"2026020512310{number}-b"))
            case "title":
                talk.session(title=data.draw(st.sampled_from(["", "Balloons"])), archived_at=None)
            case "delete":
                refs.remove(ref)
                shutil.rmtree(ref.branch_dir)
                continue
            case "touch":
                paths.session_file(ref.branch_dir).touch()
            case "lose":
                paths.journal_file(ref.branch_dir).unlink(missing_ok=True)
                talk.rows.clear()
            case _:
                shelf.update()
        shelf.write(ref)
    assert_same_as_anew(shelf, tmp_path_factory.mktemp("anew"))
    shelf.close()


def test_a_long_turn_is_written_once(shelf):
    ref = shelf.new("thing", *[(f"question {n}", f"answer {n}") for n in range(50)])
    shelf.update()
    shelf.talk(ref).play(Turn(prompt="last", steps=(Step(texts=("end",)),)))
    shelf.write(ref)
    assert shelf.projection.update(ref) == 2
