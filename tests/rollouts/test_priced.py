from __future__ import annotations

from pathlib import Path

import pytest

from trajkit.rollouts.options import Options
from trajkit.rollouts.running.limits import Prices
from trajkit.rollouts.running.priced import priced
from trajkit.rollouts.session import prepare, run
from trajkit.schema import Episode, Transition
from trajkit.store.dataset import open_dataset

PRICES = Prices(0.4, 1.6)  # US dollars per million tokens of prompts and of answers


def test_an_answer_costs_what_its_tokens_cost_unless_its_service_said_so() -> None:
    steps = (
        Transition(step_index=0, n_input_tokens=1_000_000, n_output_tokens=500_000),
        Transition(step_index=1, n_input_tokens=10, n_output_tokens=10, cost_usd=0.5),
        Transition(step_index=2, n_input_tokens=10),
        Transition(step_index=3),
    )
    episode = Episode(episode_id="e", source="test", steps=steps)
    # 1 · 0.4 + 0.5 · 1.6
    assert [step.cost_usd for step in priced(episode, PRICES).steps] == [pytest.approx(1.2), 0.5, None, None]
    assert priced(episode, None) is episode


def test_a_rollout_with_prices_keeps_what_its_episodes_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    values = {"env_id": "babyai", "tasks": ("goto",), "seeds": "0:1", "max_steps": 2, "store": "store"}
    asked = {"policy": "local", "model": "sample:tiny-base", "input_price": 0.4, "output_price": 1.6}
    run(prepare(Options.model_validate(values | asked)), on_played=lambda played: None)
    (episode,) = open_dataset("store")
    for step in episode.steps:
        assert step.n_input_tokens
        assert step.n_output_tokens
        expected = (0.4 * step.n_input_tokens + 1.6 * step.n_output_tokens) / 1e6
        assert step.cost_usd == pytest.approx(expected)
