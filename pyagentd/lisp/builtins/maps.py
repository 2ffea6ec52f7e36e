"""Maps: reading, adding, removing and changing entries.

Where a map lacks the exact key, a keyword finds the string of its name, and a string the keyword.
"""

from collections.abc import Callable
from typing import Any, Final

from pyagentd.lisp.builtins.collections import as_keys, column, value_at_path
from pyagentd.lisp.builtins.table import Family, collection_set, integer, items, mapping, refuse, slice_text, wrong
from pyagentd.lisp.errors import MISSING
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.values import (
    PLAIN,
    Keyword,
    LispSet,
    as_function,
    as_key,
    equal,
    find,
    from_key,
    in_order,
    lookup,
    merge_maps,
    pairs,
    present_key,
)

define: Final = Family("Maps")


@define("get", charges=True)
def get(budget: Budget, coll: Any, key: Any, default: Any = None) -> Any:
    """Return the value of a map under a key, of a vector at an index, or a member of a set; else the default, or nil.

    A keyword also finds the string of its name, and a string the keyword.

    (get {:a 1} :a) => 1
    (get {"a" 1} :a) => 1
    (get {:a 1} :b 0) => 0
    (get [10 20] 1) => 20
    """
    if type(coll) is str:
        at = int(key) if type(key) is float and key.is_integer() else key
        if type(at) is not int or at < 0:
            return default
        budget.steps(len(coll) >> 4)
        return slice_text(coll, at, at + 1) or default
    return lookup(coll, key, default, budget)


@define("contains?", charges=True)
def contains(budget: Budget, coll: Any, key: Any) -> bool:
    """Whether a map has a key, or a set or vector an item.

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
        raise refuse("assoc", "a key has no value", "Write (assoc m :a 1 :b 2).")
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
    """Write one entry into a map or vector that the program cannot see yet."""
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
    """Return a map with the value under a key (or nil) replaced by the result of f for it and further arguments.

    (update {:a 1} :a inc) => {:a 2}
    (update {:a 1} :a + 10) => {:a 11}
    """
    function = as_function(f, 1 + len(args), "update")
    copied = copy("update", coll, 1, budget)
    if type(copied) is list and not 0 <= integer("update", key) < len(copied):
        raise refuse("update", f"the index is outside a vector of {len(copied)} items")
    name = present_key(copied, key, budget)
    put("update", copied, name, function(value_at("update", copied, name, budget), *args), budget)
    return copied


@define("merge", charges=True)
def merge(budget: Budget, *maps: Any) -> Any:
    """Return one map with all entries; later maps take precedence.

    (merge {:a 1 :b 1} {:b 2}) => {:a 1 :b 2}
    (merge {"a" 1} {:a 2}) => {"a" 2}
    """
    found = [mapping("merge", each) for each in maps]
    budget.cells(2 * sum(map(len, found)))
    budget.steps(sum(map(len, found)))
    if not any(each is not None for each in maps):
        return None
    return merge_maps(found, budget)


@define("merge-with", charges=True)
def merge_with(budget: Budget, f: Any, *maps: Any) -> Any:
    """Return one map with all entries; values under the same key are combined with f.

    (merge-with + {:a 1} {:a 2 :b 3}) => {:a 3 :b 3}
    """
    function = as_function(f, 2, "merge-with")
    found = [mapping("merge-with", each) for each in maps]
    budget.cells(2 * sum(map(len, found)))
    return merge_maps(found, budget, function)


@define("select-keys", charges=True)
def select_keys(budget: Budget, m: Any, keys: Any) -> dict[Any, Any]:
    """Return a map of only these keys, spelled as given.

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


@define("rename-keys", "clojure.set/rename-keys", "set/rename-keys", charges=True)
def rename_keys(budget: Budget, m: Any, names: Any) -> dict[Any, Any]:
    """Return a map with keys renamed by a map from old to new names.

    (rename-keys {:a 1 :b 2} {:a :x}) => {:b 2 :x 1}
    """
    entries = mapping("rename-keys", m)
    changes = mapping("rename-keys", names).items()
    renamed = {as_key(present_key(entries, from_key(old), budget)): new for old, new in changes}
    budget.cells(2 * len(entries))
    kept = {key: value for key, value in entries.items() if key not in renamed}
    moved = {as_key(new, budget): entries[old] for old, new in renamed.items() if old in entries}
    return {**kept, **moved}


