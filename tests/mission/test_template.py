"""Prompts with placeholders: what is put where, and what is said of the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd.errors import TemplateError
from pyagentd.lisp.values import Keyword
from pyagentd.mission.signature import parse
from pyagentd.mission.template import expand, placeholders, unknown_names

K = Keyword


def plain(path, value):
    return str(value)


EXPANSIONS = [
    # template, context, text
    ("", {}, ""),
    ("no placeholders", {"a": 1}, "no placeholders"),
    ("Hello {{name}}", {"name": "Ann"}, "Hello Ann"),
    ("Hello {{ name }}", {K("name"): "Ann"}, "Hello Ann"),
    ("{{a}} and {{a}}", {"a": 1}, "1 and 1"),
    ("{{user.name}}", {K("user"): {"name": "Bo"}}, "Bo"),
    ("{{a.b.c}}", {"a": {K("b"): {"c": 0}}}, "0"),
    ("{{user_name}} {{user-id}} {{active?}}", {"user_name": 1, "user-id": 2, "active?": 3}, "1 2 3"),
    ("<{{a}}>", {"a": None}, "<>"),
    ("{{a}}", {"a": "{{b}} & <i>"}, "{{b}} & <i>"),
    ("{{{a}}} {{&a}}", {"a": "<"}, "< <"),
    (r"\{{a}} {{a}}", {"a": 1}, "{{a}} 1"),
    ("{a} } {", {}, "{a} } {"),
    ("{{! said }x} to nobody }}text", {}, "text"),
    # lists
    ("{{#xs}}{{.}} {{/xs}}", {"xs": [1, 2]}, "1 2 "),
    ("{{#xs}}{{n}}{{/xs}}", {"xs": [{"n": 1}, {K("n"): 2}]}, "12"),
    ("{{#xs}}-{{/xs}}", {"xs": (1, 2)}, "--"),
    ("{{#xs}}x{{/xs}}", {"xs": []}, ""),
    ("{{#a.xs}}{{.}}{{/a.xs}}", {"a": {"xs": [1]}}, "1"),
    ("{{#xs}}{{#.}}{{.}}{{/.}};{{/xs}}", {"xs": [[1, 2], [3]]}, "12;3;"),
    ("{{#xs}}{{n}}{{y}}{{/xs}}", {"xs": [{"n": 1}], "y": 2}, "12"),
    ("{{#xs}}{{y}}{{/xs}}", {"xs": [{"y": 1}, {}], "y": 2}, "12"),
    # maps and truth
    ("{{#user}}{{name}}{{/user}}", {"user": {"name": "Bo"}}, "Bo"),
    ("{{#a}}x{{/a}}", {"a": {}}, "x"),
    ("{{#a}}x{{/a}}", {"a": True}, "x"),
    ("{{#a}}x{{/a}}", {"a": 0}, "x"),
    ("{{#a}}x{{/a}}", {"a": ""}, "x"),
    ("{{#a}}x{{/a}}", {"a": False}, ""),
    ("{{#a}}x{{/a}}", {"a": None}, ""),
    ("{{#a}}x{{/a}}", {}, ""),
    ("{{#a.b}}x{{/a.b}}", {"a": 5}, ""),
    ("{{#a}}limit {{.}}{{/a}}", {"a": 5}, "limit 5"),
    ("{{^a}}none{{/a}}", {"a": []}, "none"),
    ("{{^a}}none{{/a}}", {}, "none"),
    ("{{^a}}none{{/a}}", {"a": [1]}, ""),
    ("{{#a}}{{missing}}{{/a}}", {"a": []}, ""),
    # lines that hold only a tag
    ("a\n{{#x}}\nb\n{{/x}}\nc\n", {"x": True}, "a\nb\nc\n"),
    ("a\n  {{#x}}  \n  b\n  {{/x}}\nc", {"x": True}, "a\n  b\nc"),
    ("{{#x}}\r\nb\r\n{{/x}}\r\n", {"x": True}, "b\r\n"),
    ("a\n{{! comment }}\nb", {}, "a\nb"),
    ("{{#x}}\nb{{/x}}", {"x": True}, "b"),
    ("{{#x}} b {{/x}}", {"x": True}, " b "),
    ("- {{#x}}b{{/x}}\n", {"x": True}, "- b\n"),
    ("{{a}}\n{{b}}\n", {"a": 1, "b": 2}, "1\n2\n"),
    (
        "{{#rows}}\n## {{t}}\n{{#xs}}\n- {{.}}\n{{/xs}}\n{{/rows}}\n",
        {"rows": [{"t": 1, "xs": [2, 3]}]},
        "## 1\n- 2\n- 3\n",
    ),
]


@pytest.mark.spec("004", "Template Syntax")
@pytest.mark.parametrize(("template", "context", "text"), EXPANSIONS, ids=[row[0] for row in EXPANSIONS])
def test_expands_to(template, context, text):
    assert expand(template, context, plain) == text


MISSING = [
    ("{{a}} and {{b}}", {}, ["a", "b"]),
    ("{{a}} and {{b}}", {"a": 1}, ["b"]),
    ("{{b}} {{a}} {{b}}", {}, ["b", "a"]),
    ("{{user.name}}", {}, ["user.name"]),
    ("{{user.name}}", {"user": {}}, ["user.name"]),
    ("{{user.name}}", {"user": "text"}, ["user.name"]),
    ("{{user.name}}", {"user": None}, ["user.name"]),
    ("{{#xs}}{{n}}{{/xs}}", {"xs": [{"n": 1}, {"m": 2}, {}]}, ["n"]),
    # the nearest `a` decides, even when an outer one would have `b`
    ("{{#xs}}{{a.b}}{{/xs}}", {"xs": [{"a": 1}], "a": {"b": 2}}, ["a.b"]),
]


@pytest.mark.spec("004", "Prompt Placeholder Validation")
@pytest.mark.spec("004", "Error reason template_error")
@pytest.mark.parametrize(("template", "context", "missing"), MISSING)
def test_every_missing_name_is_listed(template, context, missing):
    with pytest.raises(TemplateError) as caught:
        expand(template, context, plain)
    assert list(caught.value.missing) == missing
    assert all(f"{{{{{name}}}}}" in caught.value.message for name in missing)


MALFORMED = [
    ("{{a", 1, 1, "this `{{` is never closed", r"\{{"),
    ("x\n {{user name}}", 2, 2, "`user name` is not a name", "{{name}}"),
    ("{{}}", 1, 1, "a name is missing", "{{name}}"),
    ("{{1}}", 1, 1, "`1` is not a name", "{{name}}"),
    ("{{a..b}}", 1, 1, "`a..b` is not a name", "{{a.b}}"),
    ("{{> other}}", 1, 1, "`{{>` is not supported", ""),
    ("{{=<% %>=}}", 1, 1, "`{{=` is not supported", ""),
    ("a{{#x}}b", 1, 2, "the section `x` is never closed", "{{/x}}"),
    ("{{/x}}", 1, 1, "no section `x` is open here", "{{#x}}"),
    ("{{#a}}\n{{/b}}", 2, 1, "`b` ends here, but `a` of line 1 is open", "{{/a}}"),
    ("{{#a}}" * 21, 1, 121, "nested more than 20 deep", ""),
]


@pytest.mark.spec("004", "Error reason template_error")
@pytest.mark.parametrize(("template", "line", "column", "message", "hint"), MALFORMED)
def test_what_is_malformed_is_said_with_its_place(template, line, column, message, hint):
    for use in (placeholders, lambda text: expand(text, {}, plain), lambda text: unknown_names(text, ())):
        with pytest.raises(TemplateError) as caught:
            use(template)
        assert message in caught.value.message
        assert hint in caught.value.hint
        assert (caught.value.line, caught.value.column) == (line, column)


def test_values_become_text_only_through_the_callback_which_gets_their_path():
    seen = []

    def text_of(path, value):
        seen.append((path, value))
        return "[Hidden]"

    context = {"_key": 1, K("a"): {"_b": 2}, "_xs": [{"n": 3}, {"n": 4}], "ys": [5]}
    template = "{{_key}}{{a._b}}{{#_xs}}{{n}}{{/_xs}}{{#ys}}{{.}}{{/ys}}{{#a}}{{_b}}{{/a}}"
    assert expand(template, context, text_of) == "[Hidden]" * 6
    assert seen == [
        (("_key",), 1),
        (("a", "_b"), 2),
        (("_xs", "n"), 3),
        (("_xs", "n"), 4),
        (("ys",), 5),
        (("a", "_b"), 2),
    ]


def test_lists_inside_lists_cannot_grow_without_end():
    nested = "{{#xs}}" * 5 + "." + "{{/xs}}" * 5
    with pytest.raises(TemplateError, match="200000 parts"):
        expand(nested, {"xs": [1] * 50}, plain)
    with pytest.raises(TemplateError, match="20000000 characters"):
        expand("{{#xs}}{{text}}{{/xs}}", {"xs": [1] * 90_000, "text": "x" * 1_000_000}, plain)


@pytest.mark.spec("004", "Schema Generation")
@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("", ()),
        ("{{a}} {{b.c}} {{a}}", ("a", "b.c")),
        ("{{#items}}{{subject}}{{/items}} {{^none}}{{x}}{{/none}}", ("items", "none")),
        ("{{.}} {{! no }}", ()),
    ],
)
def test_placeholders_are_the_names_of_the_outermost_level(template, names):
    assert placeholders(template) == names


PARAMS = "(items [{subject :string, n {deep :int}}], tier :string, meta :map, user {name :string}?, any :any)"
UNKNOWN = [
    ("{{tier}} {{items}} {{user}}", ()),
    ("{{user.name}} {{meta.x.y}} {{any.x}}", ()),
    ("{{user.nam}} {{other}} {{tier.x}} {{items.subject}}", ("user.nam", "other", "tier.x", "items.subject")),
    ("{{#items}}{{subject}} {{n.deep}} {{tier}} {{.}}{{/items}}", ()),
    ("{{#items}}{{sub}} {{n.x}} {{#n}}{{deep}}{{y}}{{/n}}{{/items}}", ("sub", "n.x", "y")),
    ("{{#user}}{{name}}{{nam}}{{/user}}", ("nam",)),
    ("{{#meta}}{{whatever}}{{/meta}}", ()),
    ("{{^items}}{{tier}} {{subject}}{{/items}}", ("subject",)),
    ("{{#tier}}{{tier}} {{x}}{{/tier}}", ("x",)),
    ("{{#other}}{{x}}{{/other}}", ("other",)),
]


@pytest.mark.spec("004", "Nested Data & Expansion")
@pytest.mark.spec("004", "Prompt Placeholder Validation")
@pytest.mark.parametrize(("template", "names"), UNKNOWN)
def test_names_that_no_parameter_can_supply(template, names):
    assert unknown_names(template, parse(f"{PARAMS} -> :any").params) == names


@given(st.text("a{}#^/!. \n\\", max_size=30))
def test_any_text_is_a_template_or_malformed(text):
    try:
        expand(text, {"a": [{"a": 1}]}, plain)
    except TemplateError as error:
        assert error.message


@given(st.text().filter(lambda text: "{{" not in text))
def test_text_without_braces_stays_as_it_is(text):
    assert expand(text, {}, plain) == text
