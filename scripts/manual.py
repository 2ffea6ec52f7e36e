"""The manual: ``python scripts/manual.py [DIRECTORY]`` (``make doc``) writes it to ``build/manual``.

It is put together of ``docs/manual/pyagentd.org``, of ``docs/*.md``, of the commands' own help, and of what Emacs
knows of the package (``scripts/manual.el``). The directory gets ``pyagentd.texi``, ``pyagentd.info`` with the file
``dir`` for Emacs's list of manuals and, where makeinfo is installed, ``pyagentd.html``. Where it is not,
``scripts/info.py`` makes the Info file.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import click
from info import info as formatted
from markdown_it import MarkdownIt
from markdown_it.token import Token

from pyagentd.cli.app import cli

ROOT = Path(__file__).resolve().parents[1]
# In the order of a book; what is not named here follows.
FIRST = (
    *("history", "queue", "context", "plan-and-build", "instructions", "tools", "permissions", "commands", "agents"),
    *("named-agents", "missions-in-sessions", "missions", "signatures", "lisp", "triggers", "hooks", "mcp", "acp"),
    *("observability", "emacs-tools", "gptel", "snapshots", "inspector"),
)
LAST = ("privacy",)
_SECTIONS = ("chapter", "section", "subsection", "subsubsection")


def texinfo(text: str) -> str:
    """Return ``text`` with what Texinfo would read as commands escaped."""
    return re.sub(r"[@{}]", r"@\g<0>", text)


def node(title: str) -> str:
    """Return ``title`` as the name of a node: without what separates nodes."""
    return re.sub(r"\s+", " ", re.sub(r"[.,:()@{}`*“”\"]", " ", title)).strip()


class Pages:
    """The Markdown pages as sections of one chapter.

    Args:
        paths: The pages, in their order.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._markdown = MarkdownIt("commonmark").enable("table")
        self._pages = {path.name: self._markdown.parse(path.read_text("utf-8")) for path in paths}
        self._titles = {name: _title(tokens) for name, tokens in self._pages.items()}
        self._nodes: set[str] = set()

    def render(self) -> Iterator[str]:
        """Yield the text of every page."""
        for name, tokens in self._pages.items():
            yield from Page(tokens, self._node(name), self._target).render()

    def _node(self, name: str) -> Callable[[str, bool], str]:
        """Return what gives headings of page ``name`` nodes that no other has."""

        def unique(title: str, is_first: bool) -> str:
            made = node(title) if is_first else node(f"{title} - {self._titles[name]}")
            while made in self._nodes:
                made += " again"
            self._nodes.add(made)
            return made

        return unique

    def _target(self, href: str) -> str | None:
        """Return the node a link to another page leads to."""
        title = self._titles.get(Path(href.partition("#")[0]).name)
        return node(title) if title else None


class Page:
    """One page: tokens in, Texinfo out."""

    def __init__(
        self, tokens: Sequence[Token], unique: Callable[[str, bool], str], target: Callable[[str], str | None]
    ) -> None:
        self._tokens = tokens
        self._unique = unique
        self._target = target

    def render(self) -> Iterator[str]:
        """Yield its pieces."""
        heading = cell = ""
        for token, following in zip(self._tokens, [*self._tokens[1:], None], strict=True):
            match token.type:
                case "heading_open":
                    heading = token.tag
                case "inline" if heading:
                    level = min(int(heading[1]), 3)
                    title = self._inline(token)
                    yield f"@node {self._unique(_plain(token), level == 1)}\n@{_SECTIONS[level]} {title}\n"
                    heading = ""
                case "inline":
                    yield self._inline(token) + ("" if cell else "\n")
                case "paragraph_close" if not (following is not None and following.type == "list_item_close"):
                    yield "\n"
                case "fence" | "code_block":
                    yield f"@example\n{texinfo(token.content)}@end example\n\n"
                case "bullet_list_open":
                    yield "@itemize @bullet\n"
                case "ordered_list_open":
                    yield "@enumerate\n"
                case "list_item_open":
                    yield "@item\n"
                case "bullet_list_close":
                    yield "@end itemize\n\n"
                case "ordered_list_close":
                    yield "@end enumerate\n\n"
                case "table_open":
                    yield f"@multitable @columnfractions {_fractions(self._tokens, token)}\n"
                case "table_close":
                    yield "@end multitable\n\n"
                case "th_open" | "td_open":
                    cell = "cell"
                    yield "" if self._is_first_cell(token) else " @tab "
                case "th_close" | "td_close":
                    cell = ""
                case "tr_open":
                    is_head = following is not None and following.type == "th_open"
                    yield "@headitem " if is_head else "@item "
                case "tr_close":
                    yield "\n"
                case "blockquote_open":
                    yield "@quotation\n"
                case "blockquote_close":
                    yield "@end quotation\n\n"

    def _is_first_cell(self, token: Token) -> bool:
        index = next(i for i, each in enumerate(self._tokens) if each is token)
        return self._tokens[index - 1].type == "tr_open"

    def _inline(self, token: Token) -> str:
        made, links = [], []
        for child in token.children or ():
            match child.type:
                case "text":
                    made.append(texinfo(child.content))
                case "code_inline":
                    made.append(f"@code{{{texinfo(child.content)}}}")
                case "strong_open":
                    made.append("@strong{")
                case "em_open":
                    made.append("@emph{")
                case "strong_close" | "em_close":
                    made.append("}")
                case "softbreak" | "hardbreak":
                    made.append("\n")
                case "link_open":
                    links.append(str(child.attrs["href"]))
                    if links[-1].startswith("http"):
                        made.append(f"@uref{{{texinfo(links[-1]).replace(',', '@comma{}')}, ")
                case "link_close":
                    made.append(self._link_end(links.pop()))
        return "".join(made)

    def _link_end(self, href: str) -> str:
        if href.startswith("http"):
            return "}"
        target = self._target(href)
        return f" (@pxref{{{target}}})" if target else ""


