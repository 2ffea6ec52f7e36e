"""Operations on models: list them, choose one for a conversation, and what was spent."""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from pyagentd.api.group import Client, Group, expand_home, project_of, send_options
from pyagentd.config import Config
from pyagentd.errors import BadRequest, ConfigError, NotASession, NotInstalled, PyagentdError, nearest
from pyagentd.events import Event
from pyagentd.features import mission_tool, named_agents
from pyagentd.features.models import CheckedModel, Models
from pyagentd.features.schedules import local_user
from pyagentd.features.usage import AgentCost, facts_of, look_below
from pyagentd.policy.presets import DEFAULT_PRESET, Preset
from pyagentd.reader import keys_of
from pyagentd.runtime import run_setup
from pyagentd.runtime import system_prompt as instructions
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.kernel import Kernel
from pyagentd.runtime.presets import PresetTemplate, ProjectPresets
from pyagentd.runtime.settings import SendOptions, configured_provider, provider_of
from pyagentd.runtime.turn_agent import answers_next
from pyagentd.runtime.usage import (
    By,
    Meter,
    UsageLine,
    days_ago,
    report,
    spent_on,
    sum_of_lines,
    tokens_used,
    total_spent,
)
from pyagentd.store import paths, presetfile
from pyagentd.store.conversation import COMPACTION, Message, message_usage, steps_of
from pyagentd.store.journal import served_by
from pyagentd.store.modellists import FILE_NAME
from pyagentd.tools.builtin import builtin_tools
from pyagentd.wire.operations import by_person

Env = Mapping[str, str] | Sequence[Any]


class ModelOperations(Group):
    """Models and who has them."""

    async def models(
        self, client: Client, *, refresh: bool = False, env: Env = (), key: str | None = None
    ) -> dict[str, Any]:
        """Return the providers with their models, as a run of this client could have them: ``{providers, file}``.

        Each has ``name``, ``valid`` (there is a key for it, which was not refused), ``models``, ``checked_at`` (when
        it listed them; nil: it has not, and these are known by name), ``trouble`` (why not, or nil) and ``stand_in``
        (no model answers there: it is for trying things out). A list that is younger than a day is not asked for
        again, unless with ``refresh``.
        """
        found = await self._kernel.feature(Models).look(send_options(client, env, key, ()), refresh=refresh)
        told = [
            {
                "name": name,
                "valid": each.valid,
                "models": list(each.models),
                "checked_at": each.checked_at,
                "trouble": each.trouble or None,
                "stand_in": each.stand_in,
            }
            for name, each in found.items()
        ]
        return {"providers": told, "file": str(self._kernel.config.sessions_dir / FILE_NAME)}

    async def model(
        self, client: Client, *, branch: str, model: str | None = None, env: Env = (), key: str | None = None
    ) -> dict[str, Any]:
        """Return which model answers in a conversation, or have it be ``model`` from the next request on.

        Of a named agent that is written to ``agent.json``, of others to ``preset.md``. The answer is ``{model,
        backend, note}``; ``note``: what is to be said of a model that could not be checked, or nil.
        """
        kernel, ref, options = self._kernel, self._ref(branch), send_options(client, env, key, ())
        note = ""
        if model is not None:
            checked = await checked_model(kernel, kernel.presets.of_branch(ref), model, options)
            note = checked.note
            if kernel.named.is_named(ref):
                await named_agents.set_setting(
                    kernel, ref.session_dir.name, "model", checked.model, user=local_user()
                )
            else:
                provider, _, name = checked.model.rpartition("/")
                with kernel.origins.keeping(ref):
                    values = {"model": name} | ({"backend": provider} if provider else {})
                    presetfile.set_values(paths.preset_file(ref.branch_dir), values)
            if (live := kernel.opened(ref.key)) is not None:
                live.publish(Event("notice", live.key, 0, ({"text": f"The model is {checked.model} from now on"},)))
        async with kernel.using(ref) as live:
            preset = answers_next(kernel, live, options)
        return {"model": preset.model, "backend": provider_of(preset, kernel.config, options), "note": note or None}