@define("keys", charges=True)
def keys_(budget: Budget, m: Any) -> list[Any] | None:
    """Return the keys of a map, sorted; nil if it is empty.

    (keys {:b 1 :a 2}) => [:a :b]
    (keys {}) => nil
    """
    found = mapping("keys", m)
    budget.cells(len(found))
    budget.steps(len(found))
    return [from_key(key) for key in in_order(found, budget)] or None


@define("vals", charges=True)
def vals(budget: Budget, m: Any) -> list[Any] | None:
    """Return the values of a map, in the order of its keys; nil if it is empty.

    (vals {:b 1 :a 2}) => [2 1]
    """
    found = mapping("vals", m)
    budget.cells(len(found))
    budget.steps(len(found))
    return [found[key] for key in in_order(found, budget)] or None


@define("entries", charges=True)
def entries_(budget: Budget, m: Any) -> list[Any]:
    """Return the ``[key value]`` pairs of a map, sorted by key.

    (entries {:b 1 :a 2}) => [[:a 2] [:b 1]]
    """
    found = mapping("entries", m)
    budget.cells(3 * len(found))
    budget.steps(len(found))
    return pairs(found, budget)


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
    """Return a map with each value replaced by the result of f for it.

    (update-vals {:a 1 :b 2} inc) => {:a 2 :b 3}
    """
    found = _map_before_function("update-vals", m, f)
    budget.cells(2 * len(found))
    names = in_order(found, budget)
    values = column("update-vals", f, [found[name] for name in names], budget)
    return dict(zip(names, values, strict=True))


@define("update-keys", charges=True)
def update_keys(budget: Budget, m: Any, f: Any) -> dict[Any, Any]:
    """Return a map with each key replaced by the result of f for it.

    (update-keys {"a" 1} keyword) => {:a 1}
    """
    found = _map_before_function("update-keys", m, f)
    budget.cells(2 * len(found))
    names = in_order(found, budget)
    renamed = as_keys(column("update-keys", f, [from_key(name) for name in names], budget), budget)
    return dict(zip(renamed, [found[name] for name in names], strict=True))


def _map_before_function(op: str, m: Any, f: Any) -> dict[Any, Any]:
    if type(m) is dict or m is None:
        return m or {}
    hint = f"The map comes first: ({op} m f), also with ->." if type(f) is dict else ""
    raise wrong(op, "a map", m, hint=hint)


# Reaching into nested maps and vectors by a path of keys and indices, and walking over whole trees.

nesting_define: Final = Family("Nested data")


@nesting_define("get-in", charges=True, shown="coll path default?")
def get_in(budget: Budget, coll: Any, path: Any, default: Any = None) -> Any:
    """Return the value at a path of keys and indices; the default, or nil, if there is none.

    (get-in {:user {:name "Ada"}} [:user :name]) => "Ada"
    (get-in {:results [{:title "A"}]} [:results 0 :title]) => "A"
    (get-in {:a 1} [:b :c] 0) => 0
    """
    return value_at_path(_path("get-in", path, budget), coll, default)


def _path(op: str, path: Any, budget: Budget) -> list[Any]:
    if type(path) is not list and path is not None:
        raise wrong(op, "a vector of keys and indices", path, hint=f"Write ({op} m [:a 0 :b] …).")
    found = items(op, path, budget)
    budget.steps(len(found))
    return found


@nesting_define("assoc-in", charges=True)
def assoc_in(budget: Budget, coll: Any, path: Any, value: Any) -> Any:
    """Return a map with a value at a path; missing maps are created.

    (assoc-in {} [:user :name] "Ada") => {:user {:name "Ada"}}
    (assoc-in {:xs [1 2]} [:xs 0] 9) => {:xs [9 2]}
    """
    return _change_at_path("assoc-in", coll, _path("assoc-in", path, budget), lambda _: value, budget)


