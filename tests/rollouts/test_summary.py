import math

import pytest

from trajkit.rollouts.records.summary import Mean, Moments, Score, Table, proportion, stratified


def score(task="goto", **changes) -> Score:
    values = {
        "variant": "a",
        "task": task,
        "error": None,
        "is_success": True,
        "total_reward": 1.0,
        "n_steps": 3,
    }
    return Score(**(values | {"n_input_tokens": 10, "n_output_tokens": 2, "n_invalid": 0} | changes))


def mean(values) -> Mean | None:
    moments = Moments()
    for value in values:
        moments.add(value)
    return moments.mean()


def summarise(scores, order=()) -> list:
    table = Table()
    for one in scores:
        table.add(one)
    return table.rows(order)


def test_the_standard_error_of_a_mean():
    # 1, 2, 3, 4: mean 2.5, variance (2.25 + 0.25 + 0.25 + 2.25) / 3 = 5/3, standard error √(5/3 / 4)
    assert mean([1, 2, 3, 4]) == Mean(2.5, math.sqrt(5 / 12), 4)


def test_nothing_has_no_mean_and_one_value_no_error():
    assert mean([]) is None
    assert mean([7]) == Mean(7, None, 1)


def test_the_standard_error_of_a_share():
    # 3 of 12: √(0.25 x 0.75 / 12) = 0.125
    assert proportion(3, 12) == Mean(0.25, 0.125, 12)
    assert proportion(0, 0) is None


def test_tasks_weigh_the_same_whatever_their_number_of_episodes():
    # (0.5 + 0.9) / 2, and √(0.03² + 0.04²) / 2 = 0.025
    all_tasks = stratified([Mean(0.5, 0.03, 100), Mean(0.9, 0.04, 10)])
    assert all_tasks.mean == pytest.approx(0.7)
    assert all_tasks.standard_error == pytest.approx(0.025)
    assert all_tasks.n == 110


def test_a_task_without_a_mean_leaves_the_whole_without_one():
    assert stratified([Mean(0.5, 0.1, 3), None]) is None
    assert stratified([]) is None
    assert stratified([Mean(0.5, 0.1, 3), Mean(0.7, None, 1)]).standard_error is None


def test_a_row_counts_what_failed_apart_from_what_was_played():
    rows = summarise(
        [
            score(is_success=False, total_reward=0.0, n_steps=5, n_invalid=2),
            score(n_steps=3),
            score(error="timeout", is_success=False, n_steps=60, n_invalid=9),
        ]
    )
    (row,) = rows
    assert (row.n_episodes, row.n_errors, row.n_steps, row.n_invalid) == (2, 1, 8, 2)
    assert row.success == Mean(0.5, math.sqrt(0.125), 2)
    assert row.length == Mean(4.0, 1.0, 2)


def test_several_tasks_get_a_row_over_all_of_them_per_variant():
    rows = summarise([score("goto"), score("open", total_reward=0.5), score("goto", variant="b")])
    assert [(row.variant, row.task) for row in rows] == [
        ("a", "goto"),
        ("a", "open"),
        ("a", "all"),
        ("b", "goto"),
    ]
    assert rows[2].total_reward == Mean(0.75, None, 2)


def test_tokens_that_one_provider_did_not_count_have_no_mean():
    (row,) = summarise([score(), score(n_input_tokens=None)])
    assert row.n_input_tokens is None
    assert row.n_output_tokens == Mean(2.0, 0.0, 2)


def test_a_task_where_everything_failed_has_no_means():
    (row,) = summarise([score(error="timeout")])
    assert (row.success, row.total_reward, row.n_errors) == (None, None, 1)


def test_means_of_many_values_far_from_zero_keep_their_precision():
    # mean 1e9 + 0.5; half the values lie 0.5 below and half above: standard error √(0.25 n / (n - 1) / n)
    found = mean(1e9 + (i % 2) for i in range(1000))
    assert found.mean == pytest.approx(1e9 + 0.5, abs=1e-6)
    assert found.standard_error == pytest.approx(math.sqrt(0.25 / 999), rel=1e-6)


def test_errors_are_counted_by_kind_also_over_all_tasks():
    rows = summarise(
        [
            score("goto", error="timeout"),
            score("goto", error="rate limit"),
            score("open", error="timeout"),
            score("open"),
        ]
    )
    assert [(row.task, row.errors) for row in rows] == [
        ("goto", {"timeout": 1, "rate limit": 1}),
        ("open", {"timeout": 1}),
        ("all", {"timeout": 2, "rate limit": 1}),
    ]
    assert [row.n_errors for row in rows] == [2, 1, 3]


def test_rows_stand_in_the_order_asked_for_whatever_the_order_of_play():
    scores = [score("open", variant="b"), score("goto", variant="a"), score("goto", variant="b")]
    rows = summarise(scores, ["a", "b", "goto", "open"])
    assert [(row.variant, row.task) for row in rows] == [
        ("a", "goto"),
        ("b", "goto"),
        ("b", "open"),
        ("b", "all"),
    ]
