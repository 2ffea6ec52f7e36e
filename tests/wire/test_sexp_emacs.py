"""Thousands of random values through a real Emacs, both ways; it must understand them and not only pass them on."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path
from typing import Any

import pytest

from pyagentd.wire.sexp import SexpError, Symbol, decode, encode
from tests.wire.conftest import run_emacs

SPECIAL = "\"\\()[]{};:'`,#?.|@&*+-=<>!~^%$ \t\n\r\f\b\v\0\x1b\x7f\x85\xa0\u2018\u2019\u2028\ufeff"
OTHER = "aZ09_é߀ࠀ日本\U0001f389\u200d\ufe0f\U0010ffff"
NUMBERISH = [
    "1",
    "-1",
    "+",
    "-",
    "1+",
    "1.5",
    ".5",
    "-.5e3",
    "1e5",
    "e",
    ".",
    "..",
    "...",
    "1.",
    "-1.",
    "0x10",
    "inf",
]

# Says of each value what Lisp takes it for: its type, and the characters of text.
DESCRIBE = """
(defun describe-value (v)
  (cond ((null v) nil)
        ((eq v t) t)
        ((stringp v) (list 'string (multibyte-string-p v) (append v nil)))
        ((symbolp v) (list 'symbol (append (symbol-name v) nil)))
        ((vectorp v) (list 'vector (mapcar #'describe-value v)))
        ((and (consp v) (cdr v) (atom (cdr v))) (list 'pair (describe-value (car v)) (describe-value (cdr v))))
        ((consp v) (list 'list (mapcar #'describe-value v)))
        (t (list 'number v))))
"""

READ = """
(set-language-environment "UTF-8")
(defun read-utf-8 (file)
  (with-temp-buffer
    (let ((coding-system-for-read 'utf-8-unix)) (insert-file-contents file))
    (goto-char (point-min))
    (read (current-buffer))))
(defun print-utf-8 (value file)
  (let ((coding-system-for-write 'utf-8-unix) print-length print-level print-escape-newlines)
    (with-temp-file file (prin1 value (current-buffer)))))
"""


def _text(rng: random.Random) -> str:
    return "".join(rng.choice(SPECIAL if rng.random() < 0.5 else OTHER) for _ in range(rng.randrange(12)))


def _atom(rng: random.Random) -> Any:
    match rng.randrange(8):
        case 0:
            return None
        case 1:
            return True
        case 2:
            return rng.randrange(-(2**70), 2**70) >> rng.randrange(70)
        case 3:
            return rng.choice([rng.gauss(0, 1), rng.gauss(0, 1) * 10.0 ** rng.randrange(-300, 300), 0.0, -0.0])
        case 4:
            return rng.choice([math.inf, -math.inf])
        case 5:
            return Symbol(rng.choice(NUMBERISH))
        case 6:
            # Emacs prints a list of two that begins with ` or , as code, which is refused.
            return Symbol(re.sub("^[`,]", "s", _text(rng)))
        case _:
            return _text(rng)


def _value(rng: random.Random, depth: int = 0) -> Any:
    if depth < 5 and rng.random() < 0.45:
        return [_value(rng, depth + 1) for _ in range(rng.randrange(1, 6))]
    return _atom(rng)


def _description(value: Any) -> Any:
    """Say in Python what ``describe-value`` says in Lisp."""
    match value:
        case None | True:
            return value
        case Symbol():
            return [Symbol("symbol"), [ord(c) for c in value] or None]
        case str():
            return [Symbol("string"), None if value.isascii() else True, [ord(c) for c in value] or None]
        case list():
            return [Symbol("list"), [_description(item) for item in value]]
        case _:
            return [Symbol("number"), value]


async def test_emacs_understands_what_we_write_and_we_what_it_prints(tmp_path: Path) -> None:
    rng = random.Random(20)
    values = [_value(rng) for _ in range(4000)]
    (tmp_path / "in").write_bytes(encode(values))
    await run_emacs(
        f"""{READ} {DESCRIBE}
        (let ((values (read-utf-8 "{tmp_path}/in")))
          (print-utf-8 values "{tmp_path}/out")
          (print-utf-8 (mapcar #'describe-value values) "{tmp_path}/described"))"""
    )
    echoed = decode((tmp_path / "out").read_bytes())
    described = decode((tmp_path / "described").read_bytes())
    assert len(echoed) == len(described) == len(values)
    for value, back, description in zip(values, echoed, described, strict=True):
        assert repr(back) == repr(value)
        assert repr(description) == repr(_description(value))


async def test_we_understand_values_that_emacs_made(tmp_path: Path) -> None:
    # Emacs makes them of characters and types of its own choice, and says beside each what it is.
    await run_emacs(
        f"""{READ} {DESCRIBE}
        (random "seed")
        (let ((special (append {_lisp_characters(SPECIAL + OTHER)} nil)) values)
          (dotimes (_ 3000)
            (let* ((chars (let (cs) (dotimes (_ (random 10) cs) (push (nth (random (length special)) special) cs))))
                   (text (apply #'string chars))
                   (v (pcase (random 8)
                        (0 text)
                        (1 (intern (concat "s" text)))
                        (2 (intern text))
                        (3 (- (random) (random)))
                        (4 (* (- (random 2000) 1000) (expt 10.0 (- (random 100) 50))))
                        (5 (vector text (random 10) nil))
                        (6 (cons (intern (concat "k" text)) text))
                        (7 (list text (random 100) (list (intern text) t nil))))))
              (push (cons (describe-value v) (list v)) values)))
          (print-utf-8 values "{tmp_path}/out"))"""
    )
    values = decode((tmp_path / "out").read_bytes())
    assert len(values) == 3000
    for description, value in values:
        assert repr(_value_of(description)) == repr(value)


def _lisp_characters(text: str) -> str:
    return "(list " + " ".join(str(ord(c)) for c in text) + ")"


def _value_of(description: Any) -> Any:
    """Return the value that a description by Emacs stands for."""
    match description:
        case None | True:
            return description
        case ["string", _, codes]:
            return "".join(map(chr, codes or []))
        case ["symbol", codes]:
            return Symbol("".join(map(chr, codes or [])))
        case ["vector" | "list", items]:
            return [_value_of(item) for item in items]
        case ["pair", left, right]:
            return (_value_of(left), _value_of(right)) if right is not None else [_value_of(left)]
        case ["number", number]:
            return number
    raise AssertionError(description)


@pytest.mark.parametrize(
    ("lisp", "value"),
    [
        ("(propertize \"text\" 'face 'bold 'gptel '(tool . \"id\"))", "text"),
        ('(list 1 (propertize "a" \'p "q") (propertize "" \'x 1) 2)', [1, "a", "", 2]),
        ('(encode-coding-string "é日" \'utf-8)', "é日"),
        ('(concat "x" (string-to-multibyte "\\377"))', "x\udcff"),
        ("(/ 1.0 0)", math.inf),
        ("(/ -1.0 0)", -math.inf),
        ("most-positive-fixnum", 2**61 - 1),
        ("(* 1.0 (expt 10 20))", 1e20),
        ("(list :a nil :b t)", [Symbol(":a"), None, Symbol(":b"), True]),
        ("'(a . b)", (Symbol("a"), Symbol("b"))),
        ("'(a b . 3)", (Symbol("a"), Symbol("b"), 3)),
        ("[]", []),
    ],
)
async def test_the_odd_values_of_emacs_have_a_defined_meaning(lisp: str, value: object, tmp_path: Path) -> None:
    await run_emacs(
        f"""(let ((coding-system-for-write 'utf-8-unix))
              (with-temp-file "{tmp_path}/out" (prin1 {lisp} (current-buffer))))"""
    )
    result = decode((tmp_path / "out").read_bytes())
    assert (type(result), result) == (type(value), value)


@pytest.mark.parametrize(
    "lisp",
    ["(current-buffer)", "(point-marker)", "(make-hash-table)", '(list 1 (make-process :name "x" :command nil))'],
)
async def test_objects_of_emacs_are_refused_and_never_misread(lisp: str, tmp_path: Path) -> None:
    printed = await run_emacs(f"(prin1 {lisp})")
    with pytest.raises(SexpError, match="Unreadable"):
        decode(printed)
