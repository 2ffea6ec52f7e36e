"""How a plist meets a signature: operations take keyword arguments, callers send ``(:a-key value …)``.

A keyword that is nil counts as left out where the parameter has a default, as everywhere in Lisp: a flag is declared
``flag: bool = False``, a list ``names: Sequence[str] = ()``, and neither ever sees None. A parameter annotated with
one of ``_KINDS`` gets a value of that kind, so that no operation begins with what it would stumble over later.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyagentd.errors import BadRequest
from pyagentd.sexp import SexpError, encode, plist_to_dict

_OR_NIL = " | None"
_SHOWN = 60  # characters of a value that does not fit


def _are_strings(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


_KINDS: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "str": ("a string", lambda value: isinstance(value, str)),
    "int": ("an integer", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "Sequence[str]": ("a list of strings", _are_strings),
}
"""By annotation: what the parameter takes, in words, and whether a value is that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method offered to clients."""

    name: str  # as on the wire, kebab-case
    run: Callable[..., Awaitable[Any]]
    parameters: Mapping[str, bool]  # snake_case name → whether it must be given
    kinds: Mapping[str, str]  # of the parameters that take one of ``_KINDS``; " | None" behind it allows nil
    doc: str  # first line of the docstring

    @property
    def arguments(self) -> str:
        """The plist it takes, for people: ``(:branch :seq)``."""
        return _keywords(self.parameters)

    def bind(self, arguments: object) -> dict[str, Any]:
        """Return the keyword arguments in ``arguments``, the argument list of a call.

        Raises:
            BadRequest: It is not one plist, its keywords are not the parameters, or a value is of the wrong kind.
        """
        given = self._plist(arguments)
        unknown = given.keys() - self.parameters
        missing = [name for name, required in self.parameters.items() if required and name not in given]
        if unknown or missing:
            raise BadRequest(
                f"{self.name}: " + ", ".join([*_complain("unknown", unknown), *_complain("missing", missing)]),
                mend=f"It takes {self.arguments}.",
            )
        bound = {name: value for name, value in given.items() if value is not None or self.parameters[name]}
        for name, kind in self.kinds.items():
            wanted, fits = _KINDS[kind.removesuffix(_OR_NIL)]
            if name not in bound or (bound[name] is None and kind.endswith(_OR_NIL)):
                continue
            if not fits(bound[name]):
                raise BadRequest(f"{self.name}: {_key(name)} must be {wanted}, got {_shown(bound[name])}")
        return bound

    def _plist(self, arguments: object) -> dict[str, Any]:
        match arguments:
            case None | []:
                return {}
            case [None | list() as plist]:
                try:
                    return plist_to_dict(plist)
                except SexpError as error:
                    raise BadRequest(f"{self.name}: {error.message}", mend=f"It takes {self.arguments}.") from error
            case _:
                raise BadRequest(f"{self.name} takes one plist", mend=f"It takes {self.arguments}.")


def operation(name: str, run: Callable[..., Awaitable[Any]]) -> Operation:
    """Return ``run`` as an operation; its first parameter is the client, the others are keyword-only."""
    found = [
        parameter
        for parameter in inspect.signature(run).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    kinds = {each.name: _kind(each.annotation) for each in found}
    return Operation(
        name=name.replace("_", "-"),
        run=run,
        parameters={each.name: each.default is inspect.Parameter.empty for each in found},
        kinds={name: kind for name, kind in kinds.items() if kind.removesuffix(_OR_NIL) in _KINDS},
        doc=(inspect.getdoc(run) or "").partition("\n")[0],
    )


def _kind(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return text.removeprefix("collections.abc.")


def _shown(value: object) -> str:
    """Return a value as Lisp writes it, cut where it is long."""
    text = encode(value).decode()
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _complain(what: str, names: Iterable[str]) -> Sequence[str]:
    names = sorted(names)
    return [f"{what} {_keywords(names).strip('()')}"] if names else []


def _keywords(names: Iterable[str]) -> str:
    return "(" + " ".join(map(_key, names)) + ")"


def _key(name: str) -> str:
    return ":" + name.replace("_", "-")
