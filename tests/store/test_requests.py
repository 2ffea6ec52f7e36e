"""What requests counted: in the tables as in the logs, and once however many copies there are."""

import json
import shutil
import sqlite3
from importlib.resources import files

import pytest

from pyagentd.messages import Usage
from pyagentd.store import paths
from pyagentd.store.branching import duplicate_session, fork_session
from pyagentd.store.conversation import Conversation
from pyagentd.store.db.projection import LENGTHS, QUARTER_MS, spent_by_branch, sums
from pyagentd.store.db.state import APPLICATION_ID, MIGRATIONS, State
from pyagentd.store.journal import read_rows
from tests.store.places import StandingClock, new_agent
from tests.store.shelf import Recorded, Shelf


@pytest.fixture
def shelf(tmp_path):
    made = Shelf(tmp_path / "sessions")
    yield made
    made.close()


def spend(shelf, ref, *steps, model="m-1", total=None):
    """Have the last answer of a talk be the sum of requests, each recorded with its step."""
    talk = shelf.talk(ref)
    row = list(talk.conversation.messages.values())[-1].row
    whole = sum(steps, Usage()) if total is None else total
    facts = {"model": {"provider_id": "p", "model_id": model}, "usage": counts(whole)}
    talk.record("message", **{**row, "metadata_json": facts})
    for index, step in enumerate(steps):
        data = {"type": "step-start", "usage": counts(step)}
        part = {"id": f"step-{index}-{row['id']}", "message_id": row["id"], "session_id": "s", "index": 100 + index}
        talk.record("part", **part, type="step-start", data_json=data, created_at=1, updated_at=1)
    shelf.write(ref)
    return row["id"]


def counts(usage):
    return {name: getattr(usage, name) for name in ("input", "output", "reasoning", "cache_read", "cache_write")}


def whole(shelf, by="model", **since):
    """Return requests and tokens by model."""
    shelf.update()
    found = {}
    for _, each in sums(shelf.state, by, **since):
        requests, usage = found.get(each.served.model, (0, Usage()))
        found[each.served.model] = (requests + each.requests, usage + each.usage)
    return found


def test_every_request_of_an_answer_is_counted_with_who_served_it(shelf):
    ref = shelf.new("thing", ("question", "answer"))
    spend(shelf, ref, Usage(input=1, output=2), Usage(reasoning=3, cache_read=4, cache_write=5))
    other = shelf.new("other", ("question", "answer"))
    spend(shelf, other, Usage(input=7), model="m-2")
    first = Usage(input=1, output=2, reasoning=3, cache_read=4, cache_write=5)
    assert whole(shelf) == {"m-1": (2, first), "m-2": (1, Usage(input=7))}
    shelf.talk(ref).say("Go on", "Done.")
    spend(shelf, ref, Usage(output=1))
    assert whole(shelf)["m-1"] == (3, first + Usage(output=1))


def test_what_no_step_tells_is_a_request_of_its_own_and_nonsense_counts_nothing(shelf):
    ref = shelf.new("thing", ("question", "answer"))
    spend(shelf, ref, Usage(input=1), total=Usage(input=5))
    assert whole(shelf) == {"m-1": (2, Usage(input=5))}
    odd = shelf.new("odd", ("question", "answer"))
    spend(shelf, odd, total=Usage(input=-3, output=10**30), model="m-2")
    assert whole(shelf)["m-2"] == (1, Usage(output=10**12))


def test_a_prompt_is_as_long_as_the_provider_read(shelf):
    ref = shelf.new("thing", ("question", "answer"))
    spend(shelf, ref, Usage(input=LENGTHS[0] - 1, cache_read=2), Usage(input=LENGTHS[0]))
    shelf.update()
    assert sorted(each.longer for _, each in sums(shelf.state, "model")) == [0, LENGTHS[0]]


def test_copies_in_branches_duplicates_and_forks_count_once_and_where_they_were_made(shelf):
    ref = shelf.new("thing", ("question", "answer"))
    spend(shelf, ref, Usage(input=4))
    shelf.branch(ref, "other")
    shutil.copytree(ref.session_dir, shelf.root / f"{ref.session_id}0")
    first = ref
    for _ in range(2):  # a fork of a fork too
        log = Conversation(read_rows(paths.journal_file(first.branch_dir)))
        first = fork_session(
            first, log, list(log.messages.values()), root=shelf.root, title="A fork", clock=StandingClock()
        )
    assert whole(shelf) == {"m-1": (1, Usage(input=4))}
    assert len(spent_by_branch(shelf.state)) == 6, "a branch tells what its own conversation cost"
    ((place, _),) = sums(shelf.state, "branch")
    assert place == f"{ref.session_id}/branches/main"
    shutil.rmtree(ref.session_dir)
    shutil.rmtree(shelf.root / f"{ref.session_id}0")
    assert whole(shelf) == {"m-1": (1, Usage(input=4))}, "of those that are left one counts"


def test_a_duplicate_costs_nothing_though_it_comes_first(shelf):
    ref = shelf.new("thing", ("question", "answer"))
    spend(shelf, ref, Usage(input=4))
    agent = new_agent(ref)
    shelf.talks[agent.key] = Recorded()
    shelf.talk(agent).say("Look", "Seen.")
    spend(shelf, agent, Usage(input=5), model="m-2")
    copy = duplicate_session(ref, root=shelf.root, name="a", clock=StandingClock())
    duplicate_session(copy, root=shelf.root, name="0", clock=StandingClock())
    assert whole(shelf) == {"m-1": (1, Usage(input=4)), "m-2": (1, Usage(input=5))}
    assert copy.session_id < ref.session_id
    assert {key.partition("/")[0] for key, _ in sums(shelf.state, "branch")} == {ref.session_id}


def test_what_was_removed_or_read_anew_is_counted_as_the_log_says(shelf):
    ref = shelf.new("thing", ("question", "answer"))
    spend(shelf, ref, Usage(input=4))
    shelf.update()
    spend(shelf, ref, Usage(input=6))
    assert whole(shelf) == {"m-1": (1, Usage(input=6))}
    shelf.projection.clear()
    assert whole(shelf) == {"m-1": (1, Usage(input=6))}
    shutil.rmtree(ref.session_dir)
    assert whole(shelf) == {}


def test_a_price_by_length_can_be_told_from_what_is_kept():
    shipped = json.loads(files("pyagentd.llm").joinpath("catalogue.json").read_text(encoding="utf-8"))
    assert {table["long"]["above"] for table in shipped.values() if "long" in table} <= {*LENGTHS}


def test_sums_are_by_quarters_of_an_hour_from_a_moment_on(shelf):
    ref = shelf.new("thing", ("question", "answer"))
    spend(shelf, ref, Usage(input=4))
    shelf.update()
    ((quarter, counted),) = sums(shelf.state, "quarter")
    begin = quarter * QUARTER_MS
    assert counted.usage == Usage(input=4)
    assert sums(shelf.state, "quarter", since_ms=begin) and not sums(
        shelf.state, "quarter", since_ms=begin + QUARTER_MS
    )


def test_tables_of_an_earlier_version_are_filled_from_the_logs(tmp_path):
    state = State(tmp_path)
    old = sqlite3.connect(state.path)
    for script in MIGRATIONS[:5]:
        old.executescript(script)
    old.executescript(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 5;")
    old.close()
    shelf = Shelf(tmp_path)
    ref = shelf.new("thing", ("question", "answer"))
    spend(shelf, ref, Usage(input=4))
    assert whole(shelf) == {"m-1": (1, Usage(input=4))}
    shelf.close()
