"""The pages of the repository: their links lead somewhere, and what pages and code name is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]+)\)")
_FILE = re.compile(r"`((?:pyagentd|elisp|tests|scripts|docs)/[\w./-]+\.(?:py|el|md|sh|toml))`")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.M)
    return {
        re.sub(r"[^\w\- ]", "", heading.replace("`", "")).strip().lower().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page):
    for link in _LINK.findall(page.read_text("utf-8")):
        path, _, anchor = link.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{link}: there is no {there}"
        assert not anchor or there.suffix != ".md" or anchor in anchors(there), f"{link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page):
    missing = [name for name in _FILE.findall(page.read_text("utf-8")) if not (ROOT / name).exists()]
    assert missing == []


# Documents that the repository does not have. What they said is said where it matters, or in docs/ARCHITECTURE.md.
_ELSEWHERE = re.compile(
    r"\bDESIGN\b|\bDD-\d|§|\bneighbours(?:\.md| [A-C]\.\d)|\bHOUSE\b|\bSTYLE\.md\b|\b[Tt]he guide('s)?\b"
)
_NUMBERED = re.compile(r"\bSPEC\b|\bspec(?:ification)? 00[0-4]\b")
_READ = (".el", ".md", ".org", ".py", ".sh", ".toml", ".yml")


def test_nothing_refers_to_a_document_that_is_not_in_the_repository():
    """Tests name scenarios of the five specifications by number; docs/deviations.md says what those are."""
    found = []
    places = ("docs", "elisp", "presets", "pyagentd", "scripts", "skills", "template", "tests")
    files = [path for place in places for path in sorted((ROOT / place).rglob("*")) if path.suffix in _READ]
    for path in [*PAGES, *files]:
        name = path.relative_to(ROOT).as_posix()
        if name.startswith("tests/spec/") or name in ("tests/test_docs.py", "docs/deviations.md"):
            continue
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if "mark.spec(" not in line:
                wrong = _ELSEWHERE.search(line) or (not name.startswith("tests/") and _NUMBERED.search(line))
                found += [f"{name}:{number}: {line.strip()}"] if wrong else []
    assert found == []


def test_the_reference_of_operations_is_that_of_the_code() -> None:
    done = subprocess.run([sys.executable, "scripts/operations.py", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "run: python scripts/operations.py"
