"""What is a command, and what is text for the model."""

from __future__ import annotations

from typing import Any

import pytest

from pyagentd.errors import BadRequest
from pyagentd.features.slash_commands import Answer, Argument, Call, Command, parse_typed


async def nothing(call: Call) -> Answer:
    raise NotImplementedError


def command(name: str, *arguments: Argument) -> Command:
    return Command(name=name, summary="", run=nothing, arguments=arguments)


NAME = Argument(name="name", required=True)
KNOWN = {
    each.name: each
    for each in (
        command("status"),
        command("tasks"),
        command("tasks kill", Argument(name="id", required=True)),
        command("agent init", NAME, Argument(name="system_prompt"), Argument(name="model")),
        command("agent config", NAME, Argument(name="key", choices=("a", "b")), Argument(name="value", takes="rest")),
        command("agent destroy", NAME, Argument(name="keep_files", takes="flag"), Argument(name="yes", takes="flag")),
        command("context save", Argument(name="description", takes="rest")),
        command("server:review"),
    )
}

TEXTS = ["", "/", "/etc/passwd", "/etc/passwd is readable", "/unheard of", "//status", "Do /status", "/statuses"]

COMMANDS: list[tuple[str, str, dict[str, Any]]] = [
    ("/status", "status", {}),
    ("/status\n", "status", {}),
    ("/tasks", "tasks", {}),
    ("/tasks kill task_001", "tasks kill", {"id": "task_001"}),
    ("/server:review", "server:review", {}),
    ("/agent init me", "agent init", {"name": "me"}),
    ("/agent  init me 'You are.' m", "agent init", {"name": "me", "system_prompt": "You are.", "model": "m"}),
    ('/agent init me "Say \\"yes\\"\nor no"', "agent init", {"name": "me", "system_prompt": 'Say "yes"\nor no'}),
    ("/agent config me a don't  do that", "agent config", {"name": "me", "key": "a", "value": "don't  do that"}),
    ('/agent config me a "in quotes"', "agent config", {"name": "me", "key": "a", "value": "in quotes"}),
    ('/agent config me a "in" and out', "agent config", {"name": "me", "key": "a", "value": '"in" and out'}),
    ("/agent destroy me", "agent destroy", {"name": "me"}),
    ("/agent destroy --yes me --keep-files", "agent destroy", {"name": "me", "yes": True, "keep_files": True}),
    ("/context save", "context save", {}),
    ("/context save before\nthe redesign ", "context save", {"description": "before\nthe redesign"}),
]

WRONG = [
    ("/agent", "There is /agent config|destroy|init"),
    ("/agent inti me", "/agent inti is not a command. Did you mean /agent init?"),
    ("/agent init", "/agent init needs a name. /agent init <name> [system_prompt] [model]"),
    ("/agent config me c 1", "'c' is not a value of key. One of a, b"),
    ("/status now", "/status takes no 'now'"),
    ("/agent destroy me --force", "takes no '--force'"),
]


@pytest.mark.parametrize("text", TEXTS)
def test_what_names_no_command_is_text_for_the_model(text: str) -> None:
    assert parse_typed(text, KNOWN) is None


@pytest.mark.parametrize(("text", "name", "arguments"), COMMANDS)
def test_a_command_is_read_with_its_arguments(text: str, name: str, arguments: dict[str, Any]) -> None:
    found = parse_typed(text, KNOWN)
    assert found is not None and (found.command.name, found.arguments) == (name, arguments)


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_a_command_that_does_not_fit_says_how_it_is_typed(text: str, said: str) -> None:
    with pytest.raises(BadRequest) as raised:
        parse_typed(text, KNOWN)
    assert said in str(raised.value)


def test_a_text_of_several_words_without_quotation_marks_is_told() -> None:
    init = command("agent init", NAME, Argument(name="p", quoted=True), Argument(name="model"))
    known = {"agent init": init}
    with pytest.raises(BadRequest, match="several words") as refused:
        parse_typed("/agent init x You are X", known)
    assert '"You are X"' in (refused.value.hint or "")
    found = parse_typed('/agent init x "You are X" m', known)
    assert found is not None and found.arguments == {"name": "x", "p": "You are X", "model": "m"}
