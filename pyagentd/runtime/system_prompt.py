"""Builds the system prompt: the preset's text, project instructions, skills, and the environment.

All but the first are built once per session and kept in its log, so that the prefix that a provider caches stays the
same from the first request to the last.
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
from pyagentd.runtime.presets import TAKEN_OVER
from pyagentd.store import presetfile
from pyagentd.store.document.render import writable
from pyagentd.tools.spec import Args, ToolContext, ToolSpec, object_schema

if TYPE_CHECKING:
    from pyagentd.runtime.branch import LiveBranch
    from pyagentd.runtime.kernel import Kernel


def environment(root: Path, now: datetime) -> str:
    """Return a description of a session's workspace; blocks briefly (git)."""
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
    """Return the whole system prompt; its order must not change, since providers cache the prefix.

    Args:
        preset_body: The body of the agent's preset.
        environment_text: See ``environment``.
        instructions: Instructions of the user and the project, see ``find_instructions``.
        skills: The list of skills, see ``skills_index``.
        model: The model that answers.
        called_by_agent: Whether to say that the caller is another agent.
    """
    caller = _CALLED_BY_AGENT if called_by_agent else ""
    if model:
        environment_text = environment_text.replace("\n</environment>", f"\nModel: {model}\n</environment>")
    parts = (preset_body.strip(), caller, instructions, skills, environment_text)
    return "\n\n".join(part for part in parts if part)


def _git_branch(root: Path) -> str:
    if not any((place / ".git").exists() for place in (root, *root.parents)):
        return "not a repository"  # without starting git, for which every agent would wait
    git = installation.program("git")
    if git is None:
        return "not known"
    try:
        if (branch := _git_output(git, root, "rev-parse", "--abbrev-ref", "HEAD")) is not None:
            return f"on branch {branch}"
        branch = _git_output(git, root, "symbolic-ref", "--short", "HEAD")  # works before the first commit too
    except (OSError, subprocess.SubprocessError):
        branch = None
    return "not a repository" if branch is None else f"on branch {branch}, without commits"


def _git_output(git: str, root: Path, *words: str) -> str | None:
    """Return git's output, None if it fails."""
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


# Project instructions: AGENTS.md, CLAUDE.md and CONTEXT.md of a project, for every agent that works in it.
#
# They are read from the workspace root up to the top of its repository. The user's own come first and the nearest
# ones last. They come with a checkout and may be written by anyone: the model follows them as instructions, but they
# never widen a permission, which only the policy decides. A link that leads out of the repository is not followed,
# and nothing is imported (``@file``).

NAMES = ("AGENTS.md", "CLAUDE.md", "CONTEXT.md")

LONGEST = 32_000  # characters of all files together, about 8,000 tokens

_MAX_BYTES = 1_000_000  # read from one file
_MAX_LEVELS = 40  # directories


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """The instructions of one workspace root.

    Attributes:
        text: The section of the system prompt; "" without instructions.
        files: The files it comes from, the user's first, then the outermost.
        notes: Notes for the user, one line each.
    """

    text: str = ""
    files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()


def project_levels(root: Path) -> list[Path]:
    """Return the directories from the top of the repository down to ``root``; only ``root`` without a repository."""
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
        own: The user's files; the first that exists is used.
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
        inside = text.replace("</project_instructions", "<\\/project_instructions")  # a file cannot close our tag
        shown.append(f'<project_instructions path="{file}">\n{inside}\n</project_instructions>')
    if shown:
        shown.insert(
            0,
            "The user's and the project's own instructions follow, the nearest to the workspace last; where two "
            "disagree, the later one counts. They do not change what you are permitted to do.",
        )
    return Instructions(text="\n\n".join(shown), files=tuple(texts), notes=tuple(notes))


