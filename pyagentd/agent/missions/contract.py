"""What a mission is asked: the contract of a preset, and the task that a message makes of it.

``signature:`` names inputs and result, ``prompt:`` is a template for what the model is told. Without a template the
message itself is told. Inputs come from whoever starts the mission (the tool, the command line), else from the
message: a JSON object, lines of ``name: value``, or all of it where the contract has one input.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyagentd import jsontext
from pyagentd.agent.missions.valuetext import dumped
from pyagentd.errors import BadRequest, PresetError, PyagentdError
from pyagentd.messages import Message, Text
from pyagentd.mission import firewall
from pyagentd.mission.checkpoint import State
from pyagentd.mission.options import MAX_TURNS
from pyagentd.mission.signature import Field, Signature, SignatureError, parse
from pyagentd.mission.template import expand, placeholders
from pyagentd.policy.presets import Isolation, Preset

EARLIER = "earlier"
"""The input that holds what was asked and answered before in the same session: ``[{prompt, answer}]``."""

MESSAGE = "message"
"""The input that holds a message which looks like a template and is none."""


GO_ON = frozenset({"continue", "resume", "go on"})
"""Messages after a mission that was cut off which have it go on."""

_GIVE = "Give them as the mission's context (--context FILE)"

_GLIMPSE = 200
"""Characters of one value in a task as people read it."""

_LINE = re.compile(r"\s*([A-Za-z_][\w-]*)\s*:\s*(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What a preset promises.

    Attributes:
        signature: Inputs and result.
        prompt: The template; "" for the message itself.
        max_turns: Programs that the model may write.
        isolation: "process" runs them in a process of their own.
    """

    signature: Signature
    prompt: str = ""
    max_turns: int = MAX_TURNS
    isolation: Isolation = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a run is to fulfil that is a mission.

    Attributes:
        contract: What it is to fulfil.
        given: What its message carries (metadata ``mission``): ``{context, template}``; with ``template`` what it
            says is a template, whose names must have values.
        cut_off: The run of the session's last mission, if that came to no answer.
        state: Where that stands; None while no turn of it has ended.
        first: What that was asked at first: ``{prompt, context}``.
        resumes: Whether this one goes on there, whatever its message says.
    """

    contract: Contract
    given: Mapping[str, Any] = field(default_factory=dict)
    cut_off: str = ""
    state: State | None = None
    first: Mapping[str, Any] | None = None
    resumes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One mission: what the model is told, and what stands in ``ctx/``.

    Attributes:
        prompt: What the model is told, a template.
        context: Its data.
        state: What it goes on from, once a turn has ended.
        resumed: The run that it goes on from, or that it begins anew, else "".
        message: The same in words, for people.
    """

    prompt: str
    context: Mapping[str, Any] = field(default_factory=dict)
    state: State | None = None
    resumed: str = ""
    message: str = ""


def readable(text: str, source: str) -> Signature:
    """Return the signature that a preset, a person or a model wrote.

    Raises:
        SignatureError: It is none; names ``source``, line and column, and shows the place.
    """
    try:
        return parse(text)
    except SignatureError as error:
        place = f", line {error.line}, column {error.column}" if error.line else ""
        shown = f"{caret}\n" if (caret := error.caret()) else ""
        raise SignatureError(
            f"{shown}{source}{place}: {error.message}",
            source=error.source,
            line=error.line,
            column=error.column,
            mend=error.mend,
        ) from error


def contract_of(preset: Preset) -> Contract:
    """Return what a preset with a signature promises.

    Raises:
        PresetError: Its signature or its template cannot be read.
    """
    try:
        signature = readable(preset.signature, f"`signature` of the preset {preset.name}")
        placeholders(preset.prompt)
    except PyagentdError as error:
        raise PresetError(error.message, mend=error.mend) from error
    return Contract(
        signature=signature,
        prompt=preset.prompt,
        max_turns=preset.max_turns or MAX_TURNS,
        isolation=preset.isolation,
    )