async def checked_model(kernel: Kernel, preset: Preset | None, model: str, options: SendOptions) -> CheckedModel:
    """Return a model that a person gives a conversation with this preset, None for that of a new agent.

    Raises:
        BadRequest, ConfigError: See ``Models.checked``.
    """
    own = preset or kernel.presets.template(DEFAULT_PRESET)[0]
    return await kernel.feature(Models).checked(
        model, options, backend=configured_provider(own, kernel.config, options)
    )


# Operations on the presets that sessions and agents are made from.

_SHOWN_BYTES = 300_000  # of the texts of all presets in one answer
_DESCRIPTION = 500  # characters of one, as far as they are told

TOOLS = frozenset(
    {*builtin_tools(), *run_setup.NAMES, instructions.NAME, "request_scope_expansion"}
)  # that there are
_KEYS = ("mcp", *(key.replace("_", "-") for key in keys_of(Preset)))

_log = logging.getLogger(__name__)


class PresetTemplates(Group):
    """Presets of the package, the user and the project."""

    async def presets(self, client: Client, *, root: str | None = None) -> dict[str, Any]:
        """Return the presets for sessions in the project ``root``; a broken one with its ``error``.

        The answer is ``{presets: (P…), untrusted: (P…)}``. P is ``{name, source, origin, description, mode}`` or, of
        a broken one, ``{name, source, origin, error}``; ``origin`` is shipped, user or project. ``untrusted`` are
        presets of the project that wait for the user's word; they have a ``hash``, for ``trust-presets``, and their
        ``text`` with that of the scripts that their servers run, as far as there is room. A ``warning`` tells what a
        preset names that is not there.
        """
        found = await asyncio.to_thread(self._for_project, root)
        room, untrusted = _SHOWN_BYTES, []
        for template in found.found:
            if not template.trusted and template.data is not None:
                untrusted.append(await asyncio.to_thread(_told, found, template, self._kernel.config))
                room -= len(template.data)
                room -= sum(len(code) for _, code in template.scripts)
                if room >= 0:
                    untrusted[-1]["text"] = _shown(template.data, template.scripts)
        config = self._kernel.config
        usable = await asyncio.to_thread(lambda: [_told(found, each, config) for each in found.usable.values()])
        return {"presets": usable, "untrusted": untrusted}

    @by_person
    async def trust_presets(self, client: Client, *, root: str, hashes: Sequence[str]) -> dict[str, Any]:
        """Trust presets of the project ``root`` by their ``hash``; the answer names those ``trusted`` now.

        What has changed since the hash was told, or is broken, is not trusted.
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


def _shown(data: bytes, scripts: Sequence[tuple[Path, bytes]]) -> str:
    files = (f"\n--- {path}\n{code.decode(errors='replace')}" for path, code in scripts)
    return "".join((data.decode(errors="replace"), *files))


def _told(found: ProjectPresets, template: PresetTemplate, config: Config) -> dict[str, Any]:
    row: dict[str, Any] = {"name": template.name, "source": str(template.file), "origin": template.origin}
    if template.hash is not None:
        row["hash"] = template.hash
    try:
        preset = found.read(template)
        if preset.signature:
            mission_tool.signature_of(preset)
        data = presetfile.content(template.file, links=True) if template.data is None else template.data
        misspelt = _misspelt(presetfile.decoded(data, template.file).front)
    except PyagentdError as error:
        return {**row, "error": str(error)}
    row |= {"description": preset.description[:_DESCRIPTION], "mode": preset.mode}
    warning = "; ".join([*_doubts(preset, config), *misspelt])
    return {**row, "warning": warning} if warning else row


def _misspelt(front: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys that mean nothing and look much like one that does."""
    for key in map(str, front):
        if (dashed := key.replace("_", "-")) not in _KEYS and (meant := nearest(dashed, _KEYS, cutoff=0.8)):
            yield f"`{key}` is no key; is `{meant}` meant?"


def _doubts(preset: Preset, config: Config) -> Iterator[str]:
    """Yield what a preset names and is not there: no error, since another machine may have it."""
    if unknown := [tool for tool in preset.tools if tool not in TOOLS]:
        yield f"there is no tool {', '.join(unknown)}"
    try:
        config.backend(preset.backend)
    except ConfigError as error:
        yield error.message


# What a session cost and how full its model's window is; what all of them cost together.

