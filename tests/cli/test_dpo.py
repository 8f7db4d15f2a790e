"""`trajkit dpo local` and `trajkit kto local`, as a user types them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.walks import write_walks
from trajkit._core.settings import remember
from trajkit.cli.main import run

QUICK = ("--learning-rate", "0.01", "--max-steps", "2", "--yes")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store and its pairs, which were made last."""
    folder = tmp_path_factory.mktemp("dpo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_walks("episodes")
        assert run(["pairs", "episodes", "--margin", "0.5", "-o", "stores/pairs"]) == 0
    return folder


@pytest.fixture
def pairs(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    remember("last_pairs", {"path": str(Path("stores/pairs").absolute())})


@pytest.mark.full
@pytest.mark.usefixtures("pairs")
def test_the_last_pairs_become_a_tuned_model(base: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dpo", "local", "--model", base, "--beta", "0.2", "--name", "better", *QUICK]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("runs/better  succeeded  2 steps")
    assert "margin" in printed.out
    plan = printed.err
    for words in (
        "the pairs, cut by group",
        "learned   stores/pairs",
        "leaks     none",
        "sigmoid, beta 0.2",
    ):
        assert words in plan
    assert "17,408 of 54,496 weights are trained" in plan
    assert "steps     2 of 8 pairs, learning rate 0.01" in plan
    assert Path("runs/better/model/adapter_model.safetensors").is_file()

    assert run(["jobs", "show", "--json"]) == 0
    job = json.loads(capsys.readouterr().out)
    assert (job["job_id"], job["method"], job["recipe"]["loss_type"]) == ("better", "dpo", ["sigmoid"])
    assert job["train"]["n_rows"] + job["validation"]["n_rows"] == 20

    same = ["dpo", "local", "--model", base, "--beta", "0.2", *QUICK[:-1], "--merge"]
    assert run(same) == 0  # nothing is trained, so there is no question
    printed = capsys.readouterr().err
    assert "job better is the same: succeeded" in printed
    assert "merged    runs/better/merged" in printed
    assert Path("runs/better/merged/model.safetensors").is_file()

    assert run(["dpo", "local", "--model", "runs/better/model", *QUICK]) == 2
    assert "is an adapter, and dpo compares with a whole model" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.usefixtures("pairs")
def test_a_store_is_learned_by_kto(base: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["kto", "local", "--train", "episodes", "--good", "episode_return > 0.5", "--model", base]
    assert run([*asked, "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert "good" in printed.err
    assert "loss      kto, beta 0.1" in printed.err
    assert printed.out == ""
    assert list(Path("runs").iterdir()) == []
    assert run([*asked, "--good", "seed = 3", "--val-fraction", "0", "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert "answers   2 good, 38 bad" in printed.err
    assert "--desirable-weight 19 would give both the same weight" in printed.err


@pytest.mark.usefixtures("pairs")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--train", "episodes"), "is a store, and dpo learns from pairs"),
        (("--train", "nowhere"), "nowhere"),
        (("--loss-type", "nonsense"), "loss_type"),
        (("--set", "packing=true"), "packing is not for preferences"),
        (("--set", "betta=1"), "betta"),
        (("--max-length", "8"), "longer than 8 tokens"),
        (("--val", "episodes"), "is a store, and dpo learns from pairs"),
        ((), "there is no terminal to ask on"),
    ],
)
def test_what_cannot_be_trained_is_said(
    base: str, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], words: str
) -> None:
    yes = ("--yes",) if options else ()
    assert run(["dpo", "local", "--model", base, *yes, *options]) in (1, 2)
    assert words in capsys.readouterr().err
    assert not list(Path("runs").glob("*")), "a job that was refused is forgotten"


def test_without_pairs_the_command_that_makes_them_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dpo", "local", "--model", "anything"]) == 2
    assert "trajkit pairs" in capsys.readouterr().err
