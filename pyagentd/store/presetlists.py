"""Adding entries to the lists of ``preset.md`` that say what is allowed; everything else stays byte for byte."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from pyagentd.errors import PresetError
from pyagentd.store import atomic, presetfile, yamlfile


def extend(path: Path, section: str, key: str, values: Iterable[str]) -> tuple[str, ...]:
    """Add ``values`` to the list ``section: key:`` of the preset at ``path``; return those it did not have.

    Comments, quoting and the order of what is there survive. Section and key are found in either spelling, with
    dashes or with underscores, and made when they are missing.

    Raises:
        PresetError: The file is missing or malformed, or the list is none.
        StoreError: The disk refused; the file is untouched.
    """
    preset = presetfile.read(path)
    name = _spelled(section, preset.front)
    before, text, after = presetfile.around(preset, name)
    try:
        document = yamlfile.load(text) if text else CommentedMap()
    except yamlfile.Malformed as error:  # it is valid only together with the rest
        raise PresetError(
            f"{path}:{preset.line(name)}: {name} uses a YAML alias", mend="Write its entries out"
        ) from error
    listed = _list_of(document, name, key, f"{path}:{preset.line(name) if name in preset.front else 1}")
    had = [str(item) for item in listed]
    new = tuple(dict.fromkeys(value for value in values if value not in had))
    if new:
        presetfile.fill(listed, [*had, *new])
        atomic.write_text(path, presetfile.replaced(preset, before + yamlfile.dump(document) + after))
    return new


def _list_of(document: CommentedMap, section: str, key: str, where: str) -> CommentedSeq:
    """Return the list, made if there is none."""
    lists = document.get(section)
    if lists is None:
        lists = document[section] = CommentedMap()
    if not isinstance(lists, CommentedMap):
        raise PresetError(f"{where}: {section} is no mapping", mend="Write keys and lists below it")
    name = _spelled(key, lists)
    if lists.get(name) is None:
        lists[name] = CommentedSeq()
    listed = lists[name]
    if not isinstance(listed, CommentedSeq) or not all(isinstance(item, str) for item in listed):
        raise PresetError(f"{where}: {section}.{name} is not a list of texts", mend="Write one entry a line")
    return listed


def _spelled(key: str, values: Iterable[str]) -> str:
    known = list(values)
    return next((name for name in (key, key.replace("_", "-"), key.replace("-", "_")) if name in known), key)
