"""Operations on history: rewind, edit and ask again, variants, forks."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast, get_args

from pyagentd.api.group import Client, Group, send_options
from pyagentd.errors import BadRequest, Busy
from pyagentd.features import history as looking
from pyagentd.features.history import Changed, History, chosen_prompt, fork_of, forks_of, variants_of
from pyagentd.features.snapshots import Conflicts, Snapshots
from pyagentd.runtime.queue import Receipt
from pyagentd.store import paths
from pyagentd.store.paths import BranchRef, describe_branch

_SHOWN = 200  # characters of a variant


class Histories(Group):
    """One branch's turns."""

    async def rewind(self, client: Client, *, branch: str, message: str, files: bool = False) -> dict[str, Any]:
        """Hide everything behind the user's message ``message``; with ``files`` restore what the turns changed."""
        async with self._kernel.using(self._ref(branch)) as live:
            return _told(await self._history.rewind(live, message, files=files))

    async def unrewind(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Reverse the last rewind."""
        async with self._kernel.using(self._ref(branch)) as live:
            return _told(await self._history.unrewind(live))

    async def edit(
        self,
        client: Client,
        *,
        branch: str,
        message: str,
        text: str,
        env: Mapping[str, str] | Sequence[Any] = (),
        key: str | None = None,
        allow: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Take the user's message ``message`` and all after it back, and run ``text`` in its place."""
        options = send_options(client, env, key, allow)
        async with self._kernel.using(self._ref(branch)) as live:
            changed, submitted = await self._history.edit(live, message, text, options)
        return _told(changed) | _told_run(submitted)

    async def regenerate(
        self,
        client: Client,
        *,
        branch: str,
        message: str | None = None,
        env: Mapping[str, str] | Sequence[Any] = (),
        key: str | None = None,
        allow: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Run the last prompt again, or that of ``message``; the answer so far becomes a variant of the new one."""
        options = send_options(client, env, key, allow)
        async with self._kernel.using(self._ref(branch)) as live:
            changed, submitted = await self._history.regenerate(live, message, options)
        return _told(changed) | _told_run(submitted)

    async def variants(self, client: Client, *, branch: str, message: str | None = None) -> dict[str, Any]:
        """Return the variants of ``message``, oldest first; without one those of all messages that have some."""
        async with self._kernel.using(self._ref(branch)) as live:
            conversation = live.conversation
            asked = [id for id, _, _ in looking.shown_variants(conversation)] if message is None else [message]
            return {"variants": [{"message": id, "of": _told_variants(conversation, id)} for id in asked]}

    async def choose_variant(self, client: Client, *, branch: str, message: str, n: int) -> dict[str, Any]:
        """Show variant ``n`` (from 1) of ``message``, with the turns that came after it."""
        async with self._kernel.using(self._ref(branch)) as live:
            return _told(await self._history.choose(live, message, n))

    async def prompt_text(self, client: Client, *, branch: str, message: str) -> dict[str, Any]:
        """Return what the user's message ``message`` says, as far as the log knows, and what it said at first."""
        async with self._kernel.using(self._ref(branch)) as live:
            prompt = chosen_prompt(live.conversation, message)
            return {"text": prompt.text, "recorded": prompt.recorded_text}

    async def history(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return which regions of the document are hidden turns, which messages have variants, and the prompts."""
        async with self._kernel.using(self._ref(branch)) as live:
            conversation = live.conversation.snapshot()
            found = await asyncio.to_thread(looking.history, live.file, conversation)
            return {**found, "prompts": looking.prompts(conversation)}

    async def fork(
        self, client: Client, *, branch: str, message: str | None = None, title: str | None = None
    ) -> dict[str, Any]:
        """Make a session of the conversation up to ``message``, by default all of it."""
        async with self._kernel.using(self._ref(branch)) as live:
            made = await fork_of(self._kernel, live, message, title=title)
        self._registry.add(made)
        self._tell_written(made)
        return {**describe_branch(made), "dir": str(made.session_dir)}

    async def forks(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return the sessions that were forked from a session, oldest first."""
        ref = self._ref(branch)
        refs = [entry.ref for entry in self._registry.scan()]
        return {"forks": await asyncio.to_thread(forks_of, ref, refs)}

    @property
    def _history(self) -> History:
        return History(self._kernel)


def _told(changed: Changed) -> dict[str, Any]:
    files = {} if changed.files is None else {"files": dict(changed.files)}
    return {"hidden": list(changed.hidden), "shown": list(changed.shown), **files}


def _told_run(submitted: Receipt) -> dict[str, Any]:
    return {"run": submitted.run_id, "message": submitted.message_id, "seq": submitted.seq}


def _told_variants(conversation: Any, message_id: str) -> list[dict[str, Any]]:
    return [
        {
            "n": number,
            "message": variant.first.id,
            "current": variant.group is None,
            "turns": len(variant.messages),
            "text": variant.first.text[:_SHOWN],
        }
        for number, variant in enumerate(variants_of(conversation, message_id), 1)
    ]


# Operations on what agents did to files: what changed since a turn, and putting it back.

_SNAPSHOTS_SHOWN = 400_000  # characters of all differences in one answer


class SnapshotOperations(Group):
    """Files before and after."""

    async def changes(
        self, client: Client, *, branch: str, message: str | None = None, paths: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Return what restoring files to before a message of the user's would do.

        ``message`` None means all of the session, ``last`` the last message. The answer is ``{files: ({path, change,
        reason, diff}…)}``. ``change`` is restore, create, delete, conflict (it was changed since by somebody else:
        kept unless said otherwise) or unkept (there is no old version). A ``diff`` leads from what is there now to
        what would be; where there is no room for it any more it is None.
        """
        ref = self._ref(branch)
        found = await self._kernel.feature(Snapshots).preview(ref, await self._message(ref, message), paths)
        room = _SNAPSHOTS_SHOWN
        for row in found:
            room -= len(row["diff"])
            if room < 0:
                row["diff"] = None
        return {"files": found}

    async def restore(
        self,
        client: Client,
        *,
        branch: str,
        message: str | None = None,
        paths: Sequence[str] | None = None,
        conflicts: str = "keep",
    ) -> dict[str, Any]:
        """Put files back as they were before a message of the user's.

        ``paths`` are those of files and directories, None all; ``conflicts`` says what becomes of files that somebody
        else changed since: keep, copy (the old version is put beside) or overwrite. The answer is ``{id, restored,
        kept: ({path, reason}…), copies}``; ``undo-restore`` takes the ``id``.
        """
        if conflicts not in get_args(Conflicts):
            raise BadRequest(f"conflicts is {conflicts!r}", hint=f"Known: {', '.join(get_args(Conflicts))}")
        ref = self._ref(branch)
        self._require_quiet(ref)
        return await self._kernel.feature(Snapshots).restore(
            ref, await self._message(ref, message), paths, cast(Conflicts, conflicts)
        )

    async def undo_restore(self, client: Client, *, branch: str, id: str) -> dict[str, Any]:
        """Take a restoring back; the answer is as of ``restore``."""
        ref = self._ref(branch)
        self._require_quiet(ref)
        return await self._kernel.feature(Snapshots).undo(ref, id)

    async def prune_snapshots(self, client: Client) -> dict[str, Any]:
        """Forget old snapshots now; the answer counts what went and what is left."""
        return asdict(await self._kernel.feature(Snapshots).upkeep.prune())

    async def _message(self, ref: BranchRef, message: str | None) -> str | None:
        """Return the id that ``message`` means: itself, or of "last" the last message of the user's."""
        return await self._kernel.feature(Snapshots).last_turn(ref) if message == "last" else message

    def _require_quiet(self, ref: BranchRef) -> None:
        """Raise ``Busy`` while an agent of the session may change files."""
        for live in self._kernel.inside(paths.root_of(ref).branch_dir):
            if live.run is not None:
                raise Busy(f"{live.ref.name} is answering", hint="Wait for the answer, or abort it first")
