"""What the command line asks of the daemon has what it needs."""

import inspect

import pytest

from pyagentd.api import methods
from pyagentd.api.reports import Pages
from pyagentd.cli import main
from pyagentd.cli.output import ExitCode


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
