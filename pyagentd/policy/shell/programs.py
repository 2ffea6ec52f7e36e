"""What is known of programs: which of their options and operands read, write, run or delete.

To extend it, add a line. Names of options are as the program's manual has them, separated by blanks; an option with
an argument that does no harm is in ``takes``, so that its argument is not mistaken for something else. An option that
is not named is harmless. Options that are named and do something need an allowance of their own (see ``refusal``).
"""

from dataclasses import dataclass

from pyagentd.policy.shell.values import Given, Program, Unreadable, Word, given, is_abbreviated, names, roles_of

# Whatever arguments they get, these only read and print: a pattern may stand for any of their arguments.
PLAIN = names(
    """
    : [ arch b2sum base32 base64 basename cal cat cksum cmp column comm cut df diff dir dirname du echo egrep expand
    factor false fgrep fold free getconf grep groups head hexdump id join jq kill ls lsblk lscpu md5sum nl nproc
    numfmt od paste printenv printf ps pwd readlink realpath rev seq sha1sum sha224sum sha256sum sha384sum sha512sum
    sleep stat strings sum tac tail test tr true tty type uname unexpand uptime users vdir wc whereis which who
    whoami yes zcat
    """
)

_INTO = "-t --target-directory"
_SUFFIX = "-S --suffix"
_BACKUPS = f"-b --backup {_SUFFIX}"
_ALWAYS = 1_000  # operands: whatever it is given, its input are commands
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
    "mktemp": Program(takes="--suffix", into="-p --tmpdir", operands="written"),
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
    "csplit": Program(takes="-n --digits -b --suffix-format", writes="-f --prefix", here=True, beside="*"),
    "iconv": Program(takes="-f -t --from-code --to-code", writes="-o --output"),
    "xxd": Program(takes="-c -g -l -o -s -n", operands="second"),
    "tree": Program(takes="-L -P -I --filelimit --charset -H -T", writes="-o --output"),
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
    "yq": Program(does="-i --inplace --in-place"),
    "date": Program(
        script="-d --date", reads="-f --file -r --reference", runs="-s --set", code=r"^[^+]", what="sets the clock"
    ),
    # archives
    "zip": Program(
        takes="-b -n -P -s -t -tt -x -i",
        writes="-O --out",
        runs="-TT --unzip-command",
        does="-T --test",
        deletes="-m --move",
        operands="first",
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
        takes="-T -M -b", writes="-o", reads="-D --patch-from --filelist", operands="written", beside="*"
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
        writes="-O",
        reads="-E -F -I",
        runs="--rsh-command --to-command",
        does="-i --extract -p --pass-through",
        links=True,
        what="writes wherever the archive says",
    ),
    "rsync": Program(
        takes="-f --filter --exclude --include -B --block-size -M --remote-option --timeout --bwlimit --port --chmod",
        reads="--exclude-from --include-from --files-from --password-file --read-batch",
        writes="--log-file --write-batch --only-write-batch",
        into="-T --temp-dir --partial-dir --backup-dir",
        runs="-e --rsh --rsync-path --config",
        deletes=(
            "--del --delete --delete-before --delete-during --delete-delay --delete-after --delete-excluded "
            "--delete-missing-args --remove-source-files"
        ),
        operands="copied",
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
        code="%output|^@|=[@<]|^(?i:file):",
        what="writes files, or sends them",
        drops="-O --remote-name --remote-name-all -J --remote-header-name",
    ),
    "wget": Program(
        takes="-t --tries -T --timeout -w --wait -U --user-agent --header -Q -l --level -A -R -D --user --password",
        reads="-i --input-file --load-cookies --ca-certificate --certificate --post-file --body-file",
        into="-P --directory-prefix",
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
    "scp": Program(takes="-c -i -J -l -P", runs="-o -F -S -D", operands="copied"),
    "sftp": Program(runs="-o -F -S -D -b"),
    "nmap": Program(
        writes="-oN -oX -oG -oS -oA --append-output",
        reads="-iL --excludefile",
        runs="--script --script-args --datadir --servicedb --versiondb",
        does="--interactive",
    ),
    "nc": Program(runs="-e --exec -c --sh-exec --lua-exec"),
    "socat": Program(code=r"."),
    # builders, editors, interpreters: running what a file of theirs says is their plain purpose
    "make": Program(
        takes="-o -W",
        maybe="-j --jobs -l --load-average",
        into="-C --directory",
        runs="-f --file --makefile --eval -I",
        code="=",
    ),
    "python": Program(takes="-W -X", runs="-c", feeds=1),
    "perl": Program(takes="-F", maybe="-0 -l -i", runs="-e -E -x -I -M -m", does="-d", feeds=1),
    "ruby": Program(takes="-E -C", runs="-e -r -I", does="-i", feeds=1),
    "node": Program(runs="-e --eval -p --print -r --require --import --loader --experimental-loader", feeds=1),
    "php": Program(runs="-r -B -R -E -d -c -z", feeds=1),
    "lua": Program(runs="-e -l", feeds=1),
    "vim": Program(runs="-c --cmd -S -s -u -U -i -t -q", writes="-w -W", code=r"^\+", feeds=_ALWAYS),
    "emacs": Program(runs="--eval --execute -f --funcall -l --load --script"),
    "ed": Program(code="^!", feeds=_ALWAYS),
    "sqlite3": Program(
        runs="-cmd -init",
        code=r"(?i)(^|\n)[ \t]*\.|load_extension|writefile|edit[ \t]*\(|attach|vacuum",
        feeds=2,
    ),
    "gdb": Program(runs="-ex -x -ix -iex --command --eval-command", feeds=_ALWAYS),
    "gcc": Program(
        takes="-x -D -U -l -L -I -include -isystem -MF -MT",
        writes="-o",
        runs="-wrapper -specs -fplugin -B",
        code="^@",
    ),
    "go": Program(writes="-o", runs="-exec -toolexec -vettool"),
    "hg": Program(runs="--config"),
    "tcpdump": Program(writes="-w", runs="-z"),
    "openssl": Program(writes="-out", reads="-in -inkey", runs="-engine"),
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
}
ALIASES = {also: name for name, others in _ALSO.items() for also in others.split()}


