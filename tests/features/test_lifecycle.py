"""Branches and the life of sessions as clients see them: a kernel, open branches, runs in flight."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from send2trash import plat_other

from pyagentd.api import Service
from pyagentd.errors import BadRequest, Busy, NotFound, PyagentdError, StoreError
from pyagentd.events import Event
from pyagentd.runtime import branch as branch_module
from pyagentd.runtime.approvals import Answer
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.document_sync import DocumentVersion
from pyagentd.runtime.queue import Submission
from pyagentd.store import metadata, paths, sessions
from pyagentd.store import metadata as lineage
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import text as document
from pyagentd.store.document.text import body_sha256
from pyagentd.store.paths import BranchRef
from pyagentd.wire.connection import operation
from tests.runtime.test_resume import until
from tests.runtime.world import FixedClock, Watcher, World, attached, body, rows, type_
from tests.server import answer, tool_use


@pytest.fixture(autouse=True)
def trash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A trash of the test's own."""
    place = tmp_path / "Trash"
    monkeypatch.setattr(plat_other, "HOMETRASH_B", bytes(place))
    yield place / "files"


@pytest.fixture
def service(world: World) -> Service:
    return world.service()


async def told(world: World, *prompts: str, name: str = "test") -> BranchRef:
    """A session in which the prompts were answered with "Yes."."""
    ref = world.session(name)
    for said in prompts:
        await ask(world, ref, said)
    return ref


async def ask(world: World, ref: BranchRef, said: str) -> None:
    watcher = Watcher()
    world.server.say("Yes.")
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text=said, options=world.options)
        await watcher.finished(branch)
        branch.detach(watcher)


@contextlib.asynccontextmanager
async def answering(
    world: World, ref: BranchRef, start: Callable[[LiveBranch], Awaitable[object]]
) -> AsyncIterator[LiveBranch]:
    """Have a run wait for a permission while the block goes on; then it gets it, and ends."""
    watcher = Watcher()
    world.server.say(answer("Let me see.", tool_use("Bash", command="true")), "Done.")
    async with world.kernel.using(ref) as live:
        await attached(live, watcher)
        await start(live)
        await watcher.until(lambda: watcher.of("ask"))
        yield live
        (asked,) = world.kernel.asks.all()
        world.kernel.asks.answer(asked["id"], Answer(decision="allow"))
        await watcher.finished(live)
        live.detach(watcher)


async def branch(service: Service, ref: BranchRef, **arguments: Any) -> BranchRef:
    made = await service.branch(Watcher(), branch=ref.key, **arguments)
    return paths.ref_of(Path(made["branch_dir"]))


def agent(parent: BranchRef, description: str = "look") -> BranchRef:
    preset = "---\nbackend: anthropic\nmodel: m\n---\n"
    return sessions.create_agent(
        parent, preset_name="main", preset_text=preset, description=description, read=[], clock=FixedClock()
    )


def active(ref: BranchRef) -> str | None:
    return lineage.active(ref.session_dir)


