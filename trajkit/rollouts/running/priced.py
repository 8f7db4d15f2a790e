"""Add the cost of an episode's answers where prices are known and the services reported no cost."""

from __future__ import annotations

from trajkit.rollouts.running.limits import Prices
from trajkit.schema import Episode, Transition


def priced(episode: Episode, prices: Prices | None) -> Episode:
    """Add the cost of each answer whose tokens are known and whose cost is not.

    Args:
        episode: The episode.
        prices: Prices of tokens; None returns the episode unchanged.
    """
    if prices is None:
        return episode
    return episode.model_copy(update={"steps": tuple(_priced(step, prices) for step in episode.steps)})


def _priced(step: Transition, prices: Prices) -> Transition:
    if step.cost_usd is not None or step.n_input_tokens is None or step.n_output_tokens is None:
        return step
    return step.model_copy(update={"cost_usd": prices.cost_usd(step.n_input_tokens, step.n_output_tokens)})
