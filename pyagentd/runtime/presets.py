"""Resolves presets: templates, a branch's own ``preset.md``, the overrides of ``agent.json``, the agent of a turn."""

import errno
import logging
import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyagentd import regularfile
from pyagentd.config import Config
from pyagentd.errors import BadRequest, NotFound, PresetError, PyagentdError, StoreError, ToolError
from pyagentd.policy.presets import (
    Commands,
    Preset,
    WantedServers,
    parse_message_settings,
    parse_preset,
    read_profile,
)
from pyagentd.policy.profiles import PLAN, Profile, make_profile
from pyagentd.runtime.document_sync import preset_with_overrides
from pyagentd.runtime.grants import TRUST, KeptSet, Origins, preset_hash, server_scripts
from pyagentd.runtime.settings import SendOptions, with_backend_and_model
from pyagentd.store import named_agents, paths, presetfile
from pyagentd.store.conversation import Conversation
from pyagentd.store.named_agents import DOCS_DIR, AgentFile, docs_dir
from pyagentd.store.paths import BranchRef
from pyagentd.tools import files

if TYPE_CHECKING:
    from pyagentd.runtime.branch import LiveBranch
    from pyagentd.runtime.kernel import Kernel


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
        self._below = f"{root.resolve()}/"  # how keys of their branches begin
        self._profiles = profiles
        self._known: dict[Path, tuple[_Signature, AgentFile, Mapping[str, Any]]] = {}

    def is_named(self, ref: BranchRef) -> bool:
        """Return whether ``ref`` is a branch of a named agent; its sub-agents are not."""
        return ref.key in self

    def __contains__(self, key: object) -> bool:
        """Return whether ``key`` is that of a branch of a named agent."""
        return str(key).startswith(self._below) and str(key).count("/", len(self._below)) == 2

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


# The agent of a turn: the preset that a user message names, applied to the session's own.
#
# A user message may name an agent in ``metadata_json.agent``. Its turn and those after it run as that agent, until
# another message names one; a hidden (rewound) message is ignored. The session keeps the agent it was opened with,
# and its own paths: the scope is the session's, the permitted actions are the agent's. A spawned agent keeps the mode
# that its parent had at that moment, so that agents started in plan mode stay in it.

TAKEN_OVER = ("environment", "instructions", "skills")
"""Names of the metadata that an agent inherits from the session that spawns it."""

Change = Callable[[Preset], Preset]


@dataclass(frozen=True, slots=True)
class TurnNames:
    """The agent that the user's messages name, and the model that they name since.

    Attributes:
        agent: The agent's name; "" for the session's own.
        model: ``{provider_id, model_id}``, with ``provider_id`` None for the agent's own; None for the agent's model.
        settings: The settings of the message for its own turn, see ``parse_message_settings``.
    """

    agent: str
    model: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def answered_by(self, preset: Preset) -> Preset:
        """Return ``preset`` with the named model and the settings of the message.

        Raises:
            BadRequest: The log has invalid settings.
        """
        if self.model is not None and self.model.get("model_id"):
            backend = str(self.model.get("provider_id") or preset.backend)
            preset = replace(preset, model=str(self.model["model_id"]), backend=backend)
        return replace(preset, **parse_message_settings(self.settings))


def opened_with(conversation: Conversation) -> str:
    """Return the name of the preset that the session was made from; "" if it was not recorded."""
    return str(conversation.session.get("agent") or "")


def names_for_turn(conversation: Conversation, message: Mapping[str, Any] | None = None) -> TurnNames:
    """Return the names for the next turn, or for the turn of the message with the metadata ``message``.

    A named agent or model applies to later messages too; an agent brings its own model, until another is named.
    """
    agent, model = "", None
    for metadata in chain((message or {},), _visible(conversation) if conversation.naming else ()):
        if model is None and isinstance(given := metadata.get("model"), Mapping):
            model = given
        if name := metadata.get("agent"):
            agent = str(name)
            break
    settings = (message or {}).get("settings")
    agent = "" if agent == opened_with(conversation) else agent
    return TurnNames(agent, model, settings if isinstance(settings, Mapping) else {})


