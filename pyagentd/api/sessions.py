"""Operations on sessions: create, find, list, rename, archive, branch, export and import them."""

import asyncio
import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast

from pyagentd.api.group import (
    INLINE_LIMIT,
    Client,
    Group,
    directory,
    expand_home,
    reply_of,
    typed_title,
)
from pyagentd.api.inspection import context_chart
from pyagentd.api.models import preset_notes
from pyagentd.errors import BadRequest, Busy, ConfigError, PyagentdError, StoreError
from pyagentd.events import Event
from pyagentd.features import emacs as emacstools
from pyagentd.features.emacs import EmacsClients
from pyagentd.features.overview import Overview, list_entries, spent_row
from pyagentd.features.schedules import Schedules
from pyagentd.features.tasks import Tasks
from pyagentd.features.usage import facts_of, priced_usage
from pyagentd.policy.action import under
from pyagentd.policy.presets import DEFAULT_PRESET, Preset, parse_preset
from pyagentd.runtime import run as offer
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.document_sync import settings_in_document, settings_of
from pyagentd.runtime.kernel import Kernel
from pyagentd.runtime.usage import Expense
from pyagentd.store import branching, metadata, paths, presetfile
from pyagentd.store import export as exchange
from pyagentd.store.atomic import write_bytes
from pyagentd.store.db.projection import spent_by_branch
from pyagentd.store.document.adopt import Adoption
from pyagentd.store.document.render import writable
from pyagentd.store.document.text import Settings
from pyagentd.store.metadata import BranchRow
from pyagentd.store.named_agents import named_dir
from pyagentd.store.paths import BranchPlaces, BranchRef, describe_branch
from pyagentd.store.sessions import move_to_trash
from pyagentd.tools.builtin import builtin_tools
from pyagentd.wire.connection import by_person
from pyagentd.words import quantity

_NOTHING = Expense()


class SessionCreated(BranchPlaces):
    """The created session."""

    title: str | None
    notes: list[str]  # keys and tools in its preset that are probably misspelt


class SessionTrust(TypedDict):
    """Whether a session is trusted, by the ``preset.md`` at the root of its tree."""

    foreign: bool  # the session waits for trust
    file: str
    sha256: str


class ListedRow(BranchPlaces):
    """A branch or agent with its own cost, without that of its agents."""

    agent: bool
    title: str | None
    archived_at: int | None  # epoch ms
    updated: str | None  # ISO 8601: when the conversation was last written
    current: bool  # the active branch of its session
    state: str
    tokens: int
    usd: float  # of the requests with a known price
    unpriced: bool  # some prices are unknown


class SessionRow(ListedRow):
    """A branch or agent in the list of all sessions."""

    parent: str | None  # of an agent: the branch it belongs to
    preset: str | None
    created: str | None  # ISO 8601


class SessionsReply(TypedDict):
    """Branches and agents, in the reply or, if there are many, in a file."""

    sessions: NotRequired[list[SessionRow]]
    path: NotRequired[str]  # of a JSON file with the same rows


class RunningRow(ListedRow):
    """A running branch or agent and its activity; values that do not apply are nil."""

    parent: NotRequired[str | None]
    preset: NotRequired[str | None]
    created: NotRequired[str | None]
    queued: int
    phase: str | None
    tools: Sequence[Any] | None
    started_at: int | None  # epoch ms
    message: str | None
    attempt: int | None
    max_attempts: int | None
    retry_at: int | None  # epoch ms


class RunningReply(TypedDict):
    """The branches and agents that run or wait for a human."""

    running: list[RunningRow]


What = Literal["session", "branch", "agent"]


class RenameReply(BranchPlaces):
    """A session under its new title."""

    title: str
    note: str | None  # for a named agent: its name is unchanged


class ArchiveReply(BranchPlaces):
    """A session after it was archived or unarchived."""

    archived_at: int | None  # epoch ms


class DuplicateReply(BranchPlaces):
    """The ids and paths of a copy."""

    note: str | None  # which parts of a named agent are not copied


class DeletionRow(TypedDict):
    """A candidate for deletion."""

    what: What
    words: str  # what is deleted: session “Tea” with 2 branches and 4 agents


class DeletionsReply(TypedDict):
    """The candidates for deletion, the smallest first."""

    deletions: list[DeletionRow]


class TrashReply(TypedDict):
    """The directories that were moved to the trash."""

    trashed: list[str]


_SHOWN = 200  # characters of a prompt in a reply


