"""Resolves presets: templates, a branch's own ``preset.md``, and the overrides of ``agent.json``."""

import errno
import logging
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from pyagentd import regularfile
from pyagentd.config import Config
from pyagentd.errors import NotFound, PresetError, PyagentdError, StoreError, ToolError
from pyagentd.policy.presets import Preset, WantedServers, parse_preset, read_profile
from pyagentd.policy.profiles import Profile, make_profile
from pyagentd.runtime.grants import TRUST, KeptSet, Origins, preset_hash, server_scripts
from pyagentd.store import named_agents, paths, presetfile
from pyagentd.store.named_agents import DOCS_DIR, AgentFile, docs_dir
from pyagentd.store.paths import BranchRef
from pyagentd.tools import files

# The presets of branches, and the templates that sessions and agents are made from.
#
# Templates come with the package, from the user's directory, and from ``.pyagentd/presets`` of a project; of two with
# the same name the later one is used. Those of a project are used once the user trusts them. A broken template is
# reported with file, line and cause, and does not affect the others.


_Signature = tuple[int, int, int]


def _signature(found: os.stat_result) -> _Signature:
    return found.st_mtime_ns, found.st_size, found.st_ino


# The effective configuration of a named agent: its preset with the values of its ``agent.json``.
#
# The file is read again for every decision of the guard and every request of a run. A file that cannot be read is an
# error and never ignored, since it may restrict the agent.

_AGENT_OVERLAY_REMEMBERED = 64  # files


class NamedAgentOverlay:
    """Applies the configuration files of named agents to their presets.

    Args:
        root: The agents root.
        profiles: The user's own profiles by name, which a file may name beside the built-in ones.
    """

    def __init__(self, root: Path, profiles: Mapping[str, Profile]) -> None:
        self._root = root.resolve()
        self._profiles = profiles
        self._known: dict[Path, tuple[_Signature, AgentFile, Mapping[str, Any]]] = {}

    def is_named(self, ref: BranchRef) -> bool:
        """Return whether ``ref`` is a branch of a named agent; its sub-agents are not."""
        return not ref.is_agent and ref.session_dir.parent == self._root

    def apply(self, preset: Preset, ref: BranchRef) -> Preset:
        """Return ``preset`` with the values from the file of the named agent with the branch ``ref``.

        Raises:
            PresetError: The file is missing or malformed, or names an unknown profile.
            StoreError: The disk refused.
        """
        return replace(preset, **self._read(ref.session_dir)[1])

    def file(self, ref: BranchRef) -> AgentFile:
        """Return the file of the named agent with the branch ``ref``; raises like ``apply``."""
        return self._read(ref.session_dir)[0]

    def _read(self, directory: Path) -> tuple[AgentFile, Mapping[str, Any]]:
        path = named_agents.agent_file(directory)
        try:
            status = path.stat()
        except FileNotFoundError as error:
            raise PresetError(f"{path} is missing", hint="Restore it: it says what the agent may do") from error
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror or error}") from error
        stamp = _signature(status)
        known = self._known.get(directory)
        if known is None or known[0] != stamp:
            try:
                file = named_agents.read(directory)
            except NotFound as error:
                raise PresetError(error.message, hint=error.hint) from error
            fields: dict[str, Any] = {}
            if file.system_prompt is not None:
                fields["body"] = file.system_prompt.strip()
            if file.model is not None:
                backend, _, fields["model"] = file.model.rpartition("/")
                fields |= {"backend": backend} if backend else {}
            if file.permissions is not None:
                fields["profile"] = read_profile(file.permissions, self._profiles, file.source, ("permissions",))
            known = (stamp, file, fields)
            while len(self._known) >= _AGENT_OVERLAY_REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[directory] = known
        return known[1], known[2]


# The documents of a named agent, which are part of its every prompt.
#
# They are in ``docs/`` beside ``agent.json`` and follow the system prompt. A path that a model names is resolved
# first, and the file is opened by directory descriptors, so that no link leads outside, whenever it was made.

LARGEST = 100_000  # bytes of one document
MOST_SHOWN = 200_000  # characters of all documents in a prompt
_MOST_FILES = 200
_DEEPEST = 5

_TAG = re.compile(r"<(?=/?agent_docs\b)", re.IGNORECASE)


