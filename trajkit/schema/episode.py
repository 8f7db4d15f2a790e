"""Episodes and their transitions (steps)."""

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
    """The purpose of an episode."""

    TRAIN = "train"
    EVAL = "eval"
    UNKNOWN = "unknown"


class Outcome(StrEnum):
    """The outcome of an episode."""

    SUCCESS = "success"
    FAILURE = "failure"
    TRUNCATED = "truncated"
    ERROR = "error"
    UNKNOWN = "unknown"


class Transition(Model):
    """One step: the prompt, the answer of the model, the executed action, and the reward.

    Only the new messages of a prompt are stored. The prompt is the first `n_prompt_kept` messages of (prompt
    of the previous step + its answer), followed by `messages`. `Episode.prompt` returns the whole prompt.
    """

    step_index: Count
    """Position in the episode, from 0, without gaps."""
    inference_id: Name | None = None
    """Id of the inference; None when the service gave none."""
    function_name: Text | None = None
    """Name of the gateway's function."""
    variant_name: Text | None = None
    """Name of the gateway's variant."""
    model_name: Text | None = None
    """Name of the model, as the gateway calls it."""
    n_prompt_kept: Count = 0
    """How many messages the prompt shares with the start of (prompt + answer) of the previous step."""
    messages: tuple[Message, ...] | None = None
    """The other messages of the prompt; None when the prompt is unknown."""
    tools: tuple[JsonObject, ...] | None = None
    """Tools the model could call, as `{name, description, parameters, strict}`; None if unknown or none."""
    completion: Message | None = None
    """The answer of the model; None when no model answered."""
    input: Json = None
    """The structured input as the gateway stored it, with template arguments; None if it adds nothing to
    the prompt."""
    observation: Text | None = None
    """Text that the environment showed before the action."""
    action: Json = None
    """The action in the answer: a text or an object; None when the answer has none."""
    action_executed: Text | None = None
    """The action that the environment executed; None when unknown."""
    action_valid: bool | None = None
    """Whether the action is one of the environment; None when unknown."""
    reward: float | None = None
    """Reward for this action; None when unknown, which is not 0."""
    terminated: bool | None = None
    """Whether the environment ended with this action; None when unknown."""
    truncated: bool | None = None
    """Whether the episode was cut off after this action (step limit); None when unknown."""
    metrics: dict[str, MetricValue] = {}
    """Latest value of each metric of this step."""
    demonstration: Json = None
    """A better answer for this step, in the shape of the function's output."""
    n_input_tokens: Count | None = None
    """Number of prompt tokens, as the provider counted them."""
    n_output_tokens: Count | None = None
    """Number of answer tokens, as the provider counted them."""
    cost_usd: Annotated[float, Field(ge=0)] | None = None
    """Cost of the call in US dollars."""
    latency_s: Annotated[float, Field(ge=0)] | None = None
    """Seconds from the request to the last token."""
    finish_reason: Text | None = None
    """Why the model stopped, such as `stop` or `length`."""
    cached: bool | None = None
    """Whether the answer came from the gateway's cache."""
    started_at: UtcTime | None = None
    """Time of the request."""
    loss_weight: float = 1.0
    """Weight of this answer in training: 1 to learn it, 0 for context only, or another real number."""
    mask_reason: Text | None = None
    """Why `loss_weight` is 0; None when it is not."""
    snapshot_hash: Text | None = None
    """Hash (hexadecimal) of the gateway's configuration at that time."""
    extra: JsonObject | None = None
    """Other data of the source."""
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
    """Name of the agent; None when there is only one."""
    parent_step: Count | None = None
    """Step that this step continues or was called by; None for the previous step."""
    legal_actions: tuple[Text, ...] | None = None
    """Actions that were available; None when unknown."""
    info: JsonObject | None = None
    """Other data of the environment."""


class Episode(Model):
    """One attempt at one task, from its first step to its last."""

    episode_id: Name
    """Unique in a store; TensorZero's are UUIDv7."""
    source: Text
    """Kind of the source, such as `tensorzero-clickhouse` or `rollout`."""
    env_id: Text | None = None
    """The environment, such as `babyai`; None when unknown."""
    task: Text | None = None
    """The task within the environment."""
    seed: Whole | None = None
    """Seed of the initial state."""
    initial_state_hash: Text | None = None
    """Hash of the complete initial state and mission, computed by the environment; None when unknown."""
    purpose: Purpose = Purpose.UNKNOWN
    """Purpose of the episode. Models never train on evaluation ones."""
    started_at: UtcTime | None = None
    """Time of its first request."""
    ended_at: UtcTime | None = None
    """Time of its last answer."""
    outcome: Outcome = Outcome.UNKNOWN
    """Outcome of the episode."""
    total_reward: float | None = None
    """Sum of the rewards of its steps; None when any reward is unknown."""
    metrics: dict[str, MetricValue] = {}
    """Latest value of each metric of the whole episode."""
    tags: dict[str, Text] = {}
    """Tags of its inferences; for each key the first value."""
    origin: JsonObject | None = None
    """Place of the episode in its source."""
    steps: tuple[Transition, ...] = ()
    """Transitions in order."""
    feedback: tuple[Feedback, ...] = ()
    """All feedback on the episode and its steps, in the order of the ids."""

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
        """Iterate over the full prompt of each step; None if it is unknown. Messages are not copied."""
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
        """Return the full prompt of one step, or None when it is unknown.

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
    """Return how many leading messages of `prompt` are already stored with the previous step.

    Args:
        before: The prompt of the previous step.
        answer: The answer of the previous step.
        prompt: The prompt of this step.

    Returns:
        If `prompt` extends `before`: the length of `before`, plus one if the answer follows. Otherwise 0.
    """
    n = len(before)
    if n == 0 or len(prompt) <= n or prompt[:n] != before:
        return 0
    if answer is not None and prompt[n] == answer:
        return n + 1
    return n
