"""What signatures may look like, and what is said about those that look otherwise."""

import pytest

from pyagentd.lisp.values import Keyword
from pyagentd.mission.signature import (
    And,
    Constant,
    Constraint,
    Enum,
    Field,
    List,
    Map,
    MapOf,
    Maybe,
    Or,
    Primitive,
    Signature,
    SignatureError,
    parse,
)

INT, STRING, BOOL, FLOAT, ANY = map(Primitive, ["int", "string", "bool", "float", "any"])


def fields(**types):
    return Map(tuple(Field(name, type) for name, type in types.items()))


def optional(name, inner):
    return Field(name, Maybe(inner), optional=True)


RESULTS = [
    # primitives
    *[
        (f":{name}", Primitive(name))
        for name in ("string", "int", "float", "bool", "keyword", "map", "any", "datetime")
    ],
    (":nil", Primitive("nil")),
    (":boolean", BOOL),
    (":double", FLOAT),
    ("  :int\n", INT),
    # optional
    (":int?", Maybe(INT)),
    (":any?", Maybe(ANY)),
    ("[:int]?", Maybe(List(INT))),
    ("{a :int}?", Maybe(fields(a=INT))),
    ('[:enum "a"]?', Maybe(Enum((Constant("a"),)))),
    # lists
    ("[:int]", List(INT)),
    ("[:int?]", List(Maybe(INT))),
    ("[[:int]]", List(List(INT))),
    ("[:map]", List(Primitive("map"))),
    ("[{}]", List(Map(()))),
    # maps, in both spellings, with and without commas
    ("{}", Map(())),
    ("{id :int}", fields(id=INT)),
    ("{:id :int}", fields(id=INT)),
    ('{"id" :int}', fields(id=INT)),
    ("{id :int, name :string}", fields(id=INT, name=STRING)),
    ("{:id :int :name :string}", fields(id=INT, name=STRING)),
    ("{id :int name :string}", fields(id=INT, name=STRING)),
    ("{ :id  :int ,\n name :string }", fields(id=INT, name=STRING)),
    ("{id :int, name :string,}", fields(id=INT, name=STRING)),
    ("{user {id :int, profile {bio :string}}}", fields(user=fields(id=INT, profile=fields(bio=STRING)))),
    ("{:count :int :items [:string]?}", Map((Field("count", INT), optional("items", List(STRING))))),
    ("{_ids [:int]}", fields(_ids=List(INT))),
    ("{user-id :int}", Map((Field("user-id", INT),))),
    ("{:active? :bool}", Map((Field("active?", BOOL),))),
    ("{größe :int}", Map((Field("größe", INT),))),
    ('{"@type" :string, "a b" :int}', Map((Field("@type", STRING), Field("a b", INT)))),
    ("{true :int, nil :int}", Map((Field("true", INT), Field("nil", INT)))),
    # Malli
    ('[:enum "a" :b 1 2.5 true]', Enum((Constant("a"), Constant("b", True), *map(Constant, [1, 2.5, True])))),
    ('[:enum "a", "a"]', Enum((Constant("a"),))),
    ('[:enum "a" nil]', Maybe(Enum((Constant("a"),)))),
    ("[:enum nil]", Primitive("nil")),
    ('[:= "a"]', Enum((Constant("a"),))),
    ("[:or :int :string]", Or((INT, STRING))),
    ("[:or :string :nil]", Maybe(STRING)),
    ("[:or :nil]", Primitive("nil")),
    ("[:or [:or :int :string] [:maybe :bool]]", Maybe(Or((INT, STRING, BOOL)))),
    ("[:or :int :int]", INT),
    ("[:and :int [:> 0] [:< 100]]", And((INT, Constraint(">", 0), Constraint("<", 100)))),
    ("[:and [:and :int [:>= -1]] [:<= 2.5]]", And((INT, Constraint(">=", -1), Constraint("<=", 2.5)))),
    ("[:and :int]", INT),
    ("[:> 0]", Constraint(">", 0)),
    ("[:maybe :int]", Maybe(INT)),
    ("[:maybe [:maybe :int]]", Maybe(INT)),
    ("[:maybe :int]?", Maybe(INT)),
    ("[:vector :int]", List(INT)),
    ("[:sequential [:vector :int]]", List(List(INT))),
    ("[:vector {:min 1, :max 3} :int]", List(INT, 1, 3)),
    ("[:vector {id :int}]", List(fields(id=INT))),
    ("[:string {:min 1}]", Primitive("string", 1)),
    ("[:int {:min -5 :max 5}]", Primitive("int", -5, 5)),
    ("[:float {:max 0.5}]", Primitive("float", None, 0.5)),
    ("[:any {}]", ANY),
    ("[:map-of :string :int]", MapOf(STRING, INT)),
    ("[:map-of {:max 9} :keyword {}]", MapOf(Primitive("keyword"), Map(()), None, 9)),
    ("[:map [:id :int] [:name :string]]", fields(id=INT, name=STRING)),
    ("[:map {:closed true} [:id :int]]", Map((Field("id", INT),), closed=True)),
    ("[:map {:closed false} [:id :int]]", fields(id=INT)),
    ("[:map {}]", Map(())),
    ("[:map [:email {:optional true} :string]]", Map((Field("email", STRING, optional=True),))),
    ("[:map [:email {:optional false} :string]]", fields(email=STRING)),
    ("[:map [:email :string?]]", Map((optional("email", STRING),))),
    ("[:map [:email [:maybe :string]]]", fields(email=Maybe(STRING))),
    ('[:map ["an id" :int]]', Map((Field("an id", INT),))),
    ("[:map [:user {id :int}]]", fields(user=fields(id=INT))),
    # shorthand inside Malli, Malli inside shorthand
    ("[:or {a :int} [:int]]", Or((fields(a=INT), List(INT)))),
    ("{score [:and :int [:> 0]]}", fields(score=And((INT, Constraint(">", 0))))),
    ("{email [:? :string]}", Map((Field("email", STRING, optional=True),))),
    ("{a [:maybe :int]}", fields(a=Maybe(INT))),
    # properties that describe
    ('[:int {:title "n" :min 1}]', Primitive("int", 1)),
    ('[:or {:description "either"} :int :bool]', Or((INT, BOOL))),
    ('[:map {:title "t"} [:id {:description "d", :json-schema/example 1} :int]]', fields(id=INT)),
    ('[:enum {:title "t"} "a"]', Enum((Constant("a"),))),
]


