"""The collector's table in a real ClickHouse gives the same episodes as the files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import clickhouse_connect
import pytest

from tests.sources.otel import collector
from tests.sources.otel.record import GOAL, requests
from tests.sources.reading import Reader
from trajkit.errors import RequestError
from trajkit.schema import Episode
from trajkit.sources.files.importing import import_files
from trajkit.sources.otel.connect import SOURCE
from trajkit.sources.wish import Wish
from trajkit.stack.clickhouse import ClickHouse as Server

READ = Reader(SOURCE)


@pytest.fixture(scope="module")
def database(server: Server) -> Iterator[tuple[Any, str]]:
    server.ask("CREATE DATABASE IF NOT EXISTS otel")
    url = server.url_for(server.user, database="otel")
    client = clickhouse_connect.get_client(dsn=url)
    yield client, url.replace("http://", "clickhouse://")
    client.close()


@pytest.mark.parametrize("is_json", [False, True], ids=["map", "json"])
def test_the_table_gives_what_the_files_give(database: tuple[Any, str], is_json: bool) -> None:
    client, url = database
    collector.create(client, is_json=is_json)
    collector.insert(client, requests())
    ours, theirs = READ.sound(url), READ.sound(GOAL)
    assert ours.keys() == theirs.keys()
    for name, one in theirs.items():
        assert said(ours[name]) == said(one), name


def said(episode: Episode) -> list[Any]:
    """What a table keeps: of other attributes it has texts alone."""
    names = ("messages", "completion", "tools", "started_at", "n_input_tokens")
    steps = [
        [*(getattr(step, name) for name in names), (step.extra or {}).get("error")] for step in episode.steps
    ]
    return [steps, episode.metrics, episode.tags, [item.value for item in episode.feedback]]


def test_since_is_asked_of_the_server(database: tuple[Any, str]) -> None:
    client, url = database
    collector.create(client)
    collector.insert(client, requests())
    everything = READ.sound(url)
    ends = sorted({one.ended_at for one in everything.values() if one.ended_at is not None})
    later = READ.sound(url, Wish(since=ends[-1]))
    assert later.keys() < everything.keys()
    assert max(one.ended_at for one in later.values() if one.ended_at is not None) == ends[-1]
    assert READ.sound(url, Wish(since=datetime(2040, 1, 1, tzinfo=UTC))) == {}


def test_a_database_without_the_table_is_refused_by_name(database: tuple[Any, str], tmp_path: Path) -> None:
    client, url = database
    with pytest.raises(RequestError, match="there is no table missing in http:"):
        list(SOURCE.read(f"{url}?table=missing", Wish()))
    client.command("CREATE OR REPLACE TABLE odd (TraceId String) ENGINE = MergeTree() ORDER BY TraceId")
    with pytest.raises(RequestError, match="has no column Timestamp, SpanId"):
        list(SOURCE.read(f"{url}?table=odd", Wish()))
    collector.create(client)
    collector.insert(client, requests())
    report, _ = import_files(url, tmp_path / "store", Wish())
    assert report.format == "otel"  # by the name of the database
    assert "@" not in report.path
