"""Names of fields and parameters, and the ``?`` behind their types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from pyagentd.errors import SignatureError
from pyagentd.mission.signature.forms import Form
from pyagentd.mission.signature.names import known
from pyagentd.mission.signature.types import Field

What: TypeAlias = Literal["field", "parameter"]
"""How errors call what has a name."""

_PLAIN = re.compile(r"[^\W\d](?:(?!->)[\w-])*[?!]?")
_EXAMPLE: dict[What, str] = {"field": "`{id :int}`", "parameter": "`(id :int)`"}


def is_plain(name: str) -> bool:
    """Return whether ``name`` can be written without quotes."""
    return _PLAIN.fullmatch(name) is not None


def marked(form: Form) -> bool:
    """Return whether ``form`` has the ``?`` of optional types."""
    text = form.kind == "keyword" or (form.kind == "string" and not form.source)  # data may hold shorthand as text
    return form.optional or (text and len(form.value) > 1 and form.value.endswith("?"))


def name_of(form: Form, what: What) -> str:
    """Return the name of a field that ``form`` writes: bare, with a colon, or in quotes.

    Raises:
        SignatureError: It writes none.
    """
    plain = form.kind in ("name", "keyword") and is_plain(form.value)
    if not form.optional and (plain or (form.kind == "string" and form.value)):
        return str(form.value)
    mend = f'Write it in quotes: `"{form.value}"`' if form.kind == "keyword" else f"As in {_EXAMPLE[what]}"
    raise form.error(f"this is no name of a {what}", mend)


def no_type(key: Form, name: str, what: What) -> SignatureError:
    """Return the error that nothing, or another name, stands where the type of ``name`` should."""
    if key.kind == "keyword" and known(name.rstrip("?")):
        return key.error(f"this type has no name of a {what}", f"Write one before it: `value :{name}`")
    return key.error(f"the {what} `{name}` has no type", f"Write one behind it, as in `{name} :any`")


def no_duplicates(fields: Iterable[Field], forms: Sequence[Form], what: What) -> None:
    """Raise ``SignatureError`` when two of ``fields``, which were read from ``forms``, have one name."""
    seen: set[str] = set()
    for field in fields:
        if field.name in seen:
            place = [form for form in forms if form.value == field.name][-1:] or list(forms[:1])
            raise place[0].error(f"there are two {what}s `{field.name}`", "Leave one")
        seen.add(field.name)
