"""Emacs and the daemon make the same of a file, whoever wrote it and whatever happened to it since.

Of what is torn Emacs alone makes text; the daemon repairs it when the buffer is attached.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyagentd.store.document import text as document
from pyagentd.store.document.text import Span
from tests.e2e.conftest import System
from tests.e2e.emacs import Emacs
from tests.e2e.test_several_emacsen import opened

_ROLES = '((tool (20 24 "t\\"1")) (response (9 14)))'
_BLOCK = f"""\
<!-- Local Variables: -->
<!-- gptel-model: bench -->
<!-- gptel--backend-name: "Claude" -->
<!-- gptel--bounds: {_ROLES} -->
<!-- End: -->
"""
_BODY = "### Hi\n\nHello 👋 e\u0301. Tools, too."
_GOLDEN = Path(__file__).resolve().parents[1] / "store" / "golden"

FILES = {
    "plain": f"{_BODY}\n\n{_BLOCK}",
    "no block": _BODY,
    "empty": "",
    "one newline before": f"{_BODY}\n{_BLOCK}",
    "three newlines before, blanks after": f"{_BODY}\n\n\n{_BLOCK}\n \t\n",
    "nothing but the block": _BLOCK,
    "another comment syntax": f"{_BODY}\n\n" + _BLOCK.replace("<!-- ", ";; ").replace(" -->", ""),
    "no comment syntax, indented": f"{_BODY}\n\n" + _BLOCK.replace("<!-- ", "  ").replace(" -->", ""),
    "a second block without roles": f"{_BODY}\n\n{_BLOCK}\n"
    "<!-- Local Variables: -->\n<!-- gptel-model: other -->\n<!-- gptel--bounds: nil -->\n<!-- End: -->\n",
    "a second block with roles": f"{_BODY}\n\n{_BLOCK}\n"
    "<!-- Local Variables: -->\n<!-- gptel--bounds: ((response (2 4) (12 18))) -->\n<!-- End: -->\n",
    "a block of somebody else before it": f"{_BODY}\n\n<!-- Local Variables: -->\n<!-- x: 1 -->\n<!-- End: -->\n\n"
    + _BLOCK,
    "an empty block before it": f"{_BODY}\n\n{_BLOCK}\n<!-- Local Variables: -->\n<!-- End: -->\n\n{_BLOCK}",
    "one of gptel's before an empty block": f"{_BODY}\n;; Local Variables:\n;; gptel-model: x\n"
    f";; gptel--bounds: {_ROLES}\n;; End:\n\n\n<!-- Local Variables: -->\n<!-- End: -->\n\n{_BLOCK}",
    "a quotation before an empty block": f"{_BODY}\n;; Local Variables:\n;; gptel-model: x\n"
    f";; gptel--bounds: nil\n;; End:\n\n\n<!-- Local Variables: -->\n<!-- End: -->\n\n{_BLOCK}",
    "some in the text": f"{_BODY}\n\n{_BLOCK}\nmore\n{_BLOCK}{_BLOCK}\n\nend\n\n{_BLOCK}",
    "one in a code block": f"{_BODY}\n\n```\n{_BLOCK}```\n\n{_BLOCK}",
    "text below one in a code block": f"{_BODY}\n\n```\n{_BLOCK}```\n",
    "one in an answer": f"{_BODY}\n\n{_BLOCK}\nend\n\n" + _BLOCK.replace(_ROLES, "((response (9 200)))"),
    "text below": f"{_BODY}\n\n{_BLOCK}\nand more\n",
    "text right below": f"{_BODY}\n\n{_BLOCK}x",
    "no end": f"{_BODY}\n\n" + _BLOCK.removesuffix("<!-- End: -->\n"),
    "cut in the bounds": f"{_BODY}\n\n" + _BLOCK[: _BLOCK.index("(response")],
    "cut in a name": f"{_BODY}\n\n" + _BLOCK[: _BLOCK.index("--backend")],
    "only the heading": f"{_BODY}\n\n<!-- Local Variables: -->\n",
    "the end only": f"{_BODY}\n\n<!-- End: -->\n",
    "a line that is not a variable": f"{_BODY}\n\n" + _BLOCK.replace("<!-- gptel-model: bench -->", "<!-- what -->"),
    "the words in a value": f"{_BODY}\n\n" + _BLOCK.replace('"Claude"', '"Local Variables: End:"'),
    "other variables": f"{_BODY}\n\n"
    + _BLOCK.replace(
        '<!-- gptel--backend-name: "Claude" -->',
        '<!-- fill-column: 72 -->\n<!-- eval: (error "no") -->\n<!-- mode: emacs-lisp -->\n'
        '<!-- gptel--preset: terse -->\n<!-- gptel-system-prompt: "Be\\nterse." -->\n<!-- gptel-max-tokens: 99 -->',
    ),
    "a variable twice": f"{_BODY}\n\n" + _BLOCK.replace('"Claude" -->', '"Claude" -->\n<!-- gptel-model: late -->'),
    "unreadable values": f"{_BODY}\n\n" + _BLOCK.replace("bench", "(").replace('"Claude"', "3"),
    "no tools": f"{_BODY}\n\n" + _BLOCK.replace("gptel-model: bench", "gptel--tool-names: nil"),
    "settings without roles": f"{_BODY}\n\n"
    + "".join(line for line in _BLOCK.splitlines(keepends=True) if "bounds" not in line),
    "roles of the old kind": f"{_BODY}\n\n" + _BLOCK.replace(_ROLES, "((2 . 4) (9 . 14))"),
    "roles outside the text": f"{_BODY}\n\n" + _BLOCK.replace("(9 14)", "(9 14) (0 3) (12 16) (30 999) (7 7)"),
    "CRLF everywhere": f"{_BODY}\n\n{_BLOCK}".replace("\n", "\r\n"),
    "CRLF in places": f"{_BODY}\r\nmore\n\n{_BLOCK}",
}

TORN = {
    "an empty block before it",
    "one of gptel's before an empty block",
    "some in the text",
    "one in an answer",
    "text below",
    "text right below",
    "no end",
    "cut in the bounds",
    "cut in a name",
    "a line that is not a variable",
}


@pytest.fixture(scope="module")
def alone() -> Iterator[System]:
    home = Path(tempfile.mkdtemp(prefix="pa-", dir="/tmp"))
    system = System(home)
    yield system
    system.close()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def emacs(alone: System) -> Emacs:
    return alone.emacs()


def _visited(emacs: Emacs, file: Path) -> tuple[str, set[tuple[int, int, str, str]]]:
    """Visit a file, save it as it is, and return the text shown with its roles."""
    emacs.eval(f'(progn (switch-to-buffer (find-file-noselect "{file}")) t)')
    text, spans = _shown(emacs)
    emacs.eval("(let ((save-silently t)) (set-buffer-modified-p t) (save-buffer) (kill-buffer) t)")
    return text, spans


def _shown(emacs: Emacs) -> tuple[str, set[tuple[int, int, str, str]]]:
    text = emacs.eval("(substring-no-properties (buffer-string))")
    bounds = emacs.eval("(pyagentd-block-bounds)") or []
    return text, {(s[0], s[1], str(kind), s[2] if len(s) > 2 else "") for kind, *found in bounds for s in found}


def _file(home: Path, name: str, text: str) -> Path:
    branch = home / f"{name.replace(' ', '-')}-20260101000000" / "branches" / "main"
    branch.mkdir(parents=True)
    file = branch / "session.md"
    file.write_bytes(text.encode())
    return file


def _expected(spans: tuple[Span, ...]) -> set[tuple[int, int, str, str]]:
    return {(span.start + 1, span.end + 1, span.kind, span.id) for span in spans}


@pytest.mark.parametrize("name", [name for name in FILES if name not in TORN])
def test_the_same_text_with_the_same_roles_and_the_same_file_again(emacs: Emacs, tmp_path: Path, name: str) -> None:
    file = _file(tmp_path, name, FILES[name])
    doc = document.parse(FILES[name])
    text, spans = _visited(emacs, file)
    # Where there is nothing yet Emacs shows a prompt to be typed at.
    assert text == (doc.body or "### ")
    assert spans == _expected(doc.spans)
    written = file.read_bytes().decode()
    if doc.body:
        assert written == document.format_file(doc)


@pytest.mark.parametrize("name", sorted(TORN))
def test_what_is_torn_is_repaired_where_there_is_a_daemon(system: System, name: str) -> None:
    _, branch = system.new()
    torn = FILES[name].replace('t\\"1', "t_1")  # a provider takes no other
    (branch / "session.md").write_bytes(torn.encode())
    doc = document.parse(torn)
    emacs = opened(system, branch)
    assert _shown(emacs) == (doc.body, _expected(doc.spans))


@pytest.mark.parametrize("name", ["two-turns.md", "stock-gptel.md"])
def test_golden_files_are_read_alike(emacs: Emacs, tmp_path: Path, name: str) -> None:
    golden = (_GOLDEN / name).read_text()
    doc = document.parse(golden)
    file = _file(tmp_path, name, golden)
    text, spans = _visited(emacs, file)
    assert text == doc.body
    assert spans == _expected(doc.spans)
    assert file.read_text() == document.format_file(doc)
