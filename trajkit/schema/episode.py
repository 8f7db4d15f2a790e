"""What happened: an episode is an ordered run of transitions, its outcome, its metrics and its origin."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from trajkit.schema.base import MOST, Count, Json, JsonObject, Model, Name, Text, UtcTime, Whole
from trajkit.schema.content import Message
from trajkit.schema.feedback import Feedback

MetricValue = bool | float | None
"""Value of a metric; None when it was never measured (not 0)."""


class Purpose(StrEnum):
    """What an episode was played for."""

    TRAIN = "train"
    EVAL = "eval"
    UNKNOWN = "unknown"


class Outcome(StrEnum):
    """How an episode ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    TRUNCATED = "truncated"
    ERROR = "error"
    UNKNOWN = "unknown"


class Transition(Model):
    """One step: the prompt the model saw, what it answered, the action executed, and what came back.

    The prompt is kept as what is new: the first `n_prompt_kept` messages of (prompt of the step before + its
    answer), followed by `messages`. `Episode.prompt` puts it together again.
    """

    step_index: Count
    """Position in the episode, from 0, without gaps."""
    inference_id: Name | None = None
    """Id of the inference that gave the answer; None when no service gave one."""
    function_name: Text | None = None
    """The gateway's function."""
    variant_name: Text | None = None
    """The gateway's variant that answered."""
    model_name: Text | None = None
    """The model that answered, under the gateway's name for it."""
    n_prompt_kept: Count = 0
    """Leading messages of the prompt that are the ones of the step before (its prompt, then its answer)."""
    messages: tuple[Message, ...] | None = None
    """The messages of the prompt after those; None when the prompt is unknown."""
    tools: tuple[JsonObject, ...] | None = None
    """Tools the model could call, as `{name, description, parameters, strict}`; None if unknown or none."""
    completion: Message | None = None
    """What the model answered; None when no model did."""
    input: Json = None
    """The structured input as the gateway stored it, template arguments kept; None where it says no more
    than the prompt does."""
    observation: Text | None = None
    """What the environment showed before the action, as text."""
    action: Json = None
    """The action that the answer names: text, or an object; None when it names none."""
    action_executed: Text | None = None
    """The action that the environment carried out; None when unknown."""
    action_valid: bool | None = None
    """Whether the answer named an action of the environment; None when unknown."""
    reward: float | None = None
    """Reward the environment gave for this action; None when nobody measured it (not 0)."""
    terminated: bool | None = None
    """The environment reached an end of its own with this action; None when unknown."""
    truncated: bool | None = None
    """The episode was cut off after this action (step limit); None when unknown."""
    metrics: dict[str, MetricValue] = {}
    """Latest value of each metric about this step."""
    demonstration: Json = None
    """The better answer that somebody gave for this step, in the function's output shape."""
    n_input_tokens: Count | None = None
    """Tokens of the prompt, as the provider counted them."""
    n_output_tokens: Count | None = None
    """Tokens of the answer, as the provider counted them."""
    cost_usd: Annotated[float, Field(ge=0)] | None = None
    """Price of the call in US dollars."""
    latency_s: Annotated[float, Field(ge=0)] | None = None
    """Seconds from request to last token."""
    finish_reason: Text | None = None
    """Why the model stopped."""
    cached: bool | None = None
    """The answer came from the gateway's cache."""
    started_at: UtcTime | None = None
    """When the request began."""
    loss_weight: float = 1.0
    """How much this answer counts in training: 1 learn it, 0 context only, or a real number."""
    mask_reason: Text | None = None
    """Why `loss_weight` is 0; None when it is not."""
    snapshot_hash: Text | None = None
    """The gateway's configuration at that moment (hex)."""
    extra: JsonObject | None = None
    """What else the source knew."""
    prompt_token_ids: tuple[Whole, ...] | None = None
    """Token ids of the prompt that the model read; None when unknown."""
    completion_token_ids: tuple[Whole, ...] | None = None
    """Token ids of the answer as sampled, the one that ended it included; None when unknown."""
    logprobs: tuple[float, ...] | None = None
    """Natural-log probability of each answer token under the distribution it was drawn from, after
    temperature, top-p and grammar mask (0 at temperature 0); None when unknown."""
    model_version: Text | None = None
    """Version of the policy's weights; None when unknown."""
    agent_name: Text | None = None
    """Which of several agents acted; None when there is one."""
    parent_step: Count | None = None
    """Step that this one branches from or was called by; None for the step before."""
    legal_actions: tuple[Text, ...] | None = None
    """Actions that were open to the agent; None when unknown."""
    info: JsonObject | None = None
    """What else the environment reported."""


