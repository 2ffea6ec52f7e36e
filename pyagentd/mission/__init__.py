"""Typed missions: work delegated under a contract to a model that writes programs.

A mission gets a prompt, a signature, tools and data; it comes back as a ``Step`` with a value that fits the
signature, or with the reason why there is none. No daemon and no disk is needed::

    from pyagentd.mission import Model, delegate

    step = delegate(
        "How much did {{who}} spend?",
        signature="(who :string) -> {total :float}",
        context={"who": "Ada"},
        tools=[expenses],
        llm=Model("claude-haiku-4-5"),
    )
    step.value["total"] if step.ok else step.fail.message

``docs/missions.md`` describes it. Names are loaded when they are used: importing this package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyagentd.errors import SignatureError, TemplateError
    from pyagentd.mission.budget import Budget, current
    from pyagentd.mission.checkpoint import CheckpointError, State
    from pyagentd.mission.delegation import (
        Compiled,
        Discovery,
        Mission,
        Validation,
        adelegate,
        compiled,
        delegate,
        delegate_discovering,
        discover,
        gather,
        gather_sync,
        mission,
        validate,
    )
    from pyagentd.mission.llmtool import LLMTool, SubAgentError, ToolsError, as_tool
    from pyagentd.mission.models import Model, cost_of, priced
    from pyagentd.mission.options import (
        LLM,
        Answer,
        Context,
        Limits,
        LLMError,
        ModelLike,
        PromptLimit,
        Request,
        Retry,
        ToolLike,
        Tools,
    )
    from pyagentd.mission.plan import Plan, PlanError, PlanStep, create_plan, make_plan, run_plan
    from pyagentd.mission.registry import ModelNotFound, Scripted, configure
    from pyagentd.mission.registry import from_config as models_from_config
    from pyagentd.mission.runtime import Event
    from pyagentd.mission.signature import Signature
    from pyagentd.mission.signature import parse as parse_signature
    from pyagentd.mission.step import Fail, MissionFailed, Step, ToolCall, Turn, Usage
    from pyagentd.mission.tools import Tool, normalize

_FROM = {
    "Answer": "mission.options",
    "Budget": "mission.budget",
    "CheckpointError": "mission.checkpoint",
    "Compiled": "mission.delegation",
    "Context": "mission.options",
    "Discovery": "mission.delegation",
    "Event": "mission.runtime",
    "Fail": "mission.step",
    "LLM": "mission.options",
    "LLMError": "mission.options",
    "LLMTool": "mission.llmtool",
    "Limits": "mission.options",
    "Mission": "mission.delegation",
    "MissionFailed": "mission.step",
    "Model": "mission.models",
    "ModelLike": "mission.options",
    "ModelNotFound": "mission.registry",
    "Plan": "mission.plan",
    "PlanError": "mission.plan",
    "PlanStep": "mission.plan",
    "PromptLimit": "mission.options",
    "Request": "mission.options",
    "Retry": "mission.options",
    "Scripted": "mission.registry",
    "Signature": "mission.signature",
    "SignatureError": "errors",
    "State": "mission.checkpoint",
    "Step": "mission.step",
    "SubAgentError": "mission.llmtool",
    "TemplateError": "errors",
    "Tool": "mission.tools",
    "ToolCall": "mission.step",
    "ToolLike": "mission.options",
    "Tools": "mission.options",
    "ToolsError": "mission.llmtool",
    "Turn": "mission.step",
    "Usage": "mission.step",
    "Validation": "mission.delegation",
    "adelegate": "mission.delegation",
    "as_tool": "mission.llmtool",
    "compiled": "mission.delegation",
    "configure": "mission.registry",
    "cost_of": "mission.models",
    "create_plan": "mission.plan",
    "current": "mission.budget",
    "delegate": "mission.delegation",
    "delegate_discovering": "mission.delegation",
    "discover": "mission.delegation",
    "gather": "mission.delegation",
    "gather_sync": "mission.delegation",
    "make_plan": "mission.plan",
    "mission": "mission.delegation",
    "models_from_config": "mission.registry",
    "normalize": "mission.tools",
    "parse_signature": "mission.signature",
    "priced": "mission.models",
    "run_plan": "mission.plan",
    "validate": "mission.delegation",
}
_RENAMED = {"models_from_config": "from_config", "parse_signature": "parse"}

__all__ = [
    "LLM",
    "Answer",
    "Budget",
    "CheckpointError",
    "Compiled",
    "Context",
    "Discovery",
    "Event",
    "Fail",
    "LLMError",
    "LLMTool",
    "Limits",
    "Mission",
    "MissionFailed",
    "Model",
    "ModelLike",
    "ModelNotFound",
    "Plan",
    "PlanError",
    "PlanStep",
    "PromptLimit",
    "Request",
    "Retry",
    "Scripted",
    "Signature",
    "SignatureError",
    "State",
    "Step",
    "SubAgentError",
    "TemplateError",
    "Tool",
    "ToolCall",
    "ToolLike",
    "Tools",
    "ToolsError",
    "Turn",
    "Usage",
    "Validation",
    "adelegate",
    "as_tool",
    "compiled",
    "configure",
    "cost_of",
    "create_plan",
    "current",
    "delegate",
    "delegate_discovering",
    "discover",
    "gather",
    "gather_sync",
    "make_plan",
    "mission",
    "models_from_config",
    "normalize",
    "parse_signature",
    "priced",
    "run_plan",
    "validate",
]


def __getattr__(name: str) -> Any:
    """Load a name of the public interface, or a module of the package, when it is first used."""
    if (module := _FROM.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"pyagentd.{module}"), _RENAMED.get(name, name))
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
