"""Settings of reinforcement learning, named as in TRL's GRPOConfig if it has the same setting."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from trajkit.rollouts.own_prompt import JsonMode
from trajkit.schema import Model
from trajkit.training.local.recipe import LocalRecipe, PlayRecipe, Positive

Algorithm = Literal["grpo", "gigpo", "rloo", "reinforce", "ppo", "awr"]
Share = Annotated[float, Field(ge=0, le=1)]
Coefficient = Annotated[float, Field(ge=0)]

COMPARING = ("grpo", "gigpo", "rloo", "awr")
"""Algorithms that compare the attempts at a seed."""
_SMALL, _SMALL_RATE, _LARGE_RATE = 10_000_000, 2e-3, 2e-5
_NOT_HERE = {
    "packing": False,
    "group_by_length": False,
    "torch_compile": False,
    "max_steps": None,
    "eval_steps": None,
    "num_train_epochs": 3,
    "gradient_accumulation_steps": 1,
    "early_stopping_patience": None,
}


class WorldRecipe(PlayRecipe):
    """The episodes to play, and how the model is called."""

    env: str = ""
    """The environment: a known name, `my_pkg.env:MyEnv`, or `gym:Maze-v0`; empty to learn from logged
    episodes without measurements."""
    env_settings: dict[str, str] = {}
    """Its settings, as they were typed."""
    env_name: str = ""
    """Its name in stores and reservations."""
    folder: str = ""
    """Folder from which the user's own environment is imported; empty for the working folder."""
    sources: dict[str, str] = {}
    """Digests of the user's files that a resumed training reads again, by spec or path."""
    policy: str = ""
    """The user's own agent that plays with the model, as `my_pkg.agent:MyAgent`; empty if the model itself
    names the actions."""
    policy_settings: dict[str, str] = {}
    """Its settings, as they were typed."""
    seeds: str = ""
    """Seeds to learn from, half-open; empty for as many as are needed, from 0, without reserved ones."""
    eval_seeds: str = ""
    """Reserved seeds to measure with, each on every task; empty for none."""
    max_episode_steps: Positive | None = None
    """Actions after which an episode is cut off; None leaves that to the environment."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Draw only from the likeliest tokens with this total probability."""
    json_mode: JsonMode = JsonMode.OFF
    """How answers are constrained to their format; with off, the model must learn it."""


class PlayedRecipe(Model):
    """What is played and how its steps are compared, for a model here or at a service."""

    play: WorldRecipe = WorldRecipe()
    """The episodes to play."""
    algorithm: Algorithm = "grpo"
    """Estimator of a step's advantage."""
    iterations: Positive = 20
    """Rounds of playing and then learning from the episodes."""
    seeds_per_iteration: Positive = 4
    """Seeds per iteration, each played on every task."""
    num_generations: Positive = 8
    """Attempts at each seed of a task; they form a group."""
    epochs: Positive = 1
    """Passes over the steps of an iteration."""
    minibatches: Positive = 4
    """Optimizer steps per pass."""
    scale_rewards: bool = True
    """For grpo and gigpo: divide a group's advantages by their standard deviation."""
    baseline: Literal["steps", "attempts"] = "steps"
    """Baseline of an attempt in a group: the mean over the group's steps, so that a group's advantages sum to
    0; or the mean over its attempts, as in the papers, so that longer failures count more. Not for ppo and
    awr."""
    gamma: Share = 1.0
    """Discount of later rewards per step."""
    lam: Share = 0.95
    """For ppo: lambda of generalized advantage estimation (GAE, Schulman et al. 2016)."""
    awr_temperature: Annotated[float, Field(gt=0)] = 1.0
    """For awr: the weight of a step is exp(advantage / this)."""
    eval_every: Positive = 5
    """Iterations between two measurements on the held-out seeds."""
    keep_rollouts: bool = False
    """Keep the episodes of each iteration as a store in the job's folder."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of the adapter's initial weights, of the sampling, and of the order of rows."""

    @model_validator(mode="after")
    def _check_played(self) -> Self:
        if self.num_generations == 1 and self.algorithm in COMPARING:
            raise ValueError(
                f"{self.algorithm} compares the attempts at a seed, and num_generations is 1: give 2 or more,"
                " or use --algorithm reinforce"
            )
        if self.play.temperature <= 0:
            raise ValueError("temperature 0 always plays the same episodes: nothing can be learned from them")
        return self

    @property
    def n_updates(self) -> int:
        """Optimizer steps per iteration."""
        return self.epochs * self.minibatches

    @property
    def n_groups(self) -> int:
        """Groups per iteration."""
        return self.seeds_per_iteration * len(self.play.tasks)


