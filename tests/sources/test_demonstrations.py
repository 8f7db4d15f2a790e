"""Demonstrations as targets: what somebody said the answer should have been, in the answer's place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.matrix import daily
from tests.sources.row_database import Row, RowDatabase, row_id, spelled
from tests.sources.shapes import EPISODE, Steps, plain
from trajkit.curation.preferences.pairs import pairs
from trajkit.errors import NothingMatched
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.export.export import export
from trajkit.store.dataset import open_dataset

NORTH, SOUTH, EAST = ([{"type": "text", "text": word}] for word in ("north", "south", "east"))
USER = {"role": "user", "content": [{"type": "text", "text": "where to?"}]}


def better(target: str, value: Any, *, number: int = 900) -> Row:
    return {
        "feedback_id": row_id(number),
        "target_id": target,
        "kind": "demonstration",
        "metric_name": "demonstration",
        "value": spelled(value),
        "tags": {},
    }


def conversation(steps: Steps) -> list[str]:
    """Three turns, each prompt the one before with its answer; demonstrations on the first and the last."""
    prompt: list[Any] = [USER]
    ids = []
    for said in (NORTH, SOUTH, EAST):
        ids.append(steps.chat(said, messages=prompt))
        prompt = [*prompt, {"role": "assistant", "content": said}, USER]
    return ids


def test_the_demonstration_is_the_target_and_the_answer_is_kept_beside_it() -> None:
    steps = Steps()
    first, _, third = conversation(steps)
    feedback = [better(first, SOUTH), better(third, NORTH, number=901)]
    tally, made = steps.export(
        RowDatabase(steps.inferences, steps.calls, feedback=feedback), targets="demonstration"
    )
    assert [plain(step.completion) for step in made] == [SOUTH, SOUTH, NORTH]
    assert [(step.loss_weight, step.mask_reason) for step in made] == [
        (1, None),
        (0, "no demonstration"),
        (1, None),
    ]
    assert [(step.extra or {}).get("replaced_answer") for step in made] == [
        {"role": "assistant", "content": NORTH},
        None,
        {"role": "assistant", "content": EAST},
    ]
    # the prompts are those that were sent, with the answers that were given
    assert [[plain(message) for message in step.messages or ()] for step in made] == [
        [USER["content"]],
        [USER["content"], NORTH, USER["content"]],
        [USER["content"], NORTH, USER["content"], SOUTH, USER["content"]],
    ]
    assert [(entry.reason, entry.n_steps) for entry in tally.masked] == [("no demonstration", 1)]


def test_without_asking_the_answer_stays_the_target() -> None:
    steps = Steps()
    first, *_ = conversation(steps)
    _, made = steps.export(RowDatabase(steps.inferences, steps.calls, feedback=[better(first, SOUTH)]))
    assert [plain(step.completion) for step in made] == [NORTH, SOUTH, EAST]
    assert made[0].demonstration == SOUTH
    assert [step.mask_reason for step in made] == [None, None, None]


def test_demonstrations_of_json_functions_and_by_hand() -> None:
    steps = Steps()
    shown: list[tuple[Any, str, str | None]] = [
        ({"raw": '{"action":"b"}', "parsed": {"action": "b"}}, '{"action":"b"}', None),
        ({"raw": "not json", "parsed": None}, "not json", "invalid output"),
        ("just a text", "just a text", "invalid output"),
    ]
    ids = [steps.json(raw='{"action":"a"}', parsed={"action": "a"}) for _ in shown]
    feedback = [
        better(target, value, number=900 + n)
        for n, (target, (value, _, _)) in enumerate(zip(ids, shown, strict=True))
    ]
    _, made = steps.export(
        RowDatabase(steps.inferences, steps.calls, feedback=feedback), targets="demonstration"
    )
    assert [(step.completion.text if step.completion else None, step.mask_reason) for step in made] == [
        (said, reason) for _, said, reason in shown
    ]
    # what was done is what the model said
    assert [step.action for step in made] == ["a", "a", "a"]


def test_the_latest_demonstration_counts_and_one_with_a_wrong_call_is_no_target() -> None:
    called = {"type": "tool_call", "id": "c", "raw_name": "move", "raw_arguments": "{"}
    steps = Steps()
    one, other = steps.chat(NORTH), steps.chat(NORTH)
    feedback = [
        better(one, EAST, number=902),
        better(one, SOUTH, number=901),
        better(other, [{**called, "name": None, "arguments": None}], number=903),
    ]
    _, made = steps.export(
        RowDatabase(steps.inferences, steps.calls, feedback=feedback), targets="demonstration"
    )
    assert plain(made[0].completion) == EAST
    assert plain(made[1].completion) == [{"type": "tool_call", "id": "c", "name": "move", "arguments": "{"}]
    assert [step.mask_reason for step in made] == [None, "invalid output"]


def test_an_episode_without_demonstrations_leaves_and_is_counted() -> None:
    steps = Steps()
    target = steps.chat(NORTH)
    other = row_id(500)
    steps.chat(NORTH, episode_id=other)
    tally, made = steps.export(
        RowDatabase(steps.inferences, steps.calls, feedback=[better(target, SOUTH)]), targets="demonstration"
    )
    assert [(entry.reason, entry.n_episodes) for entry in tally.left] == [("no demonstration", 1)]
    assert len(made) == 1
    with pytest.raises(NothingMatched, match="no demonstration: 2"):
        steps.export(RowDatabase(steps.inferences, steps.calls), targets="demonstration")


@pytest.mark.parametrize("targets", daily(["answer", "demonstration"], 1))
def test_preference_pairs_are_the_same_whatever_the_targets_are(tmp_path: Path, targets: str) -> None:
    steps = Steps()
    first, second, _ = conversation(steps)
    feedback = [better(first, SOUTH), better(second, SOUTH, number=901)]
    database = RowDatabase(steps.inferences, steps.calls, feedback=feedback)
    export(database, ExportRequest(targets=targets), tmp_path / "store")
    assert [episode.episode_id for episode in open_dataset(tmp_path / "store")] == [EPISODE]
    paired = pairs(tmp_path / "store", tmp_path / "pairs", match="demonstration", level="step")
    assert paired.report.n_pairs == 1
    assert paired.report.notes == ("1 demonstrations equal the answer: no pair",)
    from trajkit.curation.pair_file import open_pairs

    (pair,) = open_pairs(tmp_path / "pairs")
    assert [plain(turns[0].completion) for turns in (pair.chosen, pair.rejected)] == [SOUTH, NORTH]
