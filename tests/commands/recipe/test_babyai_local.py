"""The loop as a recipe, at small size: the real gateway, and the tiny model in place of the stand-in."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from trajkit.cli.main import run
from trajkit.stack.local import stop_stack
from trajkit.stack.process import end
from trajkit.store.dataset import open_dataset
from trajkit.training.runs import Runs

SMALL = {
    **dict.fromkeys(
        (f"{step}.task" for step in ("held_out", "rollouts", "reinforced", "temperatures", "evaluated")),
        "goto",
    ),
    "rollouts.seeds": "0:12",
    "rollouts.max_steps": "2",
    **dict.fromkeys(("sides.ratio", "control_sides.ratio"), "train=0.5,val=0.5"),
    "good.where": "seed % 2 > 0",  # of so few none may be good
    **dict.fromkeys(("tuned.max_steps", "control.max_steps"), "1"),
    "reinforced.seeds": "12:13",
    "reinforced.eval_seeds": "1003:1004",
    "reinforced.max_episode_steps": "3",
    "reinforced.iterations": "1",
    "held_out.seeds": "1000:1004",
    "temperatures.seeds": "1002:1003",
    "temperatures.max_steps": "2",
    "evaluated.seeds": "1000:1002",
    "evaluated.max_steps": "2",
    "compared.require": "success.n_pairs >= 2",
}


def _digest(store: str) -> str:
    return str(json.loads(Path(store, "manifest.json").read_text(encoding="utf-8"))["digest"])


@pytest.fixture
def folder(folder: Path) -> Iterator[Path]:
    """An empty working folder, whose services are stopped in the end."""
    Path("trajkit.toml").touch()
    try:
        yield folder
    finally:
        stop_stack(folder=folder)


@pytest.mark.full
def test_the_loop_plays_learns_registers_serves_and_measures(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    assert run(["run", "babyai_local", "-o", "run", *changes, "--yes"]) == 0
    printed = capsys.readouterr()
    assert "run  17 steps done" in printed.out
    played, evaluated = (list(open_dataset(f"run/{name}")) for name in ("played", "evaluated"))
    assert {(episode.task, episode.seed) for episode in played} == {("goto", seed) for seed in range(12)}
    assert {step.model_name for episode in played for step in episode.steps} == {"agent"}
    assert {(episode.seed, (episode.origin or {})["policy"]) for episode in evaluated} == {
        (seed, variant)
        for seed in range(1000, 1002)
        for variant in ("baseline", "baseline_control", "baseline_sft", "baseline_rl")
    }
    assert {
        (episode.seed, episode.tags["trajkit.decoding"]) for episode in open_dataset("run/temperatures")
    } == {(1002, f"temperature={t}") for t in ("1", "0.5", "0.25")}
    jobs = [Runs(Path("run/runs")).load(name) for name in ("tuned", "control", "reinforced")]
    assert [job.recipe["seed"] for job in jobs] == [0, 0, 0]
    sides = [_digest(f"run/{name}/train") for name in ("sides", "control_sides")]
    assert [job.train.digest for job in jobs[:2]] == sides
    assert jobs[2].base.endswith("run/runs/tuned/merged")
    # chance makes the control the selection in one run of 924, and then nothing is written
    assert _digest("run/good") != _digest("run/good-control")
    for job in jobs:
        assert job.process is not None
        end(job.process)  # it is about to end by itself
    config = tomllib.loads(Path("run/config/tensorzero.toml").read_text(encoding="utf-8"))
    variants = config["functions"]["act"]["variants"]
    assert (variants["baseline_sft"]["model"], variants["baseline_control"]["model"]) == ("tuned", "control")
    report = json.loads(Path("run/compared/report.json").read_text(encoding="utf-8"))
    assert {(each["baseline"], each["candidate"]) for each in report["comparisons"]} >= {
        (f"{baseline}, temperature={t}", f"{candidate}, temperature={t}")
        for baseline, candidate in (
            ("baseline", "baseline_sft"),
            ("baseline", "baseline_control"),
            ("baseline_control", "baseline_sft"),
            ("baseline_sft", "baseline_rl"),
        )
        for t in ("1", "0.5")
    }
    through = [
        "evaluate",
        "babyai",
        "--task",
        "goto",
        "--variants",
        "baseline,baseline_sft",
        "--seeds",
        "1000:1001",
    ]
    assert (
        run([*through, "--through", "gateway", "--max-steps", "2", "--runs", "run/runs", "-o", "gateway"])
        == 0
    )
    exported = ["export", "--function", "act", "--variant", "baseline_sft", "--include-eval", "-o", "asked"]
    assert run(exported) == 0
    (asked,) = open_dataset("asked")
    assert (asked.seed, {step.model_name for step in asked.steps}) == (1000, {"tuned"})
