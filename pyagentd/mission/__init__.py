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

from typing import TYPE_CHECKING

from pyagentd import door

if TYPE_CHECKING:
    from pyagentd.errors import TemplateError as TemplateError
    from pyagentd.mission.budget import Budget as Budget
    from pyagentd.mission.budget import current as current
    from pyagentd.mission.checkpoint import CheckpointError as CheckpointError
    from pyagentd.mission.checkpoint import State as State
    from pyagentd.mission.delegation import Compiled as Compiled
    from pyagentd.mission.delegation import Discovery as Discovery
    from pyagentd.mission.delegation import Mission as Mission
    from pyagentd.mission.delegation import Validation as Validation
    from pyagentd.mission.delegation import adelegate as adelegate
    from pyagentd.mission.delegation import compiled as compiled
    from pyagentd.mission.delegation import delegate as delegate
    from pyagentd.mission.delegation import delegate_discovering as delegate_discovering
    from pyagentd.mission.delegation import discover as discover
    from pyagentd.mission.delegation import gather as gather
    from pyagentd.mission.delegation import gather_sync as gather_sync
    from pyagentd.mission.delegation import mission as mission
    from pyagentd.mission.delegation import validate as validate
    from pyagentd.mission.models import Model as Model
    from pyagentd.mission.models import cost_of as cost_of
    from pyagentd.mission.models import priced as priced
    from pyagentd.mission.options import LLM as LLM
    from pyagentd.mission.options import Answer as Answer
    from pyagentd.mission.options import Context as Context
    from pyagentd.mission.options import Limits as Limits
    from pyagentd.mission.options import LLMError as LLMError
    from pyagentd.mission.options import ModelLike as ModelLike
    from pyagentd.mission.options import PromptLimit as PromptLimit
    from pyagentd.mission.options import Request as Request
    from pyagentd.mission.options import Retry as Retry
    from pyagentd.mission.options import ToolLike as ToolLike
    from pyagentd.mission.options import Tools as Tools
    from pyagentd.mission.plan import Plan as Plan
    from pyagentd.mission.plan import PlanError as PlanError
    from pyagentd.mission.plan import PlanStep as PlanStep
    from pyagentd.mission.plan import create_plan as create_plan
    from pyagentd.mission.plan import make_plan as make_plan
    from pyagentd.mission.plan import run_plan as run_plan
    from pyagentd.mission.registry import ModelNotFound as ModelNotFound
    from pyagentd.mission.registry import Scripted as Scripted
    from pyagentd.mission.registry import configure as configure
    from pyagentd.mission.registry import models_from_config as models_from_config
    from pyagentd.mission.runtime import Event as Event
    from pyagentd.mission.signature import Signature as Signature
    from pyagentd.mission.signature import SignatureError as SignatureError
    from pyagentd.mission.step import Fail as Fail
    from pyagentd.mission.step import MissionFailed as MissionFailed
    from pyagentd.mission.step import Step as Step
    from pyagentd.mission.step import ToolCall as ToolCall
    from pyagentd.mission.step import Turn as Turn
    from pyagentd.mission.step import Usage as Usage
    from pyagentd.mission.tools import LLMTool as LLMTool
    from pyagentd.mission.tools import SubAgentError as SubAgentError
    from pyagentd.mission.tools import Tool as Tool
    from pyagentd.mission.tools import ToolsError as ToolsError
    from pyagentd.mission.tools import as_tool as as_tool
    from pyagentd.mission.tools import normalize as normalize

_NAMES = {
    "budget": "Budget current",
    "checkpoint": "CheckpointError State",
    "delegation": "Compiled Discovery Mission Validation adelegate compiled "
    "delegate delegate_discovering discover gather gather_sync mission validate",
    "models": "Model cost_of priced",
    "options": "Answer Context LLM LLMError Limits ModelLike PromptLimit Request Retry ToolLike Tools",
    "plan": "Plan PlanError PlanStep create_plan make_plan run_plan",
    "registry": "ModelNotFound Scripted configure models_from_config",
    "runtime": "Event",
    "signature": "Signature SignatureError",
    "step": "Fail MissionFailed Step ToolCall Turn Usage",
    "template": "TemplateError",
    "tools": "LLMTool SubAgentError Tool ToolsError as_tool normalize",
}
_FROM = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [*_FROM]

if not TYPE_CHECKING:
    __getattr__ = door(__name__, **_FROM)
