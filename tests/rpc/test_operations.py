"""Plists meet signatures."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pyagentd.errors import BadRequest
from pyagentd.rpc.operations import operation
from pyagentd.sexp import decode


async def attach(client: Any, *, branch: str, seq: int | None, sha256: str = "", take_it: bool = False) -> None:
    """Attach to a branch."""


ATTACH = operation("attach_it", attach)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('((:branch "b" :seq 3))', {"branch": "b", "seq": 3}),
        ('((:branch "b" :seq nil))', {"branch": "b", "seq": None}),
        ('((:branch "b" :seq 0 :take-it t :sha256 nil))', {"branch": "b", "seq": 0, "take_it": True}),
        ('((:branch "b" :seq 0 :take-it nil))', {"branch": "b", "seq": 0}),
    ],
)
def test_a_plist_becomes_keyword_arguments_and_nil_means_the_default(
    arguments: str, expected: dict[str, Any]
) -> None:
    assert ATTACH.bind(decode(arguments)) == expected


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("nil", "missing :branch :seq"),
        ("(nil)", "missing :branch :seq"),
        ('((:branch "b"))', "missing :seq$"),
        ('((:branch "b" :seq 1 :colour 2 :client 3))', "unknown :client :colour$"),
        ("((:seq 1 :colour 2))", "unknown :colour, missing :branch$"),
        ("((:branch))", "plist"),
        ('((branch "b"))', "plist"),
        ('(:branch "b")', "takes one plist"),
        ('("b" 3)', "takes one plist"),
        ('"b"', "takes one plist"),
    ],
)
def test_what_does_not_fit_is_named(arguments: str, complaint: str) -> None:
    with pytest.raises(BadRequest) as caught:
        ATTACH.bind(decode(arguments))
    assert caught.match("attach-it")
    assert re.search(complaint, caught.value.message)
    assert caught.value.mend == "It takes (:branch :seq :sha256 :take-it)."


def test_an_operation_describes_itself() -> None:
    assert (ATTACH.name, ATTACH.arguments, ATTACH.doc) == (
        "attach-it",
        "(:branch :seq :sha256 :take-it)",
        "Attach to a branch.",
    )
