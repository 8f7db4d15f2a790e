"""Rows from preference pairs: where the sides part, and what is in no row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from trajkit.curation.pair_file import Pair, Turn
from trajkit.curation.rows.writers.pairs import convert_pairs
from trajkit.errors import DataError, NothingMatched, RequestError
from trajkit.schema import Message, message

PROMPT = (message("system", "Play."), message("user", "turn"))


def turn(answer: str | Message | None, *, index: int = 0, kept: int = 2, **fields: Any) -> Turn:
    said = message("assistant", answer) if isinstance(answer, str) else answer
    default: dict[str, Any] = {"messages": (), "loss_weight": 1.0}
    return Turn(step_index=index, n_prompt_kept=kept, completion=said, **{**default, **fields})


def pair(chosen: list[Turn], rejected: list[Turn], *, number: int = 0, **fields: Any) -> Pair:
    default: dict[str, Any] = {
        "pair_id": f"{number:064x}",
        "match": "state",
        "level": "step",
        "chosen_group_key": "k",
        "rejected_group_key": "k",
        "chosen_episode_id": "good",
        "chosen_step_index": chosen[0].step_index,
        "rejected_episode_id": "bad",
        "rejected_step_index": rejected[0].step_index,
        "prompt": PROMPT,
        "chosen": tuple(chosen),
        "rejected": tuple(rejected),
        **dict.fromkeys(
            (
                *("env_id", "task", "seed", "initial_state_hash", "split", "tools", "is_verified"),
                *("chosen_inference_id", "rejected_inference_id", "chosen_action", "rejected_action"),
                *("chosen_score", "rejected_score"),
            )
        ),
    }
    return Pair(**{**default, **fields})


def write(pairs: list[Pair], folder: Path, *, to: str = "trl-preference", **options: Any) -> Any:
    return convert_pairs(
        pairs, folder / "train.jsonl", to=to, source=Path("pairs"), digest="0" * 64, **options
    )


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_pair_is_a_prompt_with_both_answers(tmp_path: Path) -> None:
    made = write([pair([turn("left")], [turn("right")])], tmp_path)
    assert rows_of(made.path) == [
        {
            "prompt": [{"role": "system", "content": "Play."}, {"role": "user", "content": "turn"}],
            "chosen": [{"role": "assistant", "content": "left"}],
            "rejected": [{"role": "assistant", "content": "right"}],
        }
    ]
    assert (made.n_rows, made.left, made.losses) == (1, {}, {})
    (row,) = pq.read_table(made.provenance).to_pylist()
    assert (row["row"], row["chosen_episode_id"], row["rejected_episode_id"]) == (0, "good", "bad")


def test_of_whole_episodes_the_first_answers_that_differ_are_learned(tmp_path: Path) -> None:
    same = turn("go")
    seen = (message("user", "then"),)
    made = write(
        [
            pair(
                [
                    same,
                    turn("left", index=1, kept=3, messages=seen),
                    turn("on", index=2, kept=5, messages=seen),
                ],
                [same, turn("right", index=1, kept=3, messages=seen)],
                level="episode",
            )
        ],
        tmp_path,
    )
    (row,) = rows_of(made.path)
    assert [each["content"] for each in row["prompt"]] == ["Play.", "turn", "go", "then"]
    assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == ("left", "right")
    assert made.losses == {"later turn": 1}
    assert pq.read_table(made.provenance).column("chosen_step_index").to_pylist() == [1]


def test_sides_that_were_given_different_prompts_are_in_no_row_and_counted(tmp_path: Path) -> None:
    other = turn("right", kept=0, messages=(message("user", "in other words"),))
    pairs = [pair([turn("left")], [turn("right")]), pair([turn("left")], [other], number=1)]
    made = write(pairs, tmp_path)
    assert (made.n_rows, made.left) == (1, {"the two sides were given different prompts": 1})
    with pytest.raises(NothingMatched) as caught:
        write(pairs[1:], tmp_path / "none")
    assert "--same-prompt" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("chosen", "rejected", "reason"),
    [
        (turn(None), turn("right"), "no answer"),
        (turn("left"), turn("left"), "one side only goes on where the other ends"),
        (turn("left"), turn("right", loss_weight=0.0), "the first answers that differ are not both learned"),
        (turn("left"), turn("right", messages=None), "prompt unknown"),
        (turn(""), turn("right"), "empty answer"),
    ],
)
def test_pairs_that_teach_nothing_are_counted_by_reason(
    chosen: Turn, rejected: Turn, reason: str, tmp_path: Path
) -> None:
    made = write([pair([turn("a")], [turn("b")]), pair([chosen], [rejected], number=1)], tmp_path)
    assert (made.n_rows, made.left) == (1, {reason: 1})


def test_answers_that_differ_only_in_thoughts_or_ids_of_calls_are_the_same(tmp_path: Path) -> None:
    def calling(call_id: str) -> Message:
        call = {"type": "tool_call", "id": call_id, "name": "f", "arguments": "{}"}
        thought = {"type": "thought", "text": call_id}
        return Message.model_validate({"role": "assistant", "content": [thought, call]})

    with pytest.raises(NothingMatched, match="no pair of pairs gives a training row"):
        write([pair([turn(calling("a"))], [turn(calling("b"))])], tmp_path)


def test_each_side_is_a_good_or_a_bad_answer_whatever_the_other_s_prompt(tmp_path: Path) -> None:
    other = turn("right", kept=0, messages=(message("user", "in other words"),))
    made = write([pair([turn("left")], [other])], tmp_path, to="trl-kto")
    rows = rows_of(made.path)
    assert [(row["completion"][0]["content"], row["label"]) for row in rows] == [
        ("left", True),
        ("right", False),
    ]
    assert [len(row["prompt"]) for row in rows] == [2, 1]


def test_an_answer_in_several_pairs_is_one_row_and_none_when_it_is_both_good_and_bad(tmp_path: Path) -> None:
    pairs = [
        pair([turn("left")], [turn("right")]),
        pair([turn("left")], [turn("back")], rejected_episode_id="worse", number=1),
        pair([turn("right")], [turn("stop")], chosen_episode_id="bad", rejected_episode_id="x", number=2),
    ]
    made = write(pairs, tmp_path, to="trl-kto")
    assert [row["completion"][0]["content"] for row in rows_of(made.path)] == ["left", "back", "stop"]
    assert made.left == {"good in one pair and bad in another": 2, "in a row already": 1}


def test_a_demonstration_is_better_than_the_answer_of_the_same_step(tmp_path: Path) -> None:
    made = write(
        [pair([turn("left")], [turn("right")], match="demonstration", chosen_episode_id="bad")],
        tmp_path,
        to="trl-kto",
    )
    assert (made.n_rows, made.left) == (2, {})


def test_what_would_be_refused_is_named_with_its_episode(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"episode good step 0: preferred_output\.0\.content: special token"):
        write([pair([turn("<|im_end|>")], [turn("right")])], tmp_path, to="openai-dpo")


def test_rows_that_are_too_long_are_dropped_with_both_sides(tmp_path: Path) -> None:
    pairs = [pair([turn("left")], [turn("right")]), pair([turn("left")], [turn("r" * 400)], number=1)]
    made = write(pairs, tmp_path, tokenizer="estimate", max_length=60, overlong="drop")
    assert (made.n_rows, made.left) == (1, {"longer than 60 tokens": 1})


def test_formats_of_conversations_take_no_pairs(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="openai-sft is made of a store, and pairs is pairs"):
        write([pair([turn("left")], [turn("right")])], tmp_path, to="openai-sft")
    with pytest.raises(RequestError, match="pairs already have a better side"):
        write([pair([turn("left")], [turn("right")])], tmp_path, to="trl-kto", good="true")