def _plain(token: Token) -> str:
    return "".join(child.content for child in token.children or ())


def _title(tokens: Sequence[Token]) -> str:
    return next(_plain(following) for token, following in pairwise(tokens) if token.tag == "h1")


def _fractions(tokens: Sequence[Token], table: Token) -> str:
    """Return how wide the columns of ``table`` are: as their longest cells, none less than a seventh."""
    start = next(i for i, each in enumerate(tokens) if each is table)
    widths: list[int] = []
    column = 0
    for token in tokens[start:]:
        match token.type:
            case "table_close":
                break
            case "tr_open":
                column = 0
            case "inline":
                widths += [1] * (column + 1 - len(widths))
                widths[column] = max(widths[column], min(len(token.content), 60))
                column += 1
    shares = [max(width / sum(widths), 1 / 7) for width in widths]
    return " ".join(f"{share / sum(shares):.2f}" for share in shares)


def topics() -> Iterator[str]:
    """Yield the chapter made from ``docs/*.md``."""
    # A page in capitals is for whoever changes the package.
    known = {path.stem: path for path in sorted((ROOT / "docs").glob("*.md")) if not path.stem.isupper()}
    middle = [name for name in known if name not in FIRST and name not in LAST]
    ordered = [known[name] for name in (*FIRST, *middle, *LAST) if name in known]
    yield "@node Topics\n@chapter Topics\n\nEach subject on its own, whole.\n\n"
    yield from Pages(ordered).render()


def commands() -> Iterator[str]:
    """Yield the section with every command of the command line, as it explains itself."""
    yield "@node Command line\n@section Command line\n\n"
    yield "What each command prints with @code{--help}.\n\n"
    context = click.Context(cli)
    for name in sorted(cli.list_commands(context)):
        command = cli.get_command(context, name)
        assert command is not None
        yield from _command(f"pyagentd {name}", command)


def _command(path: str, command: click.Command) -> Iterator[str]:
    if command.hidden:
        return
    with click.Context(command, info_name=path, terminal_width=78) as context:
        told = texinfo(command.get_help(context))
    yield f"@node {path}\n@subsection @code{{{path}}}\n\n@example\n{told}\n@end example\n\n"
    if isinstance(command, click.Group):
        for name, child in sorted(command.commands.items()):
            yield from _command(f"{path} {name}", child)


DIR = """\x1f
File: dir,\tNode: Top\tThis is the top of the INFO tree

* Menu:

Emacs
* pyagentd: (pyagentd).         Agents for Emacs that outlive Emacs.
"""


def main(target: Path) -> None:
    """Write the manual into the directory ``target``."""
    target.mkdir(parents=True, exist_ok=True)
    texi, info, page = (target / f"pyagentd.{kind}" for kind in ("texi", "info", "html"))
    with tempfile.TemporaryDirectory() as work:
        parts = [Path(work, "topics.texi"), Path(work, "commands.texi")]
        for part, made in zip(parts, (topics, commands), strict=True):
            part.write_text("".join(made()), "utf-8")
        join = ["emacs", "--batch", "-l", ROOT / "scripts/manual.el", "-f", "manual-write"]
        join += [ROOT / "docs/manual/pyagentd.org", texi, *parts]
        if (done := subprocess.run(join, capture_output=True, text=True, check=False)).returncode:
            sys.exit(f"manual: Emacs failed:\n{done.stderr}")
    if shutil.which("makeinfo"):
        # It makes the menus, and warns that nobody else did.
        for kind in ((), ("--html",)):
            subprocess.run(
                ["makeinfo", "--no-warn", "--no-split", *kind, "-o", page if kind else info, texi], check=True
            )
    else:
        info.write_text(formatted(texi.read_text("utf-8")), "utf-8")
        print("manual: makeinfo is missing, so there is no HTML page", file=sys.stderr)
    (target / "dir").write_text(DIR, "utf-8")
    print(f"manual: {info} (read it with: emacs --eval '(info \"{info}\")')")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/manual").absolute())
