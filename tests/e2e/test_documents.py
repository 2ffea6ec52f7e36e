"""Emacs and Python read the same of a session file, and write the same bytes; of a torn one the same text is left."""

from __future__ import annotations

import os
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from pyagentd.store.document.text import Document, Span, body_sha256, format_file, parse
from pyagentd.wire.sexp import decode
from tests.e2e.emacs import ELPA, ROOT
from tests.store.healing_cases import CASES, file_of, talk
from tests.store.talk import Talk, Turn
from tests.store.test_files import HARD, SETTINGS, conversations, hard

DOCUMENTS = int(os.environ.get("PYAGENTD_CONVERSATIONS", "100")) // 2

# Opens every session, tells hash and roles of its text, and saves it as if it had been changed.
SCRIPT = """
(dolist (file (directory-files (getenv "DOCUMENTS") t "\\\\`doc-"))
  (let ((session (expand-file-name "branches/main/session.md" file))
        (save-silently t) (print-escape-newlines t) (print-length nil) (print-level nil)
        (write-region-inhibit-fsync t))
    (with-current-buffer (find-file-noselect session)
      (unless (bound-and-true-p pyagentd-mode) (error "No session: %s" session))
      (princ (format "%S\\n" (list (file-name-nondirectory file) (secure-hash 'sha256 (pyagentd-write--bytes))
                                   (pyagentd-block-bounds))))
      (set-buffer-modified-p t)
      (save-buffer)
      (set-buffer-modified-p nil)
      (kill-buffer))))
"""


# Tells of random texts how many characters they have, and what is sent and written of them.
ODD = """
(require 'pyagentd)
(random "odd")
(let ((characters (vconcat "aä\\U0001f44b\\n" [#xd83d #xdc4b #xdfff #x110000 #x3fff7f]
                           (mapcar #'unibyte-char-to-multibyte
                                   [#xc3 #xa4 #xe2 #x80 #x99 #xff #xed #xa0 #xf4 #x90])))
      (coding-system-for-write 'no-conversion))
  (dotimes (_ 2000)
    (let* ((odd (lambda (_) (aref characters (random (length characters)))))
           (text (concat (mapcar odd (number-sequence 1 (random 9)))))
           (file (with-temp-buffer (insert text) (pyagentd-write--bytes)))
           (frame (pyagentd-rpc--frame
                   (list (length text) (pyagentd-edit--to-wire (list (list 1 1 text "")))
                         (base64-encode-string file t)))))
      (write-region (substring frame 6) nil (getenv "TOLD") t 'quiet))))
"""


def generated() -> list[Document]:
    """Documents of conversations of every kind, some with a draft below, the same ones each time."""
    made: list[Document] = []

    @settings(
        max_examples=DOCUMENTS,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(conversations, hard)
    def collect(turns: list[Turn], draft: str) -> None:
        talk = Talk(turns, chunk=0)
        talk.type(draft.encode("utf-8", "replace").decode())
        made.append(replace(talk.document, settings=SETTINGS))

    collect()
    made += [Document(body=f"### {text}", settings=SETTINGS) for text in HARD if text.isprintable()]
    return made


@pytest.fixture
def read_by_emacs(tmp_path: Path) -> Iterator[object]:
    """Write files, open and save them in one Emacs, and return what it says of each."""

    def run(files: list[bytes]) -> list[tuple[str, list[Span], bytes]]:
        directory = tmp_path / "sessions"
        paths = [
            directory / f"doc-{number:04}-20260101000000/branches/main/session.md" for number in range(len(files))
        ]
        for path, content in zip(paths, files, strict=True):
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
        script = tmp_path / "script.el"
        script.write_text(SCRIPT)
        load = [argument for place in (*ELPA, ROOT / "elisp") for argument in ("-L", str(place))]
        env = {
            "HOME": str(tmp_path),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "DOCUMENTS": str(directory),
            "PYAGENTD_SESSIONS_DIR": str(directory),
            "PYAGENTD_RUNTIME_DIR": str(tmp_path / "run"),
        }
        done = subprocess.run(
            ["emacs", "-Q", "--batch", *load, "--eval", "(require 'pyagentd)", "-l", str(script)],
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        told = [decode(line.encode()) for line in done.stdout.splitlines()]
        assert len(told) == len(files), done.stderr
        return [
            (sha256, sorted(_spans(bounds)), path.read_bytes())
            for (_, sha256, bounds), path in zip(told, paths, strict=True)
        ]

    yield run


def test_what_is_typed_has_as_many_characters_for_python_as_for_emacs(tmp_path: Path) -> None:
    script, told = tmp_path / "script.el", tmp_path / "told"
    script.write_text(ODD)
    load = [argument for place in (*ELPA, ROOT / "elisp") for argument in ("-L", str(place))]
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TOLD": str(told)}
    subprocess.run(["emacs", "-Q", "--batch", *load, "-l", str(script)], env=env, check=True, timeout=300)
    values = decode(b"(" + told.read_bytes() + b")")
    assert len(values) == 2000
    for length, ((_, _, text, _),), file in values:
        assert len(text) == length, ascii(text)
        assert len(b64decode(file).decode("utf-8", "surrogateescape")) == length, b64decode(file)


def _spans(bounds: list[list[object]] | None) -> Iterator[Span]:
    for kind, *spans in bounds or []:
        for start, end, *id in spans:
            yield Span(start - 1, end - 1, str(kind), id[0] if id else "")


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def test_emacs_reads_and_writes_generated_documents_as_python_does(read_by_emacs) -> None:
    documents = generated()
    files = [encoded(format_file(document)) for document in documents]
    for document, file, (sha256, spans, saved) in zip(documents, files, read_by_emacs(files), strict=True):
        assert sha256 == body_sha256(document.body), repr(document.body)
        assert spans == list(document.spans), repr(document.body)
        assert saved == file, (saved[-400:], file[-400:])


@pytest.mark.parametrize("line_end", ["\r\n", "\n"])
def test_line_ends_of_the_whole_file_are_read_alike(read_by_emacs, line_end: str) -> None:
    documents = generated()[:10]
    files = [encoded(format_file(document).replace("\n", line_end)) for document in documents]
    for file, (sha256, spans, saved) in zip(files, read_by_emacs(files), strict=True):
        read = parse(file.decode("utf-8", "surrogateescape"))
        assert (sha256, spans) == (body_sha256(read.body), list(read.spans))
        assert saved == encoded(format_file(read))


def test_a_damaged_file_that_emacs_alone_saves_has_the_same_text_still(read_by_emacs) -> None:
    """What is torn is text for Emacs until the daemon repairs it; saving it meanwhile loses and adds nothing."""
    files = [encoded(case(file_of(talk()))) for case in CASES]
    for case, file, (_, _, saved) in zip(CASES, files, read_by_emacs(files), strict=True):
        assert parse(saved.decode()).body == parse(file.decode()).body, case.__name__
