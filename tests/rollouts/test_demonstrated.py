"""An expert's steps are written down as a model would have been asked and would have answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trajkit.errors import RequestError
from trajkit.rollouts.options import Options
from trajkit.rollouts.session import open_run, prepare
from trajkit.schema import Episode
from trajkit.store.dataset import open_dataset

CONFIG = Path(__file__).parents[2] / "recipes" / "babyai" / "tensorzero.toml"


def options(**changes: Any) -> Options:
    values = {"env_id": "babyai", "tasks": ("goto",), "policy": "expert", "seeds": "0:3", "store": Path("st")}
    return Options.model_validate(values | changes)


def played(**changes: Any) -> list[Episode]:
    with open_run(prepare(options(**changes))) as run:
        run.play(on_played=lambda one: None)
        run.write()
    return list(open_dataset(Path("st")))


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("policy", ["expert", "noisy-expert"])
def test_the_prompt_is_the_one_that_a_model_is_asked_without_a_gateway(policy: str) -> None:
    for one in played(policy=policy):
        for step, prompt in zip(one.steps, one.prompts(), strict=True):
            assert (step.inference_id, step.model_name, step.function_name) == (None, None, None)
            assert prompt is not None
            assert "Your mission: go to" in prompt[0].text
            assert f"Observation:\n{step.observation}" in prompt[1].text
            assert step.completion is not None
            assert json.loads(step.completion.text) == {"action": step.action_executed}


def test_or_the_one_of_a_variant_and_the_answer_fits_its_function() -> None:
    for one in played(config_file=CONFIG, variants=("history",), history=2):
        for step, prompt in zip(one.steps, one.prompts(), strict=True):
            assert (step.function_name, step.variant_name) == ("act", "expert")
            assert prompt is not None
            assert "- drop: put down what you carry" in prompt[0].text
            assert prompt[1].text.count("\nAction: ") == min(step.step_index, 2)
            assert step.completion is not None
            assert step.completion.text == json.dumps({"thinking": "", "action": step.action_executed})
            assert step.input is not None


def test_one_variant_is_named_and_it_is_there() -> None:
    with pytest.raises(RequestError, match="have one prompt"):
        prepare(options(config_file=CONFIG, variants=("history", "baseline")))
    with pytest.raises(RequestError, match="no variant 'none'"):
        prepare(options(config_file=CONFIG, variants=("none",)))


def test_other_prompts_are_another_run() -> None:
    own = prepare(options()).arguments
    assert prepare(options(config_file=CONFIG, variants=("history",))).arguments != own
