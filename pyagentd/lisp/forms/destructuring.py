"""Patterns that take values apart: ``[a [b c] & rest :as all]`` and ``{:keys [a b] :or {a 1} new :old :as m}``."""

from __future__ import annotations

from pyagentd.lisp.analysis import Analysis, Scope
from pyagentd.lisp.core import Const, If, KeywordCall, Local, Node, Support, Var, is_number
from pyagentd.lisp.syntax import Form, Literal, Map, Symbol, Vector
from pyagentd.lisp.values import Keyword

Pairs = list[tuple[Var, Node]]


def simple_name(analysis: Analysis, form: Form, what: str = "a name") -> str:
    """Return the name that a form binds, which must be a plain one."""
    if isinstance(form, Symbol):
        if form.name[0] == "%" or ("/" in form.name and form.name != "/"):
            analysis.fail(f"{form.name} cannot be bound", form, "Names with '/' or '%' are taken.")
        return form.name
    return analysis.fail(f"expected {what}", form, "Write a symbol such as x.")


def bind(
    analysis: Analysis, pattern: Form, value: Node, names: dict[str, Var], pairs: Pairs, *, rest: bool = False
) -> None:
    """Append to ``pairs`` what ``pattern`` binds when it meets ``value``, and put the names into ``names``.

    A vector pattern for the ``rest`` of arguments or items takes what there is.
    """
    if isinstance(pattern, Symbol):
        name = simple_name(analysis, pattern)
        var = analysis.fresh(name)
        var.number = is_number(value)
        pairs.append((var, value))
        names[name] = var
        return
    if isinstance(pattern, Vector):
        _bind_vector(analysis, pattern, value, names, pairs, lenient=rest)
    elif isinstance(pattern, Map):
        _bind_map(analysis, pattern, _held(analysis, value, pairs), names, pairs)
    else:
        analysis.fail(
            "unsupported pattern", pattern, "Bind a name, a vector [a b & rest] or a map {:keys [a b] :or {…} :as m}."
        )


def _held(analysis: Analysis, value: Node, pairs: Pairs) -> Local:
    """Return a name for a value that is looked at more than once."""
    if isinstance(value, Local):
        return value
    var = analysis.fresh()
    pairs.append((var, value))
    return Local(var, value.start)


def _bind_vector(
    analysis: Analysis, pattern: Vector, value: Node, names: dict[str, Var], pairs: Pairs, *, lenient: bool
) -> None:
    items = list(pattern.items)
    whole: Form | None = None
    rest: Form | None = None
    if len(items) >= 2 and _is_keyword(items[-2], "as"):
        whole = items[-1]
        del items[-2:]
    if len(items) >= 2 and isinstance(mark := items[-2], Symbol) and mark.name == "&":
        rest = items[-1]
        del items[-2:]
    for item in items:
        if isinstance(item, Symbol) and item.name == "&":
            analysis.fail("& must be followed by exactly one name", item, "Write [a b & rest].")
    if whole is not None:
        value = _held(analysis, value, pairs)
        bind(analysis, whole, value, names, pairs)
    start = pattern.start
    parts = analysis.fresh()
    open_end = lenient or rest is not None
    pairs.append((parts, Support("take_apart", [value, Const(len(items), start), Const(open_end, start)], start)))
    for index, item in enumerate(items):
        if isinstance(item, Symbol) and item.name == "_":
            continue
        bind(analysis, item, Support("item", [Local(parts, start), Const(index, start)], start), names, pairs)
    if rest is not None:
        left = Support("rest_of", [Local(parts, start), Const(len(items), start)], start)
        bind(analysis, rest, left, names, pairs, rest=True)


