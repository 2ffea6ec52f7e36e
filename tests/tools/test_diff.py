import difflib
import time
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pyagentd.tools.write import unified_diff

lines = st.lists(st.sampled_from(["a", "b", "c", "", "d d"]), max_size=30)


@given(lines, lines)
def test_it_says_the_same_as_difflib(old: list[str], new: list[str]) -> None:
    before, after = ("".join(line + "\n" for line in text) for text in (old, new))
    hunks = unified_diff(before, after, "f").split("\n")[2:]
    assert _applied(old, hunks) == new
    assert bool(hunks) == bool(list(difflib.unified_diff(old, new)))


def _applied(old: list[str], hunks: list[str]) -> list[str]:
    """Apply a unified diff as ``patch`` does, checking what it removes and keeps."""
    result: list[str] = []
    position = 0
    for line in hunks:
        if line.startswith("@@"):
            first, _, count = line.split()[1][1:].partition(",")
            start = int(first) - (count != "0")
            result += old[position:start]
            position = start
        elif line.startswith("+"):
            result.append(line[1:])
        else:
            assert old[position] == line[1:]
            if line.startswith(" "):
                result.append(line[1:])
            position += 1
    return result + old[position:]


def test_equal_texts_have_no_diff() -> None:
    assert unified_diff("a\nb", "a\nb\n", "f") == ""


def test_a_small_change_in_a_large_file_is_shown_in_its_place() -> None:
    old = [f"line {n}" for n in range(100_000)]
    diff = unified_diff("\n".join(old), "\n".join([*old[:50_000], "new", *old[50_000:]]), "f").split("\n")
    assert diff[2] == "@@ -49998,6 +49998,7 @@"
    assert len(diff) == 2 + 1 + 7


def test_a_large_change_is_bounded_in_time_and_size() -> None:
    started = time.process_time()
    diff = unified_diff("a\nb\n" * 50_000, "b\na\nc\n" * 50_000, "f")
    assert time.process_time() - started < 2
    assert diff.count("\n") == 2 + 400
    assert diff.endswith("more lines")


def test_a_change_that_is_just_compared_is_bounded_in_time() -> None:
    random = Random(1)
    before, after = ("".join(random.choice("ab") + "\n" for _ in range(299)) for _ in range(2))
    started = time.process_time()
    assert unified_diff(before, after, "f")
    assert time.process_time() - started < 2


def test_one_giant_line_is_cut() -> None:
    diff = unified_diff("x" * 600_000, "y" * 600_000, "f", rest="; see it")
    assert len(diff) < 1_500 and diff.endswith("y… 599,501 more characters; see it")
