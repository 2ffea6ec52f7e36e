"""What one run needs: from preset, Local Variables, configuration and its client's wishes to ``RunSettings``.

Everything that can be wrong (preset, backend, key, pattern) is found here, before anything of the run is recorded.
"""

from __future__ import annotations

import asyncio
import base64
import weakref
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyagentd import installation, regularfile
from pyagentd.config import Config
from pyagentd.config.tables import WebSettings
from pyagentd.errors import BadRequest
from pyagentd.events import Event
from pyagentd.features import instructions, models
from pyagentd.features.agent_overlay import docs_section
from pyagentd.features.compaction import compacted_view, fitting
from pyagentd.features.emacs import action_name, run_buffers, run_tools
from pyagentd.features.hooks import Moment
from pyagentd.features.instructions import Surroundings, index, skills_of, surroundings, system_prompt
from pyagentd.features.mcp import joining
from pyagentd.features.mission_tool import Lending, mission_tool
from pyagentd.features.project_config import guarded
from pyagentd.features.questions import question
from pyagentd.features.schedules import Sleeper, wakeup_tools
from pyagentd.features.scope_expansion import Place, scope_expansion
from pyagentd.features.self_edit import NAMES as SELFEDIT_TOOLS
from pyagentd.features.self_edit import Self, selfedit_tools
from pyagentd.features.spawning import Spawner, persistent_agent, task
from pyagentd.features.tasks import NAMES as TASK_TOOLS
from pyagentd.features.tasks import task_tools
from pyagentd.features.todo import TODO_WRITE
from pyagentd.llm.backend import Backend, ModelRequest, StreamItem
from pyagentd.llm.catalog import facts
from pyagentd.llm.tracing import TracingBackend
from pyagentd.messages import Media, Message, Part, Text
from pyagentd.policy.patterns import under
from pyagentd.policy.presets import Preset
from pyagentd.policy.profiles import compile_action
from pyagentd.runtime import turns
from pyagentd.runtime.approvals import Authority
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.document_sync import Override, effective, overridden, printed, settings_of
from pyagentd.runtime.grants import RunWitness, local_user
from pyagentd.runtime.opening import DeferredBackend, Resumed
from pyagentd.runtime.run import Offer, RunSettings, found_before, limits_of
from pyagentd.runtime.settings import (
    DEFAULT_MAX_TOKENS,
    THINKING_TOKENS,
    Configured,
    SendOptions,
    answering,
    backend_for,
    configured_provider,
    permitted_tools,
    policy_context,
    provider_of,
    variable_of,
)
from pyagentd.runtime.turn_agent import Named, TurnPresets, named, turn_presets
from pyagentd.store import named_agents, paths
from pyagentd.store.attachments import Linked, linked, type_of
from pyagentd.store.conversation import Conversation
from pyagentd.store.db.projection import Projection
from pyagentd.store.document.text import Settings
from pyagentd.store.journal import served_by
from pyagentd.store.paths import BranchRef
from pyagentd.store.trace import TraceWriter
from pyagentd.store.unfinished import standing as standing_of
from pyagentd.tools.builtin import builtin_tools
from pyagentd.tools.sandbox.scope import ShellScope
from pyagentd.tools.spec import ToolContext, ToolSpec
from pyagentd.tools.web import key_variable, web_fetch, web_search

if TYPE_CHECKING:
    from pyagentd.features.missions import Assignment
    from pyagentd.runtime.host import Host


# The tools that need more than a place: the loop, a human, the log, the network. Which of them a run can be given.
#
# ``tools.builtin`` has those that work on files and commands alone.

NAMES = ("PersistentAgent", "task", "mission", "question", "TodoWrite", "WebFetch", "WebSearch", "tool_search")
"""Their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What a run's tools may need.

    Attributes:
        spawner: Makes agents.
        depth: How many agents the run's branch is below its root.
        authority: Who asks humans.
        web: What may be reached on the web, and how.
        variable: Returns the value of a variable of the client's environment, else of ours; "" without any.
        conversation: What was said and done so far.
        lending: What a mission may be given.
    """

    spawner: Spawner
    depth: int
    authority: Authority
    web: WebSettings
    variable: Callable[[str], str]
    conversation: Conversation
    lending: Lending


