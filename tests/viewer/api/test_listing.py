"""The list: the same episodes as a query of the store chooses, in order, a page at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.matrix import daily
from tests.viewer.api.stores import HOSTILE
from trajkit.curation.selection.select import select
from trajkit.store.dataset import open_dataset

ALL = 10 + 4 + 3


def test_the_list_begins_with_the_first_store_by_time(client: Any) -> None:
    found = client.ask("episodes", limit=11)
    assert found["total"] == ALL
    assert [row["id"] for row in found["rows"]] == [*(f"ep-{seed}" for seed in range(10)), "after-1"]
    assert [row["store"] for row in found["rows"]] == [0] * 10 + [1]


def test_a_row_says_what_is_known_and_null_for_the_rest(client: Any) -> None:
    (row,) = client.ask("episodes", store=0, seed__min=6, seed__max=6)["rows"]
    assert row == {
        "store": 0,
        "id": "ep-6",
        "split": None,
        "env": "babyai",
        "task": "goto",
        "seed": 6,
        "purpose": "train",
        "variant": "baseline",
        "function": None,
        "model": None,
        "outcome": "success",
        "n_steps": 7,
        "reward": None,
        "n_invalid": 0,
        "n_masked": 0,
        "cost_usd": None,
        "latency_s": None,
        "started_at": "2026-03-01T12:06:00.000000Z",
        "mission": "go to the blue ball",
        "first": "turn 0",
        "tokens": {"input": None, "output": None},
        "metrics": {"episode_return": 0.6, "ok": True},
    }


def test_an_imported_trace_has_nulls_and_no_zeros(client: Any) -> None:
    (row,) = client.ask("episodes", store=2, q="find the key")["rows"]
    assert row["id"] == "talk"
    unknown = ("env", "task", "seed", "variant", "mission", "reward", "n_invalid", "started_at", "latency_s")
    assert {name: row[name] for name in unknown} == dict.fromkeys(unknown)
    assert row["metrics"] == {"episode_return": None, "ok": None}
    assert row["first"] == "Find the key."


@pytest.mark.parametrize(
    ("words", "condition"),
    daily(
        [
            ({"task": "goto"}, "task = 'goto'"),
            ({"outcome": ["success", "failure"], "purpose": "eval"}, "purpose = 'eval'"),
            (
                {"metric__episode_return__min": 0.3, "metric__episode_return__max": 0.7},
                "episode_return between 0.3 and 0.7",
            ),
            ({"metric__ok__min": 1}, "ok"),
            ({"n_steps__max": 4}, "n_steps <= 4"),
            ({"q": "BLUE go"}, "origin->>'mission' like '%blue%'"),
            ({"q": "ep-3"}, "episode_id = 'ep-3'"),
            (
                {"where": "episode_return > 0.5 and tags.level = '0'"},
                "episode_return > 0.5 and tags->>'level' = '0'",
            ),
            (
                {"where": "task == 'open' or seed < 2", "outcome": "failure"},
                "(task = 'open' or seed < 2) and not ok",
            ),
        ],
        5,
    ),
)
def test_filters_choose_what_a_query_of_the_dataset_chooses(
    client: Any, ten_store: Path, words: dict[str, Any], condition: str
) -> None:
    expected = [episode.episode_id for episode in open_dataset(ten_store).where(condition).order_by("seed")]
    assert expected
    assert client.ids(store=0, sort="seed", **words) == expected


@pytest.mark.full
@pytest.mark.parametrize(
    "condition", daily(["n = 1 and 0.2 < avg <= 0.5", "pass@1 > 0", "rank = 1", "not n_success > 0"], 2)
)
def test_a_condition_on_groups_chooses_what_select_chooses(
    client: Any, ten_store: Path, tmp_path: Path, condition: str
) -> None:
    select(ten_store, tmp_path / "chosen", where=condition)
    expected = [episode.episode_id for episode in open_dataset(tmp_path / "chosen").order_by("seed")]
    assert expected
    assert client.ids(store=0, sort="seed", where=condition) == expected


def test_a_store_that_lacks_what_a_condition_names_has_no_match_and_that_is_said(client: Any) -> None:
    found = client.ask("episodes", where="ok or seed >= 0")
    assert {row["store"] for row in found["rows"]} == {0}
    assert len(found["notes"]) == 2
    assert "no column 'ok' in" in found["notes"][0]
    assert client.ask("episodes", where="seed >= 0")["notes"] == []


@pytest.mark.full
@pytest.mark.parametrize("name", daily(["metric.episode_return", "task", "n_steps", "started_at", "seed"], 2))
@pytest.mark.parametrize("descending", [False, True])
def test_the_order_is_that_of_the_dataset_and_what_is_unknown_comes_last(
    client: Any, ten_store: Path, name: str, descending: bool
) -> None:
    ordered = open_dataset(ten_store).order_by(name.removeprefix("metric."), descending=descending)
    expected = [episode.episode_id for episode in ordered]
    words = {"descending": 1} if descending else {}
    assert client.ids(store=0, sort=name, **words) == expected
    everything = client.ask("episodes", sort="metric.ok", **words)["rows"]
    assert [row["metrics"]["ok"] is None for row in everything] == [False] * 10 + [True] * 7


def test_pages_add_up_to_the_whole(client: Any) -> None:
    pieces = [client.ids(sort="n_steps", descending=1, offset=offset, limit=4) for offset in range(0, 20, 4)]
    assert [len(piece) for piece in pieces] == [4, 4, 4, 4, 1]
    whole = client.ask("episodes", sort="n_steps", descending=1)["rows"]
    assert [name for piece in pieces for name in piece] == [row["id"] for row in whole]
    assert client.ids(offset=1000) == []
    assert client.ids(limit=0) == []


def test_facets_are_counted_with_every_filter_but_their_own(client: Any) -> None:
    facets = client.ask("episodes", store=0, task="goto", outcome="success")["facets"]
    assert facets["task"] == [{"value": "open", "n": 3}, {"value": "goto", "n": 2}]
    assert facets["outcome"] == [{"value": "failure", "n": 3}, {"value": "success", "n": 2}]
    assert facets["store"] == [{"value": 0, "n": 2}, {"value": 1, "n": 2}]
    assert facets["purpose"] == [{"value": "train", "n": 2}]


def test_an_empty_value_asks_for_what_is_not_known(client: Any) -> None:
    assert client.ids(task="") == ["talk"]
    assert sorted(client.ids(model=["", "gpt"], store=2)) == sorted(["empty", "talk", HOSTILE])
    assert client.ids(model="gpt") == [HOSTILE]


def test_hostile_names_filter_and_search_like_any_other(client: Any) -> None:
    assert client.ids(task=HOSTILE) == [HOSTILE]
    assert client.ids(variant=HOSTILE) == [HOSTILE]
    assert client.ids(q="onerror=alert(1)>") == [HOSTILE]
    assert client.ids(q="'); DROP TABLE rows; --") == []
    assert client.ask("episodes")["total"] == ALL


def test_the_stores_tell_their_metrics_and_what_one_may_sort_by(client: Any) -> None:
    found = client.ask("stores")
    assert [(one["name"], one["n_episodes"], one["n_steps"]) for one in found["stores"]] == [
        ("ten", 10, 55),
        ("tuned", 4, 4),
        ("odd", 3, 6),
    ]
    assert found["metrics"] == [
        {"name": "episode_return", "kind": "float", "n": 14, "low": 0.0, "high": 0.9},
        {"name": "ok", "kind": "boolean", "n": 10, "low": 0.0, "high": 1.0},
    ]
    assert found["n_values"]["task"] == 3
    for name in found["columns"]:
        assert client.ask("episodes", sort=name)["total"] == ALL
