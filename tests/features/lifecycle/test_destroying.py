"""Destroying a named agent, and making it again: SPEC 003 Teardown."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from send2trash import plat_other

from pyagentd.api import Service
from pyagentd.errors import NotFound, PyagentdError, StoreError, Unconfirmed
from pyagentd.features import named_agents
from pyagentd.features.contexts import Contexts
from pyagentd.features.named_agents import Worktree, repository_state
from pyagentd.features.schedules import Schedules, every
from pyagentd.features.tasks import Tasks
from pyagentd.store import paths
from pyagentd.store import sessions as store_trash
from pyagentd.store.db import agents, audit, tasks
from pyagentd.store.db import agents as contexts
from pyagentd.store.document import hidden
from pyagentd.words import size
from tests.features.test_named_agents import git
from tests.runtime.world import Watcher, World, attached
from tests.server import answer, tool_use

NAME = "my-agent"


@pytest.fixture
def service(world: World) -> Service:
    world.preset(named_agents.DEFAULT_PRESET)
    return world.service()


@pytest.fixture(autouse=True)
def trash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trash of its own, below the test's directory."""
    place = tmp_path / "Trash"
    monkeypatch.setattr(plat_other, "HOMETRASH_B", bytes(place))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(plat_other, "get_dev", lambda path: 1)
    return place


async def made(service: Service, **given: Any) -> Path:
    return Path((await service.agent_init(Watcher(), name=NAME, **given))["dir"])


async def destroyed(service: Service, **given: Any) -> dict[str, Any]:
    return await service.agent_destroy(Watcher(), name=NAME, confirmed=True, **given)


async def said(world: World, place: Path, text: str = "Hello") -> None:
    """Have one turn with an agent."""
    watcher = Watcher()
    world.server.say(answer("Hello from here"))
    async with world.kernel.using(paths.ref_of(place)) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text=text, options=world.options)
        await watcher.finished(branch)
        branch.detach(watcher)


def below(place: Path) -> dict[str, bytes]:
    """Return every file of a directory."""
    return {str(file.relative_to(place)): file.read_bytes() for file in place.rglob("*") if file.is_file()}


def recorded(world: World) -> agents.AgentRow:
    row = agents.find(world.kernel.state, NAME)
    assert row is not None
    return row


@pytest.mark.spec("003", "Destruction Flow 1: the active session is saved")
@pytest.mark.spec("003", "Destruction Flow 4: files are deleted")
async def test_its_conversation_is_saved_and_its_files_go_to_the_trash(
    world: World, service: Service, trash: Path
) -> None:
    place = await made(service)
    await said(world, place)
    done = await destroyed(service)
    assert (done["files"], place.exists()) == ("trashed", False)
    (row,) = contexts.of(world.kernel.state, NAME)
    assert ([row.id], row.trigger, row.message_count) == (done["saved"], "destroy", 2)
    assert (trash / "files" / NAME / "sessions" / Path(row.file_path).name).is_file()


async def test_without_a_trash_its_files_are_deleted_and_that_is_said(
    service: Service, trash: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_trash, "has_trash", lambda place: False)
    place = await made(service)
    (place / "workspace/fixed").mkdir()
    (place / "workspace/fixed/file").touch()
    (place / "workspace/fixed").chmod(0o500)
    assert "deleted for good" in "".join((await service.destroy_warnings(Watcher(), name=NAME))["lines"])
    done = await destroyed(service)
    assert done["files"] == "deleted" and "no trash" in done["text"]
    assert below(place.parent) == below(trash) == {}


