"""Reads the keys of a front matter one by one, with errors that name file, line and key.

Spelling is generous, with dashes or with underscores; a value of the wrong kind is an error, never a default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from pyagentd.errors import BadRequest, ConfigError, PresetError
from pyagentd.policy.aliases import canonical_tool
from pyagentd.policy.patterns import normalised, validate_pattern
from pyagentd.policy.profiles import BUILTIN, Profile, compile_action
from pyagentd.policy.servers import WantedServers, read_wanted

_T = TypeVar("_T")
_Choice = TypeVar("_Choice", bound=str)

_FRONT_STARTS_ON_LINE = 2  # of the file: the first line is the delimiter
_NUMBER = r"(\d+(?:\.\d+)?)"
_DURATION = re.compile(rf"(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s?)?")


class Keys:
    """A mapping of the front matter, read key by key with errors that say where."""

    def __init__(self, values: Mapping[str, Any], source: str, prefix: str = "", line: int = 1) -> None:
        self._values = values
        self._source = source
        self._prefix = prefix  # "paths." inside that section
        self._line = line  # where the section itself is

    def missing(self, key: str, example: str) -> NoReturn:
        """Raise the error that a key is not there, with an example of its value."""
        raise PresetError(
            f"{self._source}:{self._line}: `{key}` is missing", mend=f"Add a line such as `{key}: {example}`"
        )

    def section(self, key: str) -> Keys:
        """Return the mapping below a key, empty when it is not there."""
        spelling, value = self._get(key)
        if value is not None and not isinstance(value, Mapping):
            self._wrong(key, value, "keys and values")
        return Keys(value or {}, self._source, f"{key}.", self._line_of(spelling))

    def text(self, key: str) -> str:
        """Return a text without the space around it, "" when it is not there."""
        _, value = self._get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            self._wrong(key, value, "a text: put it in quotes" if isinstance(value, Mapping | list) else "a text")
        return str(value).strip()

    def choice(self, key: str, default: _Choice, choices: tuple[_Choice, ...]) -> _Choice:
        """Return one of ``choices``."""
        value = self.text(key)
        if value and value not in choices:
            self._wrong(key, value, f"one of {', '.join(choices)}")
        return next((choice for choice in choices if choice == value), default)

    def number(self, key: str, low: float, high: float) -> float | None:
        """Return a number between two others, or None."""
        _, value = self._get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            self._wrong(key, value, f"a number from {low} to {high}")
        return float(value)

    def count(self, key: str) -> int | None:
        """Return a whole number above 0, or None."""
        _, value = self._get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self._wrong(key, value, "a whole number above 0")
        return int(value)

    def flag(self, key: str, *, default: bool, must: bool = False) -> bool:
        """Return true or false; with ``must`` anything but true is wrong."""
        _, value = self._get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self._wrong(key, value, "true or false")
        if must and not value:
            self._wrong(key, value, "true: an agent of this name only looks; give one that works another name")
        return value

    def duration(self, key: str) -> float | None:
        """Return seconds, given as a number or as ``90s``, ``10m``, ``1h30m``."""
        _, value = self._get(key)
        if value is None:
            return None
        seconds = 0.0
        if isinstance(value, str) and (found := _DURATION.fullmatch(value.strip())):
            seconds = sum(
                float(number or 0) * unit for number, unit in zip(found.groups(), (3600, 60, 1), strict=True)
            )
        elif isinstance(value, int | float) and not isinstance(value, bool):
            seconds = float(value)
        if not 0 < seconds < float("inf"):
            self._wrong(key, value, "seconds above 0, or a text such as 90s, 10m or 1h30m")
        return seconds

    def profile(self, key: str, other: str, known: Mapping[str, Profile] | None) -> Profile | str | None:
        """Return a profile written out, one of ``known`` or the built-in ones by name, or None."""
        if self._get(key)[1] is None:
            key = other
        spelling, value = self._get(key)
        if value is None:
            return None
        if isinstance(value, str):
            return self._named_profile(key, value.strip(), known)
        if not isinstance(value, Mapping):
            self._wrong(key, value, "the name of a profile, or its lists allow and ask")
        section = Keys(value, self._source, f"{self._prefix}{spelling}.", self._line_of(spelling))
        return section._written_profile()

    def _named_profile(self, key: str, name: str, known: Mapping[str, Profile] | None) -> Profile | str:
        if known is None:
            return name
        profiles = {**BUILTIN, **known}
        if name not in profiles:
            one = f"one of {', '.join(sorted(profiles))}, or lists allow and ask"
            self._wrong(key, name, f"{one}; the daemon reads config.toml when it starts (pyagentd stop)")
        return profiles[name]

    def _written_profile(self) -> Profile:
        for key in self._values:
            if key not in ("allow", "ask"):
                where = f"{self._source}:{self._line_of(str(key))}"
                raise PresetError(
                    f"{where}: `{self._prefix}{key}` is no list of a profile",
                    mend="A profile has allow and ask; what neither matches is denied",
                )
        return Profile(name="custom", allow=self._expressions("allow"), ask=self._expressions("ask"))

    def _expressions(self, key: str) -> tuple[re.Pattern[str], ...]:
        return tuple(self._each(key, compile_action))

    def _each(self, key: str, made: Callable[[str], _T]) -> Iterator[_T]:
        """Yield what ``made`` makes of the texts of a list; its ``BadRequest`` is told with the line."""
        for index, text in enumerate(self.texts(key)):
            try:
                yield made(text)
            except BadRequest as error:
                where = self._line_of_item(key, index)
                raise PresetError(
                    f"{self._source}:{where}: `{self._prefix}{key}`: {error.message}", mend=error.mend
                ) from error

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, empty when it is not there."""
        _, value = self._get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            self._wrong(key, value, "a list of texts")
        return tuple(str(item) for item in value)

    def patterns(self, key: str) -> tuple[str, ...]:
        """Return a list of path patterns."""
        return tuple(self._each(key, _pattern))

    def directories(self, key: str) -> tuple[str, ...]:
        """Return a list of relative directory patterns."""
        return tuple(self._each(key, _relative))

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

    def servers(self, key: str) -> WantedServers | None:
        """Return which servers of tools are wanted, see ``servers``; None when it is not there."""
        spelling, value = self._get(key)
        if value is None:
            return None
        try:
            return read_wanted(value, f"{self._source}:{self._line_of(spelling)}")
        except ConfigError as error:
            raise PresetError(error.message, mend=error.mend) from error

    def _get(self, key: str) -> tuple[str, Any]:
        """Return the spelling used, with dashes or with underscores, and the value or None."""
        for spelling in (key, key.replace("-", "_"), key.replace("_", "-")):
            if spelling in self._values:
                return spelling, self._values[spelling]
        return key, None

    def _wrong(self, key: str, value: object, wanted: str) -> NoReturn:
        spelling, _ = self._get(key)
        shown = f"{value!r}" if isinstance(value, str | int | float) else _kind(value)
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


def _kind(value: object) -> str:
    """Return what a value that is no text or number is called in YAML."""
    match value:
        case Mapping():
            return "keys and values"
        case list():
            return "a list"
        case None:
            return "empty"
    return f"a {type(value).__name__}"


def _relative(text: str) -> str:
    if text.startswith(("/", "~")):
        raise BadRequest(
            f"The pattern {text!r} is not relative", mend="It is about directories below that of the notes"
        )
    validate_pattern(f"/{text}", shown=text)
    return text


def _pattern(text: str) -> str:
    validate_pattern(text)
    return normalised(text)
