"""SECURITY.md names, for each thing that is not trusted, the tests that hold what it promises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
UNTRUSTED = re.findall(r"^\| \*\*(.+?)\*\*.*\|$", PAGE, re.MULTILINE)


def test_the_page_says_who_is_trusted_and_who_is_not():
    assert {"stores", "answers of hosted services", "models, tokenizers, adapters"} <= set(UNTRUSTED)
    assert "What is trusted" in PAGE
    assert "What is not promised" in PAGE


@pytest.mark.parametrize("row", UNTRUSTED)
def test_a_test_holds_each_row_of_what_is_not_trusted(row: str) -> None:
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| **{row}**"))
    tests = re.findall(r"`(tests/\S+\.py)`", line.rpartition("| `")[2].join(["`", ""]))
    assert tests
    for test in tests:
        assert re.search(r"^(async )?def test_", (ROOT / test).read_text(encoding="utf-8"), re.MULTILINE), (
            test
        )
