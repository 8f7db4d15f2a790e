"""`recipes/textworld_expert_lora.yaml` at a small size: every step works, with real games and a model."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trajkit.cli.main import run
from trajkit.stack.process import end
from trajkit.store.dataset import open_dataset
from trajkit.training.runs import Runs

if shutil.which("java") is None:
    pytest.skip("there is no Java: `make system` installs it", allow_module_level=True)

RECIPE = Path(__file__).parents[3] / "recipes" / "textworld_expert_lora.yaml"
EASY = "numLocations=1, numIngredients=1, numDistractorItems=0, includeDoors=0"
SMALL = {
    "rollouts.seeds": "0:4",
    "rollouts.history": "1",
    "sides.ratio": "train=2,val=1",
    "tuned.max_steps": "2",
    "evaluated.seeds": "10000:10002",
    "evaluated.history": "1",
    "evaluated.max_steps": "3",
    "evaluated.policy_set": "max_new_tokens=8",
}


@pytest.mark.full
def test_an_expert_teaches_a_model_that_is_measured_on_other_worlds() -> None:
    text = RECIPE.read_text(encoding="utf-8")
    text = text.replace("env_id: textworld\n", f"env_id: textworld\n    env_set: [{EASY}]\n")
    Path("small.yaml").write_text(text, encoding="utf-8")
    changes = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    assert run(["run", "small.yaml", "-o", "run", *changes, "--yes"]) == 0
    complete = list(open_dataset("run/complete"))
    assert {(str(one.outcome), one.task) for one in complete} == {("success", "cookingworld")}
    job = Runs(Path("run/runs")).load("tuned")
    assert (job.status, job.recipe["lora"]["r"], job.recipe["lora"]["lora_dropout"]) == ("succeeded", 4, 0.25)
    assert job.process is not None
    end(job.process)  # it is about to end by itself
    evaluated = list(open_dataset("run/evaluated"))
    assert {(one.task, one.seed, str(one.purpose), str(one.origin["policy"])) for one in evaluated} == {
        ("cookingworld-dev", seed, "eval", name) for seed in (10000, 10001) for name in ("base", "tuned")
    }
