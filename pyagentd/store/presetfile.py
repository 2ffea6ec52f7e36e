"""The file ``preset.md``: YAML front matter and, below it, the system message.

An edit changes nothing outside ``paths:``, and keeps comments and key order inside it. ``policy.presets`` knows the
meaning of the keys; this module knows only the file and the section ``paths``, which pyagentd itself writes.
"""

import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import CommentMark
from ruamel.yaml.tokens import CommentToken

from pyagentd import reader, regularfile
from pyagentd.errors import PresetError, StoreError
from pyagentd.store import atomic, yamlfile

STANDARD_DENY = ("**/.git/**", "**/runtime/**", "**/.env", "**/node_modules/**")
DEFAULT_WRITE = ("/tmp/**",)

_FRONT_STARTS_ON_LINE = 2  # the first line is the delimiter
_DELIMITER = re.compile(r"^---[ \t]*(?:\r?\n|\Z)", re.MULTILINE)

_changing = threading.Lock()  # held from reading a preset until it is written: two changes at once are both in it


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetFile:
    """A preset as its author wrote it."""

    path: Path
    text: str  # the whole file
    front_text: str  # the YAML between the delimiters
    front: CommentedMap  # a mapping that knows its lines; not to be changed
    body: str  # everything after the front matter, byte for byte

    def line(self, key: str) -> int:
        """Return the line of the top-level ``key``."""
        return int(self.front.lc.key(key)[0]) + _FRONT_STARTS_ON_LINE

    def patterns(self, kind: str) -> tuple[str, ...] | None:
        """Return the patterns of ``paths: KIND:``; None if the preset has none.

        Raises:
            PresetError: They are not a list of texts.
        """
        listed = reader.at(self.front, ("paths", kind))
        if listed is None:
            return None
        source = reader.Source.of_front_matter(self.front, str(self.path), PresetError)
        return reader.read(listed, tuple[str, ...], source, ("paths", kind))


def read(path: Path) -> PresetFile:
    """Return the preset at ``path``.

    Raises:
        PresetError: It is missing, has no front matter, or its front matter is malformed; names file and line.
        StoreError: The disk refused.
    """
    return decode(content(path), path)


def content(path: Path, *, links: bool = False) -> bytes:
    """Return the text of a preset's file; raises as ``read``.

    With ``links`` the file may be a symbolic link, as in the user's own directory.
    """
    try:
        return regularfile.read_bytes(path, links=links)
    except FileNotFoundError as error:
        raise PresetError(
            f"Failed to load preset from {path}: there is no such file", hint="Copy a preset there"
        ) from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error


def decode(data: bytes, path: Path) -> PresetFile:
    """Parse ``data``, the content of ``path``; raises ``PresetError`` as ``read``."""
    try:
        return parse(data.decode("utf-8-sig"), path)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PresetError(f"{path}:{line}: this is not UTF-8", hint="Save the file in UTF-8") from error


def parse(text: str, path: Path) -> PresetFile:
    """Return ``text`` as a preset; ``path`` is for errors.

    Raises:
        PresetError: No front matter, or malformed; names file and line.
    """
    before, *parts = _DELIMITER.split(text, 2)
    if before or not parts:
        raise PresetError(
            f"{path}:1: No YAML frontmatter found", hint="Begin the file with a line ---, then keys such as model:"
        )
    if len(parts) == 1:
        raise PresetError(f"{path}:1: No closing delimiter for YAML frontmatter", hint="End the keys with a line ---")
    front, body = parts
    try:
        loaded = yamlfile.load(front)
    except yamlfile.Malformed as error:
        line = _FRONT_STARTS_ON_LINE + (error.line or 1) - 1
        raise PresetError(
            f"{path}:{line}: Malformed frontmatter: {error.problem}", hint=_hint(error.problem)
        ) from error
    if not isinstance(loaded, CommentedMap):
        raise PresetError(
            f"{path}:{_FRONT_STARTS_ON_LINE}: Malformed frontmatter: it has no keys",
            hint="Write keys such as backend: Claude",
        )
    return PresetFile(path=path, text=text, front_text=front, front=loaded, body=body)


def _hint(problem: str) -> str:
    """Return a hint for usual mistakes, for which the library's messages do not help."""
    if "mapping values are not allowed" in problem:
        return "Put a value that has a colon in it in quotes"
    if "cannot start any token" in problem:
        return "Indent with spaces, and put a value that begins with a special character in quotes"
    return "Correct the YAML there"


