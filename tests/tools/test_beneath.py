import os
from pathlib import Path

import pytest

from pyagentd.errors import ToolError
from pyagentd.tools.files import (
    MAX_BYTES,
    IsDirectory,
    SwappedLink,
    open_directory,
    open_file,
    read_bytes,
    replace_bytes,
)


def test_a_link_at_the_end_or_on_the_way_is_refused(root: Path) -> None:
    (root / "real").mkdir()
    (root / "real" / "file").write_text("secret")
    (root / "link").symlink_to("real")
    (root / "file").symlink_to("real/file")
    for path in ("link/file", "file"):
        with pytest.raises(SwappedLink):
            open_file(f"{root}/{path}")
        with pytest.raises(SwappedLink):
            replace_bytes(f"{root}/{path}", b"new")
    with pytest.raises(SwappedLink):
        open_directory(f"{root}/link")
    assert (root / "real" / "file").read_text() == "secret"


def test_a_dangling_link_is_not_written_through(root: Path) -> None:
    (root / "link").symlink_to(root / "target")
    with pytest.raises(SwappedLink):
        replace_bytes(f"{root}/link", b"new")
    assert not (root / "target").exists()


def test_what_is_no_regular_file_is_refused_without_waiting(root: Path) -> None:
    os.mkfifo(root / "fifo")
    with pytest.raises(ToolError, match="not a regular file"):
        open_file(f"{root}/fifo")
    with pytest.raises(ToolError, match="not a regular file"):
        replace_bytes(f"{root}/fifo", b"")
    for path in (str(root), "/"):
        with pytest.raises(IsDirectory):
            open_file(path)
        with pytest.raises(IsDirectory):
            replace_bytes(path, b"")


def test_replacing_keeps_the_mode_and_makes_directories(root: Path) -> None:
    script = root / "script"
    script.write_text("old")
    script.chmod(0o4755)
    replace_bytes(str(script), b"new")
    replace_bytes(f"{root}/a/b/c", b"deep")
    assert script.read_text() == "new"
    assert script.stat().st_mode & 0o7777 == 0o755
    assert (root / "a" / "b" / "c").read_text() == "deep"
    assert sorted(path.name for path in root.iterdir()) == ["a", "script"]


def test_a_new_file_gets_the_mode_the_user_wants(root: Path) -> None:
    before = os.umask(0o027)
    try:
        replace_bytes(f"{root}/new", b"")
    finally:
        os.umask(before)
    assert (root / "new").stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_file_is_not_replaced(root: Path) -> None:
    (root / "file").write_text("old")
    (root / "file").chmod(0o444)
    with pytest.raises(PermissionError):
        replace_bytes(f"{root}/file", b"new")


def test_a_failed_replacement_leaves_nothing_behind(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "file").write_text("old")

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space") as refused:
        replace_bytes(f"{root}/file", b"new")
    assert refused.value.filename == f"{root}/file", "the user knows nothing of the draft"
    assert [path.name for path in root.iterdir()] == ["file"]
    assert (root / "file").read_text() == "old"


def test_an_error_names_the_whole_path(root: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        open_file(f"{root}/no/such/file")
    assert raised.value.filename == f"{root}/no/such/file"
    (root / "file").touch()
    with pytest.raises(NotADirectoryError):
        open_file(f"{root}/file/below")


def test_no_descriptor_is_left_open(root: Path) -> None:
    (root / "file").write_text("x")
    (root / "link").symlink_to("file")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(5):
        read_bytes(f"{root}/file")
        replace_bytes(f"{root}/file", b"y")
        for path in ("link", "link/x", "none", "file/x", ""):
            with pytest.raises((OSError, ToolError)):
                open_file(f"{root}/{path}")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_file_that_is_read_whole_has_a_limit(root: Path) -> None:
    with (root / "large").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(ToolError, match="larger than 10 MB"):
        read_bytes(f"{root}/large")
