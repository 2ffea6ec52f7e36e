"""``available_models.json``: the models that each provider listed last.

The file is a cache beside the sessions: ``{provider: {valid, models, checked_at, server}}``. Losing it costs a
request to each provider; a file that cannot be read counts as lost.
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
    """The list of one provider.

    Attributes:
        valid: Whether it accepted a key; a refusal concerns one client's key and is not kept.
        models: The models' names, as the provider writes them.
        checked_at: The time of the request, in ISO 8601.
        server: The address without secrets, "" for the provider's default.
    """

    valid: bool
    models: tuple[str, ...]
    checked_at: str
    server: str = ""


def read(directory: Path) -> dict[str, ModelList]:
    """Return the lists by provider, none if the file is missing or malformed."""
    try:
        data = reader.parse(regularfile.read_text(directory / FILE_NAME))
        found: dict[str, ModelList] = reader.convert(data, Mapping[str, ModelList], lenient=True)
    except (OSError, ValueError, reader.Misfit):
        return {}
    return found


def write(directory: Path, lists: Mapping[str, ModelList]) -> None:
    """Write the lists; if the disk fails, they are requested again later."""
    data = {name: asdict(each) for name, each in sorted(lists.items())}
    try:
        atomic.make_dirs(directory)
        atomic.write_text(directory / FILE_NAME, json.dumps(data, indent=2, ensure_ascii=False) + "\n", fsync=False)
    except StoreError:
        return
