"""Operations on models, presets and costs: list models, choose one for a conversation, report costs."""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import unified_diff
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any, NamedTuple, NotRequired, TypedDict, cast
from urllib.parse import urlsplit

from pyagentd import features, store
from pyagentd.api.group import NOTHING, Client, Env, Group, directory, expand_home, project_of, reply_of, send_options
from pyagentd.api.mcp import TrustReply
from pyagentd.config import Config
from pyagentd.config.loading import read_config_file, read_toml
from pyagentd.config.tables import SERVICES
from pyagentd.errors import (
    BadRequest,
    ConfigError,
    NotASession,
    NotInstalled,
    ProviderError,
    PyagentdError,
    did_you_mean,
    nearest,
)
from pyagentd.features import named_agents, schedules
from pyagentd.features.emacs import EmacsClients
from pyagentd.features.models import CheckedModel, Models
from pyagentd.features.usage import (
    AgentCost,
    By,
    UsageLine,
    days_ago,
    facts_of,
    look_below,
    report,
    sum_of_lines,
)
from pyagentd.llm import catalog
from pyagentd.llm.backend import ask_model
from pyagentd.llm.prompts import accept_rewrite, rewrite_request
from pyagentd.policy.action import canonical_tool, is_ours
from pyagentd.policy.presets import DEFAULT_PRESET, Preset, parse_message_settings, parse_tools
from pyagentd.reader import Source, keys_of, line_in_front_matter, read
from pyagentd.runtime import run_setup
from pyagentd.runtime import system_prompt as instructions
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.document_sync import preset_with_overrides
from pyagentd.runtime.grants import local_subject
from pyagentd.runtime.kernel import Kernel
from pyagentd.runtime.presets import PresetTemplate, ProjectPresets, answers_next
from pyagentd.runtime.settings import DEFAULT_MAX_TOKENS, SendOptions, backend_for, configured_provider, provider_of
from pyagentd.runtime.usage import ContextReply, Cost, Expense, Meter, spent_on, tokens_used
from pyagentd.store import paths, presetfile
from pyagentd.store.conversation import COMPACTION, message_usage, requests_of
from pyagentd.store.journal import served_by
from pyagentd.store.modellists import FILE_NAME
from pyagentd.store.paths import BranchRef
from pyagentd.tools.builtin import builtin_tools
from pyagentd.tools.process import git_files
from pyagentd.wire.connection import by_person


class ModelRow(TypedDict):
    """The known facts about a model."""

    name: str
    words: str  # for people
    context_window: NotRequired[int]  # tokens
    max_output: NotRequired[int]  # tokens
    input_usd: NotRequired[float]  # for a million tokens
    output_usd: NotRequired[float]
    abilities: NotRequired[list[str]]


class ProviderRow(TypedDict):
    """A provider and its models."""

    name: str
    valid: bool  # it has a key that was not refused
    models: list[str]
    checked_at: str | None  # when its list of models was fetched; nil: never, `models` are the names known in advance
    trouble: str | None  # why that failed, or why its key cannot be used
    stand_in: bool  # the offline stand-in: no model answers
    facts: list[ModelRow]  # the known facts about its models


class OfferedModel(TypedDict):
    """A model that can be chosen."""

    text: str  # how to name it: NAME, or BACKEND/NAME where several backends have a model of that name
    backend: str
    name: str
    words: str  # for people: the backend and the facts


class ModelsReply(TypedDict):
    """Providers with their models."""

    providers: list[ProviderRow]
    offered: list[OfferedModel]  # of the valid providers
    file: str  # the file that keeps the lists
    backend: str | None  # the provider of the branch


class ModelReply(TypedDict):
    """The model that answers in a conversation."""

    model: str | None
    backend: str
    source: str  # where it is set: "agent.json", "preset.md", "Local Variables of the document", "the backend"
    note: str | None  # about a model that could not be checked


class SettingValues(TypedDict):
    """The current settings of a conversation."""

    model: str | None  # nil: the backend's default
    temperature: float | None  # nil: the model's default
    max_tokens: int | None  # of an answer
    thinking: str | int  # off, low, medium, high, or a number of tokens
    system: str  # the system prompt
    tools: list[str]


class NextSettings(TypedDict, total=False):
    """Settings of the next message only, as they were given."""

    model: str
    temperature: float | None
    max_tokens: int | None
    thinking: str
    system: str
    tools: str  # names, with spaces between them


class ConversationSettings(TypedDict):
    """The settings of a conversation."""

    settings: SettingValues
    next: NextSettings
    note: str | None  # about a model that could not be checked, or a setting that the document overrides


