"""What the front matter of a preset means.

Spelling is generous (``include-tool-results`` or ``include_tool_results``, tools as a list, a line or a table, names
of other systems' tools, unknown keys ignored: DD-42, DD-46), meaning is strict: a value of the wrong kind is an
error that names its line, never a default. No ``paths`` means no path, no ``shell_commands`` no command.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, TypeVar, get_args

from pyagentd.errors import BadRequest, PresetError
from pyagentd.policy.aliases import canonical_tool
from pyagentd.policy.patterns import normalised, validate_pattern
from pyagentd.policy.profiles import Profile
from pyagentd.policy.roam import Roam

DEFAULT_PRESET = "programming-assistant"

Mode = Literal["primary", "subagent", "all"]
Result = Literal["all", "last"]
_Choice = TypeVar("_Choice", bound=str)

_FRONT_STARTS_ON_LINE = 2  # of the file: the first line is the delimiter


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Where tools may act: absolute glob patterns, see ``patterns``."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Which commands may run."""

    allow: tuple[str, ...] = ()  # first words of a command, or "*"
    deny: tuple[str, ...] = ()  # texts that must not occur in it
    network: bool = False  # a confined command may reach the network
    confine: bool = True  # commands see only the agent's scope, where the system can do that


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """The configuration of a branch or an agent, or a template for one."""

    name: str  # the file's, without .md
    backend: str
    model: str  # "": the backend's own
    description: str = ""
    mode: Mode = "all"  # who may use it: the user, a parent agent, or both
    temperature: float | None = None  # None: the model's own
    max_tokens: int | None = None
    tools: tuple[str, ...] = ()  # our names; whether a tool of that name exists is not known here
    include_tool_results: bool = True
    paths: Paths = field(default_factory=Paths)
    shell: Commands = field(default_factory=Commands)
    body: str = ""  # the system message
    result: Result = "all"  # what of an agent's answer its parent gets: all its text, or what followed its last tool
    profile: Profile | str | None = None  # one written out, the name of one, or none
    roam: Roam = field(default_factory=Roam)
    max_turns: int | None = None  # requests to the model in one run; None: no limit
    time_budget_s: float | None = None  # of one run
    token_budget: int | None = None  # input and output of one run


def parse_preset(name: str, front: Mapping[str, Any], body: str, source: str) -> Preset:
    """Return the preset that a file describes.

    Args:
        name: What it is called.
        front: The front matter; one that knows its lines (``lc``) makes errors name them.
        body: What follows the front matter.
        source: The file, for errors.

    Raises:
        PresetError: A value is missing or of the wrong kind; names file, line and key.
    """
    keys = _Keys(front, source)
    paths = keys.section("paths")
    shell = keys.section("shell_commands")
    return Preset(
        name=name,
        backend=keys.text("backend") or keys.missing("backend", "Claude"),
        model=keys.text("model"),
        description=" ".join(keys.text("description").split()),
        mode=keys.choice("mode", "all", get_args(Mode)),
        temperature=keys.number("temperature", 0, 2),
        max_tokens=keys.count("max-tokens"),
        tools=keys.tools("tools"),
        include_tool_results=keys.flag("include-tool-results", default=True),
        paths=Paths(read=paths.patterns("read"), write=paths.patterns("write"), deny=paths.patterns("deny")),
        shell=Commands(allow=shell.texts("allow"), deny=shell.texts("deny")),
        body=body.strip(),
        result=keys.choice("result", "all", get_args(Result)),
    )


class _Keys:
    """A mapping of the front matter, read key by key with errors that say where."""

    def __init__(self, values: Mapping[str, Any], source: str, prefix: str = "", line: int = 1) -> None:
        self._values = values
        self._source = source
        self._prefix = prefix  # "paths." inside that section
        self._line = line  # where the section itself is

    def missing(self, key: str, example: str) -> NoReturn:
        raise PresetError(
            f"{self._source}:{self._line}: `{key}` is missing", mend=f"Add a line such as `{key}: {example}`"
        )

    def section(self, key: str) -> _Keys:
        spelling, value = self._get(key)
        if value is not None and not isinstance(value, Mapping):
            self._wrong(key, value, "keys and values")
        return _Keys(value or {}, self._source, f"{key}.", self._line_of(spelling))

    def text(self, key: str) -> str:
        _, value = self._get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            self._wrong(key, value, "a text")
        return str(value).strip()

    def choice(self, key: str, default: _Choice, choices: tuple[_Choice, ...]) -> _Choice:
        value = self.text(key)
        if value and value not in choices:
            self._wrong(key, value, f"one of {', '.join(choices)}")
        return next((choice for choice in choices if choice == value), default)

    def number(self, key: str, low: float, high: float) -> float | None:
        _, value = self._get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            self._wrong(key, value, f"a number from {low} to {high}")
        return float(value)

    def count(self, key: str) -> int | None:
        _, value = self._get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self._wrong(key, value, "a whole number above 0")
        return int(value)

    def flag(self, key: str, *, default: bool) -> bool:
        _, value = self._get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self._wrong(key, value, "true or false")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        _, value = self._get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            self._wrong(key, value, "a list of texts")
        return tuple(str(item) for item in value)

    def patterns(self, key: str) -> tuple[str, ...]:
        patterns = self.texts(key)
        for index, pattern in enumerate(patterns):
            try:
                validate_pattern(pattern)
            except BadRequest as error:
                where = self._line_of_item(key, index)
                raise PresetError(
                    f"{self._source}:{where}: `{self._prefix}{key}`: {error.message}", mend=error.mend
                ) from error
        return tuple(map(normalised, patterns))

    def tools(self, key: str) -> tuple[str, ...]:
        """Return tools given as a list, as words of one line, or as a table of ``NAME: {allowed: true}``."""
        _, value = self._get(key)
        if isinstance(value, str):
            names = re.findall(r"[^\s,]+", value)
        elif isinstance(value, Mapping):
            names = [str(tool) for tool, rule in value.items() if isinstance(rule, Mapping) and rule.get("allowed")]
        else:
            names = list(self.texts(key))
        return tuple(dict.fromkeys(map(canonical_tool, names)))

    def _get(self, key: str) -> tuple[str, Any]:
        """Return the spelling used, with dashes or with underscores, and the value or None."""
        for spelling in (key, key.replace("-", "_"), key.replace("_", "-")):
            if spelling in self._values:
                return spelling, self._values[spelling]
        return key, None

    def _wrong(self, key: str, value: object, wanted: str) -> NoReturn:
        spelling, _ = self._get(key)
        shown = f"{value!r}" if isinstance(value, str | int | float) else f"a {type(value).__name__}"
        raise PresetError(
            f"{self._source}:{self._line_of(spelling)}: `{self._prefix}{spelling}` is {shown}",
            mend=f"It should be {wanted}",
        )

    def _line_of(self, key: str) -> int:
        lines = getattr(self._values, "lc", None)
        if lines is None or key not in self._values:
            return self._line
        return int(lines.key(key)[0]) + _FRONT_STARTS_ON_LINE

    def _line_of_item(self, key: str, index: int) -> int:
        lines = getattr(self._get(key)[1], "lc", None)
        return self._line_of(key) if lines is None else int(lines.item(index)[0]) + _FRONT_STARTS_ON_LINE
