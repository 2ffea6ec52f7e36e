"""Buffers, tools and hooks that Emacs offers to a run, and requests to Emacs that wait for an answer.

A request goes to one client as an event and gets one answer, a JSON object, within the caller's time limit; if the
client disconnects there is no answer. docs/emacs-tools.md describes the protocol.
"""

import asyncio
import json
import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pyagentd.clock import new_id
from pyagentd.errors import BadRequest, ToolError
from pyagentd.events import Event, Sink
from pyagentd.policy.action import Kind, Target
from pyagentd.policy.guard import Confirm
from pyagentd.reader import FullText, Rule, Source, object_in, read
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.feature import ClientGone, Feature, Permitted
from pyagentd.tools.search import directory
from pyagentd.tools.shell import describe_command
from pyagentd.tools.spec import (
    Args,
    ChangeOutcome,
    EditorView,
    Output,
    Replacement,
    ToolContext,
    ToolSpec,
    is_remote,
    not_open_error,
    resolve,
)

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel
    from pyagentd.runtime.run_setup import RunBuilder

log = logging.getLogger(__name__)


# A client's definition of a tool: gptel's definition as JSON, parsed for a run.
#
# The keys are those of ``gptel-make-tool``; an argument has ``name``, ``type``, ``description``, ``optional`` and
# keys of JSON Schema. Two keys are pyagentd's, for decisions about what a tool touches: an argument with ``path``
# ("read" or "write") is a file name, and one with ``command`` is a command line.