async def test_an_agent_that_the_disk_does_not_let_go_is_there_as_before(
    world: World, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(place: Path) -> None:
        raise StoreError("no room")

    monkeypatch.setattr(store_trash, "move_to_trash", refuses)
    place = await made(service)
    with pytest.raises(StoreError, match="no room"):
        await destroyed(service)
    assert (recorded(world).status, recorded(world).intent) == ("idle", None)
    await said(world, place)
    assert (await service.resolve(Watcher(), name=NAME))["session_dir"] == str(place)


async def test_without_a_confirmation_it_says_what_is_lost_and_does_nothing(world: World, service: Service) -> None:
    place = await made(service)
    (place / "workspace/new.txt").write_text("new")
    with pytest.raises(Unconfirmed, match="1 file in its workspace not committed"):
        await service.agent_destroy(Watcher(), name=NAME)
    assert place.is_dir()
    assert recorded(world).status == "idle"


async def test_what_is_lost_is_counted(world: World, service: Service) -> None:
    place = await made(service)
    await said(world, place)
    async with world.kernel.using(paths.ref_of(place)) as branch:
        await world.kernel.feature(Contexts).save(branch, "x", options=world.options)
    (place / "workspace/.gitkeep").write_text("changed")
    (place / "workspace/new.txt").write_text("new")
    git(place / "workspace", "commit", "--quiet", "--all", "--message", "more")
    lost = await service.destroy_warnings(Watcher(), name=NAME)
    count, amount = len(below(place)), size(sum(map(len, below(place).values())))
    assert lost["lines"] == [
        f"{count} files ({amount}) in {place} go to the trash",
        "1 file in its workspace not committed",
        "1 commit in its workspace not pushed anywhere",
        "1 saved conversation",
        "the conversation that goes on (2 messages), saved with the files",
    ]
    assert (await service.destroy_warnings(Watcher(), name=NAME, keep_files=True))["lines"] == []


async def test_a_repository_that_names_programs_is_not_asked(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    assert repository_state(tmp_path) == Worktree(branch="main", uncommitted=0, unpushed=0)
    git(tmp_path, "config", "filter.evil.clean", f"touch {tmp_path}/evil")
    (tmp_path / ".gitattributes").write_text("* filter=evil")
    assert repository_state(tmp_path) is None and not (tmp_path / "evil").exists()
    assert repository_state(tmp_path / "nothing") is None


@pytest.mark.parametrize("how", ["worktree", "include", "fetch"])
async def test_a_program_that_another_file_of_a_repository_names_is_not_run(tmp_path: Path, how: str) -> None:
    place, run = tmp_path / "repository", tmp_path / "evil"
    place.mkdir()
    git(place, "init", "--quiet", "--initial-branch=main")
    (place / "file").write_text("text")
    git(place, "add", "file")
    git(place, "-c", "user.name=n", "-c", "user.email=e", "commit", "--quiet", "--message", "one")
    (place / ".gitattributes").write_text("* filter=evil")
    (place / "file").write_text("other")
    command = f"sh -c 'touch {run}; cat'"
    match how:
        case "worktree":
            git(place, "config", "extensions.worktreeConfig", "true")
            git(place, "config", "--worktree", "filter.evil.clean", command)
        case "include":
            (tmp_path / "more").write_text(f'[filter "evil"]\n\tclean = {command}\n')
            git(place, "config", "include.path", str(tmp_path / "more"))
        case _:
            git(place, "config", "extensions.partialClone", "evil")
            git(place, "config", "remote.evil.url", f"ext::sh -c touch%% {run}")
            git(place, "config", "protocol.ext.allow", "always")
            for blob in git(place, "rev-parse", "HEAD^{tree}", "HEAD:file").split():
                (place / ".git/objects" / blob[:2] / blob[2:]).unlink()
    assert repository_state(place) is None and not run.exists()


@pytest.mark.spec("003", "Destruction Flow 2: its conversation is closed")
@pytest.mark.spec("003", "State Diagram: ACTIVE to DESTROYED")
async def test_what_it_does_is_ended_and_who_watches_is_told(world: World, service: Service) -> None:
    place = await made(service)
    ref, watcher = paths.ref_of(place), Watcher()
    world.server.say(
        answer(tool_use("Bash", command="sleep 600", run_in_background=True)),
        answer(tool_use("Bash", command="echo", description="asked about")),
    )
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Hello", options=world.granted("tool:Bash:sleep.*"))
        await watcher.until(lambda: world.kernel.asks.all())
        lost = await service.destroy_warnings(Watcher(), name=NAME, keep_files=True)
        assert lost["lines"] == [
            "1 answer in flight, cut off",
            "the running command 'sleep 600' (task_001), ended",
            "1 open question, dismissed",
        ]
        await destroyed(service)
    assert not world.kernel.asks.all() and not world.kernel.runs and world.kernel.opened(ref.key) is None
    assert watcher.of("deleted", ref.key)
    (task,) = await world.kernel.feature(Tasks).of(NAME)
    assert (task.status, recorded(world).status) == ("killed", "destroyed")


@pytest.mark.spec("003", "Destruction Flow 3: status destroyed, records preserved")
@pytest.mark.spec("003", "Persistence: Audit log")
async def test_records_of_it_are_kept(world: World, service: Service) -> None:
    place = await made(service)
    await service.agent_config(Watcher(), name=NAME, key="system_prompt", value="You sing.")
    await said(world, place)
    await destroyed(service)
    world.start()
    assert (recorded(world).status, recorded(world).intent) == ("destroyed", None)
    assert len(contexts.of(world.kernel.state, NAME)) == 1
    await asyncio.to_thread(world.kernels[0].ledger.flush)
    actions = [entry.action for entry in audit.latest(world.kernel.state, session=NAME, limit=9)]
    assert actions == ["agent:destroy", "agent:config:system_prompt"]


@pytest.mark.spec("003", "Persistence: Agent registry")
@pytest.mark.spec("003", "Persistence: Session metadata")
async def test_a_destroyed_agent_and_its_conversations_are_known_for_ever(world: World, service: Service) -> None:
    place = await made(service)
    await said(world, place)
    await destroyed(service)
    world.start()
    service = world.service()
    assert (await service.agent_list(Watcher()))["agents"] == []
    (listed,) = (await service.agent_list(Watcher(), destroyed=True))["agents"]
    assert (listed["name"], listed["status"], listed["branch"]) == (NAME, "destroyed", None)
    (row,) = (await service.context_history(Watcher(), agent=NAME))["contexts"]
    assert (row["description"], row["trigger"]) == ("Hello", "destroy")


@pytest.mark.parametrize("keep_files", [True, False])
@pytest.mark.spec("003", "Destruction Flow 5: deregistered")
@pytest.mark.spec("003", "State Diagram: IDLE to DESTROYED")
async def test_nobody_reaches_it_any_more(world: World, service: Service, keep_files: bool) -> None:
    place = await made(service)
    ref = paths.ref_of(place)
    await world.kernel.feature(Schedules).add(ref, every(timedelta(days=2)), "Again.", auth_subject="user:me")
    await destroyed(service, keep_files=keep_files)
    for _ in range(2):
        assert (await service.agent_list(Watcher()))["agents"] == [] and world.kernel.feature(Contexts).pending == 0
        assert await world.kernel.feature(Schedules).of() == []
        with pytest.raises(NotFound):
            await service.resolve(Watcher(), name=NAME)
        with pytest.raises(NotFound):
            await service.agent_config(Watcher(), name=NAME)
        with pytest.raises(PyagentdError):
            async with world.kernel.using(ref):
                pass
        await named_agents.recover(world.start())
        service = world.service()


@pytest.mark.spec("003", "File Preservation")
@pytest.mark.spec("003", "Persistence: Saved sessions")
async def test_files_that_are_kept_are_all_there(world: World, service: Service) -> None:
    place = await made(service)
    await said(world, place)
    before = below(place)
    await destroyed(service, keep_files=True)
    after, (row,) = below(place), contexts.of(world.kernel.state, NAME)
    new = str(Path(row.file_path).relative_to(place))
    assert after.keys() - before.keys() == {new} and new.startswith("sessions/")
    changed = {name for name in before if before[name] != after[name]}
    assert changed <= {"branches/main/session.md", "branches/main/messages.jsonl", "branches/main/scope-plan.yml"}


@pytest.mark.spec("003", "Persistence: Workspace files")
@pytest.mark.spec("003", "Persistence: Agent docs")
async def test_workspace_and_docs_end_with_the_agent_unless_they_are_kept(service: Service) -> None:
    place = await made(service)
    files = (place / "workspace/work.txt", place / "docs/notes.md")
    for file in files:
        file.write_text("mine")
    await destroyed(service, keep_files=True)
    await made(service)
    assert [file.read_text() for file in files] == ["mine", "mine"]
    await destroyed(service)
    await made(service)
    assert [file.exists() for file in files] == [False, False]


@pytest.mark.spec("003", "Re-creation: saved sessions are reachable")
async def test_after_another_creation_its_conversations_are_restored(world: World, service: Service) -> None:
    place = await made(service)
    await said(world, place, "Remember the sheep")
    (id,) = (await destroyed(service, keep_files=True))["saved"]
    world.start()
    await named_agents.recover(world.kernel)
    service = world.service()
    again = await made(service)
    ref = paths.ref_of(again)
    assert [row["id"] for row in (await service.context_history(Watcher(), branch=ref.key))["contexts"]] == [id]
    async with world.kernel.using(ref) as branch:
        assert not hidden.visible(branch.conversation)  # it begins anew; the old text stays in the document, hidden
        await service.context_restore(Watcher(), branch=ref.key, id=id)
        assert len(hidden.visible(branch.conversation)) == 2
    await said(world, again, "And?")
    assert "Remember the sheep" in str(world.server.last.body["messages"])


@pytest.mark.spec("003", "Re-creation: the name is free without files")
async def test_without_files_the_name_is_free_and_all_of_it_new(world: World, service: Service) -> None:
    place = await made(service, system_prompt="You count.")
    await said(world, place)
    await destroyed(service)
    again = await made(service)
    assert again == place and recorded(world).status == "idle"
    config = (await service.agent_config(Watcher(), name=NAME))["config"]
    assert config["system_prompt"] != "You count."
    assert "Hello" not in (paths.ref_of(again).branch_dir / "session.md").read_text()
    assert (await service.context_history(Watcher(), branch=paths.ref_of(again).key))["contexts"] == []
    (old,) = contexts.ever(world.kernel.state, NAME)  # a record that is kept
    with pytest.raises(NotFound):
        await service.context_restore(Watcher(), branch=paths.ref_of(again).key, id=old.id)


def task(name: str, id: str = "", **given: Any) -> tasks.Task:
    made: dict[str, Any] = {
        "branch_dir": f"/x/{name}", "id": id, "agent_name": name, "command": "make", "cwd": "/x", "pid": 1,
        "started_at": "2026-01-01T00:00:00Z", "pid_started": 0, "output_path": f"/x/{name}/out", **given,
    }  # fmt: skip
    return tasks.Task(**made)


async def test_a_new_agent_has_nothing_of_an_earlier_one_of_its_name(world: World, service: Service) -> None:
    for number in (1, 2):
        place = await made(service)
        branch = str(paths.ref_of(place).key)
        assert (await service.tasks(Watcher(), branch=branch))["tasks"] == []
        assert (await service.agent_status(Watcher(), branch=branch))["saved"] is None
        assert (await service.context_history(Watcher(), agent=NAME))["contexts"] == []
        kept = tasks.put(world.kernel.state, task(NAME, status="completed"), most=9)
        assert kept.id == "task_001"
        await said(world, place)
        await destroyed(service)
        assert len((await service.context_history(Watcher(), agent=NAME))["contexts"]) == number
    assert {each.agent_name for each in tasks.find(world.kernel.state)} == {NAME, f"{NAME}@1"}


async def test_output_that_is_gone_is_an_error(world: World, service: Service) -> None:
    place = await made(service)
    kept = tasks.put(
        world.kernel.state, task(NAME, status="completed", branch_dir=str(paths.ref_of(place).branch_dir)), most=9
    )
    with pytest.raises(NotFound, match="is gone"):
        await service.task_output(Watcher(), branch=paths.ref_of(place).key, id=kept.id)


async def test_a_list_of_all_tasks_names_the_agent_of_each(world: World, service: Service) -> None:
    await made(service)
    assert (await service.tasks(Watcher()))["text"] == "No running tasks."
    for name in (NAME, "b"):
        tasks.put(world.kernel.state, task(name), most=9)
    lines = (await service.tasks(Watcher()))["text"].splitlines()
    assert [line.split()[:2] for line in lines] == [["Running", "tasks:"], ["b", "[task_001]"], [NAME, "[task_001]"]]


async def test_who_takes_up_kept_files_is_told_of_them(world: World, service: Service) -> None:
    place = await made(service)
    await said(world, place)
    await destroyed(service, keep_files=True)
    told = await service.agent_init(Watcher(), name=NAME)
    assert told["note"].endswith("configuration, docs, workspace, 1 saved conversation")
    (listed,) = (await service.agent_list(Watcher()))["agents"]
    assert listed["model"] is None and listed["effective_model"]
