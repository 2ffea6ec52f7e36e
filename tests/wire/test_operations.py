"""Plists meet signatures."""

import re
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Literal, NotRequired, TypedDict

import pytest

from pyagentd.api import GROUPS, methods
from pyagentd.errors import BadRequest
from pyagentd.wire.connection import by_person, operation
from pyagentd.wire.sexp import decode
from tests.replies import misfit


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
    assert caught.value.hint == "It takes (:branch :seq :sha256 :take-it)."


async def spawn(
    client: Any,
    *,
    prompt: str,
    turns: int | None = None,
    paths: Sequence[str] = (),
    mode: str = "edit",
    wait: bool = False,
    way: Literal["left", "right"] = "left",
    env: Mapping[str, str] | Sequence[str] = (),
) -> None:
    """Take a value of each kind that is checked."""


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("((:prompt nil))", "spawn: :prompt must be a string, got nil"),
        ("((:prompt 3))", "spawn: :prompt must be a string, got 3"),
        ("((:prompt (1 2)))", "spawn: :prompt must be a string, got (1 2)"),
        ('((:prompt "p" :turns "3"))', 'spawn: :turns must be an integer, got "3"'),
        ('((:prompt "p" :turns t))', "spawn: :turns must be an integer, got t"),
        ('((:prompt "p" :paths "/a/**"))', 'spawn: :paths must be a list of strings, got "/a/**"'),
        ('((:prompt "p" :paths ("/a/**" 47)))', 'spawn: :paths must be a list of strings, got ("/a/**" 47)'),
        ('((:prompt "p" :mode (view)))', "spawn: :mode must be a string, got (view)"),
        ('((:prompt "p" :wait "no"))', 'spawn: :wait must be t or nil, got "no"'),
        ('((:prompt "p" :way "up"))', 'spawn: :way must be one of left, right, got "up"'),
        ('((:prompt "p" :env (:a 1)))', "spawn: :env must be a plist or a list of strings, got (:a 1)"),
        ('((:prompt "p" :promt "q"))', "spawn: unknown :promt (did you mean :prompt?)"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_with_the_name_of_its_argument(arguments: str, complaint: str) -> None:
    with pytest.raises(BadRequest) as caught:
        operation("spawn", spawn).bind(decode(arguments))
    assert caught.value.message == complaint


def test_symbols_and_vectors_are_strings_and_lists() -> None:
    bound = operation("spawn", spawn).bind(decode('((:prompt "p" :mode view :turns 3 :paths ["/a/**"]))'))
    assert bound == {"prompt": "p", "mode": "view", "turns": 3, "paths": ["/a/**"]}


def test_an_operation_describes_itself() -> None:
    assert (ATTACH.name, ATTACH.arguments, ATTACH.doc) == (
        "attach-it",
        "(:branch :seq :sha256 :take-it)",
        "Attach to a branch.",
    )


async def test_an_operation_that_gives_rights_is_for_a_client_with_a_person_at_it() -> None:
    @by_person
    async def allow(client: Any, *, what: str) -> str:
        return what

    operation_, arguments = operation("allow", allow), decode('((:what "all"))')
    assert await operation_.call(SimpleNamespace(human=True), arguments) == "all"
    with pytest.raises(BadRequest, match="allow needs a person"):
        await operation_.call(SimpleNamespace(human=False), arguments)
    assert not ATTACH.human


def test_what_gives_rights_needs_a_person() -> None:
    offered = [operation(name, getattr(group, method)) for group in GROUPS for name, method in methods(group)]
    rights = {each.name for each in offered if each.human}
    assert rights == {
        "add-configuration",
        "answer",
        "lend-mcp",
        "trust-hooks",
        "trust-mcp",
        "trust-presets",
        "trust-session",
    }


class Reply(TypedDict):
    """Of a made-up operation."""

    name: str
    size: int
    parts: list[str]
    note: NotRequired[str | None]


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ({"name": "a", "size": 1, "parts": ["x"]}, ""),
        ({"name": "a", "size": 1, "parts": (), "note": None}, ""),
        ({"name": "a", "parts": []}, "reply has no size, as Reply has"),
        ({"name": "a", "size": True, "parts": []}, "reply.size is True, not int"),
        ({"name": "a", "size": 1, "parts": ["x", None]}, "reply.parts[1] is None, not str"),
        ({"name": "a", "size": 1, "parts": [], "more": 1}, "reply has more, which Reply has not"),
        (None, "reply is None, not Reply"),
    ],
)
def test_a_reply_that_is_not_as_its_type_says_is_found(value: object, wrong: str) -> None:
    assert misfit(value, Reply, "reply") == wrong


OPEN = {"branch-metadata", "load-preset", "preset-metadata", "session-metadata"}
"""What these return are the keys of a file, whichever it has."""


def test_the_reply_of_every_operation_has_a_type() -> None:
    offered = [operation(name, getattr(group, method)) for group in GROUPS for name, method in methods(group)]
    assert {each.name for each in offered if "dict[str, typing.Any]" in str(each.reply)} == OPEN
