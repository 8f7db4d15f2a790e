"""docs/formats.md: its console blocks print what is shown, its table is what is measured, its names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pages import printed
from trajkit.formats import known
from trajkit.sources.files.known import NAMES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")


@pytest.mark.full
def test_the_page_prints_what_is_shown(tmp_path):
    shown = printed(PAGE, tmp_path)
    digests = [re.search(r'"digest": "([0-9a-f]{12})', text) for _, text in shown]
    (imported,) = re.findall(r"digest ([0-9a-f]{12})", shown[1].output)
    assert [found[1] for found in digests if found] == [imported]


def test_the_formats_that_the_page_lists_are_those_that_there_are():
    table = PAGE.partition("## What is kept")[0]
    rows = {
        row[0]: row[1:] for row in re.findall(r"^\| `([a-z-]+)` \|[^|]*\|([^|]*)\|([^|]*)\|$", table, re.M)
    }
    assert set(rows) == set(NAMES)
    assert {name for name, (_, written) in rows.items() if written.strip()} == set(NAMES) & set(known())
    assert all(read.strip() for read, _ in rows.values())
