"""Writes docs/operations.md, the reference of what clients can ask of the daemon, from the operations themselves.

Usage: python scripts/operations.py [--check]
"""

import ast
import inspect
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from pyagentd.api import GROUPS, methods
from pyagentd.cli.app import cli
from pyagentd.reader import words
from pyagentd.wire.operations import LISP, Operation, Parameter, operation

ROOT = Path(__file__).parents[1]
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


def asked(call: str, tree: ast.AST) -> Iterator[str]:
    """Yield the operations that a piece of code asks for, as the texts given to a function named ``call``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == call:
            texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
            yield from (text for text in texts if isinstance(text, str))


def slash_commands() -> Mapping[str, set[str]]:
    """Return the slash commands that ask for each operation."""
    tree = ast.parse((ROOT / "pyagentd/api/commands.py").read_text("utf-8"))
    functions = {node.name: set(asked("ask", node)) for node in tree.body if isinstance(node, ast.AsyncFunctionDef)}
    found = defaultdict(set)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Command":
            given = {each.arg: each.value for each in node.keywords}
            names = [each.id for each in ast.walk(given["run"]) if isinstance(each, ast.Name)]
            if isinstance(given["name"], ast.Constant):
                for each in {each for name in names for each in functions.get(name, ())}:
                    found[each].add(f"/{given['name'].value}")
    return found


def commands() -> Mapping[str, set[str]]:
    """Return the commands of the command line that ask for each operation themselves."""
    found = defaultdict(set)

    def look(command: click.Command, path: tuple[str, ...]) -> None:
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                look(command.get_command(context, name), (*path, name))
        elif command.callback is not None:
            source = textwrap.dedent(inspect.getsource(inspect.unwrap(command.callback)))
            for each in asked("call", ast.parse(source)):
                found[each].add(" ".join(path))

    look(cli, ("pyagentd",))
    return found


def line(each: Parameter) -> str:
    """Return the line of an argument."""
    default = "" if each.is_required else f", {shown(each.default)} by default"
    return f"- `{each.key}` {words(each.type, LISP)}{', required' if each.is_required else default}"


def shown(default: object) -> str:
    """Return a default as a client writes it."""
    match default:
        case None | False | () | "":
            return "nil" if default != "" else '`""`'
        case True:
            return "t"
    return f"`{default}`"


def page() -> str:
    """Return the whole page."""
    parts, last = [HEAD], ""
    slash, command = slash_commands(), commands()
    for each in operations():
        if (now := subject(each)) != last:
            parts.append(f"## {now.replace('_', ' ').capitalize()}\n")
            last = now
        first, _, rest = each.doc.partition("\n")
        also = sorted(command.get(each.name, ())) + sorted(slash.get(each.name, ()))
        parts.append(f"### {each.name}\n\n{markdown(first)}\n")
        if rest.strip():
            parts.append(markdown(rest.strip()) + "\n")
        if each.human:
            parts.append("Only for a client with a person at it: it said hello with `human`.\n")
        if each.parameters:
            parts.append("\n".join(map(line, each.parameters.values())) + "\n")
        if also:
            parts.append(f"Also: {', '.join(f'`{one}`' for one in also)}\n")
    return "\n".join(parts)


def markdown(text: str) -> str:
    """Return a docstring as Markdown."""
    return inspect.cleandoc(text).replace("``", "`")


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text("utf-8") != page())
    PAGE.write_text(page(), "utf-8")
