"""The table of operations names the commands that ask for each of them."""

import ast
import inspect
import textwrap
from collections.abc import Iterator

import click
import pytest

from pyagentd.api import GROUPS, methods
from pyagentd.api.reports import Pages
from pyagentd.cli import main
from pyagentd.cli.app import cli
from pyagentd.cli.output import ExitCode
from pyagentd.wire.operations import operation

DECLARED = {
    name: operation(name, getattr(group, method)).commands for group in GROUPS for name, method in methods(group)
}


def commands(command: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yield all commands with their names."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            if (found := command.get_command(context, name)) is not None:
                yield from commands(found, (*path, name))
    if path and command.callback is not None:
        yield " ".join(path), command


def test_only_commands_that_exist_are_declared() -> None:
    there = {name for name, _ in commands()}
    assert {each for declared in DECLARED.values() for each in declared} <= there


def test_a_command_is_declared_by_each_operation_that_it_calls() -> None:
    missing = []
    for name, command in commands():
        assert command.callback is not None
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(command.callback))))
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Attribute(attr="call"), args=[ast.Constant(value=str(called)), *_]):
                    if name not in DECLARED[called]:
                        missing.append((called, name))
    assert missing == []


def _needed(page: str) -> set[str]:
    """Return the arguments without which the daemon makes no such page."""
    parameters = inspect.signature(getattr(Pages, page)).parameters.values()
    return {each.name for each in parameters if each.kind is each.KEYWORD_ONLY and each.default is each.empty}


PAGES = {
    name: needed for name, method in methods(Pages) if (needed := _needed(method)) and needed <= {"branch", "id"}
}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_asked_for_with_what_it_needs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", page]) == ExitCode.USAGE
    assert ("SESSION" if "branch" in PAGES[page] else "--id") in capsys.readouterr().err
    if PAGES[page] == {"branch", "id"}:
        assert main(["report", page, "a-session"]) == ExitCode.USAGE
        assert "--id" in capsys.readouterr().err
