"""Builds the system prompt: the preset's text, project instructions, skills, and the environment.

All but the first is made once per session and kept in its log, so that the prefix a provider caches stays the same
from the first request to the last.
"""

import asyncio
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pyagentd import installation, regularfile
from pyagentd.config import Config
from pyagentd.config.loading import OwnPlaces
from pyagentd.errors import PyagentdError, SkillError, StoreError, ToolError
from pyagentd.events import truncate
from pyagentd.policy.action import Target
from pyagentd.reader import FullText, Rule, Source, read
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.turn_agent import TAKEN_OVER
from pyagentd.store import presetfile
from pyagentd.store.document.render import writable
from pyagentd.tools.spec import Args, ToolContext, ToolSpec, object_schema

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel


def environment(root: Path, now: datetime) -> str:
    """Return a description of the place a session works in; blocks for a moment (git)."""
    lines = [
        f"Workspace root: {root}",
        f"Platform: {platform.system()} {platform.release()}",
        f"Git: {_git_branch(root)}",
        f"Date: {now.astimezone():%Y-%m-%d}",
        "Mentions: in messages of the user, @path is a file or directory below the workspace root; @name is a preset "
        "that an agent can be made from.",
    ]
    return "<environment>\n" + "\n".join(lines) + "\n</environment>"


_CALLED_BY_AGENT = "Your caller is another agent; return structured output."


def system_prompt(
    preset_body: str,
    environment_text: str,
    *,
    instructions: str = "",
    skills: str = "",
    model: str = "",
    called_by_agent: bool = False,
) -> str:
    """Return the whole system prompt in the order that must not change: the tools' schemas follow it in a request.

    Args:
        preset_body: The agent's own words.
        environment_text: See ``environment``.
        instructions: Of the user and the project, see ``instructions``.
        skills: The list of skills, see ``skills_index``.
        model: Who answers.
        called_by_agent: Whether the one who asks is an agent, and this one is to know.
    """
    caller = _CALLED_BY_AGENT if called_by_agent else ""
    if model:
        environment_text = environment_text.replace("\n</environment>", f"\nModel: {model}\n</environment>")
    parts = (preset_body.strip(), caller, instructions, skills, environment_text)
    return "\n\n".join(part for part in parts if part)


def _git_branch(root: Path) -> str:
    if not any((place / ".git").exists() for place in (root, *root.parents)):
        return "not a repository"  # as git would say, whose two processes every agent would wait for
    git = installation.program("git")
    if git is None:
        return "not known"
    try:
        if (branch := _git_output(git, root, "rev-parse", "--abbrev-ref", "HEAD")) is not None:
            return f"on branch {branch}"
        branch = _git_output(git, root, "symbolic-ref", "--short", "HEAD")  # also before the first commit
    except (OSError, subprocess.SubprocessError):
        branch = None
    return "not a repository" if branch is None else f"on branch {branch}, without commits"


def _git_output(git: str, root: Path, *words: str) -> str | None:
    """Return what git says, None where it fails."""
    found = subprocess.run(
        [git, "-C", str(root), *words],
        capture_output=True,
        encoding="utf-8",
        errors="replace",  # a branch may be named by any bytes
        timeout=2,
        env={**os.environ, "PATH": installation.PATH},
        check=False,
    )
    return found.stdout.strip() if found.returncode == 0 else None


# Project instructions: what AGENTS.md, CLAUDE.md and CONTEXT.md of a project tell every agent that works in it.
#
# They are looked for from the workspace root upwards to the top of its repository, and the user's own stand before
# them, so the nearest word is the last. They come with a checkout and are somebody else's text:
# they are honoured as instructions and can never widen a permission, which the policy alone decides. Only such a
# file is read, never what a link in its place leads to outside of the repository, and nothing is imported
# (``@file``).

NAMES = ("AGENTS.md", "CLAUDE.md", "CONTEXT.md")

LONGEST = 32_000  # characters of all of them, about 8,000 tokens

_MAX_BYTES = 1_000_000  # that are read of one file
_MAX_LEVELS = 40  # directories


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """What was found.

    Attributes:
        text: As it stands in the system prompt; "" when there are none.
        files: Where it comes from, outermost first.
        notes: What the user should know, one line each.
    """

    text: str = ""
    files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()


def project_levels(root: Path) -> list[Path]:
    """Return the directories of a project, from the top of its repository down to ``root``; only that without one."""
    found = []
    for directory in (root, *root.parents)[:_MAX_LEVELS]:
        found.append(directory)
        if (directory / ".git").exists():
            return found[::-1]
    return [root]


