"""Servers of the Model Context Protocol: their tools, resources and prompts, through the official SDK.

The SDK takes most of a second to load, so only ``link`` imports it, in a thread when the first server is started.
Nothing here decides whether a call is allowed: a tool of a server is a ``ToolSpec`` like any other, and its action is
``mcp:<server>:<tool>``.
"""

from typing import TYPE_CHECKING

from pyagentd import door

if TYPE_CHECKING:
    from pyagentd.tools.mcp import link
else:
    __getattr__ = door(__name__, "link")

__all__ = ["link"]
