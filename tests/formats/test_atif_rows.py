"""Rows of usual documents are those that the slow reader gives, in every column."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.formats.exchange import whole
from tests.formats.test_atif import ASKS as SEARCHES
from tests.formats.test_atif import DONE, SEARCH, USER, document
from tests.formats.test_fuzz import ANYTHING, changed, places
from tests.matrix import examples
from trajkit.formats.atif import ATIF
from trajkit.formats.reading.atif import read_atif
from trajkit.formats.reading.atif_rows import usual_rows
from trajkit.formats.reading.document import BadDocument
from trajkit.formats.reading.sanity import problems
from trajkit.store.arrow import rows_of
from trajkit.store.layout import TABLES

SYSTEM = {"source": "system", "message": "rules"}
METRICS = {"prompt_tokens": 10, "completion_tokens": 4, "cached_tokens": 3, "cost_usd": 0.01}
ASKS = {**copy.deepcopy(SEARCHES), "metrics": METRICS}
TWO = copy.deepcopy(ASKS)
TWO["tool_calls"].append(
    {"tool_call_id": "c2", "function_name": "täke it", "arguments": {"x": [1.5, None, "ü"]}}
)
TWO["observation"]["results"].append({"source_call_id": "c2", "content": ""})
AGAIN = copy.deepcopy(ASKS)
AGAIN |= {"message": "", "timestamp": "2026-11-21T14:30:00", "model_name": "small", "reasoning_content": ""}


def documents() -> list[dict[str, Any]]:
    return [
        document(USER, DONE),
        document(SYSTEM, USER, ASKS, DONE, trajectory_id="t", notes="n", extra={"a": 1}),
        document(SYSTEM, USER, TWO, USER, AGAIN, SYSTEM, USER, DONE, final_metrics={"total_steps": 3}),
        document(USER, ASKS),
        document(DONE),
        {**document(USER, DONE), "agent": {"name": "a", "version": "1"}},
    ]


def spelled(row: dict[str, Any], table: str) -> dict[str, Any]:
    """A row with its JSON parsed, and null where a column is not there."""
    made = {column.name: row.get(column.name) for column in TABLES[table]}
    return {
        column.name: json.loads(made[column.name])
        if made[column.name] is not None and column.sql_type in ("JSON", "METRICS")
        else made[column.name]
        for column in TABLES[table]
    }


def same_rows(value: dict[str, Any]) -> None:
    rows = usual_rows(copy.deepcopy(value))
    assert rows is not None
    reading = read_atif(value)
    (episode,) = reading.episodes
    assert rows.is_named == reading.is_named
    assert not list(problems(episode, allows_system_anywhere=True))
    expected = rows_of(episode)
    own, steps = rows.spelled(rows.episode["episode_id"])
    assert spelled(own, "episodes") == spelled(expected["episodes"][0], "episodes")
    assert [spelled(row, "steps") for row in steps] == [spelled(row, "steps") for row in expected["steps"]]


@pytest.mark.parametrize("value", documents(), ids=range(6))
def test_usual_documents_give_the_very_rows(value):
    same_rows(json.loads(json.dumps(value)))


@examples(80, 600)
def test_whatever_is_changed_gives_the_very_rows_or_none(n_examples):
    @settings(max_examples=n_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def check(data):
        value = json.loads(json.dumps(data.draw(st.sampled_from(documents()))))
        path = data.draw(st.sampled_from(places([value])))
        (other,) = changed([value], path, data.draw(ANYTHING), is_gone=data.draw(st.booleans()))
        if not isinstance(other, dict) or usual_rows(copy.deepcopy(other)) is None:
            return
        try:
            same_rows(other)
        except BadDocument as error:
            raise AssertionError(f"read as usual, and refused: {error}") from error

    check()


@pytest.mark.parametrize(
    "value",
    [
        ATIF.write(whole()).values[0],
        document(USER, {**DONE, "is_copied_context": True}, DONE),
        document({"source": "user", "message": [{"type": "text", "text": "x"}]}, DONE),
        document(USER, {**DONE, "metrics": {"prompt_token_ids": [1]}}),
        document(USER, {**DONE, "llm_call_count": 1}),
        document(USER, {**DONE, "message": ""}),
        document(USER, ASKS, ASKS, DONE, subagent_trajectories=[]),
        document(USER),
    ],
)
def test_what_is_not_usual_is_left_to_the_reader(value):
    assert usual_rows(value) is None


def test_an_id_that_waits_for_its_result_is_not_called_again():
    asked = {**ASKS, "observation": None}
    assert usual_rows(document(USER, asked, asked)) is None
    assert usual_rows(document(USER, ASKS, ASKS)) is not None


def test_tools_are_those_of_every_step():
    rows = usual_rows(document(USER, ASKS, DONE))
    assert rows is not None
    _, steps = rows.spelled("e")
    assert [json.loads(row["tools"]) for row in steps] == [[SEARCH["function"]]] * 2
