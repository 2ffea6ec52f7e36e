"""The meaning of glob patterns, as a table."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wcmatch import glob

from pyagentd.errors import BadRequest
from pyagentd.policy.action import first_match, matches, under, validate_pattern

TABLE = [
    ("/workspace/**", "/workspace/file.txt", True),
    ("/workspace/**", "/workspace/sub/file.txt", True),
    ("/workspace/**", "/other/file.txt", False),
    ("/workspace/*.el", "/workspace/init.el", True),
    ("/workspace/*.el", "/workspace/sub/init.el", False),
    ("**/.git/**", "/workspace/.git/config", True),
    ("**/.git/**", "/workspace/sub/.git/HEAD", True),
    ("/tmp/*", "/tmp/file", True),
    ("/tmp/*", "/tmp/sub/file", False),
    # beyond the canonical nine
    ("/workspace/**", "/workspace", False),
    ("/workspace/**", "/workspace2/file", False),
    ("/workspace/**", "/workspace/.hidden/.file", True),
    ("/**", "/any/file", True),
    ("**/.git/**", "/.git/config", True),
    ("**/.git/**", "/workspace/.gitignore", False),
    ("**/.git/**", "/workspace/x.git/config", False),
    ("**/.env", "/a/b/.env", True),
    ("**/.env", "/.env", True),
    ("**/.env", "/a/.env.local", False),
    ("/a/**/b", "/a/b", True),
    ("/a/**/b", "/a/x/y/b", True),
    ("/a/?.txt", "/a/f.txt", True),
    ("/a/?.txt", "/a/ff.txt", False),
    ("/a/?b", "/a//b", False),
    ("/a/[fg].txt", "/a/g.txt", True),
    ("/a/f.txt", "/a/fxtxt", False),
    ("/a/f+.txt", "/a/ff.txt", False),
    ("/A/*", "/a/x", False),
    ("!/a/**", "/b", False),
    ("/a/{b,c}", "/a/b", False),
    ("/a/", "/a/b/c", True),
    ("/a/*", "/a/new\nline", True),
]


@pytest.mark.parametrize(("pattern", "path", "expected"), TABLE)
def test_pattern_matches_whole_path(pattern, path, expected):
    assert matches(pattern, path) is expected


SEGMENTS = st.sampled_from(["a", "b", "ab", ".x", "a.b", "*", "[", "a*b"])
WILD = st.sampled_from(["a", "ab", ".x", "*", "**", "?", "a?", "*b", "[ab]", "[!a]b", "\\*", "a\\[b", "[", "."])


@given(st.lists(WILD, min_size=1, max_size=4), st.lists(SEGMENTS, min_size=1, max_size=4))
def test_the_quick_look_for_a_word_never_changes_the_answer(wild, segments):
    pattern, path = "/" + "/".join(wild), "/" + "/".join(segments)
    flags = glob.GLOBSTAR | glob.DOTGLOB | glob.FORCEUNIX | glob.CASE
    assert matches(pattern, path) is glob.globmatch(path, pattern, flags=flags)


def test_a_pattern_that_fits_in_many_ways_takes_no_time():
    deep = "/" + "a/" * 40
    began = time.process_time()
    assert not matches("/" + "**/a/" * 20 + "a/" * 40 + "[z]", "/" + "x/a/" * 20 + deep[1:] + "x")
    assert not matches("/**/" + "*a*/**/" * 20 + "[z]", deep + "x")
    assert matches("/" + "**/a/" * 20 + "x", deep + "x")
    assert time.process_time() - began < 2


def test_a_tilde_is_the_users_home(monkeypatch):
    monkeypatch.setenv("HOME", "/home/a[1]")
    assert matches("~/notes/**", "/home/a[1]/notes/x")
    assert not matches("~/notes/**", "/home/a1/notes/x")


def test_the_pattern_of_a_directory_takes_its_name_literally():
    assert matches(under("/p/[old] *stuff*{a}"), "/p/[old] *stuff*{a}/file")
    assert not matches(under("/p/[old]"), "/p/o/file")
    assert matches(under("/"), "/file")


def test_the_first_pattern_that_matches_is_named():
    assert first_match(["/b/**", "/a/**", "/**"], "/a/x") == "/a/**"
    assert first_match(["/b/**"], "/a/x") is None
    assert first_match([], "/a/x") is None


@pytest.mark.parametrize("pattern", ["/a/**", "**/x", "~/x", "/a/.hidden/..x"])
def test_an_absolute_pattern_is_valid(pattern):
    validate_pattern(pattern)


@pytest.mark.parametrize("pattern", ["", "src/**", "*.py", "./a", "~other/x", "!/a", "/a/../b", "/a/./b", "/a\nb"])
def test_a_pattern_that_could_never_match_is_refused_with_a_hint(pattern):
    with pytest.raises(BadRequest) as error:
        validate_pattern(pattern)
    assert error.value.hint
