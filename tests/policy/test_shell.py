"""What a reading has in it, and what a refusal says."""

import time

import pytest

from pyagentd.policy.shell import matching_deny, read, refusal
from pyagentd.policy.shell.programs import is_harmless_awk, is_harmless_sed


def words(text):
    return [command.words for command in read(text).commands]


def why(text, *allow):
    return refusal(read(text), allow)


# -- commands --------------------------------------------------------------------------------------------------------


def test_each_command_of_a_line_has_its_words_and_its_text():
    reading = read("ls -la 'my files' | wc -l > count && git -C sub log # why")
    assert [(command.words, command.text) for command in reading.commands] == [
        (("ls", "-la", "my files"), "ls -la 'my files'"),
        (("wc", "-l"), "wc -l > count"),
        (("git", "log"), "git -C sub log"),
    ]
    assert reading.commands[2].all_words == ("git", "-C", "sub", "log")
    assert (reading.reads, reading.writes, reading.unreadable) == ((), ("count",), None)


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("timeout -k 5 10 nice -n 3 ls", [("ls",)]),
        ("env", [("env",)]),
        ("bash -c 'ls; wc a'", [("ls",), ("wc", "a")]),
        ("command -v ls", [("command", "-v", "ls")]),
        ("sudo ls", [("sudo", "ls")]),
        ("./env ls", [("./env", "ls"), ("ls",)]),
        ("find . -exec wc -l {} +", [("find", ".", "-exec", "wc", "-l", "{}", "+"), ("wc", "-l", "{}")]),
        ("git --no-pager -P log", [("git", "log")]),
        ("git -c a=b log", [("git", "-c", "a=b", "log")]),
    ],
)
def test_a_wrapper_is_what_it_runs(text, inner):
    assert words(text) == inner


def test_what_could_be_read_before_is_told_of_a_line_that_is_unreadable():
    reading = read("ls; sh -c 'rm $x'")
    assert [command.words for command in reading.commands] == [("ls",)]
    assert "`$`" in reading.unreadable


@pytest.mark.parametrize("text", ["git log", "ls -la", "timeout 5 git status"])
def test_a_plain_command_does_what_its_name_says(text):
    (command,) = read(text).commands
    assert command.plain
    assert not command.effects


@pytest.mark.parametrize(
    "text", ["git log > x", "git -c a=b log", "sort -o x a", "find . -delete", "tee x", "2>x ls"]
)
def test_a_command_that_writes_or_does_more_is_not_plain(text):
    (command,) = read(text).commands
    assert not command.plain


def test_a_command_that_is_too_much_to_read_is_unreadable():
    assert "too long" in read("ls " * 50_000).unreadable
    assert "too many files" in read("touch " + " ".join(map(str, range(2_000)))).unreadable
    far = read("cd " + "a/" * 1_900 + " && cat " + " ".join(f"<{n}" for n in range(480)))
    assert "names are too long" in far.unreadable and sum(map(len, far.reads)) < 200_000
    assert not read("touch " + " ".join(f"src/package/module_{n}.py" for n in range(500))).unreadable
    assert "too deeply" in read("xargs -- " * 10 + "ls").unreadable
    assert "longer than the system takes" in read("touch " + "a/../" * 1_000 + "x").unreadable


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ("a <in >out 2>>err", ("in",), ("out", "err")),
        ("a <>both", ("both",), ("both",)),
        ("a >/dev/null 2>&1 </dev/null", (), ()),
        ("a > ~/x > '~/x'", (), ("~/x", "./~/x")),
        ("cp a b/ && cp -t d a", ("a",), ("b/a", "d/*", "d/a")),
        ("cp -r . ../x", ("./*",), ("../x", "../x/*")),
        ("mv a b", (), ("a", "b", "b/a")),
        ("sed -i s/a/b/ x y", (), ("x", "y")),
        ("find d e -delete", (), ("d/*", "e/*")),
        ("find d -exec rm {} +", (), ("d/*",)),
        ("find d -execdir tee x ';'", (), ("d/*/x",)),
        ("tar xf a.tar -C d", ("a.tar",), ("d/*",)),
        ("git -C d commit -m x", (), ("d/*",)),
        ("cd d && a > x", (), ("d/x",)),
        ("cd d; a > x", (), ("x", "d/x")),
        ("cd d | a > x", (), ("x",)),
        ("cd d && cd e && a > x; a > y", (), ("d/e/x", "y", "d/y", "d/e/y")),
        ("cd d/.. && a > x", (), ("d/../x", "x")),
        ("cd && a > x", (), ("~/x",)),
        ("cd /tmp && a > x > /y", (), ("/tmp/x", "/y")),
        ("mkdir -p d/../e", (), ("d", "d/../e")),
        ("ln -s ../t d/l", (), ("../t", "d/../t", "d/l", "d/l/t")),
        ("echo a | tee -", (), ("-",)),
        ("tar xf a --one-top=/d", ("a",), ("/d/*", "./*")),
        ("tar xf a --transform s,.*/,, --exclude -C /d", ("a",), ("/d/*", "./*")),
        ("git push --repo=/d/r main", (), ("/d/r/*", "./*")),
        ("a | cpio -o --file=/d", (), ("/d",)),
        ("sftp -P 22 host:a /d", (), ("/d",)),
        ("nc -o /d host 1", (), ("/d",)),
        ("base64 a -o /d", (), ("/d",)),
        ("gcc a.c --output /d", (), ("/d",)),
        ("openssl rand --out /d 3", (), ("/d",)),
        ("openssl s_client -keylogfile /d -connect h:1", (), ("/d",)),
        ("sqlite3 -separator , /d 'select 1'", (), ("/d",)),
        ("sqlite3 -readonly /d 'select 1'", (), ()),
        ("tar cf - d", (), ()),
        ("cat a", (), ()),
    ],
)
def test_the_files_of_a_line(text, reads, writes):
    reading = read(text)
    assert reading.unreadable is None
    assert reading.reads == reads
    assert (
        set(writes) <= set(reading.writes) <= {*writes, *(f"{path.rpartition('/')[0] or '.'}/*" for path in writes)}
    )


