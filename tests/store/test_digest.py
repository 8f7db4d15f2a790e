from __future__ import annotations

import hashlib
import json
import struct
import tempfile
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matrix import portions
from tests.store.conftest import make_episode, make_step
from trajkit.schema import Episode, Metric
from trajkit.store.arrow import rows_of
from trajkit.store.dataset import open_dataset
from trajkit.store.digest import spelled_json
from trajkit.store.engine import connect
from trajkit.store.layout import TABLES, Column
from trajkit.store.writer import write_episodes

_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def canonical(value: Any, *, is_closed: bool = False) -> str:
    """Canonical JSON as docs/store-format.md defines it, written without DuckDB."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value) if is_closed or -(2**63) <= value < 2**64 else number(float(value))
    if isinstance(value, float):
        return number(value)
    if isinstance(value, str):
        return '"' + "".join(_SHORT.get(c, f"\\u{ord(c):04X}" if c < " " else c) for c in value) + '"'
    if isinstance(value, list):
        return f"[{','.join(canonical(item, is_closed=is_closed) for item in value)}]"
    members = list(value.items()) if is_closed else sorted(value.items(), key=lambda item: item[0].encode())
    inner = (f"{canonical(key)}:{canonical(item, is_closed=is_closed)}" for key, item in members)
    return "{" + ",".join(inner) + "}"


def number(value: float) -> str:
    """The shortest digits that name the double: plain from 1e-6 up to 1e21, else with an exponent."""
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    point = len(text) + exponent  # digits before the decimal point
    if value == 0:
        plain = "0.0"
    elif 0 < point <= 21:
        plain = f"{text.ljust(point, '0')[:point]}.{text[point:] or '0'}"
    elif -6 < point <= 0:
        plain = f"0.{'0' * -point}{text}"
    else:
        fraction = f".{text[1:]}" if len(text) > 1 else ""
        plain = f"{text[0]}{fraction}e{point - 1}"
    return f"{'-' if sign else ''}{plain}"


def row_bytes(table: str, row: dict[str, Any]) -> bytes:
    """The bytes of a row as docs/store-format.md defines them, written without Arrow."""
    present, numbers, texts = b"", b"", b""
    for column in TABLES[table]:
        value = element(column, row.get(column.name))
        if not column.is_digested:
            continue
        present += bytes([value is not None])
        if value is None:
            numbers += bytes(8)
        elif isinstance(value, str):
            numbers += struct.pack("<q", len(value.encode()))
            texts += value.encode()
        else:
            numbers += struct.pack("<d" if isinstance(value, float) else "<q", value)
    return present + numbers + texts


def element(column: Column, value: Any) -> str | int | float | None:
    if isinstance(value, datetime):
        return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    if value is None or column.sql_type in ("VARCHAR", "BIGINT", "BOOLEAN"):
        return value
    if column.sql_type == "DOUBLE":
        return float(value)
    if column.sql_type == "METRICS" or column.sql_type == "JSON":
        value = json.loads(value)
    if value is None or (column.sql_type == "METRICS" and not value):
        return None
    return canonical(value, is_closed=column.is_closed)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def oracle(episodes: list[Episode]) -> str:
    """Digest v1 in plain Python."""
    lines = []
    for episode in episodes:
        rows = rows_of(episode)
        content = sha256(b"".join(row_bytes(table, row) for table in TABLES for row in rows[table]))
        lines.append(f"{episode.episode_id}:{content}\n")
    return sha256("".join(sorted(lines, key=str.encode)).encode())


@portions(7)
@settings(settings.get_profile("store"))
@given(data=st.data())
def test_the_digest_is_what_the_definition_says(
    portion: int, data: st.DataObject, any_episodes: st.SearchStrategy[list[Episode]]
) -> None:
    episodes = data.draw(any_episodes)
    with tempfile.TemporaryDirectory() as folder:
        assert write_episodes(Path(folder) / "store", episodes, kind="test").digest == oracle(episodes)


@portions(10)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_json_has_one_spelling(portion: int, data: st.DataObject, any_json: st.SearchStrategy[Any]) -> None:
    value = data.draw(any_json)
    assert _spelled(json.dumps(value)) == canonical(value)
    assert _spelled(json.dumps(value, ensure_ascii=False, indent=1)) == canonical(value)


@portions(10)
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]))
def test_a_number_has_its_shortest_spelling(portion: int, value: float) -> None:
    if value - value == 0:  # finite
        assert _spelled(repr(value)) == number(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-0.0", "-0.0"),
        ("1", "1"),
        ("1.0", "1.0"),
        ("1e2", "100.0"),
        ("18446744073709551615", "18446744073709551615"),
        ("18446744073709551616", "18446744073709552000.0"),
        ("1e21", "1e21"),
        ("0.000001", "0.000001"),
        ("1e-7", "1e-7"),
        ('"\\u00e9\\/\\u0000\\u001f"', '"é/\\u0000\\u001F"'),
        ('{"b":1,"a":{"d":null,"c":[]}}', '{"a":{"c":[],"d":null},"b":1}'),
        ('{"a":1,"a":2}', '{"a":2}'),
        ("null", "null"),
        ("[null]", "[null]"),
    ],
)
def test_json_is_spelled(text: str, expected: str) -> None:
    assert _spelled(text) == expected


def _spelled(text: str, connection: duckdb.DuckDBPyConnection = connect()) -> str:  # noqa: B008
    sql = f"SELECT coalesce({spelled_json('r.value')}, 'null') FROM (SELECT CAST(? AS JSON) AS value) AS r"
    (row,) = connection.execute(sql, [text]).fetchall()
    return str(row[0])


def digest_of(folder: Path, *episodes: Episode, metrics: list[Metric] | None = None) -> str:
    goal = folder / f"store-{len(list(folder.iterdir()))}"
    return write_episodes(goal, episodes, kind="test", metrics=metrics).digest


def test_the_known_digest_of_a_known_episode(tmp_path: Path) -> None:
    # Computed once, 2026-11-21: a change of this number is a change of the format.
    known = "a2632c5746101fd849d33d411b9a194775aef2b7af55dab851f19541dd3a4fba"
    assert digest_of(tmp_path, make_episode()) == oracle([make_episode()]) == known
    assert digest_of(tmp_path) == hashlib.sha256(b"").hexdigest()


def test_content_changes_the_digest_and_what_only_one_source_knows_does_not(tmp_path: Path) -> None:
    plain = digest_of(tmp_path, make_episode(n_steps=1))
    for same in (
        {"source": "elsewhere", "origin": {"url": "x"}},
        {"steps": (make_step(0, extra={"a": 1}, snapshot_hash="ff", cost_usd=1.5),)},
    ):
        assert digest_of(tmp_path, make_episode(n_steps=1, **same)) == plain
    changes: list[dict[str, Any]] = [
        {"seed": 8},
        {"seed": None},
        {"task": ""},
        {"tags": {"a": ""}},
        {"metrics": {}},
        {"metrics": {"episode_return": 0.8}},
    ]
    others = {digest_of(tmp_path, make_episode(n_steps=1, **change)) for change in changes}
    assert len({plain, *others}) == 7


def test_columns_of_metrics_that_an_episode_does_not_have_do_not_change_its_hash(tmp_path: Path) -> None:
    more = [
        Metric(name="episode_return", level="episode", kind="float"),
        Metric(name="zeal", level="episode", kind="boolean"),
        Metric(name="accuracy", level="inference", kind="float"),
    ]
    assert digest_of(tmp_path, make_episode(), metrics=more) == digest_of(tmp_path, make_episode())
    bare = make_episode(metrics={})
    assert digest_of(tmp_path, bare, metrics=more) == digest_of(tmp_path, bare)


def test_a_store_that_is_read_and_written_again_has_the_same_digest(tmp_path: Path) -> None:
    first = digest_of(tmp_path, make_episode("a"), make_episode("b", n_steps=0))
    again = write_episodes(tmp_path / "again", open_dataset(tmp_path / "store-0"), kind="copy")
    assert again.digest == first
