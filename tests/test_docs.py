"""The pages of the repository: their links lead somewhere, and what pages and code name is there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pyagentd.cli.app import cli

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


_PLACE = re.compile(r"`([\w/]+\.py)`(?:, `(\w+)`)?")


def test_places_in_the_code_that_the_architecture_names_are_there():
    """A file is named as in ``pyagentd/``, and what of it is meant behind it."""
    missing = []
    for name, what in _PLACE.findall((ROOT / "docs/ARCHITECTURE.md").read_text("utf-8")):
        places = [ROOT / "pyagentd" / name, ROOT / name]
        file = next((each for each in places if each.exists()), None)
        if file is None or (what and not re.search(rf"(?:class|def) {what}\b", file.read_text("utf-8"))):
            missing.append(f"{name} {what}")
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


_MANUAL = ROOT / "docs/manual/pyagentd.org"
_CODE = re.compile(r"`([^`\n]+)`|(?:^|(?<=[\s(]))~([^~\n]+)~(?=[\s,.;:)]|$)")
_COMMAND = re.compile(r"(?:^|[|$(;&]|\bdo )\s*pyagentd((?: +(?!#|[|&;]|\d?>)\S+)*)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")


def code(page: Path) -> Iterator[tuple[int, str]]:
    """Yield line number and text of what a page marks as code: words in a line, and lines of blocks."""
    inside = False
    text = re.sub(r"\\\n *", "", page.read_text("utf-8"))  # a command on several lines
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(("```", "#+begin_", "#+end_")):
            inside = not inside
        elif inside or line.startswith("    "):
            yield number, line.strip()
        else:
            yield from ((number, found[1] or found[2]) for found in _CODE.finditer(line))


def resolve(words: list[str]) -> tuple[click.Command, str]:
    """Return the command that ``words`` begin with; of ``save|clear`` each is looked up."""
    command: click.Command = cli
    context = click.Context(cli)
    for word in words:
        if not isinstance(command, click.Group) or not re.fullmatch(r"[a-z][a-z|-]*", word):
            break
        found = [command.get_command(context, each) for each in word.split("|")]
        if None in found:
            return command, word
        command = next(each for each in found if each is not None)
    return command, ""


def options(command: click.Command) -> set[str]:
    """Return the options of a command, of those below it, and those that stand before any command."""
    context = click.Context(command)
    own = {option for each in [*command.params, *cli.params] for option in (*each.opts, *each.secondary_opts)}
    if isinstance(command, click.Group):
        below = (command.get_command(context, name) for name in command.list_commands(context))
        own.update(*(options(each) for each in below if each is not None))
    return own | {"--help"}


@pytest.mark.parametrize("page", [*PAGES, _MANUAL], ids=lambda page: str(page.relative_to(ROOT)))
def test_command_lines_that_a_page_names_are_there(page):
    if page.name == "CHANGELOG.md":
        return  # it tells of what was there
    wrong = []
    for number, text in code(page):
        for found in _COMMAND.finditer(text):
            words = found[1].split()
            while words[:1] and words[0].startswith("-"):  # --host HOST
                del words[:2]
            command, unknown = resolve(words)
            lacking = [each for each in _OPTION.findall(found[1]) if each not in options(command)]
            if unknown or lacking:
                wrong.append(f"{page.name}:{number}: {unknown or lacking}: {text}")
    assert wrong == []


def test_the_table_of_commands_has_all_of_them_with_options_that_they_have():
    page = ROOT / "docs/command-line.md"
    rows = re.findall(r"^\| (`.+?) \| (.+) \|$", page.read_text("utf-8").replace("\\|", "|"), re.M)
    named = set()
    for first, second in rows:
        there = set()
        for text in re.findall(r"`([a-z][^`]*)`", f"{first} {second}"):
            words = text.split()
            command, unknown = resolve(words)
            if command is not cli:
                named.add(words[0])
                assert not unknown, f"{text}: no such command"
                there |= options(command)
        lacking = [option for option in _OPTION.findall(f"{first} {second}") if there and option not in there]
        assert lacking == [], first
    assert set(cli.list_commands(click.Context(cli))) <= named
