"""``branch``, ``branches``, ``switch`` and what becomes of sessions, with a real daemon."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pyagentd.store.document.text import read
from tests.cli.test_run import Terminal, server, system, terminal, whole_system
from tests.e2e.conftest import System
from tests.server import ModelServer

__all__ = ["server", "system", "terminal", "whole_system"]  # fixtures

pytestmark = pytest.mark.e2e


@pytest.fixture
def told(system: System, server: ModelServer) -> tuple[str, Path]:
    """A session with two prompts that were answered."""
    session, branch = system.new("talk")
    for prompt, said in (("One?", "Yes."), ("Two?", "No.")):
        server.say(said)
        system.ok("send", session, prompt)
    return session, branch


def prompts(system: System, session: str) -> list[str]:
    shown = system.json("show", session)["messages"]
    return [each["message"]["id"] for each in shown if each["message"]["role"] == "user"]


def test_a_branch_is_made_at_a_message_and_gone_on_with(
    system: System, server: ModelServer, told: tuple[str, Path]
) -> None:
    session, main = told
    before = (main / "session.md").read_bytes()
    made = system.json("branch", session, "--at", prompts(system, session)[0], "--name", "My Way")
    assert {"session_id", "branch_name", "branch_dir", "branch", "file", "parent", "position"} <= set(made)
    assert re.fullmatch(r"\d{14}-My Way", made["branch_name"]) and made["parent"] == "main"
    assert read(Path(made["file"])).body == "### One?" and made["position"] == 9
    server.say("Perhaps.")
    system.ok("send", session, "And then?")
    assert "Perhaps." in Path(made["file"]).read_text()
    assert (main / "session.md").read_bytes() == before


def test_a_prompt_can_be_left_out(system: System, told: tuple[str, Path]) -> None:
    session, _ = told
    first, second = prompts(system, session)
    assert read(Path(system.json("branch", session, "--at", second, "--exclude")["file"])).body.endswith("Yes.\n\n")
    assert Path(system.json("branch", f"{session}/main", "--at", first, "--exclude")["file"]).read_bytes() == b""


def test_the_parent_is_named_by_prefix_branch_or_directory(system: System, told: tuple[str, Path]) -> None:
    session, main = told
    wanted = prompts(system, session)[1]
    made = [system.json("branch", name, "--at", wanted) for name in ("talk", f"{session}/main", str(main))]
    assert [each["parent"] for each in made] == ["main", "main", "main"]
    assert len({each["branch"] for each in made}) == 3


def test_branches_are_a_tree(system: System, told: tuple[str, Path]) -> None:
    session, _ = told
    wanted = prompts(system, session)[1]
    one = system.json("branch", session, "--at", wanted, "--name", "one")["branch_name"]
    system.json("branch", f"{session}/{one}", "--at", wanted, "--name", "deep")
    system.json("branch", f"{session}/main", "--at", wanted, "--name", "two")
    names = [line.split("\t")[0] for line in system.ok("branches", session).splitlines()[1:]]
    assert [re.sub(r"\d{14}-", "", name) for name in names] == ["  main", "  ├ one", "  │ └ deep", "* └ two"]
    listed = system.json("branches", session)
    assert [each["depth"] for each in listed] == [0, 1, 2, 1]
    assert [each["current"] for each in listed] == [False, False, False, True]
    assert listed[0]["parent"] is None and listed[2]["parent"] == one


def test_another_branch_is_switched_to(system: System, told: tuple[str, Path]) -> None:
    session, main = told
    made = system.json("branch", session, "--at", prompts(system, session)[0])
    assert (main.parents[1] / "current").resolve() == Path(made["branch_dir"])
    assert system.ok("switch", f"{session}/main") == f"{session}/main\t{main / 'session.md'}\n"
    assert (main.parents[1] / "current").readlink() == Path("branches/main")


def test_without_a_terminal_the_prompt_must_be_named(system: System, told: tuple[str, Path]) -> None:
    session, main = told
    done = system.run("branch", session, input="")
    assert done.returncode == 2 and "--at" in done.stderr
    assert f"pyagentd show {session} --json" in done.stderr and f"pyagentd branch {session} --list" in done.stderr
    assert len(done.stderr.splitlines()) == 1 and [each.name for each in main.parent.iterdir()] == ["main"]


def test_prompts_are_listed_with_their_ids(system: System, told: tuple[str, Path]) -> None:
    session, _ = told
    first, second = prompts(system, session)
    assert system.ok("branch", session, "--list") == f"\tprompt\tmessage\n1\tOne?\t{first}\n2\tTwo?\t{second}\n"
    assert [each["message_id"] for each in system.json("branch", session, "--list")] == [first, second]


def test_on_a_terminal_the_prompt_is_chosen(
    system: System, told: tuple[str, Path], terminal: Callable[..., Terminal]
) -> None:
    session, main = told
    screen = terminal("branch", session, "--name", "chosen")
    screen.expect(r"1  One\?")
    screen.expect(r"2  Two\?")
    screen.expect(r"Branch at prompt .*\[2\]:")
    screen.type("7")
    screen.expect("Error")
    screen.type("1")
    screen.expect(r"Keep this prompt")
    screen.type("n")
    screen.expect(rf"{session}/\d+-chosen")
    assert screen.exit_code() == 0
    (made,) = [each for each in main.parent.iterdir() if each.name != "main"]
    assert (made / "session.md").read_bytes() == b""


def test_who_cancels_the_choice_made_nothing(
    system: System, told: tuple[str, Path], terminal: Callable[..., Terminal]
) -> None:
    session, main = told
    screen = terminal("branch", session)
    screen.expect(r"Branch at prompt")
    screen.type("\x04")  # C-d
    assert screen.exit_code() == 1
    assert [each.name for each in main.parent.iterdir()] == ["main"]
    assert (main.parents[1] / "current").readlink() == Path("branches/main")


@pytest.mark.parametrize("name", ["a/b", "..", "", "x" * 300, ".x"])
def test_a_name_that_is_none_is_one_line_and_makes_nothing(system: System, told: tuple[str, Path], name: str) -> None:
    session, main = told
    done = system.run("branch", session, "--at", prompts(system, session)[0], "--name", name, "--json")
    assert done.returncode == 1 and json.loads(done.stderr)["error"]["code"] == "bad-request"
    assert [each.name for each in main.parent.iterdir()] == ["main"]


def test_a_message_that_is_no_prompt_is_said(system: System, told: tuple[str, Path]) -> None:
    session, main = told
    answer = system.json("show", session)["messages"][1]["message"]["id"]
    for wrong in (answer, "msg_unheard"):
        done = system.run("branch", session, "--at", wrong)
        assert done.returncode == 1 and wrong in done.stderr and "Traceback" not in done.stderr
    assert [each.name for each in main.parent.iterdir()] == ["main"]


def test_branches_made_at_the_same_moment_are_all_there(system: System, told: tuple[str, Path]) -> None:
    session, main = told
    wanted = prompts(system, session)[0]
    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda _: system.json("branch", session, "--at", wanted, "--name", "x"), range(6)))
    assert len({each["branch"] for each in made}) == 6
    assert {Path(each["file"]).read_text() for each in made} == {Path(made[0]["file"]).read_text()}
    assert (main.parents[1] / "current").resolve().is_dir()


def test_a_session_is_renamed_and_archived(system: System, told: tuple[str, Path]) -> None:
    session, _ = told
    assert system.ok("rename", session, "Tidy up") == f"{session}\tTidy up\n"
    assert system.json("show", session)["session"]["title"] == "Tidy up"
    assert system.json("archive", session)["archived_at"] > 0
    assert system.json("archive", session, "--undo")["archived_at"] is None


def test_a_copy_has_an_id_of_its_own(system: System, told: tuple[str, Path]) -> None:
    session, main = told
    made = system.json("duplicate", session, "--name", "Second")
    assert made["session_id"].startswith("second-") and made["session_id"] != session
    copy = Path(made["file"]).read_bytes()
    assert copy == (main / "session.md").read_bytes()
    assert prompts(system, made["session_id"]) == prompts(system, session)


def test_deleting_asks_on_a_terminal_and_names_what_is_lost(
    system: System, told: tuple[str, Path], terminal: Callable[..., Terminal]
) -> None:
    session, main = told
    made = system.json("branch", session, "--at", prompts(system, session)[0])["branch_name"]
    screen = terminal("delete", session)
    screen.expect("session “talk” with 2 branches")
    screen.type("n")
    assert screen.exit_code() == 1 and main.is_dir()
    screen = terminal("delete", session)
    screen.expect("to the trash")
    screen.type("y")
    assert screen.exit_code() == 0
    trash = system.home / ".local" / "share" / "Trash" / "files"
    assert not main.exists() and (trash / session / "branches" / made / "session.md").is_file()
    assert system.run("show", session).returncode == 1


def test_without_a_terminal_deleting_must_be_confirmed_beforehand(system: System, told: tuple[str, Path]) -> None:
    session, main = told
    done = system.run("delete", session, input="y\n")
    assert done.returncode == 2 and "--yes" in done.stderr and main.is_dir()
    made = system.json("branch", session, "--at", prompts(system, session)[0])
    name = f"{session}/{made['branch_name']}"
    assert json.loads(system.ok("delete", name, "--yes", "--json")) == {"trashed": [made["branch_dir"]]}
    assert main.is_dir() and (main.parents[1] / "current").readlink() == Path("branches/main")
    done = system.run("delete", f"{session}/main", "--yes")
    assert done.returncode == 1 and "only branch" in done.stderr and main.is_dir()


def test_without_a_trash_nothing_is_deleted(system: System, told: tuple[str, Path]) -> None:
    session, main = told
    (system.home / ".local").mkdir(exist_ok=True)
    (system.home / ".local" / "share").write_text("no directory")
    done = system.run("delete", session, "--yes")
    assert done.returncode == 1 and "Make the trash usable" in done.stderr and len(done.stderr.splitlines()) == 1
    assert (main / "session.md").is_file() and "Two?" in system.ok("show", session)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_where_nothing_can_be_written_nothing_is_made(system: System, told: tuple[str, Path]) -> None:
    session, main = told
    wanted = prompts(system, session)[0]
    main.parent.chmod(0o500)
    try:
        done = system.run("branch", session, "--at", wanted)
        assert done.returncode == 1 and str(main.parent) in done.stderr
        assert [each.name for each in main.parent.iterdir()] == ["main"]
    finally:
        main.parent.chmod(0o700)
