"""The one text of every signature."""

import pytest

from pyagentd.mission.signature import Constant, Constraint, Enum, Field, Primitive, Signature, parse, type_text

TABLE = [
    # what is written, how it is rendered
    (":int", "() -> :int"),
    ("-> :int?", "() -> :int?"),
    ("{:id :int :name :string}", "() -> {id :int, name :string}"),
    ("( q :string  n :int? )->[{:id :int}]", "(q :string, n :int?) -> [{id :int}]"),
    ("{:items [:string]?}", "() -> {items [:string]?}"),
    ("[:map [:id :int] [:email {:optional true} [:maybe :string]]]", "() -> {id :int, email :string?}"),
    ("[:map [:email {:optional true} :string]]", "() -> {email [:? :string]}"),
    ("[:map [:email [:maybe :string]]]", "() -> {email [:maybe :string]}"),
    ("[:=> [:catn [:q :string]] [:vector :int]]", "(q :string) -> [:int]"),
    ("[:or :string :nil]", "() -> :string?"),
    ('{s [:enum "a" :b 1 2.5 true false nil]}', '() -> {s [:maybe [:enum "a" :b 1 2.5 true false]]}'),
    ('[:= "a"]', '() -> [:enum "a"]'),
    ("{n [:and :int [:> 0] [:<= 1.5]]}", "() -> {n [:and :int [:> 0] [:<= 1.5]]}"),
    ("[:vector {:min 1 :max 2} :int]", "() -> [:vector {:min 1, :max 2} :int]"),
    ("[:map-of {:min 1} :string {}]", "() -> [:map-of {:min 1} :string {}]"),
    ("[:int {:max 5}]?", "() -> [:int {:max 5}]?"),
    ('{"a b" :int, "id" :int}', '() -> {"a b" :int, id :int}'),
    (
        '[:map {:closed true} ["a b" :int] [:c :int?] [:d {:optional true} :int]]',
        '() -> [:map {:closed true} ["a b" :int] [:c :int?] [:d [:? :int]]]',
    ),
    (r'[:enum "say \"hi\"\n\\"]', r'() -> [:enum "say \"hi\"\n\\"]'),
]


@pytest.mark.spec("004", "DD-8: Malli-based Schema System")
@pytest.mark.parametrize(("text", "rendered"), TABLE, ids=[text for text, _ in TABLE])
def test_is_canonical_and_parses_back(text, rendered):
    signature = parse(text)
    assert signature.render() == str(signature) == rendered
    assert parse(rendered) == signature
    assert parse(rendered).render() == rendered


@pytest.mark.parametrize("number", [0, -1, 10**30, 0.1, -1e-300, 1e22, 1.7976931348623157e308])
def test_numbers_of_any_size_parse_back(number):
    for of in (Enum((Constant(number),)), Constraint(">", number)):
        assert parse(type_text(of)).returns == of


def test_true_is_not_one():
    one, true = Enum((Constant(1),)), Enum((Constant(True),))
    assert one != true
    assert parse(type_text(true)).returns == true


def test_what_is_no_type_cannot_be_rendered():
    with pytest.raises(TypeError, match="not a type"):
        Signature((Field("a", "int"),), Primitive("int")).render()
