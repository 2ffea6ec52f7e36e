"""Ways of writing a path that somebody could hope lead out of a scope; a table, tried for real.

``{root}`` is the workspace root: read and write scope are ``{root}/**``, denied are ``**/.env``, ``**/.git/**``,
``{root}/private/**`` and, composed, ``{root}/café/**``. ``ALL`` is the scope ``/**``, for what is protected anyway.
See ``tree`` for what is where.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tests.policy.escapes.tree import CREDENTIALS, LONG_CHAIN, RECORDS

Want = Literal["scope", "deny", "protected", "impossible", "refused", "inside"]
"""The rule by which it is denied; that it is not a path at all; that it is refused, how depends on the machine; or
that it is one inside, and nothing else."""

FILES = ("Read", "Write", "Edit", "Grep", "Glob")
ONE_FILE = ("Read", "Write", "Edit")
CHANGES = ("Write", "Edit")


@dataclass(frozen=True, slots=True)
class Case:
    """One way of writing a path."""

    path: str
    want: Want
    tools: tuple[str, ...] = FILES
    everywhere: bool = False  # the scope is /**


@dataclass(frozen=True, slots=True)
class Swap:
    """Something put in the place of ``gone`` after the call was allowed."""

    path: str
    gone: str  # below the root; moved aside
    target: str  # a link to this stands there instead
    tools: tuple[str, ...] = FILES


@dataclass(frozen=True, slots=True)
class Search:
    """A file pattern for Glob, and for Grep's ``glob``."""

    pattern: str
    path: str | None = None


def _all(want: Want, *paths: str, tools: tuple[str, ...] = (), everywhere: bool = False) -> tuple[Case, ...]:
    tools = tools or (ONE_FILE if want == "inside" else FILES)
    return tuple(Case(path, want, tools, everywhere) for path in paths)


RELATIVE = (
    *_all(
        "scope",
        "..",
        "../",
        "../outside",
        "../outside/secret.txt",
        "../outside/new.txt",
        "../secret.txt",
        "../rooted.txt",
        "../root-other/secret.txt",
        "./../outside/secret.txt",
        ".././outside/secret.txt",
        "src/../../outside/secret.txt",
        "src/../../outside/./secret.txt",
        "src/deep/../../../outside/secret.txt",
        "no/such/../../../outside/secret.txt",
        "a.txt/../../outside/secret.txt",
        "../root/../outside/secret.txt",
        "../../../../../../../../../../../../etc/passwd",
        "../outside/deep/er/secret.txt",
        "../outside/deep/../secret.txt",
        "src/..//..//outside//secret.txt",
        "..//outside/secret.txt",
        "../root-other/../outside/secret.txt",
    ),
    *_all("inside", "a.txt", "./a.txt", "src/../a.txt", "../root/a.txt", "src/./code.py", "..a/file.txt", "a..b"),
    *_all("inside", "with space.txt", "src//code.py", "./././a.txt", "src/deep/er/../../code.py"),
)

ABSOLUTE = (
    *_all(
        "scope",
        "/",
        "//",
        "///",
        "/.",
        "/..",
        "/etc/passwd",
        "//etc/passwd",
        "///etc/passwd",
        "/etc//passwd",
        "/etc/./passwd",
        "/etc/passwd/",
        "/etc/passwd/.",
        "/../etc/passwd",
        "/./etc/passwd",
        "{top}",
        "{top}/",
        "{top}//outside//secret.txt",
        "/{top}/outside/secret.txt",
        "{root}/../outside/secret.txt",
        "{root}/./../outside/secret.txt",
        "{root}//../outside/secret.txt",
        "{root}/src/../../outside/secret.txt",
        "{root}-other/secret.txt",
        "{root}ed.txt",
        "{top}/outside/secret.txt/",
        "{top}/outside/secret.txt//",
        "{top}/outside/secret.txt/.",
        "{top}/outside/",
        "/tmp/../etc/passwd",
    ),
    *_all("inside", "{root}/a.txt", "{root}//a.txt", "/{root}/a.txt", "///{root}/a.txt", "{root}/src/../a.txt"),
)

