"""Export of conversations and import of gptel's."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyagentd.agent.branches.override import printed, settings_of
from pyagentd.agent.emacs import emacstools
from pyagentd.agent.running import offer
from pyagentd.clock import epoch_ms
from pyagentd.errors import BadRequest, ConfigError, PyagentdError
from pyagentd.policy.patterns import under
from pyagentd.policy.presets import DEFAULT_PRESET, Preset, parse_preset
from pyagentd.service.group import INLINE_LIMIT, Client, Group, described, expanded, workplace
from pyagentd.store import presetfile, sessions
from pyagentd.store.atomic import write_bytes
from pyagentd.store.document.adopt import Adopted
from pyagentd.store.document.render import writable
from pyagentd.store.document.text import Settings
from pyagentd.store.export import importing
from pyagentd.store.export.export import FORMATS, Exported, exported, read_source
from pyagentd.store.paths import BranchRef
from pyagentd.tools.builtin import builtin_tools

_TEMPERATURES = (0.0, 2.0)


class Exchange(Group):
    """Conversations as files."""

    async def export(
        self, client: Client, *, branch: str, format: str = "md", file: str | None = None
    ) -> dict[str, Any]:
        """Export a branch as ``md``, ``json``, ``jsonl`` or ``html``: to ``file``, else as text or a file of ours.

        An existing ``file`` is replaced.
        """
        if format not in FORMATS:
            raise BadRequest(f"{format!r} is no format", mend=", ".join(FORMATS))
        place = None if file is None else self._place(file)
        ref = self._ref(branch)
        async with self._host.using(ref) as live:
            live.recorder.flush()
            await live.keeper.flush()
            made = await asyncio.to_thread(_exported, ref, format, self._settings_of(ref))
        data = made.text.encode("utf-8", "surrogateescape")  # bytes that are no text go out as they came
        if (
            place is None and 2 * len(data) < INLINE_LIMIT and writable(made.text) == made.text
        ):  # quoting may double it
            return {"text": made.text, "notes": made.notes}
        path = place or self._host.config.runtime_dir / f"export-{ref.session_id}-{ref.branch_name}.{format}"
        await asyncio.to_thread(write_bytes, path, data, fsync=place is not None)
        return {"path": str(path), "notes": made.notes}

    async def import_(
        self,
        client: Client,
        *,
        file: str,
        name: str | None = None,
        preset: str = DEFAULT_PRESET,
        root: str | None = None,
    ) -> dict[str, Any]:
        """Make a session of a saved gptel chat; ``notes`` says what could not be taken over."""
        path = expanded(file)
        chat = await asyncio.to_thread(importing.read_chat, path)
        workspace = workplace(root) if root else None
        of_project = await asyncio.to_thread(self._host.presets.for_project, workspace)
        template, text = of_project.template(preset)
        settings, notes = self._usable(chat.document.settings, template)
        text = importing.preset_text(text, template.name, settings, chat.system)
        configured = _parsed(text, template.name)
        settings = replace(printed(settings_of(configured)), other=settings.other)
        notes += _unknown_tools(configured, self._host.emacs.names())
        inside = None if workspace is None else [under(str(workspace))]
        chat = replace(chat, document=replace(chat.document, settings=settings))
        now_ms = epoch_ms(self._host.clock.now())
        filled: list[Adopted] = []
        ref = await asyncio.to_thread(
            sessions.create_session,
            self._host.config.sessions_dir,
            name or path.stem,
            preset_name=template.name,
            preset_text=text,
            paths_read=inside,
            paths_write=inside,
            clock=self._host.clock,
            fill=lambda session_id, branch_dir: filled.append(_filled(session_id, branch_dir, chat, now_ms)),
        )
        (made,) = filled
        self._registry.add(ref)
        async with self._host.using(ref) as live:
            live.record_session(workspace_root=workspace or Path.home(), agent=template.name)
        return {**described(ref), "notes": [*chat.notes, *notes, *made.notes]}

    def _place(self, file: str) -> Path:
        place = expanded(file)
        if not place.is_absolute() or place.is_dir():
            raise BadRequest(f"{file} is no absolute path of a file", mend="Name the file to write")
        if place.resolve().is_relative_to(self._host.config.sessions_dir.resolve()):
            raise BadRequest(f"{file} is among the sessions", mend="Export to another place")
        return place

    def _settings_of(self, ref: BranchRef) -> Settings | None:
        try:
            return printed(settings_of(self._host.presets.of_branch(ref)))
        except PyagentdError:  # a conversation can be exported whatever became of its preset
            return None

    def _usable(self, settings: Settings, template: Preset) -> tuple[Settings, list[str]]:
        """Return what of a chat's settings can be used here, and what not."""
        notes = []
        if settings.backend is not None:
            try:
                self._host.config.backend(settings.backend)
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


def _parsed(text: str, name: str) -> Preset:
    preset = presetfile.parse(text, Path(f"{name}.md"))
    return parse_preset(name, preset.front, preset.body, preset.path.name)


def _unknown_tools(preset: Preset, of_emacs: Collection[str]) -> list[str]:
    known = {*builtin_tools(), *offer.CORE, offer.NAME, *of_emacs}
    unknown = [name for name in preset.tools if name not in known and name.partition(":")[0] != emacstools.ALL]
    return [f"Not known here, and not offered to the model: {', '.join(unknown)}"] if unknown else []


def _exported(ref: BranchRef, format: str, settings: Settings | None) -> Exported:
    return exported(read_source(ref), format, settings)


def _filled(session_id: str, branch_dir: Path, chat: importing.Chat, now_ms: int) -> Adopted:
    made = importing.adopt_chat(chat, session_id=session_id, now_ms=now_ms)
    importing.fill(branch_dir, made)
    return made
