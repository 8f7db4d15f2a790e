from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.store.test_mutations import sealed
from trajkit.errors import StoreError
from trajkit.schema import STORE_VERSION
from trajkit.store.dataset import Dataset, open_dataset
from trajkit.store.query import ask
from trajkit.store.reader import Store, open_store, recomputed_digest, verify, verifying
from trajkit.store.summary import summarize


def edit_manifest(store: Store, **changes: Any) -> None:
    path = store.path / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_folder_without_a_manifest_and_a_name_of_nothing_are_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"is not a store: it has no manifest\.json") as caught:
        open_store(tmp_path)
    assert caught.value.hint == "a run that was killed leaves none"
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "manifest.json").touch()
    with pytest.raises(StoreError, match="is not a store") as caught:
        open_store(tmp_path)
    assert caught.value.hint == "it holds train"
    with pytest.raises(StoreError, match=r"there is no store at .*missing"):
        open_store(tmp_path / "missing")


def test_a_store_of_a_newer_version_says_what_to_install(ten: Store) -> None:
    edit_manifest(ten, format_version=STORE_VERSION + 1, something_new=True)
    with pytest.raises(
        StoreError, match="was written by store version 2; this trajkit reads up to 1"
    ) as caught:
        open_store(ten.path)
    assert caught.value.hint == "pip install -U trajkit"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "manifest.json is not valid JSON"),
        ("[]", "manifest.json: Input should be an object"),
        ('{"digest": "x"}', "manifest.json: kind: Field required"),
        ("\\xff", "manifest.json is not valid JSON"),
    ],
)
def test_a_damaged_manifest_is_named(ten: Store, text: str, message: str) -> None:
    (ten.path / "manifest.json").write_text(text)
    with pytest.raises(StoreError) as caught:
        open_store(ten.path)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ep-1", r"episodes has the episode 'ep-1' 2 times"),
        ("", r"part-00000\.parquet, row 0: episode_id is null or empty"),
        (None, r"part-00000\.parquet, row 0: episode_id is null or empty"),
    ],
)
def test_each_episode_must_have_an_id_of_its_own(ten: Store, name: str | None, said: str) -> None:
    part = ten.parts("episodes")[0]
    table = pq.read_table(part)
    ids = [name, *table.column("episode_id").to_pylist()[1:]]
    at = table.schema.get_field_index("episode_id")
    pq.write_table(table.set_column(at, "episode_id", pa.array(ids)), part)
    sealed(ten.path)
    with pytest.raises(StoreError, match=said):
        list(open_dataset(ten.path))


def test_a_part_outside_the_store_and_a_table_without_parts_are_refused(ten: Store) -> None:
    parts = json.loads((ten.path / "manifest.json").read_text())["parts"]
    edit_manifest(ten, parts=[{**parts[0], "path": "../../etc/passwd"}, *parts[1:]])
    with pytest.raises(StoreError, match=r"'../../etc/passwd' cannot be a part of a store"):
        open_store(ten.path)
    edit_manifest(ten, parts=[part for part in parts if "steps/" not in part["path"]])
    with pytest.raises(StoreError, match="lists no part of steps"):
        open_store(ten.path)


def test_a_part_that_was_cut_is_named_with_both_sizes_and_a_missing_one_too(ten: Store) -> None:
    part = ten.parts("feedback")[0]
    size = part.stat().st_size
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(
        StoreError, match=f"part-00000.parquet has {size - 1} bytes; the manifest says {size}"
    ):
        open_store(ten.path)
    part.unlink()
    with pytest.raises(StoreError, match=r"feedback/part-00000.parquet is missing"):
        open_store(ten.path)


def read_episodes(store: Store) -> None:
    list(Dataset(store))


def read_columns(store: Store) -> None:
    Dataset(store).arrow("steps").read_all()


def read_by_query(store: Store) -> None:
    with ask(store, "SELECT 1") as answer:
        list(answer.rows())


@pytest.mark.parametrize(
    ("read", "table"),
    [
        (read_episodes, "episodes"),
        (read_columns, "feedback"),
        (read_by_query, "steps"),
        (summarize, "feedback"),
        (verify, "steps"),
    ],
)
def test_a_flipped_byte_is_never_read(ten: Store, table: str, read: Callable[[Store], None]) -> None:
    flip_a_byte(ten.parts(table)[0])
    store = open_store(ten.path)
    with pytest.raises(StoreError, match=rf"{table}/part-00000.parquet is not the file that was written"):
        read(store)


def test_a_byte_flipped_after_a_first_read_is_seen_too(ten: Store) -> None:
    verify(ten)
    flip_a_byte(ten.parts("steps")[0])
    with pytest.raises(StoreError, match="its sha256 differs"):
        verify(ten)


def test_what_is_read_beside_the_check_is_not_kept_when_the_store_is_damaged(ten: Store) -> None:
    flip_a_byte(ten.parts("steps")[0])
    message = "steps/part-00000.parquet is not the file"
    with pytest.raises(StoreError, match=message), verifying(open_store(ten.path)):
        pass
    with pytest.raises(StoreError, match=message), verifying(open_store(ten.path)) as verified:
        verified()
    # damage explains what went wrong with what was read
    with pytest.raises(StoreError, match=message), verifying(open_store(ten.path)):
        raise duckdb.InvalidInputException("not a Parquet file")


def test_what_goes_wrong_beside_the_check_of_a_whole_store_is_told_as_it_is(ten: Store) -> None:
    with pytest.raises(ZeroDivisionError), verifying(ten):
        raise ZeroDivisionError


def test_the_deep_check_sees_content_that_is_not_what_was_hashed(ten: Store) -> None:
    verify(ten, deep=True)
    edit_manifest(ten, digest="0" * 64)
    with pytest.raises(StoreError, match=f"content digest {ten.manifest.digest}; its manifest says 0000"):
        verify(open_store(ten.path), deep=True)


def test_the_digest_is_computed_from_the_rows_and_not_from_their_hashes(ten: Store) -> None:
    part = ten.parts("episodes")[0]
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE e AS SELECT * REPLACE ('x' AS content_hash) FROM '{part}'")
        connection.execute(f"COPY e TO '{part}' (FORMAT parquet)")
    assert recomputed_digest(ten) == ten.manifest.digest


def test_a_store_may_be_moved_and_other_files_in_the_folder_do_not_matter(ten: Store, tmp_path: Path) -> None:
    (ten.path / "README.md").write_text("How it was made.")
    shutil.move(ten.path, tmp_path / "elsewhere")
    verify(open_store(tmp_path / "elsewhere"), deep=True)


def test_an_unknown_sample_lists_the_known_ones() -> None:
    with pytest.raises(StoreError, match="there is no sample 'chess'") as caught:
        open_store("sample:chess")
    assert caught.value.hint.startswith("samples: ")
