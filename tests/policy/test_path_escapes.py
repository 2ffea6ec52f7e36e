"""No way of writing a path leads out of a scope: every case of the corpus, with the real tools on a real tree."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyagentd.config import load_config
from pyagentd.errors import ToolError
from pyagentd.policy.action import Action, ResolvedPath
from pyagentd.policy.guard import Allow, Context, Decision, Deny, decide
from pyagentd.policy.presets import Paths, Preset
from pyagentd.runtime.run_setup import protected_paths
from pyagentd.tools.builtin import builtin_tools
from pyagentd.tools.invoke import Envelope, invoke
from pyagentd.tools.spec import ToolContext, resolve
from tests.policy.escapes import paths as corpus
from tests.policy.escapes.paths import Case, Search, Swap
from tests.policy.escapes.tree import RECORDS, SECRET, Tree, build, hard_links

TOOLS = builtin_tools()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A tree of one's own, for what changes something inside."""
    made = build(tmp_path.resolve())
    monkeypatch.setenv("HOME", str(made.home))
    return made


@pytest.fixture(scope="module")
def _shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tree, dict[str, str]]:
    tree = build(tmp_path_factory.mktemp("tree").resolve())
    return tree, tree.guarded()


@pytest.fixture
def still(_shared: tuple[Tree, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    """A tree for all in which nothing changes."""
    tree, before = _shared
    monkeypatch.setenv("HOME", str(tree.home))
    yield tree
    assert tree.guarded() == before


class Agent:
    """Calls tools as an agent does; remembers what was decided."""

    def __init__(self, tree: Tree, *, everywhere: bool = False) -> None:
        root = f"{tree.root}/**"
        denied = ("**/.env", "**/.git/**", f"{tree.root}/private/**", f"{tree.root}/caf\u00e9/**")
        scope = Paths(
            read=("/**",) if everywhere else (root,),
            write=("/**",) if everywhere else (root,),
            deny=() if everywhere else denied,
        )
        env = {
            "PYAGENTD_SESSIONS_DIR": str(tree.sessions),
            "PYAGENTD_RUNTIME_DIR": str(tree.top / "run"),
            "PYAGENTD_CONFIG": str(tree.top / "config" / "config.toml"),
        }
        self.context = Context(
            preset=Preset(name="p", backend="b", model="m", paths=scope),
            interactive=False,
            protected=protected_paths(load_config(env)),
        )
        self.tree = tree
        self.decisions: list[Decision] = []

    async def call(self, tool: str, *, meanwhile: Callable[[], None] = lambda: None, **args: str) -> Envelope:
        async def authorise(action: Action) -> None:
            self.decisions.append(decide(action, self.context, False))
            if not isinstance(self.decisions[-1], Allow):
                raise ToolError("refused")
            meanwhile()

        where = ToolContext(
            root=self.tree.root,
            branch_dir=self.tree.branch,
            spool_dir=self.tree.top / "spool",
            readable=self.readable,
        )
        return await invoke(TOOLS[tool], args, where, authorise)

    def readable(self, path: ResolvedPath) -> bool:
        action = Action(tool="Read", detail=path.lexical, kind="read", paths=(path,))
        return isinstance(decide(action, self.context, False), Allow)


def arguments(tool: str, path: str) -> dict[str, str]:
    match tool:
        case "Write":
            return {"file_path": path, "content": "PWNED"}
        case "Edit":
            return {"file_path": path, "old_string": SECRET, "new_string": "PWNED"}
        case "Grep" | "Glob":
            return {"pattern": "." if tool == "Grep" else "**/*", "path": path}
        case _:
            return {"file_path": path}


def named(cases: tuple[Case | Swap | Search, ...]) -> list[Any]:
    texts = [ascii(case.pattern if isinstance(case, Search) else case.path)[1:-1] for case in cases]
    return [pytest.param(case, id=f"{number}:{texts[number][:50]}") for number, case in enumerate(cases)]


INSIDE = tuple(case for case in corpus.CASES if case.want == "inside")
OUTSIDE = tuple(case for case in corpus.CASES if case.want != "inside")


@pytest.mark.parametrize("case", named(INSIDE))
async def test_what_looks_like_a_way_out_and_is_inside_changes_nothing_else(tree: Tree, case: Case) -> None:
    agent = Agent(tree, everywhere=case.everywhere)
    if "hard" in case.path:
        hard_links(tree)
    before = tree.guarded()
    for tool in case.tools:
        agent.decisions.clear()
        envelope = await agent.call(tool, **arguments(tool, tree.filled(case.path)))
        assert SECRET not in envelope.text, tool
        if len(case.path) < os.pathconf("/", "PC_PATH_MAX"):  # a longer one is refused before anything is decided
            assert isinstance(agent.decisions[0], Allow), (tool, agent.decisions)
    assert tree.guarded() == before


@pytest.mark.parametrize("case", named(OUTSIDE))
async def test_no_way_of_writing_a_path_leads_out(still: Tree, case: Case) -> None:
    agent = Agent(still, everywhere=case.everywhere)
    for tool in case.tools:
        agent.decisions.clear()
        envelope = await agent.call(tool, **arguments(tool, still.filled(case.path)))
        assert not envelope.ok and SECRET not in envelope.text, tool
        match case.want:
            case "impossible":
                assert agent.decisions == [], tool
            case "refused":
                pass
            case rule:
                (decision,) = agent.decisions
                assert isinstance(decision, Deny), (tool, decision)
                assert decision.rule in (rule, "protected"), (tool, decision)  # point 1 comes before all others


@pytest.mark.parametrize("swap", named(corpus.SWAPS))
async def test_what_is_put_in_the_way_after_the_check_is_not_followed(tree: Tree, swap: Swap) -> None:
    before = tree.guarded()
    place = tree.root / (swap.gone or swap.path.split("/")[0])

    def put() -> None:
        if swap.gone and not place.is_symlink():
            place.rename(tree.root / "moved-away")
        if not place.is_symlink():
            place.symlink_to(tree.filled(swap.target))

    for tool in swap.tools:
        agent = Agent(tree)
        if place.is_symlink():  # of the tool before
            place.unlink()
            if swap.gone:
                (tree.root / "moved-away").rename(place)
        envelope = await agent.call(tool, meanwhile=put, **arguments(tool, tree.filled(swap.path)))
        assert isinstance(agent.decisions[0], Allow), "it was inside when it was asked about"
        assert place.is_symlink()
        assert SECRET not in envelope.text, tool
        assert tree.guarded() == before, tool
        if tool in corpus.ONE_FILE:
            assert not envelope.ok, tool


@pytest.mark.parametrize("search", named(corpus.SEARCHES))
@pytest.mark.parametrize("tool", ["Glob", "Grep"])
async def test_no_file_pattern_finds_what_is_outside(still: Tree, tool: str, search: Search) -> None:
    agent = Agent(still)
    args = {"pattern": still.filled(search.pattern)} if tool == "Glob" else {"pattern": ".", "glob": search.pattern}
    args |= {} if search.path is None else {"path": search.path}
    envelope = await agent.call(tool, **args)
    assert SECRET not in envelope.text
    for line in envelope.text.splitlines():
        if line.startswith("/"):
            assert agent.readable(resolve(line, still.root)), line


@pytest.mark.parametrize("name", ["hard.txt", "hard-preset.md", "hard-messages.jsonl"])
async def test_what_is_written_never_reaches_the_other_names_of_a_file(tree: Tree, name: str) -> None:
    """A hard link is no way to a record: tools put a new file in the place of the name."""
    hard_links(tree)
    before = tree.guarded()
    assert (tree.root / name).stat().st_nlink == 2
    assert (await Agent(tree).call("Edit", **arguments("Edit", name))).ok
    assert (tree.root / name).read_text() == "PWNED"
    assert (tree.root / name).stat().st_nlink == 1
    assert tree.guarded() == before


async def test_a_root_with_pattern_characters_in_its_name_is_taken_literally(tree: Tree) -> None:
    for name in ("we[i]rd*", "weird", "weirdo", "we[i]rdo"):
        (tree.top / name).mkdir()
        (tree.top / name / "a.txt").write_text(SECRET)
    odd = Tree(tree.top)
    from pyagentd.policy.action import under

    scope = under(str(tree.top / "we[i]rd*"))
    agent = Agent(odd)
    preset = Preset(name="p", backend="b", model="m", paths=Paths(read=(scope,)))
    agent.context = Context(preset=preset, interactive=False)
    assert (await agent.call("Read", file_path=str(tree.top / "we[i]rd*" / "a.txt"))).ok
    for name in ("weird", "weirdo", "we[i]rdo"):
        assert not (await agent.call("Read", file_path=str(tree.top / name / "a.txt"))).ok


def test_the_corpus_is_as_large_as_it_says_and_names_no_case_twice() -> None:
    cases = [(case.path, case.tools, case.everywhere) for case in corpus.CASES]
    assert len(cases) == len(set(cases)) >= 300
    assert len(corpus.SWAPS) >= 25 and len(corpus.SEARCHES) >= 50
    assert {rule.want for rule in corpus.CASES} == {"scope", "deny", "protected", "impossible", "refused", "inside"}
    assert all(any(name in case.path for case in corpus.RECORDED) for name in RECORDS)
