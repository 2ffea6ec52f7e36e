"""Servers of the Model Context Protocol: their tools, resources and prompts, through the official SDK.

The SDK takes most of a second to load, so only ``link`` and ``stdio`` import it, and those are loaded in a thread
when the first server is started. Nothing here decides whether a call may happen: a tool of a server is a ``ToolSpec``
like any other, and its action is ``mcp:<server>:<tool>``.
"""
