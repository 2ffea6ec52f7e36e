"""The tools by which a named agent changes its own prompt, documents, permissions and model.

Each tool has its own action string, on which the profile decides as on any action; the audit keeps the old and the
new value. A change of permissions needs a person's approval each time, whatever profiles and grants allow. Changes
are written only to ``agent.json`` and ``docs/``, and apply from the next request to the model on. A value that was
changed after the approval was requested is not overwritten.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyagentd.errors import PresetError, PyagentdError, ToolError
from pyagentd.events import truncate
from pyagentd.features import models
from pyagentd.features.models import Models
from pyagentd.policy.action import Target
from pyagentd.policy.guard import Confirm
from pyagentd.policy.presets import read_profile
from pyagentd.policy.profiles import Profile, resolve_profile
from pyagentd.reader import Source
from pyagentd.runtime import presets as agent_overlay
from pyagentd.runtime.feature import Feature
from pyagentd.runtime.settings import provider_of as configured_provider
from pyagentd.store import named_agents
from pyagentd.tools.spec import Args, Output, ToolContext, ToolSpec, object_schema
from pyagentd.tools.write import unified_diff

if TYPE_CHECKING:
    from pyagentd.runtime.run_setup import RunBuilder

ACTS_AS = "self_edit"
NAMES = ("self_edit_system_prompt", "self_edit_docs", "self_edit_permissions", "self_edit_model")
CUSTOM = "custom"
"""The name of an unnamed profile in its action."""

_LONGEST_PROMPT = 100_000  # characters
_AUDITED = 500  # characters of an old or new value
_TOLD = 4_000  # characters of a value, to the model
_NEXT = "It holds from your next step on."


class SelfEditing(Feature):
    """Gives named agents the tools to change themselves."""

    tool_names = NAMES

    def tools_for(self, run: "RunBuilder") -> Sequence[ToolSpec]:
        """Return the tools for the run of a named agent; none for other sessions."""
        kernel, ref, options = self.kernel, run.branch.ref, run.options
        if not kernel.named.is_named(ref):
            return ()
        listed = kernel.find(Models)
        if listed is not None:
            listed.look_soon(options)  # so that the list is there when the model needs it

        def model(name: str) -> str:
            if listed is None:
                return name
            backend = configured_provider(kernel.presets.of_branch(ref), kernel.config, options)
            return models.model_for_file(name, listed.known(options), backend=backend)

        return selfedit_tools(ref.session_dir, kernel.presets.profiles, model)

    def granted(self, run: "RunBuilder", permitted: Sequence[str]) -> Sequence[str]:
        """Return the tools that the profile permits; a named agent has them even if its preset does not name them."""
        return run.permitted(NAMES) if self.kernel.named.is_named(run.branch.ref) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """One change: the old and the new value."""

    detail: str  # of the action
    old: Any
    new: Any
    key: str  # of ``agent.json``, or the document's path

    def audited(self) -> str:
        """Return the change as the audit stores it."""
        return json.dumps({"old": _short(self.old), "new": _short(self.new)}, ensure_ascii=False)

    def require(self, old: Any) -> None:
        """Require that the value is still ``old``; the ``ToolError`` shows the model the current one."""
        if self.old == old:
            return
        now = "nothing" if self.old is None else truncate(_text(self.old), _TOLD)
        raise ToolError(
            f"{self.key} was changed by somebody else meanwhile, so nothing was written over that. Ask again, with a "
            f"change of what it is now if one is still needed. It is now:\n\n{now}"
        )

    def shown(self) -> str:
        """Return the change as its approval shows it."""
        if self.old == self.new:
            return "(nothing changes)"
        return unified_diff(None if self.old is None else _text(self.old), _text(self.new), self.key)


def selfedit_tools(
    directory: Path, profiles: Mapping[str, Profile], model_for_file: Callable[[str], str]
) -> Sequence[ToolSpec]:
    """Return the four tools for one run of a named agent.

    Args:
        directory: The agent's directory.
        profiles: The user's own profiles by name.
        model_for_file: Returns a model's text for ``agent.json``; raises ``ToolError`` if no provider has it.
    """

    def now(key: str) -> Any:
        return named_agents.read(directory).values.get(key)

    def prompt(args: Args) -> _Change:
        text = str(args["new_prompt"])
        if not text.strip():
            raise ToolError("The new system prompt is empty. Give the whole text that is to replace the old one.")
        if len(text) > _LONGEST_PROMPT:
            raise ToolError(
                f"The new system prompt has more than {_LONGEST_PROMPT} characters. Keep what is long in docs/."
            )
        return _Change(detail="system_prompt", old=now("system_prompt"), new=text, key="system_prompt")

    def document(args: Args) -> _Change:
        name, content = agent_overlay.doc_name(directory, str(args["path"])), str(args["content"])
        agent_overlay.checked_content(name, content)
        return _Change(
            detail=f"docs:{name}", old=agent_overlay.read_doc(directory, name), new=content, key=f"docs/{name}"
        )

    def permissions(args: Args) -> _Change:
        given = args["new_profile"]
        new = given.strip() if isinstance(given, str) else dict(given)
        if not new:
            raise ToolError('Name a profile, or write one: {"allow": [...], "ask": [...]}.')
        try:
            resolve_profile(read_profile(new, profiles, Source.at("new_profile", PresetError), ("permissions",)))
        except PyagentdError as error:
            raise ToolError(f"This is not a profile: {error}") from error
        named = new if isinstance(new, str) else CUSTOM
        return _Change(detail=f"permissions:{named}", old=now("permissions"), new=new, key="permissions")

    def model(args: Args) -> _Change:
        name = str(args["new_model"]).strip()
        return _Change(detail=f"model:{name}", old=now("model"), new=model_for_file(name), key="model")

    return (
        _tool(directory, "self_edit_system_prompt", _PROMPT, {"new_prompt": _STRING}, prompt),
        _tool(directory, "self_edit_docs", _DOCS, {"path": _PATH, "content": {"type": "string"}}, document),
        _tool(
            directory, "self_edit_permissions", _PERMISSIONS, {"new_profile": _PROFILE}, permissions, confirm="always"
        ),
        _tool(directory, "self_edit_model", _MODEL, {"new_model": _STRING}, model),
    )


_PROMPT = """\
Replace your own system prompt, for good: give the whole new text. Use it when the user wants you to always do \
something, or when you have learnt how you work best. It holds from your next step on."""

_DOCS = """\
Write a file of your docs/ directory, for good: give its whole new text. All of docs/ is always in your system \
prompt, below a heading with the file's name: keep there what you must know in every conversation (conventions, \
decisions, how things stand), and keep it short. It holds from your next step on."""

