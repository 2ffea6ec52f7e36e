"""``pyagentd usage`` without a session: what a terminal shows of the report, and what a program gets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyagentd.cli import usage as usagereport
from pyagentd.cli.app import main


def line(key: str, usd: float | None, **tokens: int) -> dict[str, Any]:
    buckets = dict.fromkeys(("input", "output", "reasoning", "cache_read", "cache_write"), 0) | tokens
    known = {"known_usd": usd or 0.0, "unpriced": [] if usd is not None else ["m"], "cost_usd": usd}
    return {"key": key, "requests": 2, "tokens": buckets, "total": sum(buckets.values()), **known}


class Link:
    """A daemon that knows one report."""

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        if method == "view":
            cells = [{"text": text} for text in ("2026-11-22", "1.5k", "████")]
            titles = [{"title": title} for title in ("Day", "In", "")]
            return {"columns": titles, "rows": [{"cells": cells}], "empty": "", "more": False, "note": None}
        assert method == "usage-report"
        lines = [line("2026-11-22", 2.0, input=1200, cache_read=300), line("2026-11-21", None, output=5)]
        return {
            "by": arguments["by"],
            "days": arguments["days"],
            "lines": lines,
            "problem": None,
            "indexing": False,
            "rest": {**line("others", 0.5), "number": 3},
            "together": line("together", None, input=1200),
        }


@pytest.fixture(autouse=True)
def link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usagereport, "daemon", Link)


def test_a_program_gets_every_bucket_and_a_price_that_is_not_known_stays_so(capsys: Any) -> None:
    assert main(["usage"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("day\trequests\t")
    assert rows == [
        "2026-11-22\t2\t1200\t0\t0\t300\t0\t$2.00",
        "2026-11-21\t2\t0\t5\t0\t0\t0\tunknown",
        "3 others\t2\t0\t0\t0\t0\t0\t$0.50",
        "together\t2\t1200\t0\t0\t0\t0\tunknown",
    ]
    assert main(["usage", "--by", "model", "--days", "0", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["by"], told["days"], told["indexing"], told["lines"][0]["unpriced"]) == ("model", 0, False, [])


def test_a_person_sees_the_list_that_emacs_shows(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["usage"]) == 0
    said = capsys.readouterr().out
    assert "2026-11-22" in said and "1.5k" in said and "████" in said


@pytest.mark.parametrize("words", [["--by", "day"], ["--days", "3"]])
def test_what_is_about_all_sessions_is_no_option_of_one(words: list[str], capsys: Any) -> None:
    assert main(["usage", "some-session", *words]) == 2
    assert "leave SESSION out" in capsys.readouterr().err
