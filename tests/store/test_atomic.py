"""Files are replaced whole, privately, or not at all."""

import os
import stat
from pathlib import Path

import pytest

from pyagentd.errors import StoreError
from pyagentd.store import atomic


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_text_is_written_as_it_is_and_only_the_owner_may_read_it(tmp_path):
    file = tmp_path / "a.md"
    file.write_text("old")
    file.chmod(0o644)
    atomic.write_text(file, "line\r\nzwei ✓\n")
    assert file.read_bytes() == "line\r\nzwei ✓\n".encode()
    assert mode(file) == 0o600


def test_a_failed_write_keeps_the_old_file_and_leaves_no_temporary_one(tmp_path):
    target = tmp_path / "taken"
    target.mkdir()
    (target / "inside").touch()
    with pytest.raises(StoreError, match=str(target)):
        atomic.write_text(target, "text")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_what_utf8_cannot_hold_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(StoreError, match=r"a\.md"):
        atomic.write_text(tmp_path / "a.md", "\ud800")
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_the_place_of_a_file_is_replaced_and_its_target_untouched(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    link = tmp_path / "session.md"
    link.symlink_to(victim)
    atomic.write_text(link, "new")
    assert victim.read_text() == "mine"
    assert not link.is_symlink()
    assert link.read_text() == "new"


def test_what_people_write_too_keeps_its_permissions_and_where_wanted_the_link_to_it(tmp_path):
    kept, link, new = tmp_path / "kept.toml", tmp_path / "config.toml", tmp_path / "new"
    kept.write_text("old")
    kept.chmod(0o644)
    link.symlink_to(kept)
    atomic.rewrite_text(link, "mine", links=True)
    assert link.is_symlink() and kept.read_text() == "mine" and mode(kept) == 0o644
    atomic.rewrite_text(link, "other")
    assert not link.is_symlink() and kept.read_text() == "mine" and mode(link) == 0o644
    atomic.rewrite_text(new, "")
    assert mode(new) == 0o600


def test_only_the_first_makes_an_exclusive_directory(tmp_path):
    assert atomic.make_dir_exclusive(tmp_path / "d")
    assert not atomic.make_dir_exclusive(tmp_path / "d")
    assert mode(tmp_path / "d") == 0o700


def test_missing_directories_are_made_private_and_existing_ones_kept(tmp_path):
    (tmp_path / "a").mkdir(mode=0o755)
    atomic.make_dirs(tmp_path / "a" / "b" / "c")
    assert mode(tmp_path / "a" / "b") == 0o700
    assert mode(tmp_path / "a") == 0o755


def test_a_file_in_the_place_of_a_directory_is_an_error(tmp_path):
    (tmp_path / "a").touch()
    with pytest.raises(StoreError):
        atomic.make_dirs(tmp_path / "a" / "b")


def test_appending_adds_to_the_end_of_a_private_file(tmp_path):
    file = tmp_path / "log"
    for text in (b"one\n", b"two\n"):
        fd = atomic.open_append(file)
        atomic.append_fd(fd, text, file)
        atomic.sync_fd(fd, file)
        os.close(fd)
    assert file.read_bytes() == b"one\ntwo\n"
    assert mode(file) == 0o600


def test_appending_through_a_planted_link_is_refused(tmp_path):
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        atomic.open_append(tmp_path / "log")
    assert not (tmp_path / "elsewhere").exists()


def test_a_link_is_replaced_by_the_new_one(tmp_path):
    atomic.replace_link(tmp_path / "current", "branches/main")
    atomic.replace_link(tmp_path / "current", "branches/other")
    assert (tmp_path / "current").readlink() == Path("branches/other")
    assert [path.name for path in tmp_path.iterdir()] == ["current"]


def test_the_copy_of_a_program_is_one_and_for_its_owner_alone(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name, mode in (("run.sh", 0o755), ("notes", 0o644)):
        (source / name).write_text(name)
        (source / name).chmod(mode)
    atomic.copy_tree(source, tmp_path / "copy")
    modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in (tmp_path / "copy").iterdir()}
    assert modes == {"run.sh": 0o700, "notes": 0o600}
