"""Datasets as Parquet, as `datasets` and others write them, are read as their rows."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq

from tests.formats.exchange import conversation, whole
from trajkit.formats.hf_messages import HF_MESSAGES
from trajkit.sources.files.importing import Wish, import_files
from trajkit.store.dataset import open_dataset

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"far": true}'}}
ROWS = [
    {
        "messages": [
            {"role": "user", "content": "where?", "tool_calls": None, "tool_call_id": None},
            {"role": "assistant", "content": None, "tool_calls": [CALL], "tool_call_id": None},
            {"role": "tool", "content": "a key", "tool_calls": None, "tool_call_id": "c1"},
            {"role": "assistant", "content": "Here.", "tool_calls": None, "tool_call_id": None},
        ],
        "score": 0.5,
    }
]


def test_rows_whose_messages_have_every_field_are_read(tmp_path):
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "train.parquet")
    imported, _ = import_files(tmp_path / "train.parquet", tmp_path / "store", Wish())
    assert (imported.format, imported.n_steps) == ("hf-messages", 2)
    (episode,) = open_dataset(tmp_path / "store")
    assert episode.steps[0].action == [{"name": "look", "arguments": {"far": True}}]
    assert episode.steps[1].messages[0].content[0].name == "look"
    assert episode.origin == {"file": "train.parquet:1", "columns": {"score": 0.5}}


def test_json_columns_are_json_wherever_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    import datasets

    given = [whole(), conversation(episode_id="e2")]
    rows = [HF_MESSAGES.write(episode).values[0] for episode in given]
    features = datasets.Features(
        {
            "episode_id": datasets.Value("string"),
            "messages": datasets.List(datasets.Json()),
            "tools": datasets.List(datasets.Json()),
            "metadata": datasets.Json(),
        }
    )
    datasets.Dataset.from_list(rows, features=features).to_parquet(str(tmp_path / "train.parquet"))
    imported, _ = import_files(tmp_path / "train.parquet", tmp_path / "store", Wish())
    assert imported.n_exact == 2
    assert sorted(open_dataset(tmp_path / "store"), key=lambda episode: episode.episode_id) == given


def test_columns_of_sharegpt_are_recognised(tmp_path):
    turns = [{"from": "human", "value": "x"}, {"from": "gpt", "value": "y"}]
    pq.write_table(pa.Table.from_pylist([{"conversations": turns}]), tmp_path / "a.parquet")
    imported, _ = import_files(tmp_path / "a.parquet", tmp_path / "store", Wish())
    assert (imported.format, imported.n_episodes) == ("sharegpt", 1)


def test_an_array_in_one_file_is_its_rows(tmp_path):
    turns = [{"from": "human", "value": "x"}, {"from": "gpt", "value": "y"}]
    path = tmp_path / "alpaca.json"
    path.write_text(json.dumps([{"conversations": turns}, {"conversations": []}, {"conversations": turns}]))
    imported, _ = import_files(path, tmp_path / "store", Wish(skip_bad=True))
    assert (imported.format, imported.n_episodes) == ("sharegpt", 2)
    assert imported.left == {"cannot be read: not sharegpt": 1}
    assert imported.problems == ("alpaca.json:2: the document: not sharegpt",)
