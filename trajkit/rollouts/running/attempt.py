"""Play one episode step by step until it ends, a fault occurs, or the run reaches a limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TypeVar

from trajkit._core.ids import uuid7_by_clock
from trajkit.environments.base import Environment, EnvironmentInfo, Result, Start
from trajkit.errors import RolloutError
from trajkit.rollouts.faults import Fault, FaultKind, Faulty, shown
from trajkit.rollouts.plan import Job, Plan
from trajkit.rollouts.policies import Choice, KeepsEpisodes, Past, Policy, Situation, StepFailed
from trajkit.rollouts.records.record import RETURN_METRIC, Played, PlayedStep, outcome_of, step_times
from trajkit.rollouts.running.limits import Budget
from trajkit.schema import Outcome

T = TypeVar("T")

NO_START = Start(mission="", observation="", initial_state_hash="")
"""The start of an episode that has not begun."""


class Attempt:
    """An episode that is about to begin.

    Args:
        plan: The episodes to play.
        info: The known properties of the environment.
        policy: The policy that plays.
        job: Which episode.
    """

    def __init__(self, plan: Plan, info: EnvironmentInfo, policy: Policy, job: Job) -> None:
        self.job = job
        self.episode_id = uuid7_by_clock()
        self._tags = plan.tags(job)
        self._plan = plan
        self._info = info
        self._policy = policy
        self._start = NO_START
        self._steps: list[PlayedStep] = []
        self._past: list[Past] = []
        self._latest_id = ""
        self._statistics: Mapping[str, float] = {}

    def begin(self, environment: Environment) -> None:
        """Reset the environment to the episode's seed.

        Raises:
            Faulty: It failed.
        """
        self._environment = environment
        self._start = of_environment(lambda: environment.reset(self.job.seed))

    async def play(self, budget: Budget, on_step: Callable[[], None]) -> None:
        """Play to the end. When it raises, the steps played so far are kept.

        Args:
            budget: Checked for the time limit before each step.
            on_step: Called after each step.

        Raises:
            Faulty: A service, the environment or the agent's own code failed, or the episode took too long.
            LimitReached: The run has reached a limit.
        """
        seconds = self._plan.episode_timeout_s
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            async with asyncio.timeout(seconds) as limit:
                observation: str | None = self._start.observation
                while observation is not None:
                    budget.check_time()
                    # a scripted policy never awaits, so asyncio's timeout cannot end it
                    if deadline is not None and time.monotonic() > deadline:
                        raise Faulty(_too_long(self._plan))
                    observation = await self._step(observation)
                    on_step()
                self._statistics = of_environment(self._environment.statistics)
        except TimeoutError:
            if not limit.expired():
                raise
            raise Faulty(_too_long(self._plan)) from None

    async def _step(self, observation: str) -> str | None:
        """Play one step; return the next observation, or None at the end."""
        environment = self._environment
        situation = Situation(
            self.job,
            self.episode_id,
            len(self._steps),
            self._start.mission,
            observation,
            self._past,
            environment,
            self._tags,
        )
        # an environment that takes any text has no list of actions
        legal = of_environment(environment.legal_actions) or None if self._info.rule is None else None
        choice = await self._choose(situation)
        self._check_order(choice)
        said = choice.action if isinstance(choice.action, str) else None
        result = self._limited(of_environment(lambda: environment.step(said)))
        began, ended = step_times(choice, datetime.now(UTC))
        self._steps.append(PlayedStep(observation, choice, result, began, ended, legal))
        self._past.append(Past(observation, result.action_executed, result.action_valid))
        return None if result.terminated or result.truncated else result.observation

    async def _choose(self, situation: Situation) -> Choice:
        try:
            return await self._policy.act(situation)
        except RolloutError as error:
            raise Faulty(Fault(FaultKind.AGENT, shown(error.message))) from error

    def _limited(self, result: Result) -> Result:
        """Truncate the episode at the plan's own step limit."""
        is_last = len(self._steps) + 1 == self._plan.max_steps
        return result._replace(truncated=True) if is_last and not result.terminated else result

    def _check_order(self, choice: Choice) -> None:
        """Check that the ids of inferences, which contain the time, are in the order of the steps."""
        ids = [answer.inference_id for answer in choice.answers()]
        if not ids:
            return
        if min(ids) <= self._latest_id:
            raise Faulty(
                Fault(
                    FaultKind.CLOCK,
                    f"the clock was set back: inference {min(ids)} is older than {self._latest_id} of the"
                    " step before it, so the database has the steps in another order",
                )
            )
        self._latest_id = max(ids)

    async def conclude(self) -> Played:
        """Log the result and return the record, also when logging failed."""
        try:
            # the return goes last: after a partial failure it is missing, and no export selects by it
            metrics = {
                **self._statistics,
                RETURN_METRIC: float(sum(step.result.reward for step in self._steps)),
            }
            feedback = await self._policy.conclude(self.episode_id, metrics, self._tags)
        except Faulty as failure:
            return self.failed(failure)
        truncated = self._steps[-1].result.truncated
        return self._record(None)._replace(
            outcome=outcome_of(metrics, self._info.success, truncated=truncated),
            metrics=metrics,
            feedback=feedback,
        )

    def failed(self, failure: Faulty) -> Played:
        """Return the record of an episode that a fault ended."""
        played = self._record(failure.fault)
        return played._replace(unfinished=failure.calls) if isinstance(failure, StepFailed) else played

    async def leave(self) -> None:
        """Let the policy drop the episode."""
        if isinstance(self._policy, KeepsEpisodes):
            await self._policy.leave(self.episode_id)

    def _record(self, fault: Fault | None) -> Played:
        """Return the record without the result."""
        return Played(
            job=self.job,
            env_id=self._plan.env_name or self._plan.env_id,
            purpose=self._plan.purpose,
            run=self._plan.run,
            episode_id=self.episode_id,
            tags=self._tags,
            mission=self._start.mission,
            initial_state_hash=self._start.initial_state_hash,
            steps=tuple(self._steps),
            outcome=Outcome.ERROR,
            metrics={},
            feedback=(),
            fault=fault,
        )


def of_environment(ask: Callable[[], T]) -> T:
    """Return the answer of an environment.

    Raises:
        Faulty: It failed.
    """
    try:
        return ask()
    except RolloutError as error:
        raise Faulty(Fault(FaultKind.ENVIRONMENT, shown(str(error)), is_lasting=True)) from error


def _too_long(plan: Plan) -> Fault:
    return Fault(FaultKind.EPISODE_TIMEOUT, f"not finished after {plan.episode_timeout_s:g} s")
