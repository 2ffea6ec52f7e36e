"""The readable logs: their form, what they quote, and that they never stand in anybody's way."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from pyagentd.store.trace import LONGEST, OrgLog, last_prompt, prompt_entry, tool_entry
from tests.store.talk import texts

GOLDEN = Path(__file__).parent / "golden"
TIME = "Tue Jan 20 19:26:03 2026"


def call(result: str = "done", **arguments: Any) -> dict[str, Any]:
    return {
        "type": "tool-Bash",
        "toolCallId": "toolu_1",
        "state": "output-available",
        "input": arguments,
        "output": result,
    }


def failed(error: str) -> dict[str, Any]:
    return {"type": "tool-Read", "toolCallId": "toolu_2", "state": "output-error", "input": {}, "errorText": error}


def test_tools_org_has_its_form() -> None:
    result = "* not a heading\n  * nor this\n#+end_example\n,* comma\n#include\nplain"
    entries = [call(result, command="ls *\n* b", deep={"n": [1, None, "é😀"]}), failed("no such file")]
    assert "".join(tool_entry(entry, TIME) for entry in entries) == (GOLDEN / "tools.org").read_text()


def test_system_prompts_org_has_its_form() -> None:
    entries = prompt_entry("Be terse.", None, TIME) + prompt_entry("Be\n* kind\n", "Be terse.", TIME)
    assert entries == (GOLDEN / "system-prompts.org").read_text()


@given(texts, texts)
def test_the_last_prompt_is_read_back_whatever_is_in_it(one: str, other: str) -> None:
    content = prompt_entry(one, None, TIME) + prompt_entry(other, one, TIME)
    assert last_prompt(content) == other


def test_only_a_new_prompt_is_added(tmp_path: Path) -> None:
    log = OrgLog(tmp_path)
    for text in ("one\r\n", "one\r\n", "two", "two", "one\r\n", "half \ud83d", "half \ud83d"):
        log.system_prompt(text, 0)
    content = (tmp_path / "system-prompts.org").read_text()
    assert content.count("* System Prompt Change: ") == 4
    assert content.count("** Previous Prompt") == 3


def test_the_arguments_stay_json_and_long_texts_are_cut() -> None:
    entry = tool_entry(call("r" * (LONGEST + 5), content="c" * (LONGEST + 7), path="/a"), TIME)
    block = re.search(r"#\+begin_src json\n(.*?)\n#\+end_src", entry, re.DOTALL)
    assert block is not None
    assert json.loads(block[1]) == {"content": "c" * LONGEST + "\n[7 more characters]", "path": "/a"}
    assert "r\n[5 more characters]\n#+end_example" in entry


def test_a_spooled_result_names_its_file() -> None:
    long = {**call("r" * 30_000), "metadata": {"output_path": "/s/files/Bash-1.txt"}}
    entry = tool_entry(long, TIME)
    assert "\n[The whole output is in /s/files/Bash-1.txt]\n#+end_example" in entry
    assert len(entry) < 21_000


def test_calls_are_added_at_the_end_for_their_owner_alone(tmp_path: Path) -> None:
    log = OrgLog(tmp_path)
    log.tool(call("one"), 0)
    log.tool(call("two"), 0)
    log.flush()
    file = tmp_path / "tools.org"
    assert file.stat().st_mode & 0o777 == 0o600
    assert re.findall(r"begin_example\n(.*)\n", file.read_text()) == ["one", "two"]


def test_a_log_that_cannot_be_written_is_said_and_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "tools.org").mkdir()
    (tmp_path / "system-prompts.org").symlink_to(tmp_path / "elsewhere")
    log = OrgLog(tmp_path)
    log.tool(call(), 0)
    log.flush()
    log.system_prompt("Hi", 0)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert not (tmp_path / "elsewhere").exists(), "what a planted link points at is not ours"


@pytest.mark.skipif(shutil.which("emacs") is None, reason="Emacs is what reads Org")
def test_org_reads_the_blocks_as_they_were_written(tmp_path: Path) -> None:
    result = "* a\n#+end_example\n  ,* b\n** c\n:END:\nplain"
    (tmp_path / "tools.org").write_text(tool_entry(call(result, command="x"), TIME) + tool_entry(failed("no"), TIME))
    form = """(progn (require 'org) (find-file "tools.org")
      (princ (json-encode (org-element-map (org-element-parse-buffer) '(headline example-block)
        (lambda (e) (if (eq (org-element-type e) 'headline) (org-element-property :raw-value e)
                      (org-element-property :value e)))))))"""
    done = subprocess.run(
        ["emacs", "-Q", "--batch", "--eval", form], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    read = json.loads(done.stdout)
    assert [item for item in read if item.startswith("Tool Call")] == ["Tool Call: Bash", "Tool Call: Read"]
    assert f"{result}\n" in read and "no\n" in read
