"""How a plist meets a signature: operations take keyword arguments, callers send ``(:a-key value …)``.

A keyword that is nil counts as left out where the parameter has a default, as everywhere in Lisp: a flag is declared
``flag: bool = False``, a list ``names: Sequence[str] = ()``, and neither ever sees None.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyagentd.errors import BadRequest
from pyagentd.sexp import SexpError, plist_to_dict


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method offered to clients."""

    name: str  # as on the wire, kebab-case
    run: Callable[..., Awaitable[Any]]
    parameters: Mapping[str, bool]  # snake_case name → whether it must be given
    doc: str  # first line of the docstring

    @property
    def arguments(self) -> str:
        """The plist it takes, for people: ``(:branch :seq)``."""
        return _keywords(self.parameters)

    def bind(self, arguments: object) -> dict[str, Any]:
        """Return the keyword arguments in ``arguments``, the argument list of a call.

        Raises:
            BadRequest: It is not one plist, or its keywords are not the parameters.
        """
        given = self._plist(arguments)
        unknown = given.keys() - self.parameters
        missing = [name for name, required in self.parameters.items() if required and name not in given]
        if unknown or missing:
            raise BadRequest(
                f"{self.name}: " + ", ".join([*_complain("unknown", unknown), *_complain("missing", missing)]),
                mend=f"It takes {self.arguments}.",
            )
        return {name: value for name, value in given.items() if value is not None or self.parameters[name]}

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
    parameters = {
        parameter.name: parameter.default is inspect.Parameter.empty
        for parameter in inspect.signature(run).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    doc = (inspect.getdoc(run) or "").partition("\n")[0]
    return Operation(name=name.replace("_", "-"), run=run, parameters=parameters, doc=doc)


def _complain(what: str, names: Iterable[str]) -> Sequence[str]:
    names = sorted(names)
    return [f"{what} {_keywords(names).strip('()')}"] if names else []


def _keywords(names: Iterable[str]) -> str:
    return "(" + " ".join(":" + name.replace("_", "-") for name in names) + ")"