class RlRecipe(PlayedRecipe, LocalRecipe):
    """All settings that affect the result, except for the model."""

    accumulates: ClassVar[bool] = False
    per_device_train_batch_size: Positive = 64
    """Steps of episodes that are computed at once; it affects the memory, not the result."""
    learning_rate: Annotated[float, Field(gt=0)] | None = None  # type: ignore[assignment]
    """Highest learning rate; None for 0.002 below ten million weights, and 0.00002 above."""
    lr_scheduler_type: Literal["cosine", "linear", "constant", "constant_with_warmup"] = "constant"
    """Schedule of the learning rate."""
    warmup_steps: Coefficient = 0
    """Steps of warm-up; below 1, a share of all steps."""
    loss_type: Literal["grpo", "bnpo", "dr_grpo", "cispo"] = "bnpo"
    """The loss is a mean over each row's tokens and then over rows; over all tokens; over the maximum
    answer length; over all tokens, with clipped weights instead of a clipped objective."""
    epsilon: Share = 0.2
    """Lower clip bound of the ratio of new to old probability: 1 minus this."""
    epsilon_high: Coefficient | None = None
    """Upper clip bound: 1 plus this; None for `epsilon`. For `cispo`, the largest weight itself."""
    beta: Coefficient = 0.0
    """Strength of the tie to the initial model: factor of the KL divergence."""
    entropy_coef: Coefficient = 0.0
    """Bonus for less certain answers: factor of the entropy of a token."""
    importance: Literal["token_truncate", "token_mask", "none"] = "token_truncate"
    """Weight of tokens whose probability under the trained model differs from that of the sampling: the ratio
    of the two, truncated at the cap; or tokens beyond the cap (or 1 / cap) are left out."""
    importance_cap: Annotated[float, Field(ge=1)] = 2.0
    """The cap."""
    max_staleness: Annotated[float, Field(gt=1)] = 10.0
    """For logged episodes: leave out steps whose answer is this many times more or less probable now."""
    value_coef: Coefficient = 0.5
    """For ppo: factor of the loss of the value head."""
    max_kl: Annotated[float, Field(gt=0)] | None = None
    """Stop when the mean KL divergence from the initial model exceeds this, in nats; None never stops."""

    @model_validator(mode="after")
    def _check_rl(self) -> Self:
        for name, usual in _NOT_HERE.items():
            if getattr(self, name) != usual:
                raise ValueError(
                    f"{name} does not apply here: iterations, epochs and minibatches set the length"
                )
        return self

    def of_size(self, n_weights: int) -> Self:
        """Return the recipe with the default learning rate for this many weights, if none is given."""
        if self.learning_rate is not None:
            return self
        rate = _SMALL_RATE if n_weights < _SMALL else _LARGE_RATE
        return self.model_copy(update={"learning_rate": rate})

    def training_arguments(self) -> dict[str, Any]:
        """Return the arguments that have the same names in transformers' TrainingArguments."""
        steps = {"max_steps": self.iterations * self.n_updates}
        # an optimizer step cuts its own minibatch, whose size depends on the episodes that were played
        fixed = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 1}
        return super().training_arguments() | steps | fixed


class TinkerRecipe(PlayedRecipe):
    """The recipe for a model at a service with Tinker's API."""

    algorithm: Literal["grpo", "gigpo", "rloo", "reinforce"] = "grpo"
    """How a step's advantage is estimated."""
    minibatches: Positive = 1
    """Optimizer steps per pass."""
    loss_fn: Literal["importance_sampling", "ppo", "cispo"] = "importance_sampling"
    """The service's loss. With one step per iteration, the first two are equal."""
    learning_rate: Annotated[float, Field(gt=0)] = 4e-5
    """Constant learning rate of Adam."""
    r: Positive = 32
    """Rank of the adapter."""
    base_url: str = ""
    """Address of the service; empty for Tinker's own."""

    @model_validator(mode="after")
    def _check_tinker(self) -> Self:
        if (self.play.temperature, self.play.top_p, self.play.json_mode) != (1, 1, JsonMode.OFF):
            raise ValueError(
                "the service computes probabilities at temperature 1, with top_p 1 and without a schema:"
                " answers must be sampled in this way"
            )
        if self.play.policy:
            raise ValueError("your own agent can play with `rl local` only")
        return self
