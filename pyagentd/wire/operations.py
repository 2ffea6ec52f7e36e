"""Operations and their arguments: ``(:a-key value …)`` becomes keyword arguments of the declared types, or an error.

A keyword with the value nil counts as left out if the parameter has a default, as is usual in Lisp: a flag is
declared ``flag: bool = False``, a list ``names: Sequence[str] = ()``, and neither is ever None.
"""

import inspect
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pyagentd.errors import BadRequest, nearest
from pyagentd.reader import Misfit, convert, words
from pyagentd.wire.sexp import SexpError, encode, plist_to_dict

Run = TypeVar("Run", bound=Callable[..., Awaitable[Any]])

_SHOWN = 60  # characters of a value that does not fit


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One argument of an operation."""

    name: str  # as in Python
    type: Any  # the resolved annotation
    default: Any  # ``inspect.Parameter.empty`` where it must be given

    @property
    def key(self) -> str:
        """Its keyword, ``:a-key``."""
        return _key(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method offered to clients."""

    name: str  # as on the wire, kebab-case
    run: Callable[..., Awaitable[Any]]
    human: bool  # whether only a client with a human may call it
    parameters: Mapping[str, Parameter]  # by name
    required: tuple[str, ...]  # names of those that must be given
    reply: Any  # the annotation of what it returns
    doc: str  # the docstring

    @property
    def arguments(self) -> str:
        """The keywords of its plist, for messages: ``(:branch :seq)``."""
        return _keywords(self.parameters)

    async def call(self, client: Any, arguments: object) -> Any:
        """Return the reply to one call.

        Args:
            client: The caller.
            arguments: The argument list of the call.

        Raises:
            BadRequest: The arguments are invalid, or the operation needs a human and the client has none.
            PyagentdError: The operation's own errors.
        """
        arguments_by_name = self.bind(arguments)
        if self.human and not client.human:
            raise BadRequest(f"{self.name} needs a person", hint="Say hello with human t where somebody answers")
        return await self.run(client, **arguments_by_name)

    def bind(self, arguments: object) -> dict[str, Any]:
        """Return the keyword arguments in ``arguments``, the argument list of a call.

        Raises:
            BadRequest: It is not one plist, a keyword is unknown or missing, or a value has the wrong type.
        """
        match arguments:
            case None | []:
                return self.bind_named({})
            case [None | list() as plist]:
                try:
                    return self.bind_named(plist_to_dict(plist))
                except SexpError as error:
                    raise BadRequest(f"{self.name}: {error.message}", hint=f"It takes {self.arguments}.") from error
            case _:
                raise BadRequest(f"{self.name} takes one plist", hint=f"It takes {self.arguments}.")

    def bind_named(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments in ``arguments``, by their names in Python; raises as ``bind``."""
        unknown = arguments.keys() - self.parameters.keys()
        if unknown or not arguments.keys() >= {*self.required}:
            missing = [name for name in self.required if name not in arguments]
            complaints = [
                *(["unknown " + " ".join(map(self._unknown, sorted(unknown)))] if unknown else []),
                *(["missing " + " ".join(map(_key, missing))] if missing else []),
            ]
            raise BadRequest(f"{self.name}: {', '.join(complaints)}", hint=f"It takes {self.arguments}.")
        bound = {}
        for name, value in arguments.items():
            parameter = self.parameters[name]
            if value is None and name not in self.required:
                continue
            if parameter.type is bool and value is None:
                value = False
            try:
                bound[name] = convert(value, parameter.type)
            except Misfit:
                wanted = words(parameter.type, LISP)
                raise BadRequest(f"{self.name}: {parameter.key} must be {wanted}, got {_excerpt(value)}") from None
        return bound

    def _unknown(self, name: str) -> str:
        near = nearest(name, self.parameters)
        return _key(name) + (f" (did you mean {_key(near)}?)" if near else "")


def by_person(run: Run) -> Run:
    """Declare an operation that grants rights: only a client with a human may call it."""
    run.needs_person = True  # type: ignore[attr-defined]  # a function takes any attribute
    return run


def operation(name: str, run: Callable[..., Awaitable[Any]]) -> Operation:
    """Return ``run`` as an operation; its first parameter is the client, the others are keyword-only."""
    hints = typing.get_type_hints(run)
    found = [each for each in inspect.signature(run).parameters.values() if each.kind is each.KEYWORD_ONLY]
    return Operation(
        name=name.replace("_", "-"),
        run=run,
        human=getattr(run, "needs_person", False),
        parameters={
            each.name: Parameter(name=each.name, type=hints.get(each.name, Any), default=each.default)
            for each in found
        },
        reply=hints.get("return", Any),
        required=tuple(each.name for each in found if each.default is each.empty),
        doc=inspect.getdoc(run) or "",
    )


LISP: Mapping[Any, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "t or nil",
    type(None): "nil",
    Any: "anything",
    Mapping: "a plist",
}
"""The names of types in messages about values from Lisp."""


def _excerpt(value: object) -> str:
    """Return a value printed as Lisp, shortened if it is long."""
    text = encode(value).decode()
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _keywords(names: Iterable[str]) -> str:
    return "(" + " ".join(map(_key, names)) + ")"


def _key(name: str) -> str:
    return ":" + name.replace("_", "-")
