"""The PersistentAgent tool as the model and the person who approves it see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyagentd.errors import UserError
from pyagentd.features.agents import MAX_DEPTH, Assignment, persistent_agent
from pyagentd.policy.presets import Commands, Paths, Preset, read_wanted
from pyagentd.reader import Source
from pyagentd.runtime.status import Outcome
from pyagentd.tools.invoke import Envelope, invoke
from pyagentd.tools.spec import ToolContext

GOOD = {"preset": "explorer", "description": "find it", "prompt": "Find it."}


class Spawner:
    """Stands for the host: notes what was asked of it and answers ``outcome``."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.asked: list[Assignment] = []

    def templates(self) -> Mapping[str, Preset]:
        names = ("explorer", "executor")
        return {name: Preset(name=name, backend="b", model="m", description=f"the {name}") for name in names}

    async def run_agent(self, wanted: Assignment) -> Outcome:
        self.asked.append(wanted)
        return self.outcome

    def reads(self) -> Sequence[str]:
        return ("/work/**",)


async def call(args: Mapping[str, Any], outcome: Outcome, depth: int = 0) -> tuple[Envelope, Spawner]:
    spawner = Spawner(outcome)
    place = Path("/tmp")
    context = ToolContext(root=place, branch_dir=place, spool_dir=place, readable=lambda path: True)

    async def authorise(action: object) -> None:
        return None

    return await invoke(
        persistent_agent(spawner, spawner.templates(), depth=depth), dict(args), context, authorise
    ), spawner


DONE = Outcome(reason="done", text="found")


@pytest.mark.spec("000", "Tool parameters validated")
@pytest.mark.parametrize("missing", sorted(GOOD))
async def test_every_required_parameter_is_required(missing: str) -> None:
    args = {name: value for name, value in GOOD.items() if name != missing}
    envelope, spawner = await call(args, DONE)
    assert not envelope.ok and missing in envelope.text
    assert spawner.asked == []


async def test_a_preset_that_does_not_exist_is_refused_before_anything_is_made() -> None:
    envelope, spawner = await call(GOOD | {"preset": "nobody"}, DONE)
    assert not envelope.ok and "explorer" in envelope.text
    assert spawner.asked == []


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("prompt", ""),
        ("prompt", "\n "),
        ("prompt", None),
        ("prompt", ["Find it."]),
        ("description", ""),
        ("description", {}),
        ("preset", ""),
        ("allowed_paths", "/a/**"),
        ("allowed_paths", ["relative/**"]),
        ("allowed_paths", ["/a", 47]),
        ("denied_paths", ["/a/../b"]),
        ("denied_paths", {"/a": True}),
        ("background", "yes"),
    ],
)
async def test_an_argument_that_is_no_good_is_named_and_nothing_is_made(argument: str, value: object) -> None:
    envelope, spawner = await call(GOOD | {argument: value}, DONE)
    assert not envelope.ok and argument in envelope.text
    assert spawner.asked == []


@pytest.mark.parametrize("read", [None, [], ["/a/**"]])
async def test_nil_empty_and_given_paths_stay_apart(read: list[str] | None) -> None:
    args = GOOD if read is None else GOOD | {"allowed_paths": read}
    _, spawner = await call(args, DONE)
    (asked,) = spawner.asked
    assert asked.read == (None if read is None else tuple(read)) and asked.preset == "explorer" and asked.deny == ()


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (DONE, "found"),
        (Outcome(reason="aborted", text="half"), "Error: User aborted agent"),
        (
            Outcome(reason="error", text="", code="provider-error", message="refused"),
            'Error: API failure\n(:error (:code "provider-error" :message "refused"))',
        ),
        (
            Outcome(reason="error", text="", code="provider-unavailable", message='no "route"\nto host'),
            'Error: Network failure\n(:error (:code "provider-unavailable" :message "no \\"route\\"\\nto host"))',
        ),
        (Outcome(reason="aborted", text="half", message="aborted by parent"), "Error: aborted by parent"),
        (Outcome(reason="done", text=""), "(the agent finished without saying anything)"),
    ],
)
async def test_every_way_an_agent_ends_is_a_result(outcome: Outcome, text: str) -> None:
    envelope, _ = await call(GOOD, outcome)
    assert envelope.text == text
    assert envelope.ok == (outcome.reason == "done")


async def test_agents_may_be_nested_only_so_deep() -> None:
    envelope, spawner = await call(GOOD, DONE, depth=MAX_DEPTH)
    assert not envelope.ok and spawner.asked == []
    envelope, _ = await call(GOOD, DONE, depth=MAX_DEPTH - 1)
    assert envelope.ok


def test_the_presets_found_are_the_choices_and_are_described() -> None:
    spec = persistent_agent(made := Spawner(DONE), made.templates(), depth=0)
    assert spec.input_schema["properties"]["preset"]["enum"] == ["executor", "explorer"]
    assert "- explorer: the explorer" in spec.description
    assert spec.confirm and spec.kind == "meta"


def test_a_request_to_read_everything_is_said_to_whoever_approves_it() -> None:
    spec = persistent_agent(made := Spawner(DONE), made.templates(), depth=0)
    place = Path("/tmp")
    context = ToolContext(root=place, branch_dir=place, spool_dir=place, readable=lambda path: True)
    assert spec.preview is not None
    assert "EVERYTHING" in spec.preview(GOOD | {"allowed_paths": []}, context)
    assert "EVERYTHING" not in spec.preview(GOOD, context)


MAKER = Preset(
    name="explorer",
    backend="b",
    model="m",
    paths=Paths(write=("/work/out/**",)),
    shell=Commands(allow=("*",), network=True, confine=False),
)


@pytest.mark.parametrize(
    ("preset", "shown"),
    [
        (MAKER, ["May write: /work/out/**", "May run: ANY COMMAND, with the NETWORK, NOT CONFINED"]),
        (replace(MAKER, paths=Paths(), shell=Commands()), ["May write: /tmp/** at most", "May run: nothing"]),
        (replace(MAKER, shell=Commands(allow=("git", "make"))), ["May write: /work/out/**", "May run: git, make"]),
    ],
    ids=["anything", "nothing", "some"],
)
def test_what_the_agent_may_write_and_run_is_shown(preset: Preset, shown: list[str]) -> None:
    class Other(Spawner):
        def templates(self) -> Mapping[str, Preset]:
            return {"explorer": preset}

    place = Path("/tmp")
    spec = persistent_agent(made := Other(DONE), made.templates(), depth=0)
    assert spec.preview is not None
    context = ToolContext(root=place, branch_dir=place, spool_dir=place, readable=lambda path: True)
    assert spec.preview(GOOD, context).splitlines()[1:3] == shown


def test_the_command_of_a_server_that_starts_with_the_agent_is_shown() -> None:
    wanted = read_wanted(
        {"files": True, "own": {"command": ["python", "a b.py"]}, "web": {"url": "https://x"}},
        Source.at("p:1", UserError),
    )

    class Other(Spawner):
        def templates(self) -> Mapping[str, Preset]:
            return {"explorer": replace(MAKER, mcp=wanted)}

    place = Path("/tmp")
    spec = persistent_agent(made := Other(DONE), made.templates(), depth=0)
    assert spec.preview is not None
    context = ToolContext(root=place, branch_dir=place, spool_dir=place, readable=lambda path: True)
    assert "MCP servers: files, own (python 'a b.py'), web (https://x)" in spec.preview(GOOD, context).splitlines()
