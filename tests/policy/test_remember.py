"""What an approval is remembered as, and that it never covers more than was shown."""

from __future__ import annotations

import re

import pytest

from pyagentd.config.tables import compile_action
from pyagentd.policy import shell
from pyagentd.policy.action import Action, ResolvedPath
from pyagentd.policy.guard import covering_grants, explain_pattern, literal, patterns_to_remember


def command(text: str) -> Action:
    reading = shell.read(text)
    writes = tuple(ResolvedPath(lexical=f"/w/{each}", resolved=f"/w/{each}") for each in reading.writes)
    return Action(tool="Bash", detail=text, kind="command", command=text, shell=reading, writes=writes)


def change(path: str, really: str | None = None, tool: str = "Edit") -> Action:
    return Action(tool=tool, detail=path, kind="write", paths=(ResolvedPath(lexical=path, resolved=really or path),))


def granted(*actions: Action) -> list[re.Pattern[str]]:
    """The grants of a human who said "always" to each of ``actions``."""
    return [compile_action(pattern) for action in actions for pattern in patterns_to_remember(action)]


REMEMBERED = [
    ("git log --oneline", [r"tool:Bash:git log(?: [^;&|<>()$`\\\n\r]*)?"]),
    (
        "git log | head -5",
        [r"tool:Bash:git log(?: [^;&|<>()$`\\\n\r]*)?", r"tool:Bash:head(?: (?:-[\w=,.:+-]*|\d+))*"],
    ),
    ("npm run build", [r"tool:Bash:npm run build(?: [^;&|<>()$`\\\n\r]*)?"]),
    ("pytest -q tests", [r"tool:Bash:pytest(?: [^;&|<>()$`\\\n\r]*)?"]),
    ("make test", [r"tool:Bash:make test"]),
    ("ruff check --fix", [r"tool:Bash:ruff check --fix"]),
    ("git commit -m x", [r"tool:Bash:git commit -m x"]),
    ("go test ./...", [r"tool:Bash:go test(?: [^;&|<>()$`\\\n\r]*)?"]),
    ("git push origin main", [r"tool:Bash:git push origin main"]),
    ("git branch -D old", [r"tool:Bash:git branch -D old"]),
    ("cat /etc/passwd", [r"tool:Bash:cat /etc/passwd"]),
    ("python3 x.py && make", [r"tool:Bash:python3 x\.py", r"tool:Bash:make"]),
    ("python3 x.py && rm x", [r"tool:Bash:python3 x\.py && rm x"]),
    ("git log > out.txt", [r"tool:Bash:git log > out\.txt"]),
    ("echo $(rm x)", [r"tool:Bash:echo \$\(rm x\)"]),
]


@pytest.mark.parametrize(("text", "patterns"), REMEMBERED)
def test_what_is_remembered_of_a_command(text: str, patterns: list[str]) -> None:
    assert list(patterns_to_remember(command(text))) == patterns


@pytest.mark.parametrize("text", [text for text, _ in REMEMBERED])
def test_what_was_approved_is_covered_by_what_is_remembered_of_it(text: str) -> None:
    assert covering_grants(command(text), granted(command(text)))


COVERED_BY_GIT_LOG = [
    ("git log", True),
    ("git log -3 --stat src/a.py", True),
    ("git log; git log -1", True),
    ("git log && git log", True),
    ("git logger", False),
    ("git status", False),
    ("git log; rm x", False),
    ("rm x; git log", False),
    ("git log && rm x", False),
    ("git log || rm x", False),
    ("git log | sh", False),
    ("git log |& sh", False),
    ("git log & rm x", False),
    ("git log\nrm x", False),
    ("git log\r\nrm x", False),
    ("git log $(rm x)", False),
    ("git log `rm x`", False),
    ("git log <(rm x)", False),
    ("git log > ~/.bashrc", False),
    ("git log >> a.txt", False),
    ("git log --output=a.txt", False),
    ("git -c core.pager=evil log", False),
    ("GIT_EXTERNAL_DIFF=evil git log", False),
    ("env git log", False),
    ("timeout 5 git log", False),
    ("git log\\\n; rm x", False),
    ("(git log; rm x)", False),
    ("{ git log; rm x; }", False),
    ("git log ${IFS}x", False),
    ("git log <<EOF\nrm x\nEOF", False),
    ("/tmp/git log", False),
    ("./git log", False),
    ("git log 'a", False),
    ("", False),
]


