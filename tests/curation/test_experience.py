"""Rows to train a policy on: ids are never tokenised again, and every step is in one place or counted."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.pages import blocks, printed
from trajkit.curation.experience import Experiences, Fit
from trajkit.errors import RequestError
from trajkit.schema import Episode, Transition, message
from trajkit.schema.experience import Experience
from trajkit.store.dataset import Dataset
from trajkit.store.reader import Store

Attempts = Callable[..., Store]
Turn = tuple[Sequence[int], Sequence[int]]
"""Ids of a prompt, and of its completion."""


def episode(name: str, *turns: Turn | None, weights: Sequence[float] = (), **fields: Any) -> Episode:
    """An episode with these tokens; None for a step without any."""
    steps = []
    for index, turn in enumerate(turns):
        known: dict[str, Any] = {}
        if turn is not None:
            prompt, answer = turn
            logprobs = tuple(-token / 8 for token in answer)  # exact in 32 bits
            known = {
                "prompt_token_ids": tuple(prompt),
                "completion_token_ids": tuple(answer),
                "logprobs": logprobs,
            }
        more = {name: values[index] for name, values in fields.items() if isinstance(values, list)}
        steps.append(
            Transition(
                step_index=index,
                messages=(message("user", f"{name} {index}"),),
                observation=f"room {index}",
                loss_weight=weights[index] if weights else 1.0,
                mask_reason="weight 0" if weights and weights[index] == 0 else None,
                **{"completion": message("assistant", "go")} | known | more,
            )
        )
    of_episode = {name: value for name, value in fields.items() if not isinstance(value, list)}
    default: dict[str, Any] = {"source": "test", "env_id": "world", "task": "goto", "seed": 1}
    return Episode(episode_id=name, steps=tuple(steps), **default | of_episode)


def read(store: Store, **options: Any) -> tuple[list[Experience], Fit]:
    """The rows, each checked against the documented row."""
    experiences = Experiences(Dataset(store), **options)
    rows = [row for batch in experiences for row in batch.to_pylist()]
    return [Experience.model_validate(row) for row in rows], experiences.fit


def classes(fit: Fit) -> dict[str, int]:
    """How many steps fit in which way; without those that are none."""
    names = ("first", "clean", "realigned", "forked", "changed")
    return {name: n for name in names if (n := getattr(fit, f"n_{name}"))}


def test_a_step_is_a_row_with_its_advantage_on_the_tokens_that_were_sampled(attempts: Attempts) -> None:
    extra = {
        "sampling": {"temperature": 0.5, "top_p": 0.9, "is_masked": True},
        "tokenizer": "sha256:ab",
    }
    store = attempts([episode("a", ([5, 6], [7, 8]), weights=[-0.5], extra=[extra], model_version=["v1"])])
    (row,), fit = read(store)
    assert row == Experience(
        episode_id="a",
        step_index=0,
        n_steps=1,
        env_id="world",
        task="goto",
        seed=1,
        group='["world","world","goto","1"]',
        state=hashlib.sha256(b"room 0").hexdigest(),
        input_ids=(5, 6, 7, 8),
        loss_mask=(0, 0, 1, 1),
        old_logprobs=(0, 0, -7 / 8, -1),
        advantages=(0, 0, -0.5, -0.5),
        model_version="v1",
        tokenizer="sha256:ab",
        temperature=0.5,
        top_p=0.9,
        is_masked=True,
    )
    assert (fit.n_rows, fit.n_tokens, fit.n_learned_tokens, fit.n_first) == (1, 4, 2, 1)


def test_turns_that_extend_the_ids_are_one_row_and_others_begin_one(attempts: Attempts) -> None:
    clean = episode("clean", ([1, 2], [3]), ([1, 2, 3, 4], [5, 6]), weights=[0.5, 2.0])
    forked = episode("forked", ([1, 2], [3]), ([1, 9, 3, 4], [5]))
    rows, fit = read(attempts([clean, forked]))
    assert [(row.episode_id, row.step_index, row.n_steps) for row in rows] == [
        ("clean", 0, 2),
        ("forked", 0, 1),
        ("forked", 1, 1),
    ]
    assert rows[0].input_ids == (1, 2, 3, 4, 5, 6)
    assert rows[0].loss_mask == (0, 0, 1, 0, 1, 1)
    assert list(rows[0].advantages) == [0, 0, 0.5, 0, 2, 2]
    assert list(rows[0].old_logprobs) == [0, 0, -3 / 8, 0, -5 / 8, -6 / 8]
    assert classes(fit) == {"first": 2, "clean": 1, "forked": 1}
    apart, fit = read(attempts([clean]), is_joined=False)
    assert [row.input_ids for row in apart] == [(1, 2, 3), (1, 2, 3, 4, 5, 6)]
    assert [row.loss_mask for row in apart] == [(0, 0, 1), (0, 0, 0, 0, 1, 1)]
    assert classes(fit) == {"first": 1, "clean": 1}


def test_a_completion_whose_end_is_spelled_otherwise_later_is_realigned_and_its_end_is_context(
    attempts: Attempts,
) -> None:
    # the template ends a turn with 90 where the model sampled 99, and merges what stands before it
    turns = ([1, 2], [3, 4, 5, 99]), ([1, 2, 3, 45, 90, 6], [7]), ([1, 2, 3, 45, 90, 6, 7, 8], [9])
    (row,), fit = read(attempts([episode("a", *turns)]))
    assert row.input_ids == (1, 2, 3, 45, 90, 6, 7, 8, 9)
    assert row.loss_mask == (0, 0, 1, 0, 0, 0, 1, 0, 1)
    assert list(row.old_logprobs) == [0, 0, -3 / 8, 0, 0, 0, -7 / 8, 0, -9 / 8]
    assert classes(fit) == {"first": 1, "clean": 1, "realigned": 1}
    assert fit.n_tokens_dropped == 3
    rows, fit = read(attempts([episode("a", *turns)]), most_realigned=2)
    assert [row.loss_mask for row in rows] == [(0, 0, 1, 1, 1, 1), (0, 0, 0, 0, 0, 0, 1, 0, 1)]
    assert classes(fit) == {"first": 1, "clean": 1, "forked": 1}


def test_other_weights_or_settings_begin_a_row_and_each_agent_has_rows_of_its_own(attempts: Attempts) -> None:
    turns = ([1], [2]), ([1, 2, 3], [4])
    rows, fit = read(attempts([episode("a", *turns, model_version=["v1", "v2"])]))
    assert [row.model_version for row in rows] == ["v1", "v2"]
    assert classes(fit) == {"first": 1, "changed": 1}
    mixed = ([1], [2]), ([7], [8]), ([1, 2, 3], [4]), ([7, 8, 9], [10])
    rows, fit = read(attempts([episode("a", *mixed, agent_name=["x", "y", "x", "y"])]))
    assert [row.input_ids for row in rows] == [(1, 2, 3, 4), (7, 8, 9, 10)]
    assert classes(fit) == {"first": 2, "clean": 2}


def test_what_teaches_nothing_is_counted_by_reason(attempts: Attempts) -> None:
    told = episode("a", None, ([1], [2]), ([1, 2], [3]), ([9], [9]), weights=[1, 1, 0, 0])
    short = episode("b", ([1], [2, 3]), logprobs=[(-0.5,)])
    silent = episode("c", ([1], [2]), completion=[None])
    rows, fit = read(attempts([told, short, silent]))
    assert [row.loss_mask for row in rows] == [(0, 1, 0)]  # step 2 is context of step 1's row
    assert fit.left == {"no answer": 1, "no log-probabilities": 1, "no token ids": 1, "weight 0": 2}
    assert fit.n_steps == 6


def test_evaluation_never_trains_by_mistake(attempts: Attempts) -> None:
    store = attempts([episode("a", ([1], [2]), purpose="eval")])
    with pytest.raises(RequestError, match="1 evaluation episode; never train on them"):
        read(store)
    assert read(store, include_eval=True)[1].n_rows == 1


@pytest.mark.full
def test_rows_are_the_same_in_any_layout_and_groups_are_as_asked(attempts: Attempts) -> None:
    episodes = [episode(name, ([1], [2]), ([1, 2, 3], [4]), seed=ord(name)) for name in "abcd"]
    whole, fit = read(attempts(episodes))
    parted, other = read(attempts(episodes, [[0, 2], [1, 3]]))
    assert sorted(parted, key=lambda row: row.episode_id) == whole
    assert fit == other
    assert len({row.group for row in whole}) == 4
    assert {row.group for row in read(attempts(episodes), by=["task"])[0]} == {'["task","\\"goto\\""]'}


TOKENS = st.lists(st.integers(1, 3), min_size=1, max_size=4)


@st.composite
def grown(draw: st.DrawFn) -> list[Turn]:
    """Turns of which most extend what stands before, some after a change."""
    turns: list[Turn] = []
    for _ in range(draw(st.integers(1, 5))):
        held = [*turns[-1][0], *turns[-1][1]] if turns else []
        prompt = held[: len(held) - draw(st.sampled_from((0, 0, 0, 1, 2, 4)))] + draw(TOKENS)
        turns.append((prompt, draw(TOKENS)))
    return turns


TURNS = grown()


@given(st.data(), st.integers(0, 3))
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_row_is_what_a_reader_in_plain_python_makes(
    attempts: Attempts, data: st.DataObject, most: int
) -> None:
    played = [data.draw(TURNS) for _ in range(40)]
    rows, _ = read(
        attempts([episode(f"e{n:02}", *turns) for n, turns in enumerate(played)]), most_realigned=most
    )
    assert [(row.input_ids, row.loss_mask) for row in rows] == [
        expected for turns in played for expected in in_python(turns, most)
    ]


def in_python(turns: list[Turn], most: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Ids and masks of the rows of an episode, token by token."""
    held: list[list[int]] = []
    masks: list[list[int]] = []
    start = 0
    for prompt, answer in turns:
        matched = 0
        if held:
            matched = next(
                (i for i, pair in enumerate(zip(held[-1], prompt)) if pair[0] != pair[1]),  # noqa: B905
                min(len(held[-1]), len(prompt)),
            )
        if held and matched >= start and len(held[-1]) - matched <= most:
            held[-1][matched:] = prompt[matched:]
            masks[-1][matched:] = [0] * (len(prompt) - matched)
        else:
            held.append(list(prompt))
            masks.append([0] * len(prompt))
        start = len(held[-1])
        held[-1] += answer
        masks[-1] += [1] * len(answer)
    return [(tuple(ids), tuple(mask)) for ids, mask in zip(held, masks, strict=True) if any(mask)]


@pytest.mark.full
def test_the_page_prints_what_is_shown_and_its_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "experience.md").read_text(encoding="utf-8")
    assert len(printed(page, tmp_path)) == 4
    monkeypatch.chdir(tmp_path)
    (program,) = blocks(page, "python")
    exec(program, {})
