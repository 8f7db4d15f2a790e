"""What every command that trains does with the stores that it is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from trajkit.cli.main import run
from trajkit.store.dataset import open_dataset

SFT = ("sft", "local", "--train", "sample:babyai", "--model", "sample:tiny-base", "--dry-run")


@pytest.mark.parametrize("fraction", ["0.1", "0"])
def test_evaluation_episodes_of_the_store_are_neither_learned_nor_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fraction: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([*SFT, "--val-fraction", fraction]) == 0
    assert "the store without its 15 evaluation episodes" in capsys.readouterr().err
    (whole,) = Path("stores").glob("sft-*-train")
    assert {episode.purpose for episode in open_dataset(whole)} == {"train"}
    sides = [path for path in Path("stores").glob("sft-*/*") if path.name in ("train", "val")]
    assert len(sides) == (2 if fraction != "0" else 0)
    assert sum(len(list(open_dataset(side))) for side in sides) in (40, 0)
    capsys.readouterr()
    assert run([*SFT, "--val-fraction", fraction]) == 0  # the same store is taken again
    assert len(list(Path("stores").glob("sft-*-train"))) == 1
