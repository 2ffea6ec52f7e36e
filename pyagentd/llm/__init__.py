"""Models: one streaming protocol over every provider, retries, and the offline stand-in.

``backend`` holds the vocabulary and ``factory`` makes backends; neither imports a provider's SDK, which takes about a
second. The modules named below do, when the first of their names is used.
"""

from typing import TYPE_CHECKING

from pyagentd.door import door

if TYPE_CHECKING:
    from pyagentd.llm import anthropic, catalog, clouds, gemini, offline, openai, responses
else:
    __getattr__ = door(__name__, "anthropic", "catalog", "clouds", "gemini", "offline", "openai", "responses")

__all__ = ["anthropic", "catalog", "clouds", "gemini", "offline", "openai", "responses"]