class RewriteReply(TypedDict):
    """A passage as a model rewrote it."""

    text: str
    diff: str  # unified; "" where nothing changed
    model: str


_LONGEST_PASSAGE = 200_000  # characters in one rewrite


SETTINGS = ("model", "temperature", "max-tokens", "thinking", "system", "tools")
"""The settings of a conversation, or of its next message."""


_CHAT, _RESPONSES = "/chat/completions", "/responses"
_OTHERS = {  # types of gptel's backends that work only in gptel, with the reason
    "gptel--gh": "GitHub Copilot has a login of its own",
    "gptel-openai-oauth": "it logs in with ChatGPT's own way",
    "gptel-kagi": "Kagi's API has no conversations",
}
_TABLES = ("backend", "model", "default")


@dataclass(frozen=True, slots=True, kw_only=True)
class GptelBackend:
    """A backend as gptel defines it.

    Attributes:
        name: The user's name for it.
        type: Its structure type, such as ``gptel-openai``.
        host: May include a port and a path.
        endpoint: The path after the host.
        models: The name and gptel's facts of each: thousands of tokens, dollars per million.
        key: Whether it has a key.
    """

    name: str
    type: str = "gptel-openai"
    protocol: str | None = "https"
    host: str
    endpoint: str | None = ""
    models: tuple[Mapping[str, Any], ...] | None = None
    key: bool | None = None


class BackendTable(NamedTuple):
    """A backend's table in ``config.toml``, and its key."""

    table: dict[str, Any]
    key: tuple[str, str] | None = None  # the environment variable for its key, and the host that receives the key


class GptelConfiguration(TypedDict):
    """The ``config.toml`` text for gptel's backends."""

    text: str
    file: str
    keys: Sequence[Sequence[str]]  # pairs: the environment variable for a key, the host that receives the key
    notes: list[str]


_SHOWN_BYTES = 300_000  # of the texts of all presets in one answer
_DESCRIPTION = 500  # characters of a preset's description in a reply

TOOLS = frozenset(
    {*builtin_tools(), *run_setup.NAMES, instructions.NAME, "request_scope_expansion"}
)  # every tool that a preset can name without a warning
_KEYS = ("mcp", *(key.replace("_", "-") for key in keys_of(Preset)))

_log = logging.getLogger(__name__)


class PresetRow(TypedDict):
    """A preset; a broken one has ``error`` instead of ``description`` and ``mode``."""

    name: str
    source: str  # its file
    origin: str  # shipped, user or project
    hash: NotRequired[str]  # of a project's preset, for trust-presets
    description: NotRequired[str]
    mode: NotRequired[str]
    warning: NotRequired[str]  # unknown tools, backends or keys
    error: NotRequired[str]
    text: NotRequired[str]  # of an untrusted preset and its scripts, if the reply has room


class PresetsReply(TypedDict):
    """Presets."""

    presets: list[PresetRow]
    untrusted: list[PresetRow]  # presets of the project that the user has not trusted yet


class FilesReply(TypedDict):
    """The files of a project."""

    files: list[str]  # relative to its root; directories end in a slash; empty without a git repository


MOST_MESSAGES = 1000  # in one reply; earlier ones are counted in the sums
MOST_DAYS = 36_500
MOST_LINES = 200  # in one reply; the cheaper ones are summed up in one


class AgentCostRow(Cost):
    """The cost of an agent."""

    id: str
    branch: str
    parent: str
    preset: str | None
    description: str | None


class MessageCost(Cost):
    """The cost of a message."""

    id: str
    model: str
    created_at: int | None  # epoch ms
    steps: int
    hidden: bool
    compaction: bool


class UsageReply(TypedDict):
    """The cost of a branch."""

    branch: str
    session_id: str
    context: ContextReply
    rollup: Mapping[str, int]  # tokens of the messages in the model's context, by bucket
    own: Cost
    agents: list[AgentCostRow]
    agents_total: Cost
    together: Cost
    messages: list[MessageCost]  # the last ones


class UsageLineReply(Cost):
    """The cost of a day, model, session or preset."""

    key: str  # the day in ISO 8601, the name of the model or preset, the session's directory
    requests: int
    session_id: NotRequired[str]  # by session only, like the two keys below
    title: NotRequired[str | None]
    file: NotRequired[str | None]


class UsageRest(UsageLineReply):
    """The sum of the lines that were left out."""

    number: int


