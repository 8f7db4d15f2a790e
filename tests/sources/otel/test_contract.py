"""The source keeps its contract on spans of every spelling."""

from __future__ import annotations

import json
from pathlib import Path

from tests.sources.otel.record import GOAL, requests
from trajkit.sources.otel.connect import SOURCE
from trajkit.testing import SourceContract


class TestOtel(SourceContract):
    source = SOURCE
    place = "tests/data/sources/otel/traces.jsonl"
    n_episodes = 4
    n_steps = 7


def test_the_fixture_is_what_its_script_writes() -> None:
    assert [json.loads(line) for line in Path(GOAL).read_text().splitlines()] == requests()