class TestBranches:
    async def test_prompts_are_told_by_message_and_emacs_position(self, world: World, service: Service) -> None:
        ref = await told(world, "One?", "Two?")
        points = (await service.branch_points(Watcher(), branch=ref.key))["points"]
        assert [(point["number"], point["text"]) for point in points] == [(1, "One?"), (2, "Two?")]
        first, second = points
        assert (first["start"], first["end"]) == (1, 9)
        assert body(ref)[second["start"] - 1 : second["end"] - 1] == "### Two?"
        prompts = [row.data["id"] for row in rows(ref) if row.type == "message" and row.data["role"] == "user"]
        assert [point["message_id"] for point in points] == prompts

    async def test_a_branch_is_made_and_is_the_active_one(self, world: World, service: Service) -> None:
        ref = await told(world, "One?", "Two?")
        point = (await service.branch_points(Watcher(), branch=ref.key))["points"][0]
        made = await service.branch(Watcher(), branch=ref.key, at=point["message_id"], name="Other way")
        assert made["branch_name"].endswith("-Other way") and made["parent"] == "main"
        assert made["position"] == point["end"] == 9
        assert document.read(Path(made["file"])).body == "### One?"
        assert active(ref) == made["branch_name"]
        assert (await service.resolve(Watcher(), name=ref.session_id))["branch"] == made["branch"]

    async def test_a_prompt_can_be_left_out_and_chosen_by_position(self, world: World, service: Service) -> None:
        ref = await told(world, "One?", "Two?")
        position = body(ref).index("Two?") + 1
        made = await branch(service, ref, position=position, exclude=True)
        assert body(made) == "### One?\n\nYes.\n\n"
        assert body(await branch(service, ref, position=1, exclude=True)) == ""

    async def test_opening_a_branch_puts_nothing_into_it_and_sending_answers_its_prompt(
        self, world: World, service: Service
    ) -> None:
        ref = await told(world, "One?", "Two?")
        made = await branch(service, ref)
        before = body(made)
        watcher = Watcher()
        async with world.kernel.using(made) as live:
            given = await attached(live, watcher)
            assert given["edits"] == [] and body(made) == before
            world.server.say("No.")
            at = DocumentVersion(sha256=body_sha256(before), marker=len(before))
            await world.kernel.submit(live, Submission(text=None, at=at, options=world.options))
            await watcher.finished(live)
            live.detach(watcher)
        asked = world.server.requests[-1].body["messages"]
        said = [part["text"] for message in asked for part in message["content"] if part["type"] == "text"]
        assert said == ["One?", "Yes.", "Two?"]
        assert body(made) == before + "\n\nNo.\n\n### "
        assert body(ref).endswith("Yes.\n\n### ")

    async def test_metadata_says_that_a_branch_was_made_and_nothing_else_changes(
        self, world: World, service: Service
    ) -> None:
        ref = await told(world, "One?")
        plan = paths.scope_plan_file(ref.branch_dir)
        plan.write_text("# mine\n" + plan.read_text().replace("2026", "2020"))
        made = await branch(service, ref)
        assert paths.scope_plan_file(made.branch_dir).read_bytes() == plan.read_bytes()
        facts = metadata.read_session_metadata(ref.branch_dir) or {}
        assert facts["created"].startswith("2020") and facts["updated"].startswith("2026-03-04")
        assert plan.read_text().startswith("# mine\n")
        assert not paths.branch_metadata_file(ref.branch_dir).exists()

    async def test_branches_are_listed_as_a_tree(self, world: World, service: Service) -> None:
        ref = await told(world, "One?")
        agent(ref)
        first = await branch(service, ref, name="a")
        second = await branch(service, first, name="b")
        third = await branch(service, ref, name="c")
        listed = (await service.branches(Watcher(), branch=ref.key))["branches"]
        assert [(each["name"], each["depth"], each["parent"], each["agents"]) for each in listed] == [
            ("main", 0, None, 1),
            (first.branch_name, 1, "main", 1),
            (second.branch_name, 2, first.branch_name, 1),
            (third.branch_name, 1, "main", 1),
        ]
        assert [each["current"] for each in listed] == [False, False, False, True]
        assert listed[1]["branch"] == first.key and listed[1]["file"] == str(first.branch_dir / "session.md")

    async def test_another_branch_can_be_made_the_active_one(self, world: World, service: Service) -> None:
        ref = await told(world, "One?")
        await branch(service, ref)
        switched = await service.switch(Watcher(), branch=ref.key)
        assert switched["branch_name"] == "main" == active(ref)

    async def test_branches_made_in_one_second_by_several_clients_are_all_there(
        self, world: World, service: Service
    ) -> None:
        ref = await told(world, "One?", "Two?")
        made = await asyncio.gather(*(service.branch(Watcher(), branch=ref.key, name="x") for _ in range(8)))
        assert len({each["branch"] for each in made}) == 8
        assert {document.read(Path(each["file"])).body for each in made} == {
            body(ref).removesuffix("\n\nYes.\n\n### ")
        }
        assert active(ref) in {each["branch_name"] for each in made}

    @pytest.mark.parametrize("where", ["its own prompt", "a prompt before"])
    async def test_a_branch_can_be_made_while_an_answer_comes(
        self, world: World, service: Service, where: str
    ) -> None:
        ref = await told(world, "One?")
        async with answering(world, ref, lambda live: world.kernel.prompt(live, text="Two?", options=world.options)):
            points = (await service.branch_points(Watcher(), branch=ref.key))["points"]
            index = 1 if where == "its own prompt" else 0
            made = await branch(service, ref, at=points[index]["message_id"])
            assert body(made).endswith("### Two?" if index else "### One?")
        assert "Done." in body(ref) and "Let me see" not in body(made)
        conversation = Conversation(rows(made))
        assert all(run.is_kept for run in conversation.runs.values())

    async def test_a_prompt_behind_a_running_one_waits_for_the_answer(self, world: World, service: Service) -> None:
        ref = await told(world, "One?")
        doc = document.read(paths.session_file(ref.branch_dir))
        end, typed = len(doc.body) + 4, doc.body + "Two?\n\n### Later"
        text = document.format_file(document.Document(body=typed, spans=doc.spans))
        paths.session_file(ref.branch_dir).write_text(text)
        at = DocumentVersion(sha256=body_sha256(typed), marker=end)
        async with answering(
            world, ref, lambda live: world.kernel.submit(live, Submission(text=None, at=at, options=world.options))
        ):
            with pytest.raises(Busy):
                await branch(service, ref)
            assert len(lineage.branches(ref.session_dir)) == 1 and active(ref) == "main"
        assert body(await branch(service, ref)).endswith("### Later")

    async def test_what_was_typed_and_is_not_in_the_file_yet_is_copied_too(
        self, world: World, service: Service
    ) -> None:
        ref = await told(world, "One?")
        async with world.kernel.using(ref) as live:
            await live.document.look()
            await type_(live, "A draft")
            assert body(await branch(service, ref)).endswith("A draft")