class UsageReport(TypedDict):
    """The cost of all sessions: days with the newest first, other lines with the dearest first."""

    by: By
    days: int
    lines: list[UsageLineReply]
    rest: UsageRest | None
    together: UsageLineReply
    indexing: bool  # the index is still being built
    problem: str | None  # why it cannot be built


class ModelOperations(Group):
    """Models and their providers, presets, and costs."""

    async def models(
        self,
        client: Client,
        *,
        refresh: bool = False,
        branch: str | None = None,
        env: Env = NOTHING,
    ) -> ModelsReply:
        """Return the providers with their models, as this client's runs could use them.

        The daemon asks a provider for its list once a day, or with ``refresh`` now.
        """
        config, options = self._kernel.config, send_options(client, env, ())
        found = await self._kernel.feature(Models).look(options, refresh=refresh)
        own = self._kernel.presets.of_branch(self._ref(branch)) if branch else None
        providers = [
            reply_of(
                ProviderRow,
                each,
                name=name,
                models=list(each.models),
                trouble=each.trouble or None,
                facts=[row for model in each.models if (row := _known(name, model, config))],
            )
            for name, each in found.items()
        ]
        return {
            "providers": providers,
            "offered": offered(providers),
            "file": str(config.sessions_dir / FILE_NAME),
            "backend": configured_provider(own, config, options) if own else None,
        }

    async def model(self, client: Client, *, branch: str, model: str | None = None, env: Env = NOTHING) -> ModelReply:
        """Return the model of a conversation, or set it to ``model`` from the next request on.

        It is written to ``preset.md``, or to the ``agent.json`` of a named agent.
        """
        kernel, ref, options = self._kernel, self._ref(branch), send_options(client, env, ())
        note = ""
        if model is not None:
            checked = await checked_model(kernel, kernel.presets.of_branch(ref), model, options)
            note = checked.note
            if kernel.named.is_named(ref):
                await named_agents.set_setting(
                    kernel, ref.session_dir.name, "model", checked.model, user=local_subject()
                )
            else:
                await write_settings(kernel, ref, parse_message_settings({"model": checked.model}))
            if (live := kernel.opened(ref.key)) is not None:
                live.say(f"The model is {checked.model} from now on")
        async with kernel.using(ref) as live:
            preset = answers_next(kernel, live, options)
            in_document = "model" in live.override(kernel.presets.of_branch(ref))
        source = "Local Variables of the document" if in_document else model_source(kernel, ref, preset.model)
        backend = provider_of(preset, kernel.config, options)
        return {"model": preset.model, "backend": backend, "source": source, "note": note or None}

    async def set_setting(
        self,
        client: Client,
        *,
        branch: str,
        key: str | None = None,
        value: str | None = None,
        next: bool = False,
        env: Env = NOTHING,
    ) -> ConversationSettings:
        """Set ``key`` to ``value``, if both are given, and return the settings of a conversation.

        Keys are model, temperature, max-tokens, thinking, system and tools; the value ``default`` resets temperature,
        max-tokens or thinking to the provider's. Tools are names, or ``+NAME`` and ``-NAME``; ``none`` means none.
        The value is written to ``preset.md`` (``agent.json`` of a named agent), or with ``next`` it applies to the
        next message only, unless the daemon ends before.
        """
        kernel, ref, options = self._kernel, self._ref(branch), send_options(client, env, ())
        waiting, note = kernel.feature(Models).next_settings, ""
        async with kernel.using(ref) as live:
            if key is not None and value is not None:
                given = await self._parse_setting(live, key, value.strip(), options)
                if next:
                    waiting[live.key] = {**waiting.get(live.key, {}), **given}
                elif key == "model":
                    note = (await self.model(client, branch=branch, model=value, env=env))["note"] or ""
                else:
                    live.require_writable()
                    values = given if None in given.values() else parse_message_settings(given)
                    await write_settings(kernel, ref, values)
                    if key.replace("-", "_") in live.override(kernel.presets.of_branch(ref)):
                        note = f"The document's Local Variables say another {key}, which wins there"
            own = answers_next(kernel, live, options)
            own = preset_with_overrides(own, live.override(kernel.presets.of_branch(ref)))
            held = waiting.get(live.key, {})
        settings = reply_of(
            SettingValues, own, thinking=own.thinking or "off", system=own.body, tools=list(own.tools)
        )
        return {"settings": settings, "next": cast(NextSettings, held), "note": note or None}

    async def rewrite(
        self,
        client: Client,
        *,
        text: str,
        instruction: str,
        name: str = "",
        before: str = "",
        after: str = "",
        model: str | None = None,
        env: Env = NOTHING,
    ) -> RewriteReply:
        """Rewrite a passage with a model, outside of any session.

        The model is ``model``, ``[BACKEND/]NAME``, by default that of a new session. ``name`` names the file or
        buffer; ``before`` and ``after`` are the text around the passage there.

        Raises:
            BadRequest: The passage or the instruction is empty, or the passage too long.
            ProviderError: The model gave no usable answer.
        """
        if not text.strip() or not instruction.strip():
            raise BadRequest("The text or the instruction of the rewrite is empty")
        if len(text) > _LONGEST_PASSAGE:
            raise BadRequest(f"{len(text):,} characters are too many", hint=f"Up to {_LONGEST_PASSAGE:,}")
        kernel, options = self._kernel, send_options(client, env, ())
        preset = kernel.presets.template(DEFAULT_PRESET)[0]
        if model:
            checked = await checked_model(kernel, preset, model, options)
            preset = replace(preset, **parse_message_settings({"model": checked.model}))
        backend, answering = backend_for(preset, kernel.config, options)
        most = catalog.facts(answering, kernel.config).longest(DEFAULT_MAX_TOKENS)
        request = rewrite_request(
            answering, text, instruction, name=name, before=before, after=after, max_tokens=most
        )
        reply = await ask_model(backend, replace(request, purpose="rewrite"))
        if reply.stop_reason in ("refusal", "max_tokens"):
            why = "refused" if reply.stop_reason == "refusal" else "reached the longest answer"
            raise ProviderError(f"{answering} {why}", hint="Nothing was changed. Rewrite a shorter text at a time")
        made = accept_rewrite("".join(reply.texts), text)
        if not made.strip():
            raise ProviderError(
                f"{answering} gave an empty answer", hint="Word the instruction differently, or choose another model"
            )
        old, new, called = text.splitlines(), made.splitlines(), name or "text"
        diff = unified_diff(old, new, called, f"{called} rewritten", lineterm="")
        return {"text": made, "diff": "\n".join(diff), "model": answering}

    async def _parse_setting(self, live: LiveBranch, key: str, value: str, options: SendOptions) -> dict[str, Any]:
        """Return the checked setting, under its name on the wire."""
        kernel = self._kernel
        own = kernel.presets.of_branch(live.ref)
        given: Any = None if value == "default" else value
        match key:
            case "model" if given is not None:
                given = (await checked_model(kernel, own, value, options)).model
            case "temperature" | "max-tokens" if given is not None:
                try:
                    given = float(value) if key == "temperature" else int(value)
                except ValueError:
                    raise BadRequest(
                        f"{value[:60]!r} is not a value of {key}", hint="Give a number, or default"
                    ) from None
            case "tools" if given is not None:
                on = preset_with_overrides(own, live.override(own)).tools
                given = " ".join(_switch_tools(on, available_tools(kernel, live, on), value))
            case "system" | "tools" | "thinking" | "model" | "temperature" | "max-tokens":
                if given is None and key in ("system", "tools", "model"):
                    raise BadRequest(f"{key} has no default", hint="Give the value")
                given = "off" if given is None and key == "thinking" else given
            case _:
                raise BadRequest(f"There is no setting {key!r}", hint=f"There are {', '.join(SETTINGS)}")
        named = {key.replace("-", "_"): given}
        parse_message_settings(named)
        return named

    async def gptel_backends(
        self, client: Client, *, backends: Sequence[Any], current: str = ""
    ) -> GptelConfiguration:
        """Return the text that adds gptel's backends to ``config.toml``.

        Nothing is written. Each of ``backends`` is a plist ``(:name :type :protocol :host :endpoint :models :key)``,
        and each of its models a plist ``(:name :context-window :input-cost :output-cost)``, see ``GptelBackend``.
        """
        config = self._kernel.config
        source = Source.at("backends", BadRequest)
        given = [read(each, GptelBackend, source, (number,)) for number, each in enumerate(backends)]
        text, keys, notes = await asyncio.to_thread(configuration_of, given, config, current=current)
        return {"text": text, "file": str(config.file), "keys": keys, "notes": notes}

    @by_person
    async def add_configuration(self, client: Client, *, text: str) -> str:
        """Append ``text`` (backends, models, the default backend) to ``config.toml``; return the file.

        Raises:
            ConfigError: The text has other tables or would make the file invalid; nothing is written.
        """
        file = self._kernel.config.file
        if others := read_toml(file, text).data.keys() - set(_TABLES):
            raise ConfigError(f"Only the tables {', '.join(_TABLES)} can be written, not {', '.join(sorted(others))}")
        await asyncio.to_thread(store.configfile.append, file, text)
        _log.info("%s wrote to %s", client.name, file)
        return str(file)

    async def presets(self, client: Client, *, root: str | None = None) -> PresetsReply:
        """Return the presets for sessions in the project ``root``; a broken one with its ``error``."""
        found = await asyncio.to_thread(self._for_project, root)
        room, untrusted = _SHOWN_BYTES, list[PresetRow]()
        for template in found.found:
            if not template.trusted and template.data is not None:
                untrusted.append(await asyncio.to_thread(_preset_row, found, template, self._kernel.config))
                room -= len(template.data)
                room -= sum(len(code) for _, code in template.scripts)
                if room >= 0:
                    files = [f"\n--- {path}\n{code.decode(errors='replace')}" for path, code in template.scripts]
                    untrusted[-1]["text"] = "".join((template.data.decode(errors="replace"), *files))
        config = self._kernel.config
        usable = await asyncio.to_thread(lambda: [_preset_row(found, each, config) for each in found.usable.values()])
        return {"presets": usable, "untrusted": untrusted}

    async def project_files(self, client: Client, *, root: str) -> FilesReply:
        """Return the files and directories of the project ``root`` that git knows or would add."""
        names = await asyncio.to_thread(git_files, directory(root)) or []
        parents = {f"{parent}/" for name in names for parent in PurePath(name).parents}
        return {"files": sorted(parents - {"./"}) + names}

    @by_person
    async def trust_presets(self, client: Client, *, root: str, hashes: Sequence[str]) -> TrustReply:
        """Trust presets of the project ``root`` by their ``hash``.

        If one of them is broken, or has another hash now, none is trusted.
        """
        found = await asyncio.to_thread(self._for_project, root)
        wanted = [template for template in found.found if template.hash in hashes and not template.trusted]
        unknown = set(hashes) - {template.hash for template in found.found}
        if unknown:
            raise BadRequest(
                f"{expand_home(root)} has no preset with the hash {min(unknown)}",
                hint="It has changed since: look at it again (pyagentd presets)",
            )
        await asyncio.to_thread(lambda: [found.read(template) for template in wanted])
        self._kernel.presets.trust.add(template.hash for template in wanted if template.hash)
        for template in wanted:
            _log.info("%s trusts the preset %s (%s)", client.name, template.file, template.hash)
        return {"trusted": [template.name for template in wanted]}

    def _for_project(self, root: str | None) -> ProjectPresets:
        place = expand_home(root) if root else None
        return self._kernel.presets.for_project(project_of(str(place)) if place and place.is_dir() else place)

    async def usage(self, client: Client, *, branch: str) -> UsageReply:
        """Return the cost of a branch: its own, its agents', the sum, and the cost of each of its last messages."""
        async with self._kernel.using(self._ref(branch)) as live:
            below = await look_below(self._kernel, live)
            if (meter := live.meter) is None:
                raise NotInstalled("This daemon runs without Meters")
            return {
                "branch": live.key,
                "session_id": live.ref.session_id,
                "context": meter.to_wire(),
                "rollup": asdict(tokens_used(live.conversation)),
                "own": meter.own.to_wire(),
                "agents": [_agent(each) for each in below],
                "agents_total": sum((each.spent for each in below), Expense()).to_wire(),
                "together": meter.together.to_wire(),
                "messages": list(self._messages(live))[-MOST_MESSAGES:],
            }

    async def usage_report(self, client: Client, *, by: By = "day", days: int = 30) -> UsageReport:
        """Return the cost of all sessions, by day, model, session or preset.

        ``days`` counts local days of the daemon's machine, including today; 0 means all.
        """
        if not 0 <= days <= MOST_DAYS:
            raise BadRequest(f"{days} is not a number of days", hint=f"Up to {MOST_DAYS}; 0 is always")
        for live in self._kernel.runs:  # count their requests so far
            self._index.branch_written(live.ref)
        complete = await self._index.fresh()
        since = days_ago(days, self._kernel.clock.now()) if days else 0
        lines = await asyncio.to_thread(report, self._kernel.state, facts_of(self._kernel), by, since_ms=since)
        shown, rest = lines[:MOST_LINES], lines[MOST_LINES:]
        found = {
            "by": by,
            "days": days,
            "lines": await asyncio.to_thread(lambda: [self._line(line, by) for line in shown]),
            "rest": {**sum_of_lines(rest, "others").to_wire(), "number": len(rest)} if rest else None,
            "together": sum_of_lines(lines, "together").to_wire(),
            "indexing": not complete,
            "problem": self._index.problem or None,
        }
        return cast(UsageReport, found)

    def _line(self, line: UsageLine, by: By) -> dict[str, Any]:
        if by != "session":
            return line.to_wire()
        place = self._index.projection.directory(line.key)
        return {**line.to_wire(), "key": str(place), "file": _file(place)}

    def _messages(self, live: LiveBranch) -> Iterator[MessageCost]:
        known = facts_of(self._kernel)
        for message in live.conversation.messages.values():
            if message.role == "assistant" and message_usage(message).total:
                yield {
                    "id": message.id,
                    "model": served_by(message.row).model,
                    "created_at": message.row.get("created_at"),
                    "steps": sum(1 for _ in requests_of(message)),
                    "hidden": message.is_hidden,
                    "compaction": any(part.type == COMPACTION for part in message.parts),
                    **spent_on(message, known).to_wire(),
                }