@nesting_define("update-in", charges=True)
def update_in(budget: Budget, coll: Any, path: Any, f: Any, *args: Any) -> Any:
    """Return a map with the value at a path (or nil) replaced by the result of f for it and further arguments.

    (update-in {:a {:n 1}} [:a :n] inc) => {:a {:n 2}}
    """
    function = as_function(f, 1 + len(args), "update-in")
    return _change_at_path(
        "update-in", coll, _path("update-in", path, budget), lambda old: function(old, *args), budget
    )


def _change_at_path(op: str, coll: Any, path: list[Any], change: Callable[[Any], Any], budget: Budget) -> Any:
    """Return a copy of everything along the path with its end changed."""
    if not path:
        raise refuse(op, "the path is empty", "Give a vector with at least one key.")
    if len(path) > budget.limits.depth:
        raise budget.too_deep()
    copies: list[Any] = []
    names: list[Any] = []
    for key in path:
        copied = copy(op, coll, 1, budget)
        name = present_key(copied, key, budget)
        copies.append(copied)
        names.append(name)
        coll = value_at(op, copied, name, budget)
    value = change(coll)
    for copied, name in zip(reversed(copies), reversed(names), strict=True):
        put(op, copied, name, value, budget)
        value = copied
    return value


def value_at(op: str, coll: Any, key: Any, budget: Budget) -> Any:
    """Return the value of a map or vector under one key of a path, or nil."""
    if type(coll) is dict:
        return coll.get(as_key(key, budget))
    if type(key) is not int:
        raise wrong(op, "an index into a vector", key, hint="Name the item first, as in [:items 0 :name].")
    return coll[key] if 0 <= key < len(coll) else None


@nesting_define("dissoc-in", charges=True)
def dissoc_in(budget: Budget, m: Any, path: Any) -> Any:
    """Return a map without the key at the end of a path.

    (dissoc-in {:a {:b 1 :c 2}} [:a :b]) => {:a {:c 2}}
    """
    found = _path("dissoc-in", path, budget)
    if not found or value_at_path(found, m, MISSING) is MISSING:
        return m
    if len(found) == 1:
        return _remove_key("dissoc-in", m, found[0], budget)
    return _change_at_path(
        "dissoc-in", m, found[:-1], lambda inner: _remove_key("dissoc-in", inner, found[-1], budget), budget
    )


def _remove_key(op: str, m: Any, key: Any, budget: Budget) -> dict[Any, Any]:
    copied = copy(op, m, 0, budget)
    if type(copied) is not dict:
        raise wrong(op, "a map at the end of the path", m)
    copied.pop(as_key(present_key(copied, key, budget), budget), None)
    return copied


@nesting_define("postwalk", "walk/postwalk", "clojure.walk/postwalk", charges=True)
def postwalk(budget: Budget, f: Any, tree: Any) -> Any:
    """Replace each part of nested data, inner parts first, by the result of f for it.

    (postwalk (fn [x] (if (number? x) (inc x) x)) [1 {:a 2}]) => [2 {:a 3}]
    """
    return _walk_tree(as_function(f, 1, "postwalk"), lambda x: x, tree, budget, 0)


@nesting_define("prewalk", "walk/prewalk", "clojure.walk/prewalk", charges=True)
def prewalk(budget: Budget, f: Any, tree: Any) -> Any:
    """Replace each part of nested data, outer parts first, by the result of f for it.

    (prewalk (fn [x] (if (number? x) (inc x) x)) [1 {:a 2}]) => [2 {:a 3}]
    """
    return _walk_tree(lambda x: x, as_function(f, 1, "prewalk"), tree, budget, 0)


def _walk_tree(after: Callable[[Any], Any], before: Callable[[Any], Any], x: Any, budget: Budget, depth: int) -> Any:
    if depth > budget.limits.depth:
        raise budget.too_deep()
    budget.steps(1)
    x = before(x)
    kind = type(x)
    if kind is list or kind is dict or kind is LispSet:
        budget.cells(2 * len(x))

        def inner(each: Any) -> Any:
            return _walk_tree(after, before, each, budget, depth + 1)

        if kind is list:
            x = [inner(each) for each in x]
        elif kind is LispSet:
            x = LispSet.of([inner(each) for each in items("walk", x, budget)], budget)
        else:
            x = {as_key(inner(from_key(key)), budget): inner(each) for key, each in x.items()}
    return after(x)


