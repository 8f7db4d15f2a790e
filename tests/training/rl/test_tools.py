"""An agent that acts by calling a tool learns from its calls."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.matrix import daily
from trajkit._core.samples import model_path
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.rollouts.records.record import Played
from trajkit.schema import ToolCallBlock
from trajkit.training.rl.experience import trace_of
from trajkit.training.rl.recipe import RlRecipe, WorldRecipe
from trajkit.training.rl.train import train_rl

RECIPE = Path(__file__).parents[3] / "recipes" / "babyai_tools"


@pytest.mark.parametrize("choice", daily(["auto", "required"], 1))
def test_calls_of_a_tool_are_learned_as_they_were_drawn(tmp_path: Path, choice: str) -> None:
    config = Path(shutil.copytree(RECIPE, tmp_path / "recipe")) / "tensorzero.toml"
    config.write_text(config.read_text().replace('tool_choice = "required"', f'tool_choice = "{choice}"'))
    base = str(model_path("sample:tiny-base"))
    world = WorldRecipe(
        env="babyai",
        tasks=("goto",),
        seeds="2:4",
        config=str(config),
        function="act",
        variant="tools",
        temperature=1.5,
        max_new_tokens=32,
        max_episode_steps=6,
    )
    recipe = RlRecipe(
        play=world, iterations=2, seeds_per_iteration=2, num_generations=4, minibatches=1, num_threads=1
    )
    events: list[dict[str, Any]] = []
    played: list[Played] = []
    train_rl(
        base,
        tmp_path / "model",
        recipe,
        tokenizer=base,
        workspace=tmp_path / "checkpoints",
        tell=events.append,
        keep=lambda iteration, some: played.extend(some),
    )
    template, n_called, n_invalid = ChatTemplate(base), 0, 0
    for one in played:
        for step, row in zip(one.steps, trace_of(one).rows, strict=True):
            (answer,) = step.choice.answers()
            assert answer.completion is not None
            calls = [block for block in answer.completion.content if isinstance(block, ToolCallBlock)]
            text = template.decode(row.completion)
            assert len(row.completion) == len(row.logprobs) == answer.n_output_tokens
            assert all(call.arguments in text for call in calls)
            n_called += len(calls) > 0
            n_invalid += not step.result.action_valid
    iterations = [event for event in events if event["kind"] == "iteration"]
    assert n_called
    assert n_invalid == round(sum(event["invalid"] * event["n_steps"] for event in iterations))
    assert (n_invalid > 0) == (choice == "auto")  # else a grammar holds it to a call that can be read
    assert sum(event["n_learned"] for event in iterations) > 0
    assert all(math.isfinite(event["loss"]) for event in iterations)
    assert max(event["drift"] for event in iterations) < 1e-4
