"""``pyagentd doctor``: is everything there, and if not, which line fixes it."""

from __future__ import annotations

import sys

import click

from pyagentd import __version__
from pyagentd.cli.outcome import ExitCode
from pyagentd.cli.output import colour, json_option, print_json

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "missing": ("✗", "red")}


@click.command()
@click.option("--no-emacs", is_flag=True, help="Do not check Emacs (it is Emacs that asks).")
@json_option
def doctor(no_emacs: bool, as_json: bool) -> int:
    """Check the installation; exit 1 if something needed is missing.

    Starts nothing and changes nothing.
    """
    from pyagentd.cli.checks import all_checks
    from pyagentd.wire.framing import PROTOCOL

    findings = []
    for finding in all_checks(emacs=not no_emacs):
        findings.append(finding)
        if not as_json:
            mark, shade = _MARKS[finding.level]
            click.echo(
                f"{click.style(mark, fg=shade) if colour(sys.stdout) else mark} {finding.name}: {finding.detail}"
            )
            if finding.mend:
                click.echo(f"    {finding.mend}")
    well = all(finding.level != "missing" for finding in findings)
    if as_json:
        checks = [finding._asdict() for finding in findings]
        print_json({"ok": well, "version": __version__, "protocol": PROTOCOL, "checks": checks})
    return ExitCode.DONE if well else ExitCode.FAILED