def model_source(kernel: Kernel, ref: BranchRef, model: str | None) -> str:
    """Return where the branch's ``model`` is set, given that the document does not set it."""
    if model is None or model != kernel.presets.of_branch(ref).model:
        return "the backend"
    is_own = kernel.named.is_named(ref) and kernel.named.file(ref).model
    return "agent.json" if is_own else "preset.md"


async def write_settings(kernel: Kernel, ref: BranchRef, values: Mapping[str, Any]) -> None:
    """Write settings, by their names in ``Preset``, to ``preset.md``, or to the ``agent.json`` of a named agent."""
    left = dict(await named_agents.keep_document_settings(kernel, ref, values, user=local_subject()))
    body = left.pop("body", None)
    if body is not None and kernel.named.is_named(ref):
        await named_agents.set_setting(kernel, ref.session_dir.name, "system_prompt", body, user=local_subject())
        body = None
    file = paths.preset_file(ref.branch_dir)
    with kernel.origins.keep_trust(ref):
        if left:
            written = {name.replace("_", "-"): value for name, value in left.items()}
            presetfile.change(file, lambda preset: presetfile.with_values(preset, written))
        if body is not None:
            presetfile.change(file, lambda preset: presetfile.with_body(preset, body))


def available_tools(kernel: Kernel, live: LiveBranch, on: Iterable[str]) -> list[str]:
    """Return the names of the tools that can be switched on in a conversation, and of those that are ``on``."""
    emacs = kernel.find(EmacsClients)
    offered = () if emacs is None else emacs.tools(kernel.watchers_of(live))
    return sorted({*on, *TOOLS, *offered}, key=str.casefold)


