"""Charts: what the bars and shares add up to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.viewer.api.conftest import Client
from trajkit.curation.selection.select import select
from trajkit.curation.statistics.intervals import wilson_bounds
from trajkit.viewer.server import PageServer
from trajkit.viewer.shelf import Shelf


def _histogram(found: dict[str, Any], name: str) -> dict[str, Any]:
    (one,) = [each for each in found["histograms"] if each["name"] == name]
    return one


def test_bars_count_every_episode_once_and_the_unmeasured_apart(client: Any) -> None:
    found = client.ask("charts")
    assert found["n"] == 17
    for each in found["histograms"]:
        assert sum(bar["n"] for bar in each["bins"]) == each["n"] == 17 - each["n_null"]
        assert all(sum(bar["by_store"]) == bar["n"] for bar in each["bins"])
        assert all(
            one["high"] == other["low"] for one, other in zip(each["bins"], each["bins"][1:], strict=False)
        )
    assert _histogram(found, "metric.ok")["n_null"] == 7
    assert [each["name"] for each in found["histograms"]][:1] == ["n_steps"]
    assert "reward" not in [each["name"] for each in found["histograms"]]  # it was not measured


def test_whole_numbers_get_bars_of_whole_width(client: Any) -> None:
    bars = _histogram(client.ask("charts", store=0), "n_steps")["bins"]
    assert [(bar["low"], bar["n"]) for bar in bars] == [(float(n), 1) for n in range(1, 11)]


def test_charts_follow_the_filters_of_the_list(client: Any) -> None:
    words = {"task": "goto", "outcome": "success", "metric__episode_return__min": 0.6}
    found = client.ask("charts", **words)
    assert found["n"] == client.ask("episodes", **words)["total"] == 4
    assert _histogram(found, "metric.episode_return")["bins"][-1]["by_store"] == [0, 2, 0]
    nothing = client.ask("charts", q="nobody")
    assert (nothing["n"], nothing["histograms"], nothing["outcomes"]) == (0, [], [])


def test_a_single_value_is_one_bar(client: Any) -> None:
    (bar,) = _histogram(client.ask("charts", store=1), "metric.episode_return")["bins"]
    assert (bar["low"], bar["n"]) == (0.9, 4)


def test_success_is_a_share_of_the_judged_with_its_interval(client: Any) -> None:
    groups = {(each["by"], each["value"]): each for each in client.ask("charts")["outcomes"]}
    of_ten = groups["store", 0]
    assert of_ten["counts"] == {"success": 5, "failure": 5}
    low, high = wilson_bounds(0.5, 10)
    assert of_ten["success"] == {"value": 0.5, "low": pytest.approx(low), "high": pytest.approx(high)}
    assert groups["store", 2]["success"] is None
    assert groups["task", None]["counts"] == {"unknown": 1}


def test_the_funnel_tells_what_left_and_why_and_what_is_to_be_learned(
    ten_store: Path, tmp_path: Path
) -> None:
    select(ten_store, tmp_path / "chosen", where="seed >= 2")
    with Shelf([tmp_path / "chosen"]) as shelf, PageServer(shelf) as server:
        client = Client(server)
        (funnel,) = client.ask("charts")["funnel"]
        (store,) = client.ask("stores")["stores"]
    stages = [(stage["name"], stage["n_episodes"], stage["n_steps"]) for stage in funnel["stages"]]
    # seed 9 was played for evaluation: ten of its steps are not to be learned
    assert stages == [("seen by select", 10, 55), ("select", 8, 52), ("to be learned", 7, 42)]
    assert funnel["stages"][1]["left"] == [{"reason": "not (seed >= 2)", "episodes": 2, "steps": 3}]
    assert store["tally"] == funnel["stages"][1]["left"]
    assert store["commands"] == [
        "trajkit select --where 'seed >= 2'  # 8 of 10 episodes, left: 2 not (seed >= 2)"
    ]