class TestTitles:
    async def test_a_title_is_a_fact_of_all_branches_and_told_to_who_watches(
        self, world: World, service: Service
    ) -> None:
        ref = await told(world, "One?")
        made = await branch(service, ref)
        watcher = Watcher()
        await service.attach(watcher, branch=ref.key, sha256=body_sha256(body(ref)))
        renamed = await service.rename(watcher, branch=made.key, title="  Tidy\nup  ")
        assert renamed["title"] == "Tidy up" and renamed["session_id"] == ref.session_id
        for each in (ref, made):
            assert Conversation(rows(each)).session["title"] == "Tidy up"
        assert watcher.of("session")[-1].args == ({"title": "Tidy up", "archived_at": None},)
        await service.detach(watcher, branch=ref.key)
        assert ref.session_dir.is_dir() and paths.ref_of(ref.branch_dir).session_id == ref.session_id

    @pytest.mark.parametrize("title", ["", " \n ", "x" * 201, "bell\a"])
    async def test_what_is_no_title_changes_nothing(self, world: World, service: Service, title: str) -> None:
        ref = world.session()
        before = {path: path.read_bytes() for path in ref.branch_dir.iterdir()}
        with pytest.raises(BadRequest, match="not a title"):
            await service.rename(Watcher(), branch=ref.key, title=title)
        assert {path: path.read_bytes() for path in ref.branch_dir.iterdir()} == before

    async def test_a_copy_has_a_title_in_one_line_or_is_not_made(self, world: World, service: Service) -> None:
        ref = await told(world, "One?")
        copy = await service.duplicate(Watcher(), branch=ref.key, name=" Tidy\n\tup ")
        fork = await service.fork(Watcher(), branch=ref.key, title=" Tidy\n\tup ")
        listed = {row["branch"]: row["title"] for row in (await service.sessions(Watcher()))["sessions"]}
        assert listed[copy["branch"]] == listed[fork["branch"]] == "Tidy up"
        for bad in ("x" * 201, "bell\a"):
            with pytest.raises(BadRequest, match="not a title"):
                await service.duplicate(Watcher(), branch=ref.key, name=bad)
            with pytest.raises(BadRequest, match="not a title"):
                await service.fork(Watcher(), branch=ref.key, title=bad)
        assert len((await service.sessions(Watcher()))["sessions"]) == 3

    async def test_archiving_is_recorded_and_undone(self, world: World, service: Service) -> None:
        ref = await told(world, "One?")
        made = await branch(service, ref)
        archived = await service.archive(Watcher(), branch=ref.key)
        at = int(FixedClock().now().timestamp() * 1000)
        assert archived["archived_at"] == at
        assert [Conversation(rows(each)).session["archived_at"] for each in (ref, made)] == [at, at]
        assert (await service.archive(Watcher(), branch=ref.key, undo=True))["archived_at"] is None
        assert Conversation(rows(made)).session["archived_at"] is None

    async def test_an_agent_has_a_title_of_its_own(self, world: World, service: Service) -> None:
        ref = await told(world, "One?")
        child = agent(ref)
        await service.rename(Watcher(), branch=child.key, title="Child")
        assert Conversation(rows(child)).session["title"] == "Child"
        assert not Conversation(rows(ref)).session.get("title")