def _switch_tools(on: Sequence[str], available: Sequence[str], value: str) -> list[str]:
    """Return the tools as changed by ``value``: names, or ``+NAME`` and ``-NAME``; ``none`` means none."""
    words = [] if value == "none" else re.findall(r"[^\s,]+", value)
    changing = [word for word in words if word[0] in "+-"]
    if changing and len(changing) != len(words):
        raise BadRequest("Give all tools with a sign, or all without", hint="+NAME switches on, -NAME off")
    known = {name.casefold(): name for name in available}
    named = {}
    for word in words:
        name = canonical_tool(word[1:] if changing else word)
        if name.casefold() not in known:
            hint = did_you_mean(name, available) or f"There are: {', '.join(available)}"
            raise BadRequest(f"There is no tool {name!r}", hint=hint)
        named[word] = known[name.casefold()]
    if not changing:
        return list(named.values())
    off = {named[word] for word in words if word[0] == "-"}
    added = [named[word] for word in words if word[0] == "+"]
    return [name for name in dict.fromkeys([*on, *added]) if name not in off]


def offered(providers: Sequence[ProviderRow]) -> list[OfferedModel]:
    """Return the models to choose from; those of a stand-in always have its name as a prefix."""
    usable = [each for each in providers if each["valid"]]
    count = Counter(name for each in usable if not each["stand_in"] for name in each["models"])
    rows: list[OfferedModel] = []
    for each in usable:
        backend, known = each["name"], {row["name"]: row["words"] for row in each["facts"]}
        for name in each["models"]:
            text = f"{backend}/{name}" if each["stand_in"] or count[name] > 1 else name
            words = "  ".join(filter(None, (backend, known.get(name))))
            rows.append({"text": text, "backend": backend, "name": name, "words": words})
    return rows


