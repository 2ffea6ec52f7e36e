"""Tools that run in the user's Emacs, as tools of a run.

Their actions are ``tool:emacs:<name>:<detail>``, whatever a definition is called: one called ``read_file`` has none
of the rights of Read. The detail is the file or the command where the definition says which argument is one, and
scope then decides about it as about any other; else it is the arguments as JSON. Places outside the scope are taken
out of what a tool finds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pyagentd.agent.emacs.clients import EmacsClients, NoAnswer
from pyagentd.agent.emacs.offered import OfferedTool
from pyagentd.errors import ToolError
from pyagentd.events import Sink
from pyagentd.policy.action import Kind
from pyagentd.policy.guard import Confirm
from pyagentd.tools.search import directory
from pyagentd.tools.shell import describe_command
from pyagentd.tools.spec import Args, Output, Seen, Target, ToolContext, ToolSpec, is_remote, only_open, resolve

ALL = "emacs"
"""What a preset's ``tools`` says for every tool of Emacs; ``emacs:NAME`` is one, or a category."""

_CONFIRM_S = 3.0
_LATER_S = 5.0  # for an answer that is on its way when the limit of Emacs' own passes

Watching = Callable[[], Iterable[Sink]]


def action_name(tool: str) -> str:
    """Return the name of a tool of Emacs in action strings."""
    return f"{ALL}:{tool}"


def chosen(wanted: Collection[str], offered: Mapping[str, OfferedTool], taken: Collection[str]) -> dict[str, str]:
    """Return which tools a preset has, by the name under which the model is told of them.

    Args:
        wanted: What the preset says: names, categories, everything.
        offered: The tools there are.
        taken: Names that mean another tool.
    """
    found: dict[str, str] = {}
    for name, tool in offered.items():
        plainly = name in wanted and name not in taken
        if plainly or not {ALL, f"{ALL}:{name}", f"{ALL}:{tool.category}"}.isdisjoint(wanted):
            found[f"{ALL}_{name}" if name in taken else name] = name
    return found


def emacs_tool(clients: EmacsClients, watching: Watching, tool: OfferedTool, *, name: str) -> ToolSpec:
    """Return a tool of Emacs for a run.

    Args:
        clients: Who can be asked.
        watching: Returns the clients that show the run's session; the first that has the tool runs it.
        tool: Its definition.
        name: What the model calls it.
    """

    async def run(args: Args, ctx: ToolContext) -> Output:
        await _at_hand(tool, args, ctx)
        given = {**args, **_judged(tool, args, ctx)}
        return _output(await _asked(clients, watching, tool, given, ctx, timeout_s=None), ctx)

    async def confirming(args: Args, ctx: ToolContext) -> Confirm:
        try:
            await _at_hand(tool, args, ctx)
            said = await _asked(clients, watching, tool, args, ctx, timeout_s=_CONFIRM_S)
        except ToolError:
            return True
        return bool(said.get("confirm", True))

    return ToolSpec(
        name=name,
        description=tool.description,
        input_schema=tool.input_schema,
        kind=_kind(tool),
        run=run,
        describe=lambda args, ctx: _target(tool, args, ctx),
        caution=(lambda ctx: "It runs in your Emacs, with all your rights") if tool.command else None,
        confirm="always" if tool.confirms == "always" else tool.confirms != "never",
        confirming=confirming if tool.confirms == "function" else None,
        acts_as=action_name(tool.name),
        timeout_s=tool.timeout_s + _LATER_S,
    )


def _kind(tool: OfferedTool) -> Kind:
    if tool.command:
        return "command"
    if tool.paths:
        return "write" if "write" in tool.paths.values() else "read"
    return "net"


def _target(tool: OfferedTool, args: Args, ctx: ToolContext) -> Target:
    if tool.command:
        scope = replace(ctx.scope(), confine=False)  # Emacs runs it
        return describe_command(str(args.get(tool.command) or ""), ctx.root, scope, ctx.env)
    if tool.paths:
        paths = [directory(resolve(args[key], ctx.root)) for key in _named(tool, args)]
        paths = paths or [directory(resolve(".", ctx.root))]  # of what is left out the workspace is meant
        return Target(detail=paths[0].lexical, paths=tuple(paths))
    return Target(detail=json.dumps(dict(args), ensure_ascii=False, sort_keys=True))


def _named(tool: OfferedTool, args: Args) -> list[str]:
    return [key for key in tool.paths if key in args]


async def _at_hand(tool: OfferedTool, args: Args, ctx: ToolContext) -> None:
    """Refuse files of other machines that are not open: a tool would have Emacs connect to these machines."""
    if tool.command:
        return
    paths = [resolve(args[key], ctx.root) for key in _named(tool, args)]
    for file in filter(is_remote, (form for path in paths for form in (path.lexical, path.resolved))):
        seen = Seen() if ctx.buffers is None else await ctx.buffers.look(file, whole=False)
        if not seen.buffer:
            raise only_open(file)


def _judged(tool: OfferedTool, args: Args, ctx: ToolContext) -> dict[str, Any]:
    """Return the arguments that are files as they were decided about."""
    return (
        {} if tool.command else {key: path.resolved for key, path in zip(_named(tool, args), ctx.paths, strict=False)}
    )


async def _asked(
    clients: EmacsClients,
    watching: Watching,
    tool: OfferedTool,
    args: Args,
    ctx: ToolContext,
    *,
    timeout_s: float | None,
) -> dict[str, Any]:
    found = clients.tools(watching()).get(tool.name)
    if found is None:
        raise ToolError(f"No Emacs that shows this session has the tool {tool.name} any more. Go on without it.")
    facts = {
        "tool": tool.name,
        "args": dict(args),
        "branch": str(ctx.branch_dir),
        "root": str(ctx.root),
        "timeout": tool.timeout_s,
    }
    try:
        return await clients.ask(found[0], "call" if timeout_s is None else "confirm", facts, timeout_s=timeout_s)
    except NoAnswer as error:
        raise ToolError(f"{tool.name} has no result: {error}. It may have done its work.") from error


def _output(said: Mapping[str, Any], ctx: ToolContext) -> Output:
    text = str(said.get("text") or "")
    places = said.get("places")
    if isinstance(places, list):
        text = "\n".join(filter(None, (text, *_places(places, ctx))))
    return Output(text=text or "[no output]", ok=not said.get("error"))


def _places(places: list[Any], ctx: ToolContext) -> list[str]:
    """Return the places a tool found, one a line, without those that the agent may not read."""
    lines, hidden = [], 0
    readable: dict[str, bool] = {}
    for place in places:
        if not isinstance(place, Mapping) or not isinstance(place.get("file"), str):
            continue
        file = place["file"]
        if file not in readable:
            readable[file] = ctx.readable(resolve(file, ctx.root))
        if readable[file]:
            lines.append(f"{file}:{place.get('line', 1)}: {place.get('text', '')}")
        else:
            hidden += 1
    if hidden:
        lines.append(f"[{hidden} more in files outside the scope of this session.]")
    return lines
