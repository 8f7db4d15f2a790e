"""`trajkit sft local` and `trajkit jobs`, as a user types them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.jobs import an_episode
from tests.matrix import daily
from trajkit.cli.main import run
from trajkit.store.writer import write_episodes

QUICK = ("--num-train-epochs", "1", "--learning-rate", "0.01", "--runs", "runs")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    goal = tmp_path_factory.mktemp("sft") / "episodes"
    write_episodes(goal, [an_episode(f"e{n}", seed=n) for n in range(20)], kind="test")
    return goal


@pytest.fixture(autouse=True)
def _store(written: Path) -> None:
    shutil.copytree(written, "episodes")


def sft(base: str, *more: str) -> int:
    return run(["sft", "local", "--train", "episodes", "--model", base, *QUICK, *more])


@pytest.mark.full
def test_a_store_becomes_a_tuned_model(base: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sft(base, "--yes") == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("runs/tiny-train  succeeded  ")
    plan = ("cut by world", "learned   stores/sft-", "measured  stores/sft-", "leaks     none", "rank 16")
    assert all(words in printed.err for words in plan)
    assert Path("runs/tiny-train/model/adapter_model.safetensors").is_file()
    assert "losses    runs/tiny-train/loss.html\n" in printed.err
    assert Path("runs/tiny-train/loss.html").is_file()

    assert run(["jobs", "show"]) == 0
    assert "num_train_epochs" in capsys.readouterr().out
    assert run(["jobs", "list", "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)
    assert (job["job_id"], job["status"]) == ("tiny-train", "succeeded")
    assert run(["jobs", "wait", "tiny-train"]) == 0
    capsys.readouterr()

    assert sft(base, "--yes") == 0  # the same again: nothing is trained
    assert "job tiny-train is the same: succeeded" in capsys.readouterr().err
    assert [path.name for path in Path("runs").iterdir()] == ["tiny-train"]


def test_a_dry_run_shows_the_plan_and_leaves_no_job(base: str, capsys: pytest.CaptureFixture[str]) -> None:
    lists = ("--set", 'lora.target_modules=["q_proj"]')
    assert sft(base, "--dry-run", "--packing", "--r", "4", "--val-fraction", "0", *lists) == 0
    printed = capsys.readouterr()
    assert "LoRA of rank 4" in printed.err
    assert "weights   512 of 37,600 are trained" in printed.err  # 2 layers, 32 to 4 and 4 to 32
    assert "measured  nothing" in printed.err
    assert printed.out == ""
    assert list(Path("runs").iterdir()) == []


def test_every_weight_is_trained_where_there_is_no_adapter(
    base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sft(base, "--dry-run", "--set", "lora=null") == 0
    printed = capsys.readouterr().err
    assert "all weights are trained" in printed
    assert "37,088 of 37,088" in printed


@pytest.mark.full
def test_nobody_to_ask_is_an_error(base: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sft(base) == 2
    assert "--yes" in capsys.readouterr().err
    assert not list(Path("runs").glob("*")), "a job that was refused is forgotten"


@pytest.mark.parametrize(
    ("options", "words"),
    daily(
        [
            (("--set", "lora.rank=4"), "lora.rank"),
            (("--set", "optimum=1"), "optimum"),
            (("--packing", "--set", "group_by_length=true"), "packing"),
            (("--max-length", "5"), "longer than 5 tokens"),
            (("--val", "episodes"), "leaks"),
            (("--set", "optim=adamm"), "no optimizer 'adamm'"),
            (("--chat-template", "chatml"), "no token <|im_start|>"),
            (("--report-to", "wandb"), "which is not installed"),
            (("--best-by", "episode_return"), "needs --best-seeds"),
            (("--best-seeds", "1:2"), "is for --best-by"),
        ],
        4,
    ),
)
def test_what_cannot_be_trained_is_said(
    base: str, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], words: str
) -> None:
    assert sft(base, "--yes", *options) in (1, 2, 3)
    assert words in capsys.readouterr().err
    assert not list(Path("runs").glob("*")) if Path("runs").exists() else True


def test_jobs_without_any_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["jobs", "show"]) == 2
    assert "no job was started here" in capsys.readouterr().err
    assert run(["jobs", "list"]) == 0
    assert run(["jobs", "wait", "none"]) == 2
