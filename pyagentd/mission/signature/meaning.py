"""What the forms of a signature mean: shorthand, and Malli wherever a vector begins with one of its words.

``[:type]`` is always a list of that type (SPEC 004); so ``[:map]`` is a list of maps, and the empty map is ``{}``.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyagentd.errors import SignatureError
from pyagentd.mission.signature import malli
from pyagentd.mission.signature.fields import What, marked, name_of, no_duplicates, no_type
from pyagentd.mission.signature.forms import Form, read
from pyagentd.mission.signature.names import known, meant
from pyagentd.mission.signature.types import Field, List, Map, Primitive, Type, maybe


def parts_of(forms: Sequence[Form]) -> tuple[tuple[Field, ...], Type]:
    """Return the parameters and the result that the ``forms`` of a whole signature write.

    Raises:
        SignatureError: They write no signature.
    """
    match forms:
        case []:
            raise SignatureError("there is no signature", mend="The shortest one is `:any`")
        case [Form(kind="vector", value=(Form(kind="keyword", value="=>"), *rest)) as whole]:
            if whole.optional:
                raise whole.error("a signature is not optional", "Put the `?` behind the type of its result")
            return _function(whole, rest)
        case [Form(kind="arrow") as arrow, *rest]:
            return (), _result(arrow, rest)
        case [Form(kind="parens", optional=True) as parens, *_]:
            raise parens.error("parameters are not optional", "Put the `?` behind the type of one")
        case [Form(kind="parens") as parens, Form(kind="arrow") as arrow, *rest]:
            return fields_of(parens.value, "parameter"), _result(arrow, rest)
        case [Form(kind="parens") as parens, *rest]:
            place = rest[0] if rest else parens
            raise place.error("no result follows the parameters", "Write `->` and a type behind them")
        case _:
            return (), _only(forms)


def type_of(form: Form) -> Type:
    """Return the type that ``form`` writes; a ``?`` behind it lets it be nil.

    Raises:
        SignatureError: It writes none.
    """
    if form.kind == "string" and not form.source and form.value.strip():
        return _only(read(form.value))
    meaning = _unmarked(form)
    return maybe(meaning) if marked(form) else meaning


def fields_of(forms: Sequence[Form], what: What) -> tuple[Field, ...]:
    """Return the fields that ``forms`` write as names and types in turn."""
    found: list[Field] = []
    rest = list(forms)
    while rest:
        key = rest.pop(0)
        name = name_of(key, what)
        if not rest or rest[0].after_comma or _is_name(rest[0]):
            raise no_type(key, name, what)
        found.append(malli.field_of(name, rest.pop(0), type_of))
    no_duplicates(found, forms, what)
    return tuple(found)


def _is_name(form: Form) -> bool:
    # `{a int}` forgot a colon, `{a b :int}` a type.
    return form.kind == "name" and known(form.value.lower().rstrip("?")) is None


def _result(arrow: Form, rest: Sequence[Form]) -> Type:
    if not rest:
        raise arrow.error("no result follows the arrow", "Write its type behind it; `:any` is anything")
    return _only(rest)


def _only(forms: Sequence[Form]) -> Type:
    first, *others = forms
    found = type_of(first)
    if others:
        raise others[0].error("nothing may follow the result", "Several values are a map: `{id :int, name :string}`")
    return found


def _function(whole: Form, rest: Sequence[Form]) -> tuple[tuple[Field, ...], Type]:
    if len(rest) != 2:
        raise whole.error("`:=>` takes parameters and a result", "As in `[:=> [:cat :string] :int]`")
    taken, result = rest
    words = taken.value if taken.kind == "vector" else ()
    if not words or words[0].kind != "keyword" or words[0].value not in ("cat", "catn"):
        raise taken.error("these are no parameters", "Write `[:cat]`, `[:cat :string]` or `[:catn [:id :int]]`")
    return (_named(words[1:]) if words[0].value == "catn" else _unnamed(words[1:])), type_of(result)


def _named(forms: Sequence[Form]) -> tuple[Field, ...]:
    params = tuple(malli.entry_of(form, type_of) for form in forms)
    no_duplicates(params, [form.value[0] for form in forms], "parameter")
    return params


def _unnamed(forms: Sequence[Form]) -> tuple[Field, ...]:
    """Return the parameters of ``[:cat …]``: the fields of its one map, for arguments are a map, or numbered ones."""
    if len(forms) == 1 and forms[0].kind == "vector" and malli.is_map(forms[0].value) and not forms[0].optional:
        taken = malli.map_of_entries(forms[0], type_of)
        if taken.closed:
            raise forms[0].error("parameters are not closed", "Strict validation refuses arguments not declared")
        return taken.fields
    return tuple(malli.field_of(f"arg{number}", form, type_of) for number, form in enumerate(forms, start=1))


def _unmarked(form: Form) -> Type:
    match form.kind:
        case "type":
            return form.value  # type: ignore[no-any-return]  # the kind says what it is
        case "keyword":
            return _primitive(form)
        case "braces":
            return Map(fields_of(form.value, "field"))
        case "vector":
            return _vector(form)
        case "name":
            raise form.error(f"`{form.value}` is no type", meant(form.value))
        case "string":
            raise form.error("a string is no type", "Types begin with a colon; certain values are `[:enum …]`")
        case "number" | "constant":
            raise form.error("a value is no type", "Certain values are written `[:enum 1 2]`")
        case "parens":
            raise form.error("parameters stand at the beginning only", "A list is `[:int]`, a map `{id :int}`")
        case _:
            raise form.error("`->` stands between parameters and result only", "As in `(id :int) -> :string`")


def _primitive(form: Form) -> Type:
    name = form.value if form.optional else form.value.removesuffix("?")
    found = known(name)
    if found is None:
        raise form.error(f"`:{form.value}` is no type", meant(form.value))
    return Primitive(found)


def _vector(form: Form) -> Type:
    parts: tuple[Form, ...] = form.value
    if not parts:
        raise form.error("this list says no type of its items", "Write `[:any]` for a list of anything")
    if malli.is_schema(parts):
        return malli.schema_of(form, type_of)
    if len(parts) > 1:
        mend = "A list has one type of items; what may be either is written `[:or :int :string]`"
        raise parts[1].error("there are two types in one list", mend)
    return List(type_of(parts[0]))