def task_of(mission: Assignment, view: Sequence[Message], said: str | None = None) -> Task:
    """Return what the message that ends ``view`` asks of a mission.

    Args:
        mission: What is known of it.
        view: The conversation; messages that nobody answered are one with what follows them.
        said: The last message alone.

    Raises:
        BadRequest: It does not say what the inputs are.
    """
    message, before = _asked(view)
    message = message if said is None else said
    if mission.cut_off and (mission.resumes or message.strip().rstrip(".!").lower() in GO_ON):
        return _again(mission)
    contract, given = mission.contract, mission.given.get("context")
    context: dict[str, Any] = {EARLIER: before} if before else {}
    is_template = bool(mission.given.get("template")) and not contract.prompt
    if isinstance(given, Mapping):
        context |= given
    elif not is_template:
        context |= _inputs(contract, message)
    if contract.prompt:
        return Task(prompt=contract.prompt, context=context, message=expanded(contract.prompt, context))
    if is_template:
        if lacking := [each.name for each in contract.signature.params if _needs(each, context)]:
            raise BadRequest(f"The signature has inputs without a value: {', '.join(lacking)}", mend=_GIVE)
        return Task(prompt=message, context=context, message=expanded(message, context))
    return _literal(message, context)


def _needs(field: Field, context: Mapping[str, Any]) -> bool:
    return field.name not in context and not field.optional and not field.type.is_optional


def expanded(template: str, context: Mapping[str, Any]) -> str:
    """Return a template as people read it, its values shortened and hidden where they are for programs only."""
    try:
        return expand(template, context, _glimpse)
    except PyagentdError:  # the mission says so
        return template


def _glimpse(path: Sequence[str], value: Any) -> str:
    public = firewall.HIDDEN if any(map(firewall.is_firewalled, path)) else firewall.public(value)
    text = public if isinstance(public, str) else dumped(public)
    return text if len(text) <= _GLIMPSE else f"{text[:_GLIMPSE]}…"


def _again(mission: Assignment) -> Task:
    """Return the task of a mission that was cut off: from where it stands, or from its beginning."""
    if mission.state is not None:
        message = str((mission.first or {}).get("message") or "")
        return Task(prompt=mission.state.prompt, state=mission.state, resumed=mission.cut_off, message=message)
    first = mission.first or {}
    prompt, context = first.get("prompt", ""), first.get("context") or {}
    return Task(prompt=prompt, context=context, resumed=mission.cut_off, message=first.get("message") or "")


def _literal(message: str, context: Mapping[str, Any]) -> Task:
    """Return a task told in the words of a message, which may hold braces that mean nothing."""
    if _fits(message, context):
        return Task(prompt=message, context=context, message=expanded(message, context))
    return Task(prompt=f"{{{{{MESSAGE}}}}}", context={**context, MESSAGE: message}, message=message)


def _fits(message: str, context: Mapping[str, Any]) -> bool:
    """Return whether a message can be expanded as a template: a text that has no placeholder can."""
    if "{{" not in message:
        return True
    try:
        return {name.partition(".")[0] for name in placeholders(message)} <= context.keys()
    except PyagentdError:
        return False


def _inputs(contract: Contract, message: str) -> dict[str, Any]:
    """Return the inputs of a contract as a message gives them."""
    names = [each.name for each in contract.signature.params]
    if not names:
        return {}
    written = _written(message)
    if written is not None and set(written) & set(names):
        return written
    if len(names) == 1:
        return {names[0]: message}
    raise BadRequest(
        f"This is a mission with the inputs {', '.join(names)}, and the message does not say what they are",
        mend=f"Write one a line, as in `{names[0]}: …`, or a JSON object",
    )


def _written(message: str) -> dict[str, Any] | None:
    """Return the mapping that a message is written as, in JSON or in lines; None when it is prose."""
    text = message.strip()
    if text.startswith("{"):
        try:
            found = jsontext.parse(text)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None
    lines = [_LINE.fullmatch(line) for line in text.splitlines() if line.strip()]
    if not lines or None in lines:
        return None
    return {found[1]: _value(found[2]) for found in lines if found is not None}


def _value(text: str) -> Any:
    """Return what a line gives: JSON where it is some, else its text."""
    try:
        return jsontext.parse(text)
    except ValueError:
        return text.strip()


def _asked(view: Sequence[Message]) -> tuple[str, list[dict[str, str]]]:
    """Return the last message of the user, and what was asked and answered before it."""
    turns: list[dict[str, str]] = []
    for message in view:
        texts = [part.text for part in message.parts if isinstance(part, Text)]
        if message.role == "user" and texts:
            turns.append({"prompt": "\n\n".join(texts), "answer": ""})
        elif message.role == "assistant" and texts and turns:
            turns[-1]["answer"] = texts[-1]
    return (turns[-1]["prompt"] if turns else "", [turn for turn in turns[:-1] if turn["answer"]])