# -- what is said ----------------------------------------------------------------------------------------------------


def test_a_refusal_says_what_is_missing_and_what_is_there():
    assert why("rm x", "ls", "git") == "`rm` is not in `shell_commands.allow` (ls, git)"
    assert why("git push", "git log") == "`git push` is not in `shell_commands.allow` (git log)"
    assert why("ls", *()) == "the preset allows no commands (it has no `shell_commands.allow`)"
    assert why("", "ls") == "there is no command"
    said = why("find . -delete", "find")
    assert said == "`find -delete` deletes files; that needs `rm` or `find -delete` in `shell_commands.allow` (find)"
    said = why("python -c x", "python")
    assert "needs `sh`, `bash` or `python -c` in `shell_commands.allow`" in said
    assert "it has a substitution `$(`" in why("ls $(x)", "ls")


def test_everything_is_admitted_by_a_star_and_only_the_grammar_knows_more():
    assert why("anything | at > all", "*") is None
    assert why("ls $(x)", "*") is None
    assert read("ls $(x)").unreadable is not None
    assert why(" ", "*") == "there is no command"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ls $x", "an unquoted `$`"),
        ("ls `x`", "backtick"),
        ("cat <<E", "here-document"),
        ("cat <<<x", "here-string"),
        ("(ls)", "parenthesis"),
        ("ls {a,b}", "brace expansion"),
        ("ls ~x", "`~`"),
        ("A=1 ls", "sets a variable"),
        ("if x", "begins a construct"),
        ("ls '", "quotes are not balanced"),
        ("ls\u00a0x", "U+00A0"),
        ("eval x", "`eval`"),
        ("rm *", "quote it or begin it with ./"),
        ("ls &&", "nothing follows `&&`"),
        ("cd -", "one plain directory"),
        ("ls | xargs rm", "could be an option of `rm`"),
        ("ls | xargs - echo", "`xargs -` is not known"),
        ("wait -np 'a[$(x)]'", "`wait` may evaluate"),
        ("sort -o ./x* a", "name them"),
    ],
)
def test_an_unreadable_line_says_why(text, reason):
    assert reason in read(text).unreadable


def test_an_entry_that_spells_an_option_out_admits_it():
    assert why("python -m pytest -q", "python -m pytest") is None
    assert why("git -c color.ui=never log", "git -c color.ui=never log") is None
    assert why("git -c core.pager=x log", "git -c color.ui=never log") is not None


