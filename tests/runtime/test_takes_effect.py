"""What is changed between two prompts of a conversation holds for the next request."""

from __future__ import annotations

from pyagentd.store import paths
from tests.runtime.test_approvals import talking
from tests.runtime.world import World


async def test_every_change_is_in_the_next_request(world: World) -> None:
    world.preset("main", tools="Read, Write, PersistentAgent")
    world.preset("helper")
    service = world.service()
    async with talking(world, service) as talk:
        file = paths.preset_file(talk.branch.ref.branch_dir)

        async def next_request() -> tuple[dict[str, object], dict[str, str]]:
            world.server.say("Yes.")
            await world.kernel.prompt(talk.branch, text="And now?", options=world.options)
            await talk.watcher.finished(talk.branch)
            body = world.server.last.body
            return body, {tool["name"]: tool["description"] for tool in body["tools"]}

        def changed(old: str, new: str) -> None:
            text = file.read_text()
            assert old in text
            file.write_text(text.replace(old, new))

        body, tools = await next_request()
        assert body["model"] == "model-main" and set(tools) >= {"Read", "Write", "PersistentAgent"}
        changed("model-main", "model-other")
        body, _ = await next_request()
        assert body["model"] == "model-other"
        file.write_text(file.read_text() + "\nAlways answer in rhymes.\n")
        body, _ = await next_request()
        assert "Always answer in rhymes." in str(body["system"])
        world.preset("reviewer")
        _, tools = await next_request()
        assert "reviewer" in tools["PersistentAgent"] or "reviewer" in str(world.server.last.body["tools"])
        changed("temperature: 0.5", "temperature: 0.5\nread-only: true")
        _, tools = await next_request()
        assert "Write" not in tools and "Read" in tools
