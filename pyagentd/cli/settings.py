"""``pyagentd config`` and ``completion``: how this installation is set up."""

from __future__ import annotations

import click

from pyagentd.cli.output import json_option, print_json, print_table


@click.group()
def config() -> None:
    """Show the configuration."""


@config.command("show")
@json_option
def show(as_json: bool) -> None:
    """Print every value and where it comes from.

    A value comes from its default, from the configuration file (with the line) or from an environment variable.
    """
    from pyagentd.config import load_config

    loaded = load_config()
    if as_json:
        values = {name: {"value": item.value, "source": item.source} for name, item in loaded.settings.items()}
        print_json({"file": str(loaded.file), "exists": loaded.file.exists(), "settings": values})
        return
    click.echo(f"# {loaded.file}" + ("" if loaded.file.exists() else " (does not exist)"))
    print_table(
        ("setting", "value", "source"), ((name, item.value, item.source) for name, item in loaded.settings.items())
    )


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    For bash: eval "$(pyagentd completion bash)".
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # click knows the three
    root = context.find_root()
    click.echo(kind(root.command, {}, root.info_name or "pyagentd", "_PYAGENTD_COMPLETE").source())