class PointRow(TypedDict):
    """A prompt in the saved document; positions as in Emacs, from 1."""

    number: int
    message_id: str | None
    start: int
    end: int
    text: str  # the beginning


class BranchPoints(TypedDict):
    """Prompts in the order of the document."""

    points: list[PointRow]


class BranchMade(BranchPlaces):
    """The ids and paths of a new branch."""

    parent: str  # the name of the branch it was made from
    position: int  # in the parent's document


class BranchesReply(TypedDict):
    """Branches, each after its parent."""

    branches: list[BranchRow]


_TEMPERATURES = (0.0, 2.0)


class ExportReply(TypedDict):
    """An exported conversation, in the reply or in a file."""

    text: NotRequired[str]
    path: NotRequired[str]
    notes: Sequence[str]  # what the format cannot express


class ImportReply(BranchPlaces):
    """The session created from a chat."""

    notes: list[str]  # what could not be imported


class Sessions(Group):
    """Sessions and branches: create, list, delete, export and import them."""

    async def create_session(
        self,
        client: Client,
        *,
        name: str,
        preset: str = DEFAULT_PRESET,
        titled: bool = False,
        root: str | None = None,
        session_dir: str | None = None,
        session_id: str | None = None,
        projects: Sequence[str] = (),
        activity_org_file: str | None = None,
    ) -> SessionCreated:
        """Create a session; with ``root`` (a project) it may read and write everything below it.

        If ``root`` is a branch's directory, the project is that of the branch. ``titled`` means that the user typed
        ``name`` as the title; if it is blank, the session gets a title after its first answer. For an activity, the
        client also gives the session's directory and id, the ``projects`` it may read, and the activity's document.
        """
        title = typed_title(name) if titled and name.strip() else ""
        place = expand_home(session_dir) if session_dir else None
        if place is not None and not place.is_absolute():
            raise BadRequest(
                f"{session_dir!r} is not an absolute path of a directory", hint="Say where it is to live"
            )
        workspace, parsed, text = await self._template(root, preset)
        readable = [directory(project) for project in projects]
        where = {"workspace_root": str(readable[0])} if readable and workspace is None else {}
        ref = await self._create_session(
            name,
            workspace,
            readable=[under(str(each)) for each in readable],
            facts={"agent": preset, "title": title, **where},
            preset_name=parsed.name,
            preset_text=text,
            session_dir=place,
            session_id=session_id,
            activity_org_file=activity_org_file,
        )
        notes = await asyncio.to_thread(preset_notes, ref)
        return {**describe_branch(ref), "title": title or None, "notes": notes}

    @by_person
    async def trust_session(self, client: Client, *, branch: str, sha256: str | None = None) -> SessionTrust:
        """Trust a session from another machine if its ``preset.md`` still has the hash ``sha256``.

        Without ``sha256`` nothing is trusted.
        """
        kernel, ref = self._kernel, paths.root_of(self._ref(branch))
        file = paths.preset_file(ref.branch_dir)
        data = await asyncio.to_thread(presetfile.content, file)
        kernel.presets.of_content(data, file, ref.branch_name)  # a broken one is not trusted
        found = hashlib.sha256(data).hexdigest()
        if sha256 not in (None, found):
            raise BadRequest(f"{file} has changed since it was shown", hint="Look at it again")
        if sha256 and kernel.origins.foreign(ref):
            kernel.origins.trust(ref, data)
        return {"foreign": kernel.origins.foreign(ref), "file": str(file), "sha256": found}

    async def resolve(self, client: Client, *, name: str) -> BranchPlaces:
        """Return the branch named by an id, a prefix of one, ID/BRANCH or a directory."""
        return describe_branch(await asyncio.to_thread(self._registry.resolve, name))

    async def sessions(self, client: Client, *, archived: bool = False, watch: bool = False) -> SessionsReply:
        """Return all branches and agents, agents after their branch; archived ones only with ``archived``.

        With ``watch`` the client receives changes as ``sessions`` events.
        """
        if watch:
            self._follow(client, "sessions")
        reply: SessionsReply = await self._rows_reply("sessions", await self.session_rows(archived=archived))
        return reply

    async def running(self, client: Client, *, watch: bool = False) -> RunningReply:
        """Return the branches and agents that run or wait for a human; ``watch`` as in ``sessions``."""
        if watch:
            self._follow(client, "sessions")
        return {"running": cast(list[RunningRow], self._kernel.feature(Overview).running())}

    async def unwatch(self, client: Client) -> None:
        """Stop sending the client changes of sessions, named agents and tasks.

        This undoes ``watch`` of ``sessions``, ``running``, ``agent_list`` and ``tasks``. Events of attached branches
        and questions to humans still arrive.
        """
        if (overview := self._kernel.find(Overview)) is not None:
            overview.watchers.discard(client)
        self._kernel.overseers.discard(client)

    async def session_rows(self, *, archived: bool) -> list[SessionRow]:
        """Return all branches and agents with their state and cost."""

        def found() -> list[dict[str, Any]]:
            facts, spent = {} if self._indexer is None else self._indexer.facts(), self._spent()
            return [
                each | spent_row(spent.get(each["branch"], _NOTHING))
                for each in list_entries(self._registry.scan(), facts, archived=archived)
            ]

        rows = await asyncio.to_thread(found)
        for row in rows:
            live = self._kernel.opened(row["branch"])
            row["state"] = self._kernel.state_of(row["branch"])
            if live and live.meter is not None:
                row |= spent_row(live.meter.own)
        return cast(list[SessionRow], rows)

    def _spent(self) -> dict[str, Expense]:
        """Return the cost of each branch according to the database; empty if it cannot be read."""
        if self._indexer is None:
            return {}
        known = cache(facts_of(self._kernel))
        try:
            found = spent_by_branch(self._kernel.state)
        except StoreError:  # show the list without costs
            return {}
        place = self._indexer.projection.place
        return {
            place(key): sum((priced_usage(each, known) for each in sums), Expense()) for key, sums in found.items()
        }

    # Operations that rename, archive, duplicate and delete a session, and read its metadata.
    #
    # Deleting moves to the system's trash. Title and archive state belong to the whole session, so they are recorded
    # in each of its branches; an agent has its own.

    async def rename(self, client: Client, *, branch: str, title: str) -> RenameReply:
        """Change the title of a session or agent; ids and directories never change."""
        wanted, ref = typed_title(title), self._ref(branch)
        await self._note(ref, title=wanted)
        self._touch(*_timelines(ref))
        named = _agent_name(self._kernel, ref)
        note = f"This is its title; {named} is still its name: `pyagentd agent rename {named} NAME` gives it another"
        return {**describe_branch(ref), "title": wanted, "note": note if named else None}

    async def archive(self, client: Client, *, branch: str, undo: bool = False) -> ArchiveReply:
        """Hide a session or agent from lists, or with ``undo`` show it again; its files stay."""
        ref = self._ref(branch)
        archived_at = None if undo else self._kernel.clock.now_ms()
        await self._note(ref, archived_at=archived_at)
        return {**describe_branch(ref), "archived_at": archived_at}

    async def duplicate(self, client: Client, *, branch: str, name: str | None = None) -> DuplicateReply:
        """Copy a session with all its branches, agents and files; the copy has a new id.

        Of a named agent, only the conversation is copied.
        """
        ref, title = self._ref(branch), typed_title(name) if name and name.strip() else None
        if ref.is_agent:
            raise BadRequest(f"{ref.session_id} is an agent", hint="Duplicate the session it belongs to")
        if self._kernel.origins.foreign(ref):  # a copy would count as the user's own
            raise BadRequest(f"{ref.session_id} is not from this machine", hint="Read its preset.md, then trust it")
        for live in self._kernel.inside(ref.session_dir):
            if live.run is not None or live.starting.locked():
                raise Busy(f"{live.ref.name} is answering", hint="Wait for the answer, or abort it first")
            live.recorder.flush()
            await live.document.flush()
        made = await asyncio.to_thread(
            branching.duplicate_session,
            ref,
            root=self._kernel.config.sessions_dir,
            name=title,
            clock=self._kernel.clock,
        )
        self._registry.add(made)
        self._tell_written(*_all_of(made))
        named = _agent_name(self._kernel, ref)
        note = f"The copy is a session without a name: prompt, permissions and docs of {named} are not copied"
        return {**describe_branch(made), "note": note if named else None}

    async def deletions(self, client: Client, *, branch: str, what: What | None = None) -> DeletionsReply:
        """Describe what ``delete`` would move to the trash: ``what``, or without it each candidate."""
        ref = self._ref(branch)
        chosen = _what(ref, what)
        if chosen == "agent":
            return {"deletions": [{"what": "agent", "words": f"agent {ref.session_id}"}]}
        branches = await asyncio.to_thread(metadata.branches, ref.session_dir)
        title = f"“{ref.session_id}”"
        with contextlib.suppress(PyagentdError):  # a session that cannot be opened can still be deleted
            async with self._kernel.using(ref) as live:
                title = f"“{live.conversation.session.get('title') or ref.session_id}”"
        rows: list[DeletionRow] = []
        if chosen == "branch":
            rows.append({"what": "branch", "words": f"branch {ref.branch_name} of {title}{_with_agents(ref)}"})
        if chosen == "session" or what is None:
            several = [quantity(len(branches), "branch", "branches")] if len(branches) > 1 else []
            rows.append({"what": "session", "words": f"session {title}{_with_agents(*branches, beside=several)}"})
        return {"deletions": rows}

    async def delete(self, client: Client, *, branch: str, what: What | None = None) -> TrashReply:
        """Move a session, a branch or an agent to the trash.

        Without ``what`` it deletes what ``branch`` names: the agent, the branch, or if that is the only branch, the
        session. A named agent must be destroyed instead (``agent-destroy``), which warns of losses and saves its
        conversation.
        """
        ref = self._ref(branch)
        chosen = _what(ref, what)
        if chosen == "session" and (named := _agent_name(self._kernel, ref)):
            raise BadRequest(
                f"{named} is a named agent; deleting would leave its record and what it does behind",
                hint=f"Destroy it: `pyagentd agent destroy {named}`, in Emacs d in M-x pyagentd-list, named",
            )
        directory = ref.session_dir if chosen == "session" else ref.branch_dir
        heir = _heir(ref) if chosen == "branch" else None
        gone = _all_of(ref) if chosen == "session" else list(metadata.with_agents(ref))
        async with self._kernel.removing(directory):
            if (tasks := self._kernel.find(Tasks)) is not None:
                await tasks.end_within(directory)
            await asyncio.to_thread(move_to_trash, directory)
        if (schedules := self._kernel.find(Schedules)) is not None:
            await schedules.forget(directory)
        if heir is not None:
            branching.point_current(ref.session_dir, heir)
        self._tell_written(*gone)
        self._registry.forget(directory)
        return {"trashed": [str(directory)]}

    async def session_metadata(self, client: Client, *, directory: str) -> dict[str, Any] | None:
        """Return a branch's or agent's ``scope-plan.yml`` as data; nil when it is missing or cannot be parsed.

        Keys are ``:version``, ``:session-id``, ``:created``, ``:updated`` (ISO 8601), ``:preset``, for an agent
        ``:type`` and ``:parent-session-id``, and any that other programs wrote.
        """
        return cast(dict[str, Any], await asyncio.to_thread(metadata.read_session_metadata, _place(directory)))

    async def preset_metadata(self, client: Client, *, directory: str) -> dict[str, Any] | None:
        """Return the front matter of ``preset.md`` of a branch or agent; nil when it is missing or cannot be parsed.

        Keys are those of the file (``:backend``, ``:model``, ``:tools`` …); ``:tools`` is a list of names.
        """
        return await asyncio.to_thread(metadata.read_preset_metadata, _place(directory))

    async def branch_metadata(self, client: Client, *, directory: str) -> dict[str, Any] | None:
        """Return ``branch-metadata.yml`` as data; nil when it is missing, as in "main", or cannot be parsed.

        Keys are ``:parent-branch``, ``:created`` (ISO 8601), optionally ``:branch-point-position`` (an Emacs
        position), and any that other programs wrote.
        """
        return await asyncio.to_thread(metadata.read_branch_metadata, _place(directory))

    async def _note(self, ref: BranchRef, **facts: Any) -> None:
        """Record facts of a session in each of its branches and notify their clients."""
        for sibling in _timelines(ref):
            async with self._kernel.using(sibling) as live:
                live.note_session(**facts)
                session = live.conversation.session
                details = {"title": session.get("title") or "", "archived_at": session.get("archived_at")}
                live.publish(Event("session", live.key, 0, (details,)))
            self._tell_written(sibling)

    async def branch_points(self, client: Client, *, branch: str) -> BranchPoints:
        """Return the user's prompts in the saved document, in order."""
        ref = self._ref(branch)
        async with self._kernel.using(ref) as live:
            with contextlib.suppress(StoreError):  # the saved document can still be read
                live.recorder.flush()
                await live.document.flush()
            found = await asyncio.to_thread(branching.read_outline, ref)
        return {
            "points": [
                reply_of(PointRow, point, start=point.start + 1, end=point.end + 1, text=point.text[:_SHOWN])
                for point in found.points
            ]
        }

    async def branch(
        self,
        client: Client,
        *,
        branch: str,
        at: str | None = None,
        position: int | None = None,
        exclude: bool = False,
        name: str = branching.DEFAULT_NAME,
    ) -> BranchMade:
        """Create a branch after a prompt, by default the last one, or with ``exclude`` before it.

        ``at`` names the prompt by its message id, ``position`` by an Emacs position inside it.
        """
        parent = self._ref(branch)
        async with self._kernel.using(parent) as live:
            missing_run = await _sync_document(live)
            made = await asyncio.to_thread(
                branching.create_branch,
                parent,
                message_id=at,
                offset=None if position is None else position - 1,
                include=not exclude,
                name=name,
                missing_run=missing_run,
                clock=self._kernel.clock,
            )
        self._touch(parent, made)
        self._registry.add(made)
        self._tell_written(*metadata.with_agents(made))
        origin = metadata.read_branch_metadata(made.branch_dir) or {}
        return {**describe_branch(made), "parent": parent.branch_name, "position": origin["branch_point_position"]}

    async def branches(self, client: Client, *, branch: str) -> BranchesReply:
        """Return the branches of a session as a tree: each after its parent, one level deeper."""
        return {"branches": await asyncio.to_thread(metadata.tree, self._ref(branch).session_dir)}

    async def branch_diff(self, client: Client, *, branch: str, other: str) -> str:
        """Return a diff between the saved conversations of two branches; a sentence if they are equal."""
        return await asyncio.to_thread(branching.difference, self._ref(other), self._ref(branch))

    async def switch(self, client: Client, *, branch: str) -> BranchPlaces:
        """Make a branch the active one of its session."""
        ref = self._ref(branch)
        branching.switch(ref)
        self._touch(ref)
        return describe_branch(ref)

    async def export(
        self, client: Client, *, branch: str, format: str = "md", file: str | None = None
    ) -> ExportReply:
        """Export a branch as ``md``, ``json``, ``jsonl``, ``html`` or ``acp``.

        With ``file`` it is written there, replacing an existing file; otherwise the reply has the text, or if it is
        large the path of a file with it.
        """
        if format not in exchange.export.FORMATS:
            raise BadRequest(f"{format!r} is not a format", hint=", ".join(exchange.export.FORMATS))
        place = None if file is None else self._place(file)
        ref = self._ref(branch)
        async with self._kernel.using(ref) as live:
            live.recorder.flush()
            await live.document.flush()
            filled = await context_chart(live) if format == "html" else None
            source = replace(await asyncio.to_thread(exchange.export.read_source, ref), filled=filled)
            made = await asyncio.to_thread(exchange.export.export_text, source, format, self._settings_of(ref))
        data = made.text.encode("utf-8", "surrogateescape")  # keeps bytes that are not UTF-8
        if place is not None:
            await asyncio.to_thread(write_bytes, place, data)
            return {"path": str(place), "notes": made.notes}
        if 2 * len(data) < INLINE_LIMIT and writable(made.text) == made.text:  # quoting may double it
            return {"text": made.text, "notes": made.notes}
        return {"path": await self._spill(f"export.{format}", data), "notes": made.notes}

    async def import_(
        self,
        client: Client,
        *,
        file: str,
        name: str | None = None,
        preset: str = DEFAULT_PRESET,
        root: str | None = None,
    ) -> ImportReply:
        """Import a chat of gptel or another program as a session; ``name`` also becomes its title."""
        title = typed_title(name) if name and name.strip() else ""
        path = expand_home(file)
        chat = await asyncio.to_thread(exchange.importing.read_chat, path)
        workspace, template, text = await self._template(root, preset)
        settings, notes = self._usable(chat.document.settings, template)
        text = exchange.importing.preset_text(text, template.name, settings, chat.system)
        made_from = presetfile.parse(text, Path(f"{template.name}.md"))
        configured = parse_preset(template.name, made_from.front, made_from.body, made_from.path.name)
        settings = replace(settings_in_document(settings_of(configured)), other=settings.other)
        emacs = self._kernel.find(EmacsClients)
        known = {*builtin_tools(), *offer.CORE, offer.NAME, *(() if emacs is None else emacs.names())}
        unknown = [name for name in configured.tools if name not in known]
        if unknown := [name for name in unknown if name.partition(":")[0] != emacstools.ALL]:
            notes.append(f"Not known here, and not offered to the model: {', '.join(unknown)}")
        chat = replace(chat, document=replace(chat.document, settings=settings))
        now_ms = self._kernel.clock.now_ms()
        filled: list[Adoption] = []

        def fill(session_id: str, branch_dir: Path) -> None:
            filled.append(exchange.importing.adopt_chat(chat, session_id=session_id, now_ms=now_ms))
            exchange.importing.fill(branch_dir, filled[0])

        ref = await self._create_session(
            name or path.stem,
            workspace,
            facts={"agent": template.name, "title": title},
            preset_name=template.name,
            preset_text=text,
            fill=fill,
        )
        (made,) = filled
        return {**describe_branch(ref), "notes": [*chat.notes, *notes, *made.notes]}

    def _place(self, file: str) -> Path:
        place = expand_home(file)
        if not place.is_absolute() or place.is_dir():
            raise BadRequest(f"{file} is not an absolute path of a file", hint="Name the file to write")
        if place.resolve().is_relative_to(self._kernel.config.sessions_dir.resolve()):
            raise BadRequest(f"{file} is among the sessions", hint="Export to another place")
        return place

    def _settings_of(self, ref: BranchRef) -> Settings | None:
        try:
            return settings_in_document(settings_of(self._kernel.presets.of_branch(ref)))
        except PyagentdError:  # a conversation with a broken preset can still be exported
            return None

    def _usable(self, settings: Settings, template: Preset) -> tuple[Settings, list[str]]:
        """Return the chat's settings that can be used here, and remarks on the others."""
        notes = []
        if settings.backend is not None:
            try:
                self._kernel.config.backend(settings.backend)
            except ConfigError:
                notes.append(
                    f"The chat was with {settings.model or 'a model'} of {settings.backend!r}, which is not "
                    f"configured; the session goes on with {template.model or template.backend}"
                )
                settings = replace(settings, backend=None, model=None)
        low, high = _TEMPERATURES
        if settings.temperature is not None and not low <= settings.temperature <= high:
            notes.append(
                f"The temperature {settings.temperature} is not between {low:g} and {high:g} and was left out"
            )
            settings = replace(settings, temperature=None)
        return settings, notes


