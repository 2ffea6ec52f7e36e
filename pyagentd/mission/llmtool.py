"""Tools that are missions of their own: a prompt under a signature, answered by a model (SPEC 004 LLMTool).

Without ``tools`` such a tool is a *judgment tool*: one question, one typed answer. With ``tools`` it is an *agent
tool*: a mission of several turns. Either way it runs as a child of the mission that calls it, under the same budget
of turns, money, time and depth, and with the caller's model unless it names another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyagentd.errors import TemplateError, UserError
from pyagentd.mission import signature as signatures
from pyagentd.mission import template
from pyagentd.mission.signature import Signature, SignatureError
from pyagentd.mission.step import Step
from pyagentd.spelling import did_you_mean

CALLER = "caller"
OPTIONS = frozenset(
    {
        "context",
        "isolation",
        "llm_opts",
        "llm_retry",
        "max_consecutive_failures",
        "max_cost_usd",
        "max_turns",
        "memory",
        "memory_bytes",
        "mission_timeout_ms",
        "models",
        "prompt_limit",
        "signature_validation",
        "system_prompt",
        "telemetry",
        "timeout_ms",
        "tool_catalog",
        "tool_time_counts",
    }
)
_OWN = frozenset({"prompt", "signature", "llm", "description", "tools"})


class ToolsError(UserError):
    """Something is registered as a tool that cannot be one.

    Attributes:
        reason: As it stands in ``step.fail.reason``: "reserved_tool_name" or "validation_error".
    """

    code = "tools-error"

    def __init__(self, message: str, *, reason: str = "validation_error", mend: str = "") -> None:
        super().__init__(message, mend=mend)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMTool:
    """A question for a model, as a tool.

    Calling one runs it: ``tool({"text": "…"})`` or ``tool(text="…")`` returns the value, and raises
    ``SubAgentError`` when the mission fails.

    Attributes:
        prompt: A template; each placeholder's root is a parameter of the signature.
        signature: Parameters and result, ``(text :string) -> {urgent :bool}``.
        llm: A callback, the name of a model in the registry, or "caller" for the model of whoever calls the tool.
        description: What the calling model is told beside the signature.
        tools: What the mission may call; any of them makes this an agent tool.
        options: Further options of ``delegate`` for the mission, such as ``max_turns``.

    Raises:
        ToolsError: The signature is none, a placeholder has no parameter, or an option is unknown.
    """

    prompt: str
    signature: str | Signature
    llm: str | Callable[..., Any] = CALLER
    description: str | None = None
    tools: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        contract = self.contract
        known = self.options.get("context") or {}
        try:
            unknown = template.unknown(self.prompt, contract.params)
        except TemplateError as error:
            raise ToolsError(f"The prompt of a tool cannot be read: {error}") from error
        if missing := [name for name in unknown if name.split(".")[0] not in known]:
            raise ToolsError(
                f"The prompt has {_braced(missing)}, and the signature {contract.render()} has no such parameter",
                mend="Add the parameter to the signature, or correct the placeholder",
            )
        for name in self.options:
            if name not in OPTIONS:
                raise ToolsError(f'"{name}" is no option of a tool with a prompt', mend=_near(name, OPTIONS | _OWN))

    @property
    def contract(self) -> Signature:
        """The signature, parsed."""
        if isinstance(self.signature, Signature):
            return self.signature
        try:
            return signatures.parse(self.signature)
        except SignatureError as error:
            raise ToolsError(f"The signature of a tool cannot be read: {error}") from error

    @property
    def judges(self) -> bool:
        """Whether it is a judgment tool."""
        return not self.tools

    def __call__(self, args: Mapping[str, Any] | None = None, /, **named: Any) -> Any:
        """Run the mission with these arguments and return its value.

        Raises:
            SubAgentError: The mission failed; the error has the step.
        """
        return self.run({**(args or {}), **named}).unwrap()

    def run(self, args: Mapping[str, Any]) -> Step:
        """Run the mission with these arguments and return how it ended."""
        # Running needs the loop, and the loop needs to know this class.
        from pyagentd.mission import agenttool

        return agenttool.step_of(self, args)


def of_mapping(config: Mapping[str, Any]) -> LLMTool:
    """Return the tool that a dict with a ``prompt`` describes (SPEC 004 Tool Configuration).

    Raises:
        ToolsError: The prompt or the signature is missing, or a key is unknown.
    """
    for key in ("prompt", "signature"):
        if config.get(key) is None:
            raise ToolsError(f"A tool given as a dict needs a {key}", mend=f'Add "{key}" to it')
    own = {key: value for key, value in config.items() if key in _OWN}
    return LLMTool(**own, options={key: value for key, value in config.items() if key not in _OWN})


def _braced(names: Iterable[str]) -> str:
    return ", ".join("{{" + name + "}}" for name in names)


def _near(name: str, known: frozenset[str]) -> str:
    return did_you_mean(name, known) or f"Known: {', '.join(sorted(known))}"
