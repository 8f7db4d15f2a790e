"""Compute the cost of a success: the spending on all episodes over the number of successes."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import numpy as np

from trajkit.evaluation.estimates.estimate import SUCCESS, strata_of
from trajkit.evaluation.estimates.resample import NOTHING, Floats, Resampling, percentiles, resampled
from trajkit.evaluation.groups import Group, sql_of
from trajkit.evaluation.reports.model import PerSuccess

SPENT = {
    "tokens": "n_input_tokens + n_output_tokens",
    "cost_usd": "cost_usd",
}
"""The spending on an episode, as SQL; null where unknown."""


def per_success(connection: duckdb.DuckDBPyConnection, group: Group, how: Resampling) -> Iterator[PerSuccess]:
    """Compute each ratio of sums with a bootstrap of worlds within tasks; unknown spending is left out.

    Args:
        connection: The database after `read_groups`.
        group: The group to measure.
        how: Resamples, seed and confidence.
    """
    for of, spent in SPENT.items():
        found = connection.execute(
            f"SELECT task_name, CAST(sum(spent) AS DOUBLE), CAST(sum(won) AS DOUBLE), count(*) FROM ("
            f"SELECT task_name, seed, episode_id, {spent} AS spent, {sql_of(SUCCESS)} AS won FROM g "
            "WHERE group_name = ?) WHERE spent IS NOT NULL AND won IS NOT NULL "
            "GROUP BY task_name, seed, CASE WHEN seed IS NULL THEN episode_id END "
            "ORDER BY task_name, seed, min(episode_id)",
            [group.name],
        ).fetchall()
        if found:
            values = np.array([row[1:3] for row in found], dtype=np.float64)
            yield _ratio(of, values, [row[0] for row in found], sum(row[3] for row in found), how)


def _ratio(of: str, values: Floats, tasks: list[str], n: int, how: Resampling) -> PerSuccess:
    spent, won = values.sum(axis=0).tolist()
    _, places = np.unique(np.array(tasks), return_inverse=True)
    bounds = NOTHING
    if won and not (values == values[0]).all():
        strata = strata_of(places.astype(np.int64))
        sizes = np.bincount(strata)
        sums = np.einsum("t,trm->rm", sizes, resampled(values, strata, how))
        # a resample without a success has infinite cost per success; one without cost has no value
        with np.errstate(divide="ignore", invalid="ignore"):
            bounds = percentiles(sums[:, 0] / sums[:, 1], how.confidence)
    return PerSuccess(
        of=of,
        value=spent / won if won else None,
        low=bounds.low,
        high=bounds.high,
        n=n,
        n_successes=round(won),
    )
