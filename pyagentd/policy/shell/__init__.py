"""What a command line runs, writes and destroys, told without running it; fails closed.

``read`` takes a line apart into simple commands; ``refusal`` and ``denied`` hold them against ``shell_commands``.
"""

from pyagentd.policy.shell.reading import read
from pyagentd.policy.shell.refusal import ANY, denied, refusal
from pyagentd.policy.shell.values import Effect, ShellReading, SimpleCommand

__all__ = ["ANY", "Effect", "ShellReading", "SimpleCommand", "denied", "read", "refusal"]
