"""Episodes that a rollout left half-played: counted, left out, and brought on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sources.conftest import left
from trajkit.errors import NothingMatched
from trajkit.sources.local import export_store
from trajkit.sources.request import ExportRequest, MetricCondition
from trajkit.store.reader import open_store

RETURN = MetricCondition(name="episode_return")


def abandon(rows: Any, episode_id: str, reason: str) -> None:
    """As a rollout says it."""
    rows.comment(episode_id, f"abandoned: {reason}", tags={"trajkit.abandoned": reason, "trajkit.run": "r"})


def test_abandoned_episodes_are_left_out_and_counted_by_their_reason(rows: Any, run: Any) -> None:
    whole = rows.episode(0.9)
    for reason in ("killed", "killed", "server error"):
        abandon(rows, rows.episode(None), reason)
    commented = rows.episode(0.9)  # another comment abandons nothing
    rows.comment(commented, "abandoned: by me", tags={"trajkit.run": "r"})
    tally, episodes = run()
    assert set(episodes) == {whole, commented}
    assert left(tally) == {"abandoned: killed": (2, 4), "abandoned: server error": (1, 2)}


@pytest.mark.full
def test_an_abandoned_episode_whose_feedback_was_logged_whole_is_left_out_of_a_metrics_export_too(
    rows: Any, run: Any
) -> None:
    """Killed after its last feedback and before the journal said so: it was played again under another id."""
    twice, again = rows.episode(0.9), rows.episode(0.9)
    abandon(rows, twice, "killed")
    _, episodes = run(RETURN)
    assert set(episodes) == {again}


@pytest.mark.full
def test_they_come_along_on_request_and_from_there_the_same_holds_for_the_store(
    rows: Any, run: Any, tmp_path: Path
) -> None:
    whole, half = rows.episode(0.9), rows.episode(None)
    abandon(rows, half, "killed")
    _, episodes = run(include_abandoned=True)
    assert set(episodes) == {whole, half}
    (comment,) = episodes[half].feedback
    assert (comment.value, comment.tags["trajkit.abandoned"]) == ("abandoned: killed", "killed")
    (store,) = [path for path in tmp_path.rglob("manifest.json") if path.is_file()][:1]
    (entry,) = open_store(store.parent).manifest.lineage
    assert entry.arguments["include_abandoned"] is True
    tally, _ = export_store(store.parent, ExportRequest(), tmp_path / "again")
    assert (tally.n_episodes_kept, left(tally)) == (1, {"abandoned: killed": (1, 2)})
    tally, _ = export_store(store.parent, ExportRequest(include_abandoned=True), tmp_path / "all")
    assert tally.n_episodes_kept == 2


def test_nothing_left_names_the_reason(rows: Any, run: Any) -> None:
    abandon(rows, rows.episode(None), "killed")
    with pytest.raises(NothingMatched, match="abandoned: killed: 1"):
        run()