HOME = (
    *_all("scope", "~", "~/", "~/notes.txt", "~/../outside/secret.txt", "~root/.bashrc", "~root", "~/../secret.txt"),
    *_all(
        "protected", "~/.ssh/id_ed25519", "~/.netrc", "~//.ssh//id_ed25519", "~/x/../.ssh/id_ed25519", "~/.ssh/new"
    ),
    *_all("inside", "./~/file.txt", "~nobody-of-this-name/file.txt", "src/../~/file.txt"),
)

ODD = (
    *_all(
        "impossible",
        "",
        " ",
        "\t\n",
        "\0",
        "a.txt\0",
        "a.txt\0.png",
        "../outside/secret.txt\0a.txt",
        "{root}/a.txt\0/../../outside/secret.txt",
        "\ud800",
        "a\udfff.txt",
    ),
    *_all(
        "inside",
        "..\\outside\\secret.txt",
        "..\\..\\outside",
        "C:\\outside\\secret.txt",
        "file://outside/secret.txt",
        "file:///etc/passwd",
        "%2e%2e/outside/secret.txt",
        "..%2foutside%2fsecret.txt",
        "${HOME}",
        "$(cat /etc/passwd)",
        "`id`",
        "a.txt\n../outside/secret.txt",
        "a.txt ",
        " a.txt",
        "-rf",
        "*",
        "**/secret.txt",
        "{a,b}",
        "[.][.]",
        "...",
        ".. ",
        "... /x",
        "a\rb",
        "a\x1b[2Jb",
        "\u202egnp.txt",
    ),
    *_all("scope", ".. /../../outside/secret.txt", "a.txt\n/../../outside/secret.txt", "*/../../outside/secret.txt"),
)

LONG = (
    Case("x" * 300, "inside", ONE_FILE),
    Case("x" * 5_000, "inside", ONE_FILE),
    Case("é" * 200, "inside", ONE_FILE),
    Case("src/" * 200 + "x", "inside", ONE_FILE),
    Case("./" * 5_000 + "a.txt", "inside", ONE_FILE),
    Case("../" * 5_000 + "etc/passwd", "scope"),
    Case("x/../" * 3_000 + "../outside/secret.txt", "scope"),
    Case("{top}/outside/" + "x" * 300, "scope"),
    Case("src/" + "y" * 300 + "/../../../outside/secret.txt", "scope"),
    Case("out/" + "x" * 300, "scope"),
)

LOOK_ALIKES = (
    *_all(
        "inside",
        "\uff0e\uff0e/outside/secret.txt",  # full-width full stops
        "\u2024\u2024/outside/secret.txt",  # one-dot leaders
        "\u2025/outside/secret.txt",  # two-dot leader
        "..\u2215outside\u2215secret.txt",  # division slashes
        "..\u2044outside",  # fraction slash
        "..\uff0foutside",  # full-width solidus
        ".\u200b./outside/secret.txt",  # zero-width space
        ".\u2060./outside/secret.txt",  # word joiner
        "s\u0440c/code.py",  # a Cyrillic er
        "privat\u0435/key.txt",
        "\uff5e/notes.txt",  # full-width tilde
    ),
    *_all(
        "deny",
        "cafe\u0301/key.txt",  # decomposed
        "caf\u00e9/key.txt",
        "CAF\u00c9/key.txt",
        "CAFE\u0301/key.txt",
        "{root}/cafe\u0301/new.txt",
        ".ENV",
        ".Env",
        "sub/.eNv",
        ".GIT/config",
        "sub/.Git/HEAD",
        ".g\u200cit/config",  # HFS+ leaves the joiner out
        ".e\u200dnv",
        "\ufeff.env",
        "PRIVATE/key.txt",
        "Private/new.txt",
        "PrIvAtE/key.txt",
    ),
    *_all("scope", "{top}/ROOT/a.txt", "{top}/Root/a.txt"),
)

