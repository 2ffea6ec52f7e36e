"""What agents do to files is kept around every call, shown since any turn, put back, and put back again."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyagentd.errors import NotFound
from pyagentd.features.snapshots import RunKeeper, Snapshots
from pyagentd.runtime.branch import LiveBranch
from pyagentd.store import paths
from pyagentd.store import snapshots as store
from pyagentd.store.snapshots import (
    BETWEEN,
    DIRECTORY,
    DOUBTFUL,
    EMPTY,
    Change,
    Entry,
    Objects,
    Records,
    Scan,
    TooMuch,
    assemble,
    plan_undo,
    prune,
    read,
)
from pyagentd.tools import files as dirfd_open
from tests.examples import examples
from tests.runtime.world import Watcher, World, attached, last_of, rows
from tests.server import answer, tool_use

TOOLS = "Read, Write, Edit, Bash, PersistentAgent"


def shown(root: Path) -> dict[str, Any]:
    """All there is below ``root``: kind, permissions and content, by path."""
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = os.fsencode(path.relative_to(root))
        mode = path.lstat().st_mode
        content: Any = "directory"
        if stat.S_ISLNK(mode):
            content = os.readlink(path)  # noqa: PTH115
        elif stat.S_ISREG(mode):
            content = path.read_bytes()
        found[repr(name)] = (stat.S_IFMT(mode), 0 if stat.S_ISLNK(mode) else stat.S_IMODE(mode), content)
    return found


class Talk:
    """A conversation in which calls are allowed."""

    def __init__(self, world: World, branch: LiveBranch) -> None:
        self.world, self.branch, self.watcher = world, branch, Watcher()

    async def turn(self, *calls: Any, text: str = "Go.") -> str:
        """Have the model make ``calls``, and return the id of the message it answers."""
        self.world.server.say(*(answer(call) for call in calls), "Done.")
        await self.world.kernel.prompt(self.branch, text=text, options=self.world.granted("tool:.*"))
        await self.watcher.finished(self.branch)
        users = [each for each in self.branch.conversation.messages.values() if each.role == "user"]
        return users[-1].id

    async def preview(self, message: str | None = None) -> dict[str, str]:
        found = await self.world.kernel.feature(Snapshots).preview(self.branch.ref, message)
        return {str(Path(row["path"]).relative_to(self.world.project)): row["change"] for row in found}

    async def restore(self, message: str | None, **options: Any) -> dict[str, Any]:
        return await self.world.kernel.feature(Snapshots).restore(self.branch.ref, message, **options)


@asynccontextmanager
async def talking(world: World) -> Any:
    world.preset("main", tools=TOOLS)
    ref = world.session()
    async with world.kernel.using(ref) as branch:
        talk = Talk(world, branch)
        branch.record_session(workspace_root=world.project)
        await attached(branch, talk.watcher)
        yield talk


def write(name: str, content: str) -> Any:
    return tool_use("Write", file_path=name, content=content)


def bash(command: str) -> Any:
    return tool_use("Bash", command=command)


async def test_files_go_back_to_before_a_turn_and_forward_again(world: World) -> None:
    (world.project / "a.txt").write_text("one\n")
    async with talking(world) as talk:
        first = await talk.turn(write("a.txt", "two\n"), write("new/b.txt", "b\n"))
        second = await talk.turn(bash("echo three > a.txt; rm new/b.txt; ln -s a.txt link"))
        after = shown(world.project)
        assert await talk.preview(second) == {"a.txt": "restore", "new/b.txt": "create", "link": "delete"}
        assert await talk.preview(first) == {"a.txt": "restore", "new": "delete", "link": "delete"}

        done = await talk.restore(second)
        assert (world.project / "a.txt").read_text() == "two\n" and (world.project / "new/b.txt").read_text() == "b\n"
        assert not (world.project / "link").is_symlink() and not done["kept"]
        assert await talk.preview(second) == {}

        again = await talk.restore(first)
        assert shown(world.project) == {"b'a.txt'": (stat.S_IFREG, 0o644, b"one\n")}
        assert not (await talk.restore(None))["id"], "nothing is left to do"
        for each in (again, done):
            await world.kernel.feature(Snapshots).undo(talk.branch.ref, each["id"])
        assert shown(world.project) == after


async def test_a_preview_shows_the_difference(world: World) -> None:
    (world.project / "a.txt").write_text("one\n")
    async with talking(world) as talk:
        turn = await talk.turn(write("a.txt", "two\n"))
        (row,) = await world.kernel.feature(Snapshots).preview(talk.branch.ref, turn)
        assert row["diff"].splitlines()[2:] == ["@@ -1 +1 @@", "-two", "+one"]


async def test_what_somebody_else_changed_since_is_kept_and_both_versions_are_there(world: World) -> None:
    file = world.project / "a.txt"
    file.write_text("one\n")
    async with talking(world) as talk:
        turn = await talk.turn(write("a.txt", "two\n"))
        file.write_text("mine\n")
        (row,) = await world.kernel.feature(Snapshots).preview(talk.branch.ref, turn)
        assert row["change"] == "conflict" and "-mine" in row["diff"] and "+one" in row["diff"]
        done = await talk.restore(turn)
        assert file.read_text() == "mine\n" and not done["restored"] and len(done["kept"]) == 1
        assert done["note"] == "0 restored, 1 kept (it was changed since by somebody else)"
        done = await talk.restore(turn, conflicts="copy")
        assert Path(done["copies"][0]).read_text() == "one\n"  # noqa: ASYNC240
        assert done["note"].endswith(f"; the old version is in {done['copies'][0]}")
        assert file.read_text() == "mine\n"
        await talk.restore(turn, conflicts="overwrite")
        assert file.read_text() == "one\n"


async def test_what_is_written_while_restoring_waits_is_kept(world: World) -> None:
    async with talking(world) as talk:
        await talk.turn(write("a.txt", "one\n"))
        second = await talk.turn(write("a.txt", "two\n"))
        file = world.project / "a.txt"
        async with world.kernel.feature(Snapshots).changing([str(file)]):  # a call of another session is at it
            restoring = asyncio.create_task(talk.restore(second))
            done, _ = await asyncio.wait([restoring], timeout=0.3)
            assert not done
            file.write_text("of another session\n")
        assert [row["path"] for row in (await restoring)["kept"]] == [str(file)]
        assert file.read_text() == "of another session\n"


async def test_a_directory_that_became_a_link_comes_back_with_its_files(world: World) -> None:
    """What the link leads to is not what is in the directory, whatever has the same names there."""
    elsewhere = world.project / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "x").write_text("theirs\n")
    async with talking(world) as talk:
        await talk.turn(write("tt/x", "mine\n"), write("tt/deep/y", "y\n"))
        second = await talk.turn(bash("rm -r tt; ln -s elsewhere tt"))
        (elsewhere / "deep").mkdir()
        (elsewhere / "deep/y").write_text("theirs\n")
        after = shown(world.project)
        assert await talk.preview(second) == {
            "tt": "restore",
            "tt/x": "create",
            "tt/deep": "create",
            "tt/deep/y": "create",
        }
        done = await talk.restore(second)
        assert done["kept"] == []
        assert not (world.project / "tt").is_symlink()
        assert [(world.project / "tt" / name).read_text() for name in ("x", "deep/y")] == ["mine\n", "y\n"]
        assert await talk.preview(second) == {}
        assert [(elsewhere / name).read_text() for name in ("x", "deep/y")] == ["theirs\n"] * 2
        await world.kernel.feature(Snapshots).undo(talk.branch.ref, done["id"])
        assert shown(world.project) == after


async def test_nothing_is_put_where_somebody_else_made_a_link(world: World) -> None:
    elsewhere = world.project.parent / "elsewhere"
    elsewhere.mkdir()
    async with talking(world) as talk:
        await talk.turn(write("tt/x", "mine\n"))
        second = await talk.turn(bash("rm tt/x"))
        (world.project / "tt").rmdir()
        (world.project / "tt").symlink_to(elsewhere)
        done = await talk.restore(second)
        assert [row["path"] for row in done["kept"]] == [str(world.project / "tt/x")]
        assert "symbolic link" in done["kept"][0]["reason"]
        assert list(elsewhere.iterdir()) == []


async def test_a_change_between_two_of_the_agents_is_not_lost_silently(world: World) -> None:
    file = world.project / "a.txt"
    file.write_text("one\n")
    async with talking(world) as talk:
        turn = await talk.turn(write("a.txt", "two\n"))
        file.write_text("mine\n")
        await talk.turn(write("a.txt", "three\n"))
        (row,) = await world.kernel.feature(Snapshots).preview(talk.branch.ref, turn)
        assert (row["change"], row["reason"]) == ("conflict", BETWEEN)


async def test_calls_and_messages_name_their_snapshots(world: World) -> None:
    async with talking(world) as talk:
        await talk.turn(write("a.txt", "a\n"), tool_use("Read", file_path="a.txt"))
        parts = [
            p["data_json"] for p in last_of(rows(talk.branch.ref), "part").values() if "toolCallId" in p["data_json"]
        ]
        named = [part["metadata"].get("snapshot") for part in parts]
        assert named[0]["before"] != named[0]["after"] and named[1] is None
        head = world.kernel.feature(Snapshots).records.head(talk.branch.top)
        second = await talk.turn(text="Again.")
        assert head.startswith("snp_")
        assert last_of(rows(talk.branch.ref), "message")[second]["metadata_json"]["snapshot_id"] == head


async def test_what_agents_change_belongs_to_the_turn_that_spawned_them(world: World) -> None:
    async with talking(world) as talk:
        spawn = tool_use("PersistentAgent", preset="main", description="help", prompt="Work")
        world.server.say(answer(spawn), answer(write("by-agent.txt", "x\n")), "I wrote.", "Done.")
        await world.kernel.prompt(talk.branch, text="Go.", options=world.granted("tool:.*"))
        await talk.watcher.finished(talk.branch)
        turn = next(each.id for each in talk.branch.conversation.messages.values() if each.role == "user")
        assert await talk.preview(turn) == {"by-agent.txt": "delete"}
        (agent,) = await asyncio.to_thread(lambda: list((talk.branch.ref.branch_dir / "agents").iterdir()))
        own = paths.ref_of(Path(agent))
        assert [row["change"] for row in await world.kernel.feature(Snapshots).preview(own, None)] == ["delete"]


async def test_files_of_another_agent_with_the_same_task_stay(world: World) -> None:
    async with talking(world) as talk:
        spawn = tool_use("PersistentAgent", preset="main", description="help", prompt="Work")
        for name in ("a.txt", "b.txt"):
            world.server.say(answer(spawn), answer(write(name, "x\n")), "I wrote.", "Done.")
            await world.kernel.prompt(talk.branch, text="Go.", options=world.granted("tool:.*"))
            await talk.watcher.finished(talk.branch)
        first, second = sorted(paths.agents_dir(talk.branch.ref.branch_dir).iterdir())
        assert second.name == f"{first.name}-2"
        preview = await world.kernel.feature(Snapshots).preview(paths.ref_of(first), None)
        assert [row["path"] for row in preview] == [str(world.project / "a.txt")]


async def test_clients_are_told_which_files_changed(world: World) -> None:
    async with talking(world) as talk:
        talk.world.server.say(answer(bash("echo x > a; echo y > b")), "Done.")
        await world.kernel.prompt(talk.branch, text="Go.", options=world.granted("tool:.*"))
        await talk.watcher.until(lambda: talk.watcher.of("files"))
        (told,) = talk.watcher.of("files")
        assert told.args[0]["paths"] == [str(world.project / name) for name in "ab"]
        await talk.watcher.finished(talk.branch)


async def test_a_workspace_that_is_too_large_is_said_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST_FILES", 1)
    for name in "ab":
        (world.project / name).write_text(name)
    async with talking(world) as talk:
        said: list[Any] = []
        talk.watcher.push, push = (lambda event: (said.append(event), push(event))), talk.watcher.push  # type: ignore[method-assign]
        turn = await talk.turn(bash("echo c > c"), bash("echo d > d"), write("e", "e\n"))
        await talk.turn(bash("awk 'BEGIN { print 1 > \"f\" }'"))
        notices = [event.args[0]["text"] for event in said if event.kind == "notice"]
        assert len(notices) == 1 and "more than 1 files" in notices[0]
        # Named files are kept nevertheless.
        assert (world.project / "f").exists() and await talk.preview(turn) == dict.fromkeys("cde", "delete")


async def test_a_message_that_is_not_there_is_said(world: World) -> None:
    async with talking(world) as talk:
        await talk.turn(write("a.txt", "a\n"))
        with pytest.raises(NotFound, match="msg_none"):
            await talk.preview("msg_none")


async def test_secrets_ignored_files_and_repositories_stay_out(world: World) -> None:
    project = world.project
    (project / ".env").write_text("KEY=top-secret-value\n")
    (project / ".gitignore").write_text("build/\n")
    (project / "build").mkdir()
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(project)], check=True)
    git = shown(project / ".git")
    async with talking(world) as talk:
        turn = await talk.turn(bash("echo x >> .env; echo y > build/y; echo z > z"))
        assert shown(project / ".git") == git
        assert await talk.preview(turn) == {".env": "unkept", "z": "delete"}
        done = await talk.restore(turn)
        assert (project / ".env").read_text().endswith("x\n") and [row["path"] for row in done["kept"]]
    store = world.kernel.config.sessions_dir / DIRECTORY
    objects = Objects(store)
    contents = [objects.get("blob", name) or b"" for name, _ in objects.names()]
    assert not any(b"top-secret-value" in content for content in contents)
    modes = {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in store.rglob("*")}
    assert modes == {0}


async def test_what_could_not_be_brought_back_again_is_not_removed(world: World) -> None:
    project = world.project
    (project / ".gitignore").write_text("data/\n")
    (project / "data").mkdir()
    (project / "data/big").write_bytes(b"mine" * 3_000_000)
    async with talking(world) as talk:
        turn = await talk.turn(bash("mv data/big big; echo new > new"))
        assert await talk.preview(turn) == {"big": "unkept", "new": "delete"}
        done = await talk.restore(turn)
        assert (project / "big").stat().st_size == 12_000_000 and [
            Path(row["path"]).name for row in done["kept"]
        ] == ["big"]


async def test_what_was_ignored_before_a_command_is_not_removed_when_that_is_undone(world: World) -> None:
    project = world.project
    (project / ".gitignore").write_text("*.db\n")
    (project / "sub").mkdir()
    (project / "sub/.gitignore").write_text("data/\n!kept.db\n")
    (project / "own.db").write_text("mine")
    (project / "sub/data").mkdir()
    (project / "sub/data/notes").write_text("mine")
    async with talking(world) as talk:
        turn = await talk.turn(bash("rm .gitignore sub/.gitignore; echo new > sub/new; echo new > sub/kept.db"))
        undone = {".gitignore": "create", "sub/.gitignore": "create", "sub/new": "delete", "sub/kept.db": "delete"}
        assert await talk.preview(turn) == undone
        await talk.restore(turn)
        assert (project / "own.db").read_text() == (project / "sub/data/notes").read_text() == "mine"
        assert not (project / "sub/new").exists() and (project / "sub/.gitignore").exists()


async def test_the_store_is_no_session_and_no_tool_may_look_into_it(world: World) -> None:
    async with talking(world) as talk:
        await talk.turn(write("a.txt", "a\n"))
        store = world.kernel.config.sessions_dir / DIRECTORY
        assert store.is_dir()
        service = world.service()
        found = await asyncio.to_thread(service.registry.branches)
        assert {ref.session_dir.name for ref in found} == {talk.branch.ref.session_dir.name}
        await talk.turn(tool_use("Read", file_path=str(store / "config")))
        assert "may not touch" in json.dumps(world.server.last.messages[-1])


async def test_a_daemon_that_is_killed_leaves_whole_objects_and_a_doubt(world: World) -> None:
    (world.project / "a.txt").write_text("one\n")
    async with talking(world) as talk:
        turn = await talk.turn(bash("true"))
        snapshots = world.kernel.feature(Snapshots)
        run_id, root = next(iter(talk.branch.conversation.runs)), world.project.resolve()
        keeper = RunKeeper(snapshots=snapshots, branch=talk.branch, top=talk.branch.ref, run_id=run_id, root=root)
        before = snapshots.tree_of((), root, ())
        change = Change(
            id="snp_x",
            turns=(turn,),
            branch=talk.branch.key,
            before=before,
            after=before,
            began=1,
            ended=0,
            root=str(root),
        )
        snapshots.records.begin(keeper.top, change, ())
        (world.project / "a.txt").write_text("two\n")
        await asyncio.to_thread(snapshots.close_unfinished)
        (row,) = await snapshots.preview(talk.branch.ref, turn)
        assert (row["change"], row["reason"]) == ("conflict", DOUBTFUL) and not snapshots.records.unfinished()


async def test_what_a_killed_daemon_left_beside_a_file_is_removed(world: World) -> None:
    draft = world.project / "sub/.pyagentd-00000000-0123456789abcdef.tmp"
    others = [world.project / "sub" / name for name in (".0123456789abcdef.tmp", dirfd_open.draft_name(), ".x.tmp")]
    async with talking(world) as talk:
        turn = await talk.turn(write("sub/a.txt", "a\n"), write("sub/b.txt", "b\n"))
        snapshots = world.kernel.feature(Snapshots)
        change = Change(id="snp_x", turns=(turn,), branch="", before=EMPTY, after="", began=1, ended=0)
        for path in (draft, *others):
            path.write_text("half")
        snapshots.records.begin(talk.branch.ref, change, (str(world.project / "sub/a.txt"),))
        await asyncio.to_thread(snapshots.close_unfinished)
        assert not draft.exists() and all(path.exists() for path in others)
        draft.write_text("half")
        await talk.restore(turn, only=[str(world.project / "sub/b.txt")])
        assert not draft.exists() and all(path.exists() for path in others)


def test_a_torn_line_costs_only_itself(tmp_path: Path, world_free_ref: Any) -> None:
    records = Records(tmp_path)
    change = Change(id="snp_1", turns=("m",), branch="b", before=EMPTY, after=EMPTY, began=1, ended=2)
    records.append(world_free_ref, change)
    with records.file(world_free_ref).open("ab") as file:
        file.write(b"[" * 20_000 + b'\n[]\n{"id": "snp_2", "tur')
    records.append(world_free_ref, Change(**{**{f: getattr(change, f) for f in change.__slots__}, "id": "snp_3"}))
    assert [each.id for each in records.of(world_free_ref)] == ["snp_1", "snp_3"]
    assert records.head(world_free_ref) == "snp_3"
    records.begin(world_free_ref, change, ())
    (tmp_path / "begun" / "snp_4.json").write_text('{"session": "s", "paths": [], "change": []}')
    assert [each.id for _, _, each in records.unfinished()] == ["snp_1"]


def test_changes_of_a_branch_with_a_long_name_of_another_script_are_kept(tmp_path: Path, world_free_ref: Any) -> None:
    records, change = (
        Records(tmp_path),
        Change(id="snp_1", turns=("m",), branch="b", before=EMPTY, after=EMPTY, began=1, ended=2),
    )
    refs = [replace(world_free_ref, branch_name="исправить ошибку " * 5 + end) for end in ("один", "два")]
    for ref in refs:
        records.append(ref, replace(change, id=ref.branch_name))
    assert [[each.id for each in records.of(ref)] for ref in refs] == [[ref.branch_name] for ref in refs]


@pytest.fixture
def world_free_ref(tmp_path: Path) -> Any:
    from pyagentd.store.paths import BranchRef

    place = tmp_path / "s-20260101000000" / "branches" / "main"
    return BranchRef(
        session_id="s.+-20260101000000", session_dir=place.parent.parent, branch_name="main", branch_dir=place
    )


# -- the store itself --------------------------------------------------------------------------------------------


def test_git_reads_the_store(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "a").write_text("a\n")
    (tmp_path / "w" / "run.sh").write_text("b\n")
    (tmp_path / "w" / "run.sh").chmod(0o755)
    objects = Objects(tmp_path / "store")
    entry = Scan(str(tmp_path / "w"), objects).snapshot()
    env = {"PATH": os.environ["PATH"], "GIT_DIR": str(tmp_path / "store"), "GIT_CONFIG_GLOBAL": "/dev/null"}
    listed = subprocess.run(["git", "ls-tree", entry.id], env=env, capture_output=True, text=True, check=True).stdout
    assert [line.split()[0] for line in listed.splitlines()] == ["100644", "100755"]
    fsck = subprocess.run(["git", "fsck", "--strict", "--no-dangling"], env=env, capture_output=True, text=True)
    assert fsck.returncode == 0, fsck.stderr


def test_a_kill_in_the_middle_leaves_nothing_that_is_half(tmp_path: Path) -> None:
    work, store = tmp_path / "work", tmp_path / "store"
    work.mkdir()
    for number in range(3000):
        (work / f"f{number}").write_text(f"{number}\n" * 20)
    code = (
        "import sys; from pathlib import Path; from pyagentd.store.snapshots import Objects;"
        "from pyagentd.store.snapshots import Scan; print('begun', flush=True);"
        "Scan(sys.argv[1], Objects(Path(sys.argv[2]))).snapshot()"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(work), str(store)], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"begun\n"
    objects = Objects(store)
    while len(objects.names()) < 200 and process.poll() is None:
        pass
    process.kill()
    process.wait()
    process.stdout.close()
    assert all(objects.get("blob", name) or objects.get("tree", name) for name, _ in objects.names())
    entry = Scan(str(work), objects).snapshot()
    assert len(read(objects, entry.id)) == 3000


def test_a_damaged_object_is_a_lost_one(tmp_path: Path) -> None:
    objects = Objects(tmp_path)
    name = objects.put("blob", b"content")
    (path,) = [path for _, path in objects.names()]
    path.write_bytes(b"\0" * 20)
    assert objects.get("blob", name) is None


@pytest.mark.parametrize("left", [b"", b"\0" * 20])
def test_an_object_that_a_loss_of_power_damaged_is_stored_again(tmp_path: Path, left: bytes) -> None:
    name = Objects(tmp_path).put("blob", b"content")
    ((_, path),) = Objects(tmp_path).names()
    path.write_bytes(left)
    objects = Objects(tmp_path)  # of the daemon that began after it
    assert objects.put("blob", b"content") == name
    assert objects.get("blob", name) == b"content"


def test_counting_stops_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST_FILES", 10)
    for number in range(50):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}" / "f").write_text("x")
    objects = Objects(tmp_path / "store")
    with pytest.raises(TooMuch, match="more than 10 files"):
        Scan(str(tmp_path), objects).snapshot()
    assert not objects.names(), "nothing was read"


def test_an_unchanged_workspace_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    for name in ("a", "b", "c/d"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(name)
    monkeypatch.setattr(store, "_MOMENT_NS", -(10**12))  # nothing was written a moment ago
    objects = Objects(tmp_path / "store")
    found = Scan(str(work), objects)
    first = found.snapshot()
    assert found.read == 3
    assert found.snapshot() == first and found.read == 0
    later = Scan(str(work), objects, known={path: (was, entry) for path, was, entry in found.known()})
    assert later.snapshot() == first and later.read == 0
    (work / "a").write_text("other")
    (work / "c" / "new").write_text("new")
    assert found.snapshot() != first and found.read == 2
    (work / "c" / "new").unlink()
    (work / "a").write_text("a")
    assert found.snapshot() == first


def test_what_changed_a_moment_ago_is_read_again(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    found = Scan(str(work), Objects(tmp_path / "store"))
    seen = set()
    for number in range(20):  # faster than the clock of the file system; the same size each time
        (work / "a").write_text(f"{number:02}")
        seen.add(found.snapshot().id)
    assert len(seen) == 20


@pytest.mark.parametrize("today", [41, 41 + 20 * 365])  # a clock may jump years ahead
def test_what_is_old_or_of_nobody_is_forgotten(tmp_path: Path, world_free_ref: Any, today: int) -> None:
    objects, records = Objects(tmp_path / "store"), Records(tmp_path / "store")
    day = 86_400_000
    trees = []
    for number in range(4):
        blob = objects.put("blob", b"%d" % number)
        trees.append(assemble(objects, [("/f", Entry(0o100644, blob))]))
    for number in range(3):
        records.append(
            world_free_ref,
            Change(
                id=f"snp_{number}",
                turns=(),
                branch="gone" if number == 1 else "b",
                before=trees[number],
                after=trees[number + 1],
                began=1,
                ended=[9, 40, 40][number] * day,
            ),
        )
    for _, path in objects.names():
        os.utime(path, (1, 1))
    told = prune(records, objects, now_ms=today * day, gone=lambda change: change.branch == "gone")
    assert (told["changes"], told["left_changes"]) == (2, 1)
    assert [each.id for each in records.of(world_free_ref)] == ["snp_2"]
    left = {name for name, _ in objects.names()}
    assert {trees[2], trees[3]} <= left and trees[0] not in left
    assert plan_undo(objects, records.of(world_free_ref))["/f"].target is not None


# -- a property --------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "d", "d/e", "d/f", "g/h/i", "x\udcff", "ü", "sp ace", "-n", "d/link"])
CONTENTS = st.sampled_from([b"", b"one\n", b"two\r\n", b"\0\xff" * 10, b"long\n" * 1000])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES, CONTENTS),
        st.tuples(st.just("remove"), NAMES),
        st.tuples(st.just("mkdir"), NAMES),
        st.tuples(st.just("link"), NAMES, NAMES),
        st.tuples(st.just("chmod"), NAMES, st.sampled_from([0o600, 0o644, 0o755, 0o700])),
        st.tuples(st.just("move"), NAMES, NAMES),
    ),
    max_size=12,
)


def perform(root: Path, steps: list[Any]) -> None:
    """Do what may be done; what cannot is left out, as a command's failing parts are."""
    import shutil

    for kind, name, *more in steps:
        path = root / name
        try:
            if kind == "write":
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(more[0])
            elif kind == "remove":
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            elif kind == "mkdir":
                path.mkdir(parents=True)
            elif kind == "link":
                path.symlink_to(more[0])
            elif kind == "chmod" and not path.is_symlink() and path.is_file():
                path.chmod(more[1] if len(more) > 1 else more[0])
            elif kind == "move":
                path.rename(root / more[0])
        except OSError:
            pass


