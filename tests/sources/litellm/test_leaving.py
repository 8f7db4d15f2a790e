"""docs/leaving-tensorzero.md: every command of its console blocks is run; `...` stands for what differs."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pages import blocks, printed
from tests.rollouts.test_agent_docs import EXAMPLES
from tests.sources.litellm import record
from trajkit.stack import model_server

PAGE = (Path(__file__).parents[3] / "docs" / "leaving-tensorzero.md").read_text(encoding="utf-8")


@pytest.fixture
def snapshot(rows: Any, client: Any) -> Iterator[None]:
    rows.insert("ConfigSnapshot", config="", extra_templates={}, hash=6, tensorzero_version="2026.6.0")
    yield
    client.command("DELETE FROM ConfigSnapshot WHERE hash = 6")


@pytest.mark.full
@pytest.mark.usefixtures("snapshot")
def test_the_page_prints_what_is_shown(rows: Any, url: str, tmp_path: Path) -> None:
    for value in (0.1, 0.7, 0.9):
        rows.episode(value)
    rows.write()
    (config,) = blocks(PAGE, "yaml")
    (tmp_path / "litellm.yaml").write_text(config, encoding="utf-8")
    (tmp_path / "spend_logs.jsonl").write_bytes(
        gzip.decompress((record.DATA / f"{record.ROWS}.gz").read_bytes())
    )
    (tmp_path / "reasoner.py").write_text(EXAMPLES["reasoner"], encoding="utf-8")
    with model_server.start(mistakes=0, invalid=0) as server:  # stands for the proxy
        page = PAGE.replace("http://127.0.0.1:4000", server.url)
        shown = printed(page, tmp_path, TENSORZERO_CLICKHOUSE_URL=url, OPENAI_API_KEY="only-for-tests")
    assert len(shown) == 8
    assert (tmp_path / "litellm.yaml").read_text(encoding="utf-8").startswith("# litellm.yaml\n")