_PERMISSIONS = """\
Change your own permission profile, for good: to one by name (open, standard, locked, or one of the user's own) or \
to {"allow": [...], "ask": [...]}, lists of Python regular expressions for whole actions such as tool:view:.* (any \
allow wins, then any ask; the rest is denied). The user is asked each time."""

_MODEL = """\
Switch to another model, for good: its name, or PROVIDER/NAME. It answers from your next step on."""

_STRING = {"type": "string", "minLength": 1}
_PATH = {"type": "string", "minLength": 1, "description": "Below docs/, such as notes.md"}
_PROFILE = {"type": ["string", "object"], "additionalProperties": True, "description": "A name, or allow and ask"}


def _tool(
    directory: Path,
    name: str,
    description: str,
    properties: Mapping[str, Any],
    change_of: Callable[[Args], _Change],
    *,
    confirm: Confirm = True,
) -> ToolSpec:
    seen: dict[tuple[str, str], Any] = {}  # the value when a call was described

    def described(args: Args, ctx: ToolContext) -> Target:
        change = _change_of_call(change_of, args)
        seen.setdefault((ctx.call_id, change.key), change.old)
        return Target(detail=change.detail, change=change.audited())

    def still(args: Args, ctx: ToolContext) -> None:
        change = _change_of_call(change_of, args)
        change.require(seen.get((ctx.call_id, change.key), change.old))

    def applied(args: Args, ctx: ToolContext) -> str:
        change = _change_of_call(change_of, args)
        change.require(seen.pop((ctx.call_id, change.key), change.old))
        return _apply(directory, change)

    async def run(args: Args, ctx: ToolContext) -> Output:
        return Output(text=await asyncio.to_thread(applied, args, ctx))

    return ToolSpec(
        name=name,
        acts_as=ACTS_AS,
        description=description,
        input_schema=object_schema(properties),
        kind="self",
        run=run,
        describe=described,
        preview=lambda args, ctx: _change_of_call(change_of, args).shown(),
        still=still,
        confirm=confirm,
    )


def _change_of_call(change_of: Callable[[Args], _Change], args: Args) -> _Change:
    """Return the change of a call; raises ``ToolError`` if it is impossible."""
    try:
        return change_of(args)
    except ToolError:
        raise
    except (PyagentdError, OSError) as error:
        raise ToolError(f"Nothing was changed: {_error_text(error)}") from error


def _apply(directory: Path, change: _Change) -> str:
    """Make ``change``; return the result for the model. Blocks."""
    if change.old == change.new:
        return f"{change.key} is that already; nothing was changed."
    try:
        if change.key.startswith("docs/"):
            agent_overlay.write_doc(directory, change.key.removeprefix("docs/"), change.new)
        else:
            named_agents.change(directory, {change.key: change.new}, only_if={change.key: change.old})
    except (PyagentdError, OSError) as error:
        raise ToolError(f"{change.key} was not changed: {_error_text(error)}") from error
    return f"{change.key} was changed. {_NEXT}"


def _error_text(error: PyagentdError | OSError) -> str:
    return str(error) if isinstance(error, PyagentdError) else f"{error.strerror}"


def _short(value: Any) -> str | None:
    return None if value is None else truncate(_text(value), _AUDITED)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
