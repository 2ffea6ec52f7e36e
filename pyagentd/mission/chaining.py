"""A mission that goes on where another ended (SPEC 004 Auto-Chaining with Step Structs)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from pyagentd.errors import UserError
from pyagentd.lisp import values
from pyagentd.mission.signature import Signature
from pyagentd.mission.step import Fail, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Chained:
    """What a mission starts from.

    Attributes:
        context: What stands in ``ctx/``, by string keys.
        signature: Of the context, or None.
    """

    context: Mapping[Any, Any]
    signature: str | Signature | None = None


class ChainedFailure(UserError):
    """The context of a mission is a mission that failed.

    Attributes:
        fail: With reason "chained_failure", and the failure itself in ``details["original_failure"]``.
    """

    code = "chained-failure"

    def __init__(self, fail: Fail) -> None:
        super().__init__(fail.message)
        self.fail = fail


def chained(context: Any, signature: str | Signature | None = None) -> Chained:
    """Return the context and its signature that ``context`` stands for.

    Args:
        context: A map, a ``Step`` (its value and its signature count), a dataclass or a model, or None for nothing.
            The value of a step that is no map stands under ``value``.
        signature: Of the context; it wins over a step's.

    Raises:
        ChainedFailure: The step failed.
        UserError: The context is nothing with names.
    """
    if isinstance(context, Step):
        return _of_step(context, signature)
    if context is None:
        return Chained(context={}, signature=signature)
    if isinstance(context, Mapping):
        return Chained(context=context, signature=signature)
    if is_dataclass(context) and not isinstance(context, type):
        return Chained(context=asdict(context), signature=signature)
    if hasattr(context, "model_dump"):
        return Chained(context=context.model_dump(), signature=signature)
    raise UserError(
        f"The context of a mission is a {type(context).__name__}, which has no names",
        mend='Give a dict, {"name": value}, or a Step',
    )


def _of_step(step: Step, signature: str | Signature | None) -> Chained:
    if not step.ok:
        raise ChainedFailure(failure_of(step))
    value = step.value if step.lisp_value is None else step.lisp_value
    if not isinstance(value, Mapping):
        return Chained(context={"value": value}, signature=signature)
    return Chained(context=value, signature=signature or step.signature)


def failure_of(step: Step) -> Fail:
    """Return why a mission cannot go on from ``step``, a failure."""
    fail = step.fail or Fail(reason="unknown", message="The mission failed")
    original = {"reason": fail.reason, "message": fail.message, "op": fail.op, "details": dict(fail.details)}
    return Fail(
        reason="chained_failure",
        message=f"The mission whose result was to be the context failed: {fail.reason}: {fail.message}",
        op=fail.op,
        details={"original_failure": original},
    )


def plain(context: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a context as plain Python under string keys."""
    made = values.to_python(context)
    return dict(made)
