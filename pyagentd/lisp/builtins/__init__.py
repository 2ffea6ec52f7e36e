"""The builtin functions of the language, by name.

``BUILTINS`` has them all. Builtins are pure functions: they access neither disk nor network nor clock.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pyagentd.lisp.builtins import collections, folding, functions, maps, numbers, table, text
from pyagentd.lisp.builtins.table import Builtin, Family

FAMILIES: Final[tuple[Family, ...]] = (
    collections.transforming_define,
    collections.places_define,
    collections.picking_define,
    collections.arranging_define,
    folding.sorting_define,
    folding.aggregation_define,
    folding.define,
    collections.define,
    maps.define,
    maps.nesting_define,
    maps.sets_define,
    numbers.define,
    numbers.rounding_define,
    numbers.conversion_define,
    functions.comparing_define,
    functions.predicates_define,
    text.define,
    text.searching_define,
    text.formatting_define,
    text.regex_define,
    text.jsontext_define,
    functions.define,
    collections.stages_define,
    table.define,
)

BUILTINS: Final[Mapping[str, Builtin]] = MappingProxyType(
    {name: builtin for family in FAMILIES for name, builtin in family.builtins.items()}
)

__all__ = ["BUILTINS", "FAMILIES", "Builtin", "Family"]
