"""Maps: reading, adding, removing and changing entries.

Keys are flexible: where a map lacks the exact key, a keyword and a string of the same name are one.
"""

from __future__ import annotations

from typing import Any, Final

from pyagentd.lisp.access import as_function, find, lookup
from pyagentd.lisp.builtins.arguments import integer, items, mapping, refuse, wrong
from pyagentd.lisp.builtins.columns import as_keys, column
from pyagentd.lisp.builtins.graphemes import graphemes
from pyagentd.lisp.builtins.samekeys import joined, present_key
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.missing import MISSING
from pyagentd.lisp.order import equal, in_order, pairs
from pyagentd.lisp.values import PLAIN, LispSet, as_key, from_key

FAMILY: Final = Family("Maps")
define = FAMILY.define


@define("get", charges=True)
def get(budget: Budget, coll: Any, key: Any, default: Any = None) -> Any:
    """Return what a map has under a key, a vector at an index or a set as member; else the default, or nil.

    Keys are flexible: ``:name`` finds ``"name"`` and the other way round.

    (get {:a 1} :a) => 1
    (get {"a" 1} :a) => 1
    (get {:a 1} :b 0) => 0
    (get [10 20] 1) => 20
    """
    if type(coll) is str:
        found = graphemes(coll)
        return found[key] if type(key) is int and 0 <= key < len(found) else default
    return lookup(coll, key, default, budget)


@define("contains?", charges=True)
def contains(budget: Budget, coll: Any, key: Any) -> bool:
    """Whether a map has a key, a set a member or a vector an item.

    (contains? {:a nil} :a) => true
    (contains? #{1 2} 2) => true
    (contains? ["a" "b"] "b") => true
    """
    kind = type(coll)
    if kind is dict:
        return find(coll, key, MISSING, budget) is not MISSING
    if kind is LispSet:
        return as_key(key, budget) in coll.keys
    if kind is list:
        return any(equal(item, key, budget) for item in budget.each(coll))
    if coll is None:
        return False
    raise wrong("contains?", "a map, set or vector", coll, hint="For text write (includes? s part).")


@define("assoc", charges=True)
def assoc(budget: Budget, coll: Any, key: Any, value: Any, *more: Any) -> Any:
    """Return a map with values under keys; a vector with a value at an index.

    (assoc {:a 1} :b 2 :c 3) => {:a 1 :b 2 :c 3}
    (assoc [1 2] 0 9) => [9 2]
    """
    if not more and type(coll) is dict and type(key) in PLAIN:
        copied = copy("assoc", coll, 1, budget)
        copied[key if key in coll else present_key(coll, key, budget)] = value
        return copied
    if len(more) % 2:
        raise refuse("assoc", "a key is without a value", "Write (assoc m :a 1 :b 2).")
    changes = [(key, value), *zip(more[::2], more[1::2], strict=True)]
    copied = copy("assoc", coll, len(changes), budget)
    for name, new in changes:
        put("assoc", copied, present_key(copied, name, budget), new, budget)
    return copied


def copy(op: str, coll: Any, added: int, budget: Budget) -> Any:
    """Return a new map or vector with the same entries, for a builtin that is about to change some."""
    kind = type(coll)
    if kind is not dict and kind is not list and coll is not None:
        raise wrong(op, "a map or vector", coll)
    count = 0 if coll is None else len(coll)
    budget.cells((count >> 3 if kind is list else count) + 2 * added)
    if count > _SMALL:
        budget.steps(count >> 4)
    return {} if coll is None else coll.copy()


_SMALL: Final = 16  # entries whose copying is part of the step of the call


def put(op: str, copied: Any, key: Any, value: Any, budget: Budget) -> None:
    """Write one entry into a map or vector nobody has seen yet."""
    if type(copied) is dict:
        copied[key if type(key) in PLAIN and type(key) is not int else as_key(key, budget)] = value
        return
    index = integer(op, key)
    if index == len(copied):
        copied.append(value)
    elif 0 <= index < len(copied):
        copied[index] = value
    else:
        raise refuse(op, f"the index is outside a vector of {len(copied)} items", "Add items with (conj v x).")


@define("dissoc", charges=True)
def dissoc(budget: Budget, m: Any, *keys: Any) -> Any:
    """Return a map without some keys.

    (dissoc {:a 1 :b 2} :b) => {:a 1}
    """
    copied = copy("dissoc", mapping("dissoc", m), 0, budget)
    for key in keys:
        copied.pop(as_key(present_key(copied, key, budget), budget), None)
    return copied


@define("update", charges=True)
def update(budget: Budget, coll: Any, key: Any, f: Any, *args: Any) -> Any:
    """Return a map with f called on the value under a key (nil when there is none), and further arguments.

    (update {:a 1} :a inc) => {:a 2}
    (update {:a 1} :a + 10) => {:a 11}
    """
    function = as_function(f, 1 + len(args), "update")
    copied = copy("update", coll, 1, budget)
    if type(copied) is list:
        if not 0 <= integer("update", key) < len(copied):
            raise refuse("update", f"the index is outside a vector of {len(copied)} items")
        old = copied[key]
    else:
        name = as_key(key, budget)
        if name not in copied:
            name = as_key(present_key(copied, key, budget), budget)
        copied[name] = function(copied.get(name), *args)
        return copied
    put("update", copied, key, function(old, *args), budget)
    return copied