DENIED = _all(
    "deny",
    ".env",
    "./.env",
    "sub/.env",
    "src/../.env",
    "{root}/.env",
    "{root}//.env",
    ".env/",
    "new/deep/.env",
    "private/key.txt",
    "private//key.txt",
    "private/new/x.txt",
    "private/../private/key.txt",
    "src/../private/key.txt",
    ".git/config",
    ".git/hooks/pre-commit",
    "sub/.git/HEAD",
    "to-private/key.txt",
    "to-private/new.txt",
    "to-env",
    "to-git/HEAD",
    "here/private/key.txt",
    "here/here/.env",
    "in/../private/key.txt",
    "../outside/.env",
    "{top}/outside/.git/config",
)

LINKS = (
    *_all(
        "scope",
        "out",
        "out/",
        "out/secret.txt",
        "out/new.txt",
        "out/deep/er/secret.txt",
        "out/./secret.txt",
        "out.txt",
        "abs",
        "abs/secret.txt",
        "abs.txt",
        "dangling",
        "dangling-abs",
        "dangling-dir/x.txt",
        "dangling-dir",
        "up",
        "up/outside/secret.txt",
        "up/secret.txt",
        "slash/etc/passwd",
        "slash",
        "src/up-2/outside/secret.txt",
        "src/deep/up-3/secret.txt",
        "chain-1",
        "chain-2",
        "chain-4",
        "here/out.txt",
        "here/here/here/out/secret.txt",
        "in/up-2/outside/secret.txt",
        "in/chain-3",
        "proc-root/etc/passwd",
        f"long-{LONG_CHAIN - 1}",
        "long-30",
        "out/back/../secret.txt",
        "up/root/out.txt",
        "to-home/notes.txt",
        "here/up/outside/secret.txt",
    ),
    *_all(
        "inside", "in.txt", "in/code.py", "here/a.txt", "here/here/src/code.py", "dangling-in", "out-and-back/code.py"
    ),
    *_all("inside", "out/../a.txt", "up/root/a.txt", "out/back/code.py", "up/root/src/up-2/root/a.txt"),
    *_all("inside", "loop", "loop/x", "loop-1", "loop-2/x/y"),
    *_all(
        "protected",
        "$HOME/.ssh/x",
        "\uff5e/.ssh/id_ed25519",
        "fds/987",
        "to-home/.ssh/id_ed25519",
        "to-home/.netrc",
        "here/to-home/.authinfo",
    ),
)

PROCESSES = (
    *_all("refused", "/proc/1/root/etc/passwd", "/proc/1/cwd/etc/passwd", "fds/0", "/dev/fd/0", "/dev/stdin"),
    *_all("refused", "/proc/self/exe"),  # protected where Python is installed for us alone
    *_all(
        "scope",
        "/proc/self/root/etc/passwd",
        "/proc/self/root/{top}/outside/secret.txt",
        "/proc/self/root{top}/outside/secret.txt",
        "/proc/thread-self/root/etc/passwd",
        "/proc/self/cwd/../../etc/passwd",
        "/proc/self/cwd",
        "/proc/self/maps",
        "/proc/self/cmdline",
        "/proc/mounts",
        "/dev/null",
        "/dev/zero",
        "/dev/tty",
        "/dev/shm/x",
        "/dev/stdin/../../etc/passwd",
        "/sys/kernel/notes",
        "/run/x",
        "proc-cwd/../../etc/passwd",
        "proc-cwd/x",
    ),
    *_all("inside", "/proc/self/root{root}/a.txt", "proc-root{root}/a.txt"),
    *_all(
        "protected",
        "/proc/self/environ",
        "/proc/thread-self/environ",
        "/proc/1/environ",
        "/proc/self/mem",
        "/proc/self/fd/0",
        "/proc/self/fd/987",
        "/dev/fd/987",
        "/proc/self/task/1/environ",
        "/proc/self/root/proc/self/environ",
        "slash/proc/self/environ",
        everywhere=True,
    ),
    *_all("protected", "/proc/self/root{home}/.ssh/id_ed25519", "proc-root{home}/.netrc", everywhere=True),
)