def tools_around(wanted: Collection[str], around: Around) -> dict[str, ToolSpec]:
    """Return those of ``wanted`` that are made here, by name; others are not made: some take a look around."""
    makers: dict[str, Callable[[], ToolSpec]] = {
        "PersistentAgent": lambda: persistent_agent(around.spawner, depth=around.depth),
        "task": lambda: task(around.spawner, depth=around.depth),
        "mission": lambda: mission_tool(around.spawner, depth=around.depth, lending=around.lending),
        "question": lambda: question(around.authority),
        "TodoWrite": lambda: TODO_WRITE,
        "WebFetch": lambda: web_fetch(allow_private=around.web.allow_private),
        "WebSearch": lambda: web_search(
            around.web,
            key=lambda: around.variable(key_variable(around.web)),
            used=lambda: _calls(around.conversation, "WebSearch"),
        ),
    }
    return {name: make() for name, make in makers.items() if name in wanted}


def _calls(conversation: Conversation, tool: str) -> int:
    """Return how many calls of a tool a session has made that have their result."""
    parts = (part for part in conversation.parts.values() if part.type == f"tool-{tool}")
    return sum(part.result is not None for part in parts)


# Which tools the model of a run is offered: the package's, and what session, agent and Emacs add, as permitted.


@dataclass(frozen=True, slots=True, kw_only=True)
class Tooling:
    """The tools of one run.

    Attributes:
        host: Who starts it.
        branch: Where it runs.
        run_id: Its id.
        options: What its client wants.
        presets: Who answers there, and in the branches above.
        ancestors: Those, the nearest one first.
    """

    host: Host
    branch: LiveBranch
    run_id: str
    options: SendOptions
    presets: TurnPresets
    ancestors: tuple[BranchRef, ...]

    def of(self, preset: Preset, authority: Authority, skill: ToolSpec | None) -> dict[str, ToolSpec]:
        """Return the tools that the model is offered, by name; ``skill`` is the one that reads skills."""
        host, ref, ancestors = self.host, self.branch.ref, self.ancestors
        spawner = host.agents.spawner(self.branch, self.options, self.run_id)
        around = Around(
            spawner=spawner,
            depth=len(ancestors),
            authority=authority,
            web=host.config.web,
            variable=lambda name: variable_of(name, self.options),
            conversation=self.branch.conversation,
            lending=Lending(
                preset=preset,
                tools=tuple(permitted_tools(self.presets, ref, ancestors, preset.tools)),
                above=lambda: host.kindred.above(ref),
            ),
        )
        known: dict[str, ToolSpec] = builtin_tools() | tools_around(preset.tools, around)
        place = Place(
            ref=ref,
            preset=lambda: host.presets.of_branch(ref),
            tools=builtin_tools(),
            clock=host.clock,
            keeping=lambda: host.origins.keeping(ref),
        )
        known["request_scope_expansion"] = scope_expansion(place, authority)
        sleeper = Sleeper(ref=ref, calendar=host.schedules, env=self.options.env, now=host.clock.now)
        known |= wakeup_tools(sleeper)
        known |= task_tools(host.tasks.of_run(self.branch, self.options))
        if skill is not None:
            known[skill.name] = skill
        wanted = (*preset.tools, *map(action_name, preset.emacs_tools))
        if host.named.is_named(ref):
            known |= selfedit_tools(self._self())
            wanted = (*wanted, *(name for name in SELFEDIT_TOOLS if name not in wanted))
        permitted = permitted_tools(self.presets, ref, ancestors, wanted)
        if "Bash" in permitted:  # what it begins, they look at and end
            permitted += [name for name in TASK_TOOLS if name not in permitted]
        tools = {name: known[name] for name in permitted if name in known}

        def of_emacs(names: list[str]) -> list[str]:
            return permitted_tools(self.presets, ref, ancestors, names)

        return tools | run_tools(host, self.branch, wanted, known, of_emacs)

    def _self(self) -> Self:
        """Return the named agent whose run it is, for the tools by which it changes itself."""
        host, ref, options = self.host, self.branch.ref, self.options

        def model(name: str) -> str:
            backend = configured_provider(host.presets.of_branch(ref), host.config, options)
            return models.written(name, host.models.known(options), backend=backend)

        host.models.look_soon(options)  # by the time it is wanted, there is a list
        return Self(directory=ref.session_dir, profiles=host.presets.profiles, model=model)


# A backend that shows the model what the user's messages link of the branch's ``files/``.
#
# The link stays in the text, before which a picture or a PDF stands as such; of any other file the model is told
# where it is, and may read it there. This is done at the last moment and changes nothing else: what is recorded,
# counted and summarised is the text. A file that is gone is not shown, and deleting its link takes it out of what is
# sent.

