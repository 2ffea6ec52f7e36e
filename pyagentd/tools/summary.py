"""One line that says what a tool call did: ``Bash make test → exit 2``, ``Edit main.py +1 −1``.

The same words wherever calls are listed: on the command line, in Emacs, in scripts. A tool says how it came out in
``Output.brief``; the rest is made from its name and arguments.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_LONGEST = 100  # characters of a line
_REASON = 60  # of the reason for a failure
_NAMES = {"PersistentAgent": "", "task": "", "TodoWrite": "Todo"}  # of those that are called otherwise here

Args = Mapping[str, Any]


def summary(name: str, args: Args, *, brief: str = "", error: str = "", denied: str = "", root: str = "") -> str:
    """Return the line for a call that has its result.

    Args:
        name: The tool's.
        args: What it was called with.
        brief: How it came out, in the tool's words, see ``Output.brief``.
        error: What the model was told instead of a result.
        denied: Who did not let it happen: "rule", "user", or "nobody" when nobody could be asked; "" when it did.
        root: The workspace root, which is left out of paths.
    """
    head = " ".join(filter(None, (_NAMES.get(name, name), _object(name, args, root))))
    match denied:
        case "nobody":
            end = "→ denied, nobody could be asked"
        case "user":
            end = "→ denied by you"
        case "rule":
            end = "→ denied"
        case _:
            end = brief or (f"→ failed: {_first_line(error)}" if error else "")
    room = max(20, _LONGEST - len(end) - 1)
    return " ".join(filter(None, (head if len(head) <= room else f"{head[: room - 1]}…", end)))


def _object(name: str, args: Args, root: str) -> str:
    """Return what a call is about, on one line."""
    made = _OBJECTS.get(name)
    if made is not None:
        try:
            return " ".join(made(args, root).split())
        except (KeyError, TypeError, AttributeError):  # what a model sent does not fit the tool
            pass
    values = (str(value) for value in args.values() if isinstance(value, str | int | float) and value != "")
    return " ".join(next(values, "").split())


def _path(value: Any, root: str) -> str:
    path = Path(value)
    return str(path.relative_to(root)) if root and path.is_relative_to(root) else str(value)


def _file(args: Args, root: str) -> str:
    return _path(args["file_path"], root)


def _search(args: Args, root: str) -> str:
    where = _path(args.get("path") or "", root)
    what = f'"{args["pattern"]}"'
    return f"{what} in {where.rstrip('/')}/" if where not in ("", ".") else what


def _agent(args: Args, root: str) -> str:
    kind = args.get("preset") or args.get("subagent_type")
    return f"{kind}: {args.get('description') or args['prompt']}"


_OBJECTS: Mapping[str, Callable[[Args, str], str]] = {
    "Read": _file,
    "Write": _file,
    "Edit": _file,
    "Grep": _search,
    "Glob": _search,
    "Bash": lambda args, root: str(args["command"]),
    "PersistentAgent": _agent,
    "task": _agent,
    "mission": lambda args, root: str(args["prompt"]),
    "WebSearch": lambda args, root: f'"{args["query"]}"',
    "TodoWrite": lambda args, root: (
        f"{sum(each['status'] == 'completed' for each in args['todos'])} of {len(args['todos'])} done"
    ),
    "question": lambda args, root: "; ".join(each["question"] for each in args["questions"]),
}


def counted(count: int, one: str, many: str, *, more: bool = False) -> str:
    """Return how many were found, as ``Output.brief``: ``· 12 matches``."""
    return f"· {count}{'+' if more else ''} {one if count == 1 and not more else many}"


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _REASON else f"{line[: _REASON - 1]}…"
