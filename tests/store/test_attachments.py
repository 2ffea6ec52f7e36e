"""What texts link of a branch's files: found in any text, in a time that grows as its length does."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyagentd.store.attachments import LinkedFile, linked_files


def links(text: str, branch_dir: Path) -> list[tuple[str, bool]]:
    return [(found.link, found.shown) for found in linked_files(text, branch_dir)]


@pytest.fixture
def branch_dir(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    for name in ("a.png", "b.pdf", "c d.txt"):
        (tmp_path / "files" / name).write_bytes(b"data")
    return tmp_path


def test_pictures_and_links_are_found_each_once(branch_dir: Path) -> None:
    text = "![a](files/a.png) [b [1](files/b.pdf)\n[a](files/a.png) ![a](files/a.png) [](<./files/c%20d.txt>)"
    expected = [("files/a.png", True), ("files/b.pdf", False), ("files/a.png", False), ("./files/c%20d.txt", False)]
    assert links(text, branch_dir) == expected
    assert next(linked_files(text, branch_dir)) == LinkedFile("files/a.png", True, branch_dir / "files" / "a.png", 4)


@pytest.mark.parametrize(
    "text",
    [
        "](files/a.png)",
        "[x\n](files/a.png)",
        "[x]](files/a.png)",
        "[x](files/gone)",
        "[x](files/../a)",
        "[x](files/%00)",
        "[x](files/circle)",
    ],
)
def test_what_is_no_link_or_leads_elsewhere_is_not_found(text: str, branch_dir: Path) -> None:
    (branch_dir / "a").write_bytes(b"outside")
    (branch_dir / "files" / "circle").symlink_to("circle")
    assert not links(text, branch_dir)


@pytest.mark.parametrize(
    "piece", ["[", "![", "](files/", "](", "[](files/a/", "[x](files/)", "files/[", "[a](files/a.png"]
)
def test_a_large_text_of_somebody_elses_is_read_in_a_time_that_its_length_bounds(
    piece: str, branch_dir: Path
) -> None:
    hostile = piece * (900_000 // len(piece))  # the suite's time limit ends what looks back from each of them
    assert links(f"files/ {hostile}\n[b](files/b.pdf)", branch_dir) == [("files/b.pdf", False)]
