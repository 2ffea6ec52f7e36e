"""Checkpoints: the state of a mission after a turn, as a value (``State``) or a file.

One file per turn, ``checkpoint-<turn>.json``, written atomically and readable by its owner only. Values are in the
language's JSON encoding. Model, tools and API keys are not stored; the caller passes them again to resume. Functions
in a program's memory cannot be stored; their names are listed in ``omitted``.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from pyagentd.errors import StoreError, UserError
from pyagentd.lisp import serialization
from pyagentd.lisp.errors import LispError
from pyagentd.reader import Source, read
from pyagentd.store import atomic

VERSION = 1
LATEST = "latest"

_FILE = re.compile(r"checkpoint-(\d+)\.json")
_VALUES = ("memory", "context")  # maps of values of the language; everything else is plain JSON


class CheckpointError(UserError):
    """A checkpoint cannot be read: it does not exist, is damaged, or is of another version."""

    code = "checkpoint-error"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything that a mission needs to continue after a turn.

    Attributes:
        prompt: The prompt as given, before its placeholders were filled.
        signature: The signature in its canonical spelling, or None.
        turn: The last finished turn.
        memory: The programs' memory, values of the language.
        context: The values of ``ctx/``, values of the language.
        messages: The conversation, each ``{"role", "content"}``.
        usage: The mission's usage so far, fields of ``step.Usage`` by name.
        budget: What the whole tree has spent: ``turns_used``, ``cost_usd``, ``elapsed_ms``.
        trace: The turns, as plain JSON.
        consecutive_failures: How many turns in a row have failed.
        omitted: Names in memory and context whose values could not be written.
    """

    prompt: str
    signature: str | None = None
    turn: int = 0
    memory: Mapping[Any, Any] = field(default_factory=dict)
    context: Mapping[Any, Any] = field(default_factory=dict)
    messages: tuple[Mapping[str, Any], ...] = ()
    usage: Mapping[str, int | float] = field(default_factory=dict)
    budget: Mapping[str, int | float] = field(default_factory=dict)
    trace: tuple[Mapping[str, Any], ...] = ()
    consecutive_failures: int = 0
    omitted: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain JSON with the version of the format."""
        made: dict[str, Any] = {"version": VERSION}
        omitted = list(self.omitted)
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in _VALUES:
                value, left = _encode_values(value)
                omitted += [f"{each.name}/{name}" for name in left]
            made[each.name] = list(value) if isinstance(value, tuple) else value
        return {**made, "omitted": omitted}

    @classmethod
    def from_json(cls, data: Any) -> "State":
        """Return the state that ``to_json`` wrote as ``data``.

        Raises:
            CheckpointError: It is not a checkpoint, or of an unknown version.
        """
        if not isinstance(data, Mapping) or "version" not in data:
            raise CheckpointError("It is not a checkpoint of a mission")
        if data["version"] != VERSION:
            raise CheckpointError(
                f"The checkpoint has version {data['version']}, and this program knows {VERSION}",
                hint="Resume it with the version of pyagentd that wrote it",
            )
        written = {each.name: data[each.name] for each in fields(cls) if each.name in data}
        state = read(written, cls, Source.at("The checkpoint is damaged", CheckpointError))
        try:
            return replace(state, **{name: serialization.decode(getattr(state, name)) for name in _VALUES})
        except (LispError, ValueError, TypeError) as error:
            raise CheckpointError(f"The checkpoint holds a value that cannot be read: {error}") from error


def save(directory: str | Path, state: State) -> Path:
    """Write ``state`` into ``directory``, which is created if needed, and return the file.

    Raises:
        StoreError: The disk refused; files from before are untouched.
    """
    path = Path(directory).expanduser() / f"checkpoint-{state.turn}.json"
    atomic.make_dirs(path.parent)
    # In ASCII: a value may have a lone surrogate, which UTF-8 cannot encode.
    atomic.write_text(path, json.dumps(state.to_json(), separators=(",", ":")))
    return path


def load(source: State | str | Path, directory: str | Path | None = None) -> State:
    """Return the state to resume from.

    Args:
        source: A state; a file; the name of a file in ``directory``; or "latest", the last one written there.
        directory: The directory of names.

    Raises:
        CheckpointError: There is no such file, or it holds no state.
    """
    if isinstance(source, State):
        return source
    path = _path(source, Path(directory).expanduser() if directory is not None else None)
    try:
        return State.from_json(json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        names = ", ".join(each.name for each in checkpoint_files(path.parent))
        raise CheckpointError(f"There is no checkpoint {path}", hint=names and f"There are {names}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read ({error})") from error
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error.message}", hint=error.hint) from error


def checkpoint_files(directory: str | Path) -> list[Path]:
    """Return the checkpoint files in ``directory``, the last written at the end."""
    try:
        found = [path for path in Path(directory).expanduser().iterdir() if _FILE.fullmatch(path.name)]
        return sorted(found, key=lambda path: (path.stat().st_mtime_ns, int(path.stem.partition("-")[2])))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{directory} cannot be read ({error})") from error


def _path(source: str | Path, directory: Path | None) -> Path:
    if source == LATEST:
        if directory is None:
            raise CheckpointError('resume_from="latest" needs a checkpoint_dir')
        if not (there := checkpoint_files(directory)):
            raise CheckpointError(f"There is no checkpoint in {directory}")
        return there[-1]
    path = Path(source).expanduser()
    return path if directory is None or path.is_absolute() or path.exists() else directory / path


def _encode_values(named: Mapping[Any, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a map in the language's encoding, and the names of values that cannot be written."""
    kept: dict[str, Any] = {}
    left: list[str] = []
    for key, value in named.items():
        try:
            kept[serialization.encode(key)] = serialization.encode(value)
        except LispError:
            left.append(str(getattr(key, "name", key)))
    return kept, left
