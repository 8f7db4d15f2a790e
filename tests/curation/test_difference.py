"""Two stores are compared by content: what left, what came, what changed in which column, and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import trajkit
from trajkit.curation.difference import difference
from trajkit.errors import StoreError
from trajkit.schema import Episode
from trajkit.store.reader import Store


def test_episodes_that_left_came_or_changed_are_told_apart(
    attempt: Callable[..., Episode], attempts: Callable[..., Store]
) -> None:
    same, gone, new = attempt("same"), attempt("gone"), attempt("new")
    a = attempts([same, gone, attempt("longer", n_steps=2), attempt("scored", score=0.1)])
    b = attempts([same, new, attempt("longer", n_steps=3), attempt("scored", score=0.9)], [[0, 2], [1, 3]])
    found = difference(a.path, b.path)
    assert not found.is_equal
    assert (found.n_equal, found.only_a.first, found.only_b.first) == (1, ("gone",), ("new",))
    assert found.changed.first == ("longer", "scored")
    assert found.columns == {"episodes.metrics": 1, "episodes.n_steps": 1}
    assert (found.n_steps_only_a, found.n_steps_only_b) == (0, 1)
    assert found.why == ()


def test_layout_is_no_difference(attempt: Callable[..., Episode], attempts: Callable[..., Store]) -> None:
    episodes = [attempt(f"e{number}") for number in range(4)]
    found = difference(attempts(episodes).path, attempts(episodes, [[3, 1], [0, 2]]).path)
    assert found.is_equal
    assert (found.n_equal, found.changed.n, found.columns) == (4, 0, {})


def test_metrics_and_columns_of_one_side_alone_are_named(
    attempt: Callable[..., Episode], attempts: Callable[..., Store]
) -> None:
    a = attempts([attempt("e", step={"metrics": {"speed": 1.0}})])
    b = attempts([attempt("e", metrics={"episode_return": 0.5, "kind": True})])
    found = difference(a.path, b.path)
    assert found.metrics_only_a == ("inference.speed",)
    assert found.metrics_only_b == ("episode.kind",)
    assert found.changed.n == 1


def test_the_history_says_why_an_episode_left(
    attempt: Callable[..., Episode], attempts: Callable[..., Store], tmp_path: Path
) -> None:
    store = attempts([attempt("good", score=0.9), attempt("bad", score=0.1)])
    chosen = trajkit.select(store.path, where="episode_return > 0.5", output=tmp_path / "good")
    weighed = trajkit.weight(chosen, scheme="return", output=tmp_path / "weighed")
    compared = trajkit.diff(store.path, weighed)
    assert [entry.verb for entry in compared.difference.why] == ["select", "weight"]
    assert compared.difference.columns == {"steps.loss_weight": 2}
    assert "select: 1 episode: not (episode_return > 0.5)" in str(compared)
    assert trajkit.diff(weighed, weighed).to_json()["is_equal"] is True
    assert str(trajkit.diff(weighed, weighed)).startswith("equal: 1 episode, digest ")


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store at"):
        trajkit.diff(tmp_path / "none", "sample:babyai")
