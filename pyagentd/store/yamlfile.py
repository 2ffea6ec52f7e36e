"""Reads and writes YAML; the only module that imports the YAML library.

Metadata is read as plain text values (a session called ``2026`` keeps its name, a time stays as written); front
matter is read so that comments, key order and quoting come out as they went in.
"""

import io
import re
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.constructor import ConstructorError, RoundTripConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import Node
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

_NEVER_WRAP = 1 << 20

# The library needs 0.3 ms for a word, and time quadratic in the depth. These limits are ten times above usual files.
_LONGEST = 100_000  # characters
_MOST_PIECES = 5_000  # lines, commas and brackets
_DEEPEST = 100  # brackets within each other
_MOST_ALIASES = 10  # each may stand for all that was before
_PIECES = re.compile(r"[\n,\[\]{}]")
_BRACKETS = re.compile(r"[\[\]{}]")
_ALIAS = re.compile(r"(?<![^\s,\[{:])\*[A-Za-z0-9_-]+")

# The form `dump_texts` gives to values without escapes; a line end of YAML's own or a byte order mark is no such
# value. Tens of thousands of such files are read for a list of sessions, and one is written
# for each agent; the library takes a millisecond for each.
_PLAIN_TEXT = r"[\x20\x21\x23-\x5b\x5d-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe]*"
_PLAIN_LINE = rf'([A-Za-z_][A-Za-z0-9_-]{{0,63}}): "({_PLAIN_TEXT})"\n'
_PLAIN_LINES = re.compile(f"(?:{_PLAIN_LINE})+")
_PLAIN = re.compile(_PLAIN_LINE)
# Unquoted, these words are no texts as keys.
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


class Malformed(Exception):
    """The text is not YAML; ``line`` counts from 1 and is None when the library cannot say."""

    def __init__(self, problem: str, line: int | None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line


def load_texts(text: str) -> dict[str, str]:
    """Return the top-level keys of ``text`` with plain keys and values, each value as written.

    Raises:
        Malformed: ``text`` is not a YAML mapping.
    """
    if _PLAIN_LINES.fullmatch(text):
        pairs = _PLAIN.findall(text)
        if len(values := dict(pairs)) == len(pairs):
            return values
    loaded = _load(YAML(typ="base", pure=True, plug_ins=[]), text)
    if not isinstance(loaded, Mapping):
        raise Malformed("it is not a mapping of keys to values", None)
    return {key: value for key, value in loaded.items() if isinstance(key, str) and isinstance(value, str)}


def dump_texts(values: Mapping[str, str]) -> str:
    """Return ``values`` as YAML, one key a line, every value in double quotes."""
    text = "".join([f'{key}: "{value}"\n' for key, value in values.items()])
    is_plain = _PLAIN_LINES.fullmatch(text) and text.count("\n") == len(values)
    if is_plain and _WORDS.isdisjoint(map(str.lower, values)):
        return text
    return dump(CommentedMap({key: quoted_text(value) for key, value in values.items()}))


def load(text: str) -> Any:
    """Parse ``text`` such that ``dump`` keeps its comments, order and quoting.

    Raises:
        Malformed: ``text`` is not YAML.
    """
    return _load(_round_trip(), text)


def dump(data: Any) -> str:
    """Return ``data``, from ``load`` or new, as YAML."""
    stream = io.StringIO()
    _round_trip().dump(data, stream)
    return stream.getvalue()


def quoted_text(text: str) -> str:
    """Return ``text`` as a value that is written in double quotes."""
    value: str = DoubleQuotedScalarString(text)
    return value


class _Constructor(RoundTripConstructor):
    """Constructs values; an error for a value that does not fit its tag has a line, which the library's lacks."""

    def construct_object(self, node: Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError) as error:
            raise ConstructorError(None, None, _problem(error), node.start_mark) from error


def _problem(error: Exception) -> str:
    """Return what Python says of a date that does not exist; of `!!bool maybe` it says nothing that helps."""
    return str(error) if isinstance(error, ValueError) else "a value is not of the type that its tag names"


def _round_trip() -> YAML:
    yaml = YAML(typ="rt", pure=True, plug_ins=[])
    yaml.Constructor = _Constructor
    yaml.preserve_quotes = True
    yaml.width = _NEVER_WRAP
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _require_small(text: str) -> None:
    """Raise ``Malformed`` if parsing ``text``, which is untrusted, would take long."""
    if len(text) > _LONGEST:
        raise Malformed(f"it has more than {_LONGEST:,} characters", None)
    if len(_PIECES.findall(text)) > _MOST_PIECES:
        raise Malformed(f"it has more than {_MOST_PIECES:,} lines, commas and brackets", None)
    if len(_ALIAS.findall(text)) > _MOST_ALIASES:
        raise Malformed(f"it has more than {_MOST_ALIASES} aliases", None)
    depth = 0
    for found in _BRACKETS.finditer(text):
        depth = depth + 1 if found[0] in "[{" else max(0, depth - 1)
        if depth > _DEEPEST:
            line = text.count("\n", 0, found.start()) + 1
            raise Malformed(f"brackets are nested deeper than {_DEEPEST} levels", line)


def _load(yaml: YAML, text: str) -> Any:
    _require_small(text)
    try:
        return yaml.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Malformed(error.problem or "it cannot be parsed", mark.line + 1 if mark else None) from error
    except YAMLError as error:
        raise Malformed(str(error).splitlines()[0], None) from error
    except RecursionError as error:
        raise Malformed("it is nested too deeply", None) from error
    except (ValueError, LookupError, AttributeError) as error:
        raise Malformed(_problem(error), None) from error
