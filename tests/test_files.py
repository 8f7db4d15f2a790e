from __future__ import annotations

import hashlib
import stat

import pytest

from trajkit._core.files import GrowingFile, building_folder, replacing, sha256_file, write_json, write_text
from trajkit.errors import StoreError


def test_a_file_has_its_name_only_when_it_is_whole(tmp_path):
    goal = tmp_path / "deep" / "file.txt"
    with replacing(goal) as temporary:
        temporary.write_text("half")
        assert not goal.exists()
        assert temporary.parent == goal.parent
    assert goal.read_text() == "half"
    assert [path.name for path in goal.parent.iterdir()] == ["file.txt"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    goal = tmp_path / "file.txt"
    write_text(goal, "old")

    def write() -> None:
        with replacing(goal) as temporary:
            temporary.write_text("new")
            raise RuntimeError("on the way")

    with pytest.raises(RuntimeError, match="on the way"):
        write()
    assert goal.read_text() == "old"
    assert list(tmp_path.iterdir()) == [goal]


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 1_000_003])
def test_a_growing_file_has_every_byte_in_order(tmp_path, size):
    data = bytes(position * 7 % 251 for position in range(size))
    with GrowingFile(tmp_path / "file") as file:
        assert file.write(b"first") == 5
        assert file.write(memoryview(data)) == size
        assert file.write(b"last") == 4
    assert (tmp_path / "file").read_bytes() == b"first" + data + b"last"


def test_a_private_file_is_private_before_it_has_its_name(tmp_path):
    goal = tmp_path / "secret.json"
    with replacing(goal, mode=0o600) as temporary:
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
    write_json(goal, {"ü": 1}, mode=0o600)
    assert goal.read_text(encoding="utf-8") == '{\n  "ü": 1\n}\n'
    assert stat.S_IMODE(goal.stat().st_mode) == 0o600


def test_a_folder_that_exists_is_refused_before_anything_is_made(tmp_path):
    goal = tmp_path / "store"
    goal.mkdir()
    with (
        pytest.raises(StoreError, match=r"store exists already \(choose another path"),
        building_folder(goal),
    ):
        pytest.fail("the block must not run")
    assert list(tmp_path.iterdir()) == [goal]


def test_a_place_below_a_file_is_refused_before_anything_is_made(tmp_path):
    (tmp_path / "file").touch()
    goal = tmp_path / "file" / "more" / "store"
    for making in (building_folder, replacing):
        with (
            pytest.raises(StoreError, match=r"store cannot be written: .*/file is not a folder"),
            making(goal),
        ):
            pytest.fail("the block must not run")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_dangling_link_is_in_the_way_too(tmp_path):
    goal = tmp_path / "store"
    goal.symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="exists already"), building_folder(goal):
        pytest.fail("the block must not run")


def test_a_folder_takes_its_name_when_the_block_ends_well_and_goes_when_not(tmp_path):
    goal = tmp_path / "store"

    def stop_on_the_way() -> None:
        with building_folder(goal) as folder:
            (folder / "part").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop_on_the_way()
    assert list(tmp_path.iterdir()) == []
    with building_folder(goal) as folder:
        (folder / "part").write_text("whole")
    assert (goal / "part").read_text() == "whole"


def test_a_checksum_is_of_all_the_bytes(tmp_path):
    content = bytes(range(256)) * 5000  # more than one piece of 1 MiB
    (tmp_path / "file").write_bytes(content)
    assert sha256_file(tmp_path / "file") == hashlib.sha256(content).hexdigest()