def docs_section(directory: Path) -> str:
    """Return the part of the prompt that holds the documents of the agent in ``directory``; "" without any. Blocks.

    Documents are sorted by name, each below a heading with its name. Those that do not fit are listed as left out.
    """
    sections, left_out, room = [], [], MOST_SHOWN
    for name in sorted(_found(directory)):
        try:
            text: str | None = files.read_bytes(f"{_jail(directory)}/{name}").decode()
        except (OSError, ToolError, UnicodeDecodeError):
            text = None
        if text is None or "\0" in text:
            left_out.append(f"{DOCS_DIR}/{name} cannot be read as text")
        elif len(text) > room:
            left_out.append(f"{DOCS_DIR}/{name} has {len(text)} characters, for which there is no room")
        else:
            room -= len(text)
            sections.append(f"# {DOCS_DIR}/{name}\n\n{_TAG.sub('&lt;', text).strip()}")
    if not sections and not left_out:
        return ""
    notes = [f"[Left out: {each}]" for each in left_out]
    return "\n\n".join(("<agent_docs>", *sections, *notes, "</agent_docs>"))


def doc_name(directory: Path, path: str) -> str:
    """Return the name of the document at ``path``: relative to ``docs/``, links followed.

    Args:
        directory: The agent's directory.
        path: The path from a model: relative to ``docs/``, beginning with ``docs/``, or absolute.

    Raises:
        ToolError: The path leads out of ``docs/``, or cannot be a document.
    """
    if not path.strip() or any(unicodedata.category(each) in ("Cc", "Cs") for each in path):
        raise ToolError("The path of a document is a name of a file in docs/, such as notes.md.")
    jail = _jail(directory)
    lexical = os.path.normpath(jail / path.removeprefix(f"{DOCS_DIR}/"))
    resolved = os.path.realpath(lexical)
    if not resolved.startswith(f"{jail}/"):
        raise ToolError(
            f"{path} is not inside docs/: only files there are your documents. Name one, such as notes.md; for other "
            f"files there are other tools."
        )
    name = resolved[len(str(jail)) + 1 :]
    parts = name.split("/")
    if len(parts) > _DEEPEST or any(part.startswith(".") or len(os.fsencode(part)) > 255 for part in parts):
        raise ToolError(
            f"{path} cannot be a document: names begin with no dot, and directories are at most {_DEEPEST - 1} deep."
        )
    return name


def read_doc(directory: Path, name: str) -> str | None:
    """Return the text of a document; None if it does not exist. Blocks.

    Raises:
        ToolError: It is not a regular file, or too large.
        OSError: The disk refused.
    """
    try:
        data = files.read_bytes(f"{_jail(directory)}/{name}")
    except FileNotFoundError:
        return None
    return data.decode("utf-8", "replace")


def write_doc(directory: Path, name: str, content: str) -> None:
    """Replace the text of a document atomically. Blocks.

    Args:
        directory: The agent's directory.
        name: The name from ``doc_name``.
        content: The whole text.

    Raises:
        ToolError: A link was put in the way, it is not a file, or the text is too long.
        OSError: The disk refused.
    """
    data = checked_content(name, content)
    try:
        files.replace_bytes(f"{_jail(directory)}/{name}", data)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.EEXIST):
            raise
        raise ToolError(f"docs/{name} cannot be made: a file stands where a directory would have to be.") from error


def checked_content(name: str, content: str) -> bytes:
    """Return the bytes of a document; raises ``ToolError`` when it cannot be one."""
    try:
        data = content.encode()
    except UnicodeEncodeError:
        raise ToolError(f"docs/{name} was not written: the text holds characters that UTF-8 cannot.") from None
    if len(data) > LARGEST:
        raise ToolError(
            f"docs/{name} was not written: {len(data)} bytes are more than the {LARGEST} a document may have. "
            f"Documents are in every prompt: keep what matters."
        )
    if b"\0" in data:
        raise ToolError(f"docs/{name} was not written: a document is text, and this holds a NUL character.")
    return data


def _jail(directory: Path) -> Path:
    """Return the ``docs/`` of the agent's resolved directory; ``docs/`` itself is not resolved."""
    return docs_dir(directory.resolve())


def _found(directory: Path) -> Iterator[str]:
    """Yield the names of all documents, except links and names that begin with a dot."""
    jail, found = _jail(directory), 0
    for place, directories, others in os.walk(jail):
        directories[:] = sorted(each for each in directories if not each.startswith("."))
        if len(Path(place).relative_to(jail).parts) >= _DEEPEST - 1:
            directories.clear()
        for name in sorted(others):
            path = Path(place, name)
            if name.startswith(".") or path.is_symlink() or found >= _MOST_FILES:
                continue
            found += 1
            yield str(path.relative_to(jail))


PROJECT_PRESETS = Path(".pyagentd", "presets")

