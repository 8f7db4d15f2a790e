"""`trajkit rl local` from a plan to a model, and what it refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from trajkit.cli.main import run
from trajkit.commands.comparison.contenders import seen_by
from trajkit.commands.training.tuned import tuned_model
from trajkit.registry.lineage import Lineage
from trajkit.store.dataset import open_dataset
from trajkit.training.job import TuneJob
from trajkit.training.runs import Runs

WORLD = "tests.training.rl.worlds:Letters"
RESERVED = '[[reserved]]\nenv = "letters"\ntasks = ["default"]\nseeds = "4:12"\nstates = ["state 1"]\n'
QUICK = (
    "--iterations 2 --seeds-per-iteration 3 --max-new-tokens 1 --history 0 --minibatches 1"
    " --set num_threads=1"
)


@pytest.fixture(autouse=True)
def here() -> None:
    Path("trajkit.toml").write_text(RESERVED)


def rl(base: str, *options: str, env: str = WORLD) -> int:
    return run(["rl", "local", "--model", base, "--env", env, *QUICK.split(), *options])


def job() -> TuneJob:
    (found,) = Runs(Path("runs")).all()
    return found


def events(kind: str) -> list[dict[str, Any]]:
    return [event for event in Runs(Path("runs")).events(job().job_id) if event["kind"] == kind]


def test_a_plan_plays_nothing(base: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert rl(base, "--dry-run") == 0
    said = capsys.readouterr().err
    assert f"played    {WORLD} default, seeds 0:4,12:14: 2 iterations of 3 groups of 8 attempts" in said
    assert "measured  seeds 4:12 of every task, every 5 iterations" in said
    assert "steps     2 of the optimizer by grpo, 1 in each iteration, learning rate 0.002" in said
    assert not list(Runs(Path("runs")).all())


def test_a_job_trains_in_its_own_process_and_keeps_what_it_played(
    base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rl(base, "--keep-rollouts", "--yes") == 0
    made = job()
    assert (made.job_id, made.method, made.status, made.train) == ("tiny-letters-rl", "rl", "succeeded", None)
    assert made.result["n_iterations"] == 2
    folder = Path("runs") / made.job_id
    assert [event["iteration"] for event in events("evaluation")] == [0, 2]
    left = [event["left"] for event in events("iteration")]
    assert left == [{"their world is one of the held-out seeds": 8}, {}]  # seed 1 begins in a reserved state
    assert "held-out success" in capsys.readouterr().out
    page = (folder / "rl.html").read_text()
    assert {"Success", "KL divergence", "Entropy", "Held-out seeds"} <= {
        part.partition("</h2>")[0] for part in page.split("<h2>")
    }
    assert "seeds 0:4,12:14" in (folder / "model" / "README.md").read_text()
    stores = [open_dataset(path) for path in sorted((folder / "rollouts").iterdir())]
    assert [store.store.manifest.counts.n_episodes for store in stores] == [24, 24]
    (entry,) = stores[1].store.manifest.lineage
    assert (entry.verb, entry.arguments["job"], entry.arguments["iteration"]) == ("rl local", made.job_id, 2)
    tuned = tuned_model(Runs(Path("runs")), made)
    seen = [(each.how, each.env, each.seeds) for each in seen_by(Lineage([tuned], []), "tuned", tuned)]
    assert seen == [("learned", "letters", "0:4,12:14"), ("was chosen by playing", "letters", "4:12")]
    assert run(["jobs", "show", made.job_id]) == 0
    assert rl(base, "--keep-rollouts", "--yes") == 0  # the same job: nothing is trained twice
    assert len(events("end")) == 1


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_job_outlives_ctrl_c_and_goes_on_when_it_was_killed(
    base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["rl", "local", "--model", base, "--env", WORLD, *QUICK.split(), "--yes"]
    endless = [sys.executable, "-m", "trajkit", *command, "--iterations", "4000", "--eval-every", "4000"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    waiting = subprocess.Popen(endless, env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 800
    while not list(Runs(Path("runs")).all()) or len(events("iteration")) < 3:
        assert waiting.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    waiting.send_signal(signal.SIGINT)
    said = waiting.communicate(timeout=60)[1]
    assert waiting.returncode == 130
    assert f"job {job().job_id} continues: `trajkit jobs wait {job().job_id}` waits for it again" in said
    n_done = len(events("iteration"))
    while len(events("iteration")) < n_done + 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process = job().process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    while process.is_running:
        time.sleep(0.05)
    assert run(["jobs", "show"]) == 0
    assert "its process is gone" in capsys.readouterr().err
    n_done = events("iteration")[-1]["iteration"]
    assert run(["jobs", "resume", "--detach"]) == 0
    while events("iteration")[-1]["iteration"] < n_done + 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert run(["jobs", "cancel"]) == 0
    numbers = [event["iteration"] for event in events("iteration")]
    again = [number for number in set(numbers) if numbers.count(number) > 1]
    assert len(again) <= 2  # those after the last checkpoint
    for number in again:
        one, other = (event for event in events("iteration") if event["iteration"] == number)
        assert one["episode_return"] == other["episode_return"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--num-generations 1", "grpo compares the attempts at a seed, and num_generations is 1"),
        ("--seeds 0:5", "seed 4 of letters default is reserved for evaluation"),
        ("--eval-seeds 10:14", "seed 12 of letters is not reserved for every task"),
        ("--env-set api_key=abc", "the setting api_key looks like a secret"),
        ("--task other", "no task 'other'"),
        ("--temperature 0", "temperature 0 always plays the same"),
        ("--set packing=true", "packing does not apply here"),
        ("--variant baseline --config no.toml", "no.toml"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    base: str, capsys: pytest.CaptureFixture[str], options: str, words: str
) -> None:
    assert rl(base, *options.split()) == 2
    assert words in capsys.readouterr().err
    assert not Path("runs").exists()


def test_an_environment_that_is_not_there_is_named(base: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert rl(base, env="no_such.module:World") == 2
    assert "there is no module 'no_such" in capsys.readouterr().err
