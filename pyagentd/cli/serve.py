"""``pyagentd serve``; a module of its own, so that the daemon greets before the other commands are imported."""

import click

from pyagentd import serving
from pyagentd.config import load_config


@click.command()
@click.option("--detach/--foreground", default=False, help="Go into the background (default: stay here).")
@click.option(
    "--tcp", "tcp_port", type=click.IntRange(0, 65535), metavar="PORT", help="Also listen on 127.0.0.1:PORT."
)
def serve(detach: bool, tcp_port: int | None) -> int:
    """Run the daemon.

    Emacs and other commands start it when needed; use this to watch it, or in a container. With --tcp, clients must
    present the token in the runtime file; port 0 lets the system choose.
    """
    return serving.serve(load_config(), detach=detach, tcp_port=tcp_port)
