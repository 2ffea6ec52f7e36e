"""Changes of a file that the user has open: planned on the text of the buffer, made there, saved by the editor.

The plan holds for one version of the text; when the user types meanwhile it is made anew. A change is asked for once:
where nobody can say what became of it the file is looked at, and the model is told when that does not tell either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pyagentd.errors import ToolError
from pyagentd.policy.action import ResolvedPath
from pyagentd.tools.beneath import read_bytes
from pyagentd.tools.buffers import Buffers, Seen, replacements
from pyagentd.tools.spec import ToolContext
from pyagentd.tools.text import TextFile, decode

_ATTEMPTS = 4  # while the user types

Planned = Callable[[TextFile], tuple[str, str]]
"""Returns the text that comes in the place of another, and what the model is told; raises ``ToolError``; blocks."""


def shown_in_buffer(path: ResolvedPath, ctx: ToolContext) -> TextFile | None:
    """Return the text of a file as the user sees it who has it open, or None; blocks, and not for the loop's thread.

    Raises:
        ToolError: It cannot be changed where it is open.
    """
    if ctx.buffers is None:
        return None
    seen = ctx.buffers.look_now(path.resolved, whole=True)
    return _text(path, seen) if seen.is_open else None


async def changed_in_buffer(path: ResolvedPath, ctx: ToolContext, planned: Planned) -> str | None:
    """Change a file where it is open, and return what the model is told; None when it is open nowhere.

    Raises:
        ToolError: It is open and cannot be changed there, or nobody knows what became of the change.
    """
    if ctx.buffers is None:
        return None
    for _ in range(_ATTEMPTS):
        seen = await ctx.buffers.look(path.resolved, whole=True)
        if not seen.is_open:
            return None
        before = _text(path, seen)
        after, said = await asyncio.to_thread(planned, before)
        if seen.crlf:
            after = after.replace("\r\n", "\n")
        if (told := await _made(path, ctx.buffers, seen, before.text, after)) is not None:
            return f"{said} {told}"
    raise ToolError(
        f"{path.lexical} is being edited by the user just now, and was not changed", mend="Read it again, then retry"
    )


def _text(path: ResolvedPath, seen: Seen) -> TextFile:
    if seen.trouble or seen.text is None:
        why = seen.trouble or "its text cannot be had"
        raise ToolError(
            f"{path.lexical} is open in the user's Emacs (buffer {seen.buffer}) and was not changed: {why}",
            mend="Ask the user to save or revert it",
        )
    return TextFile(seen.text)


async def _made(path: ResolvedPath, buffers: Buffers, seen: Seen, before: str, after: str) -> str | None:
    """Make one attempt; return how it ended, None when the text is another by now."""
    edits = await asyncio.to_thread(replacements, before, after)
    made = await buffers.change(path.resolved, seen, edits)
    match made.outcome:
        case "outdated":
            return None
        case "refused":
            raise ToolError(f"{path.lexical} was not changed in the user's Emacs: {made.reason}")
        case "unknown" if not await asyncio.to_thread(_is_on_disk, path, after):
            raise ToolError(
                f"Nobody can say whether {path.lexical} was changed: {made.reason}",
                mend="Read it before you go on, and do not repeat the change unseen",
            )
    also = ", together with changes of the user's that were not saved" if seen.modified else ""
    if not made.saved:
        return f"(In the buffer {seen.buffer} of the user's Emacs; not saved yet: {made.reason}.)"
    return f"(In the buffer {seen.buffer} of the user's Emacs, and saved{also}.)"


def _is_on_disk(path: ResolvedPath, text: str) -> bool:
    try:
        found = decode(read_bytes(path.resolved), path.lexical)
    except (OSError, ToolError):
        return False
    return found.text.replace("\r\n", "\n") == text.replace("\r\n", "\n")