Confirms = Literal["never", "ask", "always", "function"]
Right = Literal["read", "write"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_OURS = ("name", "optional", "path", "command")
_LONGEST_S = 24 * 3600.0
DEFAULT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTool:
    """One tool of a client."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    category: str = "misc"
    confirms: Confirms = "never"  # "function": the client decides for each call
    timeout_s: float = DEFAULT_S
    paths: Mapping[str, Right] = field(default_factory=dict)  # by argument
    command: str = ""  # the argument that is a command line


def _tool_name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfferedArgument:
    """An argument of a definition; its other keys are JSON Schema."""

    name: FullText
    type: Literal["string", "integer", "number", "boolean", "array", "object", "null"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """The required keys of a definition, and its arguments."""

    name: Annotated[str, Rule(parse=_tool_name, words="letters, digits, - and _, at most 64")]
    description: FullText
    args: tuple[_OfferedArgument, ...] = ()


def offered_tool(definition: object) -> OfferedTool:
    """Parse a definition of a tool.

    Raises:
        BadRequest: It is invalid; the message says why.
    """
    values = read(definition, Mapping[str, Any], Source.at("the definition of a tool", BadRequest))
    place = f"the tool {values.get('name')}"
    offer = read(values, _Offer, Source(place=lambda path: place, error=BadRequest, lenient=True))
    args: Sequence[Mapping[str, Any]] = values.get("args") or ()
    commands = [str(arg["name"]) for arg in args if arg.get("command")]
    confirm = values.get("confirm")
    return OfferedTool(
        name=offer.name,
        description=offer.description,
        input_schema={
            "type": "object",
            "properties": {
                str(arg["name"]): {key: value for key, value in arg.items() if key not in _OURS} for arg in args
            },
            "required": [str(arg["name"]) for arg in args if not arg.get("optional")],
            "additionalProperties": False,
        },
        category=str(values.get("category") or "misc"),
        confirms=cast(Confirms, confirm) if confirm in ("always", "function") else "ask" if confirm else "never",
        timeout_s=_seconds(values.get("timeout")),
        paths={str(arg["name"]): "write" if arg["path"] == "write" else "read" for arg in args if arg.get("path")},
        command=commands[0] if commands else "",
    )


def _seconds(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return min(float(value), _LONGEST_S)
    return DEFAULT_S


What = Literal["look", "change", "call", "confirm", "hook"]

_MOST_BYTES = 4_000_000  # of an event: longer than any command or buffer of use
_TOOLS = "emacs_tools"
"""Key in the session's row for the definitions that the last run had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmacsOffer:
    """The buffers, tools and hooks that one client offers."""

    buffers: bool = False
    tools: tuple[OfferedTool, ...] = ()
    hooks: frozenset[str] = frozenset()  # events that it has functions for


class NoAnswer(Exception):
    """A client disconnected, or did not answer in time."""


class TooLong(NoAnswer):
    """A request is too long for a client."""


class EmacsClients(Feature):
    """The clients that offer buffers, tools or hooks."""

    def __init__(self, kernel: "Kernel") -> None:
        super().__init__(kernel)
        self._offers: dict[Sink, EmacsOffer] = {}
        self._open: dict[str, tuple[Sink, asyncio.Future[dict[str, Any]]]] = {}  # pending requests, by client
        self._silent: set[Sink] = set()
        kernel.bus.on(ClientGone, lambda gone: self.forget(gone.client))

    def with_hook(self, event: str, branch: LiveBranch) -> list[Sink]:
        """Return the clients that watch ``branch`` and have hook functions for ``event``."""
        if not self._offers:
            return []
        clients = {client for client, offered in self._offers.items() if event in offered.hooks}
        watching = dict.fromkeys(self.kernel.watchers_of(branch)) if clients else ()
        return [client for client in watching if client in clients]

    # -- for a run: buffers, and the tools that its preset names and no profile denies -------------------------------

    def context_for(self, run: "RunBuilder") -> Mapping[str, Any]:
        """Return the access to the buffers of the user's Emacsen."""
        return {"buffers": RunBuffers(self, run.branch)}

    def further_tools(
        self, run: "RunBuilder", wanted: Sequence[str], taken: Collection[str], permitted: Permitted
    ) -> Mapping[str, ToolSpec]:
        """Return the tools of Emacs for a run, by the name that the model sees.

        While no Emacs shows its branch, the last known tools stay, and fail when called: so the beginning of the
        request is the same with and without Emacs, and the provider's cache stays valid.
        """
        branch = run.branch
        last = branch.conversation.session.get("metadata_json", {}).get(_TOOLS)
        if not self._offers and not last:
            return {}
        found = self.tools(self.kernel.watchers_of(branch))
        offered = {name: tool for name, (_, tool) in found.items()}
        if not (known := offered or (_read_kept(last) if last else {})):
            return {}
        chosen = chosen_tools(wanted, known, taken)
        if offered:
            branch.note_metadata(**{_TOOLS: [asdict(offered[name]) for name in chosen.values()]})
        allowed = set(permitted([action_name(name) for name in chosen.values()]))
        return {
            name_for_model: emacs_tool(self, branch, known[name], name=name_for_model)
            for name_for_model, name in chosen.items()
            if action_name(name) in allowed
        }

    # -- clients -----------------------------------------------------------------------------------------------------

    def offer(self, client: Sink, offered: EmacsOffer) -> None:
        """Set what ``client`` offers from now on."""
        self._offers[client] = offered

    def forget(self, client: Sink) -> None:
        """Forget a disconnected client; its pending requests fail."""
        self._offers.pop(client, None)
        self._silent.discard(client)
        for owner, answer in self._open.values():
            if owner is client and not answer.done():
                answer.set_exception(NoAnswer("the user's Emacs has gone"))

    def with_buffers(self, first: Iterable[Sink] = ()) -> list[Sink]:
        """Return the clients that offer buffers and answer, those of ``first`` first."""
        every = dict.fromkeys((*first, *self._offers))
        return [one for one in every if self._offers.get(one, EmacsOffer()).buffers and one not in self._silent]

    def tools(self, watching: Iterable[Sink]) -> dict[str, tuple[Sink, OfferedTool]]:
        """Return the tools of the clients ``watching``, by name, each with its client; the first client wins."""
        found: dict[str, tuple[Sink, OfferedTool]] = {}
        for client in dict.fromkeys(watching):
            for tool in self._offers.get(client, EmacsOffer()).tools:
                found.setdefault(tool.name, (client, tool))
        return found

    def names(self) -> set[str]:
        """Return the names of all offered tools."""
        return {tool.name for offered in self._offers.values() for tool in offered.tools}

    async def ask(
        self, client: Sink, what: What, facts: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Send a request to a client and return its answer; without a time limit, wait until the caller is cancelled.

        Raises:
            NoAnswer: It disconnected, or did not answer in time.
            TooLong: ``facts`` are too long.
        """
        if client not in self._offers:
            raise NoAnswer("the user's Emacs has gone")
        text = json.dumps(facts, ensure_ascii=False, default=str)
        if len(text.encode(errors="replace")) > _MOST_BYTES:
            raise TooLong("what it would have been told is too long for Emacs")
        number = new_id("ema")
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._open[number] = client, answer
        try:
            client.push(Event("emacs", "", 0, ({"id": number, "what": what, "facts": text},)))
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            self._silent.add(client)
            raise NoAnswer(f"the user's Emacs did not answer within {timeout_s:g} s") from None
        finally:
            del self._open[number]
            if answer.cancelled() or answer.exception():
                client.push(Event("emacs", "", 0, ({"id": number, "what": "stop", "facts": "{}"},)))

    def answer(self, client: Sink, number: str, text: str) -> bool:
        """Handle a client's answer, a JSON object; return whether it was still awaited.

        Raises:
            BadRequest: It is not a JSON object.
        """
        self._silent.discard(client)
        reply = object_in(text, "The answer")
        asked, waiting = self._open.get(number, (None, None))
        if waiting is None or asked is not client or waiting.done():
            return False
        waiting.set_result(reply)
        return True


def _read_kept(tools: object) -> dict[str, OfferedTool]:
    """Return the tools of the last run by name; none if another version wrote them."""
    try:
        found = read(tools, tuple[OfferedTool, ...], Source.at(_TOOLS, BadRequest))
    except BadRequest as error:
        log.info("%s", error)
        return {}
    return {tool.name: tool for tool in found if _NAME.fullmatch(tool.name)}


# The buffers of the user's Emacsen, for the tools of a run.

LOOK_S = 1.0
CHANGE_S = 20.0  # saving runs the user's hooks, such as formatters


@dataclass(frozen=True, slots=True, eq=False)
class RunBuffers:
    """Reads and changes buffers for the runs of one branch; see ``tools.spec.Buffers``."""

    clients: EmacsClients
    branch: LiveBranch
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    async def look(self, path: str, *, whole: bool) -> EditorView:
        """Return a file's buffer, from all Emacsen asked at once; one with unsaved changes comes first."""
        if not self.clients.with_buffers():
            return EditorView()
        clients = self.clients.with_buffers(self.clients.kernel.watchers_of(self.branch))
        seen = await asyncio.gather(*(self._look(client, path, whole) for client in clients))
        showing = [one for one in seen if one.is_open]
        changed = [one for one in showing if one.modified]
        if len(changed) > 1:
            return replace(changed[0], trouble=f"{len(changed)} Emacsen have unsaved changes of it")
        if found := changed or showing:
            return found[0]
        return EditorView(silent=any(one.silent for one in seen))

    def look_now(self, path: str, *, whole: bool) -> EditorView:
        """Call ``look`` from a thread."""
        if not self.clients.with_buffers():
            return EditorView()
        return asyncio.run_coroutine_threadsafe(self.look(path, whole=whole), self.loop).result()

    async def change(self, path: str, seen: EditorView, edits: Sequence[Replacement]) -> ChangeOutcome:
        """Make the Emacs that showed the text change and save it; an "unknown" outcome may have changed it too."""
        facts = {"path": path, "version": seen.version, "edits": [list(edit) for edit in edits]}
        try:
            reply = await self.clients.ask(cast(Sink, seen.source), "change", facts, timeout_s=CHANGE_S)
        except NoAnswer as error:
            return ChangeOutcome(outcome="unknown", reason=str(error))
        reason = str(reply.get("reason") or "")
        match reply.get("outcome"):
            case "done":
                return ChangeOutcome(outcome="done", reason=reason, saved=bool(reply.get("saved")))
            case "outdated":
                return ChangeOutcome(outcome="outdated")
            case _:
                return ChangeOutcome(outcome="refused", reason=reason or "it does not say why")

    async def _look(self, client: Sink, path: str, whole: bool) -> EditorView:
        try:
            reply = await self.clients.ask(client, "look", {"path": path, "whole": whole}, timeout_s=LOOK_S)
        except NoAnswer as error:
            log.info("%s: %s", path, error)
            return EditorView(silent=True)
        text = reply.get("text")
        return EditorView(
            buffer=str(reply.get("buffer") or ""),
            version=str(reply.get("version") or ""),
            modified=bool(reply.get("modified")),
            text=text if isinstance(text, str) else None,
            crlf=bool(reply.get("crlf")),
            trouble=str(reply.get("trouble") or ""),
            source=client,
        )


# Tools that run in the user's Emacs, as tools of a run.
#
# Their actions are ``tool:emacs:<name>:<detail>``, whatever their name: one called ``read_file`` has no permissions
# of Read. The detail is the file or the command if the definition marks an argument as one, and the scope then
# applies as usual; else it is the arguments as JSON. Places outside the scope are removed from a tool's results.

ALL = "emacs"
"""In a preset's ``tools``: every tool of Emacs; ``emacs:NAME`` is one tool, or a category."""

_CONFIRM_S = 3.0
_LATER_S = 5.0  # for an answer that arrives just after Emacs' own time limit


def action_name(tool: str) -> str:
    """Return the name of a tool of Emacs in action strings."""
    return f"{ALL}:{tool}"


def chosen_tools(
    wanted: Collection[str], offered: Mapping[str, OfferedTool], taken: Collection[str]
) -> dict[str, str]:
    """Return which of the tools ``offered`` a preset has, by the name that the model sees.

    ``wanted`` has names, categories or ``emacs``; plain names that are ``taken`` mean another tool.
    """
    found: dict[str, str] = {}
    for name, tool in offered.items():
        plainly = name in wanted and name not in taken
        if plainly or not {ALL, f"{ALL}:{name}", f"{ALL}:{tool.category}"}.isdisjoint(wanted):
            found[f"{ALL}_{name}" if name in taken else name] = name
    return found


def emacs_tool(clients: EmacsClients, branch: LiveBranch, tool: OfferedTool, *, name: str) -> ToolSpec:
    """Return the ``ToolSpec`` of an Emacs tool; the first Emacs that shows the branch and has the tool runs it."""

    async def ask(what: What, args: Args, ctx: ToolContext, timeout_s: float | None = None) -> dict[str, Any]:
        found = clients.tools(clients.kernel.watchers_of(branch)).get(tool.name)
        if found is None:
            raise ToolError(f"No Emacs that shows this session has the tool {tool.name} any more. Go on without it.")
        place = {"branch": str(ctx.branch_dir), "root": str(ctx.root)}
        facts = {"tool": tool.name, "args": dict(args), **place, "timeout": tool.timeout_s}
        try:
            return await clients.ask(found[0], what, facts, timeout_s=timeout_s)
        except NoAnswer as error:
            raise ToolError(f"{tool.name} has no result: {error}. It may have done its work.") from error

    async def run(args: Args, ctx: ToolContext) -> Output:
        await _at_hand(tool, args, ctx)
        judged = zip(() if tool.command else _path_keys(tool, args), ctx.paths, strict=False)
        given = {**args, **{key: path.resolved for key, path in judged}}  # files as they were authorised
        return _output(await ask("call", given, ctx), ctx)

    async def confirming(args: Args, ctx: ToolContext) -> Confirm:
        try:
            await _at_hand(tool, args, ctx)
            reply = await ask("confirm", args, ctx, _CONFIRM_S)
        except ToolError:
            return True
        return bool(reply.get("confirm", True))

    return ToolSpec(
        name=name,
        description=tool.description,
        input_schema=tool.input_schema,
        kind=_kind(tool),
        run=run,
        describe=lambda args, ctx: _target(tool, args, ctx),
        caution=(lambda args, ctx: "It runs in your Emacs, with all your rights") if tool.command else None,
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
        paths = [directory(resolve(args[key], ctx.root)) for key in _path_keys(tool, args)]
        paths = paths or [directory(resolve(".", ctx.root))]  # without a path, the workspace is meant
        return Target(detail=paths[0].lexical, paths=tuple(paths))
    return Target(detail=json.dumps(dict(args), ensure_ascii=False, sort_keys=True))


def _path_keys(tool: OfferedTool, args: Args) -> list[str]:
    return [key for key in tool.paths if key in args]


async def _at_hand(tool: OfferedTool, args: Args, ctx: ToolContext) -> None:
    """Refuse remote files that are not open: a tool would make Emacs connect to another machine."""
    if tool.command:
        return
    paths = [resolve(args[key], ctx.root) for key in _path_keys(tool, args)]
    for file in filter(is_remote, (form for path in paths for form in (path.lexical, path.resolved))):
        seen = EditorView() if ctx.buffers is None else await ctx.buffers.look(file, whole=False)
        if not seen.buffer:
            raise not_open_error(file)


def _output(reply: Mapping[str, Any], ctx: ToolContext) -> Output:
    text = str(reply.get("text") or "")
    places = reply.get("places")
    if isinstance(places, list):
        text = "\n".join(filter(None, (text, *_places(places, ctx))))
    return Output(text=text or "[no output]", ok=not reply.get("error"))


def _places(places: list[Any], ctx: ToolContext) -> list[str]:
    """Format the places that a tool found, one a line, without those that the agent may not read."""
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
