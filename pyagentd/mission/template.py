"""Prompts with placeholders: a subset of Mustache (SPEC 004 Template Syntax)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from pyagentd.errors import TemplateError

__all__ = ["TemplateError", "TextOf", "expand", "placeholders"]

TextOf: TypeAlias = Callable[[tuple[str, ...], Any], str]
"""Turns the value found at a path into text; the only way a value gets into a prompt."""


def placeholders(text: str) -> tuple[str, ...]:
    """Return the names that ``text`` takes from its context, dotted, each once, in order of appearance."""
    raise NotImplementedError


def expand(text: str, context: Mapping[Any, Any], text_of: TextOf) -> str:
    """Return ``text`` with values of ``context`` in place of its placeholders.

    Raises:
        TemplateError: The template is malformed, or keys are missing: all of them are listed.
    """
    raise NotImplementedError
