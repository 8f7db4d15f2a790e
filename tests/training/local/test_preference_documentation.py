"""The console blocks of docs/prefer.md print what is shown, and it names only options that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pages import printed
from trajkit.schema import Episode, Transition, message
from trajkit.store.writer import write_episodes
from trajkit.training.local.preferences.recipe import DpoRecipe

PAGE = (Path(__file__).parents[3] / "docs" / "prefer.md").read_text(encoding="utf-8")


def attempt(seed: int, action: str, *, is_won: bool) -> Episode:
    step = Transition(
        step_index=0,
        messages=(message("user", f"Observation:\na red key {seed % 5 + 1} steps left"),),
        completion=message("assistant", f'{{"thinking": "", "action": "{action}"}}'),
        observation=f"a red key {seed % 5 + 1} steps left",
        action=action,
        action_executed=action,
        variant_name="baseline",
    )
    return Episode(
        episode_id=f"{seed:02}-{action.replace(' ', '-')}",
        source="test",
        env_id="keys",
        task="goto",
        seed=seed,
        metrics={"episode_return": float(is_won)},
        outcome="success" if is_won else "failure",
        steps=(step,),
    )


@pytest.mark.full
def test_the_page_prints_what_is_shown(tmp_path: Path) -> None:
    attempts = [
        attempt(seed, action, is_won=is_won)
        for seed in range(24)
        for action, is_won in (("turn left", True), ("go forward", False))
    ]
    write_episodes(tmp_path / "stores" / "attempts", attempts, kind="test")
    shown = printed(PAGE, tmp_path, OMP_NUM_THREADS="1")
    assert len(shown) == 4
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_what_the_page_sets_is_in_the_recipe() -> None:
    assert set(re.findall(r"--set ([a-z_]+)=", PAGE)) <= set(DpoRecipe.model_fields)
