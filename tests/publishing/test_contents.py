"""What a repository holds: every configuration, within the limits of the Hub, and the stores again."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trajkit.commands.publication.publication import content_lines
from trajkit.errors import DataError, NothingMatched, RequestError, StoreError
from trajkit.publishing.facts import splits_of
from trajkit.publishing.files.contents import Contents, make_contents
from trajkit.publishing.files.restore import restore
from trajkit.publishing.files.shards import ShardWriter
from trajkit.schema import Episode, Transition, message
from trajkit.store.dataset import open_dataset
from trajkit.store.writer import write_episodes


def step(index: int = 0, **fields: Any) -> Transition:
    return Transition(
        **{
            "step_index": index,
            "messages": (message("user", f"look {index}"),),
            "completion": message("assistant", "go"),
            **fields,
        }
    )


def episode(name: str, *steps: Transition, **fields: Any) -> Episode:
    return Episode(**{"episode_id": name, "source": "test", "steps": steps or (step(),), **fields})


def contents(folder: Path, *paths: Path | str, **options: Any) -> Contents:
    folder.mkdir()
    return make_contents(splits_of(paths), folder, **options)


def test_each_split_comes_back_with_its_digest(sides: Path, published: Contents, tmp_path: Path) -> None:
    assert [store.split for store in published.record.stores] == ["train", "val"]
    for store in published.record.stores:
        manifest = restore(published.folder, store, tmp_path / store.split)
        assert manifest.digest == open_dataset(sides / store.split).store.manifest.digest


@pytest.mark.full
def test_the_same_stores_give_the_same_bytes(sides: Path, published: Contents, tmp_path: Path) -> None:
    assert contents(tmp_path / "again", sides).record == published.record


def test_rows_to_train_on_have_messages_tools_and_where_they_are_from(tmp_path: Path) -> None:
    tool = {"name": "look", "description": "", "parameters": {"type": "object"}}
    write_episodes(
        tmp_path / "store",
        [
            episode("a", step(tools=(tool,)), seed=3, task="goto", metrics={"score": 0.5}),
            episode("b", step(loss_weight=0.0, mask_reason="invalid"), step(1)),
        ],
        kind="test",
    )
    made = contents(tmp_path / "repo", tmp_path / "store")
    rows = pq.read_table(made.folder / "sft" / "train-00000-of-00001.parquet").to_pylist()
    assert rows[0]["messages"] == [
        {"role": "user", "content": "look 0"},
        {"role": "assistant", "content": "go"},
    ]
    assert [json.loads(each)["function"]["name"] for each in rows[0]["tools"]] == ["look"]
    about = json.loads(rows[0]["metadata"])
    assert (about["episode_id"], about["steps"], about["weights"]) == ("a", [0], [1.0])
    assert (about["seed"], about["task"], about["metrics"]) == (3, "goto", {"score": 0.5})
    assert [json.loads(row["metadata"])["steps"] for row in rows] == [[0], [1]]
    assert sum(made.rows[0].left.values()) == 1


@pytest.mark.full
def test_rows_are_prompts_with_completions_in_every_split_where_an_answer_is_only_context(
    tmp_path: Path,
) -> None:
    def talk(name: str, weight: float) -> Episode:
        second = step(1, n_prompt_kept=2, messages=(message("user", "and now?"),))
        return episode(name, step(loss_weight=weight), second)

    for split, weight in (("train", 0.0), ("val", 1.0)):
        write_episodes(tmp_path / "sides" / split, [talk(split, weight)], kind="test")
    made = contents(tmp_path / "repo", tmp_path / "sides")
    assert made.row_format == "trl-prompt-completion"
    assert [rows.left for rows in made.rows] == [{"weight 0": 1}, {}]
    found = {
        split: pq.read_table(made.folder / "sft" / f"{split}-00000-of-00001.parquet").to_pylist()
        for split in ("train", "val")
    }
    assert [[each["role"] for each in row["prompt"]] for row in found["train"]] == [
        ["user", "assistant", "user"]
    ]
    assert [row["completion"][0]["content"] for row in found["val"]] == ["go", "go"]
    assert [json.loads(row["metadata"])["steps"] for row in found["val"]] == [[0], [1]]
    text = "\n".join(content_lines(made))
    assert "written as trl-prompt-completion: trl-messages teaches every answer" in text


def test_evaluation_episodes_are_in_no_row_of_a_split_that_trains_and_alone_are_the_split_test(
    tmp_path: Path,
) -> None:
    write_episodes(
        tmp_path / "mixed", [episode("a", purpose="train"), episode("b", purpose="eval")], kind="test"
    )
    made = contents(tmp_path / "repo", tmp_path / "mixed")
    assert (made.rows[0].n_rows, made.rows[0].n_evaluation_left) == (1, 1)
    write_episodes(tmp_path / "store", [episode("a", purpose="eval")], kind="test")
    made = contents(tmp_path / "other", tmp_path / "store")
    assert (made.rows[0].split, made.rows[0].n_rows) == ("test", 1)


@pytest.mark.full
def test_values_too_wide_for_the_viewer_are_moved_counted_and_put_back(tmp_path: Path) -> None:
    wide = "x" * 3_000_000
    many = tuple(range(300_000))
    write_episodes(
        tmp_path / "store",
        [
            episode("a", step(observation=wide, prompt_token_ids=many), step(1)),
            episode("b", step(messages=(message("user", wide),)), tags={"note": wide}),
        ],
        kind="test",
    )
    made = contents(tmp_path / "repo", tmp_path / "store")
    assert {each.table: (each.n_rows, each.n_values) for each in made.record.moved} == {
        "episodes": (1, 1),
        "steps": (2, 3),
        "sft": (1, 1),
    }
    steps = pq.read_table(made.folder / "steps" / "train-00000-of-00001.parquet")
    assert steps.column("observation").to_pylist()[0] is None
    assert steps.nbytes < 100_000
    assert pq.read_metadata(made.folder / "sft" / "train-00000-of-00001.parquet").num_rows == 2
    manifest = restore(made.folder, made.record.stores[0], tmp_path / "back")
    assert manifest.digest == made.record.stores[0].digest
    (back, _) = open_dataset(tmp_path / "back")
    assert back.steps[0].observation == wide
    assert back.steps[0].prompt_token_ids == many


@pytest.mark.full
def test_splits_with_other_metrics_have_the_same_columns(tmp_path: Path) -> None:
    write_episodes(tmp_path / "train", [episode("a", metrics={"score": 1.0})], kind="test")
    write_episodes(tmp_path / "val", [episode("b", metrics={"other": True})], kind="test")
    made = contents(tmp_path / "repo", tmp_path / "train", tmp_path / "val")
    schemas = {
        pq.read_schema(made.folder / "episodes" / f"{split}-00000-of-00001.parquet").field("metrics").type
        for split in ("train", "val")
    }
    assert [field.name for field in schemas.pop()] == ["other", "score"]
    assert not schemas
    for store in made.record.stores:
        assert restore(made.folder, store, tmp_path / f"back-{store.split}").digest == store.digest


def test_a_metric_of_two_kinds_is_refused(tmp_path: Path) -> None:
    write_episodes(tmp_path / "train", [episode("a", metrics={"score": 1.0})], kind="test")
    write_episodes(tmp_path / "val", [episode("b", metrics={"score": True})], kind="test")
    with pytest.raises(DataError, match="'score' is"):
        contents(tmp_path / "repo", tmp_path / "train", tmp_path / "val")


def test_files_have_page_indexes_and_row_groups_that_the_viewer_opens(published: Contents) -> None:
    for file in published.record.files:
        metadata = pq.read_metadata(published.folder / file.path)
        for group in range(metadata.num_row_groups):
            assert metadata.row_group(group).total_byte_size < 286 << 20
            assert metadata.row_group(group).column(0).has_offset_index


def test_what_did_not_change_has_the_same_bytes_in_the_next_version(tmp_path: Path) -> None:
    """Content-defined chunks: rows before it do not move the others into other pages."""
    draw = random.Random(5)
    words = ["".join(draw.choices("abcdefgh", k=6)) for _ in range(500)]
    rows = [" ".join(draw.choices(words, k=60)) for _ in range(12_000)]
    data = []
    for name, more in (("one", 0), ("two", 40)):
        batch = pa.RecordBatch.from_pydict({"text": [*(f"new {n}" for n in range(more)), *rows]})
        with ShardWriter(tmp_path / name, batch.schema) as writer:
            writer.add(batch)
        data.append((tmp_path / name).read_bytes())
    probes = [data[0][at : at + 64] for at in range(10_000, len(data[0]) - 10_000, 5_000)]
    assert sum(probe in data[1] for probe in probes) > 0.6 * len(probes)


def test_a_part_that_changed_or_a_store_of_a_newer_version_is_told(tmp_path: Path) -> None:
    write_episodes(tmp_path / "store", [episode("a")], kind="test")
    part = tmp_path / "store" / "steps" / "part-00000.parquet"
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(bytes(data))
    with pytest.raises(StoreError, match="sha256 differs"):
        splits_of([tmp_path / "store"])
    path = tmp_path / "store" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": 99}))
    with pytest.raises(StoreError, match="store version 99"):
        splits_of([tmp_path / "store"])


def test_two_stores_of_one_name_and_an_empty_store_are_refused(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        write_episodes(tmp_path / folder / "train", [episode("a")], kind="test")
    with pytest.raises(RequestError, match="both the split 'train'"):
        splits_of([tmp_path / "one" / "train", tmp_path / "two" / "train"])
    write_episodes(tmp_path / "store", [], kind="test")
    with pytest.raises(NothingMatched, match="has no episodes"):
        splits_of([tmp_path / "store"])