_REMEMBERED = 256  # presets
_MAX_BYTES = 200_000  # of a project's preset, which is not the user's own file
_MAX_OF_PROJECT = 100  # presets

_log = logging.getLogger(__name__)


def configured_default(config: Config) -> dict[str, str]:
    """Return the user's backend and model, which replace those of shipped presets."""
    name = config.default.backend
    model = config.default.model or (config.backend(name).model if name else None)
    return {key: value for key, value in (("backend", name), ("model", model)) if value}


def configured_profiles(config: Config) -> dict[str, Profile]:
    """Return the user's own profiles by name."""
    return {name: make_profile(name, allow=each.allow, ask=each.ask) for name, each in config.profiles.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetTemplate:
    """A file that a preset can be made from."""

    name: str  # the file's name without .md
    file: Path
    origin: Literal["shipped", "user", "project"]
    data: bytes | None = None  # of a project: the content to which the hash belongs
    hash: str | None = None  # of a project: see ``preset_hash``
    scripts: tuple[tuple[Path, bytes], ...] = ()  # of a project: its scripts that the preset's MCP servers run
    trusted: bool = True


class Presets:
    """Presets read from disk, parsed again only when the file changed.

    Args:
        directories: Directories of templates for every project: the package's, then the user's.
        trust: Hashes of projects' presets that the user trusts.
        profiles: The user's own profiles by name, which presets may name beside the built-in ones.
        default: ``backend`` and ``model`` that replace those of shipped templates.

    Attributes:
        default, trust, profiles: As given.
        origins: Decides which sessions are foreign; None: no session is.
        named: Applies an ``agent.json`` to a named agent's preset; None: there are no named agents.
    """

    def __init__(
        self,
        directories: tuple[Path, ...],
        *,
        trust: KeptSet | None = None,
        profiles: Mapping[str, Profile] | None = None,
        default: Mapping[str, str] | None = None,
    ) -> None:
        self.default = default or {}
        self.trust = trust or KeptSet(None, TRUST)
        self.origins: Origins | None = None
        self.named: NamedAgentOverlay | None = None
        self._directories = directories
        self.profiles = profiles or {}
        self._cache: dict[str, tuple[_Signature, Preset]] = {}  # by path
        self._contents: dict[bytes, Preset | tuple[Path, PresetError]] = {}
        self._warm: set[str] = set()  # workspace roots whose templates were read

    def of_branch(self, ref: BranchRef) -> Preset:
        """Return the preset of a branch, the only source of its configuration.

        In a foreign session, see ``Origins``, the profile is ignored, commands are confined without network, and no
        MCP server is started.

        Raises:
            PresetError: ``preset.md`` is missing or malformed.
        """
        file = paths.preset_file(ref.branch_dir)
        try:
            preset = self.read(file, file.parent.name)
        except PresetError as error:  # the message names the branch
            raise PresetError(
                f"Failed to load preset from {ref.branch_dir}: {error.message}", hint=error.hint
            ) from error
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise PresetError(f"Failed to load preset from {ref.branch_dir}", hint=f"Restore {file}") from error
            raise
        if self.named is not None and self.named.is_named(ref):
            preset = self.named.apply(preset, ref)
        if self.origins is None or not self.origins.foreign(ref):
            return preset
        shell = replace(preset.shell, network=False, confine=True)
        return replace(preset, profile=None, shell=shell, mcp=WantedServers())

    def for_project(self, root: Path | str | None) -> "ProjectPresets":
        """Return the templates for sessions with the workspace root ``root``; for None those of no project."""
        return ProjectPresets(self, tuple(self._found(None if root is None else Path(root))))

    def template(self, name: str) -> tuple[Preset, str]:
        """Return a template of no project and its text; raises like ``ProjectPresets.template``."""
        return self.for_project(None).template(name)

    def read(self, file: Path, name: str, *, links: bool = False) -> Preset:
        """Return the preset in ``file``, which may be a symbolic link if ``links`` is set.

        Raises:
            PresetError: The file is malformed; the message names file and line.
            StoreError: The file cannot be read.
        """
        try:
            signature = _signature(file.stat())
        except OSError as error:
            raise StoreError(f"{file}: {error.strerror}") from error
        cached = self._cache.get(str(file))
        if cached is None or cached[0] != signature:
            cached = (signature, self.of_content(presetfile.content(file, links=links), file, name))
            while len(self._cache) >= _REMEMBERED:  # every agent has its own preset
                del self._cache[next(iter(self._cache))]
            self._cache[str(file)] = cached
        return cached[1]

    def of_content(self, data: bytes, file: Path, name: str) -> Preset:
        """Return the preset with this content, cached by it: many agents share one."""
        known = self._contents.get(data)
        if known is None or (isinstance(known, tuple) and known[0] != file):  # an error names its file
            try:
                found = presetfile.decode(data, file)
                known = parse_preset(name, found.front, found.body, str(found.path), profiles=self.profiles)
            except PresetError as error:
                known = (file, error)
            while len(self._contents) >= _REMEMBERED:  # other threads may delete at the same time
                with suppress(KeyError, RuntimeError, StopIteration):
                    del self._contents[next(iter(self._contents))]
            self._contents[data] = known
        if isinstance(known, tuple):
            raise PresetError(known[1].message, hint=known[1].hint)
        return replace(known, name=name)

    def warm(self, ref: BranchRef, root: Path | str | None = None) -> None:
        """Preload the presets of ``ref``, and a project's templates, into the cache; blocks, never fails."""
        with suppress(PyagentdError):
            self.of_branch(ref)
        if root is not None:
            with suppress(PyagentdError):
                self.for_project(root)
            self._warm.add(str(root))

    def is_warm(self, root: Path | str | None) -> bool:
        """Return whether the templates of a project were read; without a project there is nothing to read."""
        return root is None or str(root) in self._warm

    def _found(self, root: Path | None) -> list[PresetTemplate]:
        """Return every template; of two with the same name the later one wins."""
        found = []
        for index, directory in enumerate(self._directories):
            origin: Literal["shipped", "user"] = "shipped" if index == 0 else "user"
            for name, file in presetfile.find_templates([directory]).items():
                found.append(PresetTemplate(name=name, file=file, origin=origin))
        of_project = {} if root is None else presetfile.find_templates([root / PROJECT_PRESETS])
        for name, file in islice(of_project.items(), _MAX_OF_PROJECT):
            assert root is not None
            try:
                data = regularfile.read_bytes(file, limit=_MAX_BYTES)
                try:
                    wanted = self.of_content(data, file, name).mcp
                except PyagentdError:  # it cannot be used
                    wanted = None
                scripts = tuple(server_scripts(root, wanted.own if wanted is not None else ()))
            except (OSError, ValueError) as error:
                _log.warning("%s: %s", file, error)
                continue
            hashed = preset_hash(name, data, scripts)
            own = PresetTemplate(name=name, file=file, origin="project", data=data, hash=hashed, scripts=scripts)
            found.append(replace(own, trusted=hashed in self.trust))
        return found


@dataclass(frozen=True, slots=True)
class ProjectPresets:
    """The templates for one workspace root."""

    _presets: Presets
    found: tuple[PresetTemplate, ...]  # all templates, including hidden ones

    @property
    def usable(self) -> dict[str, PresetTemplate]:
        """The templates that can be used, by name: trusted, and the last of their name."""
        return {template.name: template for template in self.found if template.trusted}

    def template(self, name: str) -> tuple[Preset, str]:
        """Return a template and its text.

        Raises:
            PresetError: No template has that name, the user does not trust it, or it is malformed.
        """
        known = self.usable
        if name in known:
            found = known[name]
            data = presetfile.content(found.file, links=True) if found.data is None else found.data
            if found.origin == "shipped" and self._presets.default:
                file = presetfile.parse(data.decode("utf-8-sig"), found.file)
                data = presetfile.with_values(file, self._presets.default).encode()
            preset = self._presets.of_content(data, found.file, name)
            return preset, data.decode("utf-8-sig")  # the text that was parsed, even if the file changed
        for template in self.found:
            if template.name == name:
                self.read(template)  # a malformed preset is reported first
                raise PresetError(
                    f"{template.file}: this preset is the project's own, and you have not said that you trust it",
                    hint="Read it, then: pyagentd presets --trust",
                )
        raise PresetError(f"There is no preset {name!r}", hint=f"Known: {', '.join(sorted(known))}")

    def for_agents(self) -> dict[str, Preset]:
        """Return the presets of templates that an agent may use; broken ones are left out."""
        found = {}
        for name, template in self.usable.items():
            try:
                preset = self.read(template)
            except PyagentdError as error:
                _log.warning("preset %s cannot be used: %s", name, error.message)
                continue
            if preset.mode in ("subagent", "all"):
                found[name] = preset
        return found

    def read(self, template: PresetTemplate) -> Preset:
        """Return the preset of a template.

        Raises:
            PresetError: It is malformed; the message names file and line.
            StoreError: It cannot be read.
        """
        if template.data is None:
            return self._presets.read(template.file, template.name, links=True)
        return self._presets.of_content(template.data, template.file, template.name)
