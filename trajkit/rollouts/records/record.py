"""The record of a played episode, and its conversion to an `Episode`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from pydantic import JsonValue

from trajkit.environments.base import Result
from trajkit.rollouts.faults import Fault
from trajkit.rollouts.plan import Job
from trajkit.rollouts.policies import Answer, Choice, Demonstration
from trajkit.schema import (
    Episode,
    Feedback,
    Message,
    Outcome,
    Purpose,
    Role,
    TextBlock,
    Transition,
    kept,
    single_precision,
)
from trajkit.schema.success import parse_success
from trajkit.sources.tensorzero.export.prompts import Sent
from trajkit.store.arrow import message_value

RETURN_METRIC = "episode_return"
"""The metric that holds the sum of an episode's rewards."""


class PlayedStep(NamedTuple):
    """A played step."""

    observation: str
    """The observation before the action."""
    choice: Choice
    """The policy's choice."""
    result: Result
    """The result of the action."""
    started_at: datetime
    ended_at: datetime
    legal_actions: tuple[str, ...] | None = None
    """Actions open to the agent; None if the environment's rule always has the same ones."""


class Played(NamedTuple):
    """An episode that was played to its end or to a fault."""

    job: Job
    env_id: str
    purpose: Purpose
    run: str
    episode_id: str
    tags: dict[str, str]
    mission: str
    initial_state_hash: str
    steps: tuple[PlayedStep, ...]
    outcome: Outcome
    metrics: dict[str, float]
    """The environment's scores and the return; empty when a fault ended the episode."""
    feedback: tuple[Feedback, ...]
    """The logged feedback."""
    fault: Fault | None
    """The fault that ended it early; None when it was played to its end."""
    unfinished: tuple[Answer, ...] = ()
    """Answers of models in the step that a fault interrupted."""

    @property
    def n_invalid(self) -> int:
        """Number of answers that named no action."""
        return sum(not step.result.action_valid for step in self.steps)

    @property
    def n_input_tokens(self) -> int | None:
        """Tokens of all prompts; None when one is unknown, or no model was called."""
        return _total([answer.n_input_tokens for answer in self.answers()])

    @property
    def n_output_tokens(self) -> int | None:
        """Tokens of all answers; None when one is unknown, or no model was called."""
        return _total([answer.n_output_tokens for answer in self.answers()])

    def answers(self) -> list[Answer]:
        """Return the answers of models, oldest first; a step may have any number."""
        return [answer for step in self.steps for answer in step.choice.answers()] + list(self.unfinished)