class Episode(Model):
    """One attempt at one task, from its first step to its last."""

    episode_id: Name
    """Unique in a store; TensorZero's are UUIDv7."""
    source: Text
    """What kind of place it came from, such as `tensorzero-clickhouse` or `rollout`."""
    env_id: Text | None = None
    """The environment, such as `babyai`; None when unknown."""
    task: Text | None = None
    """The task within the environment."""
    seed: Whole | None = None
    """Seed of the environment's initial state."""
    initial_state_hash: Text | None = None
    """Hash of the complete initial state and mission, computed by the environment."""
    purpose: Purpose = Purpose.UNKNOWN
    """What it was played for; evaluation episodes never train."""
    started_at: UtcTime | None = None
    """When its first step began."""
    ended_at: UtcTime | None = None
    """When its last step was answered."""
    outcome: Outcome = Outcome.UNKNOWN
    """How it ended."""
    total_reward: float | None = None
    """Sum of the rewards of its steps; None when a reward is unknown."""
    metrics: dict[str, MetricValue] = {}
    """Latest value of each metric about the whole episode."""
    tags: dict[str, Text] = {}
    """Tags of its inferences (of the first that has the key)."""
    origin: JsonObject | None = None
    """How to find it again at its source."""
    steps: tuple[Transition, ...] = ()
    """Its transitions in order."""
    feedback: tuple[Feedback, ...] = ()
    """Every piece of feedback on it and on its steps, latest or not, in the order of their ids."""

    @model_validator(mode="after")
    def _check_steps(self) -> Self:
        n_available: int | None = 0
        for position, step in enumerate(self.steps):
            if step.step_index != position:
                raise ValueError(
                    f"steps.{position}.step_index is {step.step_index}: steps count from 0 without gaps"
                )
            if step.messages is None:
                if step.n_prompt_kept:
                    raise ValueError(
                        f"steps.{position}.n_prompt_kept is {step.n_prompt_kept} but messages is null"
                    )
                n_available = 0
                continue
            if step.n_prompt_kept > (n_available or 0):
                raise ValueError(
                    f"steps.{position}.n_prompt_kept is {step.n_prompt_kept};"
                    f" the step before has {n_available}"
                )
            n_available = step.n_prompt_kept + len(step.messages) + (step.completion is not None)
        for name in ("n_input_tokens", "n_output_tokens"):
            total = sum(getattr(step, name) or 0 for step in self.steps)
            if total > MOST:
                raise ValueError(f"the {name} of its steps are {total} together; at most {MOST} fit")
        for position, item in enumerate(self.feedback):
            if item.episode_id != self.episode_id:
                raise ValueError(
                    f"feedback.{position}.episode_id is {item.episode_id!r}, not {self.episode_id!r}"
                )
        return self

    @property
    def n_steps(self) -> int:
        """Number of transitions."""
        return len(self.steps)

    def prompts(self) -> Iterator[tuple[Message, ...] | None]:
        """The full prompt of each step in order; None where unknown. Messages are shared, not copied."""
        before: tuple[Message, ...] = ()
        for step in self.steps:
            if step.messages is None:
                before = ()
                yield None
                continue
            prompt = before[: step.n_prompt_kept] + step.messages
            yield prompt
            before = prompt if step.completion is None else (*prompt, step.completion)

    def prompt(self, step_index: int) -> tuple[Message, ...] | None:
        """The full prompt of one step; None when it is unknown.

        Raises:
            IndexError: There is no such step.
        """
        for position, prompt in enumerate(self.prompts()):
            if position == step_index:
                return prompt
        raise IndexError(f"episode {self.episode_id} has {self.n_steps} steps; there is no step {step_index}")

    def __repr__(self) -> str:
        from trajkit.schema.notebook import episode_line

        return f"<Episode {self.episode_id} of {episode_line(self)}>"

    def _repr_html_(self) -> str:
        from trajkit.schema.notebook import episode_html

        return episode_html(self)


def kept(before: tuple[Message, ...], answer: Message | None, prompt: tuple[Message, ...]) -> int:
    """How many leading messages of `prompt` need not be stored again.

    Args:
        before: The prompt of the step before.
        answer: Its answer.
        prompt: The prompt of this step.

    Returns:
        The length of `before`, or one more where the answer follows it, when `prompt` extends `before`; else
        0, so that an agent that writes its history into one message keeps rows that stand alone.
    """
    n = len(before)
    if n == 0 or len(prompt) <= n or prompt[:n] != before:
        return 0
    if answer is not None and prompt[n] == answer:
        return n + 1
    return n
