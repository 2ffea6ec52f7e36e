"""What a model is told before anything else."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd import lisp
from pyagentd.lisp.values import Keyword, LispSet
from pyagentd.mission import LLMTool, as_tool, validate
from pyagentd.mission import signature as signatures
from pyagentd.mission.checks import ReadyMission
from pyagentd.mission.delegation import delegate
from pyagentd.mission.firewall import HIDDEN, Firewall
from pyagentd.mission.options import Options, PromptLimit
from pyagentd.mission.prompt import inventory, language_reference, system_prompt, type_of
from pyagentd.mission.registry import Scripted
from pyagentd.mission.signature.rendering import example, type_text
from pyagentd.mission.tools import normalize
from tests.mission.answers import RETURN_1, code, told

SECTIONS = [
    "# Role",
    "# Rules",
    "# Data Inventory",
    "# Available Tools",
    "# PTC-Lisp",
    "# Expected Output",
    "# Output Format",
    "# Limits",
    "# Mission",
]


def prompt(text="Count the orders.", *, signature=None, tools=None, catalog=None, context=None, **options) -> str:
    mission = ReadyMission(
        prompt=text,
        text=text,
        llm=Scripted([]),
        signature=signature and signatures.parse(signature),
        context=context or {},
        memory={},
        declared=None,
        tools=normalize(tools),
        catalog=normalize(catalog, catalog=True),
        options=Options(**options),
        firewall=Firewall(),
    )
    return system_prompt(mission)


@pytest.mark.spec("004", "The System Prompt")
def test_it_has_its_sections_in_order():
    text = prompt(context={"orders": [1]}, tools={"now": (lambda: "x", "() -> :string")})
    places = [text.index(f"{title}\n") for title in SECTIONS]
    assert places == sorted(places)
    for needed in (
        '(call "search"',
        "ctx/orders",
        "memory/put",
        "```clojure",
        "now() -> :string",
        "Count the orders.",
    ):
        assert needed in text


@pytest.mark.spec("004", "tools vs tool_catalog")
def test_the_catalog_is_shown_apart_and_not_to_be_called():
    text = prompt(
        tools={"search": (lambda args: [], "(query :string) -> [{id :int}]", {"description": "Finds."})},
        catalog={"book": "(flight :int) -> {ok :bool}"},
    )
    own, planning = text.split("## Tools for planning (do not call)")
    assert "; Finds.\nsearch(query :string) -> [{id :int}]" in own
    assert "book(" not in own
    assert "book(flight :int) -> {ok :bool}" in planning


def test_the_expected_output_is_a_type_and_an_example():
    text = prompt(signature="{count :int, _ids [:int]}")
    assert "{count :int, _ids [:int]}" in text
    assert '(call "return" {:count 1 :_ids [1]})' in text
    assert "Other keys are refused." not in text
    strict = prompt(signature="{count :int}", signature_validation="strict")
    assert "Other keys are refused." in strict


def test_a_single_shot_needs_no_return():
    text = prompt(max_turns=1)
    assert "What the program evaluates to is the result." in text
    assert "# Available Tools" not in text
    assert "This is the only turn." in text


def test_it_can_be_replaced_wrapped_and_changed():
    assert prompt(system_prompt="Own.") == "Own."
    assert prompt(system_prompt=str.upper).startswith("# ROLE")
    wrapped = prompt(system_prompt={"prefix": "First.", "suffix": "Last.", "language_spec": "Lisp!"})
    assert wrapped.startswith("First.\n\n# Role") and wrapped.endswith("\n\nLast.")
    assert "# PTC-Lisp\n\nLisp!\n\n# Expected" in wrapped


def test_it_is_short_enough_for_a_small_model():
    """Without data and tools it is some 1,100 tokens; what is added should be worth its place in every request."""
    assert len(prompt()) < 5_000


def test_a_long_mission_is_not_sent_twice():
    assert "# Mission\n\nIt is the first message to you." in prompt("x" * 3000)


# What the specification says of tools, signatures, templates and chaining, seen from a whole mission.


def returning(program: str, **options):
    llm = Scripted([code(f'(call "return" {program})')])
    return delegate(**{"prompt": "Go.", "llm": llm, **options}), llm


@pytest.mark.spec("004", "Reserved Tool Names")
@pytest.mark.spec("004", "DD-2: Reserved Tool Names Error at Registration")
@pytest.mark.parametrize("name", ["return", "fail"])
def test_reserved_names_fail_before_the_model_is_asked(name):
    step, llm = returning("1", tools={name: lambda: 1})
    assert (step.fail.reason, llm.requests) == ("reserved_tool_name", [])
    assert name in step.fail.message


@dataclass
class Order:
    id: int
    note: str | None = None


def orders(limit: int, status: str = "open") -> list[Order]:
    """List orders.

    Only the newest.
    """
    return [Order(id=number) for number in range(limit)]


@pytest.mark.spec("004", "Tool Normalization & Schema Extraction")
@pytest.mark.spec("004", "Tool Definition Syntaxes")
def test_tools_are_registered_in_any_of_the_ways():
    child = as_tool(prompt="Shout {{text}}", signature="(text :string) -> {loud :string}", llm=Scripted([]))
    tools = {
        "orders": orders,
        "pair": (lambda args: 1, "(q :string) -> :int"),
        "full": (lambda args: 1, "() -> :int", {"description": "Counts."}),
        "question": LLMTool(prompt="Is {{text}} rude?", signature="(text :string) -> {rude :bool}"),
        "config": {"prompt": "Is {{text}} kind?", "signature": "(text :string) -> {kind :bool}"},
        "child": child,
    }
    step, llm = returning('(:id (last (call "orders" {:limit 3})))', tools=tools)
    assert step.value == 2
    system = llm.requests[0]["system"]
    for line in (
        "; List orders.\norders(limit :int, status :string?) -> [{id :int, note :string?}]",
        "pair(q :string) -> :int",
        "; Counts.\nfull() -> :int",
        "question(text :string) -> {rude :bool}",
        "config(text :string) -> {kind :bool}",
        "child(text :string) -> {loud :string}",
    ):
        assert line in system


@pytest.mark.spec("004", "Execution Behavior")
def test_a_childs_secrets_are_returned_and_not_shown():
    inner = Scripted([code('(call "return" {:count 2 :_email_ids [111111 222222]})')])
    child = as_tool(
        prompt="Find emails matching {{query}}",
        signature="(query :string) -> {count :int, _email_ids [:int]}",
        llm=inner,
        tools={"none": lambda: 1},
    )
    outer = Scripted([code('(call "find" {:query "urgent"})'), code('(call "return" (first ctx/_email_ids))')])
    step = delegate("Go.", llm=outer, tools={"find": child})
    assert step.value == 111111
    assert inner.requests[0]["messages"][0]["content"] == "Find emails matching urgent"
    assert f"{{:count 2, :_email_ids {HIDDEN}}}" in told(outer) and "111111" not in told(outer)


@pytest.mark.spec("004", "PtcRunner.SubAgent.LLMTool")
def test_a_question_uses_the_callers_model():
    llm = Scripted(
        [
            code('(call "return" (call "rude" {:text "Server down!"}))'),
            '{"rude": true, "reason": "shouting"}',
        ]
    )
    question = LLMTool(prompt="Is {{text}} rude?", signature="(text :string) -> {rude :bool, reason :string}")
    step = delegate("Go.", llm=llm, tools={"rude": question})
    assert step.value == {"rude": True, "reason": "shouting"}
    assert llm.requests[1]["messages"][0]["content"] == "Is Server down! rude?"
    assert step.usage.turns == 2


@pytest.mark.spec("004", "Tool Configuration (Unified Model)")
def test_a_map_with_tools_is_an_agent_and_one_without_a_question():
    inner = Scripted([code('(call "look")'), code('(call "return" {:summary "s"})')])
    tools = {
        "classifier": {"prompt": "Is {{text}} good?", "signature": "(text :string) -> {good :bool}"},
        "researcher": {
            "prompt": "Research {{topic}}",
            "signature": "(topic :string) -> {summary :string}",
            "tools": {"look": lambda: 1},
            "llm": inner,
        },
    }
    program = '[(call "researcher" {:topic "owls"}) (call "classifier" {:text "x"})]'
    outer = Scripted([code(f'(call "return" {program})'), '{"good": false}'])
    assert delegate("Go.", llm=outer, tools=tools).value == [{"summary": "s"}, {"good": False}]
    assert len(inner.requests) == 2


@pytest.mark.spec("004", "Nested Data & Expansion")
@pytest.mark.spec("004", "Template Syntax")
def test_a_prompt_reaches_into_its_data():
    prompt = "Profile of {{user.name}} ({{user.id}}):{{#tags}} {{.}}{{/tags}}{{#none}} never{{/none}}"
    context = {"user": {"name": "Ada", "id": 7}, "tags": ["a", "b"], "none": []}
    _, llm = returning("1", prompt=prompt, context=context)
    assert llm.requests[0]["prompt"] == "Profile of Ada (7): a b"


@pytest.mark.spec("004", "Tool Call Format")
@pytest.mark.spec("004", "Implicit Conversion")
def test_arguments_are_a_map_and_are_converted():
    got = []
    tools = {"t": (lambda args: got.append(args), "(n :int, x :float, on :bool?, s :string) -> :any")}
    llm = Scripted([code('(call "t" 1 2)'), code('(call "t" {:n "7" :x "1.5" :on "true" :s :word})'), code(RETURN_1)])
    step = delegate("Go.", llm=llm, tools=tools)
    assert step.trace[0].error.reason == "validation_error"
    assert got == [{"n": 7, "x": 1.5, "on": True, "s": "word"}]


@pytest.mark.spec("004", "Zero-Argument Tool Calls")
@pytest.mark.parametrize("call", ['(call "now")', '(call "now" {})'])
def test_no_arguments_may_be_left_out(call):
    got = []
    step, _ = returning(call, tools={"now": lambda args: got.append(args) or "noon"})
    assert (step.value, got) == ("noon", [{}])


@pytest.mark.spec("004", "LLM Registry")
@pytest.mark.spec("004", "Error reason model_not_found")
def test_a_model_may_be_a_name():
    models = {"haiku": Scripted([code(RETURN_1)])}
    assert delegate("Go.", llm="haiku", models=models).value == 1
    step = delegate("Go.", llm="hiaku", models=models)
    assert step.fail.reason == "model_not_found" and "haiku" in step.fail.message


@pytest.mark.spec("004", "Auto-Chaining with Step Structs")
@pytest.mark.spec("004", "DD-6: Auto-Chaining with Step Detection")
def test_a_step_is_the_context_of_the_next():
    first, _ = returning("{:count 2 :_ids [111111]}", signature="(x :int?) -> {count :int, _ids [:int]}")
    step, llm = returning("[ctx/count ctx/_ids]", context=first)
    assert step.value == [2, [111111]]
    system = llm.requests[0]["system"]
    assert "`ctx/count` :int = 2" in system and f"`ctx/_ids` [:int], 1 item {HIDDEN}" in system
    same, _ = returning("[ctx/count ctx/_ids]", context=first.value, context_signature=first.signature)
    assert same.value == step.value


@pytest.mark.spec("004", "Auto-Chaining with Failed Steps")
@pytest.mark.spec("004", "Error reason chained_failure")
def test_a_failed_step_fails_the_next_at_once():
    first = delegate("Go.", llm=Scripted([code('(call "fail" {:reason :no_mail :message "none"})')]))
    step, llm = returning("1", context=first)
    assert (step.fail.reason, llm.requests) == ("chained_failure", [])
    assert step.fail.details["original_failure"]["reason"] == "no_mail"


@pytest.mark.spec("004", "Malli Data (Advanced)")
@pytest.mark.spec("004", "DD-8: Malli-based Schema System")
def test_a_signature_may_be_malli_data():
    number, status = [":and", ":int", [":>", 0]], [":enum", "open", "closed"]
    signature = [":=>", [":cat"], [":map", [":status", status], [":n", number]]]
    llm = Scripted([code('(call "return" {:status "odd" :n 0})'), code('(call "return" {:status "open" :n 1})')])
    step = delegate("Go.", llm=llm, signature=signature)
    assert step.value == {"status": "open", "n": 1}
    assert "- status:" in told(llm) and "- n:" in told(llm)


@pytest.mark.spec("004", "DD-1: Optional Field Syntax (`?` suffix)")
@pytest.mark.parametrize("value", ["{:id 1}", "{:id 1 :email nil :items nil}", '{:id 1 :email "e" :items ["x"]}'])
def test_an_optional_field_may_be_nil_or_absent(value):
    step, _ = returning(value, signature="{:id :int :email :string? :items [:string]?}")
    assert step.ok


@pytest.mark.spec("004", "Concurrency & Safety")
def test_missions_side_by_side_share_nothing():
    def mission(number: int):
        programs = "(memory/put :n ctx/n)", "(+ memory/n ctx/n)", '(call "return" [memory/n ctx/last])'
        return delegate("Go.", llm=Scripted(map(code, programs)), context={"n": number}).value

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(mission, range(24))) == [[number, 2 * number] for number in range(24)]


@pytest.mark.spec("004", "Dry Run Mode")
def test_a_mission_is_looked_over_without_running_it():
    found = validate("Hi {{name}}", signature="{x :itn}", tools={"fail": lambda: 1}, context={})
    assert [problem.reason for problem in found.problems] == [
        "validation_error",
        "reserved_tool_name",
        "template_error",
    ]
    assert validate("Hi {{name}}", signature="{x :int}", context={"name": "Ada"}).ok


@pytest.mark.spec("004", "Checkpoint/Resume")
def test_a_mission_goes_on_where_it_was_cut_off(tmp_path):
    class Cut(BaseException):
        pass

    llm = Scripted([code("(memory/put :found 41)"), Cut()])
    with pytest.raises(Cut):
        delegate("Go.", llm=llm, checkpoint_dir=tmp_path)
    again = Scripted([code('(call "return" (inc memory/found))')])
    step = delegate("Go.", llm=again, checkpoint_dir=tmp_path, resume_from="checkpoint-1.json")
    assert (step.value, len(step.trace)) == (42, 2)


# What a model is told of the data, and of what values look like.


K = Keyword


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (1, ":int"),
        (1.5, ":float"),
        ("x", ":string"),
        (True, ":bool"),
        (K("x"), ":keyword"),
        ([], "[:any]"),
        ([1, 2], "[:int]"),
        ([1, 2.5], "[:float]"),
        ([1, None], "[:int?]"),
        ([1, "x"], "[[:or :int :string]]"),
        ([[1], []], "[[:int]]"),
        ({}, ":map"),
        ({"a": 1, K("b"): "x"}, "{a :int, b :string}"),
        ([{"a": 1}, {"a": 2, "b": "x"}], "[{a :int, b :string?}]"),
        ([{"a": None}, {"a": 2}], "[{a :int?}]"),
        ({"a": None}, "{a :nil}"),
        ([None], "[:nil]"),
        ([[None], [True]], "[[:bool?]]"),
        ([{"a": None}, {}], "[{a :any?}]"),
        (LispSet([1]), ":any"),
    ],
)
def test_a_type_is_inferred(value, type_):
    assert type_text(type_of(value)) == type_


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)


@given(_VALUES)
def test_a_value_fits_the_type_that_is_inferred(value):
    text = type_text(type_of(value))
    assert signatures.parse(text).validate(value) == ()


@pytest.mark.parametrize(
    "text",
    [
        ":int",
        "{id :int, tags [:string], note :string?}",
        '[:enum "open" "closed"]',
        "[:enum :open :closed]",
        "[:or :int :string]",
        "[:and :int [:> 0] [:< 100]]",
        "[:map-of :string :int]",
        "{when :datetime, any :any, m :map, f :float, b :bool, k :keyword}",
    ],
)
def test_an_example_reads_like_the_type(text):
    returns = signatures.parse(text).returns
    assert example(returns)


def test_an_entry_has_name_type_and_sample():
    context = {"orders": [{"id": 1}, {"id": 2}], "quarter": "Q3", "_ids": [1, 2, 3], "n": 4}
    assert inventory(context, None, Firewall()).splitlines() == [
        "- `ctx/orders` [{id :int}], 2 items",
        '  [{"id" 1} {"id" 2}]',
        '- `ctx/quarter` :string = "Q3"',
        f"- `ctx/_ids` [:int], 3 items {HIDDEN}",
        "- `ctx/n` :int = 4",
    ]


def test_declared_types_win_over_what_is_seen():
    declared = signatures.parse("(limit :float) -> {status [:enum :open :closed], other :int}")
    text = inventory({"status": K("open"), "limit": 3}, declared, Firewall())
    assert "`ctx/status` [:enum :open :closed] = :open" in text
    assert "`ctx/limit` :float = 3" in text


def test_large_data_is_cut_with_a_note():
    text = inventory({"xs": list(range(9)), "s": "y" * 90}, None, Firewall(PromptLimit(list=2, string=10)))
    assert "  [0 1 ...]\n  Note: `ctx/xs` shows 2 of 9 items; programs see all of it." in text
    assert '"yyyyyyyyyy..."' in text
    assert "`ctx/s` shows the first 10 of 90 bytes" in text


def test_no_data_is_said():
    assert inventory({}, None, Firewall()) == "There is no data in `ctx/`."


def test_the_memory_of_the_start_is_listed():
    text = inventory({}, None, Firewall(), {"seen": [1, 2], "_key": "x"})
    assert text.splitlines()[1:] == [
        "- `memory/seen` [:int], 2 items",
        "  [1 2]",
        f"- `memory/_key` :string {HIDDEN}",
    ]


# What the prompt says of the language is so.


BEFORE, PROGRAM, RULES = re.split(r"```(?:clojure)?\n?", language_reference())
SPANS = [span.replace("\n ", " ") for span in re.findall(r"`(\([^`]+\))`", RULES)]

ORDERS = [
    {"name": "a", "status": "open", "total": 150, "customer": {"vip": True}},
    {"name": "b", "status": "done", "total": 50, "customer": {"vip": False}},
]
AROUND = """(let [orders ctx/orders, xs ctx/orders, m {"name" 1}, x nil, names ["a" "b"], line "a,b",
                  p (where :total > 100), q (where :name = "a"), pred (where :total < 100)] %s)"""


def run(program: str):
    return lisp.run(AROUND % program, context={"orders": ORDERS}).value


def test_the_program_that_it_shows_runs():
    asked = []
    result = lisp.run(PROGRAM, context={"orders": []}, tools=lambda name, args: asked.append((name, args)))
    assert (result.value, result.signal, result.memory) == ({Keyword("count"): 3}, "return", {"seen": 3})
    assert asked == [("search", {Keyword("query"): "x"})]


@pytest.mark.parametrize("span", SPANS)
def test_every_example_runs(span):
    assert run(span) is not None


@pytest.mark.parametrize(
    ("program", "value"),
    [
        ("(/ 6 2)", 3.0),
        ("[(quot 7 2) (mod 7 2) (rem 7 2)]", [3, 1, 1]),
        ("(= 3 3.0)", True),
        ("(or x 0)", 0),
        ("(let [{:keys [name]} m] name)", 1),
        ('(filter (where :status includes "op") xs)', ORDERS[:1]),
        ('(filter (where :status in ["done"]) xs)', ORDERS[1:]),
        ("(map first {:b 1 :a 2})", [Keyword("a"), Keyword("b")]),
        ("ctx/none", None),
        ("memory/none", None),
        ("(max-by :total xs)", ORDERS[0]),
        ("(max-by :total [])", None),
    ],
)
def test_what_it_says_is_so(program, value):
    assert run(program) == value


@pytest.mark.parametrize("program", ["(+ 1 x)", '(< "a" "b")'])
def test_what_it_says_is_an_error_is_one(program):
    with pytest.raises(lisp.LispError) as caught:
        run(program)
    assert caught.value.reason == "eval_error"
