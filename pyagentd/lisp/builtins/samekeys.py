"""Keys that are the same to a program: a keyword and a string of one name, where a map has only one of the two."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyagentd.lisp.limits import Budget
from pyagentd.lisp.values import Keyword, as_key


def present_key(m: Any, key: Any, budget: Budget) -> Any:
    """Return the key as a map has it: the same name as a string or keyword where the exact one is missing."""
    return key if type(m) is not dict or as_key(key, budget) in m else _other(m, key)


def _other(m: dict[Any, Any], key: Any) -> Any:
    if type(key) is Keyword:
        return key.name if key.name in m else key
    if type(key) is str and (other := Keyword(key)) in m:
        return other
    return key


def joined(
    maps: Iterable[dict[Any, Any]], budget: Budget, combine: Callable[[Any, Any], Any] | None = None
) -> dict[Any, Any]:
    """Return one map of the entries of all, under the keys of the first that has them; later values win.

    Args:
        maps: Their entries have been charged.
        budget: Pays for calling ``combine``.
        combine: Makes one value of an earlier and a later one under the same key.
    """
    result: dict[Any, Any] = {}
    kinds: set[type] = set()
    for entries in maps:
        added = set(map(type, entries))
        # JSON has strings for keys and programs write keywords; within one kind there is nothing to look for.
        mixed = (Keyword in kinds and str in added) or (str in kinds and Keyword in added)
        kinds |= added
        if combine is None and not mixed:
            result.update(entries)
            continue
        for key in entries if combine is None else budget.each(list(entries)):
            there = _other(result, key) if mixed and key not in result else key
            result[there] = combine(result[there], entries[key]) if combine and there in result else entries[key]
    return result


def joined_into(
    m: dict[Any, Any],
    entries: dict[Any, Any],
    budget: Budget,
    combine: Callable[[Any, Any], Any] | None = None,
) -> bool:
    """Add entries to a map that nobody else has, as `joined` does; whether it was done.

    It is not when the entries have keywords and strings alike, where it matters what there is already.
    """
    kinds = set(map(type, entries))
    if Keyword in kinds and str in kinds:
        return False
    for key in budget.each(list(entries)):
        there = key if key in m else _other(m, key)
        m[there] = combine(m[there], entries[key]) if combine and there in m else entries[key]
    return True
