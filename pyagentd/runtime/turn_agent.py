"""The agent of a turn: the preset that a user message names, applied to the session's own.

A user message may name an agent in ``metadata_json.agent``. Its turn and those after it run as that agent, until
another message names one; a hidden (rewound) message is ignored. The session keeps the agent it was opened with, and
its own paths: the scope is the session's, the permitted actions are the agent's. A spawned agent keeps the mode that
its parent had at that moment, so that agents started in plan mode stay in it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyagentd.errors import BadRequest, PresetError, PyagentdError
from pyagentd.policy.presets import Commands, Preset, parse_message_settings
from pyagentd.policy.profiles import PLAN
from pyagentd.runtime.document_sync import preset_with_overrides
from pyagentd.runtime.presets import Presets, ProjectPresets
from pyagentd.runtime.settings import SendOptions, with_backend_and_model
from pyagentd.store import paths
from pyagentd.store.conversation import Conversation
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:
    from pyagentd.runtime.branch import LiveBranch
    from pyagentd.runtime.kernel import Kernel

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
