"""What real programs write when they get random arguments is among what is told of them."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pyagentd.policy import shell
from tests.examples import examples

# Arguments that are words of several of these programs; every path stays in the scratch directory.
COMMON = "a b d d/x x ../y l l/z -- - -a -f -n -r -v -1 ./a"
PROGRAMS = {
    "sort": "-o -ro -uo -ox -o../y --output --output=x --outp=../y --outp -k1 -k -t -t, -T -Td -S1M -no",
    "uniq": "-c -f1 -f -s --skip-fields -w2 -i",
    "tee": "-a -i -p --append --output-error",
    "cp": "-t -td -td/../.. -rt -T -b -S.z -S -l -s --link --sym --target --target=d --target=../ -P -R -i",
    "mv": "-t -td -T -b -S.z -S --target=d --target -i --backup",
    "ln": "-s -t -td -st -T -sf -b --symbolic -sT -rs",
    "install": "-d -D -t -Dt -m 600 -m600 -S.z --directory --target=d --direc",
    "touch": "-r -c -d now -dnow -t --reference=a --refer -h",
    "mkdir": "-p -m 700 -pm700 --parents d/../../y/../q ../y/../q",
    "rm": "-d -rf --recursive --force -i",
    "truncate": "-s -s0 0 -ra -c --size=1 --refer=a",
    "split": "-l -l1 -b2 -n2 -d --additional-suffix=.q -a -a3",
    "sed": "-i -i.z -e p -ep -es/o/q/ -ie -ne --in-place --expression=p --exp s/o/Q/w../y wx -i.ex -s -z -En",
    "dd": "of=x if=a of=../y of=d/../x bs=1 count=1 conv=notrunc status=none",
    "tar": "c x t cf xf cvf tf -c -x -cf -xf -xC -C -Cd --file=x --file --director=d -Od --one-top-level=../y -z"
    " --one-top=../y --exclude --exclude=x",
    "find": ". .. -name -delete -fprint -fls -maxdepth 1 -type -o -fprintf -H -L -O3 -D -depth",
    "gzip": "-c -k -d -l -S.z -S -q -t -9 -N --stdout --keep",
    "csplit": "1 2 -fq -s -k -z -b --prefix=../y /o/",
    "awk": '{print} {print>"x"} {print>"../y"} -F: -F -vx=1 -fa x=1 1',
    "xxd": "-p -i -c4 -c -l",
    "patch": "-p0 -o -o../y -i -ia -d -dd -R",
    "chmod": "600 +x -R --reference=a u=rw",
    "zip": "-r -q -O../y --out=../y -lf -lf../y --logfile-path=../y -u -d -j --ou",
    "zstd": "-k -f -c -d -o../y --output-dir-flat=../y --output-dir-flat --output-dir-mirror=../y --trace=../y -q -r",
    "gcc": "-c -o -o../y -MMD -MD -MF -MF../y -x c -E -S -fsyntax-only -MT",
    "openssl": "rand -out -out../y -in a -writerand -writerand../y 5 -hex dgst",
    "mktemp": "-p -d -u XXXXXX d/XXXXXX ../yXXXX --suffix=.q --tmpdir=d -t -q --tmp=..",
    "git": "diff --no-index --output=x --output --output=../y log status init add -C .. -c x=y commit -m mv rm",
}
AVAILABLE = sorted(program for program in PROGRAMS if shutil.which(program))

pytestmark = pytest.mark.skipif(not Path("/bin/bash").exists(), reason="there is no bash")


def words_of(program: str) -> list[str]:
    return [*PROGRAMS[program].split(), *COMMON.split()]


LINES = st.sampled_from(AVAILABLE).flatmap(
    lambda program: st.lists(st.sampled_from(words_of(program)), min_size=1, max_size=6).map(
        lambda words: " ".join([program, *(f"'{word}'" for word in words)])
    )
)


def snapshot(base: Path) -> dict[str, tuple[object, ...]]:
    """Every file below ``base``: kind, mode and content; a directory's own list of names is its files'."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(base.rglob("*")):
        seen = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() and os.access(path, os.R_OK) else b""
        link = str(path.readlink()) if path.is_symlink() else ""
        found[str(path)] = (seen.st_mode, content, link, 0 if path.is_dir() else seen.st_mtime_ns)
    return found


def covered(path: str, writes: set[str]) -> bool:
    """Whether ``path`` is one of ``writes``, in a directory whose files are, or below one."""
    above = [path, *map(str, Path(path).parents)]
    return f"{path}/*" in writes or any(each in writes or f"{Path(each).parent}/*" in writes for each in above)


def really(path: str, here: Path) -> set[str]:
    """Where the system gets with ``path``: to what a link leads to, and to the link itself when it is removed."""
    last = here / path
    return {os.path.realpath(last), f"{os.path.realpath(last.parent)}/{last.name}"}


def written_unsaid(text: str, told: shell.ShellReading | None = None) -> list[str]:
    """Run ``text`` for real; return what it changed that its reading does not tell."""
    reading = told or shell.read(text)
    if reading.unreadable is not None or any(command.effects for command in reading.commands):
        return []
    with tempfile.TemporaryDirectory(prefix="shell-") as scratch:
        base = Path(os.path.realpath(scratch))
        here = base / "up" / "here"
        (here / "d").mkdir(parents=True)
        (here / "a").write_text("one\ntwo\n")
        (here / "b").write_text("one\none\n")
        (here / "d" / "x").write_text("x\n")
        (here / "l").symlink_to("../l")
        (base / "up" / "l").mkdir()
        before = snapshot(base)
        writes = set().union(*(really(path, here) for path in reading.writes))
        env = {"PATH": os.environ["PATH"], "HOME": str(base), "LC_ALL": "C", "GIT_CEILING_DIRECTORIES": str(base)}
        subprocess.run(
            ["/bin/bash", "-c", text], cwd=here, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
            check=False,
        )  # fmt: skip
        after = snapshot(base)
        changed = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
        return [path for path in changed if not covered(path, writes)]


@settings(max_examples=examples(120), suppress_health_check=list(HealthCheck))
@given(text=LINES)
@example(text="sort -t -o ../y a")
@example(text="sed -n -i.nef 'w ../y' a")
@example(text="install -d ../y d")
@example(text="mkdir -p ../y/../q")
@example(text="tee -")
@example(text="truncate -r -s d/x -ra a")
@example(text="tar cf -f -- -x d")
@example(text="install a -Dt -d")
@example(text="chmod b -r a")
@example(text="split d/x l/z")
@example(text="sed -i.z p l/../here/a")
@example(text="mv l l")
@example(text="gzip a -S -t x")
@example(text="ln -s -b l d/x")
@example(text="zip ../y a")
@example(text="zip -lf ../y q a")
@example(text="zip -lf../y - l/z")
@example(text="zstd --output-dir-flat=../y a")
@example(text="openssl rand -writerand ../y 5")
@example(text="mktemp d/XXXXXX")
def test_a_program_changes_only_what_was_told(text):
    assert written_unsaid(text) == []


def test_the_property_notices_what_is_not_told():
    nothing = shell.ShellReading()
    (path,) = written_unsaid("tee new", nothing)
    assert path.endswith("/new")
    (path,) = written_unsaid("rm a", nothing)
    assert path.endswith("/a")
    assert written_unsaid("cat a", nothing) == []
