"""``pyagentd acp``: for editors that speak the Agent Client Protocol."""

import asyncio

import click

from pyagentd import acp as protocol
from pyagentd.cli.link import complete_agent
from pyagentd.cli.output import ExitCode
from pyagentd.installation import extra


@click.command()
@click.option(
    "--preset",
    default="",
    metavar="NAME",
    shell_complete=complete_agent,
    help="Preset of new sessions (default: as for `pyagentd new`).",
)
def acp(preset: str) -> ExitCode:
    """Speak the Agent Client Protocol on stdin and stdout.

    Editors run this, people do not. The sessions are the same as in Emacs and on the command line. A run continues
    when the editor quits.
    """
    with extra("acp", "The Agent Client Protocol"):
        serve = protocol.agent.serve
    asyncio.run(serve(preset))
    return ExitCode.DONE
