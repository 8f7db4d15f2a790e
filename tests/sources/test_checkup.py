"""`trajkit doctor` on real databases: those that are well, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr

from tests.sources import generated
from trajkit.commands.checkup.check import Check, Standing
from trajkit.commands.checkup.service import database, databases


def asked(url: str, name: str = "TENSORZERO_CLICKHOUSE_URL") -> Check:
    return database(name, SecretStr(url))


def test_a_clickhouse_that_is_well(url: str) -> None:
    check = asked(url)
    assert check.standing == Standing.WELL
    assert check.text.endswith("/tensorzero answers and has TensorZero's tables")
    assert "@" not in check.text


@pytest.mark.parametrize(
    ("change", "standing", "words"),
    [
        (("only looks", "another one"), Standing.BROKEN, "user"),
        (("/tensorzero", "/default"), Standing.NOTE, "has no table of TensorZero"),
        (("/tensorzero", "/nowhere"), Standing.BROKEN, "nowhere"),
        (("http://", "ftp://"), Standing.BROKEN, "must start with http"),
    ],
    ids=["password", "other database", "no database", "scheme"],
)
def test_a_clickhouse_url_that_is_wrong(
    url: str, change: tuple[str, str], standing: Standing, words: str
) -> None:
    from urllib.parse import unquote

    check = asked(unquote(url).replace(*change))
    assert check.standing == standing
    assert words in check.text
    assert check.todo
    assert "only looks" not in check.model_dump_json()
    assert "another one" not in check.model_dump_json()


def test_postgres_well_and_wrong(postgres_of: Callable[[str, Any], str]) -> None:
    url = postgres_of("checkup", generated.Data())
    well = asked(url, "TENSORZERO_POSTGRES_URL")
    assert well.standing == Standing.WELL
    user, _, rest = url.partition("://")[2].partition(":")
    _, _, place = rest.rpartition("@")
    refused = asked(f"postgresql://{user}:another@{place}", "TENSORZERO_POSTGRES_URL")
    assert refused.standing == Standing.BROKEN
    assert "another" not in refused.model_dump_json()
    empty = asked(url.replace("/checkup", "/postgres"), "TENSORZERO_POSTGRES_URL")
    assert empty.standing == Standing.NOTE


def test_every_database_that_is_named_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TENSORZERO_POSTGRES_URL", "postgresql://127.0.0.1/tensorzero")
    (tmp_path / "trajkit.toml").write_text('source = "http://127.0.0.1:8123/tensorzero"\n')
    assert list(databases()) == ["source", "TENSORZERO_POSTGRES_URL"]
    (tmp_path / "trajkit.toml").write_text("source = 1\n")
    assert list(databases()) == ["TENSORZERO_POSTGRES_URL"]
