"""The lists as people see them: which rows, in which words, and what can be done with each."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from pyagentd.api import Service
from pyagentd.api.views import session_forest
from pyagentd.cli.output import print_page
from pyagentd.errors import BadRequest, NotFound
from pyagentd.features.indexer import Indexer
from pyagentd.policy.presets import DEFAULT_PRESET
from pyagentd.store.paths import ref_of
from pyagentd.store.registry import Registry
from tests.features.tasks.test_tasks import bash, over, run
from tests.features.test_agents import GRANT, converse, spawn
from tests.features.test_overview import told
from tests.features.test_snapshots import talking as changing
from tests.features.test_snapshots import write
from tests.features.test_usage import CONFIG, USAGE
from tests.runtime.test_approvals import bash as command
from tests.runtime.test_approvals import talking
from tests.runtime.world import Calls, Watcher, World
from tests.server import answer, silent


def texts(view: dict[str, Any]) -> list[list[str]]:
    """Return the cells of a view."""
    return [[cell["text"] for cell in row["cells"]] for row in view["rows"]]


def act(view: dict[str, Any], key: str, row: int = 0) -> tuple[str, dict[str, Any]]:
    """Return the operation that a key calls for a row, and its arguments, as a client puts them together."""
    (action,) = (each for each in view["actions"] if each["key"] == key)
    facts = view["rows"][row]["facts"]
    taken = {name.replace("-", "_"): facts[name.replace("-", "_")] for name in action["takes"]}
    return action["operation"].replace("-", "_"), {**taken, **action["arguments"]}


async def do(service: Calls, view: dict[str, Any], key: str, row: int = 0) -> dict[str, Any]:
    name, arguments = act(view, key, row)
    reply: dict[str, Any] = await getattr(service, name)(Watcher(), **arguments)
    return reply


async def test_every_view_is_told_with_its_arguments_and_every_row_fits_its_columns(world: World) -> None:
    service, ref = world.service(), world.session()
    found = (await service.views(Watcher()))["views"]
    assert {"running", "schedules", "tasks"} <= {each["name"] for each in found}
    operations = service.operations()
    for each in found:
        if each["name"] == "usage":  # needs an index, see below
            continue
        assert each["summary"] and each["session"] in (None, "optional", "required")
        given = {"branch": ref.key} if each["session"] or each["name"] == "contexts" else {}
        view = await service.view(Watcher(), name=each["name"], arguments=given)
        assert view["title"] and view["empty"] and view["columns"][-1]["width"] == 0
        assert all(len(row["cells"]) == len(view["columns"]) for row in view["rows"])
        keys = [action["key"] for action in view["actions"]]
        marked = {"m", "u", "U"} if any(action["several"] for action in view["actions"]) else set()
        assert len(keys) == len(set(keys)) and not {"g", "q", "/", "?", "S", "+", *marked} & set(keys)
        for action in view["actions"]:
            if action["operation"] is not None:
                parameters = operations[action["operation"]].__annotations__
                assert {name.replace("-", "_") for name in action["takes"]} <= parameters.keys()
                assert action["arguments"].keys() <= parameters.keys()
            assert (
                action["question"] is None
                or "%s" not in action["question"]
                or not action["several"]
                or action["noun"]
            )


async def test_a_view_that_is_not_there_or_not_meant_so_says_what_there_is(world: World) -> None:
    service = world.service()
    with pytest.raises(NotFound, match='Did you mean "running"'):
        await service.view(Watcher(), name="runing")
    for ask, one in ((service.view, "schedules"), (service.report, "inspect")):
        with pytest.raises(NotFound) as refused:
            await ask(Watcher(), name="zzz")
        assert refused.value.hint.startswith("There are: ") and one in refused.value.hint
    with pytest.raises(BadRequest, match=":brnch"):
        await service.view(Watcher(), name="schedules", arguments={"brnch": "x"})


async def test_what_runs_says_who_does_what_with_agents_below_and_is_stopped(world: World) -> None:
    world.preset("helper", model="model-helper", tools="Read, PersistentAgent")
    world.server.say(answer("I delegate.", spawn()), silent())
    service, watcher = world.service(), Watcher()
    made = await service.create_session(watcher, name="Tea", preset="main", titled=True)
    ref = ref_of(Path(made["branch"]))
    assert (await service.view(watcher, name="running", watch=True))["empty"] == "Nothing is running."
    async with world.kernel.using(ref) as live:
        await world.kernel.prompt(live, text="Go.", options=world.granted(*GRANT))
        await watcher.until(lambda: any(row["agent"] and row["phase"] for row in told(watcher)))
        view = await service.view(Watcher(), name="running")
        (own, agent) = texts(view)
        assert (own[0], own[1], own[4]) == ("main", "busy", "Tea") and agent[0] == "└ helper"
        assert view["note"] == "2 running" and view["rows"][0]["visit"]["branch"] == ref.key
        assert (await do(service, view, "k"))["aborted"]
    again = await service.view(Watcher(), name="running")
    assert again["rows"] == []
    assert (await do(service, view, "k"))["note"] == "Not running"


def branch(path: str, updated: int, **more: Any) -> dict[str, Any]:
    """Return a row of ``sessions`` of the branch at ``path``, last written on day ``updated``."""
    place = Path("/s") / path
    agent = place.parent.name == "agents"
    return {
        "branch": str(place),
        "session_dir": str(place if agent else place.parent.parent),
        "session_id": place.name if agent else place.parent.parent.name,
        "branch_name": "main" if agent else place.name,
        "agent": agent,
        "parent": str(place.parent.parent) if agent else None,
        "title": None,
        "preset": None,
        "state": "idle",
        "created": None,
        "updated": f"2026-01-{updated:02}T10:00:00+00:00",
        "current": False,
        "archived_at": None,
        "tokens": 0,
        "usd": 0.0,
        "unpriced": False,
        **more,
    }


def test_sessions_are_trees_the_latest_first_with_what_they_cost() -> None:
    main, agent = "tea/branches/main", "tea/branches/main/agents/explorer-20260101000001-look"
    forest = session_forest(
        [
            branch("cup/branches/main", 2, title="A cup", current=True, tokens=950),
            branch("tea/branches/x", 5, title="Making tea", current=True, tokens=2000, usd=1.0),
            branch(main, 4, title="Making tea", tokens=12_000, usd=0.5),
            branch(agent, 3, title="Looks around", tokens=8000, usd=0.25),
            branch(f"{agent}/agents/x-20260101000002-deep", 3, tokens=500_000, unpriced=True),
            branch("bag/branches/main", 9, current=True, state="waiting"),
            branch("lost/branches/main/agents/y-20260101000002-z", 1),
        ]
    )
    lines = [line for node in forest for line in node.lines()]
    assert [(stem, Path(node.row["branch"]).name, level) for node, stem, level in lines] == [
        ("", "main", 0),
        ("", "x", 0),
        ("└ ", "main", 1),
        ("  └ ", "explorer-20260101000001-look", 2),
        ("    └ ", "x-20260101000002-deep", 3),
        ("", "main", 0),
        ("", "y-20260101000002-z", 0),
    ]
    spent = {Path(node.row["branch"]).name: node.spent for node, *_ in lines[1:5]}
    assert spent["x"] == (2000, 1.0, False), "what other branches cost is theirs"
    assert spent["main"] == (520_000, 0.75, True)
    (found,) = [kept for node in forest if (kept := node.matching(["looks", "explorer"]))]
    assert [Path(node.row["branch"]).name for node, *_ in found.lines()] == [
        "x",
        "main",
        "explorer-20260101000001-look",
    ]


async def test_sessions_are_listed_filtered_cut_archived_and_listed_again(world: World) -> None:
    service = world.service()
    for name in ("Tea", "Coffee"):
        await service.create_session(Watcher(), name=name, preset="main", titled=True)
    view = await service.view(Watcher(), name="sessions")
    assert {row[0] for row in texts(view)} == {"Tea", "Coffee"} and view["filters"] and not view["more"]
    assert {row["facts"]["what"] for row in view["rows"]} == {"session"} and texts(view)[0][2] == "idle"
    cut = await service.view(Watcher(), name="sessions", limit=1)
    assert len(cut["rows"]) == 1 and cut["more"]
    view = await service.view(Watcher(), name="sessions", arguments={"words": "TEA main"})
    assert [row[0] for row in texts(view)] == ["Tea"]
    assert (await service.view(Watcher(), name="sessions", arguments={"words": "milk"}))["empty"].startswith(
        "No session"
    )
    await do(service, view, "a")
    assert [row[0] for row in texts(await service.view(Watcher(), name="sessions"))] == ["Coffee"]
    view = await service.view(Watcher(), name="sessions", arguments={"archived": True, "words": "tea"})
    assert texts(view)[0][2] == "archived" and view["note"] == "archived too"
    await do(service, view, "a")
    assert len((await service.view(Watcher(), name="sessions"))["rows"]) == 2


async def test_what_is_asked_and_what_waits_is_listed(world: World) -> None:
    service = world.service()
    async with talking(world, service) as talk:
        await talk.say(command("make -v"), "Done")
        await talk.ask()
        view = await service.view(Watcher(), name="asks")
        assert texts(view)[0][1:3] == ["", "Bash make -v"] and view["follows"] == ["asks"]
        (ask,) = (row["facts"]["ask"] for row in view["rows"])
        page = printed(await service.report(Watcher(), name="ask", arguments={"id": ask["id"]}))
        assert page.startswith("Allow Bash make -v?\n") and '"command": "make -v"' in page
        for part in (ask["remember"][0], ask["covers"][0], "messages.jsonl", "state.db", "Asked because"):
            assert part in page
        await talk.say("Then.", text="And\nthen?")
        view = await service.view(Watcher(), name="queue", arguments={"branch": talk.branch.ref.key})
        assert texts(view)[0][2] == "And then?" and view["rows"][0]["facts"]["text"] == "And\nthen?"
        await talk.answer("allow")
        await talk.end()
    assert (await service.view(Watcher(), name="asks"))["rows"] == []


async def test_named_agents_their_configuration_and_defaults_are_listed_and_reset(world: World) -> None:
    world.preset(DEFAULT_PRESET)
    service = world.service()
    await service.agent_init(Watcher(), name="web", system_prompt="You look\nafter it.")
    view = await service.view(Watcher(), name="named")
    ((name, status, model, *_, place),) = texts(view)
    assert (name, status) == ("web", "idle") and place.endswith("/web")
    assert model == (await service.agent_list(Watcher()))["agents"][0]["effective_model"] != ""
    facts = view["rows"][0]["facts"]
    assert facts["config"] == {"kind": "view", "name": "agent", "arguments": {"agent": "web"}}
    contexts = await service.view(Watcher(), name="contexts", arguments=facts["contexts"]["arguments"])
    assert contexts["rows"] == [] and contexts["note"] is None
    assert facts["docs"]["file"].endswith("/web/docs") and facts["workspace"]["file"].endswith("/web/workspace")
    await service.agent_config(Watcher(), name="web", key="permissions", value="open")
    config = await service.view(Watcher(), name="agent", arguments={"agent": "web"})
    assert [row[:2] for row in texts(config)][:2] == [["name", "web"], ["system_prompt", "You look after it."]]
    assert texts(config)[3][1] == "open" and config["rows"][1]["facts"]["value"] == "You look\nafter it."
    assert config["rows"][3]["facts"]["choices"] == ["open", "standard", "locked"]
    await do(service, config, "D", 3)
    config = await service.view(Watcher(), name="agent", arguments={"agent": "web"})
    assert texts(config)[3][1] != "open"
    await service.settings(Watcher(), key="idle_timeout", value="45min")
    view = await service.view(Watcher(), name="settings")
    assert [row[:2] for row in texts(view)][2] == ["idle_timeout", "45min"]
    await do(service, view, "D", 2)
    assert texts(await service.view(Watcher(), name="settings"))[2][1] == "30min"


async def test_schedules_are_listed_in_order_sent_now_and_cancelled(world: World) -> None:
    service, ref = world.service(), world.session()
    world.server.rule = lambda request: answer("Looked.")
    for delay, text in (("2h", "Later."), ("1h", "Look\nagain.")):
        await service.schedule_add(Watcher(), branch=ref.key, text=text, delay=delay, env=dict(world.options.env))
    view = await service.view(Watcher(), name="schedules", arguments={"branch": ref.key})
    assert [row[4] for row in texts(view)] == ["Look again.", "Later."]
    assert (
        texts(view)[0][3] == "you"
        and texts(view)[0][-1] == view["rows"][0]["id"]
        and view["rows"][0]["label"].startswith("“Look again.”, ")
    )
    assert len((await service.view(Watcher(), name="schedules", limit=1))["rows"]) == 1
    assert (await service.view(Watcher(), name="schedules", limit=1))["more"]
    assert (await do(service, view, "x"))["run"]
    await do(service, view, "k")
    assert [row[4] for row in texts(await service.view(Watcher(), name="schedules"))] == ["Later."]


async def test_tasks_are_listed_with_their_ends_the_latest_first(world: World) -> None:
    service, ref = world.service(), world.session()
    await run(world, ref, bash("echo tea"), bash("exit 3"), "Done.")
    await over(world.kernel, ref.session_id)
    view = await service.view(Watcher(), name="tasks", arguments={"branch": ref.key})
    assert [(row[0], row[2], row[-1]) for row in texts(view)] == [
        ("task_002", "failed (3)", "exit 3"),
        ("task_001", "completed", "echo tea"),
    ]
    assert not view["rows"][0]["facts"]["running"]
    assert view["rows"][0]["visit"]["called"] == f"task_002 of {ref.session_id}"
    assert (await do(service, view, "k"))["status"] == "failed", "what has ended stays as it is"
    place = view["rows"][1]["visit"]
    page = await service.report(Watcher(), name=place["name"], arguments=place["arguments"])
    first, file, last = (line["parts"] for line in page["lines"])
    assert (first[0]["text"], first[2], last[0]["text"]) == ("completed", "echo tea", "tea")
    assert file[0]["visit"] == {"kind": "file", "file": file[0]["text"]}
    assert page["end"] and "output" in page["follows"] and not page["actions"], "it has ended"


async def test_agents_are_a_tree_that_is_stopped_as_a_whole(world: World) -> None:
    world.preset("helper", model="model-helper", tools="Read, PersistentAgent")
    world.server.say(answer("I delegate.", spawn()), silent())
    ref, service, watcher = world.session(), world.service(), Watcher()
    await service.running(watcher, watch=True)
    async with world.kernel.using(ref) as live:
        await world.kernel.prompt(live, text="Go.", options=world.granted(*GRANT))
        await watcher.until(lambda: any(row["agent"] and row["phase"] for row in told(watcher)))
        view = await service.view(Watcher(), name="agents", arguments={"branch": ref.key})
        ((shown, state, *_),) = texts(view)
        assert shown.startswith("└ helper  ") and state == "running"
        agent = view["rows"][0]["facts"]["branch"]
        of_agent = await service.view(Watcher(), name="agents", arguments={"branch": agent})
        assert texts(of_agent) == texts(view), "that of an agent is that of its root"
        assert (await do(service, view, "K"))["note"] is None
    assert (await do(service, view, "k"))["note"] == "Not running"
    assert (await do(service, view, "K"))["note"] == "Nothing is running"


async def test_branches_are_a_tree_and_one_becomes_the_current(world: World) -> None:
    service = world.service()
    made = await service.create_session(Watcher(), name="Tea", preset="main", titled=True)
    ref = ref_of(Path(made["branch"]))
    world.server.rule = lambda request: answer("Boil water.")
    async with world.kernel.using(ref) as live:
        await world.kernel.prompt(live, text="How?", options=world.options)
        await asyncio.wait([live.task])
    await service.branch(Watcher(), branch=ref.key, position=1, name="milk")
    view = await service.view(Watcher(), name="branches", arguments={"branch": ref.key})
    (main, milk) = texts(view)
    assert main[0].strip(" *") == "main" and "└ " in milk[0] and milk[0].endswith("-milk")
    assert milk[-1] == "main" and view["current"] == ref.key
    await do(service, view, "s", 1)
    view = await service.view(Watcher(), name="branches", arguments={"branch": ref.key})
    assert [row[0].startswith("* ") for row in texts(view)] == [False, True]


async def test_grants_and_decisions_are_listed_revoked_and_looked_at(world: World) -> None:
    service = world.service()
    async with talking(world, service) as talk:
        await talk.say(command("make -v"), "Done")
        await talk.answer("session")
        await talk.end()
        ref = talk.branch.ref
        view = await service.view(Watcher(), name="grants", arguments={"branch": ref.key})
        assert texts(view)[0][:2] == ["session", "tool:Bash:make -v"] and texts(view)[0][-1]
        assert view["rows"][0]["label"] == "tool:Bash:make -v in this session"
        assert (await do(service, view, "r"))["revoked"] == 1
    assert (await service.view(Watcher(), name="grants", arguments={"branch": ref.key}))["rows"] == []
    view = await service.view(Watcher(), name="audit", arguments={"branch": ref.key}, limit=1)
    assert texts(view)[0][1:3] == ["approved", "Bash:make -v"] and view["note"] == ref.session_id
    place = view["rows"][0]["visit"]
    page = printed(await service.report(Watcher(), name=place["name"], arguments=place["arguments"]))
    with pytest.raises(NotFound, match="There is no decision"):
        await service.report(Watcher(), name="decision", arguments={"id": 10**20})
    assert "Action   tool:Bash:make -v" in page and f"Session  {ref.session_id}" in page


async def test_what_was_spent_is_listed_with_bars_and_sums(world: World) -> None:
    (world.home / "config.toml").write_text(CONFIG, encoding="utf-8")
    world.start()
    registry = Registry(world.kernel.config.sessions_dir)
    index = Indexer(world.kernel.state, registry)
    service = Calls(Service(world.kernel, registry, index, stop=lambda: None, clients=lambda: 1), registry)
    index.start()
    world.server.say(answer("Hi.", usage=USAGE))
    ref = world.session()
    await converse(world, ref)
    try:
        view = await service.view(Watcher(), name="usage", arguments={"by": "session", "days": 0})
        by_day = await service.view(Watcher(), name="usage", arguments={"by": "day"})
        found = await service.view(Watcher(), name="search", arguments={"query": "hi"})
        nothing = await service.view(Watcher(), name="search", arguments={"query": "balloon"})
    finally:
        index.close()
    assert [row[0] for row in texts(view)] == [ref.session_id, "Together"]
    assert texts(view)[0][1] == "1" and texts(view)[0][-1] == "█" * 16
    assert [row["level"] for row in found["rows"]] == [0, 1] and texts(found)[1] == ["  Model", "Hi."]
    hit = found["rows"][1]
    assert hit["cells"][1]["matches"] == [[0, 2]] and found["current"] == hit["id"]
    assert hit["visit"]["kind"] == "message" and hit["visit"]["branch"] == ref.key and hit["visit"]["message_id"]
    assert nothing["rows"] == [] and "No matches for balloon" in nothing["empty"]
    assert by_day["rows"][0]["visit"]["arguments"] == {"by": "session", "days": 30}
    assert view["note"] == "by session, always" and view["rows"][0]["visit"]["branch"] == ref.key


async def test_the_inspector_is_an_outline_with_requests_to_open(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    service, ref = world.service(), world.session()
    page = await service.report(Watcher(), name="inspect", arguments={"branch": ref.key})
    assert "Tools" not in printed(page), "the model was told of none yet"
    world.server.rule = lambda request: answer("Boil\n* water.")
    async with world.kernel.using(ref) as live:
        await world.kernel.prompt(live, text="How?", options=world.options)
        await asyncio.wait([live.task])
    page = await service.report(Watcher(), name="inspect", arguments={"branch": ref.key})
    headings = [line for line in page["lines"] if line["level"]]
    assert [line["level"] for line in headings[:4]] == [1, 2, 2, 2]
    assert next(line["parts"][0]["text"] for line in headings if line["folded"]) == "System prompt"
    assert "done  How?" in printed(page) and "writes: " in printed(page)
    (place,) = (part["visit"] for line in headings for part in line["parts"] if part["visit"])
    print_page(page)
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index("** System prompt …") + 1].startswith("** Tools (") and "* done  How?" in lines
    sent = await service.report(Watcher(), name=place["name"], arguments=place["arguments"])
    assert '"How?"' in printed(sent)
    with pytest.raises(NotFound, match="page"):
        await service.report(Watcher(), name="inspekt")


async def test_files_that_agents_changed_are_listed_with_what_became_of_them(world: World) -> None:
    service = world.service()
    async with changing(world) as talk:
        await talk.turn(write("tea", "green"))
        view = await service.view(Watcher(), name="changes", arguments={"branch": talk.branch.key})
        every = next(each for each in view["actions"] if each["key"] == "R")
        await service.restore(Watcher(), **every["arguments"])
        then = await service.view(Watcher(), name="changes", arguments={"branch": talk.branch.key})
        undo = next(each for each in then["actions"] if each["key"] == "u")
        await service.undo_restore(Watcher(), **undo["arguments"])
    assert not then["rows"] and (world.project / "tea").read_text() == "green"
    assert [each["key"] for each in view["actions"]] == ["r", "c", "O", "R"]
    assert texts(view) == [["created", str(world.project / "tea"), ""]]
    assert "green" in view["rows"][0]["facts"]["diff"] and view["note"] == "whole session"
    assert view["rows"][0]["visit"] == {"kind": "file", "file": str(world.project / "tea")}


async def test_servers_of_a_project_are_listed_as_not_trusted_and_not_started(world: World) -> None:
    service = world.service()
    (world.project / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": {"command": "./serve"}}}))
    view = await service.view(Watcher(), name="mcp", arguments={"root": str(world.project)})
    assert texts(view) == [["theirs", "not trusted", "", "the project", "./serve"]]
    assert "not trusted: read them" in view["note"]
    with pytest.raises(NotFound, match="not trusted"):
        await service.report(Watcher(), name="server", arguments={"name": "theirs", "root": str(world.project)})

    page = await service.report(Watcher(), name="servers", arguments={"root": str(world.project)})
    (trust,) = page["actions"]
    assert "./serve" in printed(page) and "Allow theirs to run with your rights here?" in trust["question"]
    await do_page(service, page, "T")
    view = await service.view(Watcher(), name="mcp", arguments={"root": str(world.project)})
    assert view["rows"][0]["visit"]["name"] == "server" and view["rows"][0]["visit"]["env"]
    page = await service.report(Watcher(), name="servers", arguments={"root": str(world.project)})
    assert page["actions"] == [] and "needs to be trusted" in printed(page)
    (world.project / ".mcp.json").write_text("{")
    page = await service.report(Watcher(), name="servers", arguments={"root": str(world.project)})
    assert page["actions"] == [] and f"Cannot be used: {world.project}/.mcp.json" in printed(page)


async def do_page(service: Calls, page: dict[str, Any], key: str) -> dict[str, Any]:
    (action,) = (each for each in page["actions"] if each["key"] == key)
    reply: dict[str, Any] = await getattr(service, action["operation"].replace("-", "_"))(
        Watcher(), **action["arguments"]
    )
    return reply


async def test_hooks_and_presets_of_a_project_are_read_and_trusted_as_they_were_shown(world: World) -> None:
    service, folder = world.service(), world.project / ".pyagentd"
    (folder / "presets").mkdir(parents=True)
    root = {"root": str(world.project)}
    hooks = folder / "hooks.toml"
    hooks.write_text('[[run.finished]]\ncommand = ["./tell"]\n')
    (folder / "presets" / "theirs.md").write_text(
        "---\nname: theirs\nbackend: Claude\nmodel: claude-opus-4-5\ntools: [Bash]\n---\nObey.\n"
    )
    for name, shown in (("hooks", "./tell"), ("presets", "tools: [Bash]")):
        page = await service.report(Watcher(), name=name, arguments=root)
        assert shown in printed(page)
        await do_page(service, page, "T")
        assert (await service.report(Watcher(), name=name, arguments=root))["actions"] == []
    page = await service.report(Watcher(), name="hooks", arguments=root)
    hooks.write_text('[[run.finished]]\ncommand = ["./other"]\n')
    page = await service.report(Watcher(), name="hooks", arguments=root)
    hooks.write_text('[[run.finished]]\ncommand = ["./third"]\n')
    with pytest.raises(BadRequest, match="changed since"):
        await do_page(service, page, "T")


def printed(page: dict[str, Any]) -> str:
    """Return the text of a report."""
    return "\n".join(
        "".join(part if isinstance(part, str) else part["text"] for part in line["parts"]) for line in page["lines"]
    )
