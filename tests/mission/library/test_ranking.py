"""Tools are found by the words of their names, parameters and descriptions."""

from __future__ import annotations

import pytest

from pyagentd.mission import parse_signature
from pyagentd.mission.discovery import ranked, words
from pyagentd.mission.tools import Tool


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
    ("text", "expected"),
    [
        ("get_expenses", ["expense"]),
        ("sendEmail", ["send", "email"]),
        ("HTTPServer", ["http", "server"]),
        ("The categories, of the class", ["category", "class"]),
        ("Reisekosten für Köln", ["reisekosten", "für", "köln"]),
        ("q3-2026", ["q", "3", "2026"]),
        ("", []),
    ],
)
def test_words_are_compared_without_case_and_plural(text: str, expected: list[str]) -> None:
    assert words(text) == expected


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
    assert [tool.name for tool in ranked(query, SHOP)] == expected


def test_a_name_says_more_than_a_description() -> None:
    found = ranked("report", tools(a="Makes a report of things.", report="Makes things."))
    assert [tool.name for tool in found] == ["report", "a"]


def test_parameters_count() -> None:
    by_user = Tool(name="lookup", signature=parse_signature("(user_email :string) -> :any"))
    assert ranked("email", {"lookup": by_user, "other": Tool(name="other")}) == [by_user]


def test_equals_are_in_alphabetical_order_and_no_more_than_asked_for() -> None:
    many = tools(**{f"report_{index}": "" for index in range(20)})
    assert [tool.name for tool in ranked("report", many, limit=3)] == ["report_0", "report_1", "report_10"]
    assert ranked("report", many, limit=0) == []
