"""JSON text, which is what many tools return: read and written within the budget."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from pyagentd.lisp.builtins.arguments import refuse, string
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.encoding import size
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.values import to_python

FAMILY: Final = Family("JSON")
define = FAMILY.define

_DIGITS: Final = 3900  # as many as an integer of the default limit has


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError("a number is too long")
    return int(digits)


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_int=_integer, parse_constant=_constant)


@define("parse-json", "json/parse-string", "json/read-str", "json/decode", charges=True)
def parse_json(budget: Budget, s: Any) -> Any:
    r"""Return the value of a JSON text; keys stay strings, which keywords find.

    (parse-json "{\"a\": [1, null]}") => {"a" [1 nil]}
    (:a (parse-json "{\"a\": 5}")) => 5
    """
    text = string("parse-json", s)
    budget.bytes(len(text))
    budget.cells(len(text) // 2)  # no value takes fewer characters than a digit and a comma
    budget.steps(1 + len(text) // 8)
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise refuse("parse-json", f"no JSON at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise budget.too_deep() from None
    except ValueError:
        raise refuse("parse-json", "a number is too long, or none at all") from None


@define("to-json", "json/generate-string", "json/write-str", "json/encode", charges=True)
def to_json(budget: Budget, x: Any) -> str:
    r"""Return a value as JSON text; keywords become strings, sets vectors.

    (to-json {:a [1 nil :b]}) => "{\"a\":[1,null,\"b\"]}"
    """
    budget.bytes(size(x, budget, budget.limits.bytes))
    try:
        return json.dumps(to_python(x), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError):
        raise refuse("to-json", "there is no JSON for infinite numbers and for keys that are collections") from None
