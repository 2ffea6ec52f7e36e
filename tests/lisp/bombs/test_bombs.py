"""Every bomb ends within its limits, with a documented error, in this process and in one of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lisp.bombs.corpus import BOMBS
from tests.lisp.bombs.setting_off import set_off

ROOT = Path(__file__).resolve().parents[3]
PEAK_MB = 64
"""What a bomb may add to the memory of the process."""

REASONS = {bomb.name: bomb.reasons for bomb in BOMBS}


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.name)
def test_a_bomb_in_a_process_of_its_own(bomb):
    assert set_off(bomb, isolation="process") in bomb.reasons


def test_no_bomb_in_this_process_ends_otherwise_or_takes_much_memory():
    done = subprocess.run(
        [sys.executable, "-m", "tests.lisp.bombs"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert {name: end for name, (end, _) in found.items() if end not in REASONS[name]} == {}
    assert {name: peak for name, (_, peak) in found.items() if peak > PEAK_MB} == {}