@pytest.mark.spec("004", "Shorthand Syntax")
@pytest.mark.spec("004", "Malli Data (Advanced)")
@pytest.mark.parametrize(("text", "type"), RESULTS, ids=[text for text, _ in RESULTS])
def test_a_bare_type_is_a_signature_without_parameters(text, type):
    assert parse(text) == Signature((), type)
    assert parse(f"() -> {text}") == parse(text)
    assert parse(f"-> {text}") == parse(text)
    assert parse(f"[:=> [:cat] {text}]") == parse(text)


PARAMETERS = [
    ("()", ()),
    ("(id :int)", (Field("id", INT),)),
    ("(\n id :int\n)", (Field("id", INT),)),
    ("(query :string, limit :int)", (Field("query", STRING), Field("limit", INT))),
    ("(query :string limit :int)", (Field("query", STRING), Field("limit", INT))),
    ("(:query :string)", (Field("query", STRING),)),
    ("(limit :int?)", (optional("limit", INT),)),
    ("(tags [:string]?)", (optional("tags", List(STRING)),)),
    ("(limit [:? :int])", (Field("limit", INT, optional=True),)),
    ("(user {name :string})", (Field("user", fields(name=STRING)),)),
    ("(items [{:subject :string}])", (Field("items", List(fields(subject=STRING))),)),
]


@pytest.mark.spec("004", "Signature Type Syntax")
@pytest.mark.parametrize(("text", "params"), PARAMETERS, ids=[text for text, _ in PARAMETERS])
def test_parameters_are_names_and_types(text, params):
    assert parse(f"{text} -> :any") == Signature(params, ANY)
    assert parse(f"{text}->:any").params == params


MALLI_PARAMETERS = [
    ("[:cat]", ()),
    ("[:cat :string :int]", (Field("arg1", STRING), Field("arg2", INT))),
    ("[:cat :string [:? :int]]", (Field("arg1", STRING), Field("arg2", INT, optional=True))),
    ("[:cat [:map [:q :string] [:n {:optional true} :int]]]", (Field("q", STRING), Field("n", INT, optional=True))),
    ("[:cat {q :string}]", (Field("arg1", fields(q=STRING)),)),
    ("[:cat [:map]]", (Field("arg1", List(Primitive("map"))),)),
    ("[:catn [:q :string] [:n [:? :int]]]", (Field("q", STRING), Field("n", INT, optional=True))),
    ("[:catn [:user [:map [:id :int]]]]", (Field("user", fields(id=INT)),)),
]


