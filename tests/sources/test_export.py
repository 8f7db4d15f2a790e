"""Rows as TensorZero writes them, in a real ClickHouse, through the whole export."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.matrix import daily
from tests.sources.conftest import left, masked
from trajkit.errors import NothingMatched, QueryError
from trajkit.schema import Outcome, Purpose
from trajkit.sources.request import MetricCondition

RETURN = "episode_return"


def at_least(value: float, name: str = RETURN) -> MetricCondition:
    return MetricCondition(name=name, min=value)


# -- the score -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", daily((0.7, 0.9, 0.1, -0.3, 1e-7, 12345.678), 1))
def test_a_value_passes_a_bound_that_is_written_the_same_and_none_just_beyond(
    rows: Any, run: Any, value: float
) -> None:
    episode_id = rows.episode(value)
    _, episodes = run(MetricCondition(name=RETURN, min=value, max=value))
    assert set(episodes) == {episode_id}
    assert episodes[episode_id].metrics == {RETURN: value}
    little = abs(value) * 1e-6
    for beyond in (at_least(value + little), MetricCondition(name=RETURN, max=value - little)):
        with pytest.raises(NothingMatched):
            run(beyond)


def test_the_latest_feedback_wins_by_its_id_even_within_one_second(rows: Any, run: Any, client: Any) -> None:
    first, second = rows.episode(None), rows.episode(None)
    base = 1_780_000_500_000
    for episode_id, values in ((first, [(0, 0.9), (400, 0.1)]), (second, [(0, 0.1), (400, 0.9)])):
        for offset, value in values:
            rows.float(episode_id, value, id=rows.id(at_ms=base + offset))
    tally, episodes = run(at_least(0.7))
    assert set(episodes) == {second}
    assert [item.value for item in episodes[second].feedback] == [0.1, 0.9]
    assert left(tally) == {"not episode_return >= 0.7": (1, 2)}


def test_a_metric_without_bounds_means_measured(rows: Any, run: Any) -> None:
    scored = rows.episode(-5.0)
    rows.episode(None)
    tally, episodes = run(MetricCondition(name=RETURN))
    assert set(episodes) == {scored}
    assert left(tally) == {"episode_return not measured": (1, 2)}


def test_a_boolean_metric_without_bounds_means_true(rows: Any, run: Any) -> None:
    good, bad = rows.episode(None), rows.episode(None)
    rows.boolean(good, True)
    rows.boolean(bad, False)
    tally, episodes = run(MetricCondition(name="success"))
    assert set(episodes) == {good}
    assert episodes[good].metrics == {"success": True}
    assert episodes[good].outcome == Outcome.SUCCESS
    assert left(tally) == {"not success >= 1": (1, 2)}
    _, episodes = run(MetricCondition(name="success", max=0))
    assert set(episodes) == {bad}


def test_several_conditions_must_all_hold_and_every_episode_leaves_for_one_reason(
    rows: Any, run: Any
) -> None:
    both, one, none = rows.episode(0.9), rows.episode(0.9), rows.episode(0.2)
    for episode_id, value in ((both, 1.0), (one, 0.0), (none, 0.0)):
        rows.float(episode_id, value, metric="progression")
    tally, episodes = run(at_least(0.7), at_least(1, "progression"))
    assert set(episodes) == {both}
    assert left(tally) == {"not episode_return >= 0.7": (1, 2), "not progression >= 1": (1, 2)}
    assert tally.n_episodes_seen == tally.n_episodes_kept + sum(entry.n_episodes for entry in tally.left)


def test_nothing_matching_says_which_values_exist(rows: Any, run: Any) -> None:
    rows.episode(0.25)
    rows.episode(0.5)
    with pytest.raises(NothingMatched, match="not episode_return >= 2: 2") as caught:
        run(at_least(2))
    assert caught.value.hint == "episode_return of 2 episodes ranges from 0.25 to 0.5"
    assert caught.value.exit_code == 1


def test_a_condition_on_steps_masks_the_others_and_keeps_their_place(rows: Any, run: Any) -> None:
    episode_id = rows.id()
    steps = [rows.json_step(episode_id) for _ in range(3)]
    rows.float(steps[1], 0.9, metric="step_score")
    rows.float(steps[2], 0.1, metric="step_score")
    other = rows.episode(None)
    tally, episodes = run(at_least(0.5, "step_score"))
    assert set(episodes) == {episode_id}
    assert [step.loss_weight for step in episodes[episode_id].steps] == [0, 1, 0]
    assert [step.mask_reason for step in episodes[episode_id].steps] == ["not selected", None, "not selected"]
    assert [step.metrics for step in episodes[episode_id].steps] == [
        {},
        {"step_score": 0.9},
        {"step_score": 0.1},
    ]
    assert masked(tally) == {"not selected": 2}
    assert other not in episodes


def test_a_metric_logged_on_episodes_and_on_steps_is_an_error(rows: Any, run: Any) -> None:
    episode_id = rows.episode(0.5)
    rows.float(rows.json_step(episode_id), 0.5)
    with pytest.raises(QueryError, match="logged on 1 episodes and on 1 inferences"):
        run(at_least(0))


# -- names ---------------------------------------------------------------------------------------------------


def test_unknown_names_list_the_known_ones(rows: Any, run: Any) -> None:
    rows.episode(1.0)
    for options, known in (
        ({"functions": ("acting",)}, "act"),
        ({"variants": ("base",)}, "baseline"),
    ):
        with pytest.raises(QueryError) as caught:
            run(**options)
        assert caught.value.hint == f"known: {known}"
    with pytest.raises(QueryError) as caught:
        run(at_least(0, "episode_returns"))
    assert "episode_return" in (caught.value.hint or "")


def test_other_functions_stay_in_place_as_context(rows: Any, run: Any) -> None:
    mixed, foreign = rows.id(), rows.episode(1.0, function="plan")
    for function in ("plan", "act", "plan"):
        rows.json_step(mixed, function=function)
    tally, episodes = run(functions=("act",))
    assert set(episodes) == {mixed}
    assert [(s.step_index, s.function_name, s.loss_weight) for s in episodes[mixed].steps] == [
        (0, "plan", 0),
        (1, "act", 1),
        (2, "plan", 0),
    ]
    assert left(tally) == {"other functions or variants": (1, 2)}
    assert foreign not in episodes


def test_function_and_variant_must_hold_on_the_same_step(rows: Any, run: Any) -> None:
    split, joined = rows.id(), rows.id()
    rows.json_step(split, function="act", variant="baseline")
    rows.json_step(split, function="plan", variant="history")
    rows.json_step(joined, function="act", variant="history")
    _, episodes = run(functions=("act",), variants=("history",))
    assert set(episodes) == {joined}


# -- evaluation, tags, time ----------------------------------------------------------------------------------

EVAL_TAGS = [
    {"trajkit.purpose": "eval"},
    {"tensorzero::evaluation_run_id": "x"},
    {"tensorzero::datapoint_id": "x"},
    {"tensorzero::evaluation_name": "x"},
    {"tensorzero::internal": "true"},
    {"tensorzero::workflow_evaluation_run_id": "x"},
]


def test_evaluation_episodes_and_tensorzeros_own_functions_are_not_learned(rows: Any, run: Any) -> None:
    made = []
    for tags in EVAL_TAGS:
        made.append(rows.id())
        rows.json_step(made[-1], tags={"trajkit.purpose": "train"})
        rows.json_step(made[-1], tags=tags)
    # feedback may say it, too
    on_episode, on_inference, unknown = rows.episode(None), rows.id(), rows.episode(None)
    for target in (on_episode, rows.json_step(on_inference)):
        rows.float(target, 1.0, metric=f"of {target}", tags={"trajkit.purpose": "eval"})
    made += [on_episode, on_inference]
    train = rows.episode(None, tags={"trajkit.purpose": "train"})
    foreign = rows.episode(1.0, function="tensorzero::default")
    tally, episodes = run()
    purposes = {key: episode.purpose for key, episode in episodes.items()}
    assert purposes == {train: Purpose.TRAIN, unknown: Purpose.UNKNOWN}
    assert left(tally) == {
        "evaluation episode": (len(EVAL_TAGS) + 2, 2 * len(EVAL_TAGS) + 2 + 1),
        "only TensorZero's own functions": (1, 2),
    }
    _, episodes = run(include_eval=True)
    assert {episodes[episode_id].purpose for episode_id in made} == {Purpose.EVAL}
    assert foreign not in episodes


@pytest.mark.full
def test_tags_of_an_episode_may_stand_on_different_rows(rows: Any, run: Any) -> None:
    episode_id, half = rows.id(), rows.episode(None, tags={"a": "1"})
    rows.json_step(episode_id, tags={"a": "1"})
    rows.json_step(episode_id, tags={"b": "2"})
    tally, episodes = run(tags={"a": "1", "b": "2"})
    assert set(episodes) == {episode_id}
    assert episodes[episode_id].tags == {"a": "1", "b": "2"}
    assert left(tally) == {"no tag a=1 and b=2": (1, 2)}
    assert half not in episodes


@pytest.mark.full
def test_the_first_inference_decides_a_tag_and_the_others_keep_their_own(rows: Any, run: Any) -> None:
    episode_id = rows.id()
    rows.json_step(episode_id, tags={"who": "first", "trajkit.step": "0"})
    rows.json_step(episode_id, tags={"who": "second", "trajkit.step": "1"})
    _, episodes = run()
    episode = episodes[episode_id]
    assert episode.tags == {"who": "first"}
    assert [(step.extra or {}).get("tags") for step in episode.steps] == [None, {"who": "second"}]


def test_since_and_until_are_half_open_on_the_start_of_the_episode(rows: Any, run: Any) -> None:
    start_ms = 1_780_100_000_000
    starts = [start_ms, start_ms + 1, start_ms + 2]
    ids = []
    for at_ms in starts:
        episode_id = rows.id()
        rows.json_step(episode_id, inference_id=rows.id(at_ms=at_ms))
        rows.json_step(episode_id, inference_id=rows.id(at_ms=at_ms + 60_000))
        ids.append(episode_id)

    def moment(index: int) -> datetime:
        return datetime.fromtimestamp(starts[index] / 1000, UTC)

    tally, episodes = run(since=moment(1), until=moment(2))
    assert set(episodes) == {ids[1]}
    assert left(tally) == {"another time": (2, 4)}


# -- what a row means ----------------------------------------------------------------------------------------


def test_steps_come_in_the_order_of_their_ids_and_the_first_may_be_older_than_the_episode(
    rows: Any, run: Any
) -> None:
    first = rows.id(at_ms=1_780_200_000_000)
    episode_id = rows.id(at_ms=1_780_200_000_000)
    later = rows.id(at_ms=1_780_200_002_000)
    middle = rows.id(at_ms=1_780_200_001_000)
    for inference_id in (later, first, middle):
        rows.json_step(episode_id, inference_id=inference_id)
    _, episodes = run()
    assert [step.inference_id for step in episodes[episode_id].steps] == [first, middle, later]
    assert episodes[episode_id].started_at == datetime.fromtimestamp(1_780_200_000, UTC)


def test_a_json_step_in_full(rows: Any, run: Any) -> None:
    tags = {"trajkit.env": "babyai", "trajkit.task": "goto", "trajkit.seed": "7", "trajkit.purpose": "train"}
    raw = '{"thinking":"näh","action":"turn left"}'
    episode_id = rows.episode(0.5, n_steps=1, raw=raw, observation='say "hi"\n', tags=tags)
    _, episodes = run()
    episode = episodes[episode_id]
    assert (episode.env_id, episode.task, episode.seed) == ("babyai", "goto", 7)
    assert episode.tags == tags
    (step,) = episode.steps
    assert [message.text for message in episode.prompt(0) or ()] == ["You play.", 'Observation:\nsay "hi"\n']
    assert step.completion is not None
    assert step.completion.text == raw
    assert (step.observation, step.action, step.action_executed) == ('say "hi"\n', "turn left", "turn left")
    assert step.action_valid is True
    assert (step.n_input_tokens, step.n_output_tokens, step.latency_s) == (11, 7, 0.02)
    assert (step.reward, step.terminated, step.truncated) == (None, None, None)
    assert episode.total_reward is None


def test_what_no_environment_does_is_its_default_and_unknown_where_none_is_known(rows: Any, run: Any) -> None:
    cases: list[tuple[str | None, Any, Any]] = [
        ("not json", None, None),
        ('{"thinking":"","action":"fly"}', ..., "fly"),
        ('{"thinking":"","action":"Go Forward"}', ..., "Go Forward"),
        ('{"thinking":""}', ..., None),
        ('{"action":7}', ..., 7),
        (None, None, None),
    ]
    episode_id = rows.id()
    for raw, parsed, _ in cases:
        rows.json_step(episode_id, raw=raw, parsed=parsed, tags={"trajkit.env": "babyai"})
    unknown = rows.episode(None, n_steps=1)
    _, episodes = run()
    found = [(step.action, step.action_valid, step.action_executed) for step in episodes[episode_id].steps]
    assert found == [(action, False, "go forward") for _, _, action in cases]
    (step,) = episodes[unknown].steps
    assert (step.action, step.action_valid, step.action_executed) == ("go forward", None, None)


def test_an_output_that_does_not_parse_is_a_step_and_no_target_unless_asked_for(rows: Any, run: Any) -> None:
    episode_id = rows.id()
    rows.json_step(episode_id)
    rows.json_step(episode_id, raw="not json", parsed=None)
    tally, episodes = run()
    assert [(s.loss_weight, s.mask_reason) for s in episodes[episode_id].steps] == [
        (1, None),
        (0, "invalid output"),
    ]
    assert masked(tally) == {"invalid output": 1}
    _, episodes = run(include_invalid=True)
    assert [step.loss_weight for step in episodes[episode_id].steps] == [1, 1]


@pytest.mark.full
def test_paths_find_observation_and_action_elsewhere(rows: Any, run: Any) -> None:
    episode_id = rows.id()
    arguments = {"state": {"text": "deep"}, "observation": "shallow"}
    content = [{"type": "template", "name": "user", "arguments": arguments}]
    rows.json_step(
        episode_id,
        raw='{"move":{"to":"north"}}',
        input={"messages": [{"role": "user", "content": content}, {"role": "assistant", "content": []}]},
    )
    _, episodes = run(observation_path="state.text", action_path="move.to")
    (step,) = episodes[episode_id].steps
    assert (step.observation, step.action) == ("deep", "north")


def test_success_is_progression_of_one_unless_said_otherwise(rows: Any, run: Any) -> None:
    done, half = rows.episode(0.9), rows.episode(0.9)
    unmeasured = rows.episode(0.9)
    rows.float(done, 1.0, metric="progression")
    rows.float(half, 0.5, metric="progression")
    _, episodes = run()
    assert episodes[done].outcome == Outcome.SUCCESS
    assert episodes[half].outcome == Outcome.FAILURE
    assert episodes[unmeasured].outcome == Outcome.UNKNOWN
    _, episodes = run(success="episode_return >= 0.9")
    assert {episode.outcome for episode in episodes.values()} == {Outcome.SUCCESS}
    with pytest.raises(QueryError, match="'score'"):
        run(success="score > 1")


def test_a_demonstration_and_a_comment_travel_with_their_step(rows: Any, run: Any) -> None:
    episode_id = rows.id()
    inference_id = rows.json_step(episode_id)
    better = {"raw": '{"action":"toggle"}', "parsed": {"action": "toggle"}}
    rows.demonstration(inference_id, {"raw": "older", "parsed": None})
    rows.demonstration(inference_id, better)
    rows.comment(episode_id, 'so "nice"')
    _, episodes = run()
    episode = episodes[episode_id]
    assert episode.steps[0].demonstration == better
    assert [(item.kind, item.inference_id) for item in episode.feedback] == [
        ("demonstration", inference_id),
        ("demonstration", inference_id),
        ("comment", None),
    ]
    assert episode.feedback[2].value == 'so "nice"'


# -- what should not be there --------------------------------------------------------------------------------


def test_a_row_that_clickhouse_holds_twice_is_one_step(rows: Any, run: Any, client: Any) -> None:
    episode_id = rows.episode(0.5)
    _, once = run()
    for table in ("JsonInference", "ModelInference", "FloatMetricFeedback"):
        client.command(f"INSERT INTO {table} SELECT * FROM {table}")
    tally, twice = run()
    assert twice == once
    assert left(tally) == {"stored more than once": (0, 2)}
    assert (tally.n_steps_seen, tally.n_steps_kept) == (4, 2)
    assert len(twice[episode_id].feedback) == 1


def test_a_score_that_is_no_finite_number_was_not_measured_and_is_kept_as_feedback(
    rows: Any, run: Any
) -> None:
    scored = rows.episode(0.5)
    odd = {rows.episode(None): value for value in (math.inf, -math.inf, math.nan)}
    for episode_id, value in odd.items():
        rows.float(episode_id, value)
    hidden = rows.episode(0.5)  # an odd one hides what was there before
    rows.float(hidden, math.inf)
    # what is about nothing that is there
    rows.float(rows.id(), 0.9)
    rows.demonstration(rows.id(), "[]")
    _, episodes = run()
    assert episodes.keys() == {scored, hidden, *odd}
    assert episodes[scored].metrics == {"episode_return": 0.5}
    assert [item.value for item in episodes[scored].feedback] == [0.5]
    assert episodes[hidden].metrics == {}
    for episode_id, value in odd.items():
        assert episodes[episode_id].metrics == {}
        assert [item.value for item in episodes[episode_id].feedback] == [str(value)]
    _, episodes = run(MetricCondition(name="episode_return", min=-1e30))
    assert set(episodes) == {scored}


def test_a_demonstration_that_is_no_json_is_kept_as_text(rows: Any, run: Any) -> None:
    values = {rows.id(): value for value in ("", "not json", "[", "nul")}
    for episode_id, value in values.items():
        rows.demonstration(rows.json_step(episode_id), value)
    (_, episodes), (_, learned) = run(), run(targets="demonstration")
    for episode_id, value in values.items():
        assert [item.value for item in episodes[episode_id].feedback] == [value]
        assert episodes[episode_id].steps[0].demonstration == value
        (step,) = learned[episode_id].steps
        assert step.completion is not None
        assert (step.completion.text, step.mask_reason) == (value, "invalid output")
