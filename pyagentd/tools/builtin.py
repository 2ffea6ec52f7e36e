"""The tools every agent can be given by name."""

from pyagentd.tools.read import READ
from pyagentd.tools.search import GLOB, GREP
from pyagentd.tools.shell import BASH
from pyagentd.tools.spec import ToolSpec
from pyagentd.tools.write import EDIT, WRITE


def builtin_tools() -> dict[str, ToolSpec]:
    """Return the built-in tools by name, in the order they are offered."""
    return {spec.name: spec for spec in (READ, WRITE, EDIT, GLOB, GREP, BASH)}
