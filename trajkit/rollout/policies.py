"""Who chooses the next action: the protocol, and the policies that need no model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from pydantic import JsonValue

from trajkit.environments.base import Environment, HasExpert
from trajkit.errors import RequestError
from trajkit.rollout.plan import Job
from trajkit.rollout.seeds import derived_seed, derived_share
from trajkit.schema import Feedback


class Past(NamedTuple):
    """A step already taken, as the agent may remember it."""

    observation: str
    """What it saw."""
    action_executed: str
    """What was then done."""
    action_valid: bool
    """Whether that was its own choice; when not, the environment's default was carried out."""


class Situation(NamedTuple):
    """What a policy may know when it chooses."""

    job: Job
    episode_id: str
    step_index: int
    mission: str
    observation: str
    past: Sequence[Past]
    """Steps of this episode so far, oldest first."""
    environment: Environment
    """The world itself, for those who may look behind the text: the expert."""
    tags: Mapping[str, str]
    """Tags of the episode."""


class Answer(NamedTuple):
    """What a model answered, and what the gateway knows of it."""

    inference_id: str
    function_name: str
    variant_name: str
    input: JsonValue
    """The input as the gateway stores it."""
    raw: str | None
    """The answer's text as the model wrote it; None when it wrote none."""
    n_input_tokens: int | None
    n_output_tokens: int | None
    finish_reason: str | None
    latency_s: float
    started_at: datetime


class Choice(NamedTuple):
    """What a policy says, to be handed to the environment as it is."""

    action: JsonValue
    """The action it names; None when nothing could be read. The environment judges whether it is one."""
    answer: Answer | None = None
    """The model's answer; None when no model was asked."""


class Policy(Protocol):
    """What chooses actions. One policy plays many episodes side by side and keeps nothing between calls."""

    async def act(self, situation: Situation) -> Choice:
        """Choose.

        Raises:
            Faulty: It could not be asked, for no fault of its own.
        """
        ...

    async def conclude(
        self, episode_id: str, metrics: Mapping[str, float], tags: Mapping[str, str]
    ) -> tuple[Feedback, ...]:
        """Take note of how an episode went that was played to its end; what was logged of it.

        Raises:
            Faulty: It could not be logged.
        """
        ...


class Scripted:
    """A policy that asks no service, and so logs nothing."""

    async def conclude(
        self, episode_id: str, metrics: Mapping[str, float], tags: Mapping[str, str]
    ) -> tuple[Feedback, ...]:
        """Nothing to log."""
        return ()


class Expert(Scripted):
    """Does what the environment's own expert advises."""

    async def act(self, situation: Situation) -> Choice:
        """The expert's action."""
        environment = situation.environment
        if not isinstance(environment, HasExpert):
            raise RequestError(f"{environment.env_id} has no expert", hint="play --policy random or gateway")
        return Choice(environment.expert_action())


class Random(Scripted):
    """Any legal action, each as likely; the same ones for the same run seed, task, seed and step.

    Args:
        run_seed: Another one gives other actions.
    """

    def __init__(self, run_seed: int) -> None:
        self.run_seed = run_seed

    async def act(self, situation: Situation) -> Choice:
        """A legal action by the roll of a hash."""
        actions = situation.environment.legal_actions()
        task, seed = situation.job.task, situation.job.seed
        return Choice(
            actions[derived_seed("random", self.run_seed, task, seed, situation.step_index) % len(actions)]
        )


class NoisyExpert(Scripted):
    """The expert, who with some probability does any legal action instead.

    Args:
        run_seed: Another one gives other slips.
        noise: Probability of a slip at each step, from 0 to 1.
    """

    def __init__(self, run_seed: int, noise: float) -> None:
        if not 0 <= noise <= 1:
            raise RequestError(f"noise {noise} is not a probability", hint="give a number from 0 to 1")
        self.run_seed = run_seed
        self.noise = noise
        self._expert, self._random = Expert(), Random(run_seed)

    async def act(self, situation: Situation) -> Choice:
        """The expert's action, or a slip."""
        task, seed = situation.job.task, situation.job.seed
        slips = derived_share("noise", self.run_seed, task, seed, situation.step_index) < self.noise
        return await (self._random if slips else self._expert).act(situation)
