"""Values that travel as JSON text, because their keys are not to become symbols on the way."""

from __future__ import annotations

import json
from typing import Any

from pyagentd.errors import BadRequest


def object_in(text: str | None, what: str, *, mend: str = "") -> dict[str, Any]:
    """Return the JSON object in ``text``; one without a key where a client gave none.

    Args:
        text: What a client gave.
        what: What it is, as an error begins.
        mend: What to do where it is another value.

    Raises:
        BadRequest: It is no JSON object.
    """
    try:
        given = json.loads(text or "{}")
    except ValueError as error:
        raise BadRequest(f"{what} is no JSON: {error}") from error
    if not isinstance(given, dict):
        raise BadRequest(f"{what} is no JSON object", mend=mend)
    return given