class TestDuplicate:
    async def test_a_copy_is_a_session_to_go_on_with(self, world: World, service: Service) -> None:
        ref = await told(world, "One?")
        made = await service.duplicate(Watcher(), branch=ref.key, name="Second")
        copy = paths.ref_of(Path(made["branch_dir"]))
        assert copy.session_id.startswith("second-") and body(copy) == body(ref)
        await ask(world, copy, "Two?")
        assert "Two?" in body(copy) and "Two?" not in body(ref)
        assert (await service.resolve(Watcher(), name="second"))["branch"] == copy.key

    async def test_a_session_that_answers_is_not_copied(self, world: World, service: Service) -> None:
        ref = await told(world)
        async with answering(world, ref, lambda live: world.kernel.prompt(live, text="One?", options=world.options)):
            for operation in (service.duplicate, service.delete):
                with pytest.raises(Busy):
                    await operation(Watcher(), branch=ref.key)
        assert body(ref).endswith("Done.\n\n### ") and len(list(ref.session_dir.parent.glob("test-*/"))) == 1
        with pytest.raises(BadRequest, match="agent"):
            await service.duplicate(Watcher(), branch=agent(ref).key)


class TestDelete:
    async def test_a_session_goes_to_the_trash_and_is_forgotten(
        self, world: World, service: Service, trash: Path
    ) -> None:
        ref = await told(world, "One?")
        await branch(service, ref)
        deleted = await service.delete(Watcher(), branch=ref.key, what="session")
        assert deleted == {"trashed": [str(ref.session_dir)]} and not ref.session_dir.exists()
        assert (trash / ref.session_id / "branches" / "main" / "session.md").is_file()
        with pytest.raises(NotFound):
            await service.resolve(Watcher(), name=ref.session_id)
        assert (await service.sessions(Watcher()))["sessions"] == []

    async def test_who_watches_is_told_and_nothing_stays_open(self, world: World, service: Service) -> None:
        ref = await told(world, "One?")
        child, watcher = agent(ref), Watcher()
        for each in (ref, child):
            await service.attach(watcher, branch=each.key, sha256=body_sha256(body(each)))
        await service.delete(watcher, branch=ref.key, what="session")
        assert [event.branch for event in watcher.of("deleted")] == [ref.key, child.key]
        assert watcher.of("deleted")[0] == Event("deleted", ref.key, 0)
        assert world.kernel.opened(ref.key) is None and world.kernel.opened(child.key) is None
        await service.detach(watcher, branch=ref.key)
        with pytest.raises(PyagentdError):
            await service.attach(watcher, branch=ref.key, sha256="")
        assert not ref.session_dir.exists()

    async def test_what_goes_is_said_in_words(self, world: World, service: Service, trash: Path) -> None:
        async def words(ref: BranchRef, **what: Any) -> list[str]:
            return [row["words"] for row in (await service.deletions(Watcher(), branch=ref.key, **what))["deletions"]]

        ref = await told(world, "One?")
        own = agent(ref)
        assert await words(ref) == [f"session “{ref.session_id}” with 1 agent"]
        assert await words(own) == [f"agent {own.session_id}"]
        await service.rename(Watcher(), branch=ref.key, title="Tea")
        await branch(service, ref, name="a")
        both = [f"branch {ref.branch_name} of “Tea” with 1 agent", "session “Tea” with 2 branches and 2 agents"]
        assert await words(ref) == both
        assert await words(ref, what="branch") == both[:1] and await words(ref, what="session") == both[1:]

    async def test_the_active_branch_passes_on_to_its_parent(
        self, world: World, service: Service, trash: Path
    ) -> None:
        ref = await told(world, "One?")
        first = await branch(service, ref, name="a")
        second = await branch(service, first, name="b")
        await service.delete(Watcher(), branch=second.key, what="branch")
        assert active(ref) == first.branch_name and (trash / second.branch_name).is_dir()
        second = await branch(service, first, name="c")
        await service.delete(Watcher(), branch=first.key, what="branch")
        assert active(ref) == second.branch_name
        await service.delete(Watcher(), branch=second.key)
        assert active(ref) == "main"

    async def test_without_main_the_first_branch_is_the_active_one(self, world: World, service: Service) -> None:
        ref = await told(world, "One?")
        first = await branch(service, ref, name="a")
        second = await branch(service, ref, name="b")
        await service.delete(Watcher(), branch=ref.key, what="branch")
        await service.delete(Watcher(), branch=second.key, what="branch")
        assert active(ref) == first.branch_name

    async def test_the_only_branch_is_deleted_with_its_session_only(self, world: World, service: Service) -> None:
        ref = await told(world, "One?")
        with pytest.raises(BadRequest, match="only branch"):
            await service.delete(Watcher(), branch=ref.key, what="branch")
        assert body(ref)
        assert (await service.delete(Watcher(), branch=ref.key))["trashed"] == [str(ref.session_dir)]

    async def test_an_agent_is_deleted_alone(self, world: World, service: Service, trash: Path) -> None:
        ref = await told(world, "One?")
        child, other = agent(ref), agent(ref, "other")
        await service.delete(Watcher(), branch=child.key)
        assert (trash / child.session_id / "session.md").is_file()
        assert other.branch_dir.is_dir() and body(ref)

    async def test_only_what_there_is_can_be_named(self, service: Service) -> None:
        with pytest.raises(BadRequest, match="everything"):
            operation("delete", service.delete).bind_named({"branch": "b", "what": "everything"})

    @pytest.mark.parametrize(("of", "what"), [("branch", "agent"), ("agent", "session"), ("agent", "branch")])
    async def test_what_it_is_not_is_not_deleted(self, world: World, service: Service, of: str, what: str) -> None:
        ref = await told(world, "One?")
        child = agent(ref)
        with pytest.raises(BadRequest):
            await service.delete(Watcher(), branch=(child if of == "agent" else ref).key, what=what)
        assert child.branch_dir.is_dir()

    async def test_without_a_trash_everything_stays_and_goes_on(
        self, world: World, service: Service, trash: Path
    ) -> None:
        ref = await told(world, "One?")
        made = await branch(service, ref)
        trash.parent.write_text("in the way")
        watcher = Watcher()
        await service.attach(watcher, branch=made.key, sha256=body_sha256(body(made)))
        for what in ("branch", "session"):
            with pytest.raises(StoreError, match="Make the trash usable"):
                await service.delete(watcher, branch=made.key, what=what)
        assert active(ref) == made.branch_name and not watcher.of("deleted")
        await service.detach(watcher, branch=made.key)
        await ask(world, made, "Two?")
        assert "Two?" in body(made)


