"""What a command sees, computed: patterns become places, and what is closed in them is found in bounded time."""

import os
from pathlib import Path

import pytest

from pyagentd.errors import ToolError
from pyagentd.tools.sandbox import enclosure as watch
from pyagentd.tools.sandbox import plan as walk
from pyagentd.tools.sandbox.plan import (
    Plan,
    Rules,
    ShellScope,
    base_of,
    inside,
    is_at_any_depth,
    literal,
    literal_prefix,
    plan,
)
from tests.tools.confined import STANDARD_DENY


def planned(root: Path, **rules: object) -> Plan:
    given = {"read": (f"{root}/**",), "write": (f"{root}/**",), "deny": STANDARD_DENY, "commands": ("*",)} | rules
    return plan(ShellScope(**given), root=root, spool_dir=root / "none", env={"PATH": "/usr/bin"})  # type: ignore[arg-type]


def scope_trees(made: Plan) -> dict[str, bool]:
    return {path: write for path, write in made.trees if path != "/opt"}


@pytest.mark.parametrize(
    ("pattern", "base", "below", "plain", "prefix", "floating"),
    [
        ("/a/b/**", "/a/b", True, "/a/b", "/a", False),
        ("/a/b", "/a/b", False, "/a/b", "/a", False),
        ("/**", "", True, "", "", False),
        ("/a/*/c/**", "/a/*/c", True, None, "/a", False),
        ("/a/\\*/c", "/a/\\*/c", False, "/a/*/c", "/a/*", False),
        ("**/.env", "**/.env", False, None, "", True),
        ("**/.git/**", "**/.git", True, None, "", True),
        ("**/a/b", "**/a/b", False, None, "", False),
    ],
)
def test_a_pattern_comes_to_an_entry(
    pattern: str, base: str, below: bool, plain: str | None, prefix: str, floating: bool
) -> None:
    assert base_of(pattern) == (base, below)
    assert literal(base) == plain
    assert literal_prefix(base) == prefix
    assert is_at_any_depth(pattern) == floating


def test_rights_add_up_and_needless_trees_are_left_out(root: Path) -> None:
    for name in ("a/b", "c"):
        (root / name).mkdir(parents=True)
    read, write = (f"{root}/**", f"{root}/a/b/**", "/usr/share/**"), (f"{root}/a/**",)
    assert scope_trees(planned(root, read=read, write=write)) == {str(root): False, f"{root}/a": True}
    assert scope_trees(planned(root, read=read, write=(f"{root}/**",))) == {str(root): True}


def test_a_directory_that_is_reached_by_a_link_is_no_tree(root: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (root / "link").symlink_to(tmp_path / "real")
    assert scope_trees(planned(root, read=(), write=(f"{root}/link/**",))) == {}


def test_a_tree_inside_what_is_denied_is_none(root: Path) -> None:
    (root / "secret/sub").mkdir(parents=True)
    made = planned(root, write=(f"{root}/secret/sub/**",), read=(), deny=(f"{root}/secret/**",))
    assert scope_trees(made) == {}


def test_what_is_denied_is_found_at_any_depth_and_hidden_once(root: Path) -> None:
    for path in ("a/b/.env", "x/runtime/deep/.env", ".ssh/id"):
        (root / path).parent.mkdir(parents=True)
        (root / path).touch()
    found = [(path, kind) for path, kind in planned(root).hidden if path.startswith(str(root))]
    assert found == [(f"{root}/.ssh", True), (f"{root}/a/b/.env", False), (f"{root}/x/runtime", True)]


def test_what_is_above_a_protected_place_is_pinned_and_what_floats_is_not(root: Path) -> None:
    for path in ("home/.gptel/sessions", "far/secret", "far/away"):
        (root / path).mkdir(parents=True)
    (root / "far/away/.env").touch()
    made = planned(root, protected=(f"{root}/home/.gptel/sessions",), deny=("**/.env", f"{root}/far/secret/**"))
    assert made.pinned == (f"{root}/far", f"{root}/home", f"{root}/home/.gptel")


def test_rules_that_float_do_not_hold_in_the_system(root: Path) -> None:
    made = planned(root, read=("/usr/**", "/etc/**"), deny=("**/share/**", "/etc/hostname"))
    assert [path for path, _ in made.hidden if path.startswith("/usr")] == []
    assert ("/etc/hostname", False) in made.hidden


def test_a_walk_has_an_end(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(20):
        (root / str(n)).touch()
    assert planned(root).root == str(root)
    monkeypatch.setattr(walk, "MOST_ENTRIES", 10)
    with pytest.raises(ToolError, match="too many to look through"):
        planned(root)


def test_too_many_places_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyagentd.tools.sandbox.plan.MOST_PLACES", 10)
    for n in range(20):
        (root / f"{n}.pem").touch()
    with pytest.raises(ToolError, match=r"More than 10 files have to be kept"):
        planned(root, deny=("**/*.pem",))


def test_a_directory_is_listed_again_only_when_it_changed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "sub").mkdir()
    monkeypatch.setattr(walk, "_RECENT_NS", 0)
    rules = Rules([("**/.env", "hide")])
    listed: list[str] = []
    list_anew = walk._list
    monkeypatch.setattr(
        walk, "_list", lambda directory, *rest: listed.append(directory) or list_anew(directory, *rest)
    )
    assert list(walk.find(str(root), rules)) == []
    assert list(walk.find(str(root), rules)) == []
    assert listed == [str(root), f"{root}/sub"]
    (root / "sub/.env").touch()
    os.utime(root / "sub", (0, 0))  # what a program can set is not what is looked at
    assert [found.path for found in walk.find(str(root), rules)] == [f"{root}/sub/.env"]
    assert listed[2:] == [f"{root}/sub"]


def test_what_changed_just_now_is_not_trusted(root: Path) -> None:
    rules = Rules([("**/.env", "hide")])
    assert list(walk.find(str(root), rules)) == []
    assert str(root) not in walk._remembered[rules.rules]


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (ShellScope(confine=False), "(Confinement is off by its preset.)"),
        (ShellScope(wanted="off"), "(Confinement is off by configuration.)"),
    ],
)
def test_who_approves_is_told_that_nothing_confines(rules: ShellScope, said: str) -> None:
    assert said in watch.confinement_warning(rules)
    assert "not limited to the scope" in watch.confinement_warning(rules)


