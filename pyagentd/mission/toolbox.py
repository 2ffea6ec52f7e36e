"""How a program's calls reach the tools of its mission (SPEC 004 Tool Call Format, Tool Error Handling Convention).

The one boundary where anything may go wrong: whatever a tool raises becomes a sentence for the model. Every call is
kept with what it got and gave, and told to the listener when it starts and when it stops.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyagentd.errors import PyagentdError
from pyagentd.lisp import values
from pyagentd.lisp.data import check_data
from pyagentd.lisp.errors import LispError
from pyagentd.mission.budget import Scope
from pyagentd.mission.callbacks import called, words_of
from pyagentd.mission.feedback import problem_lines
from pyagentd.mission.firewall import Firewall
from pyagentd.mission.runtime import Runtime
from pyagentd.mission.step import MissionFailed, ToolCall
from pyagentd.mission.telemetry import new_span
from pyagentd.mission.tools import Tool
from pyagentd.spelling import did_you_mean

_LONGEST = 1000


@dataclass(slots=True, kw_only=True)
class Toolbox:
    """The tools of one mission during one turn.

    Attributes:
        tools: What may be called.
        catalog: What may only be seen.
        validation: The mission's mode.
        firewall: Learns what tools give.
        scope: The mission, for those that its tools start.
        span: Of the turn.
        runtime: Time, telemetry and what awaits.
        calls: What was called so far.
        warnings: What was converted or let pass.
    """

    tools: Mapping[str, Tool]
    catalog: Mapping[str, Tool]
    validation: str
    firewall: Firewall
    scope: Scope
    span: str
    runtime: Runtime
    calls: list[ToolCall] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def call(self, name: str, args: Mapping[Any, Any]) -> Any:
        """Call a tool for a program and return a value of the language.

        Raises:
            LispError: ``tool_not_found``, ``validation_error`` or ``tool_error``; ``eval_error`` for arguments that
                are no data.
        """
        tool = self.tools.get(name)
        if tool is None:
            raise self._unknown(name)
        check_data(args)
        prepared = tool.prepare(args, self.validation)
        self.warnings += prepared.warnings
        if prepared.problems:
            lines = "\n".join(problem_lines(prepared.problems, self.firewall))
            raise LispError(
                "validation_error",
                f'The arguments of "{name}" do not fit, so it was not called:\n{lines}',
                hint=f"It is declared as {tool.schema()}.",
            )
        return self._recorded(tool, prepared.args)

    def _recorded(self, tool: Tool, args: Mapping[str, Any]) -> Any:
        span, started = new_span(), self.runtime.now_ms()
        about = {"tool": tool.name, "args": args}
        self.runtime.tell("tool_start", span, self.span, metadata=about)
        self.scope.span_id = span
        result, error = None, None
        try:
            result = self._result(tool, args)
            return result
        except LispError as failure:
            error = failure.message
            raise
        finally:
            call = ToolCall(
                name=tool.name,
                args=args,
                lisp_result=result,
                error=error,
                started_at=started,
                duration_ms=self.runtime.now_ms() - started,
                children=self.scope.take_ended(),
            )
            self.calls.append(call)
            ending = "tool_stop" if error is None else "tool_exception"
            numbers = {"duration_ms": call.duration_ms}
            self.runtime.tell(ending, span, self.span, numbers, {**about, "error": error, "call": call})

    def _result(self, tool: Tool, args: Mapping[str, Any]) -> Any:
        result = self._value(tool, args)
        self.firewall.learn(result)
        found = tool.check(result, self.validation)
        if not found:
            return result
        if tool.mode(self.validation) == "warn_only":
            self.warnings += [f"Tool {tool.name}: {each}" for each in found]
            return result
        lines = "\n".join(problem_lines(found, self.firewall))
        raise LispError("validation_error", f'What "{tool.name}" gave does not fit its signature:\n{lines}')

    def _value(self, tool: Tool, args: Mapping[str, Any]) -> Any:
        try:
            result = called(tool.call, args)
            if inspect.isawaitable(result):
                result = called(self.runtime.awaited, result, self.scope.deadline - self.runtime.monotonic())
            return values.from_python(result)
        except LispError:
            raise
        except MissionFailed as error:
            raise LispError("tool_error", _failed(tool, f"{error.fail.reason}: {error.fail.message}")) from error
        except PyagentdError as error:
            raise LispError("tool_error", _failed(tool, error.message), hint=error.mend) from error
        except Exception as error:
            raise LispError("tool_error", _failed(tool, _said(error))) from error

    def _unknown(self, name: str) -> LispError:
        if name in self.catalog:
            return LispError(
                "tool_not_found",
                f'The tool "{name}" is there for planning only and cannot be called',
                hint=self._available(),
            )
        meant = did_you_mean(name, self.tools)
        return LispError("tool_not_found", f'There is no tool "{name}"', hint=f"{meant} {self._available()}".lstrip())

    def _available(self) -> str:
        names = ", ".join(sorted(self.tools))
        return f"Tools you can call: {names}." if names else "This mission has no tools besides return and fail."


def _failed(tool: Tool, said: str) -> str:
    return f'The tool "{tool.name}" failed: {said[:_LONGEST]}'


def _said(error: Exception) -> str:
    """Return what an exception says, without what only a Python programmer would read."""
    if isinstance(error, KeyError) and error.args and isinstance(error.args[0], str | int):
        return f"there is no {error.args[0]}"
    return words_of(error) or f"{_words(type(error).__name__)}, without a message"


def _words(name: str) -> str:
    """Return ``TimeoutError`` as "timeout error"."""
    return "".join(f" {char.lower()}" if char.isupper() else char for char in name).strip()