@pytest.mark.parametrize(("text", "is_covered"), COVERED_BY_GIT_LOG)
def test_a_remembered_git_log_admits_git_log_and_nothing_with_it(text: str, is_covered: bool) -> None:
    assert (covering_grants(command(text), granted(command("git log"))) is not None) == is_covered


@pytest.mark.parametrize("text", [text for text, is_covered in COVERED_BY_GIT_LOG if not is_covered and text])
def test_a_remembered_command_does_not_even_match_a_text_with_another_command(text: str) -> None:
    if re.search(r"[;&|$`\n\r<>()\\]", text):  # whoever matches whole actions only is safe too
        assert not any(pattern.fullmatch(f"tool:Bash:{text}") for pattern in granted(command("git log")))


def test_every_command_of_a_line_has_to_be_remembered() -> None:
    both = granted(command("git log | head -5"))
    assert covering_grants(command("git log -1 | head -20"), both) and covering_grants(command("git log"), both)
    assert covering_grants(command("git log | tail -5"), both) is None
    assert covering_grants(command("git log | head -5 /etc/passwd"), both) is None
    assert covering_grants(command("git log | head -5 | make"), both) is None
    assert covering_grants(command("git log | head -5; make"), [*both, *granted(command("make"))])


def test_an_exact_command_is_that_command_only() -> None:
    grants = granted(command("make test"))
    assert covering_grants(command("make test"), grants)
    assert covering_grants(command("make test && git status"), grants) is None
    assert covering_grants(command("make test SHELL=/tmp/x"), grants) is None
    assert covering_grants(command("make  test"), grants) is None


def test_what_cannot_be_read_is_covered_by_its_very_text_only() -> None:
    grants = granted(command('for f in *; do echo "$f"; done'))
    assert covering_grants(command('for f in *; do echo "$f"; done'), grants)
    assert covering_grants(command('for f in *; do rm "$f"; done'), grants) is None
    assert covering_grants(command('for f in *; do echo "$f"; done'), [compile_action("tool:Bash:.*")]) is None


def test_a_change_is_remembered_for_the_files_of_its_directory() -> None:
    assert patterns_to_remember(change("/w/src/a.py")) == ("tool:(?:Edit|Write):/w/src/[^/]+",)
    grants = granted(change("/w/src/a.py"))
    assert covering_grants(change("/w/src/b.py"), grants) and covering_grants(
        change("/w/src/b.py", tool="Write"), grants
    )
    for other in ("/w/src/sub/a.py", "/w/a.py", "/w/src", "/w/srcs/a.py", "/x/w/src/a.py"):
        assert covering_grants(change(other), grants) is None
    assert covering_grants(change("/w/src/a.py", tool="Read"), grants) is None


def test_a_link_in_a_remembered_directory_does_not_lead_out_of_it() -> None:
    grants = granted(change("/w/src/a.py"))
    assert covering_grants(change("/w/src/link", really="/w/secret/x"), grants) is None
    assert covering_grants(change("/w/src/link", really="/w/src/b.py"), grants)
    assert covering_grants(change("/w/src/link", really="/w/o/x"), granted(change("/w/src/link", really="/w/o/x")))
    read = Action(tool="Read", detail="/w/l", kind="read", paths=(ResolvedPath(lexical="/w/l", resolved="/w/x"),))
    moved = Action(tool="Read", detail="/w/l", kind="read", paths=(ResolvedPath(lexical="/w/l", resolved="/w/y"),))
    assert covering_grants(read, granted(read)) and covering_grants(moved, granted(read)) is None


