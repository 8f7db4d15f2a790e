"""The starts of episodes for a trainer that plays from them: each once, with what is repeated counted."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.curation.rows.conftest import DatasetOf, episode
from trajkit.curation.rows.file import convert
from trajkit.errors import DataError, NothingMatched, RequestError
from trajkit.formats.validation.file import validate
from trajkit.store.dataset import Dataset


@pytest.fixture
def attempts(dataset_of: DatasetOf) -> Dataset:
    """Two attempts at one start, one at another, and two episodes that cannot be played again."""
    return dataset_of(
        episode("a", env_id="maze", task="out", seed=4, total_reward=0.5),
        episode("b", env_id="maze", task="out", seed=4, total_reward=0.0, initial_state_hash="00"),
        episode("c", env_id="maze", task="in", seed=7, n_steps=3),
        episode("d", env_id="maze", task="in"),
        episode("e", seed=1, task="in"),
    )


def test_each_start_is_a_row_and_what_it_does_not_say_is_counted(attempts: Dataset, tmp_path: Path) -> None:
    made = convert(attempts, tmp_path / "starts.jsonl", to="trl-grpo", skip_bad=True)
    rows = [json.loads(line) for line in made.path.read_text().splitlines()]
    assert [(row["environment"], row["task"], row["seed"]) for row in rows] == [
        ("maze", "in", 7),
        ("maze", "out", 4),
    ]
    assert [message["role"] for row in rows for message in row["prompt"]] == ["user", "user"]
    assert made.losses == {"episode reward": 2, "initial state": 1, "repeated start": 1}
    assert made.left == {
        "the trainer plays anew": 7,
        "would be refused: no environment that can be played again": 2,
        "would be refused: no seed, so its world cannot be begun again": 2,
    }
    assert (made.n_rows, made.n_learned, made.n_steps) == (2, 0, 11)
    assert validate(made.path, target="trl").findings == ()
    columns = convert(attempts, tmp_path / "starts.parquet", to="trl-grpo", skip_bad=True)
    assert pq.read_table(columns.path).to_pylist() == rows


def test_an_episode_that_cannot_be_played_again_is_refused(attempts: Dataset, tmp_path: Path) -> None:
    goal = tmp_path / "starts.jsonl"
    with pytest.raises(
        DataError, match=r"2 rows would be refused as trl-grpo.*episode d: seed: no seed"
    ) as caught:
        convert(attempts, goal, to="trl-grpo")
    assert "trajkit rl local --from" in str(caught.value.hint)
    with pytest.raises(NothingMatched, match="no step of"):
        convert(attempts.where("seed IS NULL"), goal, to="trl-grpo", skip_bad=True)
    with pytest.raises(
        DataError, match="trl-grpo cannot carry 2 episode rewards, 1 initial state, 1 repeated start"
    ):
        convert(attempts.where("task = 'out'"), goal, to="trl-grpo", strict=True)
    with pytest.raises(RequestError, match="--unit makes no sense with trl-grpo"):
        convert(attempts, goal, to="trl-grpo", unit="episode")
    assert list(tmp_path.glob("starts*")) == []