@pytest.mark.spec("004", "Malli Data (Advanced)")
@pytest.mark.parametrize(("text", "params"), MALLI_PARAMETERS, ids=[text for text, _ in MALLI_PARAMETERS])
def test_parameters_of_malli(text, params):
    assert parse(f"[:=> {text} :any]") == Signature(params, ANY)


DATA = [
    ([":=>", [":cat", ":string"], ":int"], "(arg1 :string) -> :int"),
    ([Keyword("=>"), [Keyword("cat")], [Keyword("map"), [Keyword("id"), Keyword("int")]]], "() -> {id :int}"),
    (
        [":map", [":status", [":enum", "pending", "active", None]]],
        '() -> {status [:maybe [:enum "pending" "active"]]}',
    ),
    ((":or", ":int", (":maybe", ":bool")), "() -> [:or :int :bool]?"),
    ([":and", ":int", [":>", 0], [":<", 100]], "() -> [:and :int [:> 0] [:< 100]]"),
    ([":vector", {":min": 1}, ":int"], "() -> [:vector {:min 1} :int]"),
    ([":map", {":closed": True}, [":a", {":optional": True}, ":int"]], "() -> [:map {:closed true} [:a [:? :int]]]"),
    ([":int"], "() -> [:int]"),
    ({"id": ":int", "tags": "[:string]?", "email": ":string?"}, "() -> {id :int, tags [:string]?, email :string?}"),
    ({Keyword("id"): INT, "n": Or((INT, BOOL)), "f": float}, "() -> {id :int, n [:or :int :bool], f :float}"),
    ([":enum", True, 1, 1.5, ":k"], "() -> [:enum true 1 1.5 :k]"),
    (List(INT), "() -> [:int]"),
    (list[int], "() -> [:int]"),
    (int | None, "() -> :int?"),
    (dict, "() -> :map"),
]


@pytest.mark.spec("004", "Malli Data (Advanced)")
@pytest.mark.parametrize(("data", "text"), DATA)
def test_a_signature_may_be_data(data, text):
    assert parse(data).render() == text
    assert parse(data) == parse(text)


def test_a_signature_that_was_read_is_itself():
    signature = parse("(a :int) -> :int")
    assert parse(signature) is signature


