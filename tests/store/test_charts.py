"""Charts: the same rows as text and as a picture; what is charted of usage, turns and the context."""

import re
import xml.etree.ElementTree as ET

from pyagentd.store import charts
from pyagentd.store.charts import Bar, Chart, Row
from pyagentd.store.conversation import Conversation
from pyagentd.store.journal import Row as Logged

SVG = "{http://www.w3.org/2000/svg}"


def words(drawn: str) -> list[str]:
    return [each.text or "" for each in ET.fromstring(drawn).iter(f"{SVG}text")]


def test_bars_are_as_long_as_what_they_say() -> None:
    chart = Chart("Spent", [Row("Monday", (Bar(0, 8),), "$8"), Row("Tue", (Bar(0, 4),), "$4"), Row("Wed", ())])
    assert charts.text(chart, 30) == ("Monday  ██████████████████  $8\nTue     █████████           $4\nWed")
    assert words(charts.svg(chart)) == ["Monday", "$8", "Tue", "$4", "Wed", ""]
    wide, narrow = (float(each.get("width", "")) for each in ET.fromstring(charts.svg(chart)).iter(f"{SVG}rect"))
    assert abs(wide - 2 * narrow) < 0.2


def test_what_is_more_than_nothing_is_seen_and_nothing_is_wider_than_asked() -> None:
    rows = [Row("a label that is much too long for its column", (Bar(0, 1e9),), "1"), Row("b", (Bar(0, 1),), "2")]
    for width in (20, 40, 72, 200):
        drawn = charts.text(Chart("x", rows), width)
        assert max(map(len, drawn.splitlines())) <= max(width, 24)
        assert "▏" in drawn.splitlines()[1]


def test_kinds_are_told_by_character_and_pattern_and_named() -> None:
    bars = [Row("w", (Bar(0, 2, "wait"), Bar(2, 4, "tool"))), Row("m", (Bar(0, 4, "model"),))]
    chart = Chart("x", [*bars, Row("a", (Bar(3, 3, "agent"),))], most=4, ends=("0 s", "4 s"))
    drawn = charts.text(chart, 40)
    assert re.search(r"^w  ░+▓+", drawn) and "\nm  ██" in drawn and re.search(r"^a  +▒", drawn, re.MULTILINE)
    assert drawn.endswith("█ model   ▓ tools   ▒ agents   ░ waiting for you")
    picture = charts.svg(chart)
    assert {"model", "tools", "agents", "waiting for you", "0 s", "4 s"} <= set(words(picture))
    patterns = {each.get("id") for each in ET.fromstring(picture).iter(f"{SVG}pattern")}
    assert patterns == {"chart-tool", "chart-agent", "chart-wait"}
    assert "currentColor" in picture and "http" not in picture.replace("http://www.w3.org/2000/svg", "")


def test_what_a_label_holds_is_quoted() -> None:
    chart = Chart("<b>", [Row('<script>"&', (Bar(0, 1),), "</svg>")])
    assert words(charts.svg(chart)) == ['<script>"&', "</svg>"]
    odd = Chart("x", [Row("a\nb\x00\ud800", (Bar(0, 1),))])
    assert words(charts.svg(odd))[0] == "a b  " and charts.text(odd).count("\n") == 0


def line(key: str, usd: float, **more: str) -> dict[str, object]:
    return {"key": key, "known_usd": usd, "total": 100, **more}


def test_days_come_in_their_order_with_those_on_which_nothing_was_spent() -> None:
    chart = charts.spending([line("2026-03-05", 2.0), line("2026-03-02", 1.0)], "day")
    assert [(row.label, row.value) for row in chart.rows] == [
        ("2026-03-02", "$1.00"),
        ("2026-03-03", "$0.00"),
        ("2026-03-04", "$0.00"),
        ("2026-03-05", "$2.00"),
    ]


def test_each_of_thirty_days_is_a_row() -> None:
    chart = charts.spending([line("2026-03-30", 2.0), line("2026-03-01", 1.0)], "day")
    assert [row.label for row in chart.rows] == [f"2026-03-{day:02}" for day in range(1, 31)]


def test_each_line_is_a_row_and_too_many_are_one_together() -> None:
    chart = charts.spending([line(f"m{number}", 1.0) for number in range(100)], "model")
    assert len(chart.rows) == 25 and chart.rows[-1] == Row("76 others", (Bar(0, 76.0),), "$76.00")
    rest = {**line("others", 5.0), "number": 7}
    assert charts.spending([line("m", 1.0)], "model", rest).rows[-1] == Row("7 others", (Bar(0, 5.0),), "$5.00")
    alike = charts.spending([line("a", 2.0, title="Mend it"), line("b", 1.0, title="Mend it")], "session")
    assert [(row.label, row.value) for row in alike.rows] == [("Mend it", "$2.00"), ("Mend it", "$1.00")]
    unpriced = charts.spending([line("a", 0.0, title="Mend it")], "session")
    assert unpriced.title.endswith("in tokens") and unpriced.rows[0].label == "Mend it"