MOST_MESSAGES = 1000  # in one reply; earlier ones are counted in the sums
MOST_DAYS = 36_500
MOST_LINES = 200  # in one reply; the cheaper ones are one together


class Spending(Group):
    """Tokens and dollars."""

    async def usage(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return what a branch cost: its own, its agents, both together, and its last messages one by one.

        Tokens come in five buckets, prices in US dollars; a price that is not known of everything is nil, and then
        ``known_usd`` is the part that is and ``unpriced`` names the models. ``rollup`` is the sum over what
        still counts towards the model's context; ``context`` is what a ``context`` event tells.
        """
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
                "agents_total": total_spent(each.spent for each in below).to_wire(),
                "together": meter.together.to_wire(),
                "messages": list(self._messages(live))[-MOST_MESSAGES:],
            }

    async def usage_report(self, client: Client, *, by: By = "day", days: int = 30) -> dict[str, Any]:
        """Return what all sessions cost, by day, model, session or preset: ``{by, days, lines, rest, together…}``.

        ``days`` are local ones of the daemon's machine, today with them; 0 is always. A line has ``key`` (the day in
        ISO 8601, the name of the model or preset, the session's directory), of a session ``session_id``, ``title``
        and ``file``, and ``requests`` and what they cost as in ``usage``; days come with the newest first, the others
        with the dearest. ``rest`` is the sum of the lines that are too many, ``number`` of them, or nil;
        ``together`` that of all. ``indexing`` says that the index is still being built, ``problem`` why it cannot be.
        """
        if by not in get_args(By):
            raise BadRequest(f"Nothing is counted by {by!r}", hint=f"By {', '.join(get_args(By))}")
        if not 0 <= days <= MOST_DAYS:
            raise BadRequest(f"{days} is no number of days", hint=f"Up to {MOST_DAYS}; 0 is always")
        for live in self._kernel.runs:  # what they have so far
            self._index.branch_written(live.ref)
        complete = await self._index.fresh()
        since = days_ago(days, self._kernel.clock.now()) if days else 0
        lines = await asyncio.to_thread(report, self._kernel.state, facts_of(self._kernel), by, since_ms=since)
        shown, rest = lines[:MOST_LINES], lines[MOST_LINES:]
        return {
            "by": by,
            "days": days,
            "lines": await asyncio.to_thread(lambda: [self._line(line, by) for line in shown]),
            "rest": {**sum_of_lines(rest, "others").to_wire(), "number": len(rest)} if rest else None,
            "together": sum_of_lines(lines, "together").to_wire(),
            "indexing": not complete,
            "problem": self._index.problem or None,
        }

    def _line(self, line: UsageLine, by: By) -> dict[str, Any]:
        if by != "session":
            return line.to_wire()
        place = self._index.projection.directory(line.key)
        return {**line.to_wire(), "key": str(place), "file": _file(place)}

    def _messages(self, live: LiveBranch) -> Iterator[dict[str, Any]]:
        known = facts_of(self._kernel)
        for message in live.conversation.messages.values():
            if message.role == "assistant" and message_usage(message).total:
                yield {
                    "id": message.id,
                    "model": served_by(message.row).model,
                    "created_at": message.row.get("created_at"),
                    "steps": sum(1 for _ in steps_of(message)),
                    "hidden": message.is_hidden,
                    "compaction": _is_compaction(message),
                    **spent_on(message, known).to_wire(),
                }


def summary(meter: Meter) -> dict[str, Any]:
    """Return what ``show`` says of usage: the branch's own and, as far as they are known, its agents'."""
    return {"context": meter.to_wire(), "own": meter.own.to_wire(), "together": meter.together.to_wire()}


def _agent(below: AgentCost) -> dict[str, Any]:
    return {
        "id": below.ref.session_id,
        "branch": below.ref.key,
        "parent": below.parent,
        **below.described,
        **below.spent.to_wire(),
    }


def _is_compaction(message: Message) -> bool:
    return any(part.type == COMPACTION for part in message.parts)


def _file(session_dir: Path) -> str | None:
    """Return the conversation of a session's active branch; None when there is none."""
    try:
        return str(paths.session_file(paths.ref_of(session_dir).branch_dir))
    except NotASession:
        return None
