"""Postgres URLs as TensorZero and libpq write them, and what is shown of them."""

from __future__ import annotations

from typing import Any

import pytest

from trajkit._core.settings import Project
from trajkit.errors import RequestError
from trajkit.sources.open import find_source, shown
from trajkit.sources.tensorzero.connect.url import Address, parse_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgres://u:p@h/d", Address("h", 5432, "u", "p", "d")),
        ("postgresql://h:6543", Address("h", 6543, "", "", "tensorzero")),
        ("postgresql://u%40x:p%3A%2F%3F@h:1/d%20e", Address("h", 1, "u@x", "p:/?", "d e")),
        ("postgresql://[::1]:7000/d", Address("::1", 7000, "", "", "d")),
        ("postgresql://[::1]/d", Address("::1", 5432, "", "", "d")),
        ("postgresql:///d?host=/run/pg&port=9&user=u&password=p", Address("/run/pg", 9, "u", "p", "d")),
        (
            "postgresql://u@h/d?sslmode=require&options=-c%20a%3Db",
            Address("h", 5432, "u", "", "d", (("options", "-c a=b"), ("sslmode", "require"))),
        ),
    ],
)
def test_a_url_is_taken_apart(url: str, expected: Address) -> None:
    assert parse_url(url).is_postgres
    assert parse_url(url) == expected


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://u:hunter2@h/d", "must start with http"),
        ("postgresql:///d", "must name one host"),
        ("postgresql://u:hunter2@a,b/d", "must name one host"),
        ("postgresql://u:hunter2@h:port/d", "port that is not a number"),
        ("postgresql://u:hunter2@h:65536/d", "port that is not a number"),
    ],
)
def test_a_bad_url_is_an_error_that_does_not_repeat_it(url: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        parse_url(url)
    assert "hunter2" not in str(caught.value)


def test_a_password_is_in_no_text_of_an_address() -> None:
    address = parse_url("postgresql://u:hunter2@h/d?password=hunter3&sslmode=require")
    assert address.password == "hunter3"
    assert address.shown == "postgresql://h:5432/d"
    for text in (repr(address), str(address), f"{address}"):
        assert "hunter" not in text


def test_what_libpq_is_given_is_quoted_and_the_url_wins() -> None:
    address = parse_url(r"postgresql://u:it's\%20me@h/d?sslmode=disable")
    given = address.connection_string(sslmode="verify-full", connect_timeout="10")
    assert r"password='it\'s\\ me'" in given
    assert "sslmode='disable'" in given
    assert "connect_timeout='10'" in given


def test_the_environment_names_a_postgres_after_a_clickhouse(monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TENSORZERO_POSTGRES_URL", "postgres://u:hunter2@h/d")
    location = find_source(None, Project())
    assert (shown(location), location.named_by) == ("postgresql://h:5432/d", "TENSORZERO_POSTGRES_URL")
    assert "hunter2" not in repr(location)
    monkeypatch.setenv("TENSORZERO_CLICKHOUSE_URL", "http://u:hunter2@h/d")
    assert find_source(None, Project()).named_by == "TENSORZERO_CLICKHOUSE_URL"
    assert find_source(None, Project(source="postgresql://x/y")).named_by == "trajkit.toml"


def test_without_a_source_the_hint_names_both_databases(monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError) as caught:
        find_source(None, Project())
    assert caught.value.hint is not None
    assert "TENSORZERO_CLICKHOUSE_URL or TENSORZERO_POSTGRES_URL" in caught.value.hint
