"""Every bomb ends within its limits, with a documented error, in this process and in one of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lisp.bombs.corpus import BOMBS
from tests.lisp.bombs.setting_off import set_off

ROOT = Path(__file__).resolve().parents[3]
PEAK_MB = 128
"""What all bombs together may add to the memory of the process."""


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.name)
def test_a_bomb_in_this_process(bomb):
    assert set_off(bomb) in bomb.reasons


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.name)
def test_a_bomb_in_a_process_of_its_own(bomb):
    assert set_off(bomb, isolation="process") in bomb.reasons


def test_no_bomb_takes_much_memory():
    done = subprocess.run(
        [sys.executable, "-m", "tests.lisp.bombs"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    peaks = json.loads(done.stdout)
    worst = max(peaks, key=lambda name: peaks[name])
    assert peaks[worst] < PEAK_MB, f"{worst}: {peaks[worst]:.0f} MB"
