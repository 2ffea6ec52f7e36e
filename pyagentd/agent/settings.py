"""From a branch on disk, the user's configuration and a client's wishes to what one run needs.

Everything that can be wrong (preset, backend, key, pattern) is found here, before anything is recorded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from pyagentd.config import Config
from pyagentd.errors import PresetError, StoreError
from pyagentd.llm.backend import Backend
from pyagentd.llm.factory import BackendSettings, make_backend
from pyagentd.log import conceal
from pyagentd.policy.guard import Context
from pyagentd.policy.patterns import exactly, under
from pyagentd.policy.presets import Preset, parse_preset
from pyagentd.store import paths, presetfile, templates
from pyagentd.store.paths import BranchRef

_REMEMBERED = 256  # presets

DEFAULT_MAX_TOKENS = 32_000  # of one answer; room for a long file in one call


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """What the client that sent a message wants of its run; agents of the run inherit it."""

    interactive: bool = False  # a human can be asked
    env: Mapping[str, str] = field(default_factory=dict)  # backend, base URL, PATH
    api_key: str | None = field(default=None, repr=False)
    grants: tuple[re.Pattern[str], ...] = ()


class Presets:
    """Presets read from disk, parsed again only when the file changed."""

    def __init__(self, directories: tuple[Path, ...]) -> None:
        self._directories = directories
        self._cache: dict[Path, tuple[tuple[int, int, int], Preset]] = {}

    def of_branch(self, ref: BranchRef) -> Preset:
        """Return the configuration of a branch, the only source of it (SPEC 000 Configuration isolation).

        Raises:
            PresetError: ``preset.md`` is missing or malformed.
        """
        file = paths.preset_file(ref.branch_dir)
        if not file.exists():
            raise PresetError(f"Failed to load preset from {ref.branch_dir}", mend=f"Restore {file}")
        try:
            return self.read(file, file.parent.name)
        except PresetError as error:  # SPEC 000 Missing preset.md reports clear error
            raise PresetError(
                f"Failed to load preset from {ref.branch_dir}: {error.message}", mend=error.mend
            ) from error

    def templates(self) -> dict[str, Path]:
        """Return the preset files that sessions and agents can be made from, by name; later directories win."""
        return templates.find_templates(self._directories)

    def template(self, name: str) -> tuple[Preset, str]:
        """Return a template and its text.

        Raises:
            PresetError: There is none of that name, or it is malformed.
        """
        known = self.templates()
        if name not in known:
            raise PresetError(f"There is no preset {name!r}", mend=f"Known: {', '.join(sorted(known))}")
        return self.read(known[name], name), known[name].read_text(encoding="utf-8")

    def for_agents(self) -> dict[str, Preset]:
        """Return the templates an agent may have; broken ones are left out (``presets`` reports them)."""
        found = {}
        for name, file in self.templates().items():
            try:
                preset = self.read(file, name)
            except PresetError:
                continue
            if preset.mode in ("subagent", "all"):
                found[name] = preset
        return found

    def read(self, file: Path, name: str) -> Preset:
        """Return the preset in ``file``.

        Raises:
            PresetError: The file is malformed; names file and line.
            StoreError: The file cannot be read.
        """
        try:
            stat = file.stat()
        except OSError as error:
            raise StoreError(f"{file}: {error.strerror}") from error
        signature = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        cached = self._cache.get(file)
        if cached is None or cached[0] != signature:
            parsed = presetfile.read(file)
            cached = (signature, parse_preset(name, parsed.front, parsed.body, str(file)))
            while len(self._cache) >= _REMEMBERED:  # every agent has a preset of its own
                del self._cache[next(iter(self._cache))]
            self._cache[file] = cached
        return cached[1]


def policy_context(
    presets: Presets, ref: BranchRef, ancestors: tuple[BranchRef, ...], options: SendOptions, config: Config
) -> Callable[[], Context]:
    """Return a function that reads the rules for one decision; ancestors' denies are evaluated live (DD-7)."""
    protected = protected_paths(config)
    readable = (under(str(paths.files_dir(ref.branch_dir))),)

    def context() -> Context:
        denies = tuple(pattern for above in ancestors for pattern in presets.of_branch(above).paths.deny)
        return Context(
            preset=presets.of_branch(ref),
            ancestor_denies=denies,
            protected=protected,
            readable=readable,
            interactive=options.interactive,
            grants=options.grants,
        )

    return context


def protected_paths(config: Config) -> tuple[str, ...]:
    """Return patterns of our own places that no tool may write, whatever a preset says (DESIGN §7)."""
    own = (config.sessions_dir, config.runtime_dir, config.presets_dir)
    return (*(under(str(directory.resolve())) for directory in own), exactly(str(config.file.resolve())))


def backend_for(preset: Preset, config: Config, options: SendOptions) -> tuple[Backend, str]:
    """Return the model's server and the model's name for a preset.

    Raises:
        ConfigError: The preset names a backend nobody configured.
        NoKey: The backend needs a key and none is known.
        PresetError: Neither preset nor backend names a model.
    """
    # What the client's environment says holds for its run; ours stands in for a client that sent none (DESIGN §5).
    override = options.env.get("PYAGENTD_BACKEND") if options.env else config.backend_override
    name = override or preset.backend
    known = config.backend(name, options.env)
    key = _key(known.key_env, options)
    model = preset.model or known.model
    if not model:
        raise PresetError(f"Preset {preset.name} names no model, and backend {known.name} has no default")
    kind = cast(Literal["anthropic", "offline"], known.kind)  # the configuration admits no other
    made = make_backend(known.name, BackendSettings(kind=kind, base_url=known.base_url, api_key=key))
    return made, model


def _key(variable: str | None, options: SendOptions) -> str | None:
    """Return the key for a backend whose key is in ``variable``: the client's, else our own environment's.

    A backend that names no variable gets none: a key must not reach a server it was not meant for.
    """
    if variable is None:
        return None
    key = options.api_key or options.env.get(variable) or os.environ.get(variable)
    conceal(key or "")
    return key