def _visible(conversation: Conversation) -> Iterator[Mapping[str, Any]]:
    """Yield the metadata of visible user messages that name an agent or model, last first."""
    left = len(conversation.naming)
    for each in reversed(conversation.messages.values()):
        if each.id not in conversation.naming:
            continue
        left -= 1
        if not each.is_hidden:
            yield each.row.get("metadata_json", {})
        if not left:
            return


def next_turn(presets: Presets, ref: BranchRef, conversation: Conversation) -> dict[str, Any]:
    """Return the facts about the next turn for clients: ``{agent, opened_with, plan}``, see ``agents-available``."""
    name = names_for_turn(conversation).agent
    try:
        plan = turn_presets(presets, ref, paths.ancestors_of(ref), conversation, name).of_branch(ref).read_only
    except PyagentdError:  # reported when a message is sent
        plan = False
    own = opened_with(conversation)
    return {"agent": name or own or None, "opened_with": own or None, "plan": plan}


def turn_agents(presets: ProjectPresets) -> dict[str, Preset]:
    """Return the presets that a user may choose for a turn, by name: all but those only for spawned agents."""
    found = {}
    for name in sorted(presets.usable):
        try:
            preset, _ = presets.template(name)
        except PresetError:
            continue
        if preset.mode in ("primary", "all"):
            found[name] = preset
    return found


def require_agent(presets: Presets, ref: BranchRef, conversation: Conversation, name: str) -> None:
    """Check the agent that a message names before the message is accepted.

    Raises:
        BadRequest: The agent is unknown or not for users, or the branch is an agent's.
        PresetError: Its preset cannot be used.
    """
    if name and name != opened_with(conversation):
        if ref.is_agent:
            raise BadRequest(f"{ref.session_id} is an agent, which runs with its own preset only")
        _template(presets, conversation.session.get("workspace_root"), name)


def _template(presets: Presets, root: str | None, name: str) -> tuple[Preset, str]:
    """Return the preset of an agent and its origin; raises like ``require_agent``."""
    of_project = presets.for_project(Path(root) if root else None)
    if not any(template.name == name for template in of_project.found):
        known = ", ".join(turn_agents(of_project)) or "none"
        raise BadRequest(f"There is no agent {name!r}", hint=f"There are: {known}")
    preset, _ = of_project.template(name)
    if preset.mode == "subagent":
        known = ", ".join(turn_agents(of_project)) or "none"
        raise BadRequest(f"{name} is for agents of agents only (mode: subagent)", hint=f"There are: {known}")
    return preset, of_project.usable[name].origin


_OF_AGENT = (
    "body", "description", "tools", "emacs_tools", "profile", "temperature", "thinking", "max_turns", "max_calls",
    "time_budget_s", "token_budget", "signature", "prompt", "isolation", "read_only",
)  # fmt: skip
"""Fields of a preset that a turn takes from the agent only."""


def preset_of_turn(own: Preset, agent: Preset, *, shipped: bool = False) -> Preset:
    """Return the preset of a turn: the ``agent``'s instructions and permissions in the session's (``own``) scope.

    Denies of both apply. Commands are the session's, unless it was opened read-only without any: then they are the
    agent's. Backend and model of a shipped preset are only defaults: a session with another backend keeps its own.
    """
    source = own if shipped and agent.backend != own.backend else agent
    return replace(
        own,
        **{name: getattr(agent, name) for name in _OF_AGENT},
        result=agent.result if agent.signature else own.result,
        paths=replace(own.paths, deny=_join(own.paths.deny, agent.paths.deny)),
        shell=Commands(
            allow=agent.shell.allow if own.read_only and not own.shell.allow else own.shell.allow,
            deny=_join(own.shell.deny, agent.shell.deny),
            network=own.shell.network and agent.shell.network,
            confine=own.shell.confine or agent.shell.confine,
        ),
        backend=source.backend,
        model=source.model,
        max_tokens=source.max_tokens,
    )


def _join(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))


