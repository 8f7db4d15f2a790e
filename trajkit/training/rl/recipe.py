"""How a model learns by playing. Names are those of TRL's GRPOConfig where it has the same thing."""

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
"""The algorithms that compare the attempts at a seed."""
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
    """Which episodes are played, and how the model is asked."""

    env: str = ""
    """The environment: a known name, `my_pkg.env:MyEnv`, or `gym:Maze-v0`; empty where logged episodes are
    learned and nothing measures."""
    env_settings: dict[str, str] = {}
    """Its settings, as they were typed."""
    env_name: str = ""
    """What it is called in stores and reservations."""
    folder: str = ""
    """Folder in which an environment of one's own is imported; empty for the working folder."""
    sources: dict[str, str] = {}
    """Digests of the user's files that are read again when a killed training goes on, by what names them."""
    policy: str = ""
    """An agent of one's own that plays with the model, as `my_pkg.agent:MyAgent`; empty where the model names
    the actions itself."""
    policy_settings: dict[str, str] = {}
    """Its settings, as they were typed."""
    seeds: str = ""
    """Seeds to learn from, half-open; empty for as many as are needed, from 0 on, without reserved ones."""
    eval_seeds: str = ""
    """Reserved seeds to measure with, each on every task; empty for none."""
    max_episode_steps: Positive | None = None
    """Actions after which an episode is cut off; None leaves that to the environment."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Only the likeliest tokens with this share of the probability are drawn."""
    json_mode: JsonMode = JsonMode.OFF
    """How answers are held to their shape: off leaves it to the model to learn it."""


class PlayedRecipe(Model):
    """What is played and how its steps are compared, wherever the model is."""

    play: WorldRecipe = WorldRecipe()
    """What is played."""
    algorithm: Algorithm = "grpo"
    """How a step's advantage is estimated."""
    iterations: Positive = 20
    """How often the model plays and then learns from that."""
    seeds_per_iteration: Positive = 4
    """Seeds that an iteration plays, each on every task."""
    num_generations: Positive = 8
    """Attempts at each seed of a task: a group."""
    epochs: Positive = 1
    """Passes over the steps of an iteration."""
    minibatches: Positive = 4
    """Steps of the optimizer in a pass."""
    scale_rewards: bool = True
    """Divide a group's advantages by their standard deviation (of grpo and gigpo)."""
    baseline: Literal["steps", "attempts"] = "steps"
    """What an attempt of a group is compared with: the mean over the group's steps, so that as much pushes
    actions up as down; or the mean over its attempts, as the papers have it, where failures that last longer
    count more. Of all but ppo and awr."""
    gamma: Share = 1.0
    """Discount of later rewards at each step."""
    lam: Share = 0.95
    """Of ppo: weight of long advantages (GAE, Schulman et al. 2016)."""
    awr_temperature: Annotated[float, Field(gt=0)] = 1.0
    """Of awr: the weight of a step is exp(advantage / this)."""
    eval_every: Positive = 5
    """Iterations between two measurements on the held-out seeds."""
    keep_rollouts: bool = False
    """Keep what each iteration played as a store in the job's folder."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Of the adapter's first weights, of what is drawn, and of the order of rows."""

    @model_validator(mode="after")
    def _check_played(self) -> Self:
        if self.num_generations == 1 and self.algorithm in COMPARING:
            raise ValueError(
                f"{self.algorithm} compares the attempts at a seed, and num_generations is 1: give 2 or more,"
                " or take --algorithm reinforce"
            )
        if self.play.temperature <= 0:
            raise ValueError("temperature 0 always plays the same: nothing can be learned from it")
        return self

    @property
    def n_updates(self) -> int:
        """Steps of the optimizer in an iteration."""
        return self.epochs * self.minibatches

    @property
    def n_groups(self) -> int:
        """Groups of an iteration."""
        return self.seeds_per_iteration * len(self.play.tasks)


