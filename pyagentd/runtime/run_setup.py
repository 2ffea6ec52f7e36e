"""Builds ``RunSettings`` for a run from preset, Local Variables, configuration and the client's options.

All errors of preset, backend, key and patterns are raised here, before the run is recorded. The backend of a run is a
``WatchedBackend``, which records each request and the end of its answer.
"""

import asyncio
import base64
import os
import re
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from pyagentd import installation, regularfile
from pyagentd.clock import Clock
from pyagentd.config import Config
from pyagentd.config.tables import compile_action
from pyagentd.errors import BadRequest, PyagentdError
from pyagentd.events import Event
from pyagentd.llm.backend import Backend, ModelRequest, PartFinished, RetryNotice, StepFinished, StreamItem
from pyagentd.log import mask_secrets
from pyagentd.messages import Body, Media, Message, Part, Text, ToolCall, begins_with
from pyagentd.policy.action import exactly, under
from pyagentd.policy.guard import Context
from pyagentd.policy.presets import Preset
from pyagentd.policy.profiles import resolve_profile
from pyagentd.runtime import system_prompt as instructions
from pyagentd.runtime import turns
from pyagentd.runtime.approvals import Authority
from pyagentd.runtime.document_sync import (
    Override,
    effective_settings,
    find_override,
    preset_with_overrides,
    settings_in_document,
    settings_of,
    to_json,
)
from pyagentd.runtime.grants import RunWitness, hooks_in, local_user
from pyagentd.runtime.opening import DeferredBackend, ResumedRun
from pyagentd.runtime.presets import (
    TAKEN_OVER,
    TurnNames,
    TurnPresets,
    docs_section,
    names_for_turn,
    opened_with,
    turn_presets,
)
from pyagentd.runtime.run import MAX_CALLS, Limits, RunSettings, ToolOffer, found_before
from pyagentd.runtime.settings import (
    DEFAULT_MAX_TOKENS,
    THINKING_TOKENS,
    PresetSource,
    SendOptions,
    backend_for,
    permitted_tools,
    provider_of,
    variable_of,
    with_backend_and_model,
)
from pyagentd.runtime.system_prompt import (
    Skill,
    Workplace,
    skill_tool,
    skills_index,
    skills_of,
    system_prompt,
    workplace_of,
)
from pyagentd.store import attachments, named_agents, paths
from pyagentd.store.conversation import Conversation
from pyagentd.store.document.text import Settings
from pyagentd.store.journal import served_by
from pyagentd.store.paths import BranchRef
from pyagentd.store.registry import run_progress as standing_of
from pyagentd.store.trace import OrgLog, TraceWriter
from pyagentd.tools.builtin import builtin_tools
from pyagentd.tools.sandbox.plan import ShellScope
from pyagentd.tools.spec import Output, ToolContext, ToolSpec
from pyagentd.tools.web import key_variable, web_fetch, web_search

if TYPE_CHECKING:
    from pyagentd.runtime.branch import LiveBranch
    from pyagentd.runtime.feature import Feature
    from pyagentd.runtime.kernel import Kernel

_T = TypeVar("_T")


class RequestWatch(Protocol):
    """Watches the answer to one request.

    Attributes:
        inside: Returns a context manager that is entered during the wait for each batch; None for none.
    """

    inside: Callable[[], AbstractContextManager[object]] | None

    def see(self, batch: Sequence[StreamItem]) -> None:
        """Handle a batch of the answer."""
        ...

    def end(self, error: PyagentdError | None) -> None:
        """Handle the end of the answer; ``error`` is None if it succeeded or was cancelled."""
        ...


Watcher = Callable[[ModelRequest], RequestWatch]
"""Called with each request of a run before it is sent; returns its watch."""


