"""Rows that a database holds more than once, as a write that was tried again leaves them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sources.row_database import RowDatabase, row_id
from tests.sources.shapes import EPISODE, Steps


@pytest.mark.full
def test_copies_of_a_row_count_once_and_are_named() -> None:
    steps = Steps()
    steps.json()
    steps.chat([{"type": "text", "text": "hi"}])
    feedback = [
        {
            "feedback_id": row_id(900),
            "target_id": EPISODE,
            "kind": "float",
            "metric_name": "m",
            "value": "1.0",
            "tags": {},
        }
    ]
    _, once = steps.export(RowDatabase(steps.inferences, steps.calls, feedback=feedback))
    twice = RowDatabase(
        [*steps.inferences, steps.inferences[0]], [*steps.calls, *steps.calls], feedback=feedback * 2
    )
    tally, made = steps.export(twice)
    assert made == once
    assert [(entry.reason, entry.n_episodes, entry.n_steps) for entry in tally.left] == [
        ("stored more than once", 0, 1)
    ]
    assert (tally.n_steps_seen, tally.n_steps_kept) == (3, 2)


def test_a_row_that_clickhouse_holds_twice_is_one_step(rows: Any, run: Any, client: Any) -> None:
    episode_id = rows.episode(0.5)
    _, once = run()
    for table in ("JsonInference", "ModelInference", "FloatMetricFeedback"):
        client.command(f"INSERT INTO {table} SELECT * FROM {table}")
    tally, twice = run()
    assert twice == once
    assert [(entry.reason, entry.n_steps) for entry in tally.left] == [("stored more than once", 2)]
    assert len(twice[episode_id].feedback) == 1
