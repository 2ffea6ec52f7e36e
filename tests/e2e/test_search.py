"""Search and lists on the command line, with a real daemon that is killed on the way."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

from tests.bench.shelves import fill, rare
from tests.e2e.conftest import System
from tests.e2e.emacs import wait_for


def hits(system: System, *words: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = system.json("search", *words)["hits"]
    return found


def whole(system: System, query: str, count: int) -> bool:
    """Whether so many are found in an index that is complete."""
    answer = system.json("search", "--limit", "1000", query)
    return not answer["indexing"] and len(answer["hits"]) == count


def test_sessions_are_searched_listed_and_found_again_after_a_kill(system: System) -> None:
    count = 120
    system.sessions.mkdir()
    fill(system.sessions, count)
    wait_for(lambda: whole(system, rare(7), 2), "the first index")
    titles = [hit for hit in hits(system, rare(7)) if hit["kind"] == "title"]
    assert [hit["title"] for hit in titles] == [f"About {rare(7)}"] and titles[0]["copies"] == 2

    reindexing = subprocess.Popen(
        system.command("reindex"), env=system.env, cwd=system.project, stderr=subprocess.PIPE, text=True
    )
    assert reindexing.stderr is not None
    assert re.match(rf"[1-9]0 % of {3 * count + count // 10} branches", reindexing.stderr.readline())
    os.kill(system.daemon_pid(), signal.SIGKILL)
    assert reindexing.wait(30) == 3, reindexing.stderr.read()
    reindexing.stderr.close()
    wait_for(lambda: whole(system, "about", count), "what the killed daemon left undone")
    assert not list(system.sessions.glob("state-*")), "the database was not damaged"

    totals = system.json("reindex")
    assert totals["branches"] == 3 * count + count // 10
    shutil.rmtree(system.sessions / f"session-{7:05d}-20260205123052")
    wait_for(lambda: whole(system, rare(7), 0), "the deleted session to vanish")


def test_what_is_no_query_is_wrong_usage_and_no_match_is_no_failure(system: System) -> None:
    for query in ("", '""', "*"):
        done = system.run("search", "--json", query)
        assert (done.returncode, json.loads(done.stderr)["error"]["code"]) == (2, "usage"), query
    assert system.run("search", "--", "-x").returncode == 2
    system.new("zeppelin")
    done = system.run("search", "balloon")
    assert (done.returncode, done.stdout) == (0, "") and "nothing found" in done.stderr
    assert system.json("search", "balloon") == {"hits": [], "more": False, "indexing": False, "problem": None}
    assert system.run("search", "x", "--session", "nobody").returncode == 1
    assert system.run("search", "x", "--limit", "0").returncode == 2
    assert system.ok("search", "zepp").startswith("zeppelin-")
    assert "nothing found" in system.run("search", 'zepp" NEAR( -* "').stderr


def test_the_list_shows_titles_and_who_belongs_to_whom(system: System) -> None:
    system.sessions.mkdir()
    fill(system.sessions, 2)
    lines = [line.split("\t") for line in system.ok("sessions").splitlines()[1:]]
    names = [line[0] for line in lines]
    assert names[1] == "session-00000-20260205123052/20260205123102-try"
    main = names.index("session-00000-20260205123052/main")
    assert names[main + 1] == "└ explorer-20260205123053-00000"
    assert lines[main][1:4] == [f"About {rare(0)}", "idle", "minimal"]
    listed = system.json("sessions")
    assert len(listed) == 7 and listed[main]["current"] is True
    assert listed[main + 1]["parent"] == listed[main]["branch"]
    assert Path(listed[0]["file"]).is_file()
