"""``available_models.json``: the models that each provider listed when it was asked last.

The file is a cache beside the sessions: ``{provider: {valid, models, checked_at, server}}``. Losing it costs a
question to each provider; one that cannot be read counts as lost.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pyagentd import reader, regularfile
from pyagentd.errors import StoreError
from pyagentd.store import atomic

FILE_NAME = "available_models.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelList:
    """What one provider said.

    Attributes:
        valid: Whether it accepted a key; that it refused one is of the client who has it, and not kept.
        models: Their names, as it gives them.
        checked_at: When it was asked, ISO 8601.
        server: Its address without what is secret of it, "" for the provider's own.
    """

    valid: bool
    models: tuple[str, ...]
    checked_at: str
    server: str = ""


def read(directory: Path) -> dict[str, ModelList]:
    """Return what is known, by provider; nothing where the file is missing or malformed."""
    try:
        data = reader.parse(regularfile.read_text(directory / FILE_NAME))
        found: dict[str, ModelList] = reader.convert(data, Mapping[str, ModelList], lenient=True)
    except (OSError, ValueError, reader.Misfit):
        return {}
    return found


def write(directory: Path, lists: Mapping[str, ModelList]) -> None:
    """Write what is known; a disk that refuses costs asking again."""
    data = {name: asdict(each) for name, each in sorted(lists.items())}
    try:
        atomic.make_dirs(directory)
        atomic.write_text(directory / FILE_NAME, json.dumps(data, indent=2, ensure_ascii=False) + "\n", fsync=False)
    except StoreError:
        return
