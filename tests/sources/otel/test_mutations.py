"""Whatever stands in a request in place of what belongs there, reading it gives sessions and problems."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sources.otel.record import requests
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.otel.connect import SOURCE
from trajkit.sources.wish import Wish

ODD = [
    *(None, 7, -1, "x", "", [], {}, [1], {"a": 1}, True, 1e30, "[{", "[1]", "[[]]", [{}], "null", "{}"),
    *('[{"role": 5}]', '[{"role": "user", "parts": [null, 5, {"type": 5}]}]', "\\ud800", 10**30),
    '[{"role": "user", "content": {"a": 1}}]',
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    names = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for name in names:
        yield from places(value[name], (*path, name))


@pytest.mark.parametrize("seed", range(2))
def test_odd_values_are_problems_and_nothing_else(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    known = [path for path in places(requests()) if path]
    for number in range(15):
        value: Any = copy.deepcopy(requests())
        *above, last = chosen.choice(known)
        inner = value
        for name in above:
            inner = inner[name]
        inner[last] = chosen.choice(ODD)
        path = tmp_path / f"{number}.jsonl"
        path.write_text("".join(json.dumps(one) + "\n" for one in value))
        assert all(isinstance(one, Found | Unread) for one in SOURCE.read(str(path), Wish()))
