"""Which notes of org-roam a tool may touch: ``org_roam_patterns`` of a preset (neighbours A.7).

A note has no path that says what it is about, so these rules speak of the directory below the notes', of tags and of
node ids. Making a node needs an allowed directory *or* one allowed tag; tagging one allowed tag; linking needs ``*``
in ``node_ids``, since both ends of a link are touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

from pyagentd.policy.patterns import first_match


@dataclass(frozen=True, slots=True, kw_only=True)
class Roam:
    """What a preset allows."""

    subdirectory: tuple[str, ...] = ()  # globs of directories below the notes', such as ``gptel/**``
    tags: tuple[str, ...] = ()  # exact
    node_ids: tuple[str, ...] = ()  # exact, or ``*``


@dataclass(frozen=True, slots=True, kw_only=True)
class RoamTarget:
    """What a call is about."""

    operation: Literal["create", "tag", "link"]
    subdirectory: str = ""  # relative to the notes' directory
    tags: tuple[str, ...] = ()


def refusal(target: RoamTarget, rules: Roam) -> str | None:
    """Return why ``rules`` do not admit ``target``, as the end of a sentence; None when they do."""
    match target.operation:
        case "create":
            if _inside(target.subdirectory, rules) or _tagged(target, rules):
                return None
            return (
                f"neither is {target.subdirectory or 'the notes directory itself'!r} in "
                f"`org_roam_patterns.subdirectory` ({_listed(rules.subdirectory)}) nor has it a tag of "
                f"`org_roam_patterns.tags` ({_listed(rules.tags)})"
            )
        case "tag":
            if _tagged(target, rules):
                return None
            return f"none of its tags is in `org_roam_patterns.tags` ({_listed(rules.tags)})"
        case "link":
            return None if "*" in rules.node_ids else 'linking needs "*" in `org_roam_patterns.node_ids`'
        case _:
            assert_never(target.operation)


def _inside(subdirectory: str, rules: Roam) -> bool:
    segments = [segment for segment in subdirectory.split("/") if segment not in ("", ".")]
    if not segments or ".." in segments or "\0" in subdirectory or subdirectory.startswith(("/", "~")):
        return False
    return first_match(rules.subdirectory, "/".join(segments)) is not None


def _tagged(target: RoamTarget, rules: Roam) -> bool:
    return any(tag in rules.tags for tag in target.tags)


def _listed(allowed: tuple[str, ...]) -> str:
    return ", ".join(allowed) or "which is empty"
