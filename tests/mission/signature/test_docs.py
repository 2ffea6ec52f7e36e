"""What docs/signatures.md shows is what happens."""

import doctest
from pathlib import Path

import pytest

import pyagentd
from pyagentd.cli import main
from pyagentd.errors import SignatureError
from pyagentd.mission.signature import parse

GUIDE = Path(pyagentd.__file__).parent.parent / "docs" / "signatures.md"
TEXT = GUIDE.read_text()


def test_the_examples_run():
    failed, tried = doctest.testfile(str(GUIDE), module_relative=False)
    assert tried > 20
    assert not failed


def test_the_command_prints_what_is_shown(capsys):
    shown = TEXT.split("$ pyagentd signature check '{id :integer}'\n")[1].split("```")[0]
    main(["signature", "check", "{id :integer}"])
    assert capsys.readouterr().err == shown


def written():
    rows = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `")]
    return [code for row in rows for code in row.split("`")[1::2] if "…" not in code and code[0] in ":[{"]


@pytest.mark.parametrize("code", written())
def test_every_type_in_the_tables_is_one(code):
    try:
        parse(code)
    except SignatureError as error:
        pytest.fail(str(error))
