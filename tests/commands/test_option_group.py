"""Options that several commands share, as parameters of each."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import trajkit
from tests.cli.jobs import an_episode
from trajkit.store.writer import write_episodes
from trajkit.training.local.recipe import LocalRecipe


def test_a_name_that_is_no_option_is_refused():
    with pytest.raises(TypeError, match="learning_rat"):
        trajkit.sft_local(model="none", learning_rat=1)


def test_a_shared_option_has_the_default_of_its_recipe_and_its_help():
    rates = {
        name: inspect.signature(getattr(trajkit, name)).parameters["learning_rate"].default
        for name in ("sft_local", "dpo_local", "sft_together")
    }
    assert rates == {"sft_local": LocalRecipe().learning_rate, "dpo_local": 1e-5, "sft_together": None}
    assert "\n    learning_rate: Peak learning rate.\n" in inspect.getdoc(trajkit.dpo_local)


def test_a_default_that_is_typed_gives_the_same_job_as_one_that_is_left_out():
    write_episodes(Path("few"), [an_episode(f"e{number}") for number in range(3)], kind="test")
    asked = {"model": "sample:tiny-base", "train": "few", "val_fraction": 0, "dry_run": True}
    plain = trajkit.sft_local(**asked)
    assert trajkit.sft_local(**asked, lora_alpha=32, num_train_epochs=3.0).key == plain.key
    assert trajkit.sft_local(**asked, lora_alpha=31).key != plain.key