@pytest.mark.parametrize("program", ["gzip", "bzip2", "/usr/bin/bunzip2", "lz4", "xz", "gzip-1.13"])
def test_a_program_writes_the_same_whatever_digits_end_its_name(program):
    assert set(read(f"{program} out/data").writes) == {"out/data", "out/*"}


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("curl --data-urlencode x@/f http://a", "curl --data-urlencode"),
        ("curl --unix-socket /run/docker.sock http://a/", "curl --unix-socket"),
        ("emacs -batch -execute '(f)'", "emacs -execute"),
        ("emacsclient -e '(f)'", "emacsclient -e"),
        ("make -E 'x:=$(shell f)'", "make -E"),
        ("git archive --remote='ext::f' HEAD", "git ext::f"),
        ("openssl req -new -config f", "openssl -config"),
        ("openssl dgst -provider-path . -provider f a", "openssl -provider-path"),
    ],
)
def test_an_option_that_runs_or_sends_something_needs_an_entry_of_its_own(text, option):
    assert f"`{option}`" in why(text, text.split()[0])


def test_a_copy_with_its_directories_is_written_below_them():
    assert "target/src/f" in read("cp --parents src/f target").writes


def test_a_denied_text_is_found_however_it_is_written():
    rules = ("rm -rf",)
    for text in ("rm -rf x", "rm  -fr x", "r''m -r -f x", "env /bin/rm x --force -R", "echo 'rm -rf'"):
        assert matching_deny(text, read(text), rules) == "rm -rf", text
    for text in ("rm -r x", "rm -- -rf", "ls -rf"):
        assert matching_deny(text, read(text), rules) is None, text
    for text in ("git -c a=b push -f", "git --no-pager push x --force", "git -C x push --force"):
        assert matching_deny(text, read(text), ("git push --force",)) is not None, text
    assert matching_deny("git -f push", read("git -f push"), ("git push --force",)) is None


@pytest.mark.parametrize("text", ["rm " + "-a " * 9_000, "git " + "-a push " * 3_500, "git " + "-c a=b " * 4_000])
def test_a_denied_text_is_looked_for_in_a_long_command_at_once(text):
    reading, began = read(text), time.process_time()
    assert matching_deny(text, reading, ("rm -rf", "git push --force", "sudo")) is None
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "text",
    ["sed 's/" + "[^a]" * 60 + "' f", "sed '/" + "[]]" * 60 + "' f", "python" + "1." * 14_000 + "x"],
)
def test_what_could_be_taken_apart_in_many_ways_is_read_at_once(text):
    began = time.process_time()
    read(text)
    assert time.process_time() - began < 1


# -- scripts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [
        "p", "$p", "1,5p", "/a/,/b/d", "/a\\/b/!p", "s/a/b/", "s|a|b|gI", "s/[a]*x//", "y/ab/cd/", "1~2{s/a/b/;p}",
        "s/[^]b]*[]]//",
        "$!N;P;D", ":a;N;$!ba;s/\\n/ /g", "a text", "2q5", "s/a\\/b/c\\/d/2p", "", ";", "/x/ { p ; d }",
    ],
)  # fmt: skip
def test_a_sed_script_that_only_edits_is_harmless(script):
    assert is_harmless_sed(script)


@pytest.mark.parametrize(
    "script",
    [
        "w x", "1w x", "/a/w x", "e", "1e ls", "s/a/b/w x", "s/a/b/e", "s/a/b/ge", "s/a/b/;w x", "p;e", "r x", "R x",
        "W x", "{w x", "a\\\nx\nw x", "s/[/]/w x/", "s/a/b\\/w x", "s a b w", "\\%a%w x", "y/a/b/w x", "p\nw x",
        "#n\nw x", "i x\nw x", "sxaxbxe", "s/a/b\nc/e",
    ],
)  # fmt: skip
def test_a_sed_script_that_runs_or_writes_is_not(script):
    assert not is_harmless_sed(script)


@pytest.mark.parametrize(
    "program", ["{print $1}", "$1 > 5", "$1 > 5 { n++ } END { print n }", "/a|b/ || 1".replace("a|b", "a")]
)
def test_an_awk_program_that_only_prints_is_harmless(program):
    assert is_harmless_awk(program)


@pytest.mark.parametrize(
    "program",
    [
        "{print > $1}",
        "{print | $1}",
        "BEGIN{system(1)}",
        "BEGIN{getline}",
        "{printf 1 >> $1}",
        '@load "x"',
        "{x |& y}",
    ],
)
def test_an_awk_program_that_runs_or_writes_is_not(program):
    assert not is_harmless_awk(program)
