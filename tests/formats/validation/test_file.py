from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.formats.validation.rows import Check, called, chat
from trajkit.errors import RequestError, StoreError
from trajkit.formats.validation.file import validate

BOM = b"\xef\xbb\xbf"
TEN = "".join(json.dumps(chat()) + "\n" for _ in range(10)).encode()


def kinds(check: Check, *rows: object, **options: object) -> set[str]:
    return set(check(*rows, **options).counts)


def test_a_file_needs_enough_rows(check: Check) -> None:
    assert kinds(check, *[chat()] * 9, target="openai") == {"too few rows"}
    assert kinds(check, *[chat()] * 10, target="openai") == set()
    assert kinds(check, *[chat()] * 2, target="fireworks") == {"too few rows"}
    assert kinds(check, chat(), target="together") == set()


def test_openai_refuses_a_byte_order_mark_and_azure_wants_it(check: Check) -> None:
    assert kinds(check, raw=BOM + TEN, target="openai") == {"a byte order mark"}
    assert kinds(check, raw=TEN, target="azure") == {"no byte order mark"}
    assert kinds(check, raw=BOM + TEN, target="azure") == set()


def test_the_suffix_is_checked(check: Check) -> None:
    rows = [chat()] * 10
    assert kinds(check, *rows, target="openai", suffix="a" * 65) == {"the suffix is too long or empty"}
    assert kinds(check, *rows, target="openai", suffix="v1.2") == set()
    assert "the suffix has a dot" in kinds(check, *rows, target="azure", suffix="v1.2")


def test_fireworks_wants_a_weight_in_every_row_or_in_none(check: Check) -> None:
    weighted = chat(weight=0.5)
    assert kinds(check, *[weighted] * 3, target="fireworks") == set()
    assert kinds(check, weighted, chat(), chat(), target="fireworks") == {"some rows have a weight"}
    assert kinds(check, *[chat(weight="much")] * 3, target="fireworks") == {
        "a number is expected, not a text"
    }


def test_too_many_images_are_found(check: Check) -> None:
    part = {"type": "image_url", "image_url": {"url": "https://x/a.png"}}
    row = chat()
    row["messages"][0]["content"] = [part] * 11
    assert kinds(check, row, *[chat()] * 9, target="openai") == {"too many images"}


def test_an_unknown_target_lists_those_there_are(check: Check) -> None:
    with pytest.raises(RequestError) as caught:
        check(chat(), target="nobody")
    assert "fireworks" in (caught.value.hint or "")


def test_a_repair_changes_only_how_rows_are_written(check: Check, tmp_path: Path) -> None:
    row = called(arguments={"to": "north"}) | {"episode_id": "e"}
    row["messages"][0]["weight"] = 1
    row["messages"][1]["weight"] = True
    raw = BOM + json.dumps(row).encode() + b"\r\n\n" + TEN
    copy = tmp_path / "copy.jsonl"
    found = check(raw=raw, target="openai", repair_to=copy)
    assert found.n_errors == 0
    assert found.repairs == {
        "arguments written as a text": 1,
        "blank line removed": 1,
        "byte order mark removed": 1,
        "extra key 'episode_id' removed": 1,
        "weight of another than the assistant removed": 1,
        "weight written as 0 or 1": 1,
    }
    first, *rest = copy.read_bytes().splitlines()
    expected = called()
    expected["messages"][1]["weight"] = 1
    assert json.loads(first) == expected
    assert len(rest) == 10
    assert check(raw=copy.read_bytes(), target="openai").counts == {}


def test_a_repair_for_azure_puts_the_mark_in(check: Check, tmp_path: Path) -> None:
    copy = tmp_path / "copy.jsonl"
    assert check(raw=TEN, target="azure", repair_to=copy).n_errors == 0
    assert copy.read_bytes().startswith(BOM)


def test_a_repair_for_trl_writes_arguments_as_objects(check: Check, tmp_path: Path) -> None:
    copy = tmp_path / "copy.jsonl"
    check(called(), target="trl", repair_to=copy)
    (line,) = copy.read_text().splitlines()
    assert json.loads(line)["messages"][1]["tool_calls"][0]["function"]["arguments"] == {"to": "north"}


def test_what_cannot_be_read_stays_in_the_copy_as_it_is(check: Check, tmp_path: Path) -> None:
    copy = tmp_path / "copy.jsonl"
    found = check(raw=b"oops\n" + TEN, target="openai", repair_to=copy)
    assert found.counts == {"not JSON": 1}
    assert copy.read_bytes().startswith(b"oops\n")


def test_half_a_character_stays_an_escape_in_the_copy(check: Check, tmp_path: Path) -> None:
    copy = tmp_path / "copy.jsonl"
    found = check(raw=b'{"text": "\\ud83d"}\n', target="trl", repair_to=copy)
    assert found.counts == {"half of a character (a lone surrogate)": 1}
    assert copy.read_bytes() == b'{"text": "\\ud83d"}\n'


def test_a_copy_never_takes_the_place_of_a_file(check: Check, tmp_path: Path) -> None:
    copy = tmp_path / "copy.jsonl"
    copy.write_text("mine")
    with pytest.raises(StoreError):
        check(chat(), target="together", repair_to=copy)
    assert copy.read_text() == "mine"


def test_a_parquet_file_is_not_repaired(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"")
    with pytest.raises(RequestError, match="only JSONL"):
        validate(path, target="trl", repair_to=tmp_path / "copy.jsonl")
