"""The protocol for policies, and the policies that need no model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol, runtime_checkable

from pydantic import JsonValue

from trajkit.environments.base import Environment, HasExpert
from trajkit.errors import RequestError
from trajkit.formats.sampled import Sampled
from trajkit.rollouts.faults import Fault, Faulty
from trajkit.rollouts.plan import Job
from trajkit.rollouts.seeds import derived_seed, derived_share
from trajkit.schema import Feedback, Message
from trajkit.schema.base import JsonObject


class Past(NamedTuple):
    """A step already taken, as the agent may remember it."""

    observation: str
    """What it saw."""
    action_executed: str
    """What was then done."""
    action_valid: bool
    """Whether that was its own choice; when not, the environment's default was carried out."""


class Situation(NamedTuple):
    """The information that a policy may use when it chooses."""

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
    """A model's answer, and the known facts about the call."""

    inference_id: str
    """A UUIDv7, by which the calls of an episode are in order: the gateway's, or one made here."""
    function_name: str | None
    """The gateway's function; None when no gateway was asked."""
    variant_name: str | None
    """The gateway's variant; None when no gateway was asked."""
    input: JsonValue
    """The input as the gateway stores it; None when no gateway was asked."""
    raw: str | None
    """The answer's text as the model wrote it; None when it wrote none."""
    n_input_tokens: int | None
    n_output_tokens: int | None
    finish_reason: str | None
    latency_s: float
    started_at: datetime
    messages: tuple[Message, ...] | None = None
    """The exact prompt; None where only the gateway's database knows it."""
    completion: Message | None = None
    """The whole answer, its thoughts and tool calls included; None when `raw` is all of it."""
    tools: tuple[JsonObject, ...] | None = None
    """Tools that the model could call; None when unknown or none."""
    model_name: str | None = None
    """The model that answered, as the service calls it; None when unknown."""
    cost_usd: float | None = None
    """Price of the call in US dollars; None when unknown."""
    cached: bool | None = False
    """Whether it came from a gateway's cache; None when no gateway was asked."""
    extra: JsonObject | None = None
    """What else the service said of it."""
    sampled: Sampled | None = None
    """Its tokens as they were sampled; None when unknown."""


class Demonstration(NamedTuple):
    """The prompt that a model would have seen at a step, and the answer with the action taken."""

    function_name: str | None
    """The gateway's function whose prompt it is; None for a prompt of trajkit's own."""
    input: JsonValue
    """The input as the gateway would store it; None for a prompt of trajkit's own."""
    messages: tuple[Message, ...]
    """The prompt."""
    completion: Message
    """The answer."""
    tools: tuple[JsonObject, ...] | None
    """Tools that the model could call; None for none."""


class Choice(NamedTuple):
    """A policy's choice, which is passed to the environment unchanged."""

    action: JsonValue
    """The action it names; None when nothing could be read. The environment judges whether it is one."""
    answer: Answer | None = None
    """The model's answer that gave the action; None when no model was asked."""
    calls: tuple[Answer, ...] = ()
    """Earlier calls of models in the same step, oldest first."""
    note: str | None = None
    """Why there is no action, where it is not for lack of an answer."""
    shows: Demonstration | None = None
    """The demonstration that a model may learn from, where no model was called."""

    def answers(self) -> tuple[Answer, ...]:
        """Every answer of the step, oldest first."""
        return self.calls if self.answer is None else (*self.calls, self.answer)


class StepFailed(Faulty):
    """A fault in the middle of a step in which models had answered already.

    Args:
        fault: What failed.
        calls: The answers before it, oldest first.
    """

    def __init__(self, fault: Fault, calls: tuple[Answer, ...]) -> None:
        super().__init__(fault)
        self.calls = calls


class Policy(Protocol):
    """What chooses actions. One policy plays many episodes side by side."""

    async def act(self, situation: Situation) -> Choice:
        """Choose.

        Raises:
            Faulty: It could not be asked, for no fault of its own.
        """
        ...

    async def conclude(
        self, episode_id: str, metrics: Mapping[str, float], tags: Mapping[str, str]
    ) -> tuple[Feedback, ...]:
        """Handle the result of an episode that was played to its end; returns the feedback that was logged.

        Raises:
            Faulty: It could not be logged.
        """
        ...


@runtime_checkable
class KeepsEpisodes(Protocol):
    """A policy that keeps something for each episode it plays."""

    async def leave(self, episode_id: str) -> None:
        """Drop an episode that is over, however it ended. A second call does nothing."""
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
        """A legal action chosen by a hash."""
        actions = situation.environment.legal_actions()
        if not actions:
            raise RequestError(
                f"{situation.environment.env_id} takes any text, so there is no random action",
                hint="play an expert, a model, human or an agent of your own",
            )
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