def _bind_map(analysis: Analysis, pattern: Map, value: Local, names: dict[str, Var], pairs: Pairs) -> None:
    defaults = _defaults(analysis, pattern)
    whole, value = value, _as_map(analysis, value, pairs)
    for key, target in zip(pattern.items[::2], pattern.items[1::2], strict=True):
        if isinstance(key, Literal) and type(key.value) is Keyword:
            of = whole if key.value.name == "as" else value
            _bind_option(analysis, key, target, of, defaults, names, pairs)
        elif isinstance(target, Literal) and isinstance(target.value, str | Keyword | int):
            _bind_key(analysis, key, target.value, value, defaults, names, pairs)
        else:
            analysis.fail("unsupported pattern", target, "Write {name :key}, the new name before the key.")
    for name in defaults:
        if name not in names:
            analysis.fail(f":or gives a default for {name}, which is not bound", pattern)


def _as_map(analysis: Analysis, value: Local, pairs: Pairs) -> Local:
    """Return a name for what the pattern looks into, which is a map whatever the value is."""
    var = analysis.fresh()
    var.mapping = True
    pairs.append((var, Support("as_map", [value], value.start)))
    return Local(var, value.start)


def _bind_option(
    analysis: Analysis,
    key: Literal,
    target: Form,
    value: Local,
    defaults: dict[str, Form],
    names: dict[str, Var],
    pairs: Pairs,
) -> None:
    """Bind what stands behind ``:keys``, ``:strs`` or ``:as``; ``:or`` has been read."""
    option = key.value.name
    if option == "as":
        bind(analysis, Symbol(simple_name(analysis, target), target.start), value, names, pairs)
    elif option in {"keys", "strs"}:
        if not isinstance(target, Vector):
            analysis.fail(f":{option} needs a vector of names", target, f"Write {{:{option} [a b]}}.")
        for item in target.items:
            if isinstance(item, Literal) and type(item.value) is Keyword:
                item = Symbol(item.value.name, item.start)
            name = simple_name(analysis, item)
            _bind_key(analysis, item, name if option == "strs" else Keyword(name), value, defaults, names, pairs)
    elif option != "or":
        analysis.fail(f"unsupported pattern :{option}", key, "There are :keys, :strs, :or and :as; or {name :key}.")


def _bind_key(
    analysis: Analysis,
    pattern: Form,
    key: str | Keyword | int,
    value: Local,
    defaults: dict[str, Form],
    names: dict[str, Var],
    pairs: Pairs,
) -> None:
    """Bind ``pattern`` to what the map has under ``key``, or to its default when it has nothing there."""
    start = pattern.start
    default = defaults.get(pattern.name) if isinstance(pattern, Symbol) else None
    found: Node
    if type(key) is not Keyword:
        found = Support("found" if default is None else "found_or_missing", [value, Const(key, start)], start)
    elif default is None:
        found = KeywordCall(key, [value], start)
    else:
        found = Support("found_or_missing", [value, Const(key, start)], start)
    if default is not None:
        held = _held(analysis, found, pairs)
        found = If(Support("is_missing", [held], start), analysis.node(default, names), held, start)
    bind(analysis, pattern, found, names, pairs)


def _defaults(analysis: Analysis, pattern: Map) -> dict[str, Form]:
    for key, target in zip(pattern.items[::2], pattern.items[1::2], strict=True):
        if _is_keyword(key, "or"):
            if not isinstance(target, Map):
                analysis.fail(":or needs a map of defaults", target, "Write {:keys [a] :or {a 1}}.")
            return {
                simple_name(analysis, name): value
                for name, value in zip(target.items[::2], target.items[1::2], strict=True)
            }
    return {}


def _is_keyword(form: Form, name: str) -> bool:
    return isinstance(form, Literal) and type(form.value) is Keyword and form.value.name == name


def bind_all(analysis: Analysis, bindings: Vector, scope: Scope) -> tuple[Pairs, dict[str, Var]]:
    """Return what the pairs of a binding vector bind, and the scope in which the body is read."""
    if len(bindings.items) % 2:
        analysis.fail(
            f"bindings need pairs of name and value, got {len(bindings.items)} forms",
            bindings,
            "Write [name value name value].",
        )
    names, pairs = dict(scope), Pairs()
    for pattern, value in zip(bindings.items[::2], bindings.items[1::2], strict=True):
        bind(analysis, pattern, analysis.node(value, names), names, pairs)
    return pairs, names