ERRORS = [
    # text, line, column, what is wrong, what to do
    ("", 0, 0, "there is no signature", ":any"),
    ("  \n ", 0, 0, "there is no signature", ":any"),
    (":plan", 1, 1, "`:plan` is not a type", "Types are"),
    (":integer", 1, 1, "`:integer` is not a type", "Did you mean `:int`?"),
    ("{a :integer?}", 1, 4, "`:integer?` is not a type", "Did you mean"),
    (":strng", 1, 1, "`:strng` is not a type", "Did you mean `:string`?"),
    (":INT", 1, 1, "`:INT` is not a type", "Did you mean `:int`?"),
    (":list", 1, 1, "`:list` is not a type", "Did you mean `[:any]`, a list of anything?"),
    (":object", 1, 1, "`:object` is not a type", "`:map`"),
    (":enum", 1, 1, "`:enum` is not a type", '[:enum "a" "b"]'),
    ("int", 1, 1, "`int` is not a type", "Did you mean `:int`?"),
    ("{a int}", 1, 4, "`int` is not a type", "Did you mean `:int`?"),
    ("{\n  id :int\n  n :flaot\n}", 3, 5, "`:flaot` is not a type", "Did you mean `:float`?"),
    ("{id}", 1, 2, "the field `id` has no type", "id :any"),
    ("{a b :int}", 1, 2, "the field `a` has no type", "a :any"),
    ("{:a :b :int}", 1, 5, "`:b` is not a type", ""),
    ("(id) -> :int", 1, 2, "the parameter `id` has no type", "id :any"),
    ("(:int) -> :int", 1, 2, "this type has no name of a parameter", "value :int"),
    ("{[:int] :int}", 1, 2, "this is not a field name", "{id :int}"),
    ('{"" :int}', 1, 2, "this is not a field name", "{id :int}"),
    ("{:a/b :int}", 1, 2, "this is not a field name", '"a/b"'),
    ("{1x :int}", 1, 2, "`1` has no meaning here", "as strings"),
    ("{a.b :int}", 1, 3, "`.` has no meaning here", ""),
    ("{id :int, id :int}", 1, 11, "there are two fields `id`", "Remove one"),
    ("(a :int, :a :int) -> :int", 1, 10, "there are two parameters `a`", "Remove one"),
    ("(x :int; y :int) -> :int", 1, 8, "`;` separates nothing", "commas"),
    (":int|:string", 1, 5, "`|` joins nothing", "[:or"),
    ("(id :)", 1, 5, "this colon is not needed", "id :int"),
    ("[:]", 1, 2, "no type follows this colon", ":int"),
    ("{tags: [:string]}", 1, 6, "this colon is not needed", "tags :int"),
    ('{"a": "int"}', 1, 5, "this colon is not needed", "a :int"),
    ("(a :int) => :int", 1, 10, "`=` has no meaning here", "->"),
    ("() → :int", 1, 4, "`→` has no meaning here", "->"),
    ("{a :int = 5}", 1, 9, "`=` has no meaning here", "`?`"),
    ("[:enum 'a']", 1, 8, "`'` quotes nothing", "double"),
    ("{a :int} #", 1, 10, "`#` has no meaning here", ""),
    ("(id :int -> :string", 1, 1, "this `(` is never closed", "`)`"),
    ("[:int", 1, 1, "this `[` is never closed", "`]`"),
    ("[:int}", 1, 6, "`}` closes the `[` of column 1", "`]`"),
    (":int]", 1, 5, "this `]` has no opening bracket", "Remove"),
    ('{"a :int}', 1, 2, "this string is never closed", '`"`'),
    (r'[:enum "a\q"]', 1, 10, r"`\q` is not an escape sequence", r"\n"),
    ("[" * 65, 1, 65, "nested more than 64 deep", ":any"),
    ("1" * 301, 1, 1, "more than 300 characters", ""),
    ("(id :int) -> :string extra", 1, 22, "nothing may follow the result", "as a map"),
    ("(id :int) -> ", 1, 11, "no result follows the arrow", ":any"),
    ("() :int", 1, 4, "no result follows the parameters", "->"),
    ("(a :int)", 1, 1, "no result follows the parameters", "->"),
    (":int -> :int", 1, 6, "nothing may follow the result", ""),
    ("[->]", 1, 2, "`->` is allowed only between parameters and result", "->"),
    ("[(a :int)]", 1, 2, "parameters are allowed only at the beginning", "{id :int}"),
    ('"int"', 1, 1, "a string is not a type", "colon"),
    ("[5]", 1, 2, "a value is not a type", "[:enum 1 2]"),
    (":int??", 1, 1, "`:int??` is not a type", "`:int?`"),
    ("[:int]??", 1, 8, "the type is already optional", "second"),
    ("[:int] ?", 1, 8, "`?` does not follow a type", "directly after"),
    ("?", 1, 1, "`?` does not follow a type", "directly after"),
    ("[]", 1, 1, "this list has no type", "[:any]"),
    ("[:int :string]", 1, 7, "there are two types in one list", "[:or"),
    ("[:int, :string]", 1, 8, "there are two types in one list", "[:or"),
    # Malli
    ("[:enum]", 1, 1, "this enumeration has no values", '[:enum "a" "b"]'),
    ("[:enum a]", 1, 8, "this is not a value", '`"a"`'),
    ("[:enum [1]]", 1, 8, "this is not a value", "strings"),
    ("[:= 1 2]", 1, 1, "this takes one value", "[:="),
    ("[:or]", 1, 1, "there are no types in it", "[:or"),
    ("[:and {:min 1} :int]", 1, 8, "there is no property `:min` here", "none"),
    ("[:maybe :int :int]", 1, 1, "`:maybe` takes one type", "[:maybe :string]"),
    ("[:vector]", 1, 1, "`:vector` takes one type", "[:vector :string]"),
    ("[:map-of :int]", 1, 1, "`:map-of` takes 2 types", "[:map-of :string :int]"),
    ("[:vector {:mni 1} :int]", 1, 11, "there is no property `:mni` here", "Did you mean `:min`?"),
    ("[:vector {:min} :int]", 1, 11, "this property has no value", "{:min 1}"),
    ("[:vector {[1] 1} :int]", 1, 11, "this is not a property", "{:min 1}"),
    ("[:vector {:min -1} :int]", 1, 16, "this is not a length", "from 0"),
    ("[:string {:max 1.5}]", 1, 16, "this is not a length", "from 0"),
    ("[:string {:min 3 :max 2}]", 1, 23, "no value is at least 3 and at most 2", "Swap"),
    ('[:int {:min "a"}]', 1, 13, "this is not a number", "{:min 1}"),
    ("[:int {:min 1} :int]", 1, 16, "nothing may follow the properties", ""),
    ("[:bool {:min 1}]", 1, 9, "there is no property `:min` here", ""),
    ("[:> :a]", 1, 1, "this takes one number", "[:> 0]"),
    ("[:> 1e999]", 1, 5, "this is not a number", ""),
    ("[:enum 1e999]", 1, 8, "this number is too large", ""),
    ("[:map :int :int]", 1, 7, "this is not a field of a map", "[:id :int]"),
    ("[:map [:id]]", 1, 7, "this is not a field of a map", "[:id :int]"),
    ("[:map [:id 5 :int]]", 1, 12, "properties are expected here", "{:optional true}"),
    ("[:map [:id {:optional 1} :int]]", 1, 23, "this is neither true nor false", ""),
    ("[:map [:a :int] [:a :int]]", 1, 18, "there are two fields `a`", "Remove one"),
    ("[:set :int]", 1, 1, "`[:set …]` is not supported here", "[:vector"),
    ('[:re "a+"]', 1, 1, "`[:re …]` is not supported here", ""),
    ("[:? :int]", 1, 1, "`[:? …]` is not supported here", "after a name"),
    ("[[:=> [:cat] :int]]", 1, 2, "`[:=> …]` is not supported here", "outermost"),
    ("[:=> [:cat] :int]?", 1, 1, "a signature cannot be optional", "result"),
    ("()? -> :int", 1, 1, "the parameter list cannot be optional", "type of a parameter"),
    ("[:=> [:cat]]", 1, 1, "`:=>` takes parameters and a result", "[:=>"),
    ("[:=> :string :int]", 1, 6, "these are not parameters", "[:cat"),
    ("[:=> [:cat [:map {:closed true} [:a :int]]] :int]", 1, 12, "parameters cannot be closed", "Strict"),
    ("[:=> [:catn [:a :int] [:a :int]] :int]", 1, 24, "there are two parameters `a`", "Remove one"),
]


