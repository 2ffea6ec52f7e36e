"""What is told of wrappers is what the real wrappers run."""

import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pyagentd.policy import shell
from pyagentd.policy.shell.grammar import KEYWORDS
from pyagentd.policy.shell.programs import REFUSED
from tests.examples import examples
from tests.policy.bash import BASH, HARMLESS, run

REAL = ["env", "nice", "nohup", "timeout", "stdbuf", "setsid", "ionice", "xargs", "find", "sh", "bash"]
STAND_INS = ["p", "q", "rm", "cat"]
PROGRAMS = {name: shutil.which(name) for name in REAL if shutil.which(name)} | dict.fromkeys(STAND_INS)

PIECES = [
    *[f"{name} " for name in REAL],
    *["p ", "q ", "rm ", "cat ", "p x ", "env p ", "command ", "builtin ", "exec ", "cd sub ", "time ", "! "],
    *["-n ", "-n 1 ", "-5 ", "-i ", "-u X ", "-C . ", "-S 'p x' ", "-s ", "-s TERM ", "-k 1 ", "5 ", "1 ", "-o "],
    *["-oL ", "-c ", "-c 'p x' ", "-c 'q;p' ", "-ec ", "-lc p ", "-e ", "-o pipefail ", "-x ", "+x ", "--posix "],
    *["-s ", "-- ", "- ", "-I% ", "-I {} ", "% ", "-0 ", "-r ", "-a /dev/null ", "-L 1 ", "-d, ", "-P 1 ", "-i "],
    *["-i% ", "-e ", "-l ", "-t ", ". ", "-maxdepth 0 ", "-name p ", "-exec ", "-execdir ", "-ok ", "{} ", "\\; "],
    *["';' ", "+ ", "{} + ", "-o ", "-print ", "--wait ", "-w ", "-f ", "--adjustment=1 ", "--signal=TERM "],
    *["--foreground ", "--preserve-status ", "X=1 ", "--help ", "; ", "&& ", "| ", "\n"],
]
LINES = st.lists(st.sampled_from(PIECES), min_size=2, max_size=9).map("".join)

pytestmark = pytest.mark.skipif(shutil.which(BASH) is None, reason="there is no bash")


def explained(words: tuple[str, ...], reading: shell.ShellReading) -> bool:
    """Whether these words, which a program really got, were told: word for word, or where some come only then."""
    for command in reading.commands:
        told = command.words
        if told == words or told[0] in ("sh", "bash"):  # a shell that runs a file or its input: told as itself
            return True
        fixed = [word for word in told[1:] if "{}" not in word and "%" not in word and "xargs reads" not in word]
        if len(fixed) < len(told) - 1 and words[:1] == told[:1] and set(fixed) <= set(words[1:]):
            return True
    return False


@settings(max_examples=examples(120), suppress_health_check=list(HealthCheck))
@given(text=LINES)
@example(text="echo p | xargs env")
@example(text="echo x | xargs -i% p %")
@example(text="echo x | xargs -I % -n 1 p %")
@example(text="find . -maxdepth 0 -exec env p {} + -exec q ';'")
@example(text="timeout -s TERM -k 1 5 nice -n 5 sh -c 'p x; q'")
@example(text="sh -e -c -x 'p' q")
@example(text="sh -c -- p")
@example(text="bash -c - p")
@example(text="bash +x -c p")
@example(text="env -u X -- p")
@example(text="env - p")
@example(text="nice -5 -n 3 p")
@example(text="setsid -w -f p")
@example(text="xargs -e p")
@example(text="xargs -l 1 p")
def test_no_program_runs_that_was_not_told(text):
    reading = shell.read(text)
    if reading.unreadable is not None:
        return
    for words in run(text, programs=PROGRAMS).commands:
        assert explained(words, reading), (
            f"{text!r} runs {words}; told was {[each.words for each in reading.commands]}"
        )


def test_bash_has_no_builtin_or_keyword_that_is_not_known():
    """One that is new could change what later words mean."""

    def names(action: str) -> set[str]:
        return set(
            subprocess.run([BASH, "-c", f"compgen -A {action}"], capture_output=True, text=True).stdout.split()
        )

    assert names("keyword") <= KEYWORDS
    assert names("builtin") <= HARMLESS | REFUSED