@dataclass(slots=True, kw_only=True, eq=False)
class WatchedBackend:
    """The backend of one run, which completes, traces and watches its requests."""

    backend: Backend  # answers them
    trace: TraceWriter  # records each request as it was sent, and duration and end of its answer
    run_id: str
    clock: Clock  # gives the time of a request
    watchers: Sequence[Watcher] = ()  # further watchers of each request
    # Returns the messages with their attachments; None if a request has none.
    completed: Callable[[tuple[Message, ...]], Awaitable[tuple[Message, ...]] | None] = lambda messages: None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamItem], None]:
        """Send ``request`` and yield its answer, see ``Backend``."""
        step = _Step(self.trace, self.run_id, self.clock, request.purpose)
        watching: list[RequestWatch] = [step]
        inside: Callable[[], AbstractContextManager[object]] = nullcontext
        for watcher in self.watchers:
            watching.append(watch := watcher(request))
            inside = watch.inside or inside
        error: PyagentdError | None = None
        try:
            pending = self.completed(request.messages)
            messages = request.messages if pending is None else await pending
            completed = replace(request, messages=messages, sent=step.sent)
            async with aclosing(self.backend.stream(completed)) as batches:
                while True:
                    # Only the wait is inside: between batches, the consumer's context applies.
                    with inside():
                        batch = await anext(batches, None)
                    if batch is None:
                        return
                    for each in watching:
                        each.see(batch)
                    yield batch
        except PyagentdError as failure:
            error = failure
            raise
        finally:
            for each in watching:
                each.end(error)

    async def close(self) -> None:
        """Close the wrapped backend."""
        await self.backend.close()


class _Step:
    """The trace of one request in flight."""

    inside: Callable[[], AbstractContextManager[object]] | None = None

    def __init__(self, trace: TraceWriter, run_id: str, clock: Clock, purpose: str) -> None:
        self._trace = trace
        self._run_id = run_id
        self._purpose = purpose
        self._clock = clock
        self._now = asyncio.get_running_loop().time
        self._began = self._now()
        self._first_s: float | None = None
        self._sent: Body | None = None
        self._forms = 0
        self._attempts = 0
        self._retries: list[dict[str, Any]] = []
        self._calls: list[dict[str, str]] = []
        self._stop: StepFinished | None = None

    def sent(self, body: Body) -> None:
        """Record an attempt; one with the same body as the last is only counted."""
        self._attempts += 1
        if body != self._sent:
            self._sent = body
            self._forms += 1
            at_ms = self._clock.now_ms()
            self._trace.request(body, run_id=self._run_id, attempt=self._forms, purpose=self._purpose, at_ms=at_ms)

    def see(self, batch: Sequence[StreamItem]) -> None:
        """Record time, retries, calls and the end from a batch."""
        for item in batch:
            match item:
                case RetryNotice():
                    retry = {"attempt": item.attempt, "delay_s": item.delay_s, "message": mask_secrets(item.message)}
                    self._retries.append(retry)
                    continue
                case StepFinished():
                    self._stop = item
                case PartFinished(part=ToolCall(id=id, name=name)):
                    self._calls.append({"id": id, "name": name})
            if self._first_s is None:
                self._first_s = self._now()

    def end(self, error: PyagentdError | None) -> None:
        """Record the end of a request that was sent."""
        if not self._sent:
            return
        failure = None if error is None else {"code": error.code, "message": mask_secrets(str(error))}
        if self._stop is None and failure is None:
            failure = {"code": "aborted", "message": "Stopped before the answer ended"}
        facts = {
            "duration_ms": self._ms(self._now()),
            "first_token_ms": None if self._first_s is None else self._ms(self._first_s),
            "attempts": self._attempts,
            "retries": self._retries,
            "usage": None if self._stop is None else self._stop.usage.to_dict(),
            "calls": self._calls,
            "stop_reason": None if self._stop is None else self._stop.stop_reason,
            "error": failure,
        }
        self._trace.answer(facts)

    def _ms(self, moment: float) -> int:
        return round(1000 * (moment - self._began))


# Tools that belong to no feature and need more than a workspace: those for the network, and the package's own.

NAMES = ("PersistentAgent", "task", "mission", "question", "TodoWrite", "WebFetch", "WebSearch", "tool_search")
"""Names of the tools that need the loop, a human, the log or the network; ``tools.builtin`` has the others."""


def _calls(conversation: Conversation, tool: str) -> int:
    """Return how many calls of a tool in a session have a result."""
    parts = (part for part in conversation.parts.values() if part.type == f"tool-{tool}")
    return sum(part.result is not None for part in parts)


# Files in the branch's ``files/`` that the user's messages link, as attachments of a request.
#
# A linked picture or PDF is inserted as media before the text with its link; for any other file the model gets its
# path, and may read it. Attachments are added just before a request is sent: only the text is recorded, counted and
# summarised. A missing file is left out, and deleting the link removes the attachment.

LARGEST = attachments.LARGEST_SHOWN
LARGEST_TOGETHER = 15_000_000  # bytes in a request; earlier ones take precedence, so that they stay attached


