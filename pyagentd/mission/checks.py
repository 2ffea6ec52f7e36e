"""The checks before a mission starts. No model and no tool is called.

``prepare`` returns the mission ready to run, or raises all the reasons why it cannot start, the most important first.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any, TypeVar

from pyagentd.errors import SignatureError, TemplateError, UserError
from pyagentd.lisp import values
from pyagentd.lisp.errors import LispError
from pyagentd.lisp.values import Keyword, from_key
from pyagentd.mission import registry, template, tools
from pyagentd.mission import signature as signatures
from pyagentd.mission.firewall import Firewall
from pyagentd.mission.options import LLM, Arguments, Options, Request
from pyagentd.mission.signature import Map, Problem, Signature
from pyagentd.mission.step import Fail, Step
from pyagentd.mission.tools import Tool, ToolsError

# Chaining: the context of a mission may be the step of another one.


class ChainedFailure(UserError):
    """The context of a mission is the step of a mission that failed.

    Attributes:
        fail: With reason "chained_failure", and the failure itself in ``details["original_failure"]``.
    """

    code = "chained-failure"

    def __init__(self, step: Step[Any]) -> None:
        fail = step.fail or Fail(reason="unknown", message="The mission failed")
        original = {"reason": fail.reason, "message": fail.message, "op": fail.op, "details": dict(fail.details)}
        self.fail = Fail(
            reason="chained_failure",
            message=f"The mission whose result was to be the context failed: {fail.reason}: {fail.message}",
            op=fail.op,
            details={"original_failure": original},
        )
        super().__init__(self.fail.message)


StartContext = tuple[Mapping[Any, Any], str | Signature | None]
"""The values of ``ctx/`` by name, and their types if known."""


def start_context(context: Any, signature: str | Signature | None = None) -> StartContext:
    """Return the values and types of the context that a mission starts with.

    Args:
        context: A map; a ``Step``, whose value and signature are used (a value that is not a map becomes ``value``);
            a dataclass instance; a pydantic model; or None for an empty context.
        signature: The types of the context; overrides the signature of a step.

    Raises:
        ChainedFailure: The step failed.
        UserError: The context is none of these.
    """
    if isinstance(context, Step):
        if not context.ok:
            raise ChainedFailure(context)
        value = context.value if context.lisp_value is None else context.lisp_value
        if not isinstance(value, Mapping):
            return {"value": value}, signature
        return value, (signature or context.signature)
    if context is None:
        return {}, signature
    if isinstance(context, Mapping):
        return context, signature
    if is_dataclass(context) and not isinstance(context, type):
        return asdict(context), signature
    if hasattr(context, "model_dump"):
        return context.model_dump(), signature
    raise UserError(
        f"The context of a mission is a {type(context).__name__}, which has no names",
        hint='Give a dict, {"name": value}, or a Step',
    )


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyMission:
    """A mission that can run."""

    prompt: str  # as given
    text: str  # the prompt with its placeholders filled in, as the model reads it
    llm: LLM
    signature: Signature | None
    context: Mapping[str, Any]  # the values of ``ctx/`` at the start, as programs see them
    memory: Mapping[str, Any]  # the values of ``memory/`` at the start
    declared: Signature | None  # the types of the context, those of the mission's parameters among them
    tools: Mapping[str, Tool]
    catalog: Mapping[str, Tool]  # the tools that are only shown
    options: Options
    firewall: Firewall
    warnings: tuple[str, ...] = ()  # conversions, and mismatches under ``warn_only``

    @property
    def single_shot(self) -> bool:
        """Whether the value of the only program is the result (one turn, no tools)."""
        return self.options.max_turns == 1 and not self.tools


class CannotStart(Exception):
    """A mission cannot start; ``fails`` has all the reasons."""

    def __init__(self, fails: tuple[Fail, ...]) -> None:
        super().__init__(fails[0].message)
        self.fails = fails


def prepare(args: Arguments, models: Mapping[str, Any] | None = None, *, caller: LLM | None = None) -> ReadyMission:
    """Return the mission, ready to run, with the registry ``models`` and the callback of the mission that calls it.

    Raises:
        CannotStart: Something is wrong with its arguments.
    """
    options, context = args.options, args.context
    found = _Findings(options)
    found.fails += [Fail(reason="validation_error", message=each) for each in options.mistakes()]
    contract = found.signature(args.signature, "signature")
    empty: StartContext = {}, None
    given, types = found.check(lambda: start_context(context, args.context_signature), empty, UserError)
    declared = found.signature(types, "context_signature")
    no_tools: dict[str, Tool] = {}
    own = found.check(lambda: tools.normalize(args.tools), no_tools, ToolsError)
    catalog = found.check(lambda: tools.normalize(args.tool_catalog, catalog=True), no_tools, ToolsError)
    silent: LLM = no_llm
    callback = found.check(lambda: registry.resolve(args.llm, models, caller), silent)
    firewall = Firewall(options.prompt_limit)
    data = found.context(given, contract, declared)
    firewall.learn(data)
    text = found.text(args.prompt, data, firewall)
    kept = found.plain_values(args.memory or {}, "memory")
    firewall.learn(kept)
    found.check_strict(own, data, contract, declared)
    if found.fails:
        raise CannotStart(tuple(found.fails))
    params = contract.params if contract else ()
    return ReadyMission(
        prompt=args.prompt,
        text=text,
        llm=callback,
        signature=contract,
        context=data,
        memory=kept,
        declared=Signature(params, declared.returns if declared else Map(())) if params or declared else None,
        tools=own,
        catalog=catalog,
        options=options,
        firewall=firewall,
        warnings=tuple(found.warnings),
    )


def named_entries(value: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a map of the language with names as keys; entries whose key is not a name are left out."""
    plain = ((from_key(key), item) for key, item in value.items())
    return {
        key.name if isinstance(key, Keyword) else key: item for key, item in plain if isinstance(key, str | Keyword)
    }


