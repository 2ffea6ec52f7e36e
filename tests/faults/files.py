"""What must hold for the files of a branch or agent, whatever happened to the process or the disk."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pyagentd.store import metadata, paths
from pyagentd.store.document.render import replay
from pyagentd.store.document.text import read
from pyagentd.store.journal import Journal, Row
from pyagentd.store.paths import BranchRef

_OURS = {
    paths.SESSION_FILE, paths.PRESET_FILE, paths.SCOPE_PLAN_FILE, paths.JOURNAL_FILE, paths.AGENTS_DIR,
    paths.TOOLS_LOG_FILE, paths.PROMPTS_LOG_FILE, paths.REQUESTS_FILE, paths.FILES_DIR,
}  # fmt: skip


def branches_below(ref: BranchRef) -> list[BranchRef]:
    """Return a branch and all agents below it."""
    agents = paths.agents_dir(ref.branch_dir)
    places = sorted(agents.iterdir()) if agents.exists() else []
    return [ref, *(found for place in places for found in branches_below(paths.agent_ref(place)))]


def branch_problems(ref: BranchRef) -> list[str]:
    """Return what is wrong with the files of one branch or agent."""
    found = [f"left behind: {path.name}" for path in sorted(ref.branch_dir.iterdir()) if path.name not in _OURS]
    for name in (paths.SESSION_FILE, paths.PRESET_FILE, paths.SCOPE_PLAN_FILE):
        if not (ref.branch_dir / name).is_file():
            return [*found, f"no {name}"]
    if metadata.read_session_metadata(ref.branch_dir) is None:
        found.append("scope-plan.yml cannot be read")
    if metadata.read_preset_metadata(ref.branch_dir) is None:
        found.append("preset.md cannot be read")
    journal = Journal.open(paths.journal_file(ref.branch_dir))
    rows = journal.rows()
    journal.close()
    if journal.damaged or journal.torn:
        found.append(f"{journal.damaged} damaged lines, torn: {journal.torn}")
    return [*found, *_of_rows(rows), *_of_document(paths.session_file(ref.branch_dir), rows)]


def _of_rows(rows: list[Row]) -> list[str]:
    found: list[str] = []
    if [row.seq for row in rows] != list(range(1, len(rows) + 1)):
        found.append("numbers with gaps")
    ends: dict[str, int] = {}
    states: dict[str, str] = {}
    for row in rows:
        if row.type == "run":
            ends[row.data["id"]] = ends.get(row.data["id"], 0) + (row.data["state"] == "finished")
        if row.type == "part":
            states[row.data["id"]] = row.data["data_json"].get("state", "")
    found += [f"{run} has {count} ends" for run, count in ends.items() if count != 1]
    found += [f"{part} is {state}" for part, state in states.items() if state in ("streaming", "input-available")]
    return found


def _of_document(file: Path, rows: list[Row]) -> list[str]:
    doc, text = read(file), file.read_text()
    found: list[str] = []
    if any(row.type == "run" for row in rows) and text.count("Local Variables:") != 1:
        found.append(f"{text.count('Local Variables:')} blocks of Local Variables")
    for bounds in re.findall(r"gptel--bounds: (.*) -->", text):
        numbers = [int(number) for number in re.findall(r"\((\d+) (\d+)", bounds) for number in number]
        if numbers and not 1 <= min(numbers) <= max(numbers) <= len(doc.body) + 1:
            found.append(f"bounds out of range: {min(numbers)} to {max(numbers)} of {len(doc.body)}")
    for mark in _marks(rows):
        if (count := doc.body.count(mark)) != 1:
            found.append(f"{mark} is there {count} times")
    return found


def _marks(rows: list[Row]) -> list[str]:
    """Return the marks by which the texts of the model can be told apart."""
    shown = "".join(insert.text for insert in replay(rows, after=0))
    return sorted(set(re.findall(r"<\d+> ", shown)))


def age_everything(root: Path) -> None:
    """Make all files look as if they had been written long ago."""
    for place, directories, files in os.walk(root):
        for name in (*directories, *files):
            os.utime(Path(place) / name, (0, 0), follow_symlinks=False)
