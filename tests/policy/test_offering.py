"""Which tools are offered: a tool is hidden only when no detail of it could pass."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyagentd.policy.action import META_TOOLS, action_prefixes
from pyagentd.policy.profiles import BUILTIN, make_profile, may_pass

ALL = ("Read", "Write", "Edit", "Glob", "Grep", "Bash", *sorted(META_TOOLS))


@pytest.mark.parametrize(
    ("profile", "hidden"),
    [
        (None, ()),
        (BUILTIN["open"], ()),
        (BUILTIN["standard"], ()),
        (BUILTIN["locked"], ("Write", "Edit", "Bash")),
        (make_profile("nothing"), ("Read", "Write", "Edit", "Glob", "Grep", "Bash")),
        (make_profile("p", allow=["tool:bash:git .*"]), ("Read", "Write", "Edit", "Glob", "Grep")),
        (make_profile("p", ask=["tool:create_file:docs/.*"]), ("Read", "Edit", "Glob", "Grep", "Bash")),
        (make_profile("p", allow=["tool:(?!bash|Bash|run|shell|Shell).*"]), ("Bash",)),
        (make_profile("p", allow=["TOOL:.*"]), ("Read", "Write", "Edit", "Glob", "Grep", "Bash")),
        (make_profile("p", allow=["tool:Re"]), ("Read", "Write", "Edit", "Glob", "Grep", "Bash")),
    ],
)
def test_what_a_profile_hides(profile, hidden):
    assert [tool for tool in ALL if not may_pass(profile, tool)] == list(hidden)


def test_meta_tools_are_in_every_profile_under_every_name():
    nothing = make_profile("nothing")
    for tool in (*META_TOOLS, "task", "Agent", "ask_user_questions", "TodoWrite"):
        assert may_pass(nothing, tool)


@pytest.mark.parametrize(
    ("tool", "standard", "locked"),
    [
        ("git_init", True, False),
        ("git_commit", True, False),
        ("git_push", True, False),
        ("git_branch", True, False),
        ("git_merge_request", True, False),
        ("self_edit_docs", True, False),
        ("WebFetch", True, False),
        ("web_search", True, False),
        ("unheard_of", False, False),
    ],
)
def test_tools_of_specification_003(tool, standard, locked):
    assert (may_pass(BUILTIN["standard"], tool), may_pass(BUILTIN["locked"], tool)) == (standard, locked)


# Pieces of expressions, joined at random: where one of them matches some action, the tool must be offered.
_PIECES = st.sampled_from(
    [
        "tool:", "Bash:", "bash:", "(?:bash|view):", "[a-z]+:", ".*", ".", "x", "xy", "(?!x)", "(?=x)", "(?!$)", "$",
        "^", "\\b", "\\B", "\\Z", "(?<=:)", "(?<!:)", "(x|y)", "\\1", "(?i:X)", "x?", "x*", "x+?", "(?>x*)", "x++",
        "{1}", "{e<=1}", "[^:]", "\\w", "\\W*", "(?!.*y)", "(?:)", "(?!:x)", "(?<![a-z]:)", "(?!\\Z)", "|", "(?#c)",
    ]
)  # fmt: skip


@given(st.lists(_PIECES, min_size=1, max_size=8).map("".join), st.text("xyX\n :", max_size=5))
@example("tool:bash:\\b.*", "x")
@example("tool:bash:(?!$).*", "x")
@example("tool:bash:$|tool:bash:x", "x")
@example("tool:bash:(?!\\Z)x", "x")
def test_a_tool_some_detail_of_which_may_pass_is_never_hidden(pattern, detail):
    try:
        profile = make_profile("p", allow=[pattern])
    except Exception:
        return
    for prefix in action_prefixes("Bash"):
        if re.fullmatch(pattern, prefix + detail, re.DOTALL):
            assert may_pass(profile, "Bash")