def _known(backend: str, model: str, config: Config) -> ModelRow | None:
    """Return the known facts about a model, or None."""
    known = catalog.facts(model, config, backend=backend).to_wire()
    return cast(ModelRow, {"name": model, "words": catalog.words(known), **known}) if known else None


async def checked_model(kernel: Kernel, preset: Preset | None, model: str, options: SendOptions) -> CheckedModel:
    """Check a model that a user chose for a conversation with this preset; None means a new agent's preset.

    Raises:
        BadRequest, ConfigError: See ``Models.checked``.
    """
    own = preset or kernel.presets.template(DEFAULT_PRESET)[0]
    return await kernel.feature(Models).checked(
        model, options, backend=configured_provider(own, kernel.config, options)
    )


# Import of gptel's backends into ``config.toml``.


def backend_table(backend: GptelBackend) -> BackendTable:
    """Return a backend of gptel as a table for ``[backend.NAME]``.

    Raises:
        ConfigError: The backend cannot be used here; the message says why.
    """
    if why := _OTHERS.get(backend.type):
        raise ConfigError(f"{backend.name}: {why}")
    host = backend.host if "://" in backend.host else f"{backend.protocol or 'https'}://{backend.host}"
    url = f"{host.rstrip('/')}{backend.endpoint or ''}"
    if "?" in url:
        raise ConfigError(f"{backend.name}: its address has a query ({url}), as Azure's has")
    if backend.type == "gptel-bedrock":
        found = re.search(r"bedrock-runtime\.([\w-]+)\.amazonaws\.com", host)
        return BackendTable({"kind": "bedrock"} | ({"region": found[1]} if found else {}))
    base, kind = _base_and_kind(backend, url)
    service = next((name for name, each in SERVICES.items() if each.base_url == base), None)
    if service and backend.key and SERVICES[service].key_env is None:
        service = None  # the user's own server, which needs a key
    own = service or ("anthropic" if base == "https://api.anthropic.com" else "")
    if own:
        variable = SERVICES[own].key_env if own in SERVICES else "ANTHROPIC_API_KEY"
        table: dict[str, Any] = {"kind": own} | ({"key_env": variable} if own == "anthropic" else {})
        key = (variable, urlsplit(base).hostname or "") if variable and backend.key and own != "anthropic" else None
    else:
        variable = f"PYAGENTD_KEY_{re.sub('[^A-Z0-9]+', '_', backend.name.upper()).strip('_')}"
        table = {"kind": kind, "base_url": base} | ({"key_env": variable} if backend.key else {})
        key = (variable, urlsplit(base).netloc) if backend.key else None
    names = [str(each["name"]) for each in backend.models or ()]
    if names:
        table["model"] = names[0]
        if own not in ("anthropic", "openai", "gemini"):  # these list their models
            table["models"] = names
    return BackendTable(table, key)


