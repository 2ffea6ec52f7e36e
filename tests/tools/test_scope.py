"""The tools together with the one decision: what an agent with a scope can and cannot reach."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyagentd.errors import ToolError
from pyagentd.policy.action import Action, ResolvedPath
from pyagentd.policy.guard import Allow, Context, decide
from pyagentd.policy.presets import Paths, Preset
from pyagentd.tools.builtin import builtin_tools
from pyagentd.tools.invoke import Envelope, invoke
from pyagentd.tools.spec import ToolContext

Try = Callable[..., Awaitable[Envelope]]

TOOLS = builtin_tools()


@pytest.fixture
def attempt(tmp_path: Path, root: Path, ctx: ToolContext) -> Try:
    """Call a tool by name as an agent that may read and write the root, and not what is denied there."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret needle")
    (root / "src").mkdir()
    (root / "src" / "code.py").write_text("needle")
    (root / ".env").write_text("needle=secret")
    (root / "private").mkdir()
    (root / "private" / "key.txt").write_text("secret needle")
    (root / "escape").symlink_to(outside)
    (root / "escape.txt").symlink_to(outside / "secret.txt")
    (root / "dangling").symlink_to(outside / "new.txt")
    (root / "to-private").symlink_to("private")

    paths = Paths(read=(f"{root}/**",), write=(f"{root}/**",), deny=("**/.env", f"{root}/private/**"))
    rules = Context(preset=Preset(name="p", backend="b", model="m", paths=paths), interactive=False)

    async def authorise(action: Action) -> None:
        decision = decide(action, rules, confirm=False)
        if not isinstance(decision, Allow):
            raise ToolError("refused")

    def readable(path: ResolvedPath) -> bool:
        action = Action(tool="Read", detail=path.lexical, kind="read", paths=(path,))
        return isinstance(decide(action, rules, confirm=False), Allow)

    async def attempt(name: str, **args: Any) -> Envelope:
        return await invoke(TOOLS[name], args, replace(ctx, readable=readable), authorise)

    return attempt


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret.txt",
        "src/../../outside/secret.txt",
        "escape/secret.txt",
        "escape.txt",
        ".env",
        "private/key.txt",
        "to-private/key.txt",
        "/etc/passwd",
    ],
)
async def test_no_way_of_writing_a_path_leads_out_of_the_scope(attempt: Try, path: str) -> None:
    for envelope in (
        await attempt("Read", file_path=path),
        await attempt("Write", file_path=path, content="overwritten"),
        await attempt("Edit", file_path=path, old_string="secret", new_string="overwritten"),
        await attempt("Grep", pattern=".", path=path),
    ):
        assert (envelope.ok, envelope.text) == (False, "refused")


async def test_a_dangling_link_does_not_create_a_file_outside(attempt: Try, tmp_path: Path) -> None:
    for path in ("dangling", "escape/new.txt"):
        assert (await attempt("Write", file_path=path, content="x")).text == "refused"
    assert not (tmp_path / "outside" / "new.txt").exists()


@pytest.mark.parametrize("path", ["..", "escape", "private", "to-private", "/"])
async def test_directories_outside_cannot_be_searched(attempt: Try, path: str) -> None:
    assert (await attempt("Glob", pattern="**", path=path)).text == "refused"
    assert (await attempt("Grep", pattern="needle", path=path)).text == "refused"


@pytest.mark.parametrize("pattern", ["../**", "escape/**", "/etc/*", "private/*"])
async def test_a_file_pattern_cannot_name_a_directory_outside(attempt: Try, pattern: str) -> None:
    assert (await attempt("Glob", pattern=pattern)).text == "refused"


async def test_a_search_from_the_root_shows_only_what_may_be_read(attempt: Try, root: Path) -> None:
    assert (await attempt("Glob", pattern="**/*")).text == f"{root}/src/code.py"
    assert (await attempt("Glob", pattern="**/.*")).text == f"[No file matches **/.* in {root}]"
    assert (await attempt("Grep", pattern="needle")).text == f"{root}/src/code.py\n1:needle"
    assert (await attempt("Grep", pattern="needle", glob=".env")).text == f"[Nothing matches needle in {root}]"
    assert (await attempt("Grep", pattern="needle", glob="*.txt", output_mode="count")).text.startswith("[Nothing")


async def test_what_is_inside_works(attempt: Try, root: Path) -> None:
    assert (await attempt("Edit", file_path="src/code.py", old_string="needle", new_string="thread")).ok
    assert (await attempt("Write", file_path="src/deep/new.py", content="x")).ok
    assert (await attempt("Read", file_path=str(root / "src" / "code.py"))).text == "     1\tthread"
