"""Every file that is written loads with `datasets`, as lines and as columns; folders; tables."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
import yaml

from tests.curation.rows.conftest import DatasetOf, episode, step
from tests.formats.exchange import call, result, say
from tests.matrix import daily
from trajkit.curation.merge import merge
from trajkit.curation.rows.file import convert
from trajkit.curation.rows.provenance import read_facts
from trajkit.curation.rows.writers.pairs import convert_pairs
from trajkit.errors import NothingMatched, RequestError, StoreError
from trajkit.formats import format_named, known
from trajkit.formats.base import EpisodeFormat, ExperienceFormat, PreferenceFormat, SftFormat, StartFormat
from trajkit.store.dataset import Dataset, open_dataset
from trajkit.store.writer import write_episodes

TOOL = {
    "name": "look",
    "description": "See",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
}
OTHER = {"name": "wait", "parameters": {"type": "object", "properties": {"s": {"type": "number"}}}}
TRAINING = [
    name
    for name in known()
    if not isinstance(format_named(name), EpisodeFormat | PreferenceFormat | ExperienceFormat | StartFormat)
]
DAILY = {"openai-sft", "trl-prompt-completion", "sharegpt", "text", "transitions"}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def load(path: Path, cache: Path) -> Any:
    kind = "parquet" if path.suffix == ".parquet" else "json"
    return datasets.load_dataset(kind, data_files=str(path), split="train", cache_dir=str(cache))


@pytest.fixture
def dataset(dataset_of: DatasetOf) -> Dataset:
    """Plain steps, and conversations with tools whose arguments have different fields."""
    tools = (
        step(0, tools=(TOOL,), completion=say("assistant", call("c1", arguments='{"at": "door"}'))),
        step(1, n_prompt_kept=3, messages=(say("tool", result("c1")),), tools=(TOOL,)),
    )
    others = (
        step(0, tools=(OTHER,), completion=say("assistant", call("c2", "wait", '{"s": 1.5}'))),
        step(1, n_prompt_kept=3, messages=(say("tool", result("c2", name="wait")),), tools=(OTHER,)),
    )
    return dataset_of(
        episode("a", n_steps=3, outcome="success"),
        episode("b", steps=tools, outcome="failure"),
        episode("c", steps=others, outcome="success"),
    )


@pytest.mark.parametrize("suffix", daily([".jsonl", ".parquet"], 1))
@pytest.mark.parametrize("name", daily(TRAINING, DAILY))
def test_what_is_written_loads_as_a_dataset(name: str, suffix: str, dataset: Dataset, tmp_path: Path) -> None:
    made = convert(dataset, tmp_path / f"train{suffix}", to=name)
    rows = load(made.path, tmp_path / "cache")
    assert len(rows) == made.n_rows
    form = format_named(name)
    if isinstance(form, SftFormat) and suffix == ".parquet":
        lines = convert(dataset, tmp_path / "lines.jsonl", to=name)
        expected = [json.loads(line) for line in lines.path.read_text().splitlines()]
        assert [_clean(row) for row in rows] == [_clean(row) for row in expected]


def _clean(value: Any) -> Any:
    """Without what is null, since columns have a place for it and lines have not."""
    match value:
        case dict():
            return {key: _clean(item) for key, item in value.items() if item is not None}
        case list():
            return [_clean(item) for item in value]
    return value


@pytest.mark.parametrize("suffix", daily([".jsonl", ".parquet"], 1))
@pytest.mark.parametrize("name", ["openai-dpo", "trl-preference", "trl-kto"])
def test_what_is_written_of_pairs_loads_as_a_dataset(name: str, suffix: str, tmp_path: Path) -> None:
    from tests.curation.rows.test_pairs import pair, turn

    pairs = [
        pair([turn("left")], [turn("right")]),
        pair(
            [turn(say("assistant", call("c", arguments='{"at": "x"}')))],
            [turn("right")],
            number=1,
            tools=(TOOL,),
            chosen_episode_id="o",
        ),
    ]
    made = convert_pairs(pairs, tmp_path / f"t{suffix}", to=name, source=tmp_path, digest="0" * 64)
    assert len(load(made.path, tmp_path / "cache")) == made.n_rows


@pytest.mark.parametrize("name", ["sharegpt", "axolotl"])
@pytest.mark.parametrize("kind", daily(["jsonl", "parquet"], 1))
def test_a_folder_has_the_rows_the_settings_and_the_command(
    name: str, kind: str, dataset: Dataset, tmp_path: Path
) -> None:
    made = convert(dataset, tmp_path / "run", to=name, kind=kind, model="org/model")
    assert made.data == tmp_path / "run" / f"train.{kind}"
    assert len(load(made.data, tmp_path / "cache")) == made.n_rows == 7
    assert made.provenance == tmp_path / "run" / "train.provenance.parquet"
    assert made.provenance.is_file()
    settings = yaml.safe_load((tmp_path / "run" / "train.yaml").read_text())
    assert "org/model" in settings.values()
    script = tmp_path / "run" / "train.sh"
    assert script.stat().st_mode & stat.S_IXUSR
    assert "train.yaml" in script.read_text()
    longest = (
        max(map(len, (tmp_path / "run" / "train.jsonl").read_bytes().splitlines())) if kind == "jsonl" else 1
    )
    assert settings.get("cutoff_len", settings.get("sequence_len")) >= longest


def test_llama_factory_is_told_of_the_columns_that_there_are(dataset: Dataset, tmp_path: Path) -> None:
    convert(dataset, tmp_path / "run", to="sharegpt")
    about = json.loads((tmp_path / "run" / "dataset_info.json").read_text())["trajkit"]
    assert about["columns"] == {"messages": "conversations", "tools": "tools"}
    assert (tmp_path / "run" / about["file_name"]).is_file()
    convert(dataset.where("episode_id = 'a'"), tmp_path / "plain", to="sharegpt")
    about = json.loads((tmp_path / "plain" / "dataset_info.json").read_text())["trajkit"]
    assert about["columns"] == {"messages": "conversations"}


def test_a_file_name_gives_the_rows_alone(dataset: Dataset, tmp_path: Path) -> None:
    made = convert(dataset, tmp_path / "rows.jsonl", to="sharegpt")
    assert made.path == made.data
    assert sorted(path.name for path in tmp_path.glob("rows*")) == ["rows.jsonl", "rows.provenance.parquet"]


def test_transitions_have_prompt_action_reward_and_done(tmp_path: Path, dataset_of: DatasetOf) -> None:
    steps = (
        step(0, action={"go": 1}, reward=0.0, terminated=False, truncated=False),
        step(1, action="left", reward=0.5, terminated=False, truncated=True, loss_weight=0, mask_reason="x"),
        step(2, action="left", action_executed="turn left"),
    )
    dataset = dataset_of(episode("a", steps=steps, seed=7, env_id="e"))
    made = convert(dataset, tmp_path / "t.parquet", to="transitions")
    rows = load(made.path, tmp_path / "cache")
    assert [(row["action"], row["reward"], row["done"]) for row in rows] == [
        ('{"go":1}', 0.0, False),
        ("left", 0.5, True),
        ("turn left", None, None),
    ]
    assert rows[0]["prompt"][1]["content"][0]["text"] == "turn 0"
    assert (rows[1]["seed"], rows[1]["mask_reason"]) == (7, "x")
    assert made.provenance is None


def test_a_step_is_one_row_of_a_table_whichever_part_of_the_store_it_is_in(tmp_path: Path) -> None:
    parts = [[episode("a"), episode("c")], [episode("b")]]
    for number, episodes in enumerate(parts):
        write_episodes(tmp_path / str(number), episodes, kind="test")
    merge([tmp_path / "0", tmp_path / "1"], tmp_path / "whole")
    dataset = open_dataset(tmp_path / "whole")
    assert len(dataset.store.parts("steps")) == 2
    made = convert(dataset, tmp_path / "t.jsonl", to="transitions")
    assert made.n_rows == made.n_steps


def test_answers_are_good_by_outcome_or_by_a_condition(tmp_path: Path, dataset_of: DatasetOf) -> None:
    dataset = dataset_of(
        *(
            episode(name, n_steps=1, outcome=outcome, metrics={"score": score})
            for name, outcome, score in (("a", "success", 0.2), ("b", "failure", 0.9), ("c", "unknown", 0.8))
        )
    )
    made = convert(dataset, tmp_path / "o.jsonl", to="trl-kto")
    assert [json.loads(line)["label"] for line in made.path.read_text().splitlines()] == [True, False]
    assert made.left == {"neither good nor bad": 1}
    asked = convert(dataset, tmp_path / "s.jsonl", to="trl-kto", good="score > 0.5")
    assert [json.loads(line)["label"] for line in asked.path.read_text().splitlines()] == [False, True, True]


def test_a_store_gives_no_preferences(tmp_path: Path, dataset_of: DatasetOf) -> None:
    with pytest.raises(RequestError, match="trl-preference is made of pairs") as caught:
        convert(dataset_of(episode()), tmp_path / "t.jsonl", to="trl-preference")
    assert "trajkit pairs" in (caught.value.hint or "")


def test_nothing_is_left_behind_when_a_folder_cannot_be_finished(
    tmp_path: Path, dataset_of: DatasetOf
) -> None:
    dataset = dataset_of(episode(steps=(step(0, loss_weight=0),)))
    with pytest.raises(NothingMatched):
        convert(dataset, tmp_path / "run", to="axolotl")
    (tmp_path / "other.provenance.parquet").write_text("mine")
    with pytest.raises(StoreError, match=r"other\.provenance\.parquet exists already"):
        convert(dataset_of(episode(), name="good"), tmp_path / "other.jsonl", to="openai-sft")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good", "other.provenance.parquet", "store"]


def test_the_provenance_of_a_file_that_is_gone_is_replaced(dataset: Dataset, tmp_path: Path) -> None:
    made = convert(dataset.where("episode_id = 'a'"), tmp_path / "t.jsonl", to="openai-sft")
    made.path.unlink()
    again = convert(dataset, tmp_path / "t.jsonl", to="openai-sft")
    assert read_facts(again.provenance)["conversion"]["n_rows"] == 7


@pytest.mark.parametrize("name", daily([n for n in known() if isinstance(format_named(n), EpisodeFormat)], 2))
def test_whole_episodes_are_written_as_documents(name: str, dataset: Dataset, tmp_path: Path) -> None:
    form = format_named(name)
    made = convert(dataset, tmp_path / ("out" if form.is_file else "out.jsonl"), to=form)
    assert (made.n_episodes, made.n_steps) == (3, 7)
    if form.is_file:
        assert made.n_rows == 3
        files = sorted(path.name for path in made.path.iterdir())
        assert [name.partition(".")[0] for name in files] == ["a", "b", "c"]
        texts = [path.read_text() for path in sorted(made.path.iterdir())]
        documents = [
            [json.loads(line) for line in text.splitlines()] if form.is_lines else [json.loads(text)]
            for text in texts
        ]
        with pytest.raises(RequestError, match="writes a file per episode"):
            convert(dataset, tmp_path / "x.jsonl", to=form)
    else:
        documents = [[json.loads(line)] for line in made.path.read_text().splitlines()]
        assert made.n_rows == len(documents)
    assert sum(form.read(values).n_steps for values in documents) == 7