HARD_LINKS = (
    # A name that somebody made for a file is a name of that file. What is written takes the place of the name and
    # never reaches the file; see `test_what_is_written_never_reaches_the_other_names_of_a_file`.
    *_all("inside", "to-elsewhere/../topic/preset.md", tools=CHANGES),  # `..` is taken away by the text alone
    *_all("inside", "hard.txt", "hard-preset.md", "hard-messages.jsonl", "here/hard-preset.md", tools=CHANGES),
)

_AGENT = "agents/explorer-1-look"
_DEEP = "agents/a-1/agents/b-1"

RECORDED = (
    *(Case(f"{{branch}}/{name}", "protected", CHANGES, True) for name in RECORDS),
    *(Case(f"{{branch}}/{_AGENT}/{name}", "protected", CHANGES, True) for name in RECORDS),
    *(Case(f"{{elsewhere}}/{name}", "protected", CHANGES, True) for name in RECORDS),
    *(Case(f"{{elsewhere}}/{_DEEP}/{name}", "protected", CHANGES, True) for name in RECORDS),
    *_all(
        "protected",
        "to-preset",
        "to-branch/preset.md",
        "to-branch/messages.jsonl",
        "to-branch/agents/explorer-1-look/preset.md",
        "to-branch/agents/../preset.md",
        "to-branch/agents/new-agent/preset.md",
        "to-elsewhere/preset.md",
        "to-elsewhere/agents/a-1/agents/b-1/scope-plan.yml",
        "to-sessions/state.db",
        "to-sessions/mine-20260101000000/current/preset.md",
        "to-sessions/new-session/branches/main/preset.md",
        "here/to-branch/session.md",
        "out/../to-branch/session.md",
        "proc-root{branch}/preset.md",
        "/proc/self/root{branch}/preset.md",
        "{branch}//preset.md",
        "{branch}/./preset.md",
        "{branch}/preset.md/",
        "{branch}/agents/../preset.md",
        "{branch}/../main/preset.md",
        "{branch}/../topic/preset.md",
        "{branch}/../new/preset.md",
        "{branch}/PRESET.MD",
        "{branch}/Preset.md",
        "{elsewhere}/PRESET.md",
        "{elsewhere}/../MAIN/Messages.JSONL",
        "{elsewhere}/../../BRANCHES/main/session.md",
        "{elsewhere}/pre\u200bset.md",
        "{sessions}/state.db",
        "{sessions}/state.db-wal",
        "{sessions}/mine-20260101000000/session.log",
        "{sessions}/mine-20260101000000/current",
        "{sessions}/mine-20260101000000/current/scope-plan.yml",
        "{sessions}/other/branches/main/preset.md",
        "{branch}/files/x",
        "{branch}/agents/x",
        "{top}/run/daemon.eld",
        "{top}/run/daemon.log",
        "{top}/run/new.sock",
        "{top}/config/config.toml",
        "{top}/config/presets/mine.md",
        "{top}/config/presets/new.md",
        "{top}/config/../config/config.toml",
        tools=CHANGES,
        everywhere=True,
    ),
    *(Case(f"{{home}}/{name}", "protected", FILES, True) for name in CREDENTIALS),
    *(Case(f"{{home}}/{name.upper()}", "protected", FILES, True) for name in CREDENTIALS),
    *_all("protected", "{home}/.ssh", "{home}/.ssh/", "{home}/.ssh/../.ssh/new", "{home}/.gnupg", everywhere=True),
    *_all("scope", "{branch}/preset.md", "{sessions}/state.db", "{elsewhere}/messages.jsonl", tools=("Read", "Grep")),
)