@nesting_define("keywordize-keys", "walk/keywordize-keys", "clojure.walk/keywordize-keys", charges=True)
def keywordize_keys(budget: Budget, tree: Any) -> Any:
    """Return nested data with string keys converted to keywords.

    (keywordize-keys {"a" [{"b" 1}]}) => {:a [{:b 1}]}
    """
    return _walk_tree(lambda x: _rename_keys(x, str, Keyword), lambda x: x, tree, budget, 0)


@nesting_define("stringify-keys", "walk/stringify-keys", "clojure.walk/stringify-keys", charges=True)
def stringify_keys(budget: Budget, tree: Any) -> Any:
    """Return nested data with keyword keys converted to strings.

    (stringify-keys {:a [{:b 1}]}) => {"a" [{"b" 1}]}
    """
    return _walk_tree(lambda x: _rename_keys(x, Keyword, lambda key: key.name), lambda x: x, tree, budget, 0)


def _rename_keys(x: Any, kind: type, rename: Callable[[Any], Any]) -> Any:
    if type(x) is not dict:
        return x
    return {rename(key) if type(key) is kind else key: value for key, value in x.items()}


# Sets: union, intersection, difference and subset tests. A vector can be passed instead of the set of its items.

sets_define: Final = Family("Sets")


def _sets(op: str, sets: tuple[Any, ...], budget: Budget) -> list[LispSet]:
    found = [collection_set(op, each, budget) for each in sets]
    total = sum(map(len, found))
    budget.cells(total)
    budget.steps(total)
    return found


@sets_define("union", "set/union", "clojure.set/union", charges=True)
def union(budget: Budget, *sets: Any) -> LispSet:
    """Return the members of all sets.

    (union #{1} #{2}) => #{1 2}
    """
    return LispSet(frozenset().union(*(each.keys for each in _sets("union", sets, budget))))


@sets_define("intersection", "set/intersection", "clojure.set/intersection", charges=True)
def intersection(budget: Budget, first: Any, *sets: Any) -> LispSet:
    """Return the members that all sets contain.

    (intersection #{1 2} #{2 3}) => #{2}
    """
    found, *others = _sets("intersection", (first, *sets), budget)
    return LispSet(found.keys.intersection(*(each.keys for each in others)))


@sets_define("difference", "set/difference", "clojure.set/difference", charges=True)
def difference(budget: Budget, first: Any, *sets: Any) -> LispSet:
    """Return the members of the first set that no other set contains.

    (difference #{1 2} #{2 3}) => #{1}
    """
    found, *others = _sets("difference", (first, *sets), budget)
    return LispSet(found.keys.difference(*(each.keys for each in others)))


@sets_define("subset?", "set/subset?", "clojure.set/subset?", charges=True)
def is_subset(budget: Budget, a: Any, b: Any) -> bool:
    """Whether b contains all members of a.

    (subset? #{1} #{1 2}) => true
    """
    one, other = _sets("subset?", (a, b), budget)
    return one.keys <= other.keys


@sets_define("superset?", "set/superset?", "clojure.set/superset?", charges=True)
def is_superset(budget: Budget, a: Any, b: Any) -> bool:
    """Whether a contains all members of b.

    (superset? #{1 2} #{1}) => true
    """
    return is_subset(budget, b, a)


@sets_define("clojure.set/map-invert", "set/map-invert", charges=True)
def map_invert(budget: Budget, m: Any) -> dict[Any, Any]:
    """Return a map from the values of a map to its keys.

    (clojure.set/map-invert {:a 1}) => {1 :a}
    """
    found = mapping("map-invert", m)
    budget.cells(len(found))
    return {as_key(found[key], budget): from_key(key) for key in in_order(found, budget)}


@sets_define("disj", charges=True)
def disj(budget: Budget, s: Any, *members: Any) -> LispSet:
    """Return a set without some members.

    (disj #{1 2 3} 2) => #{1 3}
    """
    (found,) = _sets("disj", (s,), budget)
    return LispSet(found.keys.difference([as_key(each, budget) for each in members]))
