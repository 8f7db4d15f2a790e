"""What reads a store part by part gives the same, however the episodes lie in its files."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.matrix import daily
from trajkit.cli.main import run
from trajkit.schema import Episode
from trajkit.store.reader import Store

COMMANDS = {
    "mask": "mask {} --reason loop -o {}/made",
    "weight": "weight {} --scheme grpo -o {}/made",
    "score": "score {} --with length.py:length --name length -o {}/made",
    "dedupe": "dedupe {} --exact --episodes --near 0.6 --shingle 1 -o {}/made",
    "split": "split {} --ratio made=0.5,other=0.5 -o {}/made",
    "convert": "convert {} --to openai-sft -o {}/made.jsonl",
    "pairs": "pairs {} --match prompt --margin 0.1 --no-verify -o {}/made",
    "stats": "stats {} --json",
}


@pytest.fixture(scope="module")
def episodes() -> list[Episode]:
    from tests.curation.conftest import make_attempt

    rng = random.Random(3)
    words = ["go left", "go right", "open the door"]
    return [
        make_attempt(
            f"e{number:02}",
            score=number % 4 / 4,
            prompts=[rng.choice(words) for _ in range(3)],
            answers=[rng.choice(words) for _ in range(3)],
            step={"observation": "wall"},
            seed=number // 4,
        )
        for number in range(12)
    ]


@pytest.mark.parametrize("name", daily(COMMANDS, {"dedupe", "split", "pairs", "stats"}))
def test_many_small_parts_in_many_files_give_what_one_gives(
    name: str,
    episodes: list[Episode],
    attempts: Callable[..., Store],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("length.py").write_text("def length(episode):\n    return float(len(episode.steps[0].action))\n")
    for module in ("derive._STEPS_PER_PART", "leaks.near._BANDS_AT_ONCE"):
        monkeypatch.setattr(f"trajkit.curation.{module}", 8)
    monkeypatch.setattr("trajkit.store.view._STEPS_AT_ONCE", 8)
    found = []
    spans = [range(5, 10), range(5), range(10, 12)]
    for place, layout in (("whole", None), ("files", spans)):
        store = attempts(episodes, layout)
        assert len(store.parts("steps")) == (1 if layout is None else 3)
        Path(place).mkdir()
        assert run(COMMANDS[name].format(store.path, place).split()) == 0
        said = capsys.readouterr().out.replace(str(store.path), "STORE") if name == "stats" else ""
        made = {
            str(path.relative_to(place)): json.loads(path.read_text())["digest"]
            for each in ("manifest.json", "pairs.json")
            for path in Path(place).rglob(each)
        }
        rows = {path.name: path.read_bytes() for path in Path(place).glob("*.jsonl")}
        found.append((said, made, rows))
    assert found[0] == found[1]
    assert any(found[0])
