"""What is data: a value that can leave a program, to be shown, stored or handed to a tool. Functions cannot."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

from pyagentd.lisp.endless import Endless
from pyagentd.lisp.errors import LispError
from pyagentd.lisp.values import Keyword, LispSet, Pattern, Value, from_key, type_name

_COLLECTIONS: Final = frozenset({list, dict, LispSet})
_DATA: Final = _COLLECTIONS | {type(None), bool, int, float, str, Keyword, Pattern}


def no_data(value: Value) -> LispError:
    """Return the error for what is no data: a function, or a sequence without an end."""
    if type(value) is Endless:
        return LispError(
            "eval_error", "a sequence without an end is no data", hint="Take some of it first: (take 10 …)."
        )
    return LispError(
        "eval_error", f"a {type_name(value)} is no data", hint="Call the function and give what it returns."
    )


def check_data(value: Value) -> None:
    """See that a value is data through and through.

    Args:
        value: Of an extent that was checked before, see ``extent``.

    Raises:
        LispError: ``eval_error``.
    """
    level: list[Any] = [value]
    while level:
        if not _DATA.issuperset(map(type, level)):
            raise no_data(next(each for each in level if type(each) not in _DATA))
        inside = {id(each): each for each in level if type(each) in _COLLECTIONS}
        level = list(chain.from_iterable(map(_parts, inside.values())))


def _parts(value: Any) -> list[Any]:
    return [*map(from_key, value), *value.values()] if type(value) is dict else list(value)
