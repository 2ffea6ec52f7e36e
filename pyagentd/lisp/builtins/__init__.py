"""The functions every program has, by name (SPEC 004 "The System Prompt"; DD-25).

One module per family; ``BUILTINS`` joins them. Builtins are pure: they touch neither disk nor network nor clock, and
what they give depends on their arguments only.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pyagentd.lisp.builtins import (
    aggregation,
    arithmetic,
    arranging,
    bits,
    building,
    comparing,
    conversion,
    failing,
    folding,
    formatting,
    functions,
    jsontext,
    maps,
    nesting,
    picking,
    places,
    predicates,
    regex,
    rounding,
    searching,
    sets,
    sorting,
    stages,
    texts,
    transforming,
)
from pyagentd.lisp.builtins.table import Builtin, Family

FAMILIES: Final[tuple[Family, ...]] = (
    transforming.FAMILY,
    places.FAMILY,
    picking.FAMILY,
    arranging.FAMILY,
    sorting.FAMILY,
    aggregation.FAMILY,
    folding.FAMILY,
    building.FAMILY,
    maps.FAMILY,
    nesting.FAMILY,
    sets.FAMILY,
    arithmetic.FAMILY,
    rounding.FAMILY,
    conversion.FAMILY,
    comparing.FAMILY,
    predicates.FAMILY,
    texts.FAMILY,
    searching.FAMILY,
    formatting.FAMILY,
    regex.FAMILY,
    jsontext.FAMILY,
    functions.FAMILY,
    stages.FAMILY,
    failing.FAMILY,
    bits.FAMILY,
)

BUILTINS: Final[Mapping[str, Builtin]] = MappingProxyType(
    {name: builtin for family in FAMILIES for name, builtin in family.builtins.items()}
)

__all__ = ["BUILTINS", "FAMILIES", "Builtin", "Family"]
