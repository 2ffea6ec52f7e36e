"""The user's Emacs as a run sees it: what is open is read and changed there, tools run once decided."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyagentd.errors import BadRequest
from pyagentd.events import Event
from pyagentd.features import emacs as asking
from pyagentd.features.emacs import EmacsClients, OfferedTool, chosen_tools, offered_tool
from pyagentd.runtime.branch import LiveBranch
from tests.runtime.world import Watcher, World, attached
from tests.server import answer, text, tool_use

Answers = Callable[[str, dict[str, Any]], Any]

TOOLS = "Read, Write, Edit, emacs"


class Emacs(Watcher):
    """A client that offers buffers and tools; ``answers`` says what, None is not an answer."""

    def __init__(self, world: World, answers: Answers) -> None:
        super().__init__()
        self.service, self.answers = world.service(), answers
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.world = world

    def push(self, event: Event) -> None:
        if event.kind == "emacs":
            told = event.args[0]
            self.asked.append((told["what"], json.loads(told["facts"])))
            said = self.answers(*self.asked[-1])
            if said is not None:
                self.world.kernel.spawn(self._answer(told["id"], json.dumps(said)))
        super().push(event)

    async def _answer(self, id: str, text: str) -> None:
        await self.service.emacs_answer(self, id=id, answer=text)

    async def offer(self, *tools: dict[str, Any], buffers: bool = True) -> dict[str, Any]:
        return await self.service.emacs_offer(self, buffers=buffers, tools=json.dumps(tools))


class Desk:
    """A session, and an Emacs in which it and perhaps a file are shown."""

    def __init__(self, world: World, branch: LiveBranch) -> None:
        self.world, self.branch = world, branch
        self.file = world.project / "notes.txt"
        self.text: str | None = None  # of the buffer
        self.told: dict[str, Any] = {}  # more of what is said about it
        self.change: Callable[[list[Any]], Any] = self.apply
        self.tool: Callable[[dict[str, Any]], Any] = lambda facts: {"text": "done"}
        self.emacs = Emacs(world, self.answer)

    def answer(self, what: str, facts: dict[str, Any]) -> Any:
        match what:
            case "look" if self.text is None or facts["path"] != str(self.file):
                return {}
            case "look":
                modified = self.told.get("modified", False)
                shown = {"text": self.text} if modified or facts["whole"] else {}
                return {"buffer": "notes.txt", "version": str(len(self.text or "")), **shown, **self.told}
            case "change":
                return self.change(facts["edits"])
            case "stop":
                return None
            case _:
                return self.tool(facts)

    def apply(self, edits: list[Any]) -> Any:
        assert self.text is not None
        for start, end, new in reversed(edits):
            self.text = self.text[:start] + new + self.text[end:]
        self.file.write_text(self.text)
        return {"outcome": "done", "saved": True}

    async def turn(self, tool: str, *, allow: str = "tool:.*", **args: Any) -> str:
        """Have the model make one call, and return what it is told of it."""
        self.world.server.say(answer(tool_use(tool, **args)), "Done.")
        await self.world.kernel.prompt(self.branch, text="Go.", options=self.world.granted(allow))
        await self.emacs.finished(self.branch)
        (result,) = self.world.server.last.messages[-1]["content"]
        content = result["content"]
        return content if isinstance(content, str) else "".join(part["text"] for part in content)

    async def offered(self, tool: str) -> bool:
        """Return whether the model is told of a tool."""
        self.world.server.say(answer(text("Done.")))
        await self.world.kernel.prompt(self.branch, text="Go.", options=self.world.options)
        await self.emacs.finished(self.branch)
        return tool in [each["name"] for each in self.world.server.last.body["tools"]]


@pytest.fixture
async def desk(world: World) -> AsyncIterator[Desk]:
    world.preset("main", tools=TOOLS)
    world.options = replace(world.options, interactive=False)
    async with world.kernel.using(world.session()) as branch:
        branch.record_session(workspace_root=world.project)
        made = Desk(world, branch)
        await attached(branch, made.emacs)
        await made.emacs.offer()
        made.file.write_text("one\ntwo\n")
        yield made


# -- buffers ---------------------------------------------------------------------------------------------------------


async def test_unsaved_text_is_what_is_read_and_that_is_said(desk: Desk) -> None:
    desk.text, desk.told = "one\ntwo\nthree\n", {"modified": True}
    told = await desk.turn("Read", file_path="notes.txt")
    assert told.startswith("[Unsaved text of the buffer notes.txt in the user's Emacs")
    assert told.endswith("     3\tthree")


async def test_unsaved_changes_that_cannot_be_shown_are_said(desk: Desk) -> None:
    desk.text, desk.told = "one\n", {"modified": True, "text": None, "trouble": "the buffer is too large"}
    told = await desk.turn("Read", file_path="notes.txt")
    assert told.startswith("[The user has unsaved changes in the buffer notes.txt: the buffer is too large.")
    assert told.endswith("     2\ttwo")


async def test_a_buffer_like_its_file_is_read_from_the_disk(desk: Desk) -> None:
    desk.text = "one\ntwo\n"
    assert await desk.turn("Read", file_path="notes.txt") == "     1\tone\n     2\ttwo"
    assert desk.emacs.asked == [("look", {"path": str(desk.file), "whole": False})]


async def test_emacs_is_not_asked_about_what_may_not_be_read(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    assert "outside" in await desk.turn("Read", file_path=str(tmp_path / "secret"))
    (desk.world.project / "link").symlink_to(tmp_path / "secret")
    assert "outside" in await desk.turn("Read", file_path="link")
    assert desk.emacs.asked == []


async def test_an_edit_goes_through_the_buffer_as_small_as_it_is(desk: Desk) -> None:
    desk.text, desk.told = "one\ntwo\nthree\n", {"modified": True}
    told = await desk.turn("Edit", file_path="notes.txt", old_string="three", new_string="thirty")
    assert "Replaced 1 occurrence" in told and "and saved, together with changes of the user's" in told
    assert desk.file.read_text() == "one\ntwo\nthirty\n"
    assert desk.emacs.asked[-1][1]["edits"] == [[10, 13, "irty"]]


async def test_a_whole_new_text_changes_only_the_lines_that_differ(desk: Desk) -> None:
    desk.text = "".join(f"line {n}\n" for n in range(300))
    after = desk.text.replace("line 7\n", "seven\n").replace("line 250\n", "")
    await desk.turn("Write", file_path="notes.txt", content=after)
    assert len(desk.emacs.asked[-1][1]["edits"]) == 2 and desk.text == after


async def test_who_types_meanwhile_has_it_planned_anew(desk: Desk) -> None:
    desk.text = "one\ntwo\n"

    def typed(edits: list[Any]) -> Any:
        desk.text, desk.change = "zero\none\ntwo\n", desk.apply
        return {"outcome": "outdated"}

    desk.change = typed
    await desk.turn("Edit", file_path="notes.txt", old_string="two", new_string="2")
    assert desk.file.read_text() == "zero\none\n2\n"


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"modified": True, "trouble": "the file has changed on disk too"}, "was not changed: the file has changed"),
        ({}, "was not changed in the user's Emacs: it is read-only"),
    ],
)
async def test_what_cannot_be_changed_there_is_not_changed_on_disk(desk: Desk, told: Any, says: str) -> None:
    desk.text, desk.told = "one\n", told
    desk.change = lambda edits: {"outcome": "refused", "reason": "it is read-only"}
    assert says in await desk.turn("Edit", file_path="notes.txt", old_string="one", new_string="1")
    assert desk.file.read_text() == "one\ntwo\n"


@pytest.mark.parametrize("saved", [True, False])
async def test_an_emacs_that_goes_during_a_change_is_not_asked_twice(desk: Desk, saved: bool) -> None:
    desk.text = "one\ntwo\n"

    def goes(edits: list[Any]) -> None:
        if saved:
            desk.apply(edits)
        desk.world.kernel.feature(EmacsClients).forget(desk.emacs)

    desk.change = goes
    told = await desk.turn("Edit", file_path="notes.txt", old_string="two", new_string="2")
    assert ("Replaced" if saved else "Nobody can say whether") in told
    assert desk.file.read_text() == ("one\n2\n" if saved else "one\ntwo\n")


async def test_an_emacs_that_does_not_answer_is_not_waited_for_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "LOOK_S", 0.01)
    desk.emacs.answers = lambda what, facts: None
    assert "Emacs did not answer" in await desk.turn("Read", file_path="notes.txt")
    assert await desk.turn("Read", file_path="notes.txt") == "     1\tone\n     2\ttwo"
    assert [what for what, _ in desk.emacs.asked] == ["look", "stop"]
    await desk.world.service().emacs_answer(desk.emacs, id="ema_late", answer="{}")
    await desk.turn("Read", file_path="notes.txt")
    assert desk.emacs.asked[2][0] == "look"


async def test_unsaved_text_in_two_emacsen_is_nobodys_to_change(desk: Desk) -> None:
    desk.text, desk.told = "one\n", {"modified": True}
    other = Emacs(desk.world, desk.answer)
    await other.offer()
    assert "2 Emacsen have unsaved" in await desk.turn("Write", file_path="notes.txt", content="x")
    desk.world.kernel.feature(EmacsClients).forget(other)
    assert "saved" in await desk.turn("Write", file_path="notes.txt", content="x")


async def test_a_file_of_another_machine_is_read_where_it_is_open(desk: Desk) -> None:
    remote = "/ssh:host:/etc/motd"
    preset = desk.branch.ref.branch_dir / "preset.md"
    preset.write_text(preset.read_text().replace("  read: [", '  read: ["/ssh:host:/etc/**", '))
    assert "on another machine" in await desk.turn("Read", file_path=remote)
    desk.file, desk.text = Path(remote), "hello\n"
    assert await desk.turn("Read", file_path=remote) == "     1\thello"
    assert "outside" in await desk.turn("Read", file_path="/ssh:host:/root/x")
    assert "outside" in await desk.turn("Edit", file_path=remote, old_string="hello", new_string="x")


# -- tools -----------------------------------------------------------------------------------------------------------

SHOUT = {
    "name": "shout",
    "description": "Shout",
    "category": "voice",
    "args": [{"name": "what", "type": "string", "description": "What"}],
}


async def test_a_tool_of_emacs_is_called_with_its_arguments(desk: Desk) -> None:
    await desk.emacs.offer(SHOUT)
    desk.tool = lambda facts: {"text": facts["args"]["what"].upper()}
    assert await desk.turn("shout", what="hey") == "HEY"
    what, facts = desk.emacs.asked[-1]
    assert (what, facts["tool"], facts["root"]) == ("call", "shout", str(desk.world.project))
    assert '"what" is required' in await desk.turn("shout")
    desk.tool = lambda facts: {"text": "no voice", "error": True}
    assert await desk.turn("shout", what="hey") == "no voice"


async def test_a_tool_that_is_called_todo_is_no_list_of_steps(desk: Desk) -> None:
    await desk.emacs.offer({**SHOUT, "name": "todo"})
    desk.tool = lambda facts: {"text": "noted"}
    assert "noted" in await desk.turn("todo", what="buy milk")
    shown = await desk.world.service().show(desk.emacs, branch=desk.branch.key)
    assert "todo" not in shown


async def test_a_tool_that_confirms_is_asked_about_under_its_own_name(desk: Desk) -> None:
    await desk.emacs.offer({**SHOUT, "name": "Read", "confirm": True})
    assert "approval" in await desk.turn("emacs_Read", what="x", allow="tool:Read:.*")
    assert await desk.turn("emacs_Read", what="x", allow="tool:emacs:Read:.*") == "done"


async def test_the_function_of_a_definition_says_whether_a_call_is_asked_about(desk: Desk) -> None:
    await desk.emacs.offer({**SHOUT, "confirm": "function"})
    desk.tool = lambda facts: {"confirm": facts["args"]["what"] == "loud", "text": "said"}
    assert await desk.turn("shout", what="soft", allow="tool:none") == "said"
    assert "needs a human's approval" in await desk.turn("shout", what="loud", allow="tool:none")
    assert [what for what, _ in desk.emacs.asked] == ["confirm", "call", "confirm"]
    assert await desk.turn("shout", what="loud", allow="tool:emacs:shout:.*") == "said"


async def test_what_always_asks_is_not_run_where_nobody_can_be_asked(desk: Desk) -> None:
    await desk.emacs.offer({**SHOUT, "confirm": "always"})
    assert "each time" in await desk.turn("shout", what="x", allow="tool:.*")
    assert desk.emacs.asked == []


async def test_the_files_of_a_call_are_resolved_and_decided_about_first(desk: Desk, tmp_path: Path) -> None:
    outline = {**SHOUT, "name": "outline", "args": [{"name": "file", "type": "string", "path": "read"}]}
    await desk.emacs.offer(outline)
    (desk.world.project / "link").symlink_to(tmp_path / "x")
    assert "outside" in await desk.turn("outline", file="link")
    assert "outside" in await desk.turn("outline", file="../x")
    assert desk.emacs.asked == []
    await desk.turn("outline", file="./notes.txt")
    assert desk.emacs.asked[-1][1]["args"] == {"file": str(desk.file)}


async def test_a_tool_has_a_file_of_another_machine_only_while_it_is_open(desk: Desk) -> None:
    remote = "/ssh:host:/etc/motd"
    preset = desk.branch.ref.branch_dir / "preset.md"
    preset.write_text(preset.read_text().replace("  read: [", '  read: ["/ssh:host:/etc/**", '))
    outline = {**SHOUT, "name": "outline", "args": [{"name": "file", "type": "string", "path": "read"}]}
    await desk.emacs.offer({**outline, "confirm": "function"})
    assert "on another machine" in await desk.turn("outline", file=remote)
    assert [what for what, _ in desk.emacs.asked] == ["look", "look"]
    desk.file, desk.text = Path(remote), "hello\n"
    assert await desk.turn("outline", file=remote) == "done"


async def test_places_outside_the_scope_are_left_out(desk: Desk, tmp_path: Path) -> None:
    await desk.emacs.offer(SHOUT)
    places = [
        {"file": str(desk.file), "line": 2, "text": "two"},
        {"file": str(tmp_path / "x"), "line": 1, "text": "s"},
    ]
    desk.tool = lambda facts: {"places": places}
    told = await desk.turn("shout", what="x")
    assert told == f"{desk.file}:2: two\n[1 more in files outside the scope of this session.]"


async def test_a_command_in_emacs_is_decided_about_as_a_command(desk: Desk) -> None:
    run = {**SHOUT, "name": "compile", "confirm": True, "args": [{"name": "cmd", "type": "string", "command": True}]}
    await desk.emacs.offer(run)
    assert "approval" in await desk.turn("compile", cmd="echo test", allow="tool:Bash:.*")
    assert "with your rights, not confined" in await desk.turn("compile", cmd="make test", allow="tool:.*")
    assert await desk.turn("compile", cmd="echo test", allow="tool:emacs:compile:echo .*") == "done"
    assert "outside" in await desk.turn("compile", cmd="echo x > ../x", allow="tool:.*")


async def test_an_emacs_that_goes_while_a_tool_runs_has_not_answered(desk: Desk) -> None:
    await desk.emacs.offer(SHOUT)
    desk.tool = lambda facts: desk.world.kernel.feature(EmacsClients).forget(desk.emacs)
    assert "has no result: the user's Emacs has gone" in await desk.turn("shout", what="x")
    assert not desk.world.kernel.feature(EmacsClients).tools([desk.emacs])


async def test_an_abort_reaches_the_tool(desk: Desk) -> None:
    await desk.emacs.offer(SHOUT)
    desk.tool = lambda facts: None
    desk.world.server.say(answer(tool_use("shout", what="x")), "Done.")
    await desk.world.kernel.prompt(desk.branch, text="Go.", options=desk.world.granted("tool:.*"))
    await desk.emacs.until(lambda: desk.emacs.asked)
    await desk.world.kernel.abort(desk.branch)
    assert [what for what, _ in desk.emacs.asked] == ["call", "stop"]


async def test_read_only_sessions_and_those_nobody_shows_have_no_tools_of_emacs(desk: Desk) -> None:
    await desk.emacs.offer(SHOUT)
    assert await desk.offered("shout")
    preset = desk.branch.ref.branch_dir / "preset.md"
    was = preset.read_text()
    preset.write_text(was.replace("mode: all", "mode: all\nread-only: true"))
    assert not await desk.offered("shout")
    preset.write_text(was.replace("mode: all", "mode: all\nprofile: standard"))
    assert not await desk.offered("shout")
    preset.write_text(was.replace("[Read, Write, Edit, emacs]", "[Read, shout]"))
    assert await desk.offered("shout")


async def test_the_model_is_told_of_the_same_tools_when_emacs_has_gone_and_that_when_it_calls_one(desk: Desk) -> None:
    await desk.emacs.offer(SHOUT)
    assert await desk.offered("shout")
    definitions = desk.world.server.last.body["tools"]
    desk.world.kernel.feature(EmacsClients).forget(desk.emacs)
    assert await desk.offered("shout")
    assert desk.world.server.last.body["tools"] == definitions
    assert "No Emacs that shows this session has the tool shout any more" in await desk.turn("shout", what="hey")
    await desk.emacs.offer({**SHOUT, "name": "whisper"})
    assert not await desk.offered("shout")


@pytest.mark.parametrize("kept", [[{"name": "shout", "later": 1}], [{}], "shout"])
async def test_tools_of_emacs_in_the_log_that_cannot_be_read_cost_themselves_alone(desk: Desk, kept: Any) -> None:
    desk.branch.note_metadata(emacs_tools=kept)
    assert not await desk.offered("shout")
    await desk.emacs.offer(SHOUT)
    assert await desk.offered("shout")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (["emacs"], {"a": "a", "emacs_Read": "Read"}),
        (["a", "Read"], {"a": "a"}),
        (["emacs:Read"], {"emacs_Read": "Read"}),
        (["emacs:files"], {"emacs_Read": "Read"}),
        (["files", "Glob"], {}),
    ],
)
def test_a_preset_names_all_of_them_or_categories_or_single_ones(wanted: list[str], found: dict[str, str]) -> None:
    offered = {
        "a": OfferedTool(name="a", description="", input_schema={}),
        "Read": OfferedTool(name="Read", description="", input_schema={}, category="files"),
    }
    assert chosen_tools(wanted, offered, {"Read"}) == found


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        ({"name": "a b", "description": "x"}, "`name` is 'a b'. It should be letters"),
        ({"name": "a"}, "the tool a: `description` is missing"),
        ({"name": "a", "description": "x", "args": "y"}, "`args` is 'y'. It should be a list"),
        ({"name": "a", "description": "x", "args": [{"type": "string"}]}, "`args[1].name` is missing"),
        (
            {"name": "a", "description": "x", "args": [{"name": "y", "type": "str"}]},
            "`args[1].type` is 'str'. It should be one of string, integer",
        ),
        ("a", "It should be keys and values"),
    ],
)
async def test_a_definition_that_cannot_be_used_is_told_and_the_others_are_there(
    desk: Desk, definition: Any, why: str
) -> None:
    with pytest.raises(BadRequest, match=re.escape(why)):
        offered_tool(definition)
    told = await desk.emacs.offer(definition, SHOUT)
    assert told["tools"] == ["shout"] and why in told["refused"][0]["why"]
