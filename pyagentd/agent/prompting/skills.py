"""Skills: know-how for one kind of task, told to the model by name and description, and read when it is wanted.

A skill is a directory with ``SKILL.md``: front matter with ``name`` (kebab-case) and ``description``, below it what
the model reads. They are looked for in the project (``.agents/skills`` and ``.claude/skills``, the nearest directory
first), with the user, in what comes with the package, and where the configuration says (``skills.paths``). The first
of a name counts, the others are told (neighbours B.11). Addresses on the network are no source: what instructs a
model must not change with who answers a request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pyagentd import regularfile
from pyagentd.agent.prompting.instructions import levels
from pyagentd.errors import PyagentdError, SkillError, StoreError
from pyagentd.store import presetfile
from pyagentd.store.document.render import writable

Origin = Literal["project", "user", "shipped", "config"]

FILE = "SKILL.md"
_OF_PROJECT = (".agents/skills", ".claude/skills")
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_NAME_LENGTH = 64
_DESCRIPTION = 500  # characters of one, as far as the model is told
_MOST = 100  # of one directory
_MAX_BYTES = 500_000  # of one file


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """One skill.

    Attributes:
        file: Its ``SKILL.md``, resolved; what lies beside it may be read.
        body: What the model reads.
    """

    name: str
    description: str
    file: Path
    origin: Origin
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Skills:
    """All skills for one workspace root.

    Attributes:
        found: Those that count, by name.
        hidden: Those that another of their name hides, each with that one.
        broken: Those that cannot be used, with the error that names file and line.
    """

    found: Mapping[str, Skill]
    hidden: tuple[tuple[Skill, Skill], ...] = ()
    broken: tuple[tuple[Path, PyagentdError], ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know, one line each."""
        return (
            *(f"Two skills are called {each.name}: {by.file} counts, not {each.file}" for each, by in self.hidden),
            *(f"A skill cannot be used: {error}" for _, error in self.broken),
        )


def shipped_skills() -> Path:
    """Return the directory of the skills that come with the package, installed or in a checkout."""
    package = Path(__file__).resolve().parents[2]
    installed = package / "skills"
    return installed if installed.is_dir() else package.parent / "skills"


def find_skills(root: Path | None, *, user: Sequence[Path], shipped: Path, config: Sequence[Path] = ()) -> Skills:
    """Return the skills for sessions that work in ``root``, None for those of no project; blocks."""
    found: dict[str, Skill] = {}
    hidden: list[tuple[Skill, Skill]] = []
    broken: list[tuple[Path, PyagentdError]] = []
    for directory, origin, top in _sources(root, user, shipped, config):
        for file in _files(directory):
            try:
                skill = read_skill(file, origin, top)
            except PyagentdError as error:
                broken.append((file, error))
                continue
            if (first := found.setdefault(skill.name, skill)) is not skill and first.file != skill.file:
                hidden.append((skill, first))
    return Skills(found=found, hidden=tuple(hidden), broken=tuple(broken))


def read_skill(file: Path, origin: Origin, top: Path | None = None) -> Skill:
    """Return the skill in ``file``, which of a project must really be below its ``top``.

    Raises:
        SkillError: It is malformed; names file and line.
        StoreError: It cannot be read.
    """
    try:
        real = file.resolve(strict=True)
        if top is not None and not real.is_relative_to(top.resolve()):
            raise SkillError(
                f"{file}: it is a link to {real}, outside of the project", mend="Put the skill itself there"
            )
        data = regularfile.read_bytes(real, limit=_MAX_BYTES)
    except (OSError, RuntimeError) as error:
        raise StoreError(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    try:
        parsed = presetfile.decoded(data, file)
    except PyagentdError as error:
        raise SkillError(error.message, mend="A skill begins with ---, name: and description:, and ---") from error
    name, description = (_text(parsed, key) for key in ("name", "description"))
    if not _NAME.fullmatch(name) or len(name) > _NAME_LENGTH:
        raise SkillError(
            f"{file}:{_line(parsed, 'name')}: {name!r} is no name of a skill", mend="Lower case, digits and dashes"
        )
    body = writable(parsed.body).strip()
    return Skill(name=name, description=" ".join(description.split()), file=real, origin=origin, body=body)


def index(skills: Mapping[str, str]) -> str:
    """Return the part of the system prompt that tells the skills: descriptions by name."""
    if not skills:
        return ""
    lines = "\n".join(f"- {name}: {_one(description)}" for name, description in skills.items())
    return (
        f"<skills>\nSkills hold know-how for one kind of task. When what is asked fits one of these, read it with "
        f"the skill tool before you begin:\n{lines}\n</skills>"
    )


def content(skill: Skill) -> str:
    """Return what the skill tool returns (the mark is the guide's)."""
    inside = skill.body.replace("</skill_content", "<\\/skill_content")
    return (
        f'<skill_content name="{skill.name}">\n{inside}\n</skill_content>\n'
        f"Files that it names are relative to {skill.file.parent}"
    )


def _sources(
    root: Path | None, user: Sequence[Path], shipped: Path, config: Sequence[Path]
) -> Iterator[tuple[Path, Origin, Path | None]]:
    """Yield where skills are, those that count more first, with what a project's must be below of."""
    places = levels(root) if root is not None else []
    for directory in reversed(places):
        for name in _OF_PROJECT:
            yield directory / name, "project", places[0]
    yield from ((each, "user", None) for each in user)
    yield shipped, "shipped", None
    yield from ((each, "config", None) for each in config)


def _files(directory: Path) -> list[Path]:
    try:
        entries = sorted(entry for entry in directory.iterdir() if not entry.name.startswith("."))
        return [entry / FILE for entry in entries[:_MOST] if (entry / FILE).exists()]
    except OSError:
        return []


def _text(parsed: presetfile.PresetFile, key: str) -> str:
    value: Any = parsed.front.get(key)
    if not isinstance(value, str) or not value.strip():
        said = "is missing" if value is None else "is no text"
        raise SkillError(f"{parsed.path}:{_line(parsed, key)}: `{key}` {said}", mend=f"Write {key}: and a text")
    return value.strip()


def _line(parsed: presetfile.PresetFile, key: str) -> int:
    return parsed.line(key) if key in parsed.front else 1


def _one(description: str) -> str:
    return description if len(description) <= _DESCRIPTION else f"{description[:_DESCRIPTION]}…"
