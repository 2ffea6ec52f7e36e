"""What the command line asks of the daemon has what it needs."""

import inspect

import pytest

from pyagentd.api import methods
from pyagentd.api.group import Group
from pyagentd.api.reports import Pages
from pyagentd.api.views import Lists
from pyagentd.cli import main
from pyagentd.cli.output import ExitCode


def _needed(group: type[Group], method: str) -> set[str]:
    """Return the arguments without which the daemon makes no such page or list."""
    parameters = inspect.signature(getattr(group, method)).parameters.values()
    return {each.name for each in parameters if each.kind is each.KEYWORD_ONLY and each.default is each.empty}


PAGES = {
    name: needed
    for name, method in methods(Pages)
    if (needed := _needed(Pages, method)) and needed <= {"branch", "id"}
}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_asked_for_with_what_it_needs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", page]) == ExitCode.USAGE
    assert ("SESSION" if "branch" in PAGES[page] else "--id") in capsys.readouterr().err
    if PAGES[page] == {"branch", "id"}:
        assert main(["report", page, "a-session"]) == ExitCode.USAGE
        assert "--id" in capsys.readouterr().err


ELSEWHERE = [
    (command, name)
    for command, group in (("list", Lists), ("report", Pages))
    for name, method in methods(group)
    if not _needed(group, method) <= {"branch", "id"}
]


@pytest.mark.parametrize(("command", "name"), ELSEWHERE)
def test_what_takes_more_than_a_session_says_which_command_prints_it(
    command: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, name]) == ExitCode.USAGE
    assert " is printed by pyagentd " in capsys.readouterr().err