@dataclass(slots=True, eq=False)
class Attachments:
    """The attachments of one run's messages."""

    branch_dir: Path  # it holds ``files/``
    kept: dict[object, Any]  # the branch's cache of what was sent, see ``ModelRequest``
    # Completed messages and their attachments' bytes by ``id`` of the message; the same objects for each request.
    completed: dict[int, tuple[weakref.ref[Message], Message, int]] = field(default_factory=dict)

    def shown(self, messages: tuple[Message, ...]) -> Awaitable[tuple[Message, ...]] | None:
        """Return the messages with their attachments; None if nothing is linked."""
        linking_nothing: tuple[Message, ...] = self.kept.get(Attachments, ())
        known = len(linking_nothing) if begins_with(messages, linking_nothing) else 0
        if any(map(_may_link, messages[known:])):
            return asyncio.to_thread(self._messages, messages)
        self.kept[Attachments] = messages
        return None

    def _messages(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        room, made = LARGEST_TOGETHER, []
        for message in messages:
            shown, size = self._message(message, room) if _may_link(message) else (message, 0)
            room -= size
            made.append(shown)
        return tuple(made)

    def _message(self, message: Message, room: int) -> tuple[Message, int]:
        known = self.completed.get(id(message))
        if known is not None and known[0]() is message:
            return known[1], known[2]
        parts: list[Part] = []
        size = 0
        for part in message.parts:
            if isinstance(part, Text):
                for shown, taken in _of_text(part.text, self.branch_dir, room - size):
                    parts.append(shown)
                    size += taken
            parts.append(part)
        shown_message = replace(message, parts=tuple(parts))
        key = id(message)
        self.completed[key] = (weakref.ref(message, lambda _: self.completed.pop(key, None)), shown_message, size)
        return shown_message, size


_LINKED = f"{paths.FILES_DIR}/"


def _may_link(message: Message) -> bool:
    if message.role == "user":
        for part in message.parts:  # of each message of a conversation: no generator
            if isinstance(part, Text) and _LINKED in part.text:
                return True
    return False


def _of_text(text: str, branch_dir: Path, room: int) -> Iterator[tuple[Part, int]]:
    """Yield the files that a text links as parts, each with its media size; at most ``room`` bytes in total."""
    for each in {found.file: found for found in attachments.linked_files(text, branch_dir)}.values():
        try:
            kind = attachments.type_of(each.file)
            if kind and each.size <= min(LARGEST, room):
                data = regularfile.read_bytes(each.file, limit=LARGEST)
                yield Media(type=kind, data=base64.b64encode(data).decode()), each.size
                room -= each.size
            else:
                why = " It is too large to be shown." if kind else ""
                note = f"{each.link} is the file {each.file} ({each.size} bytes).{why}"
                yield Text(text=f"<attachment>\n{note}\n</attachment>"), 0
        except OSError:
            continue


# The skills that a session's system prompt lists, read from disk; blocks.


def _skills_now(config: Config, place: Workplace) -> Mapping[str, Skill]:
    found = skills_of(config, place.root).found
    return {name: skill for name, skill in found.items() if name in place.skills}


def _beside_skills(config: Config, place: Workplace) -> tuple[str, ...]:
    """Return patterns of the files beside the skills."""
    return tuple(under(str(skill.file.parent)) for skill in _skills_now(config, place).values())


# Rules for the calls of a branch: its preset, the presets of sessions above it, and the daemon's protected paths.


def policy_context(
    presets: PresetSource,
    ref: BranchRef,
    ancestors: tuple[BranchRef, ...],
    options: SendOptions,
    config: Config,
    remembered: Callable[[], tuple[re.Pattern[str], ...]] = tuple,
) -> Callable[[], Context]:
    """Return a function that reads the rules for one decision; ancestors' denies are evaluated live.

    ``remembered`` returns the patterns that humans granted, see ``grants``.
    """
    # Computed on demand: most runs need no decision.
    protected = cache(lambda: protected_paths(config))
    readable = cache(lambda: (under(str(paths.files_dir(ref.branch_dir))),))

    def context() -> Context:
        preset, above = presets.of_branch(ref), [presets.of_branch(ancestor) for ancestor in ancestors]
        return Context(
            preset=preset,
            profile=resolve_profile(preset.profile),
            ancestor_denies=tuple(pattern for each in above for pattern in each.paths.deny),
            ancestor_commands=tuple(text for each in above for text in each.shell.deny),
            ancestor_read_only=any(each.read_only for each in above),
            ancestor_profiles=tuple(
                profile for each in above if (profile := resolve_profile(each.profile)) is not None
            ),
            protected=protected(),
            readable=readable(),
            interactive=options.interactive,
            grants=options.grants,
            remembered=remembered(),
        )

    return context


def protected_paths(config: Config) -> tuple[str, ...]:
    """Return patterns of the daemon's own paths, which no tool may write, whatever a preset allows."""
    skills = (*config.own.skills, *config.own.more_skills)  # every session reads them, and the instructions
    own = (config.sessions_dir, config.runtime_dir, config.presets_dir, *skills, *installation.code_directories())
    files = (config.file, *config.own.instructions)
    agents = exactly(os.path.realpath(config.agents_dir))  # each named agent has its workspace here
    return (
        *(f"{agents}/*/{name}" for name in named_agents.DECISIVE),
        *(under(os.path.realpath(each)) for each in own),
        *(exactly(os.path.realpath(each)) for each in files),
    )


def shell_scope(
    presets: PresetSource, ref: BranchRef, ancestors: tuple[BranchRef, ...], config: Config, root: Path
) -> Callable[[], ShellScope]:
    """Return a function that reads the rules for one command, so that a change of ``preset.md`` applies at once.

    Paths denied by a session above an agent stay denied; all other rules are those of the agent's own preset. The
    hooks of the workspace ``root`` are protected too, so that no command can disable a hook that guards tool calls.
    """
    family = (ref, *ancestors)
    top = family[-1].session_dir

    def find_ours() -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Return the daemon's protected, hidden and closed paths."""
        agents = config.agents_dir.resolve()
        # A named agent works in its own directory, so the files that configure it are protected one by one.
        tops = () if named_agents.is_below(agents, top) else (top,)
        places = (config.sessions_dir, config.presets_dir, config.file, *tops, *named_agents.decisive_places(agents))
        # Closed: other conversations, and snapshots of files of other projects.
        return (
            _resolve_all(*places, *installation.code_directories()),
            _resolve_all(config.runtime_dir),
            _resolve_all(config.sessions_dir, agents),
        )

    ours = cache(find_ours)  # computed on demand: most runs have no command

    def scope() -> ShellScope:
        own, *above = (presets.of_branch(each) for each in family)
        protected, hidden, closed = ours()
        return ShellScope(
            read=own.paths.read,
            write=own.paths.write,
            deny=tuple(dict.fromkeys(pattern for each in (own, *above) for pattern in each.paths.deny)),
            protected=(*protected, *hooks_in(root)),
            hidden=hidden,
            closed=closed,
            own=(str(top.resolve()),),
            records=tuple(each.key for each in family),
            commands=own.shell.allow,
            network=own.shell.network,
            confine=own.shell.confine,
            wanted=config.shell.confinement,
        )

    return scope


def _resolve_all(*places: Path) -> tuple[str, ...]:
    return tuple(str(place.resolve()) for place in places)


@lru_cache(maxsize=64)
def _intern(value: _T) -> _T:
    """Return the same object for equal values, so that agents of one preset share one system prompt in memory."""
    return value


class SettingsBlock(NamedTuple):
    """The document's Local Variables, and those that the daemon recorded as written."""

    seen: Settings
    written: object
    is_none_of_ours: bool


class ModelPlan(NamedTuple):
    """The parts of a run's settings that depend on the model."""

    system: str
    window: int | None  # tokens; None if unknown
    longest: Mapping[str, Any]  # limits for answer and thinking in tokens, as fields of ``RunSettings``


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The settings that runs of a branch share until one of the plan's inputs changes."""

    made_of: tuple[object, ...]  # the inputs except the Local Variables, see ``RunBuilder._facts``
    blocks: Sequence[SettingsBlock]  # the Local Variables it is valid for: as read, and as the run writes them
    place: Workplace  # the workspace
    turn: TurnNames  # the names in the user's messages
    presets: TurnPresets  # the presets of the branch and of those above
    preset: Preset  # the preset that answers
    override: Override  # the values that the user set in the document
    given: Settings  # the preset's settings as the document shows them
    effective: Settings  # the same with the override
    wanted: Sequence[str]  # names of the tools of the preset and of features
    permitted: Sequence[str]  # those of them that are allowed
    tools: Mapping[str, ToolSpec]  # tools that are the same in each run, by name
    providers: Sequence["Feature"]  # features that make further tools for each run
    contexts: Sequence["Feature"]  # ... that add to the context of its calls
    adjusting: Sequence["Feature"]  # ... that change its settings
    taken: frozenset[str]  # names of the daemon's tools, offered or not
    reads_skills: bool  # whether files beside the skills may be read
    skills: str  # the section of the system prompt about skills
    backend: Backend  # the backend, deferred for a resumed run
    model: str  # before hooks change it
    provider: str  # the name of the backend
    models: dict[str, ModelPlan]  # by model, filled on demand
    trace: TraceWriter  # log of the requests, for programs
    log: OrgLog  # ... and for people
    kept: dict[object, Any] = field(default_factory=dict)  # of what the last request held, see ``ModelRequest``


class RunBuilder:
    """Builds the settings of one run that is about to start or to be resumed.

    Args:
        kernel: The kernel.
        branch: The branch of the run.
        run_id: The id of the run.
        options: The options of its client.
        message: Metadata of the message it answers (``agent``, ``model``, ``trigger``, …).
    """

    presets: TurnPresets  # who answers there, and in the branches above
    rules: TurnPresets  # the same as decisions about calls see them: what lies beside skills may be read
    preset: Preset  # who answers the run
    provider: str  # the name of the backend
    place: Workplace  # where it works, as its system prompt tells
    root: Path  # the workspace
    authority: Authority  # who decides what it may do
    offer: ToolOffer  # the tools that the model is told about
    watched: WatchedBackend  # the backend, with its requests traced and watched
    watchers: list[Watcher]  # of its requests, to which features add theirs

    def __init__(
        self,
        kernel: "Kernel",
        branch: "LiveBranch",
        run_id: str,
        options: SendOptions,
        *,
        message: Mapping[str, Any] | None = None,
    ) -> None:
        self.kernel = kernel
        self.branch = branch
        self.run_id = run_id
        self.options = options
        self.message = message or {}
        self.ancestors, self.top = branch.ancestors, branch.top
        self.witness = RunWitness(
            kernel=kernel,
            ref=branch.ref,
            session=self.top.session_id,
            run_id=run_id,
            user=None if self.message.get("trigger") else local_user(),
        )
        self._override: Override = {}

    def permitted(self, names: Iterable[str]) -> list[str]:
        """Return the tools that no profile of the branch or of those above denies completely."""
        return permitted_tools(self.presets, self.branch.ref, self.ancestors, names)

    async def settings(self, seen: Settings, *, model: str | None = None) -> RunSettings:
        """Return the settings of the run.

        Args:
            seen: The Local Variables of the document.
            model: The model of a resumed run, whose backend is looked up when it is needed; None for a new run.

        Raises:
            PyagentdError: Preset, backend, key or a pattern is invalid.
        """
        kernel, branch, ref = self.kernel, self.branch, self.branch.ref
        plan, (facts, block) = branch.plan, self._facts(seen)
        if plan is None or model is not None or facts != plan.made_of or block not in plan.blocks:
            plan = await self._plan(seen, model)
        self.place, self.root, self.presets, self.preset = plan.place, plan.place.root, plan.presets, plan.preset
        self.provider, self._override = plan.provider, plan.override
        branch.write_settings(given=plan.given, effective=plan.effective, seen=seen)
        self.rules = branch.turn = plan.presets
        if plan.reads_skills:  # files beside skills are looked up when a call needs them: most runs read none
            self.rules = branch.turn = plan.presets.reading(
                ref, cache(partial(_beside_skills, kernel.config, plan.place))
            )
        if model is None:
            model = await self._model(plan.model, plan.preset)
        if (model_plan := plan.models.get(model)) is None:
            known = kernel.model_facts(model)
            model_plan = plan.models[model] = ModelPlan(
                await self._system(plan.preset, plan.skills, model),
                known.context_window if known.window_known else None,
                self._longest(plan.preset, model),
            )
        await kernel.grants.load(self.top, self.root)
        self.authority = Authority(
            context=policy_context(
                self.rules,
                ref,
                self.ancestors,
                self.options,
                kernel.config,
                remembered=lambda: kernel.grants.patterns(self.top, plan.place.root),
            ),
            ask_human=partial(kernel.questions.ask, branch, self.run_id, self.ancestors),
            stop=branch.stop,
            witness=self.witness,
            leaving=lambda: kernel.closing,
            unasked=self._tell_unasked,
        )
        made = dict(plan.tools)
        for each in plan.providers:
            made |= {spec.name: spec for spec in each.tools_for(self)}
        tools = {name: made[name] for name in plan.permitted if name in made}
        for each in kernel.features_with("further_tools"):
            tools |= each.further_tools(self, plan.wanted, plan.taken | made.keys(), self.permitted)
        context: dict[str, Any] = {}
        for each in plan.contexts:
            context |= each.context_for(self)
        self.offer = ToolOffer(tools, partial(found_before, branch.conversation), window=model_plan.window)
        self.watchers = []
        self.watched = WatchedBackend(
            backend=plan.backend,
            trace=plan.trace,
            run_id=self.run_id,
            clock=kernel.clock,
            watchers=self.watchers,
            completed=Attachments(ref.branch_dir, plan.kept).shown,
        )
        settings = RunSettings(
            backend=self.watched,
            log=plan.log,
            model=model,
            provider=plan.provider,
            system=model_plan.system,
            tools=tools,
            offer=self.offer,
            context=ToolContext(
                root=self.root,
                branch_dir=ref.branch_dir,
                spool_dir=paths.files_dir(ref.branch_dir),
                readable=self.authority.readable,
                env={
                    name: text for name, text in self.options.env.items() if name not in kernel.config.key_variables
                },
                scope=shell_scope(self.rules, ref, self.ancestors, kernel.config, self.root),
                notify=branch.say,
                **context,
            ),
            authority=self.authority,
            temperature=plan.preset.temperature,
            **model_plan.longest,
            result=plan.preset.result,
            limits=Limits(
                turns=plan.preset.max_turns,
                calls=plan.preset.max_calls or MAX_CALLS,
                tokens=plan.preset.token_budget,
                time_s=plan.preset.time_budget_s,
            ),
            tool_results=plan.preset.include_tool_results or ref.is_agent,  # a parent reads them
            agent=plan.turn.agent,
            kept=plan.kept,
        )
        if kernel.named.is_named(ref):
            settings = replace(settings, fresh=partial(self._renew, plan))
        for each in plan.adjusting:
            settings = each.settings_for(self, settings)
        return self._with_fitter(settings)

    def _facts(self, seen: Settings) -> tuple[tuple[object, ...], SettingsBlock]:
        """Return the current inputs of a plan, except for files that are read for it."""
        branch, preset_of = self.branch, self.kernel.presets.of_branch
        session = branch.conversation.session
        metadata = session.get("metadata_json", {})
        return (
            self.kernel.config,
            preset_of(branch.ref),
            *map(preset_of, self.ancestors),
            self.options,
            names_for_turn(branch.conversation, self.message),
            *map(session.get, ("workspace_root", "agent")),
            *map(metadata.get, (*TAKEN_OVER, "above")),
        ), SettingsBlock(seen, metadata.get("settings"), branch.has_no_settings)

    async def _plan(self, seen: Settings, model: str | None) -> RunPlan:
        """Return a new plan; the branch keeps it for its next runs if it does not depend on other files."""
        kernel, branch, ref = self.kernel, self.branch, self.branch.ref
        project = branch.conversation.session.get("workspace_root")
        if not kernel.presets.is_warm(project):
            await asyncio.to_thread(kernel.presets.warm, ref, project)
        self.place = place = await workplace_of(kernel, branch)
        self.root = place.root
        made_of, block = self._facts(seen)  # later changes give the next run a new plan
        turn = names_for_turn(branch.conversation, self.message)
        self.presets = presets = turn_presets(kernel.presets, ref, self.ancestors, branch.conversation, turn.agent)
        own = kernel.presets.of_branch(ref)
        override = branch.override(own, seen)
        given, effective = settings_in_document(settings_of(own)), effective_settings(own, override)
        blocks = [block]
        if ref.is_agent or find_override(effective, given, own) == override:  # writing them changes no override
            blocks.append(SettingsBlock(effective, to_json(given), False))
        if presets.name:  # the override applies to every agent, except for the tools
            override = {name: value for name, value in override.items() if name != "tools"}
        self._override = override
        self.preset = preset = turn.answered_by(preset_with_overrides(self._answering_preset(), override))
        backend: Backend
        if model is None:
            backend, model = self._backend_of(preset)
        else:
            backend = DeferredBackend(lambda: self._backend_of(preset))
        wanted = [*preset.tools, *(f"emacs:{tool}" for tool in preset.emacs_tools)]
        permitted = self.permitted(wanted)
        for each in kernel.features_with("granted"):
            granted = [name for name in each.granted(self, permitted) if name not in permitted]
            permitted += granted
            wanted += granted
        tools, web = builtin_tools(), kernel.config.web
        taken = {*tools, "WebFetch", "WebSearch"}
        if "WebFetch" in permitted:
            tools["WebFetch"] = web_fetch(allow_private=web.allow_private)
        if "WebSearch" in permitted:
            tools["WebSearch"] = web_search(
                web,
                key=lambda: variable_of(key_variable(web), self.options),
                used=lambda: _calls(branch.conversation, "WebSearch"),
            )
        providers = kernel.features_with("tools_for")
        taken.update(*(each.tool_names for each in providers))
        reads_skills = bool(place.skills) and instructions.NAME in presets.of_branch(ref).tools
        taken |= {instructions.NAME} if reads_skills else set()
        has_skills = reads_skills and instructions.NAME in permitted
        if has_skills:
            tools[instructions.NAME] = skill_tool(
                branch.skills_read, place.skills, lambda: _skills_now(kernel.config, place)
            )
        with_tools = [each for each in providers if not set(each.tool_names).isdisjoint(permitted)]
        contexts = kernel.features_with("context_for")
        plan = RunPlan(
            made_of=made_of,
            blocks=blocks,
            place=place,
            turn=turn,
            presets=presets,
            preset=preset,
            override=override,
            given=given,
            effective=effective,
            wanted=wanted,
            permitted=permitted,
            tools=tools,
            providers=with_tools,
            contexts=[each for each in contexts if not each.tool_names or each in with_tools],
            adjusting=[each for each in kernel.features_with("settings_for") if each.adjusts(preset)],
            taken=_intern(frozenset(taken)),
            reads_skills=reads_skills,
            skills=_intern(skills_index(place.skills)) if has_skills else "",
            backend=backend,
            model=model,
            provider=provider_of(preset, kernel.config, self.options),
            models={},
            trace=TraceWriter(ref.branch_dir),
            log=OrgLog(ref.branch_dir),
        )
        # Reused while its inputs are unchanged, unless a template, a document or a late key was read for it.
        above = branch.conversation.session["metadata_json"].get("above") or ()
        templates = turn.agent or any(held.get("agent") for held in above)
        read = templates or kernel.named.is_named(ref) or self.options.late is not None
        branch.plan = None if read or isinstance(backend, DeferredBackend) else plan
        return plan

    def _with_fitter(self, settings: RunSettings) -> RunSettings:
        for each in self.kernel.features_with("fit_for"):
            if (fit := each.fit_for(self, settings)) is not None:
                return replace(settings, fit=fit)
        return settings

    async def _model(self, model: str, preset: Preset) -> str:
        for each in self.kernel.features_with("model_for"):
            model = await each.model_for(self, model, preset)
        return model

    async def _system(self, preset: Preset, skills: str, model: str) -> str:
        """Return the system prompt; a named agent's documents follow the body of its preset."""
        ref, body = self.branch.ref, preset.body
        if self.kernel.named.is_named(ref):
            docs = await asyncio.to_thread(docs_section, ref.session_dir)
            body = "\n\n".join(part for part in (body, docs) if part)
        whole = system_prompt(
            body,
            self.place.environment,
            instructions=self.place.instructions,
            skills=skills,
            model=model,
            called_by_agent=ref.is_agent and preset.caller == "agent",
        )
        shared: str = _intern(whole)
        return shared

    async def _renew(self, plan: RunPlan, now: RunSettings) -> RunSettings:
        """Return the settings of a named agent's run from its current configuration; see ``run.Fresh``.

        Values that the user set in the document or named in a message stay.
        """
        kernel = self.kernel
        own = preset_with_overrides(self._answering_preset(), self._override)
        preset, before = plan.turn.answered_by(own), self.preset
        changes: dict[str, Any] = {}
        if (preset.backend, preset.model) != (before.backend, before.model):
            backend, model = self._backend_of(preset)
            model = await self._model(model, preset)
            self.provider = provider_of(preset, kernel.config, self.options)
            self.watched = replace(self.watched, backend=backend)
            changes = {"backend": self.watched, "model": model, "provider": self.provider}
            changes |= self._longest(preset, model)
        self.preset = preset
        system = await self._system(preset, plan.skills, changes.get("model", now.model))
        if not changes and system == now.system:
            return now
        return self._with_fitter(replace(now, system=system, **changes))

    def _backend_of(self, preset: Preset) -> tuple[Backend, str]:
        return backend_for(preset, self.kernel.config, self.options, template=self._template)

    def _template(self) -> tuple[str, Path]:
        """Return name and file of the preset that answers: the template, or the branch's own copy without one."""
        conversation = self.branch.conversation
        name = self.presets.name or opened_with(conversation)
        found = self.kernel.presets.for_project(conversation.session.get("workspace_root")).usable.get(name)
        return name, found.file if found else paths.preset_file(self.branch.ref.branch_dir)

    def _answering_preset(self) -> Preset:
        return with_backend_and_model(self.presets.of_branch(self.branch.ref), self.kernel.config, self.options)

    def _longest(self, preset: Preset, model: str) -> dict[str, Any]:
        """Return the token limits of answer and thinking, which share the model's limit."""
        answer, thinking = preset.max_tokens or DEFAULT_MAX_TOKENS, THINKING_TOKENS.get(preset.thinking, 0)
        whole = self.kernel.model_facts(model).longest(answer + thinking)
        thinking = min(thinking, max(whole - answer, whole // 2))
        return {"max_tokens": whole - thinking, "thinking_budget": thinking or None}

    def _tell_unasked(self, tool: str, action: str) -> None:
        """Tell clients of the branch and of those above that a call was denied because no human could be asked."""
        ref = self.branch.ref
        agent = ref.session_id if ref.is_agent else None
        for watched in (ref, *self.ancestors):
            details = {"asker": ref.key, "agent": agent, "tool": tool, "action": action}
            self.kernel.publish(Event("denied", watched.key, 0, (details,)))


# Resuming a run that an earlier daemon suspended in a branch.
#
# Its view is read from the document above its prompt's end; its answer so far and its questions are read from the
# log. The client that answers them replaces the run's own client (``settings.LateArrival``).


class RunContinuation(NamedTuple):
    """The state from which a run is resumed."""

    view: tuple[Message, ...]  # the model's view, its finished steps last
    settings: RunSettings
    resumed: ResumedRun
    options: SendOptions


async def find_continuation(kernel: "Kernel", branch: "LiveBranch", run_id: str) -> RunContinuation | None:
    """Return the state from which the last run of a branch is resumed; None if it cannot be resumed.

    The run keeps the questions that it asked before.

    Raises:
        PyagentdError: The preset, the document or a log is invalid, or the session is from another machine.
    """
    last, standing = branch.last_run, standing_of(branch.conversation)
    branch.last_run = None
    if kernel.closing or branch.refusal or last is None or standing is None:
        return None
    if kernel.origins.foreign(branch.ref):  # its log may claim approvals that no human gave
        raise BadRequest("A run of a session that is not from this machine does not go on", hint="Send it again")
    data = branch.conversation.runs[run_id].data
    late = kernel.trees.late[paths.root_of(branch.ref).key]
    grants = tuple(map(compile_action, data.get("allow", ())))
    options = SendOptions(interactive=data["interactive"], env=late.env, late=late, grants=grants)
    view, seen = await asyncio.to_thread(turns.of_run, branch.file, branch.conversation.snapshot(), last)
    view = _join_views(view, standing.done)
    for each in kernel.features:
        view = each.resumed_view(view, branch.conversation, run_id)
    model = served_by(standing.message.row).model

    async def rejoin(call: ToolCall) -> Output | None:
        for each in kernel.features:
            if (found := await each.rejoin(branch, options, run_id, call)) is not None:
                return found
        return None

    resumed = ResumedRun(standing=standing, begun=frozenset(branch.conversation.begun), rejoin=rejoin)
    asked = branch.conversation.messages[data["message_id"]].row["metadata_json"]
    settings = await RunBuilder(kernel, branch, run_id, options, message=asked).settings(seen, model=model)
    kernel.questions.go_on(run_id, [ask for ask in branch.conversation.asks.values() if ask.get("run_id") == run_id])
    return RunContinuation(view, settings, resumed, options)


def _join_views(view: tuple[Message, ...], done: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return a view and the run's messages; steering before the first answer is joined to the prompt."""
    if not done or done[0].role != "user":
        return (*view, *done)
    return (*view[:-1], Message(role="user", parts=(*view[-1].parts, *done[0].parts)), *done[1:])
