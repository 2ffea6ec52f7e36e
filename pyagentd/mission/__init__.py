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

_NAMES = {
    "errors": "SignatureError TemplateError",
    "mission.budget": "Budget current",
    "mission.checkpoint": "CheckpointError State",
    "mission.delegation": "Compiled Discovery Mission Validation adelegate compiled "
    "delegate delegate_discovering discover gather gather_sync mission validate",
    "mission.llmtool": "LLMTool SubAgentError ToolsError as_tool",
    "mission.models": "Model cost_of priced",
    "mission.options": "Answer Context LLM LLMError Limits ModelLike PromptLimit Request Retry ToolLike Tools",
    "mission.plan": "Plan PlanError PlanStep create_plan make_plan run_plan",
    "mission.registry": "ModelNotFound Scripted configure models_from_config",
    "mission.runtime": "Event",
    "mission.signature": "Signature parse_signature",
    "mission.step": "Fail MissionFailed Step ToolCall Turn Usage",
    "mission.tools": "Tool normalize",
}
_FROM = {name: module for module, names in _NAMES.items() for name in names.split()}
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