CASES = (
    *RELATIVE,
    *ABSOLUTE,
    *HOME,
    *ODD,
    *LONG,
    *LOOK_ALIKES,
    *DENIED,
    *LINKS,
    *PROCESSES,
    *HARD_LINKS,
    *RECORDED,
)

SWAPS = (
    Swap("src/code.py", "src", "../outside"),
    Swap("src/secret.txt", "src", "../outside", CHANGES),
    Swap("src/new.txt", "src", "../outside", ("Write",)),
    Swap("src/new/er.txt", "src", "../outside", ("Write",)),
    Swap("src/deep/er/code.py", "src/deep", "../../outside/deep"),
    Swap("src/deep/er/secret.txt", "src/deep", "../../outside/deep", ("Write",)),
    Swap("src/deep/er/code.py", "src/deep/er", "../../../outside"),
    Swap("src/code.py", "src", "private"),
    Swap("src/code.py", "src", "/"),
    Swap("src/code.py", "src", ".."),
    Swap("src/code.py", "src", "/proc/self/root"),
    Swap("a.txt", "a.txt", "../outside/secret.txt"),
    Swap("a.txt", "a.txt", "private/key.txt"),
    Swap("a.txt", "a.txt", ".env"),
    Swap("a.txt", "a.txt", "../outside/new.txt", ("Write",)),
    Swap("a.txt", "a.txt", "{branch}/preset.md", CHANGES),
    Swap("a.txt", "a.txt", "chain-1"),
    Swap("a.txt", "a.txt", "hard.txt", CHANGES),
    Swap("in/code.py", "src", "../outside"),
    Swap("new.txt", "", "../outside/new.txt", ("Write",)),
    Swap("new.txt", "", "../outside/secret.txt", ("Write",)),
    Swap("fresh/new.txt", "", "../outside", ("Write",)),
    Swap(".", "src", "../outside", ("Glob", "Grep")),
    Swap("src", "src", "../outside", ("Glob", "Grep")),
    Swap("src/deep", "src", "../outside", ("Glob", "Grep")),
)

SEARCHES = (
    Search("../**"),
    Search("../outside/*"),
    Search("../outside/secret.txt"),
    Search("out/*"),
    Search("out/**"),
    Search("out*/secret.txt"),
    Search("*/secret.txt"),
    Search("**/secret.txt"),
    Search("**/*"),
    Search("**/.*"),
    Search("**/.*/**"),
    Search("{root}/../outside/*"),
    Search("{top}/outside/*"),
    Search("/etc/*"),
    Search("/**/secret.txt"),
    Search("//etc/*"),
    Search("~/.ssh/*"),
    Search("{../outside,src}/*"),
    Search("src/{../../outside,deep}/*"),
    Search("{..,src}/outside/*"),
    Search("[.][.]/outside/*"),
    Search("[.]./outside/*"),
    Search("\\.\\./outside/*"),
    Search("?./outside/*"),
    Search(".?/outside/*"),
    Search("src/**/../../../outside/*"),
    Search("*/../../outside/*"),
    Search("up/outside/*"),
    Search("u?/outside/*"),
    Search("slash/etc/passwd"),
    Search("slas?/etc/passwd"),
    Search("private/*"),
    Search("privat?/*"),
    Search("to-private/*"),
    Search("to-*/*"),
    Search("caf*/*"),
    Search(".env"),
    Search(".en?"),
    Search("sub/.env"),
    Search("sub/**/.*"),
    Search("*.txt"),
    Search("chain-*"),
    Search("long-*"),
    Search("hard*.md"),
    Search("*", path="out"),
    Search("*", path=".."),
    Search("*", path="here/out"),
    Search("../*", path="src"),
    Search("../../outside/*", path="src"),
    Search("**", path="/proc/self/root"),
    Search("*", path="proc-cwd"),
    Search("*", path="to-home"),
)