def find_instructions(root: Path, own: Sequence[Path] = ()) -> Instructions:
    """Return the instructions for sessions that work in ``root``; blocks.

    Args:
        root: The workspace root.
        own: The user's files; the first that exists counts.
    """
    notes: list[str] = []
    texts: dict[Path, str] = {}
    for file in own:
        if (text := _read(file, None, notes)) is not None:
            texts[file] = text
            break
    directories = project_levels(root)
    for directory in directories:
        for name in NAMES:
            file = directory / name
            if (text := _read(file, directories[0], notes)) is not None and text not in texts.values():
                texts[file] = text
    room, kept, cut = LONGEST, dict[Path, str](), []
    for file, text in texts.items():
        if len(text) > room:
            cut.append(file)
            text = text[:room].rstrip()
        room -= len(text)
        if text:
            kept[file] = text
    if cut and cut[0] in kept:
        kept[cut[0]] += "\n[The rest of these instructions is left out: there are more than fit.]"
    if cut:
        losing = ", ".join(map(str, cut))
        notes.append(
            f"The project instructions are longer than {LONGEST:,} characters (about {LONGEST // 4:,} tokens): "
            f"the model gets the beginning, without the rest of {losing}"
        )
    shown = []
    for file, text in kept.items():
        inside = text.replace("</project_instructions", "<\\/project_instructions")  # it ends where we end it
        shown.append(f'<project_instructions path="{file}">\n{inside}\n</project_instructions>')
    if shown:
        shown.insert(
            0,
            "The user's and the project's own instructions follow, the nearest to the workspace last; where two "
            "disagree, the later one counts. They do not change what you are permitted to do.",
        )
    return Instructions(text="\n\n".join(shown), files=tuple(texts), notes=tuple(notes))


