"""``pyagentd skills``: the know-how that models are told of."""

from __future__ import annotations

from pathlib import Path

import click

from pyagentd.cli.link import daemon
from pyagentd.cli.options import project_option
from pyagentd.cli.outcome import ExitCode
from pyagentd.cli.output import json_option, note, print_json, print_table


@click.command()
@project_option("skills")
@json_option
def skills(root: Path, as_json: bool) -> ExitCode:
    """List the skills that new sessions are told of.

    They are SKILL.md in directories below .agents/skills and .claude/skills of the project, then your own, then those
    that come with pyagentd; of two with one name the first counts. One that is broken is told with file and line.
    """
    with daemon() as link:
        answer = link.call("skills", root=str(root.resolve()))
    found, hidden, broken = (list(answer[key] or ()) for key in ("skills", "hidden", "broken"))
    if as_json:
        print_json({"skills": found, "hidden": hidden, "broken": broken})
    else:
        print_table(
            ("skill", "origin", "description", "file"),
            [(row["name"], row["origin"], row["description"], row["file"]) for row in found],
        )
        for row in hidden:
            note(f"two are called {row['name']}: not used is {row['file']}")
        for row in broken:
            note(f"cannot be used: {row['error']}")
    return ExitCode.FAILED if broken else ExitCode.DONE