def _agent_name(kernel: Kernel, ref: BranchRef) -> str:
    """Return the name of the named agent that ``ref`` belongs to, or ""."""
    place = named_dir(kernel.config.agents_dir.resolve(), ref)
    return place.name if place is not None else ""


def _timelines(ref: BranchRef) -> list[BranchRef]:
    """Return all branches of a session; for an agent, only itself."""
    return [ref] if ref.is_agent else metadata.branches(ref.session_dir)


def _all_of(ref: BranchRef) -> list[BranchRef]:
    return [each for branch in _timelines(ref) for each in metadata.with_agents(branch)]


def _what(ref: BranchRef, wanted: What | None) -> What:
    """Return what to delete.

    Raises:
        BadRequest: ``ref`` is not what ``wanted`` names, or is the only branch of its session.
    """
    if ref.is_agent:
        if wanted not in (None, "agent"):
            raise BadRequest(f"{ref.session_id} is an agent, no {wanted}")
        return "agent"
    if wanted == "agent":
        raise BadRequest(f"{ref.name} is not an agent", hint="Say session or branch")
    is_only = len(metadata.branches(ref.session_dir)) < 2
    if wanted == "branch" and is_only:
        raise BadRequest(f"{ref.name} is the only branch of its session", hint="Delete the session")
    return "session" if wanted == "session" or is_only else "branch"


def _with_agents(*branches: BranchRef, beside: Sequence[str] = ()) -> str:
    agents = sum(len(metadata.agents(ref.branch_dir)) for ref in branches)
    parts = [*beside, *([quantity(agents, "agent")] if agents else [])]
    return f" with {' and '.join(parts)}" if parts else ""


def _heir(ref: BranchRef) -> str | None:
    """Return the branch to activate after ``ref`` is deleted; None if ``ref`` is not the active one."""
    if metadata.active(ref.session_dir) != ref.branch_name:
        return None
    others = [other.branch_name for other in metadata.branches(ref.session_dir) if other.key != ref.key]
    wanted = (*metadata.lineage(ref), paths.MAIN_BRANCH, others[0])
    return next(name for name in wanted if name in others)


def _place(directory: str) -> Path:
    return expand_home(directory).absolute()


async def _sync_document(live: LiveBranch) -> str | None:
    """Write recorded text into the document; return the run whose text is still missing, if any.

    Raises:
        StoreError: The file could not be written.
    """
    live.recorder.flush()
    await live.document.flush()
    await live.document.settle()
    run = live.conversation.last_run
    return None if run is None or live.document.complete else str(run.data["id"])
