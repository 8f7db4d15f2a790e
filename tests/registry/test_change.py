from __future__ import annotations

import os
from pathlib import Path

import pytest

from trajkit.errors import ConfigError
from trajkit.registry.change import check_undo, check_writable, diff, undo, undo_diff, write
from trajkit.registry.toml_file import Configuration

ONE, TWO = "# one\n[a]\nx = 1\n", "# two\n[b]\ny = 1\n"


@pytest.fixture
def before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configuration:
    monkeypatch.chdir(tmp_path)
    Path("config").mkdir()
    Path("config/one.toml").write_text(ONE)
    Path("config/two.toml").write_text(TWO)
    return Configuration.read("config/*.toml")


def changed(before: Configuration) -> Configuration:
    first, second = before.files
    after = before.replacing(first.with_value(("a", "x"), 2))
    return after.replacing(second.with_value(("b", "y"), 2))


def test_a_diff_shows_each_file_that_changes(before: Configuration) -> None:
    after = before.replacing(before.files[1].with_value(("b", "y"), 2))
    lines = diff(before, after)
    assert lines[:2] == ["--- config/two.toml", "+++ config/two.toml"]
    assert lines[-2:] == ["-y = 1", "+y = 2"]
    assert diff(before, before) == []


def test_what_is_written_is_taken_back_to_the_last_byte(before: Configuration) -> None:
    Path("config/one.toml").chmod(0o664)
    done = write(before, changed(before), Path("backups"))
    assert Path("config/one.toml").read_text() == ONE.replace("1", "2")
    assert Path("config/two.toml").read_text() == TWO.replace("1", "2")
    assert Path("config/one.toml").stat().st_mode & 0o777 == 0o664
    assert undo_diff(done)[-2:] == ["-y = 2", "+y = 1"]
    undo(done)
    assert (Path("config/one.toml").read_text(), Path("config/two.toml").read_text()) == (ONE, TWO)


def test_a_link_stays_one(before: Configuration) -> None:
    Path("real.toml").write_text(ONE)
    Path("link.toml").symlink_to("real.toml")
    linked = Configuration.read("link.toml")
    done = write(linked, linked.replacing(linked.files[0].with_value(("a", "x"), 5)), Path("backups"))
    assert Path("link.toml").is_symlink()
    assert Path("real.toml").read_text() == ONE.replace("1", "5")
    undo(done)
    assert Path("real.toml").read_text() == ONE


def test_what_somebody_changed_meanwhile_is_left_alone(before: Configuration) -> None:
    Path("config/two.toml").write_text(TWO + "z = 3\n")
    with pytest.raises(ConfigError, match=r"two\.toml was changed by another program"):
        write(before, changed(before), Path("backups"))
    assert Path("config/one.toml").read_text() == ONE
    assert Path("config/two.toml").read_text() == TWO + "z = 3\n"


def test_a_read_only_file_is_not_written(before: Configuration) -> None:
    Path("config/two.toml").chmod(0o444)
    for refused in (check_writable, lambda old, new: write(old, new, Path("backups"))):
        with pytest.raises(ConfigError, match=r"two\.toml is read-only"):
            refused(before, changed(before))
    assert Path("config/one.toml").read_text() == ONE


def test_no_file_is_written_when_the_second_one_cannot_be_made(before: Configuration) -> None:
    long = Path(f"config/{'x' * 240}.toml")  # with the name of its temporary file it is too long
    Path("config/two.toml").rename(long)
    before = Configuration.read("config/*.toml")
    with pytest.raises(ConfigError, match=r"\.toml cannot be written: File name too long"):
        write(before, changed(before), Path("backups"))
    assert (Path("config/one.toml").read_text(), long.read_text()) == (ONE, TWO)


def test_all_files_are_written_or_none(before: Configuration) -> None:
    # where the copy of the second file would go is a folder: the first one is written by then
    Path("backups/1-two.toml/in-the-way").mkdir(parents=True)
    Path("backups/1-two.toml/two.toml").mkdir()
    with pytest.raises(ConfigError, match="cannot be written"):
        write(before, changed(before), Path("backups"))
    assert (Path("config/one.toml").read_text(), Path("config/two.toml").read_text()) == (ONE, TWO)
    assert sorted(path.name for path in Path("config").iterdir()) == ["one.toml", "two.toml"]


def test_what_was_changed_since_is_not_taken_back(before: Configuration) -> None:
    done = write(before, changed(before), Path("backups"))
    Path("config/two.toml").write_text("# mine\n")
    with pytest.raises(ConfigError, match="was changed since"):
        undo(done)
    assert Path("config/one.toml").read_text() == ONE.replace("1", "2")
    Path("config/two.toml").unlink()
    with pytest.raises(ConfigError, match="is gone"):
        check_undo(done)
    done[0].backup.write_text("other")
    with pytest.raises(ConfigError, match="the old copy of"):
        check_undo(done)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to another user: sudo make test")
def test_root_leaves_a_file_to_its_owner(before: Configuration) -> None:
    path = Path("config/one.toml")
    os.chown(path, 12345, 23456)
    path.chmod(0o640)
    done = write(before, changed(before), Path("backups"))
    for _ in range(2):
        status = path.stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (12345, 23456, 0o640)
        if path.read_text() != ONE:
            undo(done)
    assert path.read_text() == ONE


def test_extended_attributes_stay(before: Configuration) -> None:
    path = Path("config/one.toml")
    try:
        os.setxattr(path, "user.reviewed", b"yes")
    except OSError:
        pytest.skip("this file system has no extended attributes: set TMPDIR to one that has")
    undo(write(before, changed(before), Path("backups")))
    assert os.getxattr(path, "user.reviewed") == b"yes"
    write(before, changed(before), Path("more"))
    assert os.getxattr(path, "user.reviewed") == b"yes"


def test_a_file_with_two_names_is_refused(before: Configuration) -> None:
    os.link("config/one.toml", "other-name.toml")
    for refused in (check_writable, lambda old, new: write(old, new, Path("backups"))):
        with pytest.raises(ConfigError, match=r"one\.toml has 2 hard links"):
            refused(before, changed(before))
    assert Path("config/one.toml").read_text() == Path("other-name.toml").read_text() == ONE
