"""Models: one streaming protocol over every provider, retries, and the offline stand-in.

``backend`` defines the types of requests and answers, ``factory`` makes backends; neither imports a provider's SDK,
which takes about a second. The modules named below do, on first use of one of their names.
"""

from typing import TYPE_CHECKING

from pyagentd import door

if TYPE_CHECKING:
    from pyagentd.llm import anthropic, catalog, clouds, gemini, offline, openai, responses
else:
    __getattr__ = door(__name__, "anthropic", "catalog", "clouds", "gemini", "offline", "openai", "responses")

__all__ = ["anthropic", "catalog", "clouds", "gemini", "offline", "openai", "responses"]
