"""Reaching into nested maps and vectors by a path of keys and indices, and walking over whole trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyagentd.lisp.access import as_function
from pyagentd.lisp.builtins.arguments import items, refuse, wrong
from pyagentd.lisp.builtins.columns import along
from pyagentd.lisp.builtins.maps import copy, put
from pyagentd.lisp.builtins.samekeys import present_key
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.missing import MISSING
from pyagentd.lisp.values import Keyword, LispSet, as_key, from_key

FAMILY: Final = Family("Nested data")
define = FAMILY.define


@define("get-in", charges=True, shown="coll path default?")
def get_in(budget: Budget, coll: Any, path: Any, default: Any = None) -> Any:
    """Return what is found along a path of keys and indices; the default, or nil, where it ends early.

    (get-in {:user {:name "Ada"}} [:user :name]) => "Ada"
    (get-in {:results [{:title "A"}]} [:results 0 :title]) => "A"
    (get-in {:a 1} [:b :c] 0) => 0
    """
    return along(_path("get-in", path, budget), coll, default)


def _path(op: str, path: Any, budget: Budget) -> list[Any]:
    if type(path) is not list and path is not None:
        raise wrong(op, "a vector of keys and indices", path, hint=f"Write ({op} m [:a 0 :b] …).")
    found = items(op, path, budget)
    budget.steps(len(found))
    return found


@define("assoc-in", charges=True)
def assoc_in(budget: Budget, coll: Any, path: Any, value: Any) -> Any:
    """Return a map with a value at a path; maps that are missing on the way are made.

    (assoc-in {} [:user :name] "Ada") => {:user {:name "Ada"}}
    (assoc-in {:xs [1 2]} [:xs 0] 9) => {:xs [9 2]}
    """
    return _changed("assoc-in", coll, _path("assoc-in", path, budget), lambda _: value, budget)


@define("update-in", charges=True)
def update_in(budget: Budget, coll: Any, path: Any, f: Any, *args: Any) -> Any:
    """Return a map with f called on the value at a path (nil when there is none), and further arguments.

    (update-in {:a {:n 1}} [:a :n] inc) => {:a {:n 2}}
    """
    function = as_function(f, 1 + len(args), "update-in")
    return _changed("update-in", coll, _path("update-in", path, budget), lambda old: function(old, *args), budget)


def _changed(op: str, coll: Any, path: list[Any], change: Callable[[Any], Any], budget: Budget) -> Any:
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
        coll = at(op, copied, name, budget)
    value = change(coll)
    for copied, name in zip(reversed(copies), reversed(names), strict=True):
        put(op, copied, name, value, budget)
        value = copied
    return value


def at(op: str, coll: Any, key: Any, budget: Budget) -> Any:
    """Return what is in a map or vector on the way along a path; nil when there is nothing."""
    if type(coll) is dict:
        return coll.get(as_key(key, budget))
    if type(key) is not int:
        raise wrong(op, "an index into a vector", key, hint="Name the item first, as in [:items 0 :name].")
    return coll[key] if 0 <= key < len(coll) else None


@define("dissoc-in", charges=True)
def dissoc_in(budget: Budget, m: Any, path: Any) -> Any:
    """Return a map without the key at the end of a path.

    (dissoc-in {:a {:b 1 :c 2}} [:a :b]) => {:a {:c 2}}
    """
    found = _path("dissoc-in", path, budget)
    if not found or along(found, m, MISSING) is MISSING:
        return m
    if len(found) == 1:
        return _without("dissoc-in", m, found[0], budget)

    def change(inner: Any) -> Any:
        return _without("dissoc-in", inner, found[-1], budget)

    return _changed("dissoc-in", m, found[:-1], change, budget)


def _without(op: str, m: Any, key: Any, budget: Budget) -> dict[Any, Any]:
    copied = copy(op, m, 0, budget)
    if type(copied) is not dict:
        raise wrong(op, "a map at the end of the path", m)
    copied.pop(as_key(present_key(copied, key, budget), budget), None)
    return copied


@define("postwalk", "walk/postwalk", "clojure.walk/postwalk", charges=True)
def postwalk(budget: Budget, f: Any, tree: Any) -> Any:
    """Call f with every part of nested data, inner parts first, and put what it gives in its place.

    (postwalk (fn [x] (if (number? x) (inc x) x)) [1 {:a 2}]) => [2 {:a 3}]
    """
    return _walked(as_function(f, 1, "postwalk"), lambda x: x, tree, budget, 0)


@define("prewalk", "walk/prewalk", "clojure.walk/prewalk", charges=True)
def prewalk(budget: Budget, f: Any, tree: Any) -> Any:
    """Call f with every part of nested data, outer parts first, and go on in what it gives.

    (prewalk (fn [x] (if (number? x) (inc x) x)) [1 {:a 2}]) => [2 {:a 3}]
    """
    return _walked(lambda x: x, as_function(f, 1, "prewalk"), tree, budget, 0)


def _walked(after: Callable[[Any], Any], before: Callable[[Any], Any], x: Any, budget: Budget, depth: int) -> Any:
    if depth > budget.limits.depth:
        raise budget.too_deep()
    budget.steps(1)
    x = before(x)
    kind = type(x)
    if kind is list or kind is dict or kind is LispSet:
        budget.cells(2 * len(x))

        def inner(each: Any) -> Any:
            return _walked(after, before, each, budget, depth + 1)

        if kind is list:
            x = [inner(each) for each in x]
        elif kind is LispSet:
            x = LispSet.of([inner(each) for each in items("walk", x, budget)], budget)
        else:
            x = {as_key(inner(from_key(key)), budget): inner(each) for key, each in x.items()}
    return after(x)


@define("keywordize-keys", "walk/keywordize-keys", "clojure.walk/keywordize-keys", charges=True)
def keywordize_keys(budget: Budget, tree: Any) -> Any:
    """Nested data with string keys turned into keywords.

    (keywordize-keys {"a" [{"b" 1}]}) => {:a [{:b 1}]}
    """
    return _walked(lambda x: _renamed(x, str, Keyword), lambda x: x, tree, budget, 0)


@define("stringify-keys", "walk/stringify-keys", "clojure.walk/stringify-keys", charges=True)
def stringify_keys(budget: Budget, tree: Any) -> Any:
    """Nested data with keyword keys turned into strings.

    (stringify-keys {:a [{:b 1}]}) => {"a" [{"b" 1}]}
    """
    return _walked(lambda x: _renamed(x, Keyword, lambda key: key.name), lambda x: x, tree, budget, 0)


def _renamed(x: Any, kind: type, rename: Callable[[Any], Any]) -> Any:
    if type(x) is not dict:
        return x
    return {rename(key) if type(key) is kind else key: value for key, value in x.items()}
