"""The protocol for policies, and the policies that need no model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol, runtime_checkable

from pydantic import JsonValue

from trajkit.environments.base import Environment, HasExpert
from trajkit.errors import RequestError
from trajkit.formats.tokens.sampled import Sampled
from trajkit.rollouts.faults import Fault, Faulty
from trajkit.rollouts.plan import Job
from trajkit.rollouts.seeds import derived_seed, derived_share
from trajkit.schema import Feedback, Message
from trajkit.schema.base import JsonObject


class Past(NamedTuple):
    """An earlier step, as the agent may remember it."""

    observation: str
    """Its observation."""
    action_executed: str
    """The executed action."""
    action_valid: bool
    """Whether it was the agent's own choice; otherwise the environment's default was executed."""


class Situation(NamedTuple):
    """The information for a policy's choice."""

    job: Job
    episode_id: str
    step_index: int
    mission: str
    observation: str
    past: Sequence[Past]
    """Steps of this episode so far, oldest first."""
    environment: Environment
    """The world itself, which the expert may inspect."""
    tags: Mapping[str, str]
    """Tags of the episode."""


class Answer(NamedTuple):
    """A model's answer, and the known facts about the call."""

    inference_id: str
    """A UUIDv7, which orders the calls of an episode: the gateway's, or one made here."""
    function_name: str | None
    """The gateway's function; None when no gateway was called."""
    variant_name: str | None
    """The gateway's variant; None when no gateway was called."""
    input: JsonValue
    """The input in the gateway's stored form; None when no gateway was called."""
    raw: str | None
    """The answer's text as the model wrote it; None when it wrote none."""
    n_input_tokens: int | None
    n_output_tokens: int | None
    finish_reason: str | None
    latency_s: float
    started_at: datetime
    messages: tuple[Message, ...] | None = None
    """The exact prompt; None if only the gateway's database has it."""
    completion: Message | None = None
    """The whole answer, including thoughts and tool calls; None when `raw` is all of it."""
    tools: tuple[JsonObject, ...] | None = None
    """Tools that the model could call; None when unknown or none."""
    model_name: str | None = None
    """The model that answered, as the service names it; None when unknown."""
    cost_usd: float | None = None
    """Price of the call in US dollars; None when unknown."""
    cached: bool | None = False
    """Whether it came from a gateway's cache; None when no gateway was called."""
    extra: JsonObject | None = None
    """Further facts from the service."""
    sampled: Sampled | None = None
    """Its tokens as they were sampled; None when unknown."""


class Demonstration(NamedTuple):
    """The prompt that a model would have seen at a step, and the completion with the executed action."""

    function_name: str | None
    """The gateway's function of the prompt; None for trajkit's own prompt."""
    input: JsonValue
    """Input in the gateway's stored form; None for trajkit's own prompt."""
    messages: tuple[Message, ...]
    """The prompt."""
    completion: Message
    """The completion."""
    tools: tuple[JsonObject, ...] | None
    """Tools that the model could call; None for none."""


class Choice(NamedTuple):
    """A policy's choice, which the environment gets unchanged."""

    action: JsonValue
    """The action; None when none could be read. The environment judges whether it is valid."""
    answer: Answer | None = None
    """The model's answer with the action; None when no model was called."""
    calls: tuple[Answer, ...] = ()
    """Earlier calls of models in the same step, oldest first."""
    note: str | None = None
    """Why an answer has no action."""
    shows: Demonstration | None = None
    """The demonstration that a model may learn from, where no model was called."""

    def answers(self) -> tuple[Answer, ...]:
        """Return every answer of the step, oldest first."""
        return self.calls if self.answer is None else (*self.calls, self.answer)


class StepFailed(Faulty):
    """A fault within a step, after models had answered.

    Args:
        fault: The fault.
        calls: The answers before it, oldest first.
    """

    def __init__(self, fault: Fault, calls: tuple[Answer, ...]) -> None:
        super().__init__(fault)
        self.calls = calls


class Policy(Protocol):
    """Chooses actions. One policy plays many episodes concurrently."""

    async def act(self, situation: Situation) -> Choice:
        """Choose an action.

        Raises:
            Faulty: The policy could not answer, through no fault of its own.
        """
        ...

    async def conclude(
        self, episode_id: str, metrics: Mapping[str, float], tags: Mapping[str, str]
    ) -> tuple[Feedback, ...]:
        """Handle the result of an episode that was played to its end; return the logged feedback.

        Raises:
            Faulty: It could not be logged.
        """
        ...


@runtime_checkable
class KeepsEpisodes(Protocol):
    """A policy with a state for each episode that it plays."""

    async def leave(self, episode_id: str) -> None:
        """Drop an episode that is over, however it ended. A second call does nothing."""
        ...


class Scripted:
    """A policy that calls no service, and so logs nothing."""

    async def conclude(
        self, episode_id: str, metrics: Mapping[str, float], tags: Mapping[str, str]
    ) -> tuple[Feedback, ...]:
        """Log nothing."""
        return ()


class Expert(Scripted):
    """Plays the action that the environment's own expert advises."""

    async def act(self, situation: Situation) -> Choice:
        """Return the expert's action."""
        environment = situation.environment
        if not isinstance(environment, HasExpert):
            raise RequestError(f"{environment.env_id} has no expert", hint="play --policy random or gateway")
        return Choice(environment.expert_action())


class Random(Scripted):
    """Plays any legal action with equal probability, depending on run seed, task, seed and step.

    Args:
        run_seed: Seed of the actions.
    """

    def __init__(self, run_seed: int) -> None:
        self.run_seed = run_seed

    async def act(self, situation: Situation) -> Choice:
        """Return a legal action chosen by a hash."""
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
    """Plays the expert's action or, with some probability, any legal action.

    Args:
        run_seed: Seed of the random actions.
        noise: Probability of a random action at each step, from 0 to 1.
    """

    def __init__(self, run_seed: int, noise: float) -> None:
        self.run_seed = run_seed
        self.noise = noise
        self._expert, self._random = Expert(), Random(run_seed)

    async def act(self, situation: Situation) -> Choice:
        """Return the expert's action, or a random one."""
        task, seed = situation.job.task, situation.job.seed
        slips = derived_share("noise", self.run_seed, task, seed, situation.step_index) < self.noise
        return await (self._random if slips else self._expert).act(situation)