class TestMetadata:
    async def test_metadata_is_read_for_a_directory_and_missing_is_nil(self, world: World, service: Service) -> None:
        ref = await told(world, "One?")
        made = await branch(service, ref)
        client, place = Watcher(), str(made.branch_dir)
        facts = await service.session_metadata(client, directory=place)
        assert facts is not None and facts["session_id"] == ref.session_id and facts["preset"] == "main"
        facts = await service.preset_metadata(client, directory=place)
        assert facts is not None and (facts["backend"], facts["model"]) == ("anthropic", "model-main")
        facts = await service.branch_metadata(client, directory=place)
        assert facts is not None and facts["parent_branch"] == "main"
        assert await service.branch_metadata(client, directory=str(ref.branch_dir)) is None
        for read in (service.session_metadata, service.preset_metadata, service.branch_metadata):
            assert await read(client, directory=str(world.home / "nowhere")) is None


class TestActivities:
    async def test_a_session_of_an_activity_may_read_its_projects_only(self, world: World, service: Service) -> None:
        world.preset("bare")
        template = world.presets / "bare.md"
        template.write_text("---\nbackend: anthropic\nmodel: m\n---\n")
        trees = [world.home / "w1", world.home / "w2"]
        for each in trees:
            each.mkdir()
        place = world.home / "activities" / "tidy-2026-02-05" / "session"
        made = await service.create_session(
            Watcher(),
            name="Tidy",
            preset="bare",
            session_dir=str(place),
            session_id="tidy-20260205123052",
            projects=[str(each) for each in trees],
            activity_org_file="/a/tidy.org",
        )
        assert made["session_dir"] == str(place) and made["session_id"] == "tidy-20260205123052"
        preset = (await service.preset_metadata(Watcher(), directory=made["branch_dir"])) or {}
        assert preset["paths"]["read"] == [f"{each}/**" for each in trees] and not preset["paths"]["write"]
        facts = (await service.session_metadata(Watcher(), directory=made["branch_dir"])) or {}
        assert (facts["session_id"], facts["activity_org_file"]) == ("tidy-20260205123052", "/a/tidy.org")
        assert (await service.resolve(Watcher(), name="tidy-20260205123052"))["branch"] == made["branch"]

    async def test_without_a_project_the_template_is_left_as_it_is(self, world: World, service: Service) -> None:
        made = await service.create_session(
            Watcher(), name="x", preset="main", session_dir=str(world.home / "s"), session_id="x-20260205123052"
        )
        template = (world.presets / "main.md").read_bytes()
        assert (Path(made["branch_dir"]) / "preset.md").read_bytes() == template


