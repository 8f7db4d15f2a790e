"""Going on from a store: what is new comes whole, what is unchanged stays away, and both are counted."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.sources.conftest import exported, left
from tests.sources.row_database import BASE_MS
from trajkit.cli.main import run as run_command
from trajkit.curation.merge import merge
from trajkit.errors import NothingMatched, RequestError
from trajkit.schema import Manifest
from trajkit.sources.choose import UNCHANGED
from trajkit.sources.request import MetricCondition, Tally
from trajkit.sources.tensorzero.export.after import earlier
from trajkit.store.dataset import open_dataset
from trajkit.store.reader import open_store

HOUR_MS = 3_600_000
AT = datetime.fromtimestamp((BASE_MS + 24 * HOUR_MS) / 1000, tz=UTC)
"""Until when the first export reads: a day after the rows of the tests begin."""


@pytest.fixture
def run(url: str, tmp_path: Path) -> Callable[..., tuple[Path, Tally, Manifest]]:
    numbers = itertools.count()

    def run(*metrics: MetricCondition, **options: Any) -> tuple[Path, Tally, Manifest]:
        goal = tmp_path / f"store-{next(numbers)}"
        return goal, *exported(url, goal, metrics=metrics, **options)

    return run


def ids(store: Path) -> set[str]:
    return {episode.episode_id for episode in open_dataset(store)}


def late(rows: Any, hours: float = 48) -> str:
    """An id from long after the first export."""
    return str(rows.id(at_ms=BASE_MS + int(hours * HOUR_MS) + next(_numbers)))


_numbers = itertools.count()


@pytest.mark.full
def test_only_what_is_new_or_scored_anew_or_went_on_comes(rows: Any, run: Any) -> None:
    same, scored, went_on = rows.episode(0.1), rows.episode(0.1), rows.episode(0.1)
    step_scored = rows.id()
    step = rows.json_step(step_scored)
    first, _, _ = run(as_of=AT)
    rows.float(scored, 0.9, id=late(rows))
    rows.float(step, 0.5, metric="step_score", id=late(rows))
    rows.json_step(went_on, inference_id=late(rows))
    new = rows.id()
    rows.json_step(new, inference_id=late(rows))
    store, tally, manifest = run(after=earlier(str(first)))
    assert ids(store) == {scored, step_scored, went_on, new}
    assert left(tally) == {UNCHANGED: (1, 2)}
    assert tally.since is not None
    assert tally.since.model_dump() == {
        "n_episodes_new": 1,
        "n_episodes_again": 3,
        "n_episodes_refused": 0,
    }
    found = {episode.episode_id: episode for episode in open_dataset(store)}
    assert len(found[went_on].steps) == 3  # whole
    assert found[scored].metrics == {"episode_return": 0.9}
    assert manifest.lineage[0].arguments["after"] == {
        "digest": open_store(first).manifest.digest,
        "as_of": AT.isoformat().replace("+00:00", "Z"),
    }
    assert same not in found


def test_the_store_and_what_came_after_are_the_whole(rows: Any, run: Any, tmp_path: Path) -> None:
    for number in range(6):
        rows.episode(number / 10)
    scored = rows.episode(0.1)
    first, _, _ = run(as_of=AT)
    rows.float(scored, 0.9, id=late(rows))
    rows.json_step(rows.id(), inference_id=late(rows))
    second, _, _ = run(after=earlier(str(first)))
    merged = merge([first, second], tmp_path / "merged", prefer="last").manifest
    _, _, whole = run()
    assert merged is not None
    assert merged.digest == whole.digest
    # it can be gone on from, and from where the second one ended
    assert merged.as_of == open_store(second).manifest.as_of
    with pytest.raises(NothingMatched, match=f"{UNCHANGED}: 8"):
        run(after=earlier(str(tmp_path / "merged")))


@pytest.mark.full
def test_a_row_that_was_written_late_under_an_early_id_is_noticed(rows: Any, run: Any) -> None:
    known, fresh = rows.episode(0.1), rows.id()
    first, _, _ = run(as_of=AT)
    # begun long before the first export and written after it: told by its id, as the store has the episode
    rows.json_step(known, inference_id=rows.id(at_ms=BASE_MS + HOUR_MS))
    # begun a little before the first export, of an episode that the store has not
    rows.json_step(fresh, inference_id=late(rows, hours=23.9))
    store, tally, _ = run(after=earlier(str(first)))
    assert ids(store) == {known, fresh}
    assert (tally.since.n_episodes_new, tally.since.n_episodes_again) == (1, 1)


@pytest.mark.full
def test_an_episode_that_was_refused_stays_away_and_one_that_no_longer_passes_is_counted(
    rows: Any, run: Any
) -> None:
    good, better, worse, _ = rows.episode(0.9), rows.episode(0.1), rows.episode(0.9), rows.episode(0.1)
    bound = MetricCondition(name="episode_return", min=0.7)
    first, _, _ = run(bound, as_of=AT)
    assert ids(first) == {good, worse}
    rows.float(better, 0.8, id=late(rows))
    rows.float(worse, 0.2, id=late(rows))
    store, tally, _ = run(bound, after=earlier(str(first)))
    assert ids(store) == {better}
    assert left(tally) == {UNCHANGED: (2, 4), "not episode_return >= 0.7": (1, 2)}
    assert (tally.since.n_episodes_new, tally.since.n_episodes_refused) == (1, 1)


def test_a_store_without_an_as_of_time_cannot_be_gone_on_from() -> None:
    with pytest.raises(RequestError, match="does not record when"):
        earlier("sample:babyai")


def test_the_command_goes_on_from_a_store(
    rows: Any, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    worse, again = rows.episode(0.9), rows.episode(0.9)
    source = ["export", "--source", url, "--metric", "episode_return", "--min", "0.5"]
    until = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    assert run_command([*source, "--as-of", until, "-o", "first"]) == 0
    now = int(time.time() * 1000)
    rows.float(worse, 0.1, id=rows.id(at_ms=now - 5000))
    rows.float(again, 0.8, id=rows.id(at_ms=now - 4000))
    capsys.readouterr()
    assert run_command([*source, "--after", "first", "-o", "second"]) == 0
    out, err = capsys.readouterr()
    lines = [line.split() for line in out.splitlines()]
    assert ["of", "them", "new", "since", "first", "0"] in lines
    assert ["of", "them", "scored", "again", "or", "continued", "1"] in lines
    assert "1 episode of first no longer passes" in err
    assert run_command([*source, "--after", "first", "--dry-run", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["since"] == {"n_episodes_new": 0, "n_episodes_again": 1, "n_episodes_refused": 1}
    assert run_command([*source, "--after", "nowhere", "-o", "third"]) == 1
    assert "there is no store at nowhere" in capsys.readouterr().err
    assert run_command(["export", "--source", "first", "--after", "first", "-o", "third"]) == 2
    assert "--after is for databases" in capsys.readouterr().err
