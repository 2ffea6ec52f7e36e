"""Of a hundred tools a mission gets those it needs."""

import pytest

from pyagentd.mission import Budget, Scripted, delegate_discovering, discover
from pyagentd.mission.delegation import rank_tools
from pyagentd.mission.signature import parse
from pyagentd.mission.tools import Tool


def get_expenses(quarter: str) -> list[dict[str, float]]:
    """Travel expenses of a quarter."""
    return [{"amount": 10.0}, {"amount": 5.5}]


def get_categories() -> list[str]:
    """Categories of expenses."""
    return ["travel"]


REGISTRY = {f"tool_{n}": (int, "() -> :int") for n in range(100)} | {
    "get_expenses": get_expenses,
    "get_categories": get_categories,
}
PROMPT = "Analyse travel expenses for Q3"
CHOOSE = '(call "return" {:tools ["get_expenses"]})'


@pytest.mark.spec("004", "Tool Discovery")
def test_a_mission_gets_the_tools_it_chose_and_no_others() -> None:
    llm = Scripted([CHOOSE, '(call "return" (sum-by :amount (call "get_expenses" {:quarter "Q3"})))'])
    budget = Budget()
    step = delegate_discovering(PROMPT, registry=REGISTRY, llm=llm, signature=":float", budget=budget)
    assert step.value == 15.5 and budget.used == 2
    choosing, working = llm.requests
    assert "get_expenses(quarter :string)" in choosing["messages"][0]["content"], "words of the prompt find it"
    assert choosing["tool_names"][:1] == ["find_tools"] and "tool_50" not in str(choosing)
    assert "get_expenses" in working["tool_names"] and "get_categories" not in working["tool_names"]


def test_its_own_tools_may_be_a_list() -> None:
    llm = Scripted([CHOOSE, '(call "return" (call "get_categories"))'])
    step = delegate_discovering(PROMPT, registry=REGISTRY, llm=llm, tools=[get_categories])
    assert step.value == ["travel"] and "get_expenses" in llm.requests[1]["tool_names"]
    refused = delegate_discovering(PROMPT, registry=REGISTRY, llm=Scripted([]), tools={"fail": len})
    assert refused.fail and refused.fail.reason == "reserved_tool_name"


def test_searching_finds_what_the_prompt_does_not_say() -> None:
    llm = Scripted(['(call "return" {:tools (mapv :name (call "find_tools" {:query "categories" :limit 1}))})'])
    found = discover("Which kinds are there?", registry=REGISTRY, llm=llm)
    assert [*found.tools] == ["get_categories"] and found.step.ok


def test_names_that_do_not_exist_are_left_out() -> None:
    llm = Scripted(['(call "return" {:tools ["get_expenses" "made_up"]})'])
    assert [*discover(PROMPT, registry=REGISTRY, llm=llm).tools] == ["get_expenses"]
    step = delegate_discovering(PROMPT, registry=REGISTRY, llm=Scripted(['(call "return" {:tools ["made_up"]})']))
    assert step.fail is not None and step.fail.reason == "tool_not_found" and "made_up" in step.fail.message


def test_no_more_than_the_limit() -> None:
    names = " ".join(f'"tool_{n}"' for n in range(30))
    llm = Scripted([f'(call "return" {{:tools [{names}]}})'])
    assert len(discover(PROMPT, registry=REGISTRY, llm=llm, limit=3).tools) == 3


def test_a_mission_may_need_no_tools() -> None:
    llm = Scripted(['(call "return" {:tools []})', '(call "return" 1)'])
    assert delegate_discovering(PROMPT, registry=REGISTRY, llm=llm).value == 1


def test_placeholders_belong_to_the_mission() -> None:
    llm = Scripted([CHOOSE, '(call "return" ctx/who)'])
    step = delegate_discovering("Expenses of {{who}}", registry=REGISTRY, llm=llm, context={"who": "Ada"})
    assert step.value == "Ada" and "Expenses of Ada" in llm.requests[1]["messages"][0]["content"]


def test_a_failure_to_choose_is_the_missions() -> None:
    llm = Scripted(['(call "fail" {:reason :nothing_fits :message "No such tool"})'])
    step = delegate_discovering(PROMPT, registry=REGISTRY, llm=llm)
    assert step.fail is not None and step.fail.reason == "nothing_fits"
    assert delegate_discovering(PROMPT, registry={"return": len}, llm=llm).fail.reason == "reserved_tool_name"


def test_another_model_may_choose() -> None:
    chooser, worker = Scripted([CHOOSE]), Scripted(['(call "return" 1)'])
    step = delegate_discovering(PROMPT, registry=REGISTRY, llm=worker, discovery_options={"llm": chooser})
    assert step.value == 1 and len(chooser.requests) == len(worker.requests) == 1


# Tools are found by the words of their names, parameters and descriptions.


def tools(**described: str) -> dict[str, Tool]:
    return {name: Tool(name=name, description=text) for name, text in described.items()}


SHOP = tools(
    get_expenses="All expenses of a period with their categories.",
    get_categories="Names of the categories.",
    sum_by="Adds up a number for each group.",
    list_employees="Everybody who works here.",
    sendEmail="Sends a message to somebody.",
    travel_policy="What the company pays for on a journey.",
)


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("get_expenses", "expense"),
        ("sendEmail", "EMAIL"),
        ("HTTPServer", "servers"),
        ("The categories", "category"),
        ("Reisekosten für Köln", "Köln"),
        ("q3-2026", "Q 3"),
    ],
)
def test_words_are_compared_without_case_and_plural(name: str, query: str) -> None:
    assert [tool.name for tool in rank_tools(query, tools(**{name: "", "other": ""}))] == [name]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("expenses", ["get_expenses"]),
        ("category of an expense", ["get_expenses", "get_categories"]),
        ("write an email", ["sendEmail"]),
        ("travel", ["travel_policy"]),
        ("weather", []),
        ("", []),
    ],
)
def test_the_best_tool_comes_first(query: str, expected: list[str]) -> None:
    assert [tool.name for tool in rank_tools(query, SHOP)] == expected


def test_a_name_says_more_than_a_description() -> None:
    found = rank_tools("report", tools(a="Makes a report of things.", report="Makes things."))
    assert [tool.name for tool in found] == ["report", "a"]


def test_parameters_count() -> None:
    by_user = Tool(name="lookup", signature=parse("(user_email :string) -> :any"))
    assert rank_tools("email", {"lookup": by_user, "other": Tool(name="other")}) == [by_user]


def test_equals_are_in_alphabetical_order_and_no_more_than_asked_for() -> None:
    many = tools(**{f"report_{index}": "" for index in range(20)})
    assert [tool.name for tool in rank_tools("report", many, limit=3)] == ["report_0", "report_1", "report_10"]
    assert rank_tools("report", many, limit=0) == []


def test_a_prompt_may_be_written_as_any_template_and_the_limits_are_those_of_the_tree() -> None:
    llm = Scripted([CHOOSE, *["(+ 1 1)"] * 25, '(call "return" 1)'])
    options = {"context": {"who": "Ada"}, "max_turns": 40, "tree_turns": 60}
    assert delegate_discovering("Expenses of {{{who}}}", registry=REGISTRY, llm=llm, **options).value == 1
    assert "Expenses of {{{who}}}" in llm.requests[0]["messages"][0]["content"]
    assert llm.requests[1]["messages"][0]["content"] == "Expenses of Ada"
