"""A row to train a policy on: token ids as sampled, with what reinforcement learning needs of each token."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from trajkit.schema.base import Count, Model, Name, Text, Whole

TokenId = Annotated[int, Field(ge=0, lt=2**31)]
"""A token's number in the vocabulary."""


class Experience(Model):
    """One sequence of tokens of an episode, with the advantages of its sampled tokens.

    A row holds one step, or successive steps whose prompts extend the ids of the step before. T is the number
    of tokens of the row; `input_ids`, `loss_mask`, `old_logprobs` and `advantages` have T entries each, and
    entry t is about the token `input_ids[t]`, given those before it.
    """

    episode_id: Name
    """The episode."""
    step_index: Count
    """Position of the row's first step in the episode."""
    n_steps: Annotated[int, Field(ge=1)]
    """Steps of the row."""
    env_id: Text | None = None
    """The environment; None when unknown."""
    task: Text | None = None
    """The task within the environment; None when unknown."""
    seed: Whole | None = None
    """Seed of the environment's initial state; None when unknown."""
    group: Text
    """Key of the attempts that are compared, as JSON text: environment, task and seed, or the requested
    columns."""
    state: Text | None = None
    """SHA-256 (hex) of the observation before the row's first step; None when there is no observation."""
    total_reward: float | None = None
    """Sum of the rewards of the whole episode; None when a reward is unknown."""
    input_ids: tuple[TokenId, ...]
    """[T] Prompt and completions in order, never tokenised again."""
    loss_mask: tuple[Annotated[int, Field(ge=0, le=1)], ...]
    """[T] 1 where the token was sampled by the policy and its step has a weight; 0 for context."""
    old_logprobs: tuple[float, ...]
    """[T] Natural-log probability of a sampled token under the distribution it was drawn from; else 0."""
    advantages: tuple[float, ...]
    """[T] Advantage of the token: the `loss_weight` of its step; 0 where `loss_mask` is 0."""
    model_version: Text | None = None
    """Fingerprint of the weights that sampled; None when unknown."""
    tokenizer: Text | None = None
    """`sha256:` and the hash of the tokenizer; None when unknown."""
    temperature: float | None = None
    """Temperature of the sampling; None when unknown."""
    top_p: float | None = None
    """Top-p of the sampling; None when unknown."""
    is_masked: bool | None = None
    """Whether a grammar limited the tokens: probabilities without the mask differ. None when unknown."""

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        for name in ("loss_mask", "old_logprobs", "advantages"):
            if len(getattr(self, name)) != len(self.input_ids):
                n, n_ids = len(getattr(self, name)), len(self.input_ids)
                raise ValueError(f"{name} has {n} entries; input_ids has {n_ids}")
        return self