def test_special_characters_are_taken_literally() -> None:
    for path in ("/w/a+b (1)/x.py", "/w/[a]/x", "/w/a|b/x", "/w/$x/^y", "/w/new\nline/x"):
        grants = granted(change(path))
        assert covering_grants(change(path), grants)
        assert covering_grants(change("/etc/passwd"), grants) is None
    action = Action(tool="PersistentAgent", detail="a.b", kind="meta")
    assert patterns_to_remember(action) == (r"tool:PersistentAgent:a\.b",)
    assert covering_grants(Action(tool="PersistentAgent", detail="axb", kind="meta"), granted(action)) is None


def test_a_pattern_is_told_in_words() -> None:
    assert explain_pattern(patterns_to_remember(change("/w/s.d/a"))[0]) == "Edit and Write any file in /w/s.d/"
    assert explain_pattern(patterns_to_remember(command("git log -1"))[0]) == "Bash `git log` with any arguments"
    assert explain_pattern(patterns_to_remember(command("head -1"))[0]) == "Bash `head` with any options"
    assert explain_pattern(patterns_to_remember(command("make a.o"))[0]) == "Bash `make a.o`, exactly"
    assert explain_pattern("tool:.*") == "tool:.*"


def test_an_expression_of_a_text_matches_it_alone() -> None:
    text = r"tool:Bash:a.b*c\d[e](f){g}|h^i$j?k+"
    assert re.fullmatch(literal(text), text)


EVIL = "rm -rf src"
JOINED = [
    "{good}; {evil}", "{evil}; {good}", "{good} && {evil}", "{good} || {evil}", "{good} | {evil}", "{good} & {evil}",
    "{good}\n{evil}", "{good}\r\n{evil}", "{good} $({evil})", "{good} `{evil}`", '{good} "$({evil})"',
    "{good} <({evil})", "{good} > >({evil})", "({good}; {evil})", "if {good}; then {evil}; fi", "! {good} || {evil}",
    "{good} <<X\n$({evil})\nX", "{good} # x\n{evil}", "{good} \\\n; {evil}", "{good};{evil}", "{good}&&{evil}",
    "bash -c '{good}; {evil}'", "find . -exec {evil} \\; ; {good}", "{good} | xargs {evil}", "time {evil}; {good}",
    "f() {{ {evil}; }}; {good}", "trap '{evil}' EXIT; {good}", "eval '{evil}'; {good}", "{good} > a", "{good} 2>a",
]  # fmt: skip


@pytest.mark.parametrize("joined", JOINED)
@pytest.mark.parametrize("good", ["git log", "git status", "pytest -q", "npm run build", "head -5", "make", "ls -la"])
def test_no_remembered_command_lets_another_one_in(good: str, joined: str) -> None:
    text = joined.format(good=good, evil=EVIL)
    grants = [*granted(command(good)), *granted(command("git log | head -5")), *granted(command("echo x"))]
    assert covering_grants(command(good), grants)
    assert covering_grants(command(text), grants) is None


def net(tool: str, detail: str) -> Action:
    return Action(tool=tool, detail=detail, kind="net")


def test_a_page_is_remembered_for_its_site_and_a_search_for_all_of_them():
    (site,) = patterns_to_remember(net("WebFetch", "https://docs.example.com/a?b=1"))
    assert site == r"tool:WebFetch:https://docs\.example\.com/.*"
    assert explain_pattern(site) == "WebFetch any page of https://docs.example.com"
    grants = [compile_action(site)]
    assert covering_grants(net("WebFetch", "https://docs.example.com/other"), grants)
    for other in ("http://docs.example.com/a", "https://docs.example.com.evil.net/a", "https://docsxexample.com/"):
        assert not covering_grants(net("WebFetch", other), grants)
    (every,) = patterns_to_remember(net("WebSearch", "weather"))
    assert every == "tool:WebSearch:.*" and explain_pattern(every) == "WebSearch anything"