class RlRecipe(PlayedRecipe, LocalRecipe):
    """Everything that decides what comes out, but for the model."""

    accumulates: ClassVar[bool] = False
    per_device_train_batch_size: Positive = 64
    """Steps of episodes that are computed at once; it changes the memory and not the result."""
    learning_rate: Annotated[float, Field(gt=0)] | None = None  # type: ignore[assignment]
    """At its highest; None for 0.002 below ten million weights, and 0.00002 above."""
    lr_scheduler_type: Literal["cosine", "linear", "constant", "constant_with_warmup"] = "constant"
    """How it falls."""
    warmup_steps: Coefficient = 0
    """Steps in which it rises; below 1, a share of all steps."""
    loss_type: Literal["grpo", "bnpo", "dr_grpo", "cispo"] = "bnpo"
    """The loss is a mean over each row's tokens and then over rows; over all tokens; over the longest answers
    that could be; over all tokens, with clipped weights in place of a clipped objective."""
    epsilon: Share = 0.2
    """The ratio of new to old probability counts down to 1 less this."""
    epsilon_high: Coefficient | None = None
    """And up to 1 more than this; None for the same. Of `cispo` the largest weight itself."""
    beta: Coefficient = 0.0
    """How strongly the model is held to the one that it starts from: factor of the KL divergence."""
    entropy_coef: Coefficient = 0.0
    """Bonus for answers that are less certain: factor of the entropy of a token."""
    importance: Literal["token_truncate", "token_mask", "none"] = "token_truncate"
    """What becomes of tokens that the trained model gives another probability than they were drawn with: the
    ratio of the two is a weight, cut at the cap; or those beyond the cap (or 1 / cap) are left out."""
    importance_cap: Annotated[float, Field(ge=1)] = 2.0
    """The cap."""
    max_staleness: Annotated[float, Field(gt=1)] = 10.0
    """Of logged episodes: steps are left out whose answer has become so many times more or less probable."""
    value_coef: Coefficient = 0.5
    """Of ppo: factor of the loss of the value head."""
    max_kl: Annotated[float, Field(gt=0)] | None = None
    """Stop when a token's KL divergence from the first model is above this, in nats; None never stops."""

    @model_validator(mode="after")
    def _check_rl(self) -> Self:
        for name, usual in _NOT_HERE.items():
            if getattr(self, name) != usual:
                raise ValueError(
                    f"{name} has no meaning here: iterations, epochs and minibatches say how long"
                )
        return self

    def of_size(self, n_weights: int) -> Self:
        """The same with the learning rate that fits a model of so many weights, where none is given."""
        if self.learning_rate is not None:
            return self
        rate = _SMALL_RATE if n_weights < _SMALL else _LARGE_RATE
        return self.model_copy(update={"learning_rate": rate})

    def training_arguments(self) -> dict[str, Any]:
        """What transformers' TrainingArguments take of it by the same names."""
        steps = {"max_steps": self.iterations * self.n_updates}
        # a step of the optimizer cuts its minibatch itself: minibatches are as large as what was played
        fixed = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 1}
        return super().training_arguments() | steps | fixed


class TinkerRecipe(PlayedRecipe):
    """The same with a model at a service that speaks Tinker's API."""

    algorithm: Literal["grpo", "gigpo", "rloo", "reinforce"] = "grpo"
    """How a step's advantage is estimated."""
    minibatches: Positive = 1
    """Steps of the optimizer in a pass."""
    loss_fn: Literal["importance_sampling", "ppo", "cispo"] = "importance_sampling"
    """The service's loss. With one step in an iteration the first two are the same."""
    learning_rate: Annotated[float, Field(gt=0)] = 4e-5
    """Of Adam; constant."""
    r: Positive = 32
    """Rank of the adapter."""
    base_url: str = ""
    """Address of the service; empty for Tinker's own."""

    @model_validator(mode="after")
    def _check_tinker(self) -> Self:
        if (self.play.temperature, self.play.top_p, self.play.json_mode) != (1, 1, JsonMode.OFF):
            raise ValueError(
                "the service computes probabilities at temperature 1, with top_p 1 and without a schema:"
                " answers can only be drawn so"
            )
        if self.play.policy:
            raise ValueError("an agent of your own plays with `rl local` only")
        return self
