"""Answers of scripted models."""

from pyagentd.mission.registry import Scripted

RETURN_1 = '(call "return" 1)'


def code(*programs: str) -> str:
    return "\n".join(f"```clojure\n{program}\n```" for program in programs)


def told(llm: Scripted, request: int = -1) -> str:
    """Return the last message of a request."""
    return llm.requests[request]["messages"][-1]["content"]