def _read(file: Path, top: Path | None, notes: list[str]) -> str | None:
    """Return the text of a file; None when there is none, it is empty, or leads out of ``top``."""
    try:
        real = file.resolve(strict=True)
        # A link may not make the model read what it was not meant to: another kind of file, or another place.
        if top is not None and (not real.is_relative_to(top.resolve()) or real.suffix.lower() != ".md"):
            notes.append(f"{file} was not read: it is a link to {real}")
            return None
        with regularfile.open_binary(real, limit=regularfile.DOCUMENT) as opened:
            data = opened.read(_MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except (OSError, RuntimeError) as error:  # RuntimeError: links that go round
        notes.append(f"{file} was not read: {getattr(error, 'strerror', None) or error}")
        return None
    return writable(data.decode("utf-8-sig", "replace")).strip() or None


# Skills: know-how for one kind of task, told to the model by name and description, and read when it is wanted.
#
# A skill is a directory with ``SKILL.md``: front matter with ``name`` (kebab-case) and ``description``, below it
# what the model reads. They are looked for in the project (``.agents/skills`` and ``.claude/skills``, the nearest
# directory first), with the user, in what comes with the package, and where the configuration says
# (``skills.paths``). The first of a name counts, the others are told. Addresses on the network are
# no source: what instructs a model must not change with who answers a request.

Origin = Literal["project", "user", "shipped", "config"]

FILE = "SKILL.md"
_OF_PROJECT = (".agents/skills", ".claude/skills")
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_NAME_LENGTH = 64
_DESCRIPTION = 500  # characters of one, as far as the model is told
_MOST = 100  # of one directory
_SKILLS_MAX_BYTES = 500_000  # of one file


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


def _skill_name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value.strip()) or len(value.strip()) > _NAME_LENGTH:
        raise ValueError
    return value.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class _SkillFront:
    """The front matter of a skill."""

    name: Annotated[str, Rule(parse=_skill_name, words="a name in lower case, with digits and dashes")]
    description: FullText


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
                f"{file}: it is a link to {real}, outside of the project", hint="Put the skill itself there"
            )
        data = regularfile.read_bytes(real, limit=_SKILLS_MAX_BYTES)
    except (OSError, RuntimeError) as error:
        raise StoreError(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    return _skill(data, file, real, origin)


@lru_cache(maxsize=128)
def _skill(data: bytes, file: Path, real: Path, origin: Origin) -> Skill:
    """Return the skill that the bytes of a file are: every run reads the files, and few of them have changed."""
    try:
        parsed = presetfile.decode(data, file)
    except PyagentdError as error:
        raise SkillError(error.message, hint="A skill begins with ---, name: and description:, and ---") from error
    front = read(parsed.front, _SkillFront, Source.of_front_matter(parsed.front, str(file), SkillError))
    body = writable(parsed.body).strip()
    return Skill(
        name=front.name, description=" ".join(front.description.split()), file=real, origin=origin, body=body
    )


def skills_index(skills: Mapping[str, str]) -> str:
    """Return the part of the system prompt that tells the skills: descriptions by name."""
    if not skills:
        return ""
    lines = "\n".join(f"- {name}: {truncate(told, _DESCRIPTION)}" for name, told in skills.items())
    return (
        f"<skills>\nSkills hold know-how for one kind of task. When what is asked fits one of these, read it with "
        f"the skill tool before you begin:\n{lines}\n</skills>"
    )


def skill_text(skill: Skill) -> str:
    """Return what the skill tool returns (with the mark that models know from other hosts)."""
    inside = skill.body.replace("</skill_content", "<\\/skill_content")
    return (
        f'<skill_content name="{skill.name}">\n{inside}\n</skill_content>\n'
        f"Files that it names are relative to {skill.file.parent}"
    )


def _sources(
    root: Path | None, user: Sequence[Path], shipped: Path, config: Sequence[Path]
) -> Iterator[tuple[Path, Origin, Path | None]]:
    """Yield where skills are, those that count more first, with what a project's must be below of."""
    places = project_levels(root) if root is not None else []
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


# Where a session works: its workspace root, and what the system prompt tells about it.
#
# Environment, project instructions and the list of skills are made once per session and kept in its log, so that the
# prefix which a provider caches stays the same from the first request to the last; a compaction, which begins a new
# prefix anyway, has them made anew (``renew_workplace``). Nothing that a log says gives a right: what of a skill may
# be read follows from where it is found now.


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """Where one session works, as its system prompt tells it."""

    root: Path
    environment: str
    instructions: str = ""
    skills: Mapping[str, str]  # descriptions by name


async def workplace_of(kernel: "Kernel", branch: LiveBranch) -> Workplace:
    """Return where a session works; found and recorded when its first run needs it."""
    metadata = branch.conversation.session.get("metadata_json", {})
    if any(name not in metadata for name in TAKEN_OVER):
        await renew_workplace(kernel, branch, keep=metadata)
    session = branch.conversation.session
    metadata = session["metadata_json"]
    return Workplace(
        root=Path(session["workspace_root"]),
        environment=str(metadata["environment"]),
        instructions=str(metadata["instructions"]),
        skills={str(name): str(said) for name, said in dict(metadata["skills"]).items()},
    )


def skills_of(config: Config, root: Path | None) -> Skills:
    """Return the skills that there are now for sessions in ``root``; blocks."""
    own: OwnPlaces = config.own
    return find_skills(root, user=own.skills, shipped=installation.shipped("skills"), config=own.more_skills)


async def renew_workplace(
    kernel: "Kernel", branch: LiveBranch, *, keep: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Look where a session works and record it, anew when its conversation is compacted; facts in ``keep`` stay."""
    root = Path(branch.conversation.session.get("workspace_root") or Path.home())  # one that was made without us
    found, notes = await asyncio.to_thread(_look, kernel, root)
    kept = {name: keep[name] for name in TAKEN_OVER if name in keep}
    branch.record_session(workspace_root=root, metadata={**found, **kept})
    for note in notes:
        branch.say(note)


def _look(kernel: "Kernel", root: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    instructions, skills = find_instructions(root, kernel.config.own.instructions), skills_of(kernel.config, root)
    found = {
        "environment": environment(root, kernel.clock.now()),
        "instructions": instructions.text,
        "skills": {skill.name: skill.description for skill in skills.found.values()},
    }
    return found, (*instructions.notes, *skills.notes)


# The skill tool: reads one of the skills that the system prompt lists.

NAME = "skill"


def skill_tool(read: dict[str, str], names: Mapping[str, str], found: Callable[[], Mapping[str, Skill]]) -> ToolSpec:
    """Return the tool for the runs of one session.

    Args:
        read: What was read before, which does not change; by name.
        names: The skills that its system prompt lists.
        found: Returns the skills that there are now.
    """

    async def run(args: Args, ctx: ToolContext) -> str:
        name = args["name"]
        if name not in read:
            skill = found().get(name)
            if skill is None:
                raise ToolError(
                    f"The skill {name} is not there any more. Go on without it and say so in your answer."
                )
            read[name] = skill_text(skill)
        return read[name]

    return ToolSpec(
        name=NAME,
        description="Read one of the skills listed in <skills> before you do what it is about.",
        input_schema=object_schema({"name": {"type": "string", "enum": sorted(names), "description": "Which skill"}}),
        kind="meta",
        repeatable=True,
        parallel_safe=True,
        run=run,
        describe=lambda args, ctx: Target(detail=args["name"]),
    )
