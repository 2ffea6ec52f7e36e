"""Which tools a model is told about: not those that its profile denies for every detail.

Hiding a tool spares the model a refusal; the decision itself is made anew for every call. So a tool is hidden only
when it is certain that nothing it could do would pass: an expression is asked whether the beginning that all actions
of the tool share can be continued to a match.
"""

from __future__ import annotations

import re
from functools import lru_cache

from pyagentd.policy.aliases import META_TOOLS, action_prefixes, canonical_tool
from pyagentd.policy.profiles import Profile

# What looks at the end of the text, where the partial matcher takes the end of what is known for the end of all, and
# what ``regex`` reads differently from ``re``: such an expression may match anything.
_UNSURE = re.compile(r"\\[bBZzGKmMXRLpPN]|\$(?!\Z)|\[\[|\{(?![\d,])|\(\?\(|--|&&|\|\||~~")


def offered(profile: Profile | None, tool: str) -> bool:
    """Return whether some action of ``tool`` may pass ``profile``; no profile denies nothing."""
    if profile is None or canonical_tool(tool) in META_TOOLS:
        return True
    patterns = [pattern.pattern for pattern in (*profile.allow, *profile.ask)]
    return any(_may_match(pattern, prefix) for prefix in action_prefixes(tool) for pattern in patterns)


@lru_cache(maxsize=4096)
def _may_match(pattern: str, prefix: str) -> bool:
    """Return False only when no text that begins with ``prefix`` is matched by ``pattern``."""
    if _UNSURE.search(pattern):
        return True
    import regex  # it takes a while, and most sessions have no profile

    try:
        return regex.fullmatch(pattern, prefix, regex.DOTALL | regex.VERSION0, partial=True, timeout=1.0) is not None
    except (regex.error, TimeoutError):
        return True
