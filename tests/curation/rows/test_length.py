"""Rows that are too long, counted with the estimate of four characters a token, which needs no vocabulary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.curation.rows.conftest import DatasetOf, episode
from tests.formats.exchange import call, result, say
from trajkit.curation.rows.file import convert
from trajkit.curation.rows.length import history, without
from trajkit.errors import DataError, RequestError
from trajkit.formats.base import Example
from trajkit.schema import Transition, message
from trajkit.store.dataset import Dataset

# 3 for each message and 3 for the reply, and a token for every four characters
SYSTEM, TURN, ANSWER = "s" * 40, "u" * 40, "a" * 40
N_MESSAGE = 3 + 10


def chat(n_turns: int) -> tuple[Transition, ...]:
    steps = []
    for index in range(n_turns):
        first = (message("system", SYSTEM), message("user", TURN))
        steps.append(
            Transition(
                step_index=index,
                n_prompt_kept=2 * index + 1 if index else 0,
                messages=(message("user", f"{index}" + TURN[1:]),) if index else first,
                completion=message("assistant", f"{index}" + ANSWER[1:]),
            )
        )
    return tuple(steps)


def rows_of(path: Path) -> list[list[dict[str, Any]]]:
    return [json.loads(line)["messages"] for line in path.read_text().splitlines()]


@pytest.fixture
def dataset(dataset_of: DatasetOf) -> Dataset:
    return dataset_of(episode("ep", steps=chat(4)))


def test_tokens_are_counted_where_a_tokenizer_is_named(dataset: Dataset, tmp_path: Path) -> None:
    made = convert(dataset, tmp_path / "t.jsonl", to="openai-sft", tokenizer="estimate")
    assert made.n_tokens == sum(3 + n * N_MESSAGE for n in (3, 5, 7, 9))
    assert made.is_exact is False
    assert convert(dataset, tmp_path / "u.jsonl", to="openai-sft").n_tokens is None


def test_a_row_that_is_too_long_is_an_error_with_its_place_and_length(
    dataset: Dataset, tmp_path: Path
) -> None:
    n_longest = 3 + 9 * N_MESSAGE
    with pytest.raises(DataError, match="2 rows longer than 80 tokens: episode ep step 2: 94; ") as caught:
        convert(dataset, tmp_path / "t.jsonl", to="openai-sft", tokenizer="estimate", max_length=80)
    assert caught.value.message.endswith(f"episode ep step 3: {n_longest}")
    assert "trim-history" in (caught.value.hint or "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]
    made = convert(dataset, tmp_path / "t.jsonl", to="openai-sft", tokenizer="estimate", max_length=n_longest)
    assert made.n_rows == 4


def test_rows_that_are_too_long_are_dropped_and_counted(dataset: Dataset, tmp_path: Path) -> None:
    made = convert(
        dataset, tmp_path / "t.jsonl", to="openai-sft", tokenizer="estimate", max_length=80, overlong="drop"
    )
    assert (made.n_rows, made.left) == (2, {"longer than 80 tokens": 2})
    assert pq.read_table(made.provenance).column("row").to_pylist() == [0, 1, None, None]


def test_the_oldest_turns_go_and_never_system_task_newest_observation_or_answer(
    dataset: Dataset, tmp_path: Path
) -> None:
    made = convert(
        dataset,
        tmp_path / "t.jsonl",
        to="openai-sft",
        tokenizer="estimate",
        max_length=3 + 5 * N_MESSAGE,
        overlong="trim-history",
    )
    rows = rows_of(made.path)
    assert [[each["content"][:1] for each in row] for row in rows] == [
        ["s", "u", "0"],
        ["s", "u", "0", "1", "1"],
        ["s", "u", "1", "2", "2"],
        ["s", "u", "2", "3", "3"],
    ]
    assert (made.n_trimmed, made.n_turns_trimmed, made.left) == (2, 3, {})


def test_a_row_that_does_not_fit_without_its_history_either_is_left_out(
    dataset: Dataset, tmp_path: Path
) -> None:
    made = convert(
        dataset,
        tmp_path / "t.jsonl",
        to="openai-sft",
        tokenizer="estimate",
        max_length=3 + 3 * N_MESSAGE,
        overlong="trim-history",
    )
    assert (made.n_rows, made.left) == (1, {"longer than 42 tokens": 3})


def test_answers_that_were_trimmed_away_are_counted_as_not_learned(dataset: Dataset, tmp_path: Path) -> None:
    made = convert(
        dataset,
        tmp_path / "t.jsonl",
        to="openai-sft",
        unit="episode",
        tokenizer="estimate",
        max_length=3 + 5 * N_MESSAGE,
        overlong="trim-history",
    )
    (row,) = rows_of(made.path)
    assert [each["content"][:1] for each in row] == ["s", "u", "2", "3", "3"]
    assert (made.n_learned, made.left) == (2, {"trimmed with the history before it": 2})


def test_the_answer_of_a_tool_stays_with_its_call() -> None:
    messages = (
        message("user", "task"),
        message("assistant", "old"),
        message("user", "seen"),
        say("assistant", call()),
        say("tool", result()),
        message("assistant", "done"),
    )
    example = Example(messages, (0, 1, 0, 1, 0, 1))
    turns = history(example)
    assert turns == [range(1, 3)]
    assert without(example, turns) == Example((messages[0], *messages[3:]), (0, 1, 0, 1))


def test_a_tokenizer_that_is_not_there_is_told(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="nowhere"):
        convert(dataset, tmp_path / "t.jsonl", to="openai-sft", tokenizer=str(tmp_path / "nowhere"))


def test_texts_are_counted_as_texts(dataset: Dataset, tmp_path: Path) -> None:
    made = convert(dataset.limit(1), tmp_path / "t.jsonl", to="text", tokenizer="estimate")
    rows = [json.loads(line) for line in made.path.read_text().splitlines()]
    assert made.n_tokens == sum(
        -(-len(row["prompt"]) // 4) + -(-len(row["completion"]) // 4) + 1 for row in rows
    )