@pytest.mark.spec("004", "PtcRunner.SubAgent.Signature")
@pytest.mark.parametrize(("text", "line", "column", "message", "hint"), ERRORS, ids=[row[0][:40] for row in ERRORS])
def test_what_is_wrong_is_said_with_place_and_hint(text, line, column, message, hint):
    with pytest.raises(SignatureError) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_a_caret_stands_under_the_place():
    with pytest.raises(SignatureError) as caught:
        parse("{id :int\n ä :strng}")
    assert caught.value.caret() == " ä :strng}\n   ^"


WRONG_DATA = [
    (None, "a value is not a type"),
    ([], "no type of its items"),
    ([b"int"], "a value of type bytes"),
    ({"id": "int"}, "`int` is not a type"),
    ({"id": 5}, "a value is not a type"),
    ({"a": ":int", ":a": ":int"}, "two fields `a`"),
    ([":enum", [1]], "this is not a value"),
    ([":enum", ":a b"], "this is not a value"),
    ([":enum", float("nan")], "too large"),
    (["not a type"], "`not` is not a type"),
    ([""], "a string is not a type"),
]


@pytest.mark.parametrize(("data", "message"), WRONG_DATA)
def test_wrong_data_has_no_place_but_a_message(data, message):
    with pytest.raises(SignatureError) as caught:
        parse(data)
    assert message in caught.value.message
    assert not caught.value.source or caught.value.line


def test_data_nested_without_end_is_refused():
    deep = ":int"
    for _ in range(100):
        deep = [deep]
    with pytest.raises(SignatureError, match="64 deep"):
        parse(deep)
    endless = []
    endless.append(endless)
    with pytest.raises(SignatureError, match="64 deep"):
        parse(endless)


@pytest.mark.spec("004", "PtcRunner.SubAgent.Signature")
def test_the_result_alone_is_the_signature_of_a_context():
    full = parse("(query :string) -> {count :int, _ids [:int]}")
    assert full.returns_only().render() == "() -> {count :int, _ids [:int]}"
    partial = parse("{count :int}")
    assert partial.returns_only() == partial


def test_what_may_be_nil_is_optional():
    assert parse(":int?").returns.is_optional
    assert not parse("[:int?]").returns.is_optional
