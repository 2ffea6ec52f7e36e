"""The command line: what ``pyagentd`` and ``python -m pyagentd`` run.

One module per group of commands; ``app`` puts them together and turns errors into exit codes. Only ``click`` is
imported at the start: ``rich``, the wire and the store come when a command needs them, so ``--version`` and shell
completion stay fast.
"""

try:
    from pyagentd.cli.app import main
except ModuleNotFoundError as error:
    if error.name != "click":
        raise
    raise SystemExit("pyagentd: only the library is installed. The command line needs pyagentd[daemon]") from None
except KeyboardInterrupt:  # while all that is loaded
    raise SystemExit(130) from None

__all__ = ["main"]
