"""The daemon, Emacs or both are killed in the middle of a conversation: nothing is lost, nothing comes twice.

A few moments; ``make test-kill`` has 200 of them, ``python -m tests.kill --seed S --only N`` one again.
"""

from __future__ import annotations

import os

import pytest

from tests.kill.moment import Moment, system_for
from tests.kill.plan import Plan, plan_of
from tests.server import ModelServer

SEED = int(os.environ.get("PYAGENTD_TEST_SEED", "1"))


def moments() -> list[Plan]:
    """Return the first moment of the seed for each victim, with Emacs and without."""
    plans = [plan_of(SEED, number) for number in range(100)]
    return list({(plan.victim, plan.in_emacs): plan for plan in reversed(plans)}.values())


@pytest.mark.parametrize("plan", moments(), ids=str)
def test_what_was_shown_is_on_disk_once_and_the_conversation_goes_on(plan: Plan, model_server: ModelServer) -> None:
    with system_for(model_server) as system:
        assert Moment(plan, system, model_server).run().problems == []
