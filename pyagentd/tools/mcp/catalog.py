"""What a server offers, as values: tools, resources and prompts. Knows nothing of the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LONGEST_NAME = 200  # characters


def is_name(text: str) -> bool:
    """Return whether a server may call a tool or a prompt so: people are asked about it, on one line."""
    return 0 < len(text) <= LONGEST_NAME and text.isprintable()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTool:
    """One tool, as its server describes it; every word of it is somebody else's."""

    name: str
    description: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)  # JSON Schema of its arguments
    only_looks: bool = False  # says the server


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerResource:
    """One resource, or a template of many, whose ``uri`` then has names in braces."""

    uri: str
    name: str = ""
    description: str = ""
    mime: str = ""
    template: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPrompt:
    """One prompt; its arguments are texts."""

    name: str
    description: str = ""
    arguments: tuple[tuple[str, bool], ...] = ()  # name, and whether it has to be given


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """What is known of a server since it was first asked."""

    tools: tuple[ServerTool, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()  # tools that cannot be offered: name, and why
    has_resources: bool = False
    has_prompts: bool = False
    title: str = ""  # how it calls itself, with its version
    protocol: str = ""  # the version that is spoken


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One part of what a server answers."""

    text: str = ""
    data: bytes | None = None  # of an image, a sound, a file
    mime: str = ""
    uri: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What a call gave."""

    pieces: tuple[Piece, ...]
    structured: Any = None  # the same as JSON, where the server says so
    ok: bool = True