def change(path: Path, text_of: Callable[[PresetFile], str]) -> None:
    """Replace the preset at ``path`` by the result of ``text_of``.

    Raises:
        PresetError: The file is missing or malformed.
        StoreError: The disk failed; the file is unchanged.
    """
    with _changing:
        atomic.write_configuration(path, text_of(read(path)))


def with_body(preset: PresetFile, body: str) -> str:
    """Return the text of ``preset`` with another system message; its front matter stays byte for byte."""
    front = preset.text.removesuffix(preset.body)
    return f"{front.rstrip()}\n{body.strip()}\n"


def with_values(preset: PresetFile, values: Mapping[str, Any]) -> str:
    """Return the text of ``preset`` with top-level keys set anew; everything else stays byte for byte.

    Raises:
        PresetError: The result cannot be read.
    """
    for key, value in values.items():
        preset = _with_value(preset, key, list(value) if isinstance(value, tuple) else value)
    return preset.text


def _with_value(preset: PresetFile, key: str, value: Any) -> PresetFile:
    before, section, after = _split_around(preset, key)
    try:
        document = yamlfile.load(section) if section else CommentedMap()
    except yamlfile.Malformed:  # it is valid only together with the rest, such as an alias
        document = CommentedMap()
    document[key] = value
    return _with_front_text(preset, before + yamlfile.dump(document) + after)


def with_paths(
    preset: PresetFile,
    *,
    read: Iterable[str],
    write_default: Iterable[str] = DEFAULT_WRITE,
    deny: Iterable[str] = (),
    also_write: Iterable[str] = (),
) -> str:
    """Return the text of ``preset`` with new ``paths``.

    Args:
        preset: The preset, which is not changed.
        read: The new ``paths.read``.
        write_default: The new ``paths.write`` if the preset has none.
        deny: Added to the standard four and the preset's own.
        also_write: Added to ``paths.write`` in any case.

    Raises:
        PresetError: Its own patterns are malformed, or shared with other keys by an alias; or the result is invalid.
    """
    own_write = preset.patterns("write")
    wanted = {
        "read": _merge_lists(read),
        "write": _merge_lists(write_default if own_write is None else own_write, also_write),
        "deny": _merge_lists(STANDARD_DENY, preset.patterns("deny") or (), deny),
    }
    before, document, after = _section(preset, "paths")
    paths = document.get("paths")
    if not isinstance(paths, CommentedMap):
        paths = document["paths"] = CommentedMap()
    for kind, patterns in wanted.items():
        listed = paths.get(kind)
        if isinstance(listed, CommentedSeq):
            _replace_items(listed, patterns)
        else:
            paths[kind] = CommentedSeq(map(yamlfile.quoted_text, patterns))
    return _with_front_text(preset, before + yamlfile.dump(document) + after).text


def _section(preset: PresetFile, key: str) -> tuple[str, CommentedMap, str]:
    """Return the section of a top-level key of the front matter, to be changed, and the text around it.

    Raises:
        PresetError: It is an alias, or another key refers to it by an alias.
    """
    before, text, after = _split_around(preset, key)
    line = preset.line(key) if key in preset.front else 1
    aliased = PresetError(f"{preset.path}:{line}: {key} uses a YAML alias", hint="Write its entries out")
    try:
        document = yamlfile.load(text) if text else CommentedMap()
    except yamlfile.Malformed as error:  # it is valid only together with the rest
        raise aliased from error
    held = document.get(key)
    for each in (held, *(held.values() if isinstance(held, CommentedMap) else ())):
        if isinstance(each, CommentedMap | CommentedSeq) and each.yaml_anchor():
            raise aliased
    return before, document, after


def _with_front_text(preset: PresetFile, front_text: str) -> PresetFile:
    """Return the preset with another front matter; raises ``PresetError`` if that cannot be read."""
    start = len(preset.text) - len(preset.text.split("\n", 1)[1])  # the delimiter's line ends there
    return parse(preset.text[:start] + front_text + preset.text[start + len(preset.front_text) :], preset.path)


def _merge_lists(*lists: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(pattern for patterns in lists for pattern in patterns))


def _split_around(preset: PresetFile, key: str) -> tuple[str, str, str]:
    """Split the front matter's text around the section of a top-level key, which is "" when there is none.

    Raises:
        PresetError: The front matter has a merge, which cannot be told apart.
    """
    front = preset.front
    lines = re.split(r"(?<=\n)", preset.front_text)  # as the library counts them, not by all that Unicode has
    if front.merge:
        line = next((number for number, line in enumerate(lines, _FRONT_STARTS_ON_LINE) if line.startswith("<<")), 1)
        raise PresetError(f"{preset.path}:{line}: A YAML merge cannot be changed", hint="Write its keys out")
    if front.fa.flow_style():  # all of it is one value in braces
        return "", preset.front_text, ""
    if key not in front:
        return preset.front_text, "", ""
    start = front.lc.key(key)[0]
    following = [line for line, _ in map(front.lc.key, front) if line > start]
    end = min(following, default=len(lines))
    # Blank lines and comments at the margin belong to the key that follows.
    while end > start + 1 and (not lines[end - 1].strip() or lines[end - 1].startswith("#")):
        end -= 1
    return "".join(lines[:start]), "".join(lines[start:end]), "".join(lines[end:])


