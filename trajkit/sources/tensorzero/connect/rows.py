"""List the rows of an episode that the database has kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trajkit.sources.tensorzero.connect.clickhouse.by_id import ClickHouseById


def stored_rows(clickhouse_url: str, episode_ids: Sequence[str]) -> Mapping[str, set[str]]:
    """The ids of all inferences of these episodes and of all feedback on them, by episode id.

    Args:
        clickhouse_url: `http://user:password@host:port/database`.
        episode_ids: Which; those that the database does not hold are left out of the answer.

    Raises:
        ServiceError: The database cannot be reached, or failed.
    """
    database = ClickHouseById(clickhouse_url)
    try:
        found: dict[str, set[str]] = {}
        for batch in database.row_ids(episode_ids):
            for episode_id, row_id in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                found.setdefault(episode_id, set()).add(row_id)
    finally:
        database.close()
    return found