@define("merge", charges=True)
def merge(budget: Budget, *maps: Any) -> Any:
    """One map of all entries; later maps win.

    (merge {:a 1 :b 1} {:b 2}) => {:a 1 :b 2}
    (merge {"a" 1} {:a 2}) => {"a" 2}
    """
    found = [mapping("merge", each) for each in maps]
    budget.cells(2 * sum(map(len, found)))
    budget.steps(sum(map(len, found)))
    if not any(each is not None for each in maps):
        return None
    return joined(found, budget)


@define("merge-with", charges=True)
def merge_with(budget: Budget, f: Any, *maps: Any) -> Any:
    """One map of all entries; where several have a key, f combines the values.

    (merge-with + {:a 1} {:a 2 :b 3}) => {:a 3 :b 3}
    """
    function = as_function(f, 2, "merge-with")
    found = [mapping("merge-with", each) for each in maps]
    budget.cells(2 * sum(map(len, found)))
    return joined(found, budget, function)


@define("select-keys", charges=True)
def select_keys(budget: Budget, m: Any, keys: Any) -> dict[Any, Any]:
    """Return a map of only some keys, named as asked for.

    (select-keys {:a 1 :b 2 :c 3} [:a :c]) => {:a 1 :c 3}
    """
    entries, chosen = mapping("select-keys", m), items("select-keys", keys, budget)
    budget.cells(2 * len(chosen))
    selected: dict[Any, Any] = {}
    for key in budget.each(chosen):
        name = key if type(key) in PLAIN else as_key(key, budget)
        value = entries[name] if name in entries else find(entries, key, MISSING, budget)
        if value is not MISSING:
            selected[name] = value
    return selected


@define("rename-keys", charges=True)
def rename_keys(budget: Budget, m: Any, names: Any) -> dict[Any, Any]:
    """Return a map with keys renamed as the second map says.

    (rename-keys {:a 1 :b 2} {:a :x}) => {:b 2 :x 1}
    """
    entries = mapping("rename-keys", m)
    renamed = {as_key(present_key(entries, from_key(old), budget)): new for old, new in _named(names)}
    budget.cells(2 * len(entries))
    kept = {key: value for key, value in entries.items() if key not in renamed}
    moved = {as_key(new, budget): entries[old] for old, new in renamed.items() if old in entries}
    return {**kept, **moved}


def _named(names: Any) -> Any:
    return mapping("rename-keys", names).items()


@define("keys", charges=True)
def keys_(budget: Budget, m: Any) -> list[Any]:
    """Return the keys of a map, sorted.

    (keys {:b 1 :a 2}) => [:a :b]
    """
    found = mapping("keys", m)
    budget.cells(len(found))
    budget.steps(len(found))
    return [from_key(key) for key in in_order(found)]


@define("vals", charges=True)
def vals(budget: Budget, m: Any) -> list[Any]:
    """Return the values of a map, in the order of its keys.

    (vals {:b 1 :a 2}) => [2 1]
    """
    found = mapping("vals", m)
    budget.cells(len(found))
    budget.steps(len(found))
    return [found[key] for key in in_order(found)]


@define("entries", charges=True)
def entries_(budget: Budget, m: Any) -> list[Any]:
    """Return the ``[key value]`` pairs of a map, sorted by key.

    (entries {:b 1 :a 2}) => [[:a 2] [:b 1]]
    """
    found = mapping("entries", m)
    budget.cells(3 * len(found))
    budget.steps(len(found))
    return pairs(found)


@define("key")
def key_(entry: Any) -> Any:
    """Return the key of a ``[key value]`` pair.

    (key [:a 1]) => :a
    """
    return _pair("key", entry)[0]


@define("val")
def val(entry: Any) -> Any:
    """Return the value of a ``[key value]`` pair.

    (val [:a 1]) => 1
    """
    return _pair("val", entry)[1]


def _pair(op: str, entry: Any) -> list[Any]:
    if type(entry) is list and len(entry) == 2:
        return entry
    raise wrong(op, "a [key value] pair", entry)


@define("update-vals", charges=True)
def update_vals(budget: Budget, m: Any, f: Any) -> dict[Any, Any]:
    """Return a map with f called on every value.

    (update-vals {:a 1 :b 2} inc) => {:a 2 :b 3}
    """
    found = _map_before_function("update-vals", m, f)
    budget.cells(2 * len(found))
    names = in_order(found)
    values = column("update-vals", f, [found[name] for name in names], budget)
    return dict(zip(names, values, strict=True))


@define("update-keys", charges=True)
def update_keys(budget: Budget, m: Any, f: Any) -> dict[Any, Any]:
    """Return a map with f called on every key.

    (update-keys {"a" 1} keyword) => {:a 1}
    """
    found = _map_before_function("update-keys", m, f)
    budget.cells(2 * len(found))
    names = in_order(found)
    renamed = as_keys(column("update-keys", f, [from_key(name) for name in names], budget), budget)
    return dict(zip(renamed, [found[name] for name in names], strict=True))


def _map_before_function(op: str, m: Any, f: Any) -> dict[Any, Any]:
    if type(m) is dict or m is None:
        return m or {}
    hint = f"The map comes first: ({op} m f), also with ->." if type(f) is dict else ""
    raise wrong(op, "a map", m, hint=hint)