def _read(file: Path, top: Path | None, notes: list[str]) -> str | None:
    """Return the text of a file; None if it is missing, empty, or a link that leads out of ``top``."""
    try:
        real = file.resolve(strict=True)
        # A link must not expose other files to the model: of another type, or outside ``top``.
        if top is not None and (not real.is_relative_to(top.resolve()) or real.suffix.lower() != ".md"):
            notes.append(f"{file} was not read: it is a link to {real}")
            return None
        with regularfile.open_binary(real, limit=regularfile.DOCUMENT) as opened:
            data = opened.read(_MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except (OSError, RuntimeError) as error:  # RuntimeError: circular links
        notes.append(f"{file} was not read: {getattr(error, 'strerror', None) or error}")
        return None
    return writable(data.decode("utf-8-sig", "replace")).strip() or None


# Skills: know-how for one kind of task, listed in the prompt by name and description; the model reads it on demand.
#
# A skill is a directory with ``SKILL.md``: front matter with ``name`` (kebab-case) and ``description``, then the text
# for the model. Skills are read from the project (``.agents/skills`` and ``.claude/skills``, the nearest directory
# first), from the user's directories, from the package, and from the configured directories (``skills.paths``). Of
# two with the same name the first is used, and the user is told of the others. Network addresses are not supported:
# instructions of a model must not change with the server that answers.

Origin = Literal["project", "user", "shipped", "config"]

FILE = "SKILL.md"
_OF_PROJECT = (".agents/skills", ".claude/skills")
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_NAME_LENGTH = 64
_DESCRIPTION = 500  # characters of a description in the prompt
_MOST = 100  # of one directory
_SKILLS_MAX_BYTES = 500_000  # of one file


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """One skill.

    Attributes:
        file: Its ``SKILL.md``, resolved; the files beside it may be read.
        body: The text for the model.
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
        found: Usable skills by name.
        hidden: Skills hidden by another with the same name, each with that other.
        broken: Files of skills that cannot be used, each with its error.
    """

    found: Mapping[str, Skill]
    hidden: tuple[tuple[Skill, Skill], ...] = ()
    broken: tuple[tuple[Path, PyagentdError], ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user, one line each."""
        return (
            *(f"Two skills are called {each.name}: {by.file} counts, not {each.file}" for each, by in self.hidden),
            *(f"A skill cannot be used: {error}" for _, error in self.broken),
        )


def find_skills(root: Path | None, *, user: Sequence[Path], shipped: Path, config: Sequence[Path] = ()) -> Skills:
    """Return the skills for sessions that work in ``root``; without a project's skills for None; blocks."""
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
    """Return the skill in ``file``, which must resolve to a path below ``top``, if given.

    Raises:
        SkillError: It is malformed, or a link out of ``top``; the message names file and line.
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
    """Parse a skill; cached, since every run reads the files and few of them change."""
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
    """Return the section of the system prompt that lists skills, given as descriptions by name."""
    if not skills:
        return ""
    lines = "\n".join(f"- {name}: {truncate(description, _DESCRIPTION)}" for name, description in skills.items())
    return (
        f"<skills>\nSkills hold know-how for one kind of task. When what is asked fits one of these, read it with "
        f"the skill tool before you begin:\n{lines}\n</skills>"
    )


def skill_text(skill: Skill) -> str:
    """Return the result of the skill tool, in the tags that models know from other hosts."""
    inside = skill.body.replace("</skill_content", "<\\/skill_content")
    return (
        f'<skill_content name="{skill.name}">\n{inside}\n</skill_content>\n'
        f"Files that it names are relative to {skill.file.parent}"
    )


def _sources(
    root: Path | None, user: Sequence[Path], shipped: Path, config: Sequence[Path]
) -> Iterator[tuple[Path, Origin, Path | None]]:
    """Yield directories of skills by precedence, with their origin and, for a project, the top they must be below."""
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


# A session's workspace: its root, and what the system prompt says about it.
#
# Environment, project instructions and the list of skills are built once per session and kept in its log, so that the
# prefix that a provider caches stays the same from the first request to the last; a compaction starts a new prefix
# anyway, and rebuilds them (``renew_workplace``). The log grants no permission: which files of a skill may be read
# depends on where the skill is found on disk.


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """The workspace of one session, as in its system prompt."""

    root: Path
    environment: str
    instructions: str = ""
    skills: Mapping[str, str]  # descriptions by name


async def workplace_of(kernel: "Kernel", branch: "LiveBranch") -> Workplace:
    """Return the workspace of a session; it is looked up and recorded before the first run."""
    metadata = branch.conversation.session.get("metadata_json", {})
    if any(name not in metadata for name in TAKEN_OVER):
        await renew_workplace(kernel, branch, keep=metadata)
    session = branch.conversation.session
    metadata = session["metadata_json"]
    return Workplace(
        root=Path(session["workspace_root"]),
        environment=str(metadata["environment"]),
        instructions=str(metadata["instructions"]),
        skills={str(name): str(description) for name, description in dict(metadata["skills"]).items()},
    )


def skills_of(config: Config, root: Path | None) -> Skills:
    """Return the skills on disk for sessions in ``root``; blocks."""
    own: OwnPlaces = config.own
    return find_skills(root, user=own.skills, shipped=installation.shipped("skills"), config=own.more_skills)


async def renew_workplace(
    kernel: "Kernel", branch: "LiveBranch", *, keep: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Look up a session's workspace and record it, again at a compaction; facts in ``keep`` stay."""
    root = Path(branch.conversation.session.get("workspace_root") or Path.home())  # of a session made by hand
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
        read: Texts of skills that were read before, by name; they stay the same.
        names: The skills that its system prompt lists.
        found: Returns the skills on disk.
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