LARGEST = 3_750_000  # bytes of a picture or a document: providers take 5 MB of base64
LARGEST_TOGETHER = 15_000_000  # of all in a request, the first ones first: what is shown once stays shown


class AttachedBackend:
    """Another backend, shown what is attached.

    Args:
        backend: Who answers.
        branch_dir: Where ``files/`` is.
    """

    def __init__(self, backend: Backend, branch_dir: Path) -> None:
        self._backend = backend
        self._branch_dir = branch_dir
        # By the identity of a living message, with what it holds in bytes: a writer of requests knows it again.
        self._shown: dict[int, tuple[weakref.ref[Message], Message, int]] = {}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamItem], None]:
        """Send ``request`` with what its messages link, and yield the answer, see ``Backend``."""
        if any(_may_link(message) for message in request.messages):
            request = replace(request, messages=await asyncio.to_thread(self._messages, request.messages))
        async with aclosing(self._backend.stream(request)) as batches:
            async for batch in batches:
                yield batch

    async def close(self) -> None:
        """Close the other backend."""
        await self._backend.close()

    def _messages(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        room, made = LARGEST_TOGETHER, []
        for message in messages:
            shown, size = self._message(message, room) if _may_link(message) else (message, 0)
            room -= size
            made.append(shown)
        return tuple(made)

    def _message(self, message: Message, room: int) -> tuple[Message, int]:
        known = self._shown.get(id(message))
        if known is not None and known[0]() is message:
            return known[1], known[2]
        parts: list[Part] = []
        size = 0
        for part in message.parts:
            if isinstance(part, Text):
                for shown, taken in _of_text(part.text, self._branch_dir, room - size):
                    parts.append(shown)
                    size += taken
            parts.append(part)
        shown_message = replace(message, parts=tuple(parts))
        key = id(message)
        self._shown[key] = (weakref.ref(message, lambda _: self._shown.pop(key, None)), shown_message, size)
        return shown_message, size


def _may_link(message: Message) -> bool:
    return message.role == "user" and any(
        isinstance(part, Text) and f"{paths.FILES_DIR}/" in part.text for part in message.parts
    )


def _of_text(text: str, branch_dir: Path, room: int) -> Iterator[tuple[Part, int]]:
    """Yield what a text links as parts, each with its size in bytes; at most ``room`` of them together."""
    for each in {found.file: found for found in linked(text, branch_dir)}.values():
        try:
            kind = type_of(each.file)
            if kind and each.size <= min(LARGEST, room):
                data = regularfile.read_bytes(each.file, limit=LARGEST)
                yield Media(type=kind, data=base64.b64encode(data).decode()), each.size
                room -= each.size
            else:
                yield Text(text=_described(each, too_large=bool(kind))), 0
        except OSError:
            continue


def _described(each: Linked, *, too_large: bool) -> str:
    why = " It is too large to be shown." if too_large else ""
    return f"<attachment>\n{each.link} is the file {each.file} ({each.size} bytes).{why}\n</attachment>"


# What a command of a branch may touch: its preset's word, the sessions above it, and our own places.


def shell_scope(
    presets: Configured, ref: BranchRef, ancestors: tuple[BranchRef, ...], config: Config
) -> Callable[[], ShellScope]:
    """Return a function that reads the rules for one command, so a change of ``preset.md`` counts at once.

    What a session above an agent denies stays denied; all else is what the agent's own preset says.
    """
    family = (ref, *ancestors)
    top = paths.session_dir_of(family[-1].branch_dir)
    agents = config.agents_dir.resolve()
    # A named agent works in a directory of its own, so what decides about it is protected place by place.
    tops = () if named_agents.is_below(agents, top) else (top,)
    places = (config.sessions_dir, config.presets_dir, config.file, *tops, *named_agents.decisive_places(agents))
    protected = _resolved(*places, *installation.installed())
    hidden = _resolved(config.runtime_dir)
    closed = _resolved(config.sessions_dir, agents)  # what others said, and snapshots of what is in other projects

    def scope() -> ShellScope:
        own, *above = (presets.of_branch(each) for each in family)
        return ShellScope(
            read=own.paths.read,
            write=own.paths.write,
            deny=tuple(dict.fromkeys(pattern for each in (own, *above) for pattern in each.paths.deny)),
            protected=protected,
            hidden=hidden,
            closed=closed,
            own=(str(top.resolve()),),
            records=tuple(each.key for each in family),
            commands=own.shell.allow,
            network=own.shell.network,
            confine=own.shell.confine,
            wanted=config.confinement,
        )

    return scope


def _resolved(*places: Path) -> tuple[str, ...]:
    return tuple(str(place.resolve()) for place in places)


class Renewal:
    """What a named agent's run asks before every request: see ``Equipping.renewed``.

    Attributes:
        preset: As it was when it was last asked.
    """

    def __init__(self, equipping: Equipping, turn: Named, preset: Preset, place: Surroundings, skills: str) -> None:
        self._equipping = equipping
        self.turn, self.preset, self.place, self.skills = turn, preset, place, skills

    async def __call__(self, now: RunSettings) -> RunSettings:
        """Return the settings that hold from now on."""
        return await self._equipping.renewed(now, self)


class Equipping:
    """One run that is about to begin or to go on.

    Args:
        host: Who starts it.
        branch: Where it runs.
        run_id: Its id.
        options: What its client wants.
        message: Metadata of the message it answers (``agent``, ``model``, ``trigger``, …).
    """

    def __init__(
        self,
        host: Host,
        branch: LiveBranch,
        run_id: str,
        options: SendOptions,
        *,
        message: Mapping[str, Any] | None = None,
    ) -> None:
        self._host = host
        self._branch = branch
        self._run_id = run_id
        self._options = options
        self._message = message or {}
        self._presets: TurnPresets
        self._override: Override = {}
        self._ancestors = paths.ancestors_of(branch.ref)
        self._top = self._ancestors[-1] if self._ancestors else branch.ref

    async def settings(self, seen: Settings, *, model: str | None = None) -> RunSettings:
        """Return what holds for the run.

        Args:
            seen: The Local Variables of the document.
            model: Of a run that is resumed: who answered so far; the server is found when it is needed.

        Raises:
            PyagentdError: Something of it is no good.
        """
        host, branch = self._host, self._branch
        turn, place = named(branch.conversation, self._message), await surroundings(host, branch)
        root = place.root
        self._presets = turn_presets(host.presets, branch.ref, self._ancestors, branch.conversation, turn.agent)
        skill = await self._skill(place)
        branch.turn = self._presets
        preset = turn.answered_by(self._preset(seen))
        resumed = model is not None
        backend, model = self._backend(preset, model)
        if not resumed:
            moment = self._moment(root)
            model = await host.hooks.model_resolve(moment, model, preset=preset.name, backend=preset.backend)
        await host.grants.load(self._top, root)
        authority = self._authority(root)
        tooling = Tooling(
            host=host,
            branch=branch,
            run_id=self._run_id,
            options=self._options,
            presets=self._presets,
            ancestors=self._ancestors,
        )
        tools = tooling.of(preset, authority, skill)
        told = index(place.skills) if skill in tools.values() else ""
        known = facts(model, host.config)
        window = known.context_window if known.window_known else None
        offer, family = Offer(tools, found_before(branch.conversation), window=window), (branch.ref, *self._ancestors)
        settings = RunSettings(
            backend=self._traced(backend),
            model=model,
            provider=provider_of(preset, host.config, self._options),
            system=await self._system(preset, place, told, model),
            tools=tools,
            offer=offer,
            ready=joining(host.servers, self._presets, family, preset, root, self._options, offer),
            context=self._tool_context(root, authority),
            authority=authority,
            temperature=preset.temperature,
            **self._longest(preset, model),
            result=preset.result,
            limits=limits_of(preset),
            tool_results=preset.include_tool_results or branch.ref.is_agent,  # a parent reads them
            agent=turn.agent,
            mission=self._mission(preset),
        )
        if host.named.is_named(branch.ref):
            settings = replace(settings, fresh=Renewal(self, turn, preset, place, told))
        return fitting(host, branch, self._run_id, settings)

    async def _system(self, preset: Preset, place: Surroundings, skills: str, model: str) -> str:
        """Return the system prompt; of a named agent its documents follow its own words."""
        ref, body = self._branch.ref, preset.body
        if self._host.named.is_named(ref):
            docs = await asyncio.to_thread(docs_section, ref.session_dir)
            body = "\n\n".join(part for part in (body, docs) if part)
        return system_prompt(
            body,
            place.environment,
            instructions=place.instructions,
            skills=skills,
            model=model,
            called_by_agent=ref.is_agent and preset.caller == "agent",
        )

    def _traced(self, backend: Backend) -> Backend:
        directory = self._branch.ref.branch_dir
        trace = TraceWriter(directory, self._run_id)
        return TracingBackend(AttachedBackend(backend, directory), trace, self._host.clock)

    async def renewed(self, now: RunSettings, renewal: Renewal) -> RunSettings:
        """Return the settings of a named agent's run as its configuration is now; see ``runsettings.Fresh``.

        What the user set in the document, or named in a message, holds as before.
        """
        host, branch = self._host, self._branch
        own = overridden(self._answering(), self._override)
        preset = renewal.turn.answered_by(own)
        changes: dict[str, Any] = {}
        if (preset.backend, preset.model) != (renewal.preset.backend, renewal.preset.model):
            backend, model = backend_for(preset, host.config, self._options)
            moment = self._moment(renewal.place.root)
            model = await host.hooks.model_resolve(moment, model, preset=preset.name, backend=preset.backend)
            provider = provider_of(preset, host.config, self._options)
            changes = {"backend": self._traced(backend), "model": model, "provider": provider}
            changes |= self._longest(preset, model)
        renewal.preset = preset
        system = await self._system(preset, renewal.place, renewal.skills, changes.get("model", now.model))
        if not changes and system == now.system:
            return now
        return fitting(host, branch, self._run_id, replace(now, system=system, **changes))

    def _preset(self, seen: Settings) -> Preset:
        """Return the preset of the run; what the document sets holds for every agent, but whose tools are its own."""
        own = self._host.presets.of_branch(self._branch.ref)
        override = self._branch.override(own, seen)
        self._branch.write_settings(given=printed(settings_of(own)), effective=effective(own, override), seen=seen)
        if self._presets.name:
            override = {name: value for name, value in override.items() if name != "tools"}
        self._override = override
        return overridden(self._answering(), override)

    def _answering(self) -> Preset:
        return answering(self._presets.of_branch(self._branch.ref), self._host.config, self._options)

    def _longest(self, preset: Preset, model: str) -> dict[str, Any]:
        """Return the most tokens for an answer and for thinking, which share the model's limit."""
        answer, thinking = preset.max_tokens or DEFAULT_MAX_TOKENS, THINKING_TOKENS.get(preset.thinking, 0)
        whole = facts(model, self._host.config).longest(answer + thinking)
        thinking = min(thinking, max(whole - answer, whole // 2))
        return {"max_tokens": whole - thinking, "thinking_budget": thinking or None}

    def _mission(self, preset: Preset) -> Assignment | None:
        """Return what the run is to fulfil, if it is a mission."""
        if not preset.signature:
            return None
        from pyagentd.features.missions import mission_of  # the language is loaded when the first one comes

        return mission_of(self._run_id, preset, self._branch.conversation, self._message.get("mission") or {})

    async def _skill(self, place: Surroundings) -> ToolSpec | None:
        """Return the tool that reads the session's skills, and have what lies beside them be readable."""
        ref = self._branch.ref
        if not place.skills or instructions.NAME not in self._presets.of_branch(ref).tools:
            return None
        found = (await asyncio.to_thread(skills_of, self._host.config, place.root)).found
        known = {name: skill for name, skill in found.items() if name in place.skills}
        beside = tuple(under(str(skill.file.parent)) for skill in known.values())
        self._presets = self._presets.reading(ref, beside)
        return instructions.skill_tool(self._branch, place.skills, lambda: known)

    def _backend(self, preset: Preset, model: str | None) -> tuple[Backend, str]:
        if model is None:
            return backend_for(preset, self._host.config, self._options)
        return DeferredBackend(lambda: backend_for(preset, self._host.config, self._options)), model

    def _commands(self) -> bool:
        """Return whether the run may run commands."""
        return "Bash" in self._presets.of_branch(self._branch.ref).tools

    def _moment(self, root: Path) -> Moment:
        return Moment(
            branch=self._branch, root=root, run_id=self._run_id, options=self._options, witness=self._witness()
        )

    def _authority(self, root: Path) -> Authority:
        """Return who decides what the run may do in the workspace ``root``."""
        host, branch = self._host, self._branch
        return Authority(
            context=policy_context(
                self._presets,
                branch.ref,
                self._ancestors,
                self._options,
                host.config,
                remembered=lambda: host.grants.patterns(self._top, root),
            ),
            ask_human=lambda fields: host.questions.ask(branch, self._run_id, self._ancestors, fields),
            stop=branch.stop,
            witness=self._witness(),
            leaving=lambda: host.closing,
            unasked=self._tell_unasked,
        )

    def _tell_unasked(self, tool: str, action: str) -> None:
        """Tell whoever watches, here or above, that something was denied because nobody could be asked."""
        ref = self._branch.ref
        agent = ref.session_id if ref.is_agent else None
        for watched in (ref, *self._ancestors):
            told = {"asker": ref.key, "agent": agent, "tool": tool, "action": action}
            self._host.publish(Event("denied", watched.key, 0, (told,)))

    def _witness(self) -> RunWitness:
        """Return who notes the run's decisions for the audit."""
        host, ref = self._host, self._branch.ref
        return RunWitness(
            ledger=host.ledger,
            clock=host.clock,
            session=self._top.session_id,
            branch_dir=Projection(host.state, host.config.sessions_dir).key(ref.branch_dir),
            agent=ref.session_id if ref.is_agent else None,
            run_id=self._run_id,
            user=None if self._message.get("trigger") else local_user(),
        )

    def _tool_context(self, root: Path, authority: Authority) -> ToolContext:
        host, branch = self._host, self._branch
        return ToolContext(
            root=root,
            branch_dir=branch.ref.branch_dir,
            spool_dir=paths.files_dir(branch.ref.branch_dir),
            readable=authority.readable,
            env=self._options.env,
            scope=guarded(shell_scope(self._presets, branch.ref, self._ancestors, host.config), root),
            notify=lambda text: branch.publish(Event("notice", branch.key, 0, ({"text": text},))),
            keeping=host.snapshots.of_run(branch, self._run_id, root, commands=self._commands()),
            hooks=host.hooks.of_run(self._moment(root)),
            tasks=host.tasks.of_run(branch, self._options),
            buffers=run_buffers(host, branch),
        )


# A run that an earlier daemon left waiting in a branch, found again: what it needs to go on.
#
# What it saw is read from the document as it was when the run began; what of its answer is recorded, and what it had
# asked, from the log. Whoever answers stands in for its client (``settings.Late``).


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """What a run goes on with."""

    options: SendOptions
    view: tuple[Message, ...]  # what the model sees, its finished steps last
    settings: RunSettings
    resumed: Resumed
    asks: tuple[Mapping[str, Any], ...]  # rows of all questions that it asked


async def continuation(host: Host, branch: LiveBranch, run_id: str) -> Continuation | None:
    """Return what the last run of a branch goes on with; None when nothing of it may be, or can be, taken up.

    Raises:
        PyagentdError: The preset, the document or a log is no good.
    """
    last, standing = branch.last_run, standing_of(branch.conversation)
    branch.last_run = None
    if host.closing or branch.refusal or last is None or standing is None:
        return None
    if host.origins.foreign(branch.ref):  # a log can say that a human allowed what no human saw
        raise BadRequest("A run of a session that is not from this machine does not go on", mend="Send it again")
    data = branch.conversation.runs[run_id].data
    late = host.trees.late(paths.root_of(branch.ref).key)
    grants = tuple(map(compile_action, data.get("allow", ())))
    options = SendOptions(interactive=data["interactive"], env=late.env, late=late, grants=grants)
    asks = tuple(ask for ask in branch.conversation.asks.values() if ask.get("run_id") == run_id)
    view, seen = await asyncio.to_thread(turns.of_run, branch.file, branch.conversation.snapshot(), last)
    model = served_by(standing.message.row).model
    asked = branch.conversation.messages[data["message_id"]].row["metadata_json"]
    return Continuation(
        options=options,
        view=compacted_view(_joined(view, standing.done), branch.conversation, run_id),
        settings=await Equipping(host, branch, run_id, options, message=asked).settings(seen, model=model),
        resumed=Resumed(
            standing=standing,
            begun=frozenset(branch.conversation.begun),
            rejoin=host.agents.spawner(branch, options, run_id).rejoin,
        ),
        asks=asks,
    )


def _joined(view: tuple[Message, ...], done: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return a view and what followed it; who steered a run before its first answer goes on with the prompt."""
    if not done or done[0].role != "user":
        return (*view, *done)
    return (*view[:-1], Message(role="user", parts=(*view[-1].parts, *done[0].parts)), *done[1:])