@given(before=STEPS, turns=st.lists(STEPS, min_size=1, max_size=3))
@settings(
    max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_restoring_brings_the_original_tree_back(tmp_path_factory: Any, before: Any, turns: Any) -> None:
    from pyagentd.features.snapshots import RestoreReply, Snapshots, creations, removals, remove

    home = tmp_path_factory.mktemp("tree")
    root = home / "work"
    root.mkdir()
    perform(root, before)
    original = shown(root)
    objects = Objects(home / "store")
    found = Scan(str(root), objects)

    def kept() -> str:
        return assemble(objects, [(str(root), found.snapshot())])

    restoring = Snapshots.__new__(Snapshots)
    restoring.objects, restoring._forbidden = objects, ()
    states, changes = [kept()], []
    for number, steps in enumerate(turns):
        perform(root, steps)
        states.append(kept())
        changes.append(
            Change(
                id=str(number),
                turns=("m",),
                branch="b",
                before=states[-2],
                after=states[-1],
                began=number,
                ended=number,
            )
        )
    proposals = restoring._proposals(restoring._undos(changes, None))
    assert {each.becomes for each in proposals} <= {"restore", "delete", "create"}
    done: RestoreReply = {"id": "", "restored": [], "kept": [], "copies": [], "note": ""}
    for each in removals(proposals):
        restoring._step(remove, each, done)
    for each in creations(proposals):
        restoring._step(restoring._create, each, done)
    assert not done["kept"]
    assert shown(root) == original
    assert not restoring._proposals(restoring._undos(changes, None))
