"""The builtin functions of the language, by name.

``BUILTINS`` has them all. Builtins are pure functions: they access neither disk nor network nor clock.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pyagentd.lisp.builtins import collections, folding, functions, maps, numbers, text  # noqa: F401 -- declares them
from pyagentd.lisp.builtins.table import FAMILIES, Builtin, Family

BUILTINS: Final[Mapping[str, Builtin]] = MappingProxyType(
    {name: builtin for family in FAMILIES for name, builtin in family.builtins.items()}
)

__all__ = ["BUILTINS", "FAMILIES", "Builtin", "Family"]