# Programs that only run another one; what counts is the one inside.
#
# Only options named here are known. With any other the command is unreadable: where the inner command begins must be
# certain.


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """The options of a wrapper, and how many operands stand before the command it runs."""

    flags: str = ""
    options: Program = Program()  # noqa: RUF009 - frozen
    operands: int = 0
    text: bool = False  # what it runs is a line for a shell, made of the rest of its words


WRAPPERS = {
    "env": Wrapper(
        flags="-i --ignore-environment -0 --null -v --debug",
        options=Program(takes="-u --unset", into="-C --chdir"),
    ),
    "nice": Wrapper(flags="-0 -1 -2 -3 -4 -5 -6 -7 -8 -9", options=Program(takes="-n --adjustment")),
    "nohup": Wrapper(),
    "timeout": Wrapper(
        flags="-f --foreground -p --preserve-status -v --verbose",
        options=Program(takes="-k --kill-after -s --signal"),
        operands=1,
    ),
    "stdbuf": Wrapper(options=Program(takes="-i --input -o --output -e --error")),
    "setsid": Wrapper(flags="-c --ctty -f --fork -w --wait"),
    "ionice": Wrapper(flags="-t --ignore", options=Program(takes="-c --class -n --classdata")),
    "command": Wrapper(flags="-p"),
    "builtin": Wrapper(),
    "busybox": Wrapper(),
    "toybox": Wrapper(),
    "watch": Wrapper(
        flags="-b -c -d -e -g -p -t -w --beep --color --differences --errexit --chgexit --precise --no-title",
        options=Program(takes="-n --interval"),
        text=True,
    ),
}

# Without a command, or with such an option, they only tell something: commands of their own.
_TELLS = {
    "env": names("--help --version"),
    "nice": names("--help --version"),
    "ionice": names("--help --version -h -V -p --pid -P --pgid -u --uid"),
    "command": names("-v -V"),
    "timeout": names("--help --version"),
    "stdbuf": names("--help --version"),
    "setsid": names("--help --version -h -V"),
    "nohup": names("--help --version"),
    "busybox": names("--help --list --list-full --install"),
    "toybox": names("--help --long"),
    "watch": names("--help --version -h -v"),
}
_ALONE = names("env nice ionice busybox toybox")

