"""Recorded BabyAI episodes, and how a fresh process begins one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

TRACES = Path(__file__).parents[1] / "data" / "babyai_traces"


@pytest.fixture(scope="session")
def traces() -> list[dict[str, Any]]:
    episodes = []
    for path in sorted(TRACES.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            episodes += [json.loads(line) for line in lines]
    return episodes