# -- the presets of one run ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TurnPresets:
    """The presets of a branch and of those above it for one run; each is read from disk on every access.

    Attributes:
        name: The agent's name; "" for the session's own.
    """

    name: str
    _presets: Presets
    _changes: Mapping[str, Change]  # by branch key

    def of_branch(self, ref: BranchRef) -> Preset:
        """Return the preset of a branch for this run; raises ``PresetError`` like ``Presets.of_branch``."""
        own = self._presets.of_branch(ref)
        change = self._changes.get(ref.key)
        return own if change is None else change(own)

    def reading(self, ref: BranchRef, found: Callable[[], tuple[str, ...]]) -> "TurnPresets":
        """Return a copy in which ``ref`` may also read paths that match patterns, which are looked up on demand."""
        change = self._changes.get(ref.key)
        known: tuple[Preset, Preset] | None = None  # the last result: read for each decision, also from threads

        def widened(own: Preset) -> Preset:
            nonlocal known
            made = known
            if made is None or made[0] is not own:
                preset = own if change is None else change(own)
                read = _join(preset.paths.read, found())
                known = made = (own, replace(preset, paths=replace(preset.paths, read=read)))
            return made[1]

        return replace(self, _changes={**self._changes, ref.key: widened})


def turn_presets(
    presets: Presets, ref: BranchRef, ancestors: Sequence[BranchRef], conversation: Conversation, name: str
) -> "TurnPresets":
    """Return the presets for a run of ``ref`` as the agent ``name``, "" for the session's own.

    Raises:
        PyagentdError: An agent does not exist, or its preset cannot be used; there is no fallback.
    """
    session = conversation.session
    require_agent(presets, ref, conversation, name)
    root = session.get("workspace_root")
    changes: dict[str, Change] = {}
    if change := _change(presets, root, name, looks_only=not name and opened_with(conversation) == PLAN):
        changes[ref.key] = (
            change if presets.origins is None or not presets.origins.foreign(ref) else _without_profile(change)
        )
    recorded = session.get("metadata_json", {}).get("above")
    for ancestor, held in zip(ancestors, recorded if isinstance(recorded, list) else (), strict=False):
        if change := _change(presets, root, str(held.get("agent") or ""), looks_only=bool(held.get("read_only"))):
            changes[ancestor.key] = change
    return TurnPresets(name, presets, changes)


def _change(presets: Presets, root: str | None, name: str, *, looks_only: bool) -> Change | None:
    """Return the change that the agent ``name`` makes to a session's own preset; None for no change."""
    if not name:
        return _read_only if looks_only else None
    agent, origin = _template(presets, root, name)
    if looks_only:
        agent = _read_only(agent)
    return partial(preset_of_turn, agent=agent, shipped=origin == "shipped")


def _without_profile(change: Change) -> Change:
    """Return the change without a profile, for a foreign session: its log may name an agent that never asks."""

    def changed(own: Preset) -> Preset:
        preset = change(own)
        return preset if preset.read_only else replace(preset, profile=None)

    return changed


def _read_only(preset: Preset) -> Preset:
    return replace(preset, read_only=True)


def now_held(presets: Presets, branch: "LiveBranch") -> "TurnPresets":
    """Return the presets of the run in flight, or else of the next run; raises like ``turn_presets``."""
    if branch.turn is not None and branch.run is not None:
        return branch.turn
    conversation, ancestors = branch.conversation, paths.ancestors_of(branch.ref)
    return turn_presets(presets, branch.ref, ancestors, conversation, names_for_turn(conversation).agent)


def answers_next(kernel: "Kernel", branch: "LiveBranch", options: SendOptions) -> Preset:
    """Return the preset whose backend and model answer the next message of a client; raises like ``turn_presets``."""
    own, config = kernel.presets.of_branch(branch.ref), kernel.config
    preset = with_backend_and_model(now_held(kernel.presets, branch).of_branch(branch.ref), config, options)
    changed = {name: value for name, value in branch.override(own).items() if name in ("backend", "model")}
    return with_backend_and_model(
        names_for_turn(branch.conversation).answered_by(preset_with_overrides(preset, changed)), config, options
    )


def inherited_metadata(presets: Presets, parent: "LiveBranch") -> dict[str, Any]:
    """Return the metadata that an agent spawned now records about the branches above it.

    Raises:
        PyagentdError: The presets of the branches above cannot be read.
    """
    held, metadata = now_held(presets, parent), parent.conversation.session.get("metadata_json", {})
    own = {"agent": held.name, "read_only": held.of_branch(parent.ref).read_only}
    recorded = metadata.get("above")
    above = [own, *(recorded if isinstance(recorded, list) else ())]  # nearest first
    return {"above": above} | {name: metadata[name] for name in TAKEN_OVER if name in metadata}