def _total(numbers: list[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if numbers and len(known) == len(numbers) else None


def outcome_of(metrics: Mapping[str, float], success: str, *, truncated: bool) -> Outcome:
    """Return the outcome of an episode that was played to its end.

    Args:
        metrics: Its metrics.
        success: Condition for a success, such as `progression >= 1`.
        truncated: Whether the step limit ended it.
    """
    if parse_success(success).holds(metrics):
        return Outcome.SUCCESS
    return Outcome.TRUNCATED if truncated else Outcome.FAILURE


def to_episode(played: Played) -> Episode:
    """Convert a played episode to the store's form.

    Each call of a model is a transition. Where a step of the environment has several calls, only the last
    transition has the action and its result. If only the gateway's database has its prompt, a call
    has unknown `messages` and `tools`.
    """
    steps = tuple(_transitions(played))
    is_whole = played.fault is None
    return Episode(
        episode_id=played.episode_id,
        source="rollout",
        env_id=played.env_id,
        task=played.job.task,
        seed=played.job.seed,
        initial_state_hash=played.initial_state_hash,
        purpose=played.purpose,
        started_at=played.steps[0].started_at if played.steps else None,
        ended_at=played.steps[-1].ended_at if played.steps else None,
        outcome=played.outcome,
        # part of a return would look like the whole return
        total_reward=sum(step.result.reward for step in played.steps) if is_whole else None,
        metrics={name: single_precision(value) for name, value in played.metrics.items()},
        tags=played.tags,
        origin=_origin(played),
        steps=tuple(_kept_once(steps, [step.messages for step in steps])),
        feedback=played.feedback,
    )


def with_prompts(episode: Episode, prompts: Mapping[str, Sent]) -> Episode:
    """Add prompts to inferences that lack one; each step keeps only the new part of its prompt."""
    steps: list[Transition] = []
    exact: list[tuple[Message, ...] | None] = []
    for step, prompt in zip(episode.steps, episode.prompts(), strict=True):
        sent = prompts.get(step.inference_id) if prompt is None and step.inference_id is not None else None
        steps.append(step if sent is None else step.model_copy(update={"tools": step.tools or sent.tools}))
        exact.append(sent.messages if sent else prompt)
    return episode.model_copy(update={"steps": tuple(_kept_once(steps, exact))})


def _kept_once(
    steps: Iterable[Transition], prompts: Iterable[tuple[Message, ...] | None]
) -> Iterator[Transition]:
    """Yield the steps with each prompt reduced to the part that the previous step does not have."""
    before: tuple[Message, ...] = ()
    answer: Message | None = None
    for step, prompt in zip(steps, prompts, strict=True):
        if prompt is None:
            yield step.model_copy(update={"messages": None, "n_prompt_kept": 0})
            before, answer = (), None
            continue
        n = kept(before, answer, prompt)
        given = None if step.input == _as_input(prompt) else step.input
        yield step.model_copy(update={"messages": prompt[n:], "n_prompt_kept": n, "input": given})
        before, answer = prompt, step.completion


def _as_input(prompt: tuple[Message, ...]) -> dict[str, JsonValue]:
    """Return the input that equals a prompt, so that it need not be stored twice."""
    first, rest = prompt[:1], prompt[1:]
    system = first[0].content if first and first[0].role is Role.SYSTEM else ()
    if len(system) == 1 and isinstance(system[0], TextBlock):
        return {"system": system[0].text, "messages": [message_value(one) for one in rest]}
    return {"messages": [message_value(one) for one in prompt]}


def _origin(played: Played) -> dict[str, JsonValue]:
    origin: dict[str, JsonValue] = {
        "run": played.run,
        "policy": played.job.variant,
        "mission": played.mission,
    }
    if played.fault is not None:
        origin["error"] = f"{played.fault.kind}: {played.fault.message}"
    return origin


def _transitions(played: Played) -> Iterator[Transition]:
    """Yield the transitions in order, each with its whole prompt where known."""
    index = 0
    for step in played.steps:
        for answer in step.choice.calls:
            seen = Transition(
                step_index=index,
                variant_name=played.job.variant,
                observation=step.observation,
                legal_actions=step.legal_actions,
            )
            yield _answered(seen, answer)
            index += 1
        yield _acted(index, step, played.job.variant)
        index += 1
    for answer in played.unfinished:
        yield _answered(Transition(step_index=index, variant_name=played.job.variant), answer)
        index += 1


def _acted(index: int, step: PlayedStep, policy: str) -> Transition:
    """Return the transition that has the action."""
    result, choice = step.result, step.choice
    ours = Transition(
        step_index=index,
        variant_name=policy,
        observation=step.observation,
        action=choice.action,
        action_executed=result.action_executed,
        action_valid=result.action_valid,
        reward=result.reward,
        terminated=result.terminated,
        truncated=result.truncated,
        started_at=step.started_at,
        legal_actions=step.legal_actions,
        extra=None if choice.note is None else {"note": choice.note},
    )
    if choice.answer is not None:
        return _answered(ours, choice.answer)
    return ours if choice.shows is None else _demonstrated(ours, choice.shows)


def _demonstrated(ours: Transition, shows: Demonstration) -> Transition:
    """Return the transition with the prompt and the completion of a model that was never called."""
    return ours.model_copy(
        update={
            "function_name": shows.function_name,
            "input": shows.input,
            "messages": shows.messages,
            "completion": shows.completion,
            "tools": shows.tools,
        }
    )


def _answered(ours: Transition, answer: Answer) -> Transition:
    """Return the transition with the facts about a call of a model."""
    content = () if answer.raw is None else (TextBlock(text=answer.raw),)
    completion = answer.completion or Message(role=Role.ASSISTANT, content=content)
    return ours.model_copy(
        update={
            "inference_id": answer.inference_id,
            "function_name": answer.function_name,
            "variant_name": answer.variant_name or ours.variant_name,
            "model_name": answer.model_name,
            "messages": answer.messages,
            "tools": answer.tools,
            "completion": completion,
            "input": answer.input,
            "n_input_tokens": answer.n_input_tokens,
            "n_output_tokens": answer.n_output_tokens,
            "cost_usd": answer.cost_usd,
            "latency_s": answer.latency_s,
            "finish_reason": answer.finish_reason,
            "cached": answer.cached,
            "started_at": answer.started_at,
            **(answer.sampled.columns if answer.sampled else {}),
            "extra": {**(answer.extra or {}), **(ours.extra or {})} or None,
        }
    )


def step_times(choice: Choice, now: datetime) -> tuple[datetime, datetime]:
    """Return start and end of a step: of its model calls, or else the current time."""
    answers = choice.answers()
    if not answers:
        return now, now
    began = min(answer.started_at for answer in answers)
    return began, max(answer.started_at + timedelta(seconds=answer.latency_s) for answer in answers)
