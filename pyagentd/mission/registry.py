"""The registry of models: maps names to LLM callbacks. Also ``Scripted``, a model for tests.

The values of a registry are callbacks, names of models, or arguments of ``Model`` as a dict. A mission looks a name
up in its ``models=``, then in the process-wide registry that ``configure`` sets.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from pyagentd import mission as missions  # `Model` is loaded when one is used: it needs the catalog of models
from pyagentd.config import Config, load_config
from pyagentd.errors import NotFound, UserError, did_you_mean
from pyagentd.mission.options import CALLER, LLM, LLMError, Request

_configured: Mapping[str, Any] = MappingProxyType({})


class ModelNotFound(NotFound):
    """No registry has a model of that name; ``fail.reason`` is then "model_not_found"."""

    code = "model-not-found"
    reason = "model_not_found"


def configure(models: Mapping[str, Any]) -> None:
    """Set the process-wide registry."""
    global _configured
    _configured = MappingProxyType(dict(models))


def resolve(llm: Any, models: Mapping[str, Any] | None = None, caller: LLM | None = None) -> LLM:
    """Return the callback that ``llm`` stands for.

    Args:
        llm: A callback, a name, arguments of ``Model`` as a dict, or "caller".
        models: The mission's registry, searched before the process-wide one.
        caller: The callback of the parent mission, for "caller".

    Raises:
        ModelNotFound: It is a name that no registry has, or "caller" without a parent mission.
        UserError: It is neither a callback nor a name.
    """
    if llm == CALLER and CALLER not in (models or {}):
        if caller is None:
            raise ModelNotFound('llm is "caller", but no mission is calling', hint=_GIVE)
        return caller
    known = {**_configured, **(models or {})}
    seen: list[str] = []
    while isinstance(llm, str):
        if llm in seen:
            chain = " → ".join((*seen, llm))
            raise ModelNotFound(f'"{llm}" in the registry of models stands for itself ({chain})', hint=_GIVE)
        if llm not in known and not seen:
            names = did_you_mean(llm, known, inside=True) or f"known: {', '.join(sorted(known)) or 'none'}"
            raise ModelNotFound(f'No model is registered as "{llm}"; {names}', hint=_GIVE)
        seen.append(llm)
        llm = known.get(llm, {"model": llm})  # a string in a registry is the provider's name of the model
    if callable(llm):
        return llm  # type: ignore[no-any-return]  # its parameters cannot be checked
    if not isinstance(llm, Mapping):
        raise UserError(f"llm is {type(llm).__name__}, neither a callback nor the name of a model", hint=_GIVE)
    rest = {key: value for key, value in llm.items() if key != "model"}
    try:
        return missions.Model(llm["model"], **rest)
    except KeyError:
        raise UserError("A model in a registry needs a name", hint='Add "model": "claude-…"') from None
    except TypeError:
        takes = ", ".join(sorted(missions.Model.__slots__))
        raise UserError(f"A model in a registry takes {takes}, got {', '.join(sorted(rest))}") from None


def models_from_config(config: Config | None = None) -> dict[str, Any]:
    """Return the registry that ``config.toml`` describes: each ``[backend.NAME]`` with a model, by its name."""
    given = config or load_config()
    named = ((name, each.model) for name, each in given.backends.items())
    return {name: missions.Model(model, backend=name, config=given) for name, model in named if model}


_GIVE = "Give llm a callback, or register the name with models= or configure()"


ScriptedAnswer = str | dict[str, Any] | BaseException | Callable[[Request], Any]


class Scripted:
    """An LLM callback with prepared answers, for tests; it records the requests.

    Args:
        answers: One per request: text, which may be a bare program; a dict with ``content``; an exception to raise;
            or a function of the request that returns any of these.
        repeat: Whether the last answer is repeated for all further requests.

    Attributes:
        requests: Copies of the requests so far.
    """

    def __init__(self, answers: Iterable[ScriptedAnswer] | str, *, repeat: bool = False) -> None:
        self._answers = [answers] if isinstance(answers, str) else list(answers)
        self._repeat = repeat
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Any:
        """Return the next answer.

        Raises:
            LLMError: No answer is left.
        """
        self.requests.append(copy.deepcopy(request))
        at = len(self.requests) - 1
        if at >= len(self._answers) and not (self._repeat and self._answers):
            message = f"The script has {len(self._answers)} answers, and this is request {at + 1}"
            raise LLMError("script_ended", message, final=True)
        answer = self._answers[min(at, len(self._answers) - 1)]
        if callable(answer) and not isinstance(answer, BaseException):
            answer = answer(request)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @property
    def texts(self) -> list[str]:
        """All texts of all requests."""
        return [
            text for each in self.requests for text in (each["system"], *(m["content"] for m in each["messages"]))
        ]
