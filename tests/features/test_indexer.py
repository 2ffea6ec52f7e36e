"""What is searched and listed while sessions change, the database fails, and other programs write."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyagentd.api import Service, group
from pyagentd.errors import BadRequest, NotFound, StoreError
from pyagentd.features import indexer as module
from pyagentd.features.indexer import Indexer
from pyagentd.runtime.feature import BranchWritten
from pyagentd.store import paths
from pyagentd.store.db.state import State
from pyagentd.store.document import text as document
from pyagentd.store.registry import Registry
from tests.runtime.world import Calls, Watcher, World
from tests.store.shelf import Shelf
from tests.tools.processes import until


@contextmanager
def indexed(world: World, *, database: str = ".") -> Iterator[Service]:
    """A service with an index, as the daemon has it; ``database``: its directory, below the root."""
    root = world.kernel.config.sessions_dir
    root.mkdir(parents=True, exist_ok=True)
    registry = Registry(root)
    indexer = Indexer(State(root / database), registry)
    world.kernel.bus.on(BranchWritten, lambda written: indexer.branch_written(written.ref))
    indexer.start()
    try:
        yield Calls(Service(world.kernel, registry, indexer, stop=lambda: None, clients=lambda: 1), registry, indexer)
    finally:
        indexer.close()


async def found(service: Service, query: str, **options: Any) -> list[dict[str, Any]]:
    hits: list[dict[str, Any]] = (await service.search(Watcher(), query=query, **options))["hits"]
    return hits


async def asked(world: World, service: Service, prompt: str, answer: str) -> str:
    made = await service.create_session(Watcher(), name="test", preset="main", root=str(world.project))
    client, branch = Watcher(), str(made["branch"])
    world.server.say(answer)
    await service.attach(client, branch=branch, sha256=document.body_sha256(_text(branch)))
    await service.prompt(client, branch=branch, text=prompt, env=dict(world.options.env))
    await client.finished(branch)
    await service.detach(client, branch=branch)
    return branch


def _text(branch: str) -> str:
    return document.read(Path(branch) / "session.md").body


async def test_a_run_can_be_found_when_it_has_ended_and_leads_to_its_place(world: World) -> None:
    with indexed(world) as service:
        branch = await asked(world, service, "Where is the zeppelin?", "In the hangar.")
        (hit,) = await found(service, "hangar")
        assert (hit["branch"], hit["role"], hit["kind"], hit["agent"]) == (branch, "assistant", "text", False)
        assert hit["preview"][slice(*hit["matches"][0])] == "hangar"
        place = await service.locate(Watcher(), branch=branch, message=hit["message_id"], part=hit["part_id"])
        text = _text(branch)
        assert text[place["position"] - 1 : place["end"] - 1] == "In the hangar."
        place = await service.locate(Watcher(), branch=branch, query="zeppelin")
        assert text[place["position"] - 1 : place["end"] - 1] == "zeppelin"
        assert (await service.locate(Watcher(), branch=branch, message="msg_0"))["position"] is None


async def test_what_another_program_writes_or_deletes_is_noticed_without_being_told(
    world: World, monkeypatch
) -> None:
    monkeypatch.setattr(module, "FRESH_S", 0)
    monkeypatch.setattr(module, "FRESH_FACTOR", 0)
    with indexed(world) as service:
        assert await found(service, "zeppelin") == []
        shelf = Shelf(world.kernel.config.sessions_dir)
        ref = shelf.new("pulled", ("which airship", "the zeppelin"))
        (hit,) = await found(service, "zeppelin")
        assert hit["branch"] == ref.key
        shutil.rmtree(ref.session_dir)
        assert await found(service, "zeppelin") == []


async def test_a_session_whose_document_is_gone_stays_in_the_index(world: World, monkeypatch) -> None:
    monkeypatch.setattr(module, "FRESH_S", 0)
    monkeypatch.setattr(module, "FRESH_FACTOR", 0)
    shelf = Shelf(world.kernel.config.sessions_dir)
    ref = shelf.new("one", ("q", "zeppelin"))
    shelf.close()
    paths.session_file(ref.branch_dir).unlink()
    with indexed(world) as service:
        assert [hit["branch"] for hit in await found(service, "zeppelin", hidden=True)] == [ref.key]
        async with world.kernel.using(ref):
            pass  # whoever opens it makes the document anew
        assert [hit["branch"] for hit in await found(service, "zeppelin")] == [ref.key]


async def test_what_is_written_right_after_a_branch_was_indexed_comes_into_the_index_by_itself(world: World) -> None:
    shelf = Shelf(world.kernel.config.sessions_dir)
    ref = shelf.new("one", ("q", "zeppelin"))
    registry = Registry(world.kernel.config.sessions_dir)
    indexer = Indexer(State(world.kernel.config.sessions_dir), registry)
    indexer.start()
    try:
        await indexer.fresh()
        for messages in (4, 6):
            shelf.talk(ref).say("again", "another zeppelin")
            shelf.write(ref)
            indexer.branch_written(ref)
            await until(lambda: indexer.projection.totals() == (1, messages))  # noqa: B023
    finally:
        indexer.close()


async def test_a_search_can_be_limited_to_a_session_or_a_branch(world: World) -> None:
    shelf = Shelf(world.kernel.config.sessions_dir)
    one, two = shelf.new("one", ("q", "zeppelin one")), shelf.new("two", ("q", "zeppelin two"))
    other = shelf.branch(one, "20260205123100-try")
    shelf.talk(other).say("again", "zeppelin three")
    shelf.write(other)
    shelf.close()
    with indexed(world) as service:
        previews = [hit["preview"] for hit in await found(service, "zeppelin", session=one.session_id)]
        assert sorted(previews) == ["zeppelin one", "zeppelin three"]
        assert len(await found(service, "zeppelin", session=f"{one.session_id}/main")) == 1
        assert len(await found(service, "zeppelin", session=two.key)) == 1
        answer = await service.search(Watcher(), query="zeppelin", limit=2)
        assert (len(answer["hits"]), answer["more"], answer["indexing"], answer["problem"]) == (2, True, False, None)
        with pytest.raises(NotFound):
            await found(service, "zeppelin", session="nobody")
        for wrong in ({"query": '""'}, {"query": "x", "limit": 0}, {"query": "x", "limit": 10**6}):
            with pytest.raises(BadRequest):
                await service.search(Watcher(), **wrong)


async def test_a_search_does_not_wait_long_for_the_first_look_at_everything(world: World, monkeypatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.01)
    shelf = Shelf(world.kernel.config.sessions_dir)
    ref = shelf.new("one", ("q", "zeppelin"))
    shelf.close()
    with indexed(world) as service:
        assert service.indexer is not None
        with service.indexer._state.writing():  # the indexer waits for this
            answer = await service.search(Watcher(), query="zeppelin")
            assert (answer["hits"], answer["indexing"]) == ([], True)
        monkeypatch.setattr(module, "PATIENCE_S", 10)
        assert [hit["branch"] for hit in await found(service, "zeppelin")] == [ref.key]


async def test_the_index_is_built_anew_with_progress(world: World) -> None:
    shelf = Shelf(world.kernel.config.sessions_dir)
    for name in ("one", "two", "three"):
        shelf.new(name, ("q", f"zeppelin {name}"))
    with indexed(world) as service:
        assert len(await found(service, "zeppelin")) == 3
        client = Watcher()
        totals = await service.reindex(client)
        assert (totals["branches"], totals["messages"]) == (3, 6)
        assert client.of("progress")[-1].args == ({"id": "reindex", "done": 3, "total": 3},)
        assert len(await found(service, "zeppelin")) == 3
    shelf.close()


async def test_a_database_that_is_destroyed_while_it_is_used_comes_back(world: World, monkeypatch) -> None:
    monkeypatch.setattr(module, "FRESH_S", 0)
    monkeypatch.setattr(module, "FRESH_FACTOR", 0)
    shelf = Shelf(world.kernel.config.sessions_dir)
    for number in range(20):
        shelf.new(f"s{number}", ("q", "the zeppelin " + "and more " * 300))
    shelf.close()
    with indexed(world) as service:
        assert len(await found(service, "zeppelin")) == 20
        file = shelf.root / "state.db"
        for path in shelf.root.glob("state.db*"):
            with path.open("r+b") as pages:
                pages.write(b"\xff" * path.stat().st_size)
        async with asyncio.timeout(20):
            while True:
                try:
                    if len(await found(service, "zeppelin")) == 20 and file.read_bytes()[:6] == b"SQLite":
                        break
                except StoreError as error:
                    assert "built anew" in str(error) or "damaged" in str(error)


async def test_without_a_database_everything_but_search_works(world: World) -> None:
    with indexed(world, database="absent") as service:
        branch = await asked(world, service, "Where is the zeppelin?", "In the hangar.")
        (listed,) = (await service.sessions(Watcher()))["sessions"]
        assert (listed["branch"], listed["preset"]) == (branch, "main")
        with pytest.raises(StoreError, match=r"state\.db.*Sessions are not affected"):
            await found(service, "zeppelin")
        with pytest.raises(StoreError, match="only search is"):
            await service.reindex(Watcher())


async def test_one_branch_that_cannot_be_indexed_hides_no_other(world: World, caplog) -> None:
    shelf = Shelf(world.kernel.config.sessions_dir)
    bad, good = shelf.new("bad", ("q", "zeppelin")), shelf.new("good", ("q", "zeppelin"))
    shelf.close()
    paths.journal_file(bad.branch_dir).unlink()
    paths.journal_file(bad.branch_dir).mkdir()
    with indexed(world) as service:
        assert [hit["branch"] for hit in await found(service, "zeppelin")] == [good.key]
        assert f"{bad.key} cannot be indexed" in caplog.text


async def test_sessions_elsewhere_are_remembered(world: World, tmp_path: Path) -> None:
    place = str(tmp_path / "activity" / "session")
    with indexed(world) as service:
        await service.create_session(Watcher(), name="trip", preset="main", session_dir=place)
        assert [hit["kind"] for hit in await found(service, "trip")] == ["title"]
    with indexed(world) as service:
        assert (await service.resolve(Watcher(), name="trip"))["session_dir"] == place


async def test_the_list_has_titles_archives_and_who_belongs_to_whom(world: World) -> None:
    shelf = Shelf(world.kernel.config.sessions_dir)
    ref = shelf.new("one", ("q", "a"), title="A title")
    other = shelf.branch(ref, "20260205123100-try")
    (ref.session_dir / "current").unlink()
    (ref.session_dir / "current").symlink_to("branches/20260205123100-try")
    shelf.new("gone", ("q", "a"), archived_at=7)
    shelf.close()

    async def rows(service: Service, **options: Any) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = (await service.sessions(Watcher(), **options))["sessions"]
        return listed

    with indexed(world) as service:
        before = await rows(service)  # from the files
        await found(service, "title")
        assert await rows(service) == before  # from the tables
        assert [(row["branch"], row["title"], row["current"]) for row in before] == [
            (other.key, "A title", True),
            (ref.key, "A title", False),
        ]
        assert before[0]["updated"].endswith("Z") and before[0]["created"] == "2026-02-05T12:30:52Z"
        assert [row["archived_at"] for row in await rows(service, archived=True)] == [7, None, None]
        shelf.talk(ref).session(title="Another")
        shelf.write(ref)
        assert [row["title"] for row in await rows(service)] == ["A title", "Another"]


async def test_a_long_list_goes_by_file(world: World, monkeypatch) -> None:
    monkeypatch.setattr(group, "INLINE_LIMIT", 100)
    shelf = Shelf(world.kernel.config.sessions_dir)
    shelf.new("one", title="Ein Titel – ä")
    shelf.new("two")
    shelf.close()
    with indexed(world) as service:
        answer = await service.sessions(Watcher())
        listed = json.loads(await asyncio.to_thread(Path(answer["path"]).read_bytes))["sessions"]
        assert [row["title"] for row in listed] == ["Ein Titel – ä", None]
