"""Conversations as files through the command line: out in every format, back in, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pyagentd.store.document.text import gptel_messages, read
from tests.e2e.conftest import System
from tests.e2e.emacs import wait_for

CHAT = """### How many files?

Seven.

<!-- Local Variables: -->
<!-- gptel-model: gpt-5\\.2 -->
<!-- gptel--backend-name: "Kagi" -->
<!-- gptel-system-prompt: "Be terse." -->
<!-- gptel--tool-names: ("read_file" "YouTube") -->
<!-- gptel--bounds: ((response (22 28))) -->
<!-- End: -->
"""


@pytest.fixture
def talked(system: System) -> tuple[str, Path]:
    """A session in which tools were used."""
    (system.project / "alpha.md").write_text("# Alpha\n")
    session, branch = system.new("exchange")
    system.ok("send", session, "Read alpha.md")
    system.ok("send", session, "Read beta.md")
    return session, branch


def test_what_goes_out_as_markdown_comes_back_the_same(system: System, talked: tuple[str, Path]) -> None:
    session, branch = talked
    out = system.project / "out.md"
    assert system.ok("export", session, "-o", str(out)) == ""
    assert system.ok("export", session, "--format", "md") == out.read_text()
    before = out.read_bytes()
    made = system.json("import", str(out), "--name", "Back again")
    assert made["session_id"].startswith("back-again-") and made["notes"] == []
    assert "Back again" in {row["title"] for row in system.json("sessions")}
    assert "is not a title" in system.run("import", str(out), "--name", "x" * 201).stderr
    again = Path(made["branch_dir"])
    assert read(again / "session.md") == read(branch / "session.md")
    assert gptel_messages((again / "session.md").read_text()) == gptel_messages((branch / "session.md").read_text())
    assert out.read_bytes() == before
    for place in (branch, again):
        messages = system.json("show", str(place))["messages"]
        assert [item["message"]["role"] for item in messages] == ["user", "assistant"] * 2
    # It goes on where it ended.
    assert "Alpha" in system.ok("send", made["session_id"], "Read alpha.md once more")


def test_the_record_goes_out_as_json_and_as_lines(system: System, talked: tuple[str, Path]) -> None:
    record = json.loads(system.ok("export", talked[0], "--format", "json"))
    shown = system.json("show", talked[0])
    assert shown.pop("usage")["own"]  # what it cost is told of the session here, not of what leaves
    assert record == shown
    rows = [json.loads(line) for line in system.ok("export", talked[0], "--format", "jsonl").splitlines()]
    assert [row["type"] for row in rows].count("part") == sum(len(item["parts"]) for item in record["messages"])
    assert rows[0] == {"type": "session", "data": record["session"]}


def test_a_page_is_told_by_the_name_of_its_file(system: System, talked: tuple[str, Path]) -> None:
    out = system.project / "talk.html"
    system.ok("export", talked[0], "-o", str(out))
    page = out.read_text()
    assert page.startswith("<!DOCTYPE html>") and "<b>Read</b> <code>alpha.md</code>" in page
    assert 'class="bad">failed</span>' in page
    # What fills the context is said as the terminal says it.
    told = system.ok("usage", talked[0], "--chart")
    filled = page[page.index("<title>What fills the context, in tokens</title>") :]
    shown = dict(re.findall(r"<text[^>]*>([^<]+)</text>(?:\n<rect.*)*\n<text[^>]*>([^<]+)</text>", filled))
    assert {"system prompt", "descriptions of tools", "results of tools", "free"} <= shown.keys()
    assert all(
        re.search(rf"^ *{label} .*  {re.escape(value)}$", told, re.MULTILINE) for label, value in shown.items()
    )


def test_a_file_that_exists_is_replaced_only_on_demand(system: System, talked: tuple[str, Path]) -> None:
    out = system.project / "out.md"
    out.write_text("mine")
    refused = system.run("export", talked[0], "-o", str(out))
    assert (refused.returncode, out.read_text()) == (1, "mine")
    assert "exists" in refused.stderr and "--force" in refused.stderr
    system.ok("export", talked[0], "-o", str(out), "--force")
    assert out.read_text().startswith("### Read alpha.md")


def test_nothing_is_exported_over_a_session(system: System, talked: tuple[str, Path]) -> None:
    session, branch = talked
    before = (branch / "session.md").read_bytes()
    refused = system.run("export", session, "-o", str(branch / "session.md"), "--force")
    assert refused.returncode == 1 and "among the sessions" in refused.stderr
    assert (branch / "session.md").read_bytes() == before


def test_a_large_export_comes_whole(system: System) -> None:
    session, branch = system.new("large")
    for text in ("0123456789 " * 100_000, '"😀" ' * 50_000, '"' * 400_000):
        (branch / "session.md").write_text(f"### {text}")
        assert system.ok("export", session).startswith(f"### {text}")
        assert len(system.ok("export", session, "--format", "json")) > len(text)


def test_a_chat_of_gptel_becomes_a_session(system: System) -> None:
    file = system.project / "chat of mine.md"
    file.write_text(CHAT)
    made = system.json("import", str(file))
    branch = Path(made["branch_dir"])
    assert made["session_id"].startswith("chat-of-mine-")
    assert [note.split(",")[0].split(":")[0] for note in made["notes"]] == [
        "The chat was with gpt-5.2 of 'Kagi'",
        "Not known here",
    ]
    preset = (branch / "preset.md").read_text()
    assert preset.endswith("---\nBe terse.\n") and "gpt-5" not in preset and f"{system.project}/**" in preset
    assert "Be terse" not in (branch / "session.md").read_text()
    assert [m["message"]["role"] for m in system.json("show", made["session_id"])["messages"]] == [
        "user",
        "assistant",
    ]
    assert file.read_text() == CHAT


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [("a.bin", b"\x00\x01", "is not text"), ("empty.md", b"", "is empty")],
)
def test_a_file_that_is_no_chat_is_refused_in_one_line(system: System, name: str, content: bytes, said: str) -> None:
    (system.project / name).write_bytes(content)
    for file in (name, "missing.md", "."):
        refused = system.run("import", file, "--json")
        error = json.loads(refused.stderr)["error"]
        assert refused.returncode == 1 and error["code"] in ("bad-request", "not-found")
        assert file != name or said in error["message"]
    assert not system.json("sessions"), "nothing was made"


def test_an_unknown_preset_or_root_makes_nothing(system: System) -> None:
    (system.project / "chat.md").write_text(CHAT)
    assert "There is no preset" in system.run("import", "chat.md", "--preset", "none").stderr
    assert system.run("import", "chat.md", "--root", "nowhere").returncode == 2
    assert not system.json("sessions")


def test_a_session_is_named_after_its_first_turn(system: System) -> None:
    system.env["PYAGENTD_TITLES"] = "on"
    session, _ = system.new("")
    assert not title(system, session)
    system.ok("send", session, "please find the word “alpha” in the notes, and say where it is")
    wait_for(lambda: title(system, session), "a title")
    assert title(system, session) == "Please find the word “alpha” in the"


def title(system: System, session: str) -> str:
    return str(system.json("show", session)["session"]["title"])


def test_titles_can_be_switched_off(system: System) -> None:
    assert system.env["PYAGENTD_TITLES"] == "off"
    session, _ = system.new("")
    system.ok("send", session, "Hello")
    shown = {
        name: item for name, item in system.json("config", "show")["settings"].items() if name == "titles.enabled"
    }
    assert shown["titles.enabled"] == {"value": "false", "source": "environment PYAGENTD_TITLES"}
    system.ok("stop")  # whatever was asked for is over now
    assert not title(system, session)
