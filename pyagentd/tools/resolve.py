"""What a path given by a model means: the path as written and the file it really is.

``lexical`` is absolute, with ``~`` expanded and ``..`` taken away by text alone; ``resolved`` follows every
symbolic link on the way, also dangling ones and towards what does not exist yet. Both go to policy; only
``resolved`` is ever opened, and ``beneath`` refuses a link that was put in its way since.
"""

from __future__ import annotations

import os
from pathlib import Path

from pyagentd.errors import ToolError
from pyagentd.policy.action import ResolvedPath
from pyagentd.tools.spec import Args, Target, ToolContext

_LONGEST = 4095  # bytes of a path that a call of the system takes


def resolve(text: object, root: Path) -> ResolvedPath:
    """Return both forms of ``text``, relative to ``root``.

    Raises:
        ToolError: It is no path: not a string, empty, with a NUL character, or not encodable.
    """
    if not isinstance(text, str) or not text.strip():
        raise ToolError("a path must be a string that is not empty")
    if "\0" in text:
        raise ToolError("a path must not contain a NUL character")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise ToolError(f"the path {text!r} cannot be the name of a file") from error
    # Leading "//" is special to normpath (POSIX leaves its meaning open); here it is "/".
    lexical = "/" + os.path.normpath(root / os.path.expanduser(text)).lstrip("/")  # noqa: PTH111 - Path raises
    if (length := len(os.fsencode(lexical))) > _LONGEST:
        raise ToolError(f"the path has {length:,} bytes, and the system takes {_LONGEST:,} at most: {lexical[:60]}…")
    return ResolvedPath(lexical=lexical, resolved=os.path.realpath(lexical))


def as_the_system_does(text: str, root: Path) -> ResolvedPath:
    """Return both forms of a path that a program opens itself, so that ``..`` leads out of where a link led.

    Raises:
        ToolError: It is no path.
    """
    as_text = resolve(text, root)
    there = os.path.realpath(root / os.path.expanduser(text))  # noqa: PTH111 - as ``resolve``
    return ResolvedPath(lexical=as_text.lexical, resolved=there)


def describe_file(args: Args, ctx: ToolContext) -> Target:
    """Return the file of a call with a ``file_path`` as policy sees it."""
    path = resolve(args["file_path"], ctx.root)
    return Target(detail=path.lexical, paths=(path,))


def file_of(args: Args, ctx: ToolContext) -> ResolvedPath:
    """Return the file that such a call acts on: the authorised one, where there is one."""
    return ctx.paths[0] if ctx.paths else resolve(args["file_path"], ctx.root)
