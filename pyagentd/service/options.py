"""What a client says about a message: the run's environment, its key, what it allows beforehand, preset and model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from pyagentd.agent.running.settings import SendOptions
from pyagentd.agent.turns.queue import Commanding, Submitted
from pyagentd.errors import BadRequest
from pyagentd.policy.presets import parse_message_settings
from pyagentd.policy.profiles import compile_action
from pyagentd.service.group import Client
from pyagentd.wire.sexp import SexpError, plist_to_dict


def send_options(
    client: Client, env: Mapping[str, str] | Sequence[Any], key: str | None, allow: Sequence[str]
) -> SendOptions:
    """Return what a client wants of the run it starts.

    Raises:
        BadRequest: ``allow`` has something that is no regular expression, or ``env`` is no plist.
    """
    grants = tuple(map(compile_action, allow))
    return SendOptions(interactive=client.human, env=_environment(env), api_key=key, grants=grants)


def commanding(command: str) -> Commanding:
    """Return what a client says about slash commands.

    Raises:
        BadRequest: It is none of what can be said.
    """
    if command not in get_args(Commanding):
        raise BadRequest(f"command is no {command[:60]!r}", mend=f"One of {', '.join(get_args(Commanding))}")
    return cast(Commanding, command)


def turn_metadata(
    agent: str | None, model: str | None, settings: Mapping[str, Any] | Sequence[Any] = ()
) -> dict[str, Any]:
    """Return the metadata of a message that names a preset or a model (``[BACKEND/]MODEL``) for its turn.

    Args:
        agent: The preset; like the model it holds for later messages too.
        model: ``[BACKEND/]MODEL``.
        settings: A plist of what holds for this message only, see ``parse_message_settings``.

    Raises:
        BadRequest: A setting is unknown or of the wrong kind.
    """
    metadata: dict[str, Any] = {"agent": agent} if agent else {}
    if given := message_settings(settings):
        metadata["settings"] = given
    if model:
        provider, _, name = model.rpartition("/")
        metadata["model"] = {"provider_id": provider or None, "model_id": name}
    return metadata


def message_settings(settings: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Return settings as a client gives them, checked, by their names on the wire; raises as ``turn_metadata``."""
    try:
        given = dict(settings) if isinstance(settings, Mapping) else plist_to_dict(list(settings))
    except SexpError as error:
        raise BadRequest(f"settings is no plist: {error}") from None
    parse_message_settings(given)
    return {name: value for name, value in given.items() if value is not None}


def _environment(env: Mapping[str, str] | Sequence[Any]) -> dict[str, str]:
    """Return the client's variables; they travel as a plist, ``(:NAME "value" …)``."""
    try:
        variables = env if isinstance(env, Mapping) else plist_to_dict(list(env))
    except SexpError as error:
        raise BadRequest(f"env is no plist of variables: {error}") from None
    return {name: str(value) for name, value in variables.items() if value is not None}


def told_submitted(made: Submitted) -> dict[str, Any]:
    """Return what became of a message, as its client is told; ``ended`` is nil unless it came before and is over."""
    return {
        "run": made.run_id,
        "message": made.message_id,
        "queued": made.queued,
        "seq": made.seq,
        "ended": made.ended or None,
    }
