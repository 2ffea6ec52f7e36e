"""Commands under a scope, with what this machine can confine them with."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pyagentd.tools.sandbox import enclosure
from pyagentd.tools.sandbox.enclosure import bubblewrap
from pyagentd.tools.sandbox.plan import ShellScope
from pyagentd.tools.spec import ToolContext

MISSING = {
    "bubblewrap": None if bubblewrap() is not None else "bwrap is not installed, or may not make namespaces here",
    "landlock": None if enclosure.abi() else "this kernel has no Landlock",
}

STANDARD_DENY = ("**/.git/**", "**/runtime/**", "**/.env", "**/node_modules/**")

MECHANISMS = [
    pytest.param(name, marks=pytest.mark.skipif(reason is not None, reason=reason or ""))
    for name, reason in MISSING.items()
]

needs_bubblewrap = pytest.mark.skipif(MISSING["bubblewrap"] is not None, reason=MISSING["bubblewrap"] or "")


def scope(root: Path, **changes: object) -> ShellScope:
    """A scope as a session made in a project has it, but without /tmp, where tests keep everything."""
    patterns = (f"{root}/**",)
    made = ShellScope(read=patterns, write=patterns, deny=STANDARD_DENY, commands=("*",), network=False)
    return replace(made, **changes)  # type: ignore[arg-type]


def within(ctx: ToolContext, rules: ShellScope) -> ToolContext:
    """Return ``ctx`` for commands under ``rules``."""
    return replace(ctx, scope=lambda: rules, env={"PATH": os.environ["PATH"]})
