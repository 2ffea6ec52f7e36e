"""The effective configuration of a named agent: its preset with what its ``agent.json`` says laid over.

Whoever asks gets what the file says now: the guard before every decision, a run before every request. A file that
cannot be read is an error and never ignored, since it may be what holds the agent back.
"""

from __future__ import annotations

import errno
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyagentd.errors import NotFound, PresetError, StoreError, ToolError
from pyagentd.policy.presets import Keys, Preset
from pyagentd.policy.profiles import Profile
from pyagentd.store import named_agents
from pyagentd.store.named_agents import DOCS_DIR, AgentFile, docs_dir
from pyagentd.store.paths import BranchRef
from pyagentd.tools import files

_REMEMBERED = 64  # files

_Stamp = tuple[int, int, int]


class Overlay:
    """What the configuration files of all named agents say.

    Args:
        root: The agents root.
        profiles: The user's own profiles by name, which a file may name beside the built-in ones.
    """

    def __init__(self, root: Path, profiles: Mapping[str, Profile]) -> None:
        self._root = root.resolve()
        self._profiles = profiles
        self._known: dict[Path, tuple[_Stamp, AgentFile, Mapping[str, Any]]] = {}

    def is_named(self, ref: BranchRef) -> bool:
        """Return whether ``ref`` is a branch of a named agent; its sub-agents are not."""
        return not ref.is_agent and ref.session_dir.parent == self._root

    def directory(self, ref: BranchRef) -> Path | None:
        """Return the directory of the named agent whose branch ``ref`` is, None of everything else."""
        return ref.session_dir if self.is_named(ref) else None

    def laid(self, preset: Preset, ref: BranchRef) -> Preset:
        """Return ``preset`` with what the agent's file says; as it is when ``ref`` is no named agent's.

        Raises:
            PresetError: The file is missing or malformed, or names what is not there.
            StoreError: The disk refused.
        """
        if not self.is_named(ref):
            return preset
        return replace(preset, **self._read(ref.session_dir)[1])

    def file(self, ref: BranchRef) -> AgentFile:
        """Return the file of the named agent whose branch ``ref`` is; raises as ``laid``."""
        return self._read(ref.session_dir)[0]

    def _read(self, directory: Path) -> tuple[AgentFile, Mapping[str, Any]]:
        path = named_agents.agent_file(directory)
        try:
            status = path.stat()
        except FileNotFoundError as error:
            raise PresetError(f"{path} is missing", mend="Restore it: it says what the agent may do") from error
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror or error}") from error
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        known = self._known.get(directory)
        if known is None or known[0] != stamp:
            try:
                file = named_agents.read(directory)
            except NotFound as error:
                raise PresetError(error.message, mend=error.mend) from error
            known = (stamp, file, overlaid(file, self._profiles))
            while len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[directory] = known
        return known[1], known[2]


def overlaid(file: AgentFile, profiles: Mapping[str, Profile]) -> dict[str, Any]:
    """Return the fields of a preset that ``file`` sets.

    Raises:
        PresetError: A value is of the wrong kind, or there is no such profile.
    """
    fields: dict[str, Any] = {}
    if file.system_prompt is not None:
        fields["body"] = file.system_prompt.strip()
    if file.model is not None:
        backend, _, fields["model"] = file.model.rpartition("/")
        fields |= {"backend": backend} if backend else {}
    if file.permissions is not None:
        fields["profile"] = profile_of(file.permissions, profiles, source=str(file.path))
    return fields


def profile_of(
    permissions: str | Mapping[str, Any], profiles: Mapping[str, Profile], *, source: str
) -> Profile | str | None:
    """Return the profile that ``permissions`` name or write out: ``{"allow": [REGEX…], "ask": [REGEX…]}``.

    Raises:
        PresetError: There is no profile of that name, or an expression is none; names ``source``.
    """
    return Keys({"permissions": permissions}, source).profile("permissions", "permissions", profiles)


# The documents of a named agent: the files that it always knows.
#
# They lie in ``docs/`` beside ``agent.json`` and are told after the system prompt. A path that a model names is
# judged by the file it really is, and that file is reached by directory descriptors: no link leads out, whenever it
# was made.

LARGEST = 100_000  # bytes of one document
MOST_SHOWN = 200_000  # characters of all documents in a prompt
_MOST_FILES = 200
_DEEPEST = 5

_TAG = re.compile(r"<(?=/?agent_docs\b)", re.IGNORECASE)