def no_llm(request: Request) -> str | Mapping[str, Any] | Awaitable[Any]:
    """Stand in for the callback in a dry run."""
    return ""


@dataclass(slots=True)
class _Findings:
    """The problems found so far; a failed check returns a harmless default, so that the other checks still run."""

    options: Options
    fails: list[Fail] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def check(self, check: Callable[[], _T], otherwise: _T, only: type[Exception] | None = None) -> _T:
        """Return the result of ``check``, or note its error (of the kind ``only``) and return ``otherwise``."""
        try:
            return check()
        except (UserError, LispError, TypeError) as error:
            if only and not isinstance(error, only):
                raise
            fail = Fail(reason=getattr(error, "reason", "validation_error"), message=str(error))
            self.fails.append(error.fail if isinstance(error, ChainedFailure) else fail)
            return otherwise

    def signature(self, given: Any, name: str) -> Signature | None:
        if given is None:
            return None
        try:
            return signatures.parse(given)
        except SignatureError as error:
            self.fails.append(Fail(reason="validation_error", message=f"The {name} cannot be read: {error}"))
            return None

    def plain_values(self, given: Mapping[Any, Any], what: str) -> dict[str, Any]:
        def plain_entries() -> dict[str, Any]:
            try:
                return named_entries(values.from_python(dict(given)))
            except TypeError as error:
                raise UserError(f"The {what} holds something that programs cannot use: {error}") from error

        return self.check(plain_entries, {})

    def context(self, given: Mapping[Any, Any], contract: Signature | None, declared: Signature | None) -> Any:
        data = self.plain_values(given, "context")
        mode = self.options.signature_validation
        if mode == "disabled":
            return data
        if declared is not None:
            self._mismatches("context_signature", declared.returns_only().validate(data), data)
        if contract is None or not contract.params:
            return data
        here = {each.name for each in contract.params} & data.keys()
        coerced = contract.coerce_input({name: data[name] for name in here})
        self.warnings += [str(each) for each in coerced.warnings]
        self._mismatches("signature", coerced.problems, data)
        return {**data, **coerced.value}

    def _mismatches(self, what: str, found: tuple[Problem, ...], data: Mapping[str, Any]) -> None:
        """Note the values of the context that do not fit; missing ones matter in strict mode only."""
        wrong = [each for each in found if len(each.keys) != 1 or each.keys[0] in data]
        if not wrong:
            return
        message = f"The context does not fit the {what}: " + "; ".join(map(str, wrong))
        if self.options.signature_validation == "warn_only":
            self.warnings.append(message)
        else:
            details = {"problems": [{"path": each.path, "message": each.message} for each in wrong]}
            self.fails.append(Fail(reason="validation_error", message=message, details=details))

    def check_strict(
        self, own: Mapping[str, Tool], data: Mapping[str, Any], contract: Signature | None, declared: Signature | None
    ) -> None:
        """Make the checks of ``signature_validation="strict"``."""
        if self.options.signature_validation != "strict":
            return
        if bare := [name for name, tool in own.items() if tool.signature is None or not tool.specified]:
            message = f"Strict validation needs a signature for every tool; none has {', '.join(sorted(bare))}"
            self.fails.append(Fail(reason="validation_error", message=message))
        fields = [*(contract.params if contract else ())]
        if declared is not None and isinstance(declared.returns, Map):
            fields += declared.returns.fields
        missing = [
            each.name for each in fields if not (each.optional or each.type.is_optional) and each.name not in data
        ]
        if missing:
            message = f"The context has no {', '.join(dict.fromkeys(missing))}, which the signature requires"
            self.fails.append(Fail(reason="validation_error", message=message))

    def text(self, prompt: str, data: Mapping[str, Any], firewall: Firewall) -> str:
        if not isinstance(prompt, str) or not prompt.strip():
            self.fails.append(Fail(reason="validation_error", message="A mission needs a prompt"))
            return ""
        try:
            return template.expand(prompt, data, firewall.template)
        except TemplateError as error:
            self.fails.append(Fail(reason="template_error", message=str(error)))
            return prompt