def _base_and_kind(backend: GptelBackend, url: str) -> tuple[str, str]:
    match backend.type:
        case "gptel-anthropic":
            return url.removesuffix("/v1/messages"), "anthropic"
        case "gptel-gemini":
            return url.removesuffix("/models").removesuffix("/v1beta"), "gemini"
        case "gptel-ollama":
            local = re.sub(r"//(localhost|0\.0\.0\.0)\b", "//127.0.0.1", url.removesuffix("/api/chat"))
            return f"{local}/v1", "openai-compatible"
    if url.endswith(_RESPONSES):
        return url.removesuffix(_RESPONSES), "openai"
    if not url.endswith(_CHAT):
        raise ConfigError(f"{backend.name}: {url} does not end in {_CHAT}")
    return url.removesuffix(_CHAT), "openai-compatible"


def configuration_of(
    backends: Sequence[GptelBackend], config: Config, *, current: str = ""
) -> tuple[str, list[list[str]], list[str]]:
    """Return the text for the backends that ``config.toml`` lacks, the pairs of key variable and host, and remarks.

    Args:
        backends: Gptel's backends in its order.
        config: The current configuration.
        current: The backend in use in gptel, to suggest as the default.
    """
    known = {name.casefold() for name in read_config_file(config.file).data.get("backend", {})}
    tables, keys, notes = list[str](), list[list[str]](), list[str]()
    facts: dict[str, dict[str, Any]] = {}
    for backend in backends:
        try:
            made = backend_table(backend)
        except ConfigError as error:
            notes.append(error.message)
            continue
        if made.key and list(made.key) not in keys:
            keys.append(list(made.key))
        if made.table["kind"] == "anthropic" and backend.name.casefold() in ("anthropic", "claude"):
            notes.append(f"{backend.name}: is there without being configured")
            continue
        if backend.name.casefold() in known:
            notes.append(f"{backend.name}: config.toml has a backend of this name already")
            continue
        tables.append(store.configfile.table(("backend", backend.name), made.table))
        for model in backend.models or ():
            name = str(model["name"])
            if name not in config.models and not catalog.facts(name, config, backend=backend.name).window_known:
                facts |= {name: stated} if (stated := _facts_from_gptel(model)) else {}
    tables += [store.configfile.table(("model", name), stated) for name, stated in facts.items()]
    if current and not config.default.backend and tables:
        default = store.configfile.table(("default",), {"backend": current})
        lines = "\n".join(f"# {line}" for line in default.splitlines())
        tables.append(f"# What answers where a shipped preset names Claude:\n{lines}\n")
    return "\n".join(tables), keys, notes


