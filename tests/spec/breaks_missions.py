"""For sections of specification 004 on missions one way each to break the code that fulfils it; see ``breaks``."""

from __future__ import annotations

from functools import partial

from tests.spec.breaking import Break

_MISSION = "pyagentd/mission"
_LISP = "pyagentd/lisp"

_of = partial(Break, spec="004")

BREAKS_OF_MISSIONS = [
    _of(
        "Execution Flow (Step-wise Agentic Loop)",
        f"{_MISSION}/turn.py",
        "    return {**context, **writable}, tuple(",
        "    return {**context}, tuple(",
    ),
    _of(
        "Reserved Tool Names",
        f"{_MISSION}/tools.py",
        'RESERVED = frozenset({"return", "fail"})',
        'RESERVED = frozenset({"return"})',
    ),
    _of(
        "tools vs tool_catalog",
        f"{_MISSION}/prompt.py",
        "    if mission.catalog:\n",
        "    if False:\n",
    ),
    _of(
        "PtcRunner.SubAgent",
        f"{_MISSION}/delegation.py",
        "        ok=end.fail is None,\n",
        "        ok=False,\n",
    ),
    _of(
        "Usability Improvements",
        f"{_MISSION}/delegation.py",
        "mission.signature.render() if mission.signature else None",
        "None",
    ),
    _of("Return Value", f"{_MISSION}/turn.py", '            case "return":\n', '            case "return" | None:\n'),
    _of(
        "Tool Definition Syntaxes",
        f"{_MISSION}/tools.py",
        "            return _normalize_tool(name, as_tool(given), catalog)\n",
        '            raise ToolsError("it is a map")\n',
    ),
    _of(
        "Execution Behavior",
        f"{_MISSION}/turn.py",
        "        self.mission.firewall.learn_from_program(result.value)\n",
        "        return self._return_outcome(outcome)\n",
    ),
    _of(
        "PtcRunner.SubAgent.Loop",
        f"{_MISSION}/turn.py",
        "        if self.mission.single_shot:\n            return self._return_outcome(outcome)\n",
        "        return self._return_outcome(outcome)\n",
    ),
    _of(
        "return(data :any)",
        f"{_MISSION}/turn.py",
        "done = replace(outcome, end=End(value=outcome.value, result=values.to_python(outcome.value)))",
        "done = replace(outcome, end=End(value=None))",
    ),
    _of(
        "fail(params {reason :keyword, message :string, op :string?, details :map?})",
        f"{_MISSION}/turn.py",
        "        op=None if op is None else _words(op),\n",
        "",
    ),
    _of(
        "PtcRunner.SubAgent.LLMTool",
        f"{_MISSION}/tools.py",
        "            return _return_program(serialization.readable(_with_keywords(reader.parse(candidate))))\n",
        "            return candidate\n",
    ),
    _of(
        "Tool Configuration (Unified Model)",
        f"{_MISSION}/tools.py",
        "        if not self.tools:\n",
        "        if True:\n",
    ),
    _of(
        "Tool Call Format",
        f"{_MISSION}/tools.py",
        "        return self._call_recorded(tool, prepared.args)\n",
        "        return self._call_recorded(tool, dict(args))\n",
    ),
    _of(
        "The System Prompt",
        f"{_MISSION}/prompt.py",
        '        "Data Inventory": inventory(mission.context, mission.declared, mission.firewall, mission.memory),\n',
        "",
    ),
    _of(
        "LLM Input Structure",
        f"{_MISSION}/turn.py",
        '            "prompt": mission.text,\n',
        '            "prompt": "",\n',
    ),
    _of("Output", f"{_MISSION}/turn.py", "    scope.spend(usage)\n", ""),
    _of(
        "Memory Operations",
        f"{_MISSION}/turn.py",
        "context=self.before.context, memory=result.memory)",
        "context=self.before.context, memory=self.before.memory)",
    ),
    _of("Memory Size", f"{_MISSION}/turn.py", "            memory_bytes=options.memory_bytes,\n", ""),
    _of("Nested Depth", f"{_MISSION}/options.py", "MAX_DEPTH = 3", "MAX_DEPTH = 4"),
    _of(
        "Total Turn Budget",
        f"{_MISSION}/delegation.py",
        "    shared = args.budget or (parent.budget if parent else None)\n",
        "    shared = args.budget\n",
    ),
    _of(
        "Tool Error Handling Convention",
        f"{_MISSION}/tools.py",
        "_failure(tool, _error_message(error))",
        '_failure(tool, "")',
    ),
    _of(
        "LLM Registry",
        f"{_MISSION}/registry.py",
        "    known = {**_configured, **(models or {})}\n",
        "    known = {}\n",
    ),
    _of(
        "Telemetry Events",
        f"{_MISSION}/turn.py",
        '        scope.runtime.emit("turn_stop", self.span, self.mission_span, numbers, about)\n',
        "",
    ),
    _of("Tracing", f"{_MISSION}/turn.py", "            tool_calls=tuple(self.toolbox.calls),\n", ""),
    _of(
        "Concurrency & Safety",
        f"{_MISSION}/checks.py",
        "    found = _Findings(options)\n",
        "    found = globals().setdefault('_shared', _Findings(options))\n    found.warnings.append('')\n"
        "    context = globals().setdefault('_context', context)\n",
    ),
    _of(
        "Validation Options",
        f"{_MISSION}/turn.py",
        '        if mode == "warn_only":\n',
        "        if False:\n",
    ),
    _of(
        "LLM Retry Scope",
        f"{_MISSION}/turn.py",
        "            return seconds(retry.base_s) * 2.0 ** (failures - 1)\n",
        "            return seconds(retry.base_s)\n",
    ),
    _of(
        "Zero-Argument Tool Calls",
        f"{_MISSION}/tools.py",
        "        given = values.to_python({} if args is None else args)\n",
        "        given = values.to_python(args) or None\n",
    ),
    _of("Quick Reference: Delegation Options", f"{_MISSION}/options.py", "MAX_TURNS = 5", "MAX_TURNS = 6"),
    _of(
        "LLM Response Parsing Rules",
        f"{_MISSION}/response.py",
        '        tag = opening["tag"].lower()\n',
        '        tag = opening["tag"]\n',
    ),
    _of(
        "Auto-Chaining with Step Structs",
        f"{_MISSION}/checks.py",
        "signature or context.signature)",
        "signature)",
    ),
    _of(
        "Auto-Chaining with Failed Steps",
        f"{_MISSION}/checks.py",
        "        if not context.ok:\n",
        "        if False:\n",
    ),
    _of(
        "Error reason parse_error",
        f"{_MISSION}/prompt.py",
        "        error.caret(),\n",
        "",
    ),
    _of(
        "Error reason analysis_error",
        f"{_MISSION}/prompt.py",
        "        _sentence(error.hint),\n",
        "",
    ),
    _of(
        "Error reason eval_error",
        f"{_MISSION}/turn.py",
        "        fail = Fail(reason=error.reason, message=error.message, details=details)\n",
        '        fail = Fail(reason="error", message=error.message, details=details)\n',
    ),
    _of(
        "Error reason timeout",
        f"{_MISSION}/turn.py",
        "            timeout_ms=max(1, int(min(seconds(options.timeout_s) * 1000, left_ms))),\n",
        "            timeout_ms=2_000,\n",
    ),
    _of(
        "Error reason memory_exceeded",
        f"{_MISSION}/turn.py",
        "            memory_bytes=options.memory_bytes,\n",
        "            memory_bytes=10_000_000,\n",
    ),
    _of(
        "Error reason validation_error",
        f"{_MISSION}/tools.py",
        "        if prepared.problems:\n",
        "        if False:\n",
    ),
    _of(
        "Error reason tool_error",
        f"{_MISSION}/tools.py",
        '            raise LispError("tool_error", _failure(tool, _error_message(error))) from error\n',
        '            raise LispError("eval_error", _failure(tool, _error_message(error))) from error\n',
    ),
    _of(
        "Error reason tool_not_found",
        f"{_MISSION}/tools.py",
        "', did_you_mean(name, self.tools)\n",
        "', ''\n",
    ),
    _of(
        "Error reason reserved_tool_name",
        f"{_MISSION}/tools.py",
        '                reason="reserved_tool_name",\n',
        "",
    ),
    _of(
        "Error reason max_turns_exceeded",
        f"{_MISSION}/turn.py",
        "    if progress.turn >= options.max_turns:\n",
        "    if progress.turn > options.max_turns:\n",
    ),
    _of(
        "Error reason max_depth_exceeded",
        f"{_MISSION}/delegation.py",
        "    if scope.depth > scope.budget.depth:\n",
        "    if False:\n",
    ),
    _of(
        "Error reason turn_budget_exhausted",
        f"{_MISSION}/budget.py",
        "            self._used += 1\n",
        "",
    ),
    _of(
        "Error reason mission_timeout",
        f"{_MISSION}/turn.py",
        "    if scope.runtime.monotonic() >= scope.deadline:\n",
        "    if False:\n",
    ),
    _of(
        "Error reason llm_error",
        f"{_MISSION}/turn.py",
        'late or Fail(reason="llm_error",',
        'late or Fail(reason="error",',
    ),
    _of(
        "Error reason model_not_found",
        f"{_MISSION}/registry.py",
        '    reason = "model_not_found"\n',
        '    reason = "validation_error"\n',
    ),
    _of(
        "Error reason chained_failure",
        f"{_MISSION}/checks.py",
        '            details={"original_failure": original},\n',
        "",
    ),
    _of(
        "Error reason template_error",
        f"{_MISSION}/checks.py",
        'Fail(reason="template_error", message=str(error))',
        'Fail(reason="validation_error", message=str(error))',
    ),
    _of(
        "Error reason of a mission's own",
        f"{_MISSION}/turn.py",
        '        reason=_words(reason or "failed").removeprefix(":"),\n',
        '        reason="failed",\n',
    ),
    _of(
        "Known LLM Behavior Issues",
        f"{_LISP}/builtins/collections.py",
        'return _add_items("conj", coll, list(xs), budget)',
        "return coll",
    ),
    _of(
        "CLI Commands",
        "pyagentd/cli/mission.py",
        'for line in (turn["program"] or "(no program)").splitlines())',
        "for line in ())",
    ),
    _of(
        "Tool Discovery",
        f"{_MISSION}/delegation.py",
        "    first = rank_tools(prompt, known, limit)\n",
        "    first: list[Tool] = []\n",
    ),
    _of(
        "Plan Persistence",
        f"{_MISSION}/plan.py",
        'tuple(step for step in self.steps if step.status == "pending" and done.issuperset(step.predecessors))',
        'tuple(step for step in self.steps if step.status == "pending")',
    ),
    _of(
        "Parallel SubAgents",
        f"{_MISSION}/delegation.py",
        "    return list(await asyncio.gather(*(run(each) for each in _as_missions(missions, common))))\n",
        "    return [await run(each) for each in _as_missions(missions, common)][::-1]\n",
    ),
    _of(
        "Dry Run Mode",
        f"{_MISSION}/delegation.py",
        "return Validation(problems=refused.fails)",
        "return Validation(problems=refused.fails[:1])",
    ),
    _of(
        "Cost Budget Option",
        f"{_MISSION}/budget.py",
        "self.spent.cost_usd > self.max_cost_usd:",
        "self.spent.cost_usd > 2 * self.max_cost_usd:",
    ),
    _of(
        "Consecutive Failure Limit",
        f"{_MISSION}/turn.py",
        "            failures=self.before.failures + 1 if outcome.error else 0,\n",
        "            failures=self.before.failures + 1 if outcome.error else self.before.failures,\n",
    ),
    _of(
        "Per-Tool Validation Mode",
        f"{_MISSION}/tools.py",
        "        return self.validation or cast(ValidationMode, mission)\n",
        "        return cast(ValidationMode, mission)\n",
    ),
    _of(
        "Checkpoint/Resume",
        f"{_MISSION}/delegation.py",
        "        memory=resumed.memory,\n",
        "        memory=mission.memory,\n",
    ),
    _of(
        "DD-2: Reserved Tool Names Error at Registration",
        f"{_MISSION}/tools.py",
        "        if name in RESERVED:\n",
        "        if False:\n",
    ),
    _of(
        "DD-4: Soft Failures Don't Consume Retry Budget",
        f"{_MISSION}/turn.py",
        "            return self._error_outcome(with_hint(error, tools, earlier))\n",
        "            return self._no_value(Fail(reason=error.reason, message=error.message), ending=True)\n",
    ),
    _of(
        "DD-5: Tool Error Handling via Conventions",
        f"{_MISSION}/tools.py",
        "            return values.from_python(result)\n",
        '            return None if "error" in result else values.from_python(result)\n',
    ),
    _of(
        "DD-6: Auto-Chaining with Step Detection",
        f"{_MISSION}/checks.py",
        "    if isinstance(context, Step):\n",
        "    if False:\n",
    ),
    _of(
        "DD-7: Erlang Term Format for Memory Size Limit",
        f"{_MISSION}/options.py",
        "MEMORY_BYTES = 1_048_576",
        "MEMORY_BYTES = 1_000_000",
    ),
]
