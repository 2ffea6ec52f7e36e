"""Formats the manual as Info where makeinfo is missing: what of Texinfo the manual has, and no more."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

LEVELS = ("top", "chapter", "section", "subsection", "subsubsection")
WIDTH = 75
INDENT = 5
# What Texinfo would read as commands stands for itself: as characters that no text has, while the commands are read.
_ESCAPED = {"@@": "\ue000", "@{": "\ue001", "@}": "\ue002"}
_MARKS = {"code": "‘{}’", "kbd": "‘{}’", "strong": "*{}*", "emph": "_{}_", "ref": "*note {}::", "pxref": "*note {}::"}
_LISTS = ("itemize", "enumerate", "table")
_IGNORED = ("bye", "c", "findex", "vindex")


@dataclass(slots=True)
class Node:
    """A node: its name, its title, its level from 0, the nodes below it, and the one it is below."""

    name: str
    title: str
    level: int
    lines: list[str] = field(default_factory=list)
    below: list["Node"] = field(default_factory=list)
    up: "Node | None" = None

    def header(self) -> str:
        """Return the line of names that Info goes by."""
        beside = self.up.below if self.up else [self]
        at = next(number for number, node in enumerate(beside) if node is self)
        before, after = beside[at - 1] if at else self.up, beside[at + 1] if at + 1 < len(beside) else None
        near = {"Next": after or (self.below[0] if not self.up else None), "Prev": before, "Up": self.up}
        names = [f"{what}: {node.name}" for what, node in near.items() if node]
        return ",  ".join(["File: pyagentd.info", f"Node: {self.name}", *names, *([] if self.up else ["Up: (dir)"])])

    def text(self) -> str:
        """Return what Info shows."""
        rule = "**=-."[self.level] * len(_inline(self.title))
        menu = "".join(f"* {node.name}::\n" for node in self.below)
        body = "".join(f"{line}\n" for line in _trimmed(blocks(self.lines, 0)))
        return "\n".join(
            [self.header(), "", _inline(self.title), rule, "", body, *(["* Menu:", "", menu] if menu else [])]
        )


def info(texi: str) -> str:
    """Return the manual ``texi`` as an Info file.

    Raises:
        ValueError: It has a command that is not known here.
    """
    for escaped, character in _ESCAPED.items():
        texi = texi.replace(escaped, character)
    entry = texi.partition("@direntry\n")[2].partition("@end direntry\n")[0]
    made = f"INFO-DIR-SECTION Emacs\nSTART-INFO-DIR-ENTRY\n{entry}END-INFO-DIR-ENTRY\n\n"
    tags = ""
    for node in _nodes(texi):
        made += "\x1f\n"
        tags += f"Node: {node.name}\x7f{len(_restored(made).encode())}\n"
        made += node.text() + "\n"
    return _restored(
        f"{made}\x1f\nTag Table:\n{tags}\x1f\nEnd Tag Table\n\x1f\nLocal Variables:\ncoding: utf-8\nEnd:\n"
    )


def _restored(text: str) -> str:
    for escaped, character in _ESCAPED.items():
        text = text.replace(character, escaped[1])
    return text


def _nodes(texi: str) -> Iterator[Node]:
    """Yield the nodes in their order, each knowing those around it."""
    heading = rf"^@node (?P<name>.+)\n@(?P<level>{'|'.join(LEVELS)}) (?P<title>.+)\n"
    found = list(re.finditer(heading, texi, re.MULTILINE))
    nodes: list[Node] = []
    path: list[Node] = []
    for match, following in zip_longest(found, found[1:]):
        body = texi[match.end() : following.start() if following else len(texi)].replace("@end ifnottex\n", "")
        node = Node(match["name"], match["title"], LEVELS.index(match["level"]), body.splitlines())
        path = path[: node.level]
        if path:
            node.up = path[-1]
            path[-1].below.append(node)
        path.append(node)
        nodes.append(node)
    yield from nodes


def blocks(lines: Sequence[str], indent: int) -> Iterator[str]:
    """Yield the lines of paragraphs, lists, tables and examples, an empty one behind each."""
    rest = list(lines)
    paragraph: list[str] = []
    while rest or paragraph:
        line = rest.pop(0) if rest else ""
        command = re.match(r"@([a-z]+)(?![a-z{])", line)
        if line.strip() and not command:
            paragraph.append(line.strip())
            continue
        if paragraph:
            yield from _filled(" ".join(paragraph), indent)
            yield ""
            paragraph = []
        if not command or command[1] in _IGNORED:
            continue
        inside = _inside(rest, command[1])
        if command[1] in ("example", "lisp"):
            yield from ((" " * (indent + INDENT) + each).rstrip() for each in inside)
            yield ""
        elif command[1] == "multitable":
            yield from (" " * indent + each for each in _table(line, inside, WIDTH - indent))
            yield ""
        elif command[1] == "quotation":
            yield from blocks(inside, indent + INDENT)
        elif command[1] in _LISTS:
            yield from _list(command[1], inside, indent)
        else:
            raise ValueError(f"@{command[1]} is no command that the manual may have: {line}")


def _inside(rest: list[str], command: str) -> list[str]:
    """Take from ``rest`` what stands before the end of an environment, and return it."""
    depth, taken = 1, []
    while rest:
        line = rest.pop(0)
        depth += line.startswith(f"@{command}") - (line.strip() == f"@end {command}")
        if not depth:
            return taken
        taken.append(line)
    raise ValueError(f"@{command} has no end")


def _list(kind: str, inside: Sequence[str], indent: int) -> Iterator[str]:
    items: list[list[str]] = []
    depth = 0
    for line in inside:
        if not depth and (item := re.match(r"@itemx?(?: +(.*)|)$", line)):
            items.append([item[1] or ""])
        elif items:
            depth += line.startswith(tuple(f"@{each}" for each in (*_LISTS, "multitable")))
            depth -= line.startswith(tuple(f"@end {each}" for each in (*_LISTS, "multitable")))
            items[-1].append(line)
    for number, (first, *body) in enumerate(items, 1):
        if kind == "table":
            yield " " * indent + (f"‘{_inline(first)}’" if "@code" not in first else _inline(first))
            yield from blocks(body, indent + INDENT)
            continue
        mark = f"{number}. " if kind == "enumerate" else "• "
        made = list(blocks([first, *body], indent + INDENT))
        yield (" " * indent + mark.rjust(INDENT) + made[0].lstrip()).rstrip()
        yield from made[1:]


def _table(head: str, inside: Sequence[str], width: int) -> Iterator[str]:
    shares = [float(each) for each in re.findall(r"[\d.]+", head)] or [
        float(len(each)) for each in re.findall(r"{(.*?)}", head)
    ]
    widths = [max(8, round(share / sum(shares) * width)) for share in shares]
    rows = re.split(r"^@(?:head)?item\b", "\n".join(inside), flags=re.MULTILINE)[1:]
    for row in rows:
        cells = [
            _filled(each.strip(), 0, wide - 2) for each, wide in zip(re.split(r"@tab\b", row), widths, strict=False)
        ]
        for line in zip_longest(*cells, fillvalue=""):
            # A word that is wider than its column moves the rest of its line.
            yield "".join(f"{each:<{wide - 1}} " for each, wide in zip(line, widths, strict=False)).rstrip()


def _filled(text: str, indent: int, width: int = WIDTH) -> list[str]:
    space = " " * indent
    # Without its spaces the name of a node that a link leads to is not found.
    text = re.sub(r"\*note [^:]+::", lambda link: link[0].replace(" ", "\xa0"), _inline(text))
    made = textwrap.wrap(
        text, width, initial_indent=space, subsequent_indent=space, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace("\xa0", " ") for line in made]


def _inline(text: str) -> str:
    while command := re.search(r"@([a-z]+){([^{}]*)}", text):
        if command[1] == "uref":
            address, _, said = (part.strip() for part in command[2].partition(","))
            made = f"{said} ({address})" if said and said != address else address
        elif command[1] == "comma":
            made = ","
        else:
            made = _MARKS[command[1]].format(command[2])
        text = text[: command.start()] + made + text[command.end() :]
    return text


def _trimmed(lines: Iterator[str]) -> list[str]:
    """Return ``lines`` without empty ones that follow an empty one."""
    made: list[str] = []
    for line in lines:
        if line or (made and made[-1]):
            made.append(line)
    return made