def _replace_items(listed: CommentedSeq, patterns: Sequence[str]) -> None:
    """Set the items of ``listed`` to ``patterns``; existing ones keep their quoting and comments."""
    tail = _cut_tail(listed)
    had = {str(item): (item, listed.ca.items.get(index)) for index, item in enumerate(listed)}
    listed.ca.items.clear()
    del listed[:]
    for index, pattern in enumerate(patterns):
        item, comment = had.get(pattern, (yamlfile.quoted_text(pattern), None))
        listed.append(item)
        if comment:
            listed.ca.items[index] = comment
    if tail and patterns:
        _add_tail(listed, tail)


def _cut_tail(listed: CommentedSeq) -> str:
    """Remove the text between the list's last line and the next key, which the library ties to the last item."""
    comment = listed.ca.items.get(len(listed) - 1)
    if not comment or comment[0] is None:
        return ""
    own, _, tail = comment[0].value.partition("\n")
    comment[0].value = own + "\n"
    return str(tail)


def _add_tail(listed: CommentedSeq, tail: str) -> None:
    last = len(listed) - 1
    comment = listed.ca.items.get(last)
    if comment and comment[0] is not None:
        comment[0].value += tail
    else:
        listed.ca.items[last] = [CommentToken("\n" + tail, CommentMark(0), None), None]


# Adding entries to the lists of permissions in ``preset.md``; everything else stays byte for byte.


def extend(path: Path, section: str, key: str, values: Iterable[str]) -> tuple[str, ...]:
    """Add ``values`` to the list ``section: key:`` of the preset at ``path``; return the new ones.

    Existing comments, quoting and order are kept. Section and key are found with dashes or with underscores, and
    added if they are missing.

    Raises:
        PresetError: The file is missing or malformed, or the value is no list.
        StoreError: The disk failed; the file is unchanged.
    """
    with _changing:
        preset = read(path)
        name = _spelling_of(section, preset.front)
        before, document, after = _section(preset, name)
        listed = _list_of(document, name, key, f"{path}:{preset.line(name) if name in preset.front else 1}")
        had = [str(item) for item in listed]
        new = tuple(dict.fromkeys(value for value in values if value not in had))
        if new:
            _replace_items(listed, [*had, *new])
            atomic.write_configuration(path, _with_front_text(preset, before + yamlfile.dump(document) + after).text)
    return new


def _list_of(document: CommentedMap, section: str, key: str, where: str) -> CommentedSeq:
    """Return the list, made if there is none."""
    lists = document.get(section)
    if lists is None:
        lists = document[section] = CommentedMap()
    if not isinstance(lists, CommentedMap):
        raise PresetError(f"{where}: {section} is not a mapping", hint="Write keys and lists below it")
    name = _spelling_of(key, lists)
    if lists.get(name) is None:
        lists[name] = CommentedSeq()
    listed = lists[name]
    if not isinstance(listed, CommentedSeq) or not all(isinstance(item, str) for item in listed):
        raise PresetError(f"{where}: {section}.{name} is not a list of texts", hint="Write one entry a line")
    return listed


def _spelling_of(key: str, values: Iterable[str]) -> str:
    known = list(values)
    return next((name for name in (key, key.replace("_", "-"), key.replace("-", "_")) if name in known), key)


# Finding preset templates; their content is not read here.


def find_templates(dirs: Sequence[Path]) -> dict[str, Path]:
    """Return every template by name, the file's without ``.md``.

    Args:
        dirs: The directories to search: shipped, the user's, the trusted project's; a later one wins. One that is
            missing or unreadable has none.
    """
    found: dict[str, Path] = {}
    for directory in dirs:
        with suppress(OSError), os.scandir(directory) as entries:
            named = [each for each in entries if each.name.endswith(".md") and not each.name.startswith(".")]
            files = [each.name for each in named if os.path.isfile(each)]  # noqa: PTH113 - Path raises where a link leads nowhere
            found |= {name.removesuffix(".md"): directory / name for name in sorted(files)}
    return found
