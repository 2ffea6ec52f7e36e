"""``git``: which subcommands only look, which change the repository, and what its options run."""

from __future__ import annotations

import re

from pyagentd.policy.shell.found import Found
from pyagentd.policy.shell.options import given
from pyagentd.policy.shell.program import Program, roles_of
from pyagentd.policy.shell.values import Unreadable, Word, names

_QUIET = names(
    """
    -p --paginate -P --no-pager --no-replace-objects --no-lazy-fetch --no-optional-locks --bare --literal-pathspecs
    --glob-pathspecs --noglob-pathspecs --icase-pathspecs
    """
)

_WITH_VALUE = names("-c --config-env --exec-path --git-dir --work-tree --namespace --super-prefix --attr-source")

_LOOKS = names(
    """
    annotate blame cat-file check-attr check-ignore check-mailmap check-ref-format cherry count-objects describe diff
    diff-files diff-index diff-tree for-each-ref fsck get-tar-commit-id grep help log ls-files ls-remote ls-tree
    merge-base merge-tree name-rev patch-id range-diff rev-list rev-parse shortlog show show-branch show-index
    show-ref status stripspace var verify-commit verify-pack verify-tag version whatchanged --version --help -v -h
    """
)
_CHANGES = names(
    """
    add am apply archive branch bundle checkout cherry-pick clean clone commit commit-tree fast-export fetch
    format-patch gc hash-object init merge mktag mktree mv notes pack-refs prune pull push read-tree rebase reflog
    remote repack replace rerere reset restore revert rm sparse-checkout stage stash switch symbolic-ref tag
    unpack-objects update-index update-ref update-server-info worktree write-tree
    """
)

_OPTIONS = Program(
    takes="-m --message --author --date -n --max-count --since --until --format --pretty -L --grep -G -S --depth -b",
    reads="--file --pathspec-from-file --contents",
    writes="--output --export-marks",
    into="--output-directory --separate-git-dir",
    runs="--upload-pack --receive-pack --exec -x --template -c --config --strategy --open-files-in-pager -u -s -O",
    does="--ext-diff --unsafe-paths",
)
# What an option means to some subcommands, where it means something else, or nothing, to the others.
_OWN = {
    **dict.fromkeys(names("archive format-patch"), Program(writes="-o --output")),
    **dict.fromkeys(names("commit tag notes merge commit-tree"), Program(reads="-F --file")),
    **dict.fromkeys(names("blame annotate"), Program(reads="-S --contents --ignore-revs-file")),
    "grep": Program(reads="-f"),
    "ls-files": Program(reads="-X --exclude-from"),
}
_READ = names("apply am hash-object")  # their operands are files that come into the repository
# One letter means different things to different subcommands; here it runs something only in these.
_LETTERS = {
    "-x": names("rebase"),
    "-c": names("clone"),
    "-u": names("clone"),
    "-s": names("merge pull rebase cherry-pick revert"),
    "-O": names("grep"),
}
_PLACES = names("clone init worktree bundle push")  # some of their operands are directories or files they make
_CONFIG_SCOPES = names(
    "--global --local --system --worktree --show-origin --show-scope --null -z --name-only --includes"
)
_CONFIG_READS = names("--get --get-all --get-regexp --get-urlmatch --list -l get list")
_DELETES = {"clean": "deletes files that are not in the repository", "rm": "deletes files"}
_HELPER = re.compile(r"[A-Za-z0-9][\w.+-]*::")


def read_git(found: Found) -> tuple[Word, ...]:
    """Add what a ``git`` runs, deletes and writes; return its words without harmless options before its subcommand.

    What a repository's own settings and hooks run is their owner's: no tool writes those.
    """
    words, at = _subcommand(found)
    if at == len(words):
        return words
    if words[at].varies:
        raise Unreadable(f"the subcommand of git is the pattern `{words[at].text}`")
    name, arguments = words[at].text, [word.text for word in words[at + 1 :]]
    if name == "config":
        first = next((argument for argument in arguments if argument not in _CONFIG_SCOPES), "")
        if first not in _CONFIG_READS:
            found.runs(name, at, "changes settings, which can make git run programs")
    elif name in _DELETES:
        found.deletes(name, at, _DELETES[name])
    elif name == "reset" and any(argument.startswith("--h") for argument in arguments):
        found.deletes("reset --hard", what="throws changes away")
    elif name not in _LOOKS | _CHANGES:
        found.runs(name, at, "runs an alias, another program, or a subcommand that runs others")
    _options(found, name, words, at)
    if name in _CHANGES:
        found.links = True  # a commit has links as it has files
        found.write_into(Word(text="."))
    return words


def _subcommand(found: Found) -> tuple[tuple[Word, ...], int]:
    """Return the words without the options before the subcommand that change nothing, and where the subcommand is.

    Adds what those do that change something, and notes the directory.
    """
    words, at, kept = found.words, 1, [found.words[0]]
    while at < len(words) and (text := words[at].text).startswith("-") and text not in _LOOKS:
        following = words[at + 1] if at + 1 < len(words) else None
        if text == "-C" and following is not None:
            if found.where is not None or following.varies:
                raise Unreadable("`git -C` with several directories or a pattern")
            found.where = following
        elif text not in _QUIET:
            found.runs(
                text.partition("=")[0], len(kept) + (text in _WITH_VALUE), "makes git run or read something else"
            )
            kept += words[at : at + 1 + (text in _WITH_VALUE)]
        at += 1 + (text == "-C" or text in _WITH_VALUE)
    subcommand = len(kept)
    return (*kept, *words[at:]), subcommand


def _options(found: Found, name: str, words: tuple[Word, ...], subcommand: int) -> None:
    operands = 0
    for item in given(words[subcommand:], {**roles_of(_OPTIONS), **roles_of(_OWN.get(name, Program()))}):
        at, value = item.at + subcommand, item.value
        if item.role == "operand" and value is not None:
            operands += 1
            if name in _READ or (name == "diff" and any(word.text == "--no-index" for word in words)):
                found.read(value)
            if _HELPER.match(value.text):
                found.runs(value.text, at, "runs a program that fetches from there")
            elif name in _PLACES and (name != "clone" or operands > 1) and _is_elsewhere(value):
                found.write_into(value)
            elif name == "push" and value.text.startswith("file:"):
                found.runs("push file:", at, "writes to another repository")
        elif item.role == "runs" and name in _LETTERS.get(item.name, (name,)):
            found.runs(f"{name} {item.name}", at, "makes git run something else")
        elif item.role == "does":
            found.runs(f"{name} {item.name}", at, "runs a program that the settings name, or reaches anywhere")
        elif item.role == "writes":
            found.write(value)
        elif item.role == "into" and value is not None:
            found.write_into(value)
        elif item.role == "reads":
            found.read(value)


def _is_elsewhere(word: Word) -> bool:
    """Return whether it is a path that leaves the current directory: one with a colon is a URL."""
    return word.home or word.text == ".." or ("/" in word.text and ":" not in word.text)
