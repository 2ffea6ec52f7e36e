"""When and how a conversation is compacted: the table ``[compaction]`` of ``config.toml`` (neighbours B.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pyagentd.config.file import ConfigFile
from pyagentd.config.setting import Setting
from pyagentd.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """How conversations are kept within a model's window.

    Attributes:
        auto: Compact when the conversation reaches the threshold; by hand it can be done anyway.
        reserve_tokens: Kept free below the window, or the model's longest answer where that is less.
        tail_turns: How many of the user's turns stay verbatim.
        tail_budget_pct: How much of what is usable they may take, from 0 to 1.
        retry_on_transient: How often a summary that failed for now is tried again.
        prune_tool_outputs: Try without old tool outputs: before anything is summarised, and for what is too long.
        chunked_summarize: Summarise in pieces what is too long for one request.
        drop_middle: Leave out the middle of what is too long even in pieces.
        model: Who summarises, of the run's backend; "" is the run's own model.
        max_tokens: Of a summary.
        timeout_s: How long one summary may take, retries included.
    """

    auto: bool = True
    reserve_tokens: int = 20_000
    tail_turns: int = 2
    tail_budget_pct: float = 0.25
    retry_on_transient: int = 2
    prune_tool_outputs: bool = True
    chunked_summarize: bool = True
    drop_middle: bool = True
    model: str = ""
    max_tokens: int = 2048
    timeout_s: float = 60.0


COMPACTION_KEYS = frozenset(each.name for each in fields(CompactionSettings))


def compaction_table(file: ConfigFile) -> tuple[CompactionSettings, dict[str, Setting]]:
    """Return what is configured, and every value with where it is from, by its dotted name.

    Raises:
        ConfigError: A value is not possible; names file and line.
    """
    table: Mapping[str, Any] = file.data.get("compaction", {})
    for key, value in table.items():
        if problem := _problem(key, value):
            place = file.place(f"compaction.{key}")
            raise ConfigError(f"{place}: compaction.{key} is {value!r}, which is no {problem}")
    made = CompactionSettings(**table)
    shown = {}
    for each in fields(made):
        dotted = f"compaction.{each.name}"
        value = getattr(made, each.name)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        shown[dotted] = Setting(text, file.place(dotted) if each.name in table else "default")
    return made, shown


def _problem(key: str, value: object) -> str:
    """Return what ``value`` is not, "" when it may be the value of ``key``."""
    match getattr(CompactionSettings(), key):
        case bool():
            return "" if isinstance(value, bool) else "true or false"
        case str():
            return "" if isinstance(value, str) else "string"
        case int():
            least = 0 if key in ("reserve_tokens", "retry_on_transient") else 1
            return "" if type(value) is int and value >= least else f"whole number from {least}"
        case _ if key == "tail_budget_pct":
            return "" if type(value) in (int, float) and 0 < float(str(value)) < 1 else "number between 0 and 1"
    return "" if type(value) in (int, float) and float(str(value)) > 0 else "number above 0"