_SHELLS = names("sh bash dash ash")
_SHELL_FLAGS = frozenset("ceuxvfl")
_SHELL_SETTINGS = names("errexit nounset pipefail xtrace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapped:
    """What a wrapper runs: words, or a line for a shell."""

    words: tuple[Word, ...] = ()
    line: str | None = None
    where: Word | None = None  # the directory it runs in, where another


def unwrap(words: tuple[Word, ...]) -> Wrapped | None:
    """Return what ``words`` run when they are a wrapper with a command, else None.

    Raises:
        Unreadable: Where the command begins cannot be told.
    """
    name = words[0].text.rpartition("/")[2]
    if name in _SHELLS:
        return _shell_line(words)
    wrapper = WRAPPERS.get(name)
    if wrapper is None or (len(words) == 1 and name in _ALONE):
        return None
    if len(words) > 1 and words[1].text in _TELLS.get(name, ()):
        return None
    start, where = _skip(name, wrapper, words)
    rest = words[start:]
    if not rest:
        if name in _ALONE and where is None:
            return None
        raise Unreadable(f"`{name}` has no command")
    if name == "env" and ("=" in rest[0].text):
        raise Unreadable(f"`env` sets the variable `{rest[0].text}`")
    if wrapper.text:
        if any(word.varies for word in rest):
            raise Unreadable(f"`{name}` runs a pattern")
        return Wrapped(line=" ".join(word.text for word in rest), where=where)
    return Wrapped(words=rest, where=where)


def _skip(name: str, wrapper: Wrapper, words: tuple[Word, ...]) -> tuple[int, Word | None]:
    """Return the index of the inner command's first word, and the directory it runs in."""
    at, where = 1, None
    flags, roles = names(wrapper.flags), roles_of(wrapper.options)
    while at < len(words) and words[at].text.startswith("-") and words[at].text != "--":
        if words[at].varies or words[at].text == "-":
            raise Unreadable(f"`{name} {words[at].text}` is not known")
        taken = 1
        for item in (item for item in given(words[:1] + words[at : at + 2], roles) if item.at == 1):
            if (item.role == "unknown" and item.name not in flags) or is_abbreviated(item, words[at]):
                raise Unreadable(f"`{name} {item.name}` is not known")
            if item.value is not None and item.value.varies:
                raise Unreadable(f"`{name} {item.name}` has a pattern")
            if item.role == "into":
                where = item.value
            taken += _took_next(item, words, at)
        at += taken
    if at < len(words) and words[at].text == "--":
        at += 1
    if any(word.varies for word in words[at : at + wrapper.operands]):
        raise Unreadable(f"`{name}` has a pattern")
    return at + wrapper.operands, where


def _took_next(item: Given, words: tuple[Word, ...], at: int) -> bool:
    return item.value is not None and at + 1 < len(words) and item.value is words[at + 1]


def _shell_line(words: tuple[Word, ...]) -> Wrapped | None:
    """Return the line of ``sh -c LINE``; None of a shell that runs a file or its input, a command of its own."""
    at, line = 1, False
    while at < len(words) and (text := words[at].text)[:1] in ("-", "+") and text not in ("-", "--"):
        if words[at].varies:
            raise Unreadable(f"`{words[0].text}` has the pattern `{text}`")
        following = words[at + 1].text if at + 1 < len(words) and not words[at + 1].varies else ""
        option = text.endswith("o") and set(text[1:-1]) <= _SHELL_FLAGS and following in _SHELL_SETTINGS
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
    return Wrapped(line=words[at].text)


# What bash itself does when a command is one of its builtins.

# They change what later words mean, run text, or evaluate an argument as an expression, which can run commands.
REFUSED = names(
    """
    . alias bind chdir compgen complete compopt coproc declare dirs enable eval exec export fc getopts hash history
    jobs let local logout mapfile popd pushd read readarray readonly set shopt source suspend trap typeset
    unalias unset
    """
)
# These do nothing of the kind, except with the options below.
HARMLESS = names(
    """
    : [ bg break builtin caller cd command continue disown echo exit false fg help kill printf pwd return shift test
    times true type ulimit umask wait
    """
)
_EVALUATES = {"printf": names("-v"), "wait": names("-p"), "test": names("-v -R"), "[": names("-v -R")}


def check(words: tuple[Word, ...]) -> None:
    """Refuse a builtin that changes what the rest of the line means, or that runs what it is given."""
    name = words[0].text
    if name in REFUSED:
        raise Unreadable(f"`{name}` runs text or changes what later words mean")
    looked_at = words[1:2] if name == "printf" else words[1:]
    for option in _EVALUATES.get(name, ()):
        if any(word.text.startswith(option) or word.leads for word in looked_at):
            raise Unreadable(f"`{name} {option}` evaluates what follows it")


def destination(words: tuple[Word, ...]) -> Word:
    """Return where a ``cd`` goes.

    Raises:
        Unreadable: That cannot be told.
    """
    if len(words) == 1:
        return Word(text="~", home=True)
    if len(words) > 2 or words[1].varies or words[1].text.startswith(("-", "+")) or not words[1].text:
        raise Unreadable("`cd` with anything but one plain directory")
    return words[1]
