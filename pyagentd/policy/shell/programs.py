"""The effects of programs: a table of which options and operands read, write, run or delete.

To extend it, add a line to a table. Options are written as in the program's manual, separated by blanks. List options
with a harmless argument in ``takes``, so that the argument is not mistaken for something else. An option that is not
listed counts as harmless; a listed one with an effect needs its own allowance (see ``refusal``). ``git``, ``find``,
``sed``, ``awk`` and ``tar`` have their own parsers, in the second half, and ``examine`` at the end finds the entry or
parser of a program.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile

from pyagentd.policy.shell import (
    HERE,
    Argument,
    Findings,
    Inner,
    Program,
    Role,
    Unreadable,
    Word,
    arguments,
    is_abbreviated,
    names,
    next_word,
    operands_of,
    refuse_late_options,
    roles_of,
)

# With any arguments these only read and print, so a pattern may stand for any of their arguments.
PLAIN = names(
    """
    : [ b2sum base32 basename cal cat cksum cmp column comm cut df diff dir dirname du echo egrep expand
    factor false fgrep fold free getconf grep groups head hexdump id join jq kill ls lsblk lscpu md5sum nl nproc
    numfmt od paste printenv printf ps pwd readlink realpath rev seq sha1sum sha224sum sha256sum sha384sum sha512sum
    sleep stat strings sum tac tail test tr true tty type uname unexpand uptime users vdir wc whereis which who
    whoami yes zcat
    """
)

_INTO = "-t --target-directory"
_SUFFIX = "-S --suffix"
_BACKUPS = f"-b --backup {_SUFFIX}"
_ALWAYS = 1_000  # operands: with any number of them, it takes commands from its input
_COPY = "--context --no-preserve --preserve --reflink --sparse"

PROGRAMS: dict[str, Program] = {
    # files
    "cp": Program(takes=_COPY, suffix=_SUFFIX, beside=_BACKUPS, into=_INTO, operands="copied"),
    "mv": Program(takes=_COPY, suffix=_SUFFIX, beside=_BACKUPS, into=_INTO, operands="moved"),
    "ln": Program(suffix=_SUFFIX, beside=_BACKUPS, into=_INTO, operands="linked"),
    "install": Program(
        takes=f"{_COPY} -g --group -m --mode -o --owner",
        suffix=_SUFFIX,
        beside=_BACKUPS,
        into=_INTO,
        runs="--strip-program",
        makes="-d --directory",
        operands="copied",
    ),
    "rm": Program(operands="removed"),
    "rmdir": Program(operands="removed"),
    "unlink": Program(operands="removed"),
    "shred": Program(takes="-n --iterations -s --size", reads="--random-source", operands="written"),
    "mkdir": Program(takes="-m --mode --context", operands="written"),
    "mkfifo": Program(takes="-m --mode", operands="written"),
    "mktemp": Program(takes="--suffix", into="-p --tmpdir", operands="written", beside="*"),
    "touch": Program(takes="-d --date -t --time", reads="-r --reference", operands="written"),
    "truncate": Program(takes="-s --size", reads="-r --reference", operands="written"),
    "chmod": Program(reads="--reference", operands="moded"),
    "chown": Program(takes="--from", reads="--reference", operands="moded"),
    "chgrp": Program(reads="--reference", operands="moded"),
    "tee": Program(operands="written"),
    "sponge": Program(operands="written"),
    "patch": Program(
        takes="-p --strip -F --fuzz -D --ifdef -V -g",
        suffix="-z --suffix -B --prefix -Y --basename-prefix",
        beside="*",
        reads="-i --input",
        into="-d --directory",
        writes="-o --output -r --reject-file",
        does="-e --ed",
        operands="written",
        here=True,
    ),
    # texts
    "sort": Program(
        takes="-k --key -S --buffer-size -t --field-separator --batch-size --parallel --sort",
        reads="--files0-from --random-source",
        writes="-o --output",
        into="-T --temporary-directory",
        runs="--compress-program",
    ),
    "uniq": Program(takes="-f -s -w --skip-fields --skip-chars --check-chars", operands="second"),
    "shuf": Program(takes="-n --head-count -i --input-range", reads="--random-source", writes="-o --output"),
    "split": Program(
        takes="-a --suffix-length -b --bytes -C --line-bytes -l --lines -n --number -t --separator",
        runs="--filter",
        operands="second",
        here=True,
        beside="*",
    ),
    "csplit": Program(takes="-n --digits", suffix="-b --suffix-format", writes="-f --prefix", here=True, beside="*"),
    "base64": Program(takes="-w --wrap", writes="-o --output"),  # on a Mac
    "iconv": Program(takes="-f -t --from-code --to-code", writes="-o --output"),
    "xxd": Program(takes="-c -g -l -o -s -n", operands="second"),
    "tree": Program(
        takes="-L -P -I --filelimit --charset -H -T",
        writes="-o --output",
        does="-R",
        what="writes files into directories that it finds",
    ),
    "file": Program(takes="-F -P -e", reads="-f --files-from -m --magic-file", does="-C --compile"),
    "rg": Program(
        takes="-A -B -C -E -M -T -d -e -g -j -m -r -t",
        reads="-f --file --ignore-file",
        runs="--pre --hostname-bin --hyperlink-format",
    ),
    "ag": Program(runs="--pager"),
    "ack": Program(runs="--pager --output", reads="--ackrc"),
    "fd": Program(takes="-d -t -e -E -S -o -j -c --base-directory", runs="-x --exec -X --exec-batch"),
    "bat": Program(runs="--pager"),
    "less": Program(
        takes="-b -h -j -p -P -t -T -x -y -z",
        writes="-o -O --log-file --LOG-FILE",
        runs="-k --lesskey-file --lesskey-src --lesskey-content",
        code=r"^\+",
    ),
    "more": Program(code=r"^\+"),
    "man": Program(
        takes="-L -m -M -S -s -e -r -E -R",
        runs="-P --pager -H --html -C --config-file -p --preprocessor -X --gxditview",
    ),
    "yq": Program(does="-i --inplace --in-place -s --split-exp", what="writes files"),
    "date": Program(
        script="-d --date", reads="-f --file -r --reference", runs="-s --set", code=r"^[^+]", what="sets the clock"
    ),
    # archives
    "zip": Program(
        takes="-b -n -P -s -t -tt -x -i",
        writes="-O --out -lf --logfile-path",
        runs="-TT --unzip-command",
        does="-T --test",
        deletes="-m --move",
        operands="first",
        beside="*",
    ),
    "unzip": Program(
        takes="-P -x",
        does="-:",
        what="writes wherever the archive says",
        into="-d",
        prints="-l -p -t -v -z",
        links=True,
        here=True,
    ),
    "zstd": Program(
        takes="-T -M -b",
        writes="-o --trace",
        into="--output-dir-flat --output-dir-mirror",
        reads="-D --patch-from --filelist",
        operands="written",
        beside="*",
    ),
    "gzip": Program(
        suffix=_SUFFIX,
        beside="*",
        does="--files --files0",
        what="writes files that a list names",
        operands="written",
        prints="-c --stdout --to-stdout -l --list -t --test",
    ),
    "cpio": Program(
        takes="-C -H --format -R -M",
        writes="-O -F --file",
        reads="-E -I --pattern-file",
        runs="--rsh-command --to-command",
        does="-i --extract -p --pass-through",
        links=True,
        what="writes wherever the archive says",
    ),
    "rsync": Program(
        takes="-f --filter --exclude --include -B --block-size --timeout --bwlimit --port --chmod",
        reads="--exclude-from --include-from --files-from --password-file --read-batch",
        writes="--log-file --write-batch --only-write-batch",
        into="-T --temp-dir --partial-dir --backup-dir",
        runs="-e --rsh --rsync-path --config -M --remote-option",
        deletes=(
            "--del --delete --delete-before --delete-during --delete-delay --delete-after --delete-excluded "
            "--delete-missing-args --remove-source-files"
        ),
        operands="copied",
        remote=True,
    ),
    # network
    "curl": Program(
        takes="""
        -A --user-agent -b --cookie -C --continue-at -e --referer -H --header -m --max-time -r --range -u --user -X
        --request -x --proxy -y -Y -z -Q -P -t -U --url --retry --connect-timeout -w --write-out -d --data -F --form
        """,
        reads="--cacert --cert -E --key --netrc-file -T --upload-file",
        into="--output-dir",
        writes="""
        -o --output -D --dump-header -c --cookie-jar --trace --trace-ascii --stderr --libcurl --hsts --alt-svc
        --etag-save
        """,
        runs="-K --config --engine",
        does="--data-urlencode --url-query --variable --unix-socket --abstract-unix-socket --proto-default",
        code="%output|^@|=[@<]|^(?i:file):",
        what="writes or sends files, or talks to programs of this machine",
        template=r"#\d",  # numbers refer to parts of the URL
        drops="-O --remote-name --remote-name-all -J --remote-header-name",
    ),
    "wget": Program(
        takes="-t --tries -T --timeout -w --wait -U --user-agent --header -Q -l --level -A -R -D --user --password",
        reads="""
        -i --input-file --load-cookies --ca-certificate --certificate --post-file --body-file --warc-dedup
        --input-metalink
        """,
        into="-P --directory-prefix --warc-tempdir",
        writes="""
        -O --output-document -o --output-file -a --append-output --save-cookies --warc-file --rejected-log --hsts-file
        """,
        runs="-e --execute --use-askpass --config",
        deletes="--delete-after",
        here=True,
    ),
    "ssh": Program(
        takes="-b -B -c -D -e -l -L -m -O -p -Q -R -W -w",
        reads="-i",
        writes="-E",
        runs="-o -F -I -S",
    ),
    "scp": Program(takes="-c -i -J -l -P", runs="-o -F -S -D", operands="copied", remote=True),
    "sftp": Program(takes="-B -c -i -J -l -P -R -s -X", runs="-o -F -S -D -b", operands="second", feeds=_ALWAYS),
    "nmap": Program(
        writes="-oN -oX -oG -oS -oA --append-output",
        reads="-iL --excludefile",
        runs="--script --script-args --datadir --servicedb --versiondb",
        does="--interactive",
        one_dash=True,
    ),
    "nc": Program(writes="-o --output --hex-dump", runs="-e --exec -c --sh-exec --lua-exec"),
    "socat": Program(code=r"."),
    "arch": Program(code=r"."),  # on a Mac it runs its operands
    # builders, editors, interpreters: running what their file says is their plain purpose
    "make": Program(
        takes="-o -W",
        maybe="-j --jobs -l --load-average",
        into="-C --directory",
        runs="-f --file --makefile -E --eval -I",
        code="=",
    ),
    "python": Program(takes="-W -X", runs="-c", feeds=1),
    "perl": Program(takes="-F", maybe="-0 -l -i", runs="-e -E -x -I -M -m", does="-d", feeds=1),
    "ruby": Program(takes="-E -C", runs="-e -r -I", does="-i", feeds=1),
    "node": Program(runs="-e --eval -p --print -r --require --import --loader --experimental-loader", feeds=1),
    "php": Program(
        runs="""
        -r -B -R -E -d -c -z --run --process-begin --process-code --process-end --define --php-ini --zend-extension
        """,
        feeds=1,
    ),
    "lua": Program(runs="-e -l", feeds=1),
    "vim": Program(runs="-c --cmd -S -s -u -U -i -t -q", writes="-w -W", code=r"^\+", feeds=_ALWAYS),
    "emacs": Program(
        runs="""
        -e -eval --eval -execute --execute -f -funcall --funcall -l -load --load -scriptload --scriptload -script
        --script -x
        """
    ),
    "ed": Program(code="^!", feeds=_ALWAYS),
    "sqlite3": Program(
        takes="-escape -heap -lookaside -maxsize -mmap -newline -nullvalue -pagecache -separator -vfs",
        maybe="-readonly",
        runs="-cmd -init -A",
        code=r"(?i)^file:|(^|\n)[ \t]*\.|load_extension|writefile|zipfile|edit[ \t]*\(|attach|vacuum",
        operands="first",
        prints="-readonly",
        feeds=2,
    ),
    "gdb": Program(
        runs="""
        -ex -x -ix -iex -eix -eiex --command --eval-command --init-command --init-eval-command --early-init-command
        --early-init-eval-command
        """,
        one_dash=True,
        feeds=_ALWAYS,
    ),
    "gcc": Program(
        takes="-x -D -U -l -L -I -include -isystem -MT",
        writes="-o --output -MF",
        runs="-wrapper -specs -fplugin -B",
        code="^@",
    ),
    "go": Program(writes="-o", runs="-exec -toolexec -vettool"),
    "hg": Program(runs="--config"),
    "tcpdump": Program(writes="-w", runs="-z"),
    "openssl": Program(
        writes="-out -keyout -writerand -keylogfile -sess_out -msgfile -certsout -respout -reqout -CAserial",
        reads="-in -inkey",
        into="-outdir",
        runs="-engine -config -provider-path",  # a configuration names libraries to load
    ),
    "zsh": Program(runs="-c", does="-s", feeds=1),
    "fish": Program(runs="-c --command -C --init-command", feeds=1),
    "ksh": Program(runs="-c", does="-s", feeds=1),
    "csh": Program(runs="-c", does="-s", feeds=1),
    "sh": Program(runs="-c", takes="-o -O --rcfile --init-file", does="-s", feeds=1),
}

# Other names of the same programs.
_ALSO = {
    "cp": "gcp",
    "mv": "gmv",
    "rm": "grm",
    "gzip": "gunzip bzip2 bunzip2 xz unxz lzma unlzma lz4 compress",
    "vim": "vi view nvim ex rvim vimdiff gvim",
    "node": "nodejs",
    "python": "pypy",
    "emacs": "emacsclient",
    "ed": "red",
    "nc": "ncat netcat",
    "gcc": "cc g++ c++ clang clang++",
    "rg": "ripgrep",
    "fd": "fdfind",
    "zstd": "unzstd zstdmt pzstd",
    "bat": "batcat",
    "csh": "tcsh",
    "ksh": "mksh",
    "sh": "bash dash ash rbash",
    "lua": "luajit",
    "make": "gmake",
    "less": "zless",
    "more": "most pg",
    "man": "apropos whatis",
    "find": "gfind",
    "sed": "gsed",
    "awk": "gawk mawk nawk original-awk",
    "tar": "gtar bsdtar",
}
_ALIASES = {also: name for name, others in _ALSO.items() for also in others.split()}


# Programs that only run another one; the inner command counts.
#
# Only the options listed here are known. Any other makes the command unreadable: it must be certain where the inner
# command begins.


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """The options of a wrapper, and what precedes the command that it runs."""

    flags: str = ""  # options without an argument
    takes: str = ""  # options with an argument
    operands: int = 0  # words before the command
    tells: str = "--help --version"  # with such an option first it only prints something, and is a command of its own
    alone: bool = False  # so it does without a command


WRAPPERS = {
    "env": Wrapper(flags="-i --ignore-environment -0 --null -v --debug", takes="-u --unset", alone=True),
    "nice": Wrapper(flags="-0 -1 -2 -3 -4 -5 -6 -7 -8 -9", takes="-n --adjustment", alone=True),
    "nohup": Wrapper(),
    "timeout": Wrapper(
        flags="-f --foreground -p --preserve-status -v --verbose", takes="-k --kill-after -s --signal", operands=1
    ),
    "stdbuf": Wrapper(takes="-i --input -o --output -e --error"),
    "command": Wrapper(flags="-p", tells="-v -V"),
    "builtin": Wrapper(tells=""),
}
_OTHER_WRAPPERS = names("busybox ionice setsid toybox watch")

_SHELLS = names("sh bash dash ash")
_SHELL_FLAGS = frozenset("ceuxvfl")
_SHELL_SETTINGS = names("errexit nounset pipefail xtrace")


def unwrap(words: tuple[Word, ...]) -> tuple[Word, ...] | str | None:
    """Return the command inside a wrapper such as ``env``: its words, or a line for a shell; None for other commands.

    Raises:
        Unreadable: It is not certain where the command begins.
    """
    name = words[0].text.rpartition("/")[2]
    if name in _SHELLS:
        return _unwrap_shell(words)
    if name in _OTHER_WRAPPERS:
        raise Unreadable(f"`{name}` runs what follows it; write that alone")
    wrapper = WRAPPERS.get(name)
    if wrapper is None or (len(words) == 1 and wrapper.alone):
        return None
    if len(words) > 1 and words[1].text in names(wrapper.tells):
        return None
    _, at = _leading_options(words, roles_of(wrapper), names(wrapper.flags))
    if any(word.varies for word in words[at : at + wrapper.operands]):
        raise Unreadable(f"`{name}` has a pattern")
    rest = words[at + wrapper.operands :]
    if not rest:
        if wrapper.alone:
            return None
        raise Unreadable(f"`{name}` has no command")
    if name == "env" and ("=" in rest[0].text):
        raise Unreadable(f"`env` sets the variable `{rest[0].text}`")
    return rest


def _leading_options(
    words: tuple[Word, ...], roles: Mapping[str, Role], flags: frozenset[str]
) -> tuple[list[Argument], int]:
    """Return the options before the command that a program runs, and the index of the first word after them.

    Raises:
        Unreadable: An option is unknown, or is a pattern.
    """
    program, items, at = words[0], list[Argument](), 1
    while at < len(words) and words[at].text.startswith("-") and words[at].text != "--":
        if words[at].varies or words[at].text == "-":
            raise Unreadable(f"`{program.text} {words[at].text}` is not known")
        here = [item for item in arguments((program, *words[at : at + 2]), roles) if item.at == 1]
        for item in here:
            if (item.role == "unknown" and item.name not in flags) or is_abbreviated(item, words[at]):
                raise Unreadable(f"`{program.text} {item.name}` is not known")
            if item.value is not None and item.value.varies:
                raise Unreadable(f"`{program.text} {item.name}` has a pattern")
        items += here
        at += 2 if any(item.value is not None and item.value is next_word(words, at) for item in here) else 1
    return items, at + (at < len(words) and words[at].text == "--")


def _unwrap_shell(words: tuple[Word, ...]) -> str | None:
    """Return the line of ``sh -c LINE``; None for a shell that runs a file or its input, which is a plain command."""
    at, line = 1, False
    while at < len(words) and (text := words[at].text)[:1] in ("-", "+") and text not in ("-", "--"):
        if words[at].varies:
            raise Unreadable(f"`{words[0].text}` has the pattern `{text}`")
        value = next_word(words, at)
        is_setting = value is not None and not value.varies and value.text in _SHELL_SETTINGS
        option = is_setting and text.endswith("o") and set(text[1:-1]) <= _SHELL_FLAGS
        if not option and not (text[0] == "-" and set(text[1:]) <= _SHELL_FLAGS):
            if line or any("c" in word.text for word in words[at:] if word.text.startswith("-")):
                raise Unreadable(f"`{words[0].text} {text}` is not known")
            return None
        line = line or "c" in text
        at += 2 if option else 1
    if not line:
        return None
    at += at < len(words) and words[at].text in ("-", "--")
    if at >= len(words):
        raise Unreadable(f"`{words[0].text} -c` has no command")
    if words[at].varies:
        raise Unreadable(f"what `{words[0].text} -c` runs is known only when it runs")
    return words[at].text


# Builtins of bash.

# These change what later words mean, run text, or evaluate an argument as an expression, which can run commands.
REFUSED = names(
    """
    . alias bind chdir compgen complete compopt coproc declare dirs enable eval exec export fc getopts hash history
    jobs let local logout mapfile popd pushd read readarray readonly set shopt source suspend trap typeset
    unalias unset
    """
)
_EVALUATES = {"printf": "-v", "wait": r"-\w*p", "test": "-[vR]", "[": "-[vR]"}  # options, as regular expressions


def check(words: tuple[Word, ...]) -> None:
    """Refuse a builtin that changes what the rest of the line means, or runs its arguments."""
    name = words[0].text
    if name in REFUSED:
        raise Unreadable(f"`{name}` runs text or changes what later words mean")
    looked_at = words[1:2] if name == "printf" else words[1:]
    if (option := _EVALUATES.get(name)) and any(word.leads or re.match(option, word.text) for word in looked_at):
        raise Unreadable(f"`{name}` may evaluate what follows an option of it")


def cd_target(words: tuple[Word, ...]) -> Word:
    """Return the directory of a ``cd``.

    Raises:
        Unreadable: It is not certain.
    """
    if len(words) == 1:
        return Word(text="~", home=True)
    if len(words) > 2 or words[1].varies or words[1].text.startswith(("-", "+")) or not words[1].text:
        raise Unreadable("`cd` with anything but one plain directory")
    return words[1]


# The effects of one command beyond its plain purpose, from its options and operands.

_KEEP_LINKS = "-a --archive -d -P --no-dereference -R -r --recursive -l --links"  # of cp and rsync
_INPUTS = names("- /dev/stdin")
_NO_MODES = names("-R -v -c -f -h -H -L -P --from")


def _note_effects(program: Program, found: Findings) -> None:
    """Note in ``found`` the effects that ``program`` has with the command's words."""
    roles = roles_of(program)
    words = tuple(_with_two_dashes(word, roles) for word in found.words) if program.one_dash else found.words
    items = list(arguments(words, roles))
    for item in items:
        _note_option(item, program, found)
    if found.fed and sum(word.text not in _INPUTS for word in operands_of(items)) < program.feeds:
        found.runs("< …", what="takes what it runs from its input")
    if not any(item.certain and item.name in program.prints.split() for item in items):
        _note_operands(program, items, found)


def _with_two_dashes(word: Word, roles: Mapping[str, Role]) -> Word:
    """Return a long option with one dash as one with two; any other word unchanged."""
    option = f"-{word.text.partition('=')[0]}"
    is_long = re.match(r"--[^-].", option) and any(name.startswith(option) for name in roles)
    return replace(word, text=f"-{word.text}") if is_long else word


def _note_option(item: Argument, program: Program, found: Findings) -> None:
    match item.role:
        case "runs":
            found.runs(item.name, item.at)
        case "does":
            found.runs(item.name, item.at, program.what)
        case "deletes":
            found.deletes(item.name, item.at)
        case "reads":
            found.read(item.value)
        case "suffix" if item.value is not None and "/" in item.value.text:
            raise Unreadable(f"`{found.program} {item.name}` with a `/` writes elsewhere")
        case "writes":
            if item.value is not None and program.template and re.search(program.template, item.value.text):
                item = replace(item, value=replace(item.value, varies=True))
            found.write(item.value)
            if program.beside == "*" and item.value is not None:
                found.write_beside(item.value)
        case "into" if item.value is not None:
            found.write_into(item.value)
        case "drops":
            found.write_into(HERE)
        case "takes" if item.value is not None and item.value.varies:
            raise Unreadable(f"what `{item.value.text}` after `{item.name}` becomes cannot be told before; quote it")
        case "takes" | "operand" if program.code and item.value and re.search(program.code, item.value.text):
            found.runs(item.value.text, item.at, program.what)


def _note_operands(program: Program, items: list[Argument], found: Findings) -> None:
    operands = operands_of(items)
    into = next((item.value for item in items if item.role == "into"), None)
    found.links = program.links
    if program.here and into is None:
        found.write_into(HERE)
    match program.operands:
        case "written":
            written = operands
        case "removed":
            written = []
            for word in operands:
                found.write(word, links=False)
        case "first":
            written = operands[:1]
        case "second":
            # Some of these programs treat options after an operand as files.
            first = min((item.at for item in items if item.role == "operand"), default=len(found.words))
            written = operands[1:] + [word for word in found.words[first + 1 :] if word.text.startswith("-")]
        case "moded":
            # An option may be the mode, and then the first operand is a file: ``chmod -w FILE``.
            has_mode = any(item.role != "operand" and item.name not in _NO_MODES for item in items)
            written = operands if has_mode else operands[1:]
        case "copied" | "moved" | "linked":
            written = []
            _note_copies(program, items, operands, into, found)
            if any(_may_mean(item.name, program.makes) for item in items):
                written = operands
        case _:
            written = []
    for word in written:
        found.write(word)
        if program.beside == "*":
            found.write_beside(word)


def _note_copies(
    program: Program, items: list[Argument], operands: list[Word], into: Word | None, found: Findings
) -> None:
    *sources, target = [*operands, into] if into is not None else operands or [HERE]
    # ``cp`` can also make links.
    is_hard_link = any(_may_mean(item.name, "-l --link -s --symbolic-link") for item in items)
    reaches_source = program.operands in ("moved", "linked") or is_hard_link
    found.links = reaches_source or any(_may_mean(item.name, _KEEP_LINKS) for item in items)
    if program.operands == "linked" and not sources:
        sources, target = [target], HERE  # `ln FILE` links to it here
    sources = [source for source in sources if not (program.remote and _is_remote(source))]
    for source in sources:
        if reaches_source:
            # A write to the new name of a link is a write to the link's target.
            found.write(source, links=program.operands != "moved")
            if program.operands == "linked" and not source.text.startswith("/"):
                found.write_into(target.directory, source.text)
        elif not source.varies:
            found.read(source)
    if not (program.remote and _is_remote(target)):
        backups = any(_may_mean(item.name, program.beside) for item in items)
        if into is None and target.text.rpartition("/")[2] not in ("", ".", ".."):
            found.write(target)
        whole = any(_may_mean(item.name, "--parents") for item in items)
        _note_arrivals(sources or [HERE], target, found, backups=backups, whole=whole)


def _note_arrivals(sources: list[Word], target: Word, found: Findings, *, backups: bool, whole: bool) -> None:
    """Note the files written into the directory ``target``: each by its name, or with ``whole`` by its path."""
    if backups:
        found.write_into(target)
        found.write_beside(target)
    for source in sources:
        name = source.text.strip("/") if whole else source.text.rstrip("/").rpartition("/")[2]
        found.write_into(target, "*" if source.varies or name in ("", ".", "..") else name)


def _may_mean(name: str, options: str) -> bool:
    """Return whether ``name`` is one of ``options``, or may abbreviate a long one."""
    return any(name == option or (len(name) > 2 and option.startswith(name)) for option in options.split())


def _is_remote(word: Word) -> bool:
    return ":" in word.text.partition("/")[0]


# ``tar`` and ``dd``, whose arguments have their own syntax.

_TAR = Program(
    takes="""
    -b --blocking-factor -H --format -L --tape-length -N --newer --after-date -V --label
    -K --starting-file --exclude --transform --xform -s --strip-components --mode --mtime --owner --group --sort
    --warning --record-size --level --newer-mtime
    """,
    maybe="--one-top-level",
    reads="-X --exclude-from",
    into="-C --directory",
    writes="-f --file -g --listed-incremental --index-file --volno-file",
    runs="-I --use-compress-program -F --info-script --new-volume-script --to-command --checkpoint-action "
    "--rsh-command --rmt-command -T --files-from",
    does="-P --absolute-names",
    deletes="--remove-files --recursive-unlink",
)
_TAR_MODES = names("-c --create -r --append -u --update -A --catenate --concatenate --delete")
_TAR_PRINTS = names("-O --to-stdout")
_TAR_EXTRACTS = names("-x --extract --get")
# Known by abbreviations, too; an abbreviation of --to-stdout must not hide an extraction.
_TAR_MODE_ROLES: dict[str, Role] = dict.fromkeys(sorted(_TAR_MODES | _TAR_EXTRACTS), "unknown")


def _read_tar(found: Findings) -> None:
    """Note the programs that ``tar`` runs, and the archive or directory that it writes."""
    archives: list[Word] = []
    places: list[Word] = []
    sure = True  # whether these are directories, and not arguments of the options before them
    modes: set[str] = set()
    for item in arguments(_tar_words(found.words), {**roles_of(_TAR), **_TAR_MODE_ROLES}):
        if item.name in ("-f", "--file") and item.value is not None:
            archives.append(item.value)
        elif item.name in ("-C", "--directory") and item.value is not None:
            places.append(item.value)
            sure = sure and item.certain
        elif item.name == "--one-top-level" and item.value is not None:
            found.write_into(item.value)
        elif item.role == "unknown" and (item.certain or item.name not in _TAR_PRINTS):
            modes.add(item.name)
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
        if ":" in archive.text:
            found.runs("-f HOST:FILE", what="runs a remote shell")
        if archive.text != "-" and modes & _TAR_MODES:
            found.write(archive)
        elif archive.text != "-" and not archive.varies:
            found.read(archive)
    found.links = bool(modes & _TAR_EXTRACTS)
    if modes & _TAR_EXTRACTS and not modes & _TAR_PRINTS:
        for place in [*places, *([] if places and sure else [HERE])]:
            found.write_into(place)


def _tar_words(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Rewrite ``tar xzf FILE`` as ``tar -x -z -f FILE``."""
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


def _read_dd(found: Findings) -> None:
    """Note the files that ``dd`` reads and writes."""
    for word in found.words[1:]:
        key, _, path = word.text.partition("=")
        if key == "of":
            found.write(Word(text=path, varies=word.varies))
        elif key == "if":
            found.read(Word(text=path, varies=word.varies))


# ``find`` and ``xargs``, which run other programs on what they find.

_FIND_RUNS = names("-exec -execdir -ok -okdir")
_FIND_WRITES = names("-fprint -fprint0 -fls -fprintf")
_FIND_LEADING = re.compile(r"-[EHLPXdfsx]+|--|-O.*|-D")  # options before the directories, some of other systems
_FIND_FOLLOWS = names("-files0-from -follow")

_FIND_FIRST = names("( ) ! ,")  # a test begins with one of these or with a dash

_XARGS = Program(
    takes="-d --delimiter -E -n --max-args -L -P --max-procs -s --max-chars -I --process-slot-var",
    maybe="-i --replace -l --max-lines -e --eof",
    reads="-a --arg-file",
)
_XARGS_FLAGS = names("-0 --null -r --no-run-if-empty -t --verbose -x --exit -o --open-tty -p --interactive")


def _read_find(found: Findings) -> None:
    """Note the effects of ``find``: commands, writes, deletions."""
    words = found.words
    starts = _find_roots(words)
    within = tuple(start.path for start in starts)
    inside = tuple(f"{path.rstrip('/')}/*" for path in within or ("/",))
    at = 1
    while at < len(words):
        text = words[at].text
        if text in _FIND_RUNS:
            at = _find_exec(found, at, within, inside)
        elif text in _FIND_WRITES and at + 1 < len(words):
            found.write(words[at + 1])
        elif text == "-files0-from" and at + 1 < len(words):
            found.read(words[at + 1])
        elif text == "-delete":
            found.deletes(text, at)
            for start in starts or [Word(text="/")]:
                found.write_into(start)
        at += 1


def _find_roots(words: tuple[Word, ...]) -> list[Word]:
    """Return the directories that contain all that ``find`` finds; [] if that is not certain."""
    starts = list(takewhile(lambda word: not word.text.startswith("-") and word.text not in _FIND_FIRST, words[1:]))
    unknown = (len(words) > 1 and _FIND_LEADING.fullmatch(words[1].text)) or any(start.varies for start in starts)
    follows = any(word.text in _FIND_FOLLOWS for word in words)
    return [] if unknown or follows else starts or [HERE]


def _find_exec(found: Findings, at: int, within: tuple[str, ...], inside: tuple[str, ...]) -> int:
    """Add the command after ``-exec``; return the index of its last word."""
    option, words = found.words[at].text, found.words
    end = at + 1
    while end < len(words) and not (
        words[end].text == ";" or (words[end].text == "+" and words[end - 1].text == "{}")
    ):
        end += 1
    if end == len(words) or end == at + 1:
        raise Unreadable(f"`{found.program} {option}` has no command that ends in `;` or `+`")
    there = option.endswith("dir")  # it runs in the directory of the match, with its name
    inner = tuple(_insert_match(word, "{}", () if there else within, leads=there) for word in words[at + 1 : end])
    found.inner.append(Inner(words=inner, where=inside if there else ()))
    return end


def _insert_match(word: Word, mark: str, within: tuple[str, ...], *, leads: bool) -> Word:
    """Return ``word``, marked as varying if it contains ``mark``."""
    if mark not in word.text:
        return word
    return Word(
        text=word.text,
        varies=True,
        leads=word.leads or (leads and word.text.startswith(mark)) or word.text.startswith("-"),
        within=within if word.text == mark else (),
    )


def _read_xargs(found: Findings) -> None:
    """Note the command of ``xargs``, whose further words are unknown."""
    items, start = _leading_options(found.words, roles_of(_XARGS), _XARGS_FLAGS)
    mark = ""  # the placeholder for a word that xargs reads; "": words are appended
    for item in items:
        if item.role == "reads":
            found.read(item.value)
        if item.name in ("-I", "-i", "--replace"):
            mark = item.value.text if item.value is not None else "{}"
    inner = [*found.words[start:]] or [Word(text="echo")]
    if mark:
        inner = [_insert_match(word, mark, (), leads=True) for word in inner]
    else:
        inner.append(Word(text="the words that xargs reads", bare=False, varies=True, leads=True))
    found.inner.append(Inner(words=tuple(inner)))


# ``git``: which subcommands only read, which change the repository, and which options run programs.

_GIT_QUIET = names(
    """
    -p --paginate -P --no-pager --no-replace-objects --no-lazy-fetch --no-optional-locks --bare --literal-pathspecs
    --glob-pathspecs --noglob-pathspecs --icase-pathspecs
    """
)

_GIT_WITH_VALUE = names("-c --config-env --exec-path --git-dir --work-tree --namespace --super-prefix --attr-source")

_GIT_LOOKS = names(
    """
    annotate blame cat-file check-attr check-ignore check-mailmap check-ref-format cherry count-objects describe diff
    diff-files diff-index diff-tree for-each-ref fsck get-tar-commit-id grep help log ls-files ls-remote ls-tree
    merge-base merge-tree name-rev patch-id range-diff rev-list rev-parse shortlog show show-branch show-index
    show-ref status stripspace var verify-commit verify-pack verify-tag version whatchanged --version --help -v -h
    """
)
_GIT_CHANGES = names(
    """
    add am apply archive branch bundle checkout cherry-pick clean clone commit commit-tree fast-export fetch
    format-patch gc hash-object init merge mktag mktree mv notes pack-refs prune pull push read-tree rebase reflog
    remote repack replace rerere reset restore revert rm sparse-checkout stage stash switch symbolic-ref tag
    unpack-objects update-index update-ref update-server-info worktree write-tree
    """
)

_GIT_OPTIONS = Program(
    takes="""
    -m --message --author --date -n --max-count --since --until --format --pretty -L --grep -G -S --depth -b --repo
    --remote
    """,
    reads="--file --pathspec-from-file --contents",
    writes="--output --export-marks",
    into="--output-directory --separate-git-dir",
    runs="--upload-pack --receive-pack --exec -x --template -c --config --strategy --open-files-in-pager -u -s -O",
    does="--ext-diff --unsafe-paths",
)
# Options with an effect in some subcommands, and another meaning or none in the others.
_GIT_OWN_OPTIONS = {
    **dict.fromkeys(names("archive format-patch"), Program(writes="-o --output")),
    **dict.fromkeys(names("commit tag notes merge commit-tree"), Program(reads="-F --file")),
    **dict.fromkeys(names("blame annotate"), Program(reads="-S --contents --ignore-revs-file")),
    "grep": Program(reads="-f"),
    "ls-files": Program(reads="-X --exclude-from"),
    "read-tree": Program(writes="--index-output"),
}
_GIT_READS = names("apply am hash-object")  # their operands are files that they read into the repository
# Letters that differ between subcommands; they run something only in these.
_GIT_LETTERS = {
    "-x": names("rebase"),
    "-c": names("clone"),
    "-u": names("clone"),
    "-s": names("merge pull rebase cherry-pick revert"),
    "-O": names("grep"),
}
_GIT_REPOSITORIES = names("--repo --remote")  # their arguments name repositories, as operands do
_GIT_PLACES = names("clone init worktree bundle push")  # some of their operands are directories or files they make
_GIT_CONFIG_SCOPES = names(
    "--global --local --system --worktree --show-origin --show-scope --null -z --name-only --includes"
)
_GIT_CONFIG_READS = names("--get --get-all --get-regexp --get-urlmatch --list -l get list")
_GIT_DELETES = {"clean": "deletes files that are not in the repository", "rm": "deletes files"}
_GIT_HELPER = re.compile(r"[A-Za-z0-9][\w.+-]*::")


def _read_git(found: Findings) -> None:
    """Note the effects of ``git``, and remove harmless options before the subcommand from its words.

    Programs in a repository's own settings and hooks are its owner's choice: no tool writes those.
    """
    words, at = _git_subcommand(found)
    found.words = words
    if at == len(words):
        return
    if words[at].varies:
        raise Unreadable(f"the subcommand of git is the pattern `{words[at].text}`")
    name, given = words[at].text, [word.text for word in words[at + 1 :]]
    if name == "config":
        first = next((each for each in given if each not in _GIT_CONFIG_SCOPES), "")
        if first not in _GIT_CONFIG_READS:
            found.runs(name, at, "changes settings, which can make git run programs")
    elif name in _GIT_DELETES:
        found.deletes(name, at, _GIT_DELETES[name])
    elif name == "reset" and any(each.startswith("--h") for each in given):
        found.deletes("reset --hard", what="throws changes away")
    elif name not in _GIT_LOOKS | _GIT_CHANGES:
        found.runs(name, at, "runs an alias, another program, or a subcommand that runs others")
    _git_options(found, name, words, at)
    if name in _GIT_CHANGES:
        found.links = True  # a commit may contain links
        found.write_into(HERE)


def _git_subcommand(found: Findings) -> tuple[tuple[Word, ...], int]:
    """Return the words without harmless options before the subcommand, and the subcommand's index.

    Notes the effects of other options, and the directory of ``-C``.
    """
    words, at, kept = found.words, 1, [found.words[0]]
    while at < len(words) and (text := words[at].text).startswith("-") and text not in _GIT_LOOKS:
        value = next_word(words, at)
        if text == "-C" and value is not None:
            if found.where is not None or value.varies:
                raise Unreadable("`git -C` with several directories or a pattern")
            found.where = value
        elif text not in _GIT_QUIET:
            found.runs(
                text.partition("=")[0], len(kept) + (text in _GIT_WITH_VALUE), "makes git run or read something else"
            )
            kept += words[at : at + 1 + (text in _GIT_WITH_VALUE)]
        at += 1 + (text == "-C" or text in _GIT_WITH_VALUE)
    subcommand = len(kept)
    return (*kept, *words[at:]), subcommand


def _git_options(found: Findings, name: str, words: tuple[Word, ...], subcommand: int) -> None:
    operands = 0
    roles = {**roles_of(_GIT_OPTIONS), **roles_of(_GIT_OWN_OPTIONS.get(name, Program()))}
    for item in arguments(words[subcommand:], roles):
        at, value = item.at + subcommand, item.value
        if (item.role == "operand" or item.name in _GIT_REPOSITORIES) and value is not None:
            operands += 1
            # Whether it is a path outside the current directory: with a colon it is a URL.
            leaves = value.home or value.text == ".." or ("/" in value.text and ":" not in value.text)
            if name in _GIT_READS or (name == "diff" and any(word.text == "--no-index" for word in words)):
                found.read(value)
            if _GIT_HELPER.match(value.text):
                found.runs(value.text, at, "runs a program that fetches from there")
            elif name in _GIT_PLACES and (name != "clone" or operands > 1) and leaves:
                found.write_into(value)
            elif name == "push" and value.text.startswith("file:"):
                found.runs("push file:", at, "writes to another repository")
        elif item.role == "runs" and name in _GIT_LETTERS.get(item.name, (name,)):
            found.runs(f"{name} {item.name}", at, "makes git run something else")
        elif item.role == "does":
            found.runs(f"{name} {item.name}", at, "runs a program that the settings name, or reaches anywhere")
        elif item.role == "writes":
            found.write(value)
        elif item.role == "into" and value is not None:
            found.write_into(value)
        elif item.role == "reads":
            found.read(value)


# ``sed`` and ``awk``, whose first operand is itself a program.

_SED = Program(takes="-l --line-length", script="-e --expression", maybe="-i -I --in-place", runs="-f --file")
_SED_IN_PLACE = names("-i -I --in-place")  # the second on BSD and a Mac
_AWK = Program(takes="-F -v")


def _read_sed(found: Findings) -> None:
    """Note the effects of a ``sed`` script, and the files edited in place."""
    items = list(arguments(found.words, roles_of(_SED)))
    scripts = [item.value for item in items if item.role == "script" and item.value is not None]
    operands = operands_of(items)
    for item in items:
        if item.role == "runs":
            found.runs(item.name, item.at, "runs a script that is in a file")
    if not scripts and not any(item.role == "runs" for item in items):
        scripts, operands = operands[:1], operands[1:]
    if any(item.name in _SED_IN_PLACE for item in items):
        if not all(word.text for word in (*scripts, *operands)):
            raise Unreadable(
                f"`{found.program} -i` followed by an empty word means different things on different systems"
            )
        suffixes = [item.value for item in items if item.name in _SED_IN_PLACE and item.value is not None]
        if any("/" in suffix.text or "*" in suffix.text for suffix in suffixes):
            raise Unreadable(f"`{found.program} -i` keeps copies in places that its suffix describes")
        for word in operands:
            found.write(word)
            if suffixes:
                found.write_beside(word)
    for script in scripts:
        _refuse_pattern(script, found)
        if not is_harmless_sed(script.text):
            found.runs("e", what="runs programs or writes files, unless its script is one of the plain kind")


def _read_awk(found: Findings) -> None:
    """Note the effects of an ``awk`` program."""
    items = list(arguments(found.words, roles_of(_AWK)))
    for item in items:
        if item.role == "unknown":
            found.runs(item.name, item.at, "runs a program that cannot be read here")
        if item.role == "takes" and item.value is not None:
            _refuse_pattern(item.value, found)
    program = next((item.value for item in items if item.role == "operand"), None)
    if program is not None:
        _refuse_pattern(program, found)
        if not is_harmless_awk(program.text):
            found.runs("system", what="runs programs or writes files, which its program seems to do")


def _refuse_pattern(word: Word, found: Findings) -> None:
    if word.varies:
        raise Unreadable(f"what `{found.program}` does is in the pattern `{word.text}`; quote it")


# -- sed -----------------------------------------------------------------------------------------------------------

# Possessive quantifiers: ambiguous brackets would take exponential time.
_SED_ADDRESS = r"(?:\d+(?:~\d+)?|\$|/(?:[^/\\\n\[]|\\[^\n]|\[\^?+\]?+[^\]/\n]*+\])*+/[IM]*)"
_SED_WHERE = re.compile(rf"[\s;]*(?:{_SED_ADDRESS}(?:\s*,\s*(?:{_SED_ADDRESS}|[+~]\d+))?)?\s*!?\s*")
_SED_PLAIN = re.compile(r"[{}]|[pdqQnNDgGhHxPl=zF][ \t]*\d*|[btT][ \t]*\w*|:[ \t]*\w+|[aic][ \t]+[^\\\n]*(?=\n|$)")
_SED_SEPARATED = re.compile(r"\s*(?:[;\n]|(?=\})|$)")


def is_harmless_sed(script: str) -> bool:
    """Return whether no command of ``script`` runs a program, or reads or writes another file."""
    at = 0
    while at < len(script):
        where = _SED_WHERE.match(script, at)
        at = where.end() if where else at
        if at == len(script):
            return not script[where.start() if where else 0 : at].strip(" \t\n;")
        command = _SED_PLAIN.match(script, at) or _sed_substitution(script, at)
        if command is None:
            return False
        at = command.end()
        if script[command.start()] not in "{}":
            separated = _SED_SEPARATED.match(script, at)
            if separated is None:
                return False
            at = separated.end()
    return True


def _sed_substitution(script: str, at: int) -> re.Match[str] | None:
    """Match ``s`` or ``y`` with harmless flags; every sed must agree on where it ends."""
    delimiter = script[at + 1 : at + 2]
    if script[at] not in "sy" or not delimiter or delimiter.isalnum() or delimiter in "\\\n[] \t":
        return None
    end = re.escape(delimiter)
    text = rf"(?:[^{end}\\\n\[]|\\[^\n]|\[\^?+\]?+[^\]{end}\n]*+\])*+"
    other = rf"(?:[^{end}\\\n]|\\[^\n])*+"
    return re.compile(rf"[sy]{end}{text}{end}{other}{end}[gpIiMm\d]*").match(script, at)


# -- awk -----------------------------------------------------------------------------------------------------------

_AWK_RUNS_OR_READS = re.compile(r"system|getline|@|extension|(?<!\|)\|(?!\|)|\|&")


def is_harmless_awk(program: str) -> bool:
    """Return whether ``program`` has no construct by which awk runs programs, or writes or reads another file."""
    if _AWK_RUNS_OR_READS.search(program):
        return False
    _, brace, statements = program.partition("{")
    return not (brace and "print" in statements and ">" in statements)


# Examining a command without wrappers, by the name of its program.

_READERS: dict[str, Callable[[Findings], None]] = {
    "awk": _read_awk,
    "dd": _read_dd,
    "find": _read_find,
    "git": _read_git,
    "sed": _read_sed,
    "tar": _read_tar,
    "xargs": _read_xargs,
}
_VERSION = "-.0123456789"


def examine(found: Findings) -> None:
    """Note the effects of a command whose words alone are known so far.

    An unknown program is not examined: allowing it by name allows whatever it does.
    """
    name = _name_in_tables(found.program)
    if name in PLAIN:
        return
    program, reader = PROGRAMS.get(name), _READERS.get(name)
    refuse_late_options(found.words, roles_of(program) if program else {})
    if reader:
        reader(found)
    elif program:
        _note_effects(program, found)


def _name_in_tables(program: str) -> str:
    """Return the name of a program in the tables: ``python`` for ``/usr/bin/python3.12``."""
    name = program.rpartition("/")[2]
    for each in (name, name.rstrip(_VERSION)):
        known = _ALIASES.get(each, each)
        if known in PLAIN or known in PROGRAMS or known in _READERS:
            return known
    return name
