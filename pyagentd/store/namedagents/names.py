"""What a named agent may be called (SPEC 003 Creation Flow): a name is a directory and the id of a session."""

from __future__ import annotations

import re

from pyagentd.errors import BadRequest

LONGEST = 64

_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_-]{{0,{LONGEST - 1}}}")


def is_name(text: str) -> bool:
    """Return whether an agent may be called ``text``."""
    return _NAME.fullmatch(text) is not None


def checked(text: str) -> str:
    """Return ``text``; raises ``BadRequest`` when no agent may be called that."""
    if not is_name(text):
        raise BadRequest(
            f"{text[:80]!r} is no name of an agent",
            mend=f"Use up to {LONGEST} letters A-Z a-z, digits, hyphens and underscores, no hyphen first",
        )
    return text
