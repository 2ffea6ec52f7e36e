"""What a mission's programs may call, one ``Tool`` per name (SPEC 004 Tool Normalization & Schema Extraction).

Accepted are Python functions (hints and docstring say signature and description), ``(function, signature)``,
``(function, signature, options)``, ``Tool``, ``LLMTool`` and what ``as_tool`` returns, and dicts with a ``prompt``.
A tool gets plain Python values under string keys and returns what it likes; who calls it turns that into values of
the language.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args

from pyagentd.lisp import values
from pyagentd.mission import llmtool, passing
from pyagentd.mission import signature as signatures
from pyagentd.mission.llmtool import LLMTool, ToolsError
from pyagentd.mission.signature import Problem, Signature, SignatureError

Validation = Literal["enabled", "warn_only", "disabled", "strict"]

RESERVED = frozenset({"return", "fail"})
_MODES = get_args(Validation)
_OPTIONS = frozenset({"validation", "description", "signature"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The arguments of one call, checked and converted.

    Attributes:
        args: Plain Python values by parameter.
        warnings: What was converted or left out, in whole sentences.
        problems: Why the call cannot be made; empty when it can.
    """

    args: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool under its name.

    Attributes:
        function: What is called; None for a tool that is only shown (``tool_catalog``).
        signature: Its contract; None when nothing is known of its parameters.
        description: What the model is told beside the signature.
        validation: How strictly calls are checked; None as the mission says.
        specified: Whether somebody stated the contract: a signature, or hints for all parameters and the result.
    """

    name: str
    function: Callable[..., Any] | None = None
    signature: Signature | None = None
    description: str = ""
    validation: Validation | None = None
    specified: bool = True

    def schema(self) -> str:
        """Return the contract as models read it: ``search(query :string, limit :int) -> [{id :int}]``."""
        if self.signature is None:
            return f"{self.name}(...) -> :any"
        return f"{self.name}{self.signature.render()}"

    def mode(self, mission: str) -> Validation:
        """Return how strictly its calls are checked within a mission that says ``mission``."""
        return self.validation or cast(Validation, mission)

    def prepare(self, args: Mapping[Any, Any] | None, mission: str = "enabled") -> Prepared:
        """Return the arguments of a call as the function gets them (SPEC 004 Implicit Conversion).

        Args:
            args: As the program gave them; None stands for no arguments.
            mission: The mission's ``signature_validation``; the tool's own wins.
        """
        mode = self.mode(mission)
        given = values.to_python({} if args is None else args)
        if not isinstance(given, dict):
            return Prepared(problems=(Problem("", f"arguments are one map, got a {values.type_name(args)}"),))
        if self.signature is None or mode == "disabled":
            return Prepared(args=given)
        return _checked(self.signature, args or {}, mode)

    def check(self, value: Any, mission: str = "enabled") -> tuple[Problem, ...]:
        """Return what of a result does not fit the signature; nothing where results are not checked."""
        mode = self.mode(mission)
        if self.signature is None or mode == "disabled":
            return ()
        return tuple(self.signature.validate(value, strict=mode == "strict"))

    def call(self, args: Mapping[str, Any]) -> Any:
        """Call the function with prepared arguments; of an async function an awaitable is returned.

        A ``Step`` that it returns stands for its value.

        Raises:
            MissionFailed: It returned a step that failed.
        """
        if self.function is None:
            raise ToolsError(f'"{self.name}" is shown for planning and cannot be called')
        return passing.call(self.function, args, self.signature)


def normalize(tools: Mapping[str, Any] | Sequence[Any] | None, *, catalog: bool = False) -> dict[str, Tool]:
    """Return every tool by its name.

    Args:
        tools: By name, or a sequence of functions and ``Tool`` that bring their own.
        catalog: They are only shown: a signature alone is enough.

    Raises:
        ToolsError: A name is reserved, or something is no tool; names it.
    """
    named = tools if isinstance(tools, Mapping) else {_own_name(each): each for each in tools or ()}
    for name in named:
        if not isinstance(name, str) or not name:
            raise ToolsError(f"A tool's name is a string, got {name!r}")
        if name in RESERVED:
            raise ToolsError(
                f'"{name}" is reserved: every mission has it to end itself',
                reason="reserved_tool_name",
                mend="Register the tool under another name",
            )
    return {name: _tool(name, given, catalog) for name, given in named.items()}


def _tool(name: str, given: Any, catalog: bool) -> Tool:
    try:
        return _of(name, given, catalog)
    except ToolsError as error:
        raise ToolsError(f'Tool "{name}": {error.message}', reason=error.reason, mend=error.mend) from error
    except SignatureError as error:
        raise ToolsError(f'Tool "{name}": its signature cannot be read: {error}') from error


def _of(name: str, given: Any, catalog: bool) -> Tool:
    match given:
        case Tool():
            return replace(given, name=name)
        case LLMTool():
            return Tool(name=name, function=given, signature=given.contract, description=given.description or "")
        case Mapping() if "function" in given:
            rest = {key: value for key, value in given.items() if key != "function"}
            return _with_options(name, given["function"], rest.pop("signature", None), rest)
        case Mapping():
            return _of(name, llmtool.of_mapping(given), catalog)
        case (function, Mapping() as options):
            return _with_options(name, function, options.get("signature"), options)
        case (function, signature):
            return _with_options(name, function, signature, {})
        case (function, signature, Mapping() as options):
            return _with_options(name, function, signature, options)
        case str() | Signature() if catalog:
            return Tool(name=name, signature=_parsed(given))
    if not callable(given):
        raise ToolsError(
            "it is neither a function, a pair of function and signature, nor a dict with a prompt", mend=_HOW
        )
    return _of_function(name, given)


_HOW = 'Give a function, (function, "(query :string) -> :any"), or {"prompt": …, "signature": …}'


def _with_options(name: str, function: Any, signature: Any, options: Mapping[str, Any]) -> Tool:
    if unknown := options.keys() - _OPTIONS:
        raise ToolsError(f"unknown option {sorted(unknown)[0]!r}", mend=f"Known: {', '.join(sorted(_OPTIONS))}")
    validation = options.get("validation")
    if validation is not None and validation not in _MODES:
        raise ToolsError(f"validation is {validation!r}, not one of {', '.join(_MODES)}")
    if signature is not None and callable(function):
        tool = Tool(name=name, function=function, signature=_parsed(signature), description=_described(function))
    else:
        tool = _of(name, function, False)
    return replace(tool, validation=validation, description=options.get("description") or tool.description)


def _parsed(signature: Any) -> Signature:
    return signature if isinstance(signature, Signature) else signatures.parse(signature)


def _described(function: Callable[..., Any]) -> str:
    return function.description or "" if isinstance(function, LLMTool) else passing.described(function)


def _of_function(name: str, function: Callable[..., Any]) -> Tool:
    described = passing.described(function)
    if passing.takes_everything(function):
        return Tool(name=name, function=function, description=described, specified=False)
    return Tool(
        name=name,
        function=function,
        signature=signatures.of_callable(function),
        description=described,
        specified=passing.is_annotated(function),
    )


def _own_name(given: Any) -> str:
    name = given.name if isinstance(given, Tool) else getattr(given, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise ToolsError("A tool without a name cannot be registered", mend="Give tools as a dict from names")
    return name


def _checked(signature: Signature, args: Mapping[Any, Any], mode: str) -> Prepared:
    """Return the arguments converted to the signature's types, without what it does not name."""
    named = _as_named(signature, args)
    params = [each.name for each in signature.params]
    extra = [key for key in named if key not in params]
    declared = {key: value for key, value in named.items() if key in params}
    coerced = signature.coerce_input(declared, strict=mode == "strict")
    problems = list(coerced.problems)
    warnings = [str(each) for each in coerced.warnings]
    takes = ", ".join(params) or "no arguments"
    if mode == "strict":
        problems += [Problem(key, f"is no argument of this tool, which takes {takes}") for key in extra]
    else:
        warnings += [f'"{key}" was left out: this tool takes {takes}' for key in extra]
    plain = values.to_python(coerced.value)
    if mode == "warn_only":
        warnings += [str(problem) for problem in problems]
        plain = {**values.to_python(declared), **plain}
        problems = []
    return Prepared(args=plain, warnings=tuple(warnings), problems=tuple(problems))


def _as_named(signature: Signature, args: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the arguments by name, spelled as the signature spells them: ``user-id`` is ``user_id``."""
    spelled = {each.name.replace("_", "-"): each.name for each in signature.params}
    own = {each.name for each in signature.params}
    named: dict[str, Any] = {}
    for key, value in args.items():
        name = str(values.to_python(key))
        named[name if name in own else spelled.get(name.replace("_", "-"), name)] = value
    return named
