"""What an agent can do: tools as data, their one boundary, and the built-in tools.

Imports next to nothing: the search worker is started as a module of this package and must start fast.
"""

from typing import TYPE_CHECKING

from pyagentd.door import door

if TYPE_CHECKING:
    from pyagentd.tools import webclient
else:
    __getattr__ = door(__name__, "webclient")

__all__ = ["webclient"]
