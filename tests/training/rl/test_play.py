"""What a job plays is what it was prepared with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.tiny import make_tiny
from trajkit.errors import RequestError
from trajkit.training.local.recipe import LoraRecipe
from trajkit.training.local.running.worker import work
from trajkit.training.rl.play import check_sources, sources_of
from trajkit.training.rl.prepare import RlRequest, prepare_rl
from trajkit.training.rl.recipe import RlRecipe, WorldRecipe
from trajkit.training.runs import Runs

RECIPES = Path(__file__).parents[3] / "recipes"
CODE = "from tests.training.rl.worlds import Letters as World, talk as agent\n"


def test_a_job_does_not_go_on_with_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("new_world.py").write_text(CODE)
    Path("new_agent.py").write_text(CODE)
    world = WorldRecipe(env="new_world:World", policy="new_agent:agent", max_new_tokens=1, history=0)
    recipe = RlRecipe(play=world, lora=LoraRecipe(r=2), iterations=1, seeds_per_iteration=2, num_threads=1)
    request, runs = RlRequest(base=make_tiny(tmp_path / "tiny"), recipe=recipe), Runs(tmp_path / "runs")
    assert prepare_rl(request, runs, name="job").is_new
    Path("new_agent.py").write_text(CODE + "# another agent\n")
    assert work(runs, "job") == 1
    assert "new_agent:agent has changed since this job was prepared" in str(runs.load("job").error)
    assert prepare_rl(request, runs).is_new
    Path("new_agent.py").write_text(CODE)
    assert not prepare_rl(request, runs).is_new
    assert work(runs, "job") == 0


def test_a_job_does_not_go_on_with_other_prompts(tmp_path: Path) -> None:
    config = Path(shutil.copytree(RECIPES / "babyai", tmp_path / "recipe")) / "tensorzero.toml"
    world = WorldRecipe(env="babyai", config=str(config), function="act", variant="baseline")
    world = world.model_copy(update={"sources": sources_of(world)})
    check_sources(world)
    template = next(path for path in config.parent.rglob("*.minijinja") if "baseline" in str(path))
    template.write_text(template.read_text() + " Be quick.")
    with pytest.raises(RequestError, match=r"tensorzero.toml has changed since this job was prepared"):
        check_sources(world)
