"""When a schedule fires: what people write about time, and the clocks that change twice a year."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from pyagentd.errors import BadRequest
from pyagentd.features import schedules
from pyagentd.features.schedules import When, next_occurrence

BERLIN = "Europe/Berlin"
NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def times(expression: str, start: str, count: int, zone: str = BERLIN) -> list[str]:
    found = islice(schedules.cron(expression, now=NOW, zone=zone).after(utc(start)), count)
    return [f"{moment:%m-%d %H:%M}" for moment in found]


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        ("0 9 * * *", "2026-03-28T00:00", ["03-28 08:00", "03-29 07:00", "03-30 07:00"]),  # nine stays nine
        ("30 2 * * *", "2026-03-28T12:00", ["03-29 01:00", "03-30 00:30"]),  # skipped: once, right after
        ("30 2 * * *", "2026-10-24T12:00", ["10-25 00:30", "10-26 01:30"]),  # twice on the clock: once
        ("0 * * * *", "2026-10-24T23:30", ["10-25 00:00", "10-25 01:00", "10-25 02:00"]),  # every hour is every hour
        ("*/30 * * * *", "2026-03-29T00:30", ["03-29 01:00", "03-29 01:30"]),
        ("0 9 * * 1-5", "2026-03-06T12:00", ["03-09 08:00", "03-10 08:00"]),
        ("0 0 29 2 *", "2026-03-01T00:00", ["02-28 23:00"]),
    ],
)
def test_cron_is_read_in_its_zone_also_when_clocks_change(expression: str, start: str, expected: list[str]) -> None:
    assert times(expression, start, len(expected)) == expected


@pytest.mark.parametrize(
    ("said", "zone", "expected"),
    [
        ("14:30", BERLIN, "2026-03-04T13:30"),
        ("6:00", BERLIN, "2026-03-05T05:00"),  # passed today
        ("2026-03-29T02:30", BERLIN, "2026-03-29T01:30"),  # does not exist: an hour later on the clock
        ("2026-10-25T02:30", BERLIN, "2026-10-25T00:30"),  # exists twice: the first
        ("2026-03-04 12:00", "UTC", "2026-03-04T12:00"),
        ("2026-03-04T12:00+09:00", BERLIN, None),
        ("2026-03-05T12:00+09:00", BERLIN, "2026-03-05T03:00"),
        ("soon", BERLIN, None),
        ("25:00", BERLIN, None),
        ("2029-01-01", BERLIN, None),
        ("0001-01-01T00:00+14:00", BERLIN, None),
        ("9999-12-31T23:59-14:00", BERLIN, None),
        ("14:30", "Mars/Phobos", None),
    ],
)
def test_a_time_is_what_the_clock_shows_there(said: str, zone: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(BadRequest):
            schedules.at(said, now=NOW, zone=zone)
    else:
        assert schedules.at(said, now=NOW, zone=zone).first(NOW) == utc(expected)


def test_a_time_on_the_clock_tomorrow_is_that_of_tomorrows_clock() -> None:
    evening = utc("2026-03-28T20:00")
    assert schedules.at("9:00", now=evening, zone=BERLIN).first(evening) == utc("2026-03-29T07:00")


@pytest.mark.parametrize(
    ("said", "seconds"), [("90s", 90), ("10m", 600), ("1h30m", 5400), ("7d", 604800), ("1d 2h", 93600), ("45", 45)]
)
def test_durations(said: str, seconds: int) -> None:
    assert schedules.duration(said) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "ten",
        "1x",
        "-5m",
        "1h30",
        pytest.param(" " * 100_000 + "x", id="blanks"),
        pytest.param("9" * 5000 + "d", id="digits"),
    ],
)
def test_what_is_no_duration(said: str) -> None:
    with pytest.raises(BadRequest):
        schedules.duration(said)


@pytest.mark.parametrize("expression", ["", "x", "* * * *", "61 * * * *", "0 9 * * 1-5 2026", "0 0 31 2 *", "@daily"])
def test_what_is_no_cron_expression(expression: str) -> None:
    with pytest.raises(BadRequest):
        schedules.cron(expression, now=NOW, zone="UTC")


def test_an_interval_is_a_minute_at_least() -> None:
    with pytest.raises(BadRequest):
        schedules.every(timedelta(seconds=59))


def test_what_was_missed_is_counted_and_the_rhythm_is_kept() -> None:
    hourly = When(kind="every", value="3600")
    assert next_occurrence(hourly, NOW, NOW) == (NOW + timedelta(hours=1), 0)
    late = NOW + timedelta(hours=5, minutes=20)
    assert next_occurrence(hourly, NOW, late) == (NOW + timedelta(hours=6), 5)
    daily = When(kind="cron", value="0 9 * * *", zone="UTC")
    due, back = utc("2026-03-04T09:00"), utc("2026-03-08T09:30")
    assert next_occurrence(daily, due, back) == (utc("2026-03-09T09:00"), 4)
    assert next_occurrence(When(kind="at", value=NOW.isoformat()), NOW, late) == (None, 0)