def docs_section(directory: Path) -> str:
    """Return the part of the prompt that holds the documents of the agent in ``directory``; "" without any. Blocks.

    Each stands below a heading with its name, ordered by it. What does not fit is named, so that nothing is missing
    unsaid.
    """
    told, left_out, room = [], [], MOST_SHOWN
    for name in sorted(_found(directory)):
        text = _read(directory, name)
        if text is None:
            left_out.append(f"{DOCS_DIR}/{name} cannot be read as text")
        elif len(text) > room:
            left_out.append(f"{DOCS_DIR}/{name} has {len(text)} characters, for which there is no room")
        else:
            room -= len(text)
            told.append(f"# {DOCS_DIR}/{name}\n\n{_TAG.sub('&lt;', text).strip()}")
    if not told and not left_out:
        return ""
    notes = [f"[Left out: {each}]" for each in left_out]
    return "\n\n".join(("<agent_docs>", *told, *notes, "</agent_docs>"))


def doc_name(directory: Path, path: str) -> str:
    """Return which document ``path`` is: relative to ``docs/``, links followed.

    Args:
        directory: The agent's.
        path: As a model writes it: relative to ``docs/`` or beginning with it, or absolute.

    Raises:
        ToolError: It leads out of ``docs/``, or can be no document.
    """
    if not path.strip() or any(unicodedata.category(each) in ("Cc", "Cs") for each in path):
        raise ToolError("The path of a document is a name of a file in docs/, such as notes.md.")
    jail = _jail(directory)
    lexical = os.path.normpath(jail / path.removeprefix(f"{DOCS_DIR}/"))
    resolved = os.path.realpath(lexical)
    if not resolved.startswith(f"{jail}/"):
        raise ToolError(
            f"{path} is not inside docs/: only files there are your documents. Name one, such as notes.md; for other "
            f"files there are other tools."
        )
    name = resolved[len(str(jail)) + 1 :]
    parts = name.split("/")
    if len(parts) > _DEEPEST or any(part.startswith(".") or len(os.fsencode(part)) > 255 for part in parts):
        raise ToolError(
            f"{path} cannot be a document: names begin with no dot, and directories are at most {_DEEPEST - 1} deep."
        )
    return name


def read_doc(directory: Path, name: str) -> str | None:
    """Return the text of a document; None when there is none. Blocks.

    Raises:
        ToolError: It is no text file.
        OSError: The disk refused.
    """
    try:
        data = files.read_bytes(f"{_jail(directory)}/{name}")
    except FileNotFoundError:
        return None
    return data.decode("utf-8", "replace")


def write_doc(directory: Path, name: str, content: str) -> None:
    """Make ``content`` the text of a document, in one step. Blocks.

    Args:
        directory: The agent's.
        name: As ``doc_name`` returned it.
        content: The whole text.

    Raises:
        ToolError: A link was put in the way, it is no file, or the text is too long.
        OSError: The disk refused.
    """
    data = checked_content(name, content)
    try:
        files.replace_bytes(f"{_jail(directory)}/{name}", data)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.EEXIST):
            raise
        raise ToolError(f"docs/{name} cannot be made: a file stands where a directory would have to be.") from error


def checked_content(name: str, content: str) -> bytes:
    """Return the bytes of a document; raises ``ToolError`` when it cannot be one."""
    try:
        data = content.encode()
    except UnicodeEncodeError:
        raise ToolError(f"docs/{name} was not written: the text holds characters that UTF-8 cannot.") from None
    if len(data) > LARGEST:
        raise ToolError(
            f"docs/{name} was not written: {len(data)} bytes are more than the {LARGEST} a document may have. "
            f"Documents are in every prompt: keep what matters."
        )
    if b"\0" in data:
        raise ToolError(f"docs/{name} was not written: a document is text, and this holds a NUL character.")
    return data


def _jail(directory: Path) -> Path:
    """Return where documents are: below the agent's real directory, never where a link in its place leads."""
    return docs_dir(directory.resolve())


def _found(directory: Path) -> Iterator[str]:
    """Yield the names of all documents; of links and of what begins with a dot none."""
    jail, found = _jail(directory), 0
    for place, directories, others in os.walk(jail):
        directories[:] = sorted(each for each in directories if not each.startswith("."))
        if len(Path(place).relative_to(jail).parts) >= _DEEPEST - 1:
            directories.clear()
        for name in sorted(others):
            path = Path(place, name)
            if name.startswith(".") or path.is_symlink() or found >= _MOST_FILES:
                continue
            found += 1
            yield str(path.relative_to(jail))


def _read(directory: Path, name: str) -> str | None:
    try:
        data = files.read_bytes(f"{_jail(directory)}/{name}")
        return None if b"\0" in data else data.decode()
    except (OSError, ToolError, UnicodeDecodeError):
        return None
