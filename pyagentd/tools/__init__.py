"""What an agent can do: tools as data, their one boundary, and the built-in tools.

Imports next to nothing: two modules of this package are started as programs, and must start fast.
"""

from typing import TYPE_CHECKING

from pyagentd import door

if TYPE_CHECKING:
    from pyagentd.tools import page, webclient
else:
    __getattr__ = door(__name__, "page", "webclient")

__all__ = ["page", "webclient"]
