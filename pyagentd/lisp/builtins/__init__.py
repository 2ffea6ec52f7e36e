"""The builtin functions of the language, by name.

``BUILTINS`` has them all. Builtins are pure functions: they access neither disk nor network nor clock.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pyagentd.lisp.builtins import collections, folding, functions, maps, numbers, table, text
from pyagentd.lisp.builtins.table import Builtin, Family

FAMILIES: Final[tuple[Family, ...]] = (
    collections.TRANSFORMING_FAMILY,
    collections.PLACES_FAMILY,
    collections.PICKING_FAMILY,
    collections.ARRANGING_FAMILY,
    folding.SORTING_FAMILY,
    folding.AGGREGATION_FAMILY,
    folding.FAMILY,
    collections.FAMILY,
    maps.FAMILY,
    maps.NESTING_FAMILY,
    maps.SETS_FAMILY,
    numbers.FAMILY,
    numbers.ROUNDING_FAMILY,
    numbers.CONVERSION_FAMILY,
    functions.COMPARING_FAMILY,
    functions.PREDICATES_FAMILY,
    text.FAMILY,
    text.SEARCHING_FAMILY,
    text.FORMATTING_FAMILY,
    text.REGEX_FAMILY,
    text.JSONTEXT_FAMILY,
    functions.FAMILY,
    collections.STAGES_FAMILY,
    table.FAMILY,
    numbers.BITS_FAMILY,
)

BUILTINS: Final[Mapping[str, Builtin]] = MappingProxyType(
    {name: builtin for family in FAMILIES for name, builtin in family.builtins.items()}
)

__all__ = ["BUILTINS", "FAMILIES", "Builtin", "Family"]