def log(*rows: tuple[str, dict[str, object]]) -> Conversation:
    return Conversation(Logged(number, kind, data) for number, (kind, data) in enumerate(rows, 1))


def part(id: str, type: str, begin: int, end: int, **data: object) -> tuple[str, dict[str, object]]:
    row = {"id": id, "message_id": "a", "session_id": "s", "index": int(id), "type": type}
    return "part", {**row, "data_json": {"type": type, **data}, "created_at": begin, "updated_at": end}


def message(id: str, role: str, at: int, model: object = {"model_id": "claude"}) -> tuple[str, dict[str, object]]:
    row = {"id": id, "session_id": "s", "role": role, "created_at": at, "updated_at": at}
    return "message", {**row, "metadata_json": {"model": model}}


def test_a_turn_is_its_requests_its_calls_and_what_waited_for_the_user() -> None:
    ask = {"id": "k", "tool_call_id": "c", "created_at": 3000, "decided_at": 8000}
    done = {"state": "output-available", "output": "", "toolCallId": "c"}
    conversation = log(
        message("u", "user", 1000),
        message("a", "assistant", 2000),
        part("0", "step-start", 2000, 3000),
        part("1", "tool-Edit", 3000, 9000, **done, metadata={"duration_ms": 900, "summary": "Edit a.py"}),
        ("ask", ask),
        part("2", "step-start", 9500, 11000),
        part("3", "tool-PersistentAgent", 11000, 20000, toolCallId="d", metadata={"duration_ms": 9000}),
    )
    ((asked, chart),) = charts.turns(conversation)
    assert asked.id == "u" and chart.ends == ("0 s", "19.0 s")
    assert [(row.label, *((bar.kind, bar.begin, bar.end) for bar in row.bars)) for row in chart.rows] == [
        ("claude", ("model", 0, 2000)),
        ("Edit a.py", ("wait", 2000, 7000), ("tool", 7100, 8000)),
        ("claude", ("model", 8000, 10000)),
        ("PersistentAgent", ("agent", 10000, 19000)),
    ]


def test_a_step_of_an_older_log_has_the_name_of_its_model() -> None:
    old = log(message("u", "user", 1000), message("a", "assistant", 2000, "old"), part("0", "step-start", 2000, 3000))
    ((_, chart),) = charts.turns(old)
    assert [row.label for row in chart.rows] == ["old"]


def test_of_a_turn_with_many_steps_the_longest_are_shown() -> None:
    calls = [
        part(
            str(number),
            "tool-Read",
            1000,
            1000 + 10 * number,
            toolCallId=str(number),
            metadata={"duration_ms": number},
        )
        for number in range(1, 200)
    ]
    ((_, chart),) = charts.turns(log(message("u", "user", 900), message("a", "assistant", 950), *calls))
    assert len(chart.rows) == 24 and "175 shorter steps left out" in chart.title


def test_the_context_is_shared_out_by_length_in_every_protocol() -> None:
    anthropic = [
        {"role": "user", "content": "x" * 100},
        {"role": "assistant", "content": [{"type": "text", "text": "y" * 100}, {"type": "tool_use", "name": "Read"}]},
        {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "z" * 300}]}]},
    ]
    chat = [
        {"role": "system", "content": "s" * 1000},
        {"role": "assistant", "content": "y", "tool_calls": [{"id": "1", "function": {"name": "Read"}}]},
        {"role": "tool", "content": "z" * 300},
    ]
    gemini = [{"role": "model", "parts": [{"functionCall": {"name": "R"}}, {"text": "y"}]}]
    responses = [{"type": "function_call_output", "output": "z" * 9}, {"type": "reasoning", "summary": ["r"]}]

    def named(messages: list[dict[str, object]]) -> list[str]:
        return [row.label for row in charts.context("s" * 100, [], messages, 1000, 2000).rows]

    assert named(anthropic) == ["system prompt", "you", "answers", "calls of tools", "results of tools", "free"]
    assert named(chat) == ["system prompt", "answers", "calls of tools", "results of tools", "free"]
    assert named(gemini) == ["system prompt", "answers", "calls of tools", "free"]
    assert named(responses) == ["system prompt", "reasoning", "results of tools", "free"]
    chart = charts.context("s" * 100, None, [{"role": "user", "content": "x" * 300}], 1000, 2000)
    assert [(row.label, row.value) for row in chart.rows] == [
        ("system prompt", "250  12%"),
        ("you", "750  38%"),
        ("free", "1.0k  50%"),
    ]
    assert chart.most == 1000 and chart.rows[1].bars[0].begin == chart.rows[0].bars[0].end
