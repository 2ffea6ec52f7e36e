"""Writes docs/operations.md, the reference of what clients can ask of the daemon, from the operations themselves.

Usage: python scripts/operations.py [--check]
"""

import ast
import asyncio
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints, is_typeddict

import click

from pyagentd.api import GROUPS, methods
from pyagentd.api.commands import Builtin
from pyagentd.cli.app import cli
from pyagentd.reader import words
from pyagentd.wire.connection import LISP, Operation, Parameter, operation

ROOT = Path(__file__).parents[1]
CLI = ROOT / "pyagentd" / "cli"
PAGE = ROOT / "docs" / "operations.md"
HEAD = """\
# Operations

What a client can ask of the daemon, over the connection that [Architecture](ARCHITECTURE.md#the-wire) describes: a
call has a name and one plist of arguments. In Emacs `(pyagentd-rpc-call 'status)`, in Python
`pyagentd.wire.client.connect(runtime_dir).call("status")`. Arguments that are nil count as left out where there is a
default; an unknown key, a missing one, or a value of another type is refused with its name.

This page is made by `python scripts/operations.py` from the code.
"""


def operations() -> list[Operation]:
    """Return all operations, by subject and then by name."""
    found: list[Operation] = []
    for group in GROUPS:
        found += [operation(name, getattr(group, method)) for name, method in methods(group)]
    return sorted(found, key=lambda each: (subject(each), each.name))


def subject(each: Operation) -> str:
    """Return the module of ``pyagentd/api`` that has an operation."""
    return inspect.getmodule(each.run).__name__.rpartition(".")[2]  # type: ignore[union-attr]


def slash_commands() -> Mapping[str, set[str]]:
    """Return the slash commands that ask for each operation."""
    found = defaultdict(set)
    for command in asyncio.run(Builtin({}, cast(Any, None)).commands(None)):
        for each in re.findall(r'_ask\(call, "([\w-]+)"', inspect.getsource(command.run)):
            found[each].add(f"/{command.name}")
    return found


def commands(command: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yield all commands of the command line with their names: what follows ``pyagentd``."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            if (found := command.get_command(context, name)) is not None:
                yield from commands(found, (*path, name))
    elif command.callback is not None:
        yield " ".join(path), command


def askers() -> Mapping[str, set[str]]:
    """Return the commands of the command line that ask for each operation, themselves or by what they use in ``cli``.

    What every command does to find its session (``cli/link.py``) is left out.
    """
    code: dict[tuple[str, str], ast.AST] = {}  # functions and classes, by module and name
    meant: dict[tuple[str, str], tuple[str, str]] = {}  # imported names
    for file in CLI.glob("*.py"):
        for top in ast.parse(file.read_text("utf-8")).body:
            if isinstance(top, ast.FunctionDef | ast.ClassDef) and file.stem != "link":
                code[file.stem, top.name] = top
            elif isinstance(top, ast.ImportFrom) and (top.module or "").startswith("pyagentd.cli."):
                meant |= {(file.stem, each.name): (str(top.module)[13:], each.name) for each in top.names}
    started = {name: inspect.unwrap(cast(Any, each.callback)) for name, each in commands()}
    places = {name: (each.__module__.rpartition(".")[2], each.__name__) for name, each in started.items()}
    found = defaultdict(set)
    for name, place in places.items():
        todo, seen = [place], {*places.values()} - {place}
        while todo:
            if (at := todo.pop()) in seen or at not in code:
                continue
            seen.add(at)
            for node in ast.walk(code[at]):
                match node:
                    case ast.Call(func=ast.Attribute(attr="call"), args=[method, *_]):
                        texts = (each.value for each in ast.walk(method) if isinstance(each, ast.Constant))
                        for text in texts:
                            found[str(text)].add(f"pyagentd {name}")
                    case ast.Name(id):
                        todo.append(meant.get((at[0], id), (at[0], id)))
                    case ast.Attribute(attr="Chat"):  # whose module is loaded when a chat begins
                        todo.append(("chat", "Chat"))
    return found


def line(each: Parameter) -> str:
    """Return the line of an argument."""
    given = "required" if each.default is inspect.Parameter.empty else f"{shown(each.default)} by default"
    return f"- `{each.key}` {words(each.type, LISP)}, {given}"


def reply_lines(reply: Any, depth: int = 0, above: tuple[Any, ...] = ()) -> Iterator[str]:
    """Yield a line for each field of a reply, those of what is in a field below it."""
    notes = comments(reply)
    for name, kind in get_type_hints(reply).items():
        absent = "" if name in reply.__required_keys__ else ", not always there"
        nil = " or nil" if type(None) in get_args(kind) else ""
        note = f": {notes[name]}" if name in notes else ""
        what = re.sub("a plist( or a plist)+", "a plist", words(kind, LISP))
        yield f"{'  ' * depth}- `:{name.replace('_', '-')}` {what}{nil}{absent}{note}"
        parts = [part for part in parts_of(kind) if part not in (reply, *above)]
        for part in parts:
            if len(parts) > 1:  # one of them
                yield f"{'  ' * (depth + 1)}- {inspect.cleandoc(part.__doc__)}"
            yield from reply_lines(part, depth + 1 + (len(parts) > 1), (*above, reply))


def parts_of(kind: Any) -> Iterator[Any]:
    """Yield the plists that a type has in it, those inside of them not."""
    if is_typeddict(kind):
        yield kind
    else:
        for part in get_args(kind):
            yield from parts_of(part)


def comments(reply: Any) -> Mapping[str, str]:
    """Return what the comments beside the fields of a reply say."""
    source, found = inspect.getsource(reply), dict[str, str]()
    for base in re.findall(r"\w+", source[source.index("(") : source.index(":")]):
        if is_typeddict(above := vars(sys.modules[reply.__module__]).get(base)):
            found |= comments(above)
    return found | dict(re.findall(r"^    (\w+): .*?  # (.+)$", source, re.MULTILINE))


def shown(default: object) -> str:
    """Return a default as a client writes it."""
    match default:
        case None | False | () | {} | "":
            return "nil" if default != "" else '`""`'
        case True:
            return "t"
    return f"`{default}`"


def page() -> str:
    """Return the whole page."""
    parts, last = [HEAD], ""
    slash, typed = slash_commands(), askers()
    for each in operations():
        if (now := subject(each)) != last:
            parts.append(f"## {now.replace('_', ' ').capitalize()}\n")
            last = now
        first, _, rest = each.doc.partition("\n")
        also = sorted(typed.get(each.name, ())) + sorted(slash.get(each.name, ()))
        parts.append(f"### {each.name}\n\n{markdown(first)}\n")
        if rest.strip():
            parts.append(markdown(rest.strip()) + "\n")
        if each.human:
            parts.append("Only for clients with a human, who said hello with `human`.\n")
        if each.parameters:
            parts.append("\n".join(map(line, each.parameters.values())) + "\n")
        replies = ["\n".join(reply_lines(part)).replace("``", "`") for part in parts_of(each.reply)]
        if any(replies):
            nil = ", or nil" if type(None) in get_args(each.reply) else ""
            parts.append(f"Reply{nil}:\n\n" + "\n\nor\n\n".join(replies) + "\n")
        else:
            parts.append(f"Reply: {words(each.reply, LISP)}.\n")
        if also:
            parts.append(f"Used by {', '.join(f'`{one}`' for one in also)}\n")
    return "\n".join(parts)


def markdown(text: str) -> str:
    """Return a docstring as Markdown."""
    return inspect.cleandoc(text).replace("``", "`")


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text("utf-8") != page())
    PAGE.write_text(page(), "utf-8")
