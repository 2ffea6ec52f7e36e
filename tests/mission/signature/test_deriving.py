"""Signatures of Python functions and models."""

from __future__ import annotations

import collections.abc
import enum
import functools
import uuid
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NewType, Optional, TypedDict, TypeVar, Union

import pydantic
import pytest
import typing_extensions

from pyagentd.errors import SignatureError
from pyagentd.mission.signature import Signature, of_callable, parse
from pyagentd.mission.signature.hints import type_of_hint


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1


class Shape(enum.Enum):
    ROUND = object()


@dataclass
class Item:
    title: str
    price: float = 0.0
    tags: list[str] = field(default_factory=list)
    parent: Item | None = None
    hidden: int = field(default=0, init=False)


class Row(TypedDict):
    id: int
    note: typing_extensions.NotRequired[str]


class Loose(TypedDict, total=False):
    id: typing_extensions.Required[int]
    note: str


class Order(pydantic.BaseModel):
    id: int = pydantic.Field(gt=0, le=99)
    name: Annotated[str, pydantic.Field(min_length=2)]
    kind: str = pydantic.Field(alias="@kind", default="x")
    rows: list[int] = pydantic.Field(default_factory=list, max_length=3)
    when: datetime
    share: Annotated[float, pydantic.Field(ge=0, lt=1)] | None = None


UserId = NewType("UserId", int)
T = TypeVar("T")
Bound = TypeVar("Bound", bound=str)

HINTS = [
    (str, ":string"),
    (int, ":int"),
    (float, ":float"),
    (bool, ":bool"),
    (None, ":nil"),
    (Any, ":any"),
    (object, ":any"),
    (bytes, ":any"),
    (datetime, ":datetime"),
    (date, ":string"),
    (Path, ":string"),
    (uuid.UUID, ":string"),
    (Decimal, ":float"),
    (UserId, ":int"),
    (T, ":any"),
    (Bound, ":string"),
    (Final[int], ":int"),
    (list, "[:any]"),
    (list[int], "[:int]"),
    (list[list[str]], "[[:string]]"),
    (set[int], "[:int]"),
    (collections.abc.Sequence[int], "[:int]"),
    (tuple[int, ...], "[:int]"),
    (tuple[int, str], "[:vector {:min 2, :max 2} [:or :int :string]]"),
    (dict, ":map"),
    (dict[str, Any], ":map"),
    (dict[str, int], "[:map-of :string :int]"),
    (collections.abc.Mapping[int, str], "[:map-of :int :string]"),
    (int | None, ":int?"),
    (Optional[list[int]], "[:int]?"),  # noqa: UP045  the older spelling
    (Union[int, str], "[:or :int :string]"),  # noqa: UP007  the older spelling
    (int | str | None, "[:or :int :string]?"),
    (Literal["a", "b"], '[:enum "a" "b"]'),
    (Literal["a", 1, True, None], '[:enum "a" 1 true]?'),
    (Literal[Colour.RED], '[:enum "red"]'),
    (Colour, '[:enum "red" "blue"]'),
    (Size, "[:enum 1]"),
    (Shape, '[:enum "ROUND"]'),
    (Annotated[int, "a comment"], ":int"),
    (Annotated[str, pydantic.Field(max_length=5)], "[:string {:max 5}]"),
    (Annotated[int, pydantic.Field(gt=0), pydantic.Field(lt=9)], "[:and :int [:> 0] [:< 9]]"),
    (Annotated[bool, pydantic.Field(gt=0)], ":bool"),
    (Row, "{id :int, note :string?}"),
    (Loose, "{id :int, note :string?}"),
]


@pytest.mark.spec("004", "Tool Normalization & Schema Extraction")
@pytest.mark.parametrize(("hint", "text"), HINTS, ids=[text for _, text in HINTS])
def test_hints_are_types(hint, text):
    assert Signature((), type_of_hint(hint)).render() == f"() -> {text}"
    assert type_of_hint(hint) == parse(text).returns


def test_models_go_three_deep_and_may_contain_themselves():
    rest = "price :float?, tags [:string]?, parent"
    third = f"{{title :string, {rest} :map?}}?"
    second = f"{{title :string, {rest} {third}}}?"
    assert parse(Item).render() == f"() -> {{title :string, {rest} {second}}}"


def test_fields_of_pydantic_keep_bounds_and_aliases():
    assert parse(Order).render() == (
        "() -> {id [:and [:int {:max 99}] [:> 0]], name [:string {:min 2}],"
        ' "@kind" :string?, rows [:vector {:max 3} :int]?, when :datetime,'
        " share [:and [:float {:min 0}] [:< 1]]?}"
    )


def test_a_class_is_a_signature_where_one_is_read():
    assert parse({"items": list[Row]}).render() == "() -> {items [{id :int, note :string?}]}"


def search(query: str, limit: int = 10, *more: int, mode: Literal["all", "any"] = "all", **rest: int) -> list[Row]:
    raise NotImplementedError


async def fetch(url: str) -> dict[str, Any]:
    raise NotImplementedError


class Service:
    def find(self, name: str, exact: bool = False) -> Item | None:
        raise NotImplementedError

    def __call__(self, id: int) -> str:
        raise NotImplementedError


@functools.wraps(search)
def wrapped(*args, **kwargs):
    raise NotImplementedError


FUNCTIONS = [
    (search, '(query :string, limit :int?, mode [:enum "all" "any"]?) -> [{id :int, note :string?}]'),
    (wrapped, '(query :string, limit :int?, mode [:enum "all" "any"]?) -> [{id :int, note :string?}]'),
    (fetch, "(url :string) -> :map"),
    (Service(), "(id :int) -> :string"),
    (functools.partial(fetch, "x"), "() -> :map"),
    (lambda x, y=1: None, "(x :any, y :any?) -> :any"),
    (len, "(obj :any) -> :any"),
]


@pytest.mark.spec("004", "Tool Normalization & Schema Extraction")
@pytest.mark.parametrize(("function", "text"), FUNCTIONS, ids=[text for _, text in FUNCTIONS])
def test_functions_have_signatures(function, text):
    assert of_callable(function).render() == text


def test_a_method_has_no_self():
    assert of_callable(Service().find).params == parse("(name :string, exact :bool?) -> :any").params


def test_a_class_takes_what_its_fields_say():
    (first, *_, last) = of_callable(Item).params
    assert (first.name, last.name) == ("title", "parent")
    assert of_callable(Item).returns == parse(Item).returns


def unresolved(x: NoSuchName) -> int:  # type: ignore[name-defined]  # noqa: F821
    raise NotImplementedError


ERRORS = [
    (lambda: of_callable(unresolved), "the type hints of unresolved cannot be resolved"),
    (lambda: of_callable(5), "the parameters of int cannot be inspected"),
]


@pytest.mark.parametrize(("derive", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_what_cannot_be_derived_is_said_with_a_hint(derive, message):
    with pytest.raises(SignatureError, match=message) as caught:
        derive()
    assert caught.value.hint
