"""The pages on training name only what there is, and docs/prefer.md prints what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from tests.pages import printed
from trajkit.cli.main import cli
from trajkit.schema import Episode, Transition, message
from trajkit.store.writer import write_episodes
from trajkit.training.hosted.answer import way_out
from trajkit.training.hosted.openai.client import PROFILES
from trajkit.training.local.preferences.recipe import DpoRecipe
from trajkit.training.local.recipe import LocalRecipe

DOCS = Path(__file__).parents[2] / "docs"
PAGE, HOSTED, PREFER = (
    (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("train", "hosted", "prefer")
)


def test_what_the_page_sets_is_in_the_recipe() -> None:
    named = set(re.findall(r"--set\s+([a-z_]+)[.=]", PAGE))
    assert named == {"group_by_length", "early_stopping_patience", "lora", "play", "num_processes", "fsdp"}
    assert named <= set(LocalRecipe.model_fields)


def test_the_commands_on_jobs_exist() -> None:
    named = set(re.findall(r"trajkit jobs ([a-z]+)", PAGE))
    assert named == set(group("jobs").commands) - {"show", "pause"}


def test_the_profiles_are_all_there_with_their_variables() -> None:
    named = set(re.findall(r"--profile ([a-z]+)", HOSTED))
    assert named == set(PROFILES) - {"openai", "other"}
    assert all(profile.key_variable in HOSTED for profile in PROFILES.values())
    assert PROFILES["openai"].default_model in HOSTED


def test_the_commands_on_jobs_of_services_exist() -> None:
    named = set(re.findall(r"trajkit jobs ([a-z]+)", HOSTED))
    assert named == set(group("jobs").commands) - {"list"}


def test_every_failure_of_the_table_has_a_way_out() -> None:
    table = HOSTED.partition("| the job failed with |")[2]
    failures = re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| (.*?) \| ", table, re.MULTILINE)))
    assert len(failures) == 8
    for text in failures:
        text = text.replace("\\", "").replace("Line 1", "where every line is a JSON dictionary. Line 1")
        assert way_out(None, text, rows=Path("rows.jsonl"), rules="openai") is not None, text


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
def test_the_page_of_preferences_prints_what_is_shown(tmp_path: Path) -> None:
    attempts = [
        attempt(seed, action, is_won=is_won)
        for seed in range(24)
        for action, is_won in (("turn left", True), ("go forward", False))
    ]
    write_episodes(tmp_path / "stores" / "attempts", attempts, kind="test")
    shown = printed(PREFER, tmp_path, OMP_NUM_THREADS="1")
    assert len(shown) == 4
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_what_the_page_of_preferences_sets_is_in_the_recipe() -> None:
    assert set(re.findall(r"--set ([a-z_]+)=", PREFER)) <= set(DpoRecipe.model_fields)


def group(name: str) -> click.Group:
    """The command of this name, which has others below it."""
    found = cli.get_command(click.Context(cli), name)
    assert isinstance(found, click.Group)
    return found
