"""``pyagentd messages``: what a model would be sent if there were nothing but the document."""

from __future__ import annotations

from pathlib import Path

import click

from pyagentd.cli.output import print_json
from pyagentd.errors import BadRequest


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--end", type=click.IntRange(min=1), metavar="POSITION", help="Read up to this Emacs position only.")
@click.option("--prompt-prefix", default="### ", show_default=True, help="Prefix of a prompt.")
@click.option("--response-prefix", default="", help="Prefix of an answer.")
def messages(file: Path, end: int | None, prompt_prefix: str, response_prefix: str) -> None:
    """Print the messages that FILE alone yields.

    They are those gptel would send, in the form of the Anthropic API. Needs no daemon and reads nothing but FILE,
    which is a chat in Markdown or plain text, or a session.md; chats in Org are refused.
    """
    from pyagentd.store.document.text import gptel_messages
    from pyagentd.store.export.importing import is_org

    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file} is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}") from error
    if is_org(file, text):
        raise BadRequest(
            f"{file} is an Org file: its roles stand in properties of headings, which pyagentd does not read",
            mend="Name a chat in Markdown or plain text",
        )
    print_json(gptel_messages(text, end=end, prompt_prefix=prompt_prefix, response_prefix=response_prefix))