def test_who_approves_is_told_when_the_machine_cannot_confine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyagentd.tools.sandbox.enclosure.confinement", lambda wanted: None)
    assert watch.confinement_warning(ShellScope()).startswith("Commands are not confined")
    assert "does not work on this machine" in watch.confinement_warning(ShellScope(wanted="landlock"))


@pytest.mark.parametrize("all_is_read", [False, True])
def test_much_in_a_shared_directory_is_kept_whole(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_is_read: bool
) -> None:
    """What other programs leave in /tmp neither costs time nor keeps a command from running."""
    monkeypatch.setattr("pyagentd.tools.sandbox.plan.TEMPORARY", (str(tmp_path),))
    monkeypatch.setattr("pyagentd.tools.sandbox.plan._MOST_TEMPORARY", 100)
    for n in range(30):
        (tmp_path / f"many/{n}").mkdir(parents=True)
        (tmp_path / f"many/{n}/.env").touch()
    (tmp_path / "large").mkdir()
    for n in range(101):
        (tmp_path / f"large/{n}").touch()
    for place in (tmp_path / "few", root / "sub"):
        place.mkdir()
        (place / ".env").touch()
    everything = (f"{tmp_path}/**",)
    made = planned(root, read=("/**",) if all_is_read else everything, write=everything)
    hidden = [(path.removeprefix(f"{tmp_path}/"), kind) for path, kind in made.hidden if inside(path, str(tmp_path))]
    assert hidden == [("few/.env", False), ("large", True), ("many", True), ("root/sub/.env", False)]


def test_the_installations_of_programs_are_seen(root: Path, tmp_path: Path) -> None:
    home, python = tmp_path / "home", tmp_path / "home/python-3.12"
    for name in ("home/.cargo/bin", "home/.rustup", "home/bin", "home/python-3.12/bin", "root/.venv/bin"):
        (tmp_path / name).mkdir(parents=True)
    (python / "lib/python3.12").mkdir(parents=True)
    for name in ("bin/python3.12", "lib/python3.12/os.py"):
        (python / name).touch()
    (root / ".venv/bin/python3").symlink_to(python / "bin/python3.12")
    (home / ".cargo/credentials.toml").touch()
    env = {"PATH": f"{home}/.cargo/bin:{home}/bin:relative", "HOME": str(home)}
    rules = ShellScope(read=(f"{root}/**",), write=(f"{root}/**",))
    made = plan(rules, root=root, spool_dir=root / "none", env=env)
    seen = dict.fromkeys((f"{home}/.cargo", f"{home}/.rustup", f"{home}/bin", str(python)), False)
    assert scope_trees(made) == {**seen, str(root): True}
    assert (f"{home}/.cargo/credentials.toml", False) in made.hidden


@pytest.mark.parametrize("link", ["bin", ".venv/bin", ".venv", ".venv/bin/python3", "bin/node"])
def test_a_link_that_a_command_made_opens_nothing(root: Path, tmp_path: Path, link: str) -> None:
    secret = tmp_path / "private/bin"
    secret.mkdir(parents=True)
    for name in ("python3", "node", "python3.12"):
        (secret / name).touch()
    (root / link).parent.mkdir(parents=True, exist_ok=True)
    is_file = link.endswith(("python3", "node"))
    (root / link).symlink_to(secret / "node" if is_file else secret.parent if link == ".venv" else secret)
    (tmp_path / "way").symlink_to(root)
    env = {"PATH": f"{root}/bin:{root}/.venv/bin:{tmp_path}/way/bin", "HOME": str(tmp_path)}
    rules = ShellScope(read=(f"{root}/**",), write=(f"{root}/**",))
    assert scope_trees(plan(rules, root=root, spool_dir=root / "none", env=env)) == {str(root): True}


def test_below_the_root_names_are_sought_near_it_and_in_homes(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setattr("pyagentd.tools.sandbox.plan.homes", lambda own: [str(home)])
    for place in ("home/a", "home/a/b/c/d", "root/a/b/c/d"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / ".env").touch()
    made = planned(root, read=("/**",), write=())
    hidden = {path for path, _ in made.hidden if inside(path, str(tmp_path))}
    assert hidden == {f"{home}/a/.env", f"{root}/a/b/c/d/.env"}
    assert scope_trees(made) == {"/": False}


@pytest.mark.parametrize("place", [".gitconfig", ".config/git/config", "elsewhere/git/config"])
def test_a_command_commits_as_the_user_wherever_git_s_configuration_is(tmp_path: Path, place: str) -> None:
    file = tmp_path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("[user]\n\tname = Ada\n\tsigningkey = secret\n")
    env = {"HOME": str(tmp_path)} | ({"XDG_CONFIG_HOME": f"{tmp_path}/elsewhere"} if "else" in place else {})
    assert walk.configuration(env) == '[user]\n\tname = "Ada"\n'
