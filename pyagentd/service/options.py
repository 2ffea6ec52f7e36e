"""What a client says about a run it starts: its environment, its key, what it allows beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyagentd.agent.settings import SendOptions
from pyagentd.errors import BadRequest
from pyagentd.policy.profiles import compile_action
from pyagentd.service.group import Client
from pyagentd.sexp import SexpError, plist_to_dict


def send_options(
    client: Client, env: Mapping[str, str] | Sequence[Any], key: str | None, allow: Sequence[str]
) -> SendOptions:
    """Return what a client wants of the run it starts.

    Raises:
        BadRequest: ``allow`` has something that is no regular expression, or ``env`` is no plist.
    """
    grants = tuple(map(compile_action, allow))
    return SendOptions(interactive=client.human, env=_environment(env), api_key=key, grants=grants)


def _environment(env: Mapping[str, str] | Sequence[Any]) -> dict[str, str]:
    """Return the client's variables; they travel as a plist, ``(:NAME "value" …)``."""
    try:
        variables = env if isinstance(env, Mapping) else plist_to_dict(list(env))
    except SexpError as error:
        raise BadRequest(f"env is no plist of variables: {error}") from None
    return {name: str(value) for name, value in variables.items() if value is not None}
