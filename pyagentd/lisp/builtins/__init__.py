"""The functions every program has, by name.

One module per family; ``BUILTINS`` joins them. Builtins are pure: they touch neither disk nor network nor clock, and
what they give depends on their arguments only.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pyagentd.lisp.builtins import collections as arranging
from pyagentd.lisp.builtins import collections as building
from pyagentd.lisp.builtins import collections as picking
from pyagentd.lisp.builtins import collections as places
from pyagentd.lisp.builtins import collections as stages
from pyagentd.lisp.builtins import collections as transforming
from pyagentd.lisp.builtins import folding, functions, maps, numbers, text
from pyagentd.lisp.builtins import folding as aggregation
from pyagentd.lisp.builtins import folding as sorting
from pyagentd.lisp.builtins import functions as comparing
from pyagentd.lisp.builtins import functions as predicates
from pyagentd.lisp.builtins import maps as nesting
from pyagentd.lisp.builtins import maps as sets
from pyagentd.lisp.builtins import table as failing
from pyagentd.lisp.builtins.table import Builtin, Family

FAMILIES: Final[tuple[Family, ...]] = (
    transforming.TRANSFORMING_FAMILY,
    places.PLACES_FAMILY,
    picking.PICKING_FAMILY,
    arranging.ARRANGING_FAMILY,
    sorting.SORTING_FAMILY,
    aggregation.AGGREGATION_FAMILY,
    folding.FAMILY,
    building.FAMILY,
    maps.FAMILY,
    nesting.NESTING_FAMILY,
    sets.SETS_FAMILY,
    numbers.FAMILY,
    numbers.ROUNDING_FAMILY,
    numbers.CONVERSION_FAMILY,
    comparing.COMPARING_FAMILY,
    predicates.PREDICATES_FAMILY,
    text.FAMILY,
    text.SEARCHING_FAMILY,
    text.FORMATTING_FAMILY,
    text.REGEX_FAMILY,
    text.JSONTEXT_FAMILY,
    functions.FAMILY,
    stages.STAGES_FAMILY,
    failing.FAMILY,
    numbers.BITS_FAMILY,
)

BUILTINS: Final[Mapping[str, Builtin]] = MappingProxyType(
    {name: builtin for family in FAMILIES for name, builtin in family.builtins.items()}
)

__all__ = ["BUILTINS", "FAMILIES", "Builtin", "Family"]
