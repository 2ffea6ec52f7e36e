"""``tar`` and ``dd``, whose arguments have a form of their own."""

from __future__ import annotations

from pyagentd.policy.shell.found import Found
from pyagentd.policy.shell.options import given
from pyagentd.policy.shell.program import Program, roles_of
from pyagentd.policy.shell.values import Unreadable, Word, names

_TAR = Program(
    takes="""
    -b --blocking-factor -H --format -L --tape-length -N --newer --after-date -V --label
    -K --starting-file --exclude --transform --xform -s --strip-components --mode --mtime --owner --group --sort
    --warning --record-size --level --newer-mtime
    """,
    reads="-X --exclude-from",
    into="-C --directory",
    writes="-f --file -g --listed-incremental --index-file --volno-file",
    runs="-I --use-compress-program -F --info-script --new-volume-script --to-command --checkpoint-action "
    "--rsh-command --rmt-command -T --files-from",
    does="-P --absolute-names",
    deletes="--remove-files --recursive-unlink",
)
_MODES = names("-c --create -r --append -u --update -A --catenate --concatenate --delete")
_PRINTS = names("-O --to-stdout")
_EXTRACTS = names("-x --extract --get")


def read_tar(found: Found) -> None:
    """Add what a ``tar`` runs, and the archive or directory it writes."""
    archives: list[Word] = []
    places: list[Word] = []
    modes: set[str] = set()
    for item in given(_with_dashes(found.words), roles_of(_TAR)):
        if item.name in ("-f", "--file") and item.value is not None:
            archives.append(item.value)
        elif item.name in ("-C", "--directory") and item.value is not None:
            places.append(item.value)
        elif item.name.startswith("--one-top-level") and item.value is not None:
            found.write_into(item.value)
        elif item.role == "unknown":
            modes |= _modes(item.name) - (_PRINTS if not item.certain else set())
        elif item.role in ("runs", "does"):
            found.runs(item.name, what="runs programs or reaches anywhere")
        elif item.role == "deletes":
            found.deletes(item.name)
        elif item.role == "writes":
            found.write(item.value)
        elif item.role == "reads":
            found.read(item.value)
    if len(places) > 1:
        raise Unreadable("`tar` with several directories")
    for archive in archives:
        _archive(archive, modes, found)
    found.links = bool(modes & _EXTRACTS)
    if modes & _EXTRACTS and not modes & _PRINTS:
        found.write_into(places[0] if places else Word(text="."))


def _archive(archive: Word, modes: set[str], found: Found) -> None:
    if ":" in archive.text:
        found.runs("-f HOST:FILE", what="runs a remote shell")
    if archive.text == "-":
        return
    if modes & _MODES:
        found.write(archive)
    elif not archive.varies:
        found.read(archive)


def _modes(name: str) -> set[str]:
    """Return the modes that an option, perhaps abbreviated, can mean."""
    known = _MODES | _EXTRACTS | _PRINTS
    if name in known:
        return {name}
    # An abbreviation of --to-stdout must not hide an extraction.
    return {mode for mode in known - {"--to-stdout"} if name.startswith("--") and mode.startswith(name)}


def _with_dashes(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return ``tar xzf FILE`` as ``tar -x -z -f FILE``."""
    if len(words) < 2 or words[1].text.startswith("-"):
        return words
    roles = roles_of(_TAR)
    letters, rest = words[1].text, list(words[2:])
    spelled = [words[0]]
    for letter in letters:
        spelled.append(Word(text=f"-{letter}"))
        if roles.get(f"-{letter}", "unknown") not in ("unknown", "does", "deletes") and rest:
            spelled.append(rest.pop(0))
    return (*spelled, *rest)


def read_dd(found: Found) -> None:
    """Add the files of a ``dd``."""
    for word in found.words[1:]:
        key, _, path = word.text.partition("=")
        if key == "of":
            found.write(Word(text=path, varies=word.varies))
        elif key == "if":
            found.read(Word(text=path, varies=word.varies))