def held(below: Path) -> list[Path]:
    """The files below a directory that this process has open, without the index, which stays open."""
    files = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread closed it since it was listed
            files.append(link.readlink())
    return [file for file in files if file.is_relative_to(below) and not file.name.startswith("state.db")]


async def test_sessions_that_were_used_leave_no_file_open(world: World) -> None:
    for number in range(2):
        await told(world, "Hi", "Again", name=f"s{number}")
    await until(lambda: not held(world.kernel.config.sessions_dir))  # a branch that nobody uses is closed soon


async def test_one_whose_opening_is_given_up_leaves_no_file_open(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = await told(world, "Hi", "Again")
    await world.kernel.shutdown()
    world.start()
    opened, open_branch = threading.Event(), branch_module.open_branch

    def slow(*args: Any, **options: Any) -> Any:
        found = open_branch(*args, **options)
        opened.set()
        time.sleep(0.1)  # until it was given up
        return found

    async def use() -> None:
        async with world.kernel.using(ref):
            pass

    monkeypatch.setattr(branch_module, "open_branch", slow)
    using = asyncio.create_task(use())
    assert await asyncio.to_thread(opened.wait, 30)
    using.cancel()
    await asyncio.wait([using])
    assert using.cancelled()
    await until(lambda: not held(ref.branch_dir))