def _facts_from_gptel(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return gptel's facts about a model under the keys of ``config.toml``."""
    window, price = model.get("context_window"), (model.get("input_cost"), model.get("output_cost"))
    stated: dict[str, Any] = (
        {"context_window": int(window * 1000)} if isinstance(window, int | float) and window else {}
    )
    if all(isinstance(each, int | float) for each in price):
        stated |= {"input": price[0], "output": price[1]}
    return stated


def _preset_row(found: ProjectPresets, template: PresetTemplate, config: Config) -> PresetRow:
    row: PresetRow = {"name": template.name, "source": str(template.file), "origin": template.origin}
    if template.hash is not None:
        row["hash"] = template.hash
    try:
        preset = found.read(template)
        if preset.signature:
            features.missions.promised_signature(preset)
        data = presetfile.content(template.file, links=True) if template.data is None else template.data
        warnings = [f"line {line}: {text}" for line, text in misspelt(presetfile.decode(data, template.file).front)]
    except PyagentdError as error:
        return {**row, "error": str(error)}
    try:
        config.backend(preset.backend)
    except ConfigError as error:  # a warning: another machine may have it
        warnings.append(error.message)
    row |= {"description": preset.description[:_DESCRIPTION], "mode": preset.mode}
    return {**row, "warning": "; ".join(warnings)} if warnings else row


def misspelt(front: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield line and message for each unknown key of a preset that resembles a known one, and each unknown tool.

    They are no errors: other programs have other keys, and Emacs may offer any tool.
    """
    for key in map(str, front):
        if (dashed := key.replace("_", "-")) not in _KEYS and (meant := nearest(dashed, _KEYS, cutoff=0.8)):
            yield line_in_front_matter(front, (key,)), f"`{key}` is not a key; is `{meant}` meant?"
    for tool in parse_tools(front.get("tools") or []):
        known = (*TOOLS, *schedules.Schedules.tool_names)
        if not (tool in known or is_ours(tool) or tool.startswith("emacs")):
            near = nearest(tool, known)
            hint = f"is `{near}` meant?" if near else f"one of your Emacs is written `emacs:{tool}`"
            yield line_in_front_matter(front, ("tools",)), f"there is no tool {tool}; {hint}"


def preset_notes(ref: BranchRef) -> list[str]:
    """Return notes about keys and tools in a branch's ``preset.md`` that are probably misspelt; blocks."""
    file = paths.preset_file(ref.branch_dir)
    return [f"{file}:{line}: {text}" for line, text in _misspelt_in(presetfile.content(file), file)]


@lru_cache(maxsize=16)  # parsing takes longer than the rest of an attach
def _misspelt_in(data: bytes, file: Path) -> tuple[tuple[int, str], ...]:
    return tuple(misspelt(presetfile.decode(data, file).front))


def summary(meter: Meter) -> dict[str, Any]:
    """Return the usage for ``show``: the branch's own and, as far as known, its agents'."""
    return {"context": meter.to_wire(), "own": meter.own.to_wire(), "together": meter.together.to_wire()}


def _agent(below: AgentCost) -> AgentCostRow:
    return {
        "id": below.ref.session_id,
        "branch": below.ref.key,
        "parent": below.parent,
        "preset": below.described["preset"],
        "description": below.described["description"],
        **below.spent.to_wire(),
    }


def _file(session_dir: Path) -> str | None:
    """Return the conversation file of a session's active branch, or None."""
    try:
        return str(paths.session_file(paths.ref_of(session_dir).branch_dir))
    except NotASession:
        return None
