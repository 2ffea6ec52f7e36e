"""Errors as values: what ``throw`` is given and what is known of an error that ``catch`` has bound."""

from __future__ import annotations

from typing import Any, Final

from pyagentd.lisp.access import find
from pyagentd.lisp.builtins.arguments import mapping, string
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.missing import MISSING
from pyagentd.lisp.values import Keyword

FAMILY: Final = Family("Errors")
define = FAMILY.define

_MESSAGE: Final = Keyword("message")
_DATA: Final = Keyword("data")


@define("ex-info")
def ex_info(message: Any, data: Any = MISSING) -> dict[Any, Any]:
    """Return an error for ``throw``: a map of its message and, if given, of data.

    (ex-info "no such user" {:id 7}) => {:message "no such user" :data {:id 7}}
    """
    made = {_MESSAGE: string("ex-info", message)}
    return made if data is MISSING else {**made, _DATA: mapping("ex-info", data)}


@define("ex-message")
def ex_message(error: Any) -> Any:
    """Return the message of an error.

    (try (throw "too late") (catch e (ex-message e))) => "too late"
    """
    return find(mapping("ex-message", error), _MESSAGE, None)


@define("ex-data")
def ex_data(error: Any) -> Any:
    """Return the data an error was made with, nil when there is none.

    (ex-data (ex-info "late" {:by 3})) => {:by 3}
    """
    return find(mapping("ex-data", error), _DATA, None)
