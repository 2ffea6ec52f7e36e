"""Operations on sessions as a whole: making, finding and listing them, and what they are made from."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from pyagentd.agent.context.metering import facts_of
from pyagentd.agent.context.report import priced
from pyagentd.agent.context.usage import Spent, total
from pyagentd.agent.overview import listed_row, spent_row
from pyagentd.errors import BadRequest, StoreError
from pyagentd.llm.prompts import one_line
from pyagentd.policy.patterns import under
from pyagentd.policy.presets import DEFAULT_PRESET
from pyagentd.policy.profiles import resolved
from pyagentd.service.group import TITLE_LENGTH, Client, Group, described, directory, expanded, workplace
from pyagentd.store import paths, presetfile, sessions
from pyagentd.store.atomic import write_bytes
from pyagentd.store.db.listing import listed
from pyagentd.store.db.requests import spent_by_branch
from pyagentd.wire.sexp import encode

INLINE_SESSIONS = 500  # more go by file (DESIGN §5 Sizes)

_NOTHING = Spent()


class Sessions(Group):
    """All sessions."""

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
    ) -> dict[str, Any]:
        """Create a session; with ``root`` (a project) it may read and write everything below it.

        ``root`` may be a branch's directory, too: then it is where that one works. ``titled`` means that somebody
        typed ``name``, which is the title then. Activities give its directory and id, the directories of ``projects``
        that it may read, and their document.
        """
        workspace = workplace(root) if root else None
        of_project = await asyncio.to_thread(self._host.presets.for_project, workspace)
        parsed, text = of_project.template(preset)
        inside = [] if workspace is None else [under(str(workspace))]
        readable = [under(str(directory(project))) for project in projects]
        ref = sessions.create_session(
            self._host.config.sessions_dir,
            name,
            preset_name=parsed.name,
            preset_text=text,
            paths_read=[*inside, *readable] or None,
            paths_write=inside or None,
            clock=self._host.clock,
            session_dir=expanded(session_dir) if session_dir else None,
            session_id=session_id,
            activity_org_file=activity_org_file,
        )
        self._registry.add(ref)
        self._host.origins.made(ref)
        async with self._host.using(ref) as branch:
            branch.record_session(workspace_root=workspace or _first(projects) or Path.home(), agent=preset)
            if titled and (title := one_line(name, TITLE_LENGTH)):
                branch.note_session(title=title)
            title = str(branch.conversation.session.get("title") or "")
        return described(ref) | {"title": title or None}

    async def trust_session(self, client: Client, *, branch: str, sha256: str | None = None) -> dict[str, Any]:
        """Trust a session that is not from this machine while its ``preset.md`` has the hash ``sha256``.

        The answer is ``{foreign, file, sha256, profile, paths, shell_commands, mcp}``: whether it waits for trust,
        and what ``file``, the preset.md at the root of its tree, says. Without ``sha256`` nothing is trusted.
        """
        host, ref = self._host, paths.root_of(self._ref(branch))
        file = paths.preset_file(ref.branch_dir)
        data = await asyncio.to_thread(presetfile.content, file)
        preset, found = host.presets.of_content(data, file, ref.branch_name), hashlib.sha256(data).hexdigest()
        if sha256 not in (None, found):
            raise BadRequest(f"{file} has changed since it was shown", mend="Look at it again")
        if sha256 and host.origins.foreign(ref):
            host.origins.trust(ref, data)
        profile = resolved(preset.profile)
        return {
            "foreign": host.origins.foreign(ref),
            "file": str(file),
            "sha256": found,
            "profile": profile.name if profile else None,
            "paths": asdict(preset.paths),
            "shell_commands": asdict(preset.shell),
            "mcp": [" ".join((each.name, *(each.command or (each.url,)))) for each in preset.mcp.own]
            if preset.mcp
            else [],
        }

    async def resolve(self, client: Client, *, name: str) -> dict[str, Any]:
        """Return the branch that an id, a prefix, ID/BRANCH or a directory means."""
        return described(await asyncio.to_thread(self._registry.resolve, name))

    async def sessions(
        self, client: Client, *, archived: bool = False, form: str = "sexp", watch: bool = False
    ) -> dict[str, Any]:
        """Return every branch and agent, agents after the branch they belong to; archived ones only if asked for.

        The answer is ``{sessions: (S…)}`` or, when that is too large for a frame, ``{path: FILE}`` with the same
        in FILE, as an s-expression like those on the wire or, with ``form`` "json", as JSON. S has the names and
        places of a branch (``session_id``, ``branch``, ``file``…), ``agent``, ``parent`` (of an agent: the branch
        it belongs to), ``title``, ``archived_at`` (epoch ms), ``preset``, ``created``, ``updated`` (ISO 8601; when
        the conversation was last written), ``current`` (the active branch of its session), ``state``, and what it
        cost without the agents below it: ``tokens``, ``usd`` as far as prices are known, ``unpriced`` where they are
        not. With ``watch`` the client is told what changes, as ``sessions`` events.
        """
        if watch:
            self._host.overview.watchers.add(client)
        if form not in ("sexp", "json"):
            raise BadRequest(f"{form!r} is no form", mend="sexp or json")
        found = await asyncio.to_thread(self._found, archived)
        for row in found:
            live = self._host.opened(row["branch"])
            row["state"] = self._host.state_of(row["branch"])
            if live and live.meter is not None:
                row |= spent_row(live.meter.own)
        if len(found) <= INLINE_SESSIONS:
            return {"sessions": found}
        path = self._host.config.runtime_dir / f"sessions-{'all' if archived else 'unarchived'}.{form}"
        await asyncio.to_thread(_write, path, found, form)
        return {"path": str(path)}

    async def running(self, client: Client, *, watch: bool = False) -> dict[str, Any]:
        """Return the branches and agents that answer now, or wait for a human to: ``{running: (S…)}``.

        S is as ``sessions`` has it, with ``queued`` and of the run ``started_at`` (epoch ms), ``phase``, ``tools``
        and the others of a ``status`` event, nil where there is none. ``watch`` is that of ``sessions``.
        """
        if watch:
            self._host.overview.watchers.add(client)
        return {"running": self._host.overview.running()}

    async def unwatch(self, client: Client) -> dict[str, Any]:
        """Tell the client nothing more of what changes in all sessions, named agents and tasks.

        That is what ``watch`` of ``sessions``, ``running``, ``agent_list`` and ``tasks`` asked for. What it is
        attached to, and the questions to humans, are told as before.
        """
        self._host.overview.watchers.discard(client)
        self._host.overseers.discard(client)
        return {}

    def _found(self, archived: bool) -> list[dict[str, Any]]:
        facts = {} if self._indexer is None else self._indexer.facts()
        spent = self._spent()
        return [
            listed_row(each) | spent_row(spent.get(each.ref.key, _NOTHING))
            for each in listed(self._registry.scan(), facts, archived=archived)
        ]

    def _spent(self) -> dict[str, Spent]:
        """Return what each branch cost, as far as the tables know."""
        if self._indexer is None:
            return {}
        known = cache(facts_of(self._host))
        try:
            found = spent_by_branch(self._host.state)
        except StoreError:  # the list is worth more than its last column
            return {}
        directory = self._indexer.projection.directory
        return {str(directory(key)): total(priced(each, known) for each in sums) for key, sums in found.items()}


def _first(projects: Sequence[str]) -> Path | None:
    return directory(projects[0]) if projects else None


def _write(path: Path, found: list[dict[str, Any]], form: str) -> None:
    if form == "json":  # one by one: a single call would hold up every other thread
        data = f'{{"sessions": [{", ".join(map(json.dumps, found))}]}}'.encode()
    else:
        data = encode({"sessions": found})
    write_bytes(path, data, fsync=False)
