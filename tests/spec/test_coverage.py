"""Every scenario of the specifications has a test of its own, and no test claims what there is not."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.spec.breaks import BREAKS
from tests.spec.coverage import DEVIATIONS, SPECIFICATIONS, claims, scenarios, uncalled
from tests.spec.effects import EFFECTS
from tests.spec.mutants import ROOT

CLAIMS = claims()


@pytest.mark.parametrize("spec", SPECIFICATIONS)
def test_every_scenario_has_a_test(spec: str) -> None:
    shown = {claim.scenario for claim in CLAIMS if claim.spec == spec}
    assert [title for title in scenarios(spec) if title not in shown] == []


def test_no_test_carries_more_than_two_scenarios() -> None:
    carried = Counter((claim.file, claim.test) for claim in CLAIMS if claim.spec in SPECIFICATIONS)
    assert [test for (_, test), number in carried.items() if number > 2] == []


def test_every_claim_names_a_scenario() -> None:
    known = {spec: set(scenarios(spec)) for spec in SPECIFICATIONS}
    unknown = [claim for claim in CLAIMS if claim.spec in known and claim.scenario not in known[claim.spec]]
    assert unknown == []


def test_every_scenario_can_be_broken_in_code_that_is_there() -> None:
    assert sorted((broken.spec, broken.scenario) for broken in BREAKS) == sorted(
        (spec, title) for spec in SPECIFICATIONS for title in scenarios(spec)
    )
    for broken in BREAKS:
        assert broken.applied((ROOT / broken.file).read_text("utf-8"))


def test_what_fulfils_a_scenario_is_called_by_the_product() -> None:
    assert uncalled() == []


@pytest.mark.parametrize("spec", SPECIFICATIONS)
def test_what_differs_from_a_specification_is_told_with_the_reason(spec: str) -> None:
    text = (ROOT / DEVIATIONS).read_text("utf-8")
    _, heading, rest = text.partition(f"\n## {spec}: ")
    rows = [line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("| ")][2:]
    assert heading and rows
    assert all(len(cells := row.strip("|").split(" | ")) == 3 and all(map(str.strip, cells)) for row in rows)


def test_every_scenario_about_gptel_has_an_effect_that_a_user_sees() -> None:
    known, shown = set(scenarios("000")), {claim.scenario for claim in CLAIMS if claim.spec == "000"}
    named = [effect.scenario for effect in EFFECTS]
    assert len(set(named)) == len(named) and set(named) <= known & shown
    assert {title for title in known if "gptel" in title} <= set(named)
    assert all(effect.names and effect.effect.endswith(".") for effect in EFFECTS)
