"""The rules of the offline stand-in: which tools to call for a prompt; pure.

The first rule of ``RULES`` that fits the prompt, and whose tool is offered, decides. What it finds is then read, up
to ``READ_AT_MOST`` files in one answer, and that is all: the next answer reports. Who is told to look "yourself" and
to delegate does both, in this order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyagentd.llm.offline_targets import Targets, prose, targets_of
from pyagentd.llm.offline_view import View, found_files

READ_AT_MOST = 3

_SPAWN = re.compile(r"\b(sub-?agents?|agents?|explorers?|delegat\w*|spawn\w*|PersistentAgent)\b", re.IGNORECASE)
_MISSION = re.compile(r"\bmissions?\b", re.IGNORECASE)
_SIGNATURE = re.compile(r"`([{\[:][^`\n]*)`")
_YOURSELF = re.compile(r"\byourself\b", re.IGNORECASE)
_TOLD = re.compile(
    r"\b(?:agents?|explorer)\s+((?:find|look|read|search|list|check|report|tell)\b.{4,})", re.IGNORECASE | re.DOTALL
)
_ERRAND = re.compile(r"\b(?:to|that|which|who|and have it|should)\s+(.{8,})", re.IGNORECASE | re.DOTALL)
_COMMAND = re.compile(r"\b(?:run|execute)\s+(?:the\s+command\s+)?`([^`\n]+)`", re.IGNORECASE)
_WRITE = re.compile(r"\bwrite\s+[`\"“]([^`\"”]+)[`\"”]\s+(?:in)?to\s+`?([\w./~-]+[\w/])`?", re.IGNORECASE)
_SEARCH = re.compile(r"\b(?:grep|search)\b.*?\bfor\s+[`\"“]([^`\"”\n]+)[`\"”]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool to call."""

    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """``calls`` returns the inputs to call ``tool`` with, none when the rule does not fit."""

    tool: str
    calls: Callable[[View], Iterable[Mapping[str, Any]]]


def plan(view: View) -> tuple[Call, ...]:
    """Return the calls to make next, all at once; none when it is time to report."""
    looks_too = _YOURSELF.search(view.prompt) is not None
    if not view.exchanges:
        rules = (*RULES[1:], RULES[0]) if looks_too else RULES
        return next((calls for rule in rules if (calls := _apply(rule, view))), ())
    if all(exchange.name == "Glob" for exchange in view.exchanges) and "Read" in view.tools:
        found = [path for one in view.exchanges if not one.is_error for path in found_files(one)]
        return tuple(Call("Read", _read(view, path)) for path in found[:READ_AT_MOST])
    if looks_too and all(exchange.name != "PersistentAgent" for exchange in view.exchanges):
        return _apply(RULES[0], view)
    return ()


def wanted(view: View) -> str:
    """Return the name of the tool that the prompt calls for and nobody offered, or ""."""
    offered = any(rule.tool in view.tools and [*rule.calls(view)] for rule in RULES)
    return "" if offered else next((rule.tool for rule in RULES if [*rule.calls(view)]), "")


def _apply(rule: Rule, view: View) -> tuple[Call, ...]:
    if rule.tool not in view.tools:
        return ()
    return tuple(Call(rule.tool, arguments) for arguments in rule.calls(view))


def _delegations(view: View) -> Iterable[Mapping[str, Any]]:
    if not _SPAWN.search(prose(view.prompt)):
        return
    targets = targets_of(view.prompt) or Targets(globs=("*",))
    names = targets.globs + targets.files
    yield {
        "preset": _preset(view),
        "description": f"look at {names[0]}",
        "prompt": _errand(view.prompt, targets),
    }


def _missions(view: View) -> Iterable[Mapping[str, Any]]:
    if not _MISSION.search(prose(view.prompt)):
        return
    stated = _SIGNATURE.search(view.prompt)
    signature = stated[1] if stated else "{files [{path :string, lines :int}], total :int}"
    yield {"prompt": _SIGNATURE.sub("", view.prompt).strip(), "signature": signature}


def _preset(view: View) -> str:
    """Return the preset that the prompt names, else explorer, else the first one offered."""
    schema = view.tools.get("PersistentAgent", {})
    names: list[str] = schema.get("properties", {}).get("preset", {}).get("enum") or ["explorer"]
    said = set(re.findall(r"[\w-]+", view.prompt.lower()))
    return next((name for name in names if name.lower() in said), "explorer" if "explorer" in names else names[0])


def _errand(prompt: str, targets: Targets) -> str:
    """Return what the agent is told: the errand in the prompt's words, unless they would make it delegate too."""
    report = f"Find and read {targets}, and report the names, the number of lines and the first headings."
    said = _TOLD.search(prompt) or _ERRAND.search(prompt)
    if said is None or _SPAWN.search(prose(said[1])):
        return report
    errand = said[1].strip().rstrip(".")
    return f"{errand[0].upper()}{errand[1:]}. {report}"


def _commands(view: View) -> Iterable[Mapping[str, Any]]:
    behind = {"run_in_background": True, **({"wake": True} if "wake" in view.prompt.lower() else {})}
    for command in _COMMAND.findall(view.prompt):
        is_behind = f"`{command}` in the background" in view.prompt
        yield {"command": command, **(behind if is_behind else {})}


def _writes(view: View) -> Iterable[Mapping[str, Any]]:
    for content, path in _WRITE.findall(view.prompt):
        yield {"file_path": path, "content": f"{content}\n"}


def _searches(view: View) -> Iterable[Mapping[str, Any]]:
    for pattern in _SEARCH.findall(view.prompt):
        yield {"pattern": re.escape(pattern)}


def _reads(view: View) -> Iterable[Mapping[str, Any]]:
    return (_read(view, path) for path in targets_of(view.prompt).files[:READ_AT_MOST])


def _globs(view: View) -> Iterable[Mapping[str, Any]]:
    return ({"pattern": pattern} for pattern in targets_of(view.prompt).globs[:READ_AT_MOST])


def _read(view: View, path: str) -> Mapping[str, Any]:
    properties = view.tools.get("Read", {}).get("properties", {})
    return {"path" if "path" in properties else "file_path": path}


RULES = (
    Rule("PersistentAgent", _delegations),  # agent, explorer, sub-agent, delegate, spawn
    Rule("mission", _missions),  # a mission that returns `{count :int}`
    Rule("Bash", _commands),  # run `make test`, run `make` in the background and wake
    Rule("Write", _writes),  # write `text` to notes.md
    Rule("Grep", _searches),  # search for `TODO`
    Rule("Read", _reads),  # README.md, pyagentd/clock.py
    Rule("Glob", _globs),  # presets/*.md, pyagentd/llm, "list the files", "the presets"
)
