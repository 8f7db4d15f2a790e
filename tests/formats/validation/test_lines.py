from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.formats.validation.rows import Check, chat
from trajkit.errors import DataError
from trajkit.formats.validation import lines
from trajkit.formats.validation.file import validate

GOOD = b'{"text": "a"}\n'


@pytest.mark.parametrize(
    ("raw", "line", "kind"),
    [
        (b'{"text": NaN}\n', 1, "not JSON"),
        (GOOD + b"not json\n", 2, "not JSON"),
        (GOOD + b'{"text": "b', 2, "the last line is cut off"),
        (GOOD + b"\n" + GOOD, 2, "blank line"),
        (GOOD + b'{"text": "\xff"}\n', 2, "not UTF-8"),
        (b'{"text": "a", "text": "b"}\n', 1, "a repeated key"),
        (b'["text"]\n', 1, "the line is not a JSON object"),
        (b'{"text": ' + b"[" * 100_000 + b"\n", 1, "nested too deep"),
    ],
)
def test_a_bad_line_is_named(check: Check, raw: bytes, line: int, kind: str) -> None:
    assert (line, kind) in [(finding.line, finding.kind) for finding in check(raw=raw).findings]


def test_the_lines_after_a_bad_one_are_read(check: Check) -> None:
    found = check(raw=b"oops\n" + GOOD + b"oops\n")
    assert found.counts == {"not JSON": 2}
    assert found.n_rows == 3


def test_many_findings_of_a_kind_are_counted_and_a_few_are_kept(check: Check) -> None:
    found = check(raw=b"oops\n" * 1000)
    assert found.counts == {"not JSON": 1000}
    assert len(found.findings) == 5


def test_a_line_that_is_too_long_is_not_parsed(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 100)
    found = check(raw=b'{"text": "' + b"a" * 1000 + b'"}\n' + GOOD)
    assert [(finding.line, finding.kind) for finding in found.findings] == [(1, "the line is too long")]
    assert found.n_rows == 2


def test_a_file_in_utf_16_says_so(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "a"}\n', encoding="utf-16")
    with pytest.raises(DataError, match="UTF-16"):
        validate(path, target="trl")


def test_what_is_no_file_says_so(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(DataError, match="not a file"):
            validate(path, target="trl")


def test_a_parquet_file_is_read_by_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    rows = [chat(), chat("hi", "")]
    pq.write_table(pa.Table.from_pylist(rows), path)
    found = validate(path, target="trl")
    assert found.n_rows == 2
    assert [(f.line, f.path, f.kind) for f in found.findings] == [
        (2, "$.messages[1].content", "empty assistant message")
    ]


def test_a_file_that_only_claims_to_be_parquet_says_so(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(GOOD)
    with pytest.raises(DataError, match="not a Parquet file"):
        validate(path, target="trl")
