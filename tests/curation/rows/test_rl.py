"""Sampled tokens as Tinker, verl and prime-rl take them, with what each cannot carry counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.curation.rows.conftest import DatasetOf, episode, step
from trajkit.curation.rows.conversion import Conversion
from trajkit.curation.rows.file import convert
from trajkit.errors import DataError, NothingMatched, RequestError
from trajkit.store.dataset import Dataset


@pytest.fixture
def played(dataset_of: DatasetOf) -> Dataset:
    """Two turns that are one row, and a turn that begins one."""
    turns: list[tuple[tuple[int, ...], tuple[int, ...], float]] = [
        ((1, 2), (3, 4), 0.5),
        ((1, 2, 3, 4, 5), (6,), -1.0),
        ((9, 8), (7,), 2.0),
    ]
    steps = [
        step(
            number,
            prompt_token_ids=prompt,
            completion_token_ids=answer,
            logprobs=tuple(-token / 4 for token in answer),
            model_version="v1",
            loss_weight=weight,
        )
        for number, (prompt, answer, weight) in enumerate(turns)
    ]
    return dataset_of(episode("a", steps=tuple(steps), env_id="e", task="t", seed=3, total_reward=0.5))


def written(dataset: Dataset, goal: Path, **options: Any) -> tuple[Conversion, list[dict[str, Any]]]:
    made = convert(dataset, goal, **options)
    return made, [json.loads(line) for line in goal.read_text().splitlines()]


def test_tinker_compares_each_token_with_the_one_after_it(played: Dataset, tmp_path: Path) -> None:
    made, (both, last) = written(played, tmp_path / "r.jsonl", to="tinker")
    assert both["model_input"] == {"chunks": [{"type": "encoded_text", "tokens": [1, 2, 3, 4, 5]}]}
    assert both["loss_fn_inputs"] == {
        "target_tokens": {"data": [2, 3, 4, 5, 6], "dtype": "int64", "shape": [5]},
        "logprobs": {"data": [0, -0.75, -1, 0, -1.5], "dtype": "float32", "shape": [5]},
        "advantages": {"data": [0, 0.5, 0.5, 0, -1], "dtype": "float32", "shape": [5]},
        "mask": {"data": [0, 1, 1, 0, 1], "dtype": "float32", "shape": [5]},
    }
    assert last["loss_fn_inputs"]["target_tokens"]["data"] == [8, 7]
    assert (made.n_rows, made.n_learned, made.n_tokens, made.is_exact) == (2, 3, 9, True)
    assert made.losses["model version"] == made.losses["group"] == 2
    assert made.warnings == ("1 step forked: their prompts do not extend the step before",)


def test_verl_has_prompt_and_response_with_a_mask(played: Dataset, tmp_path: Path) -> None:
    made, (both, _) = written(played, tmp_path / "r.jsonl", to="verl")
    assert both == {
        "uid": '["world","e","t","3"]',
        "prompts": [1, 2],
        "responses": [3, 4, 5, 6],
        "response_mask": [1, 1, 0, 1],
        "rollout_log_probs": [-0.75, -1, 0, -1.5],
        "advantages": [0.5, 0.5, 0, -1],
        "reward": 0.5,
        "data_source": "e",
    }
    assert "group" not in made.losses


def test_a_sample_of_prime_rl_is_a_step_with_one_advantage(played: Dataset, tmp_path: Path) -> None:
    _, rows = written(played, tmp_path / "r.jsonl", to="prime-rl")
    assert [row["advantage"] for row in rows] == [0.5, -1, 2]
    assert rows[1] == {
        "prompt_ids": [1, 2, 3, 4, 5],
        "prompt_mask": [False] * 5,
        "completion_ids": [6],
        "completion_mask": [True],
        "completion_logprobs": [-1.5],
        "advantage": -1,
        "reward": 0.5,
    }
    with pytest.raises(RequestError, match="a row of prime-rl is one step, and not --unit episode"):
        convert(played, tmp_path / "e.jsonl", to="prime-rl", unit="episode")


def test_columns_say_what_lines_do(played: Dataset, tmp_path: Path) -> None:
    for name in ("tinker", "verl", "prime-rl"):
        _, rows = written(played, tmp_path / f"{name}.jsonl", to=name, unit="step")
        made = convert(played, tmp_path / f"{name}.parquet", to=name, unit="step")
        assert pq.read_table(made.path).to_pylist() == rows
        assert len(rows) == 3


def test_what_cannot_be_carried_fails_when_nothing_may_be_lost(played: Dataset, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="tinker cannot carry 2 environments, 2 episode rewards, 2 groups"):
        convert(played, tmp_path / "r.jsonl", to="tinker", strict=True)
    assert list(tmp_path.glob("r*")) == []


def test_a_store_without_tokens_says_so(dataset_of: DatasetOf, tmp_path: Path) -> None:
    dataset = dataset_of(episode("a", steps=(step(0), step(1))))
    with pytest.raises(NothingMatched) as caught:
        convert(dataset, tmp_path / "r.jsonl", to="verl")
    assert caught.value.hint == "steps left out: 2 no token ids"
