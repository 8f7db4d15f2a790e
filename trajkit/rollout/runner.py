"""Play the episodes of a plan, many at a time; what a service spoils becomes a record, the rest goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

from trajkit.environments import environment_info
from trajkit.environments.base import Environment, EnvironmentInfo, Start
from trajkit.errors import RequestError, ServiceError
from trajkit.rollout.faults import Fault, FaultKind, Faulty
from trajkit.rollout.ids import uuid7
from trajkit.rollout.plan import Job, Plan
from trajkit.rollout.policies import Past, Policy, Situation
from trajkit.rollout.record import RETURN_METRIC, Played, PlayedStep, outcome_of, step_times
from trajkit.schema import Outcome

GIVE_UP_AT_START = 5
"""When nothing ever worked and so many episodes failed in the same way, the service is down."""

_LAST_WORDS_S = 5.0
"""How long a run that is stopped waits for feedback that is being logged."""


async def play(
    plan: Plan,
    policies: Mapping[str, Policy],
    *,
    on_played: Callable[[Played], None],
    on_step: Callable[[], None] | None = None,
) -> None:
    """Play every episode of a plan. Nothing is kept here: each episode is handed over when it ends.

    Episodes are begun in the plan's order, as many at a time as requests may be in flight, since each waits
    for one request at a time. They end in any order.

    Args:
        plan: What to play.
        policies: Who plays, by the names in `plan.variants`.
        on_played: Called with each episode that was played to its end or to a fault.
        on_step: Called after each step.

    Raises:
        RequestError: A variant has no policy, or the environment or a task is not known.
        ServiceError: A service is down: the first episodes, or very many in a row, failed in the same way.

    Example:
        >>> import asyncio
        >>> from trajkit.rollout.policies import Expert
        >>> plan = Plan(env_id="babyai", tasks=("goto",), variants=("expert",), seed_start=0, seed_stop=3)
        >>> played = []
        >>> asyncio.run(play(plan, {"expert": Expert()}, on_played=played.append))
        >>> [episode.metrics["progression"] for episode in played]
        [1.0, 1.0, 1.0]
    """
    info = environment_info(plan.env_id)
    if unknown := [task for task in plan.tasks if task not in info.tasks]:
        raise RequestError(f"no task {unknown[0]!r} in {plan.env_id}", hint=f"tasks: {', '.join(info.tasks)}")
    if missing := [variant for variant in plan.variants if variant not in policies]:
        raise RequestError(f"no policy is given for variant {missing[0]!r}")
    run = _Run(plan, policies, info, on_played, on_step or (lambda: None))
    workers = [asyncio.create_task(run.work()) for _ in range(min(plan.concurrency, plan.n_episodes))]
    try:
        await asyncio.gather(*workers)
    except asyncio.CancelledError:
        raise  # the workers were told already; a second time would cut their last words short
    except BaseException:
        for worker in workers:
            worker.cancel()
        raise
    finally:
        await asyncio.gather(*workers, return_exceptions=True)


def metric_names(info: EnvironmentInfo, task: str) -> tuple[str, ...]:
    """The metrics that an episode of this task ends with, found by beginning one."""
    environment = info.make(task)
    try:
        environment.reset(0)
        return (*environment.statistics(), RETURN_METRIC)
    finally:
        environment.close()


class _Run:
    """One run of a plan: the workers share the list of what is still to play."""

    def __init__(
        self,
        plan: Plan,
        policies: Mapping[str, Policy],
        info: EnvironmentInfo,
        on_played: Callable[[Played], None],
        on_step: Callable[[], None],
    ) -> None:
        self.plan = plan
        self.policies = policies
        self.info = info
        self.on_played = on_played
        self.on_step = on_step
        self.jobs: Iterator[Job] = plan.jobs()
        self.breaker = _Breaker(2 * plan.concurrency)

    async def work(self) -> None:
        """Play what is next until nothing is left."""
        environments: dict[str, Environment] = {}
        try:
            for job in self.jobs:
                if job.task not in environments:
                    environments[job.task] = self.info.make(job.task)
                await self._episode(job, environments[job.task])
                await asyncio.sleep(0)  # a scripted policy never waits: let Ctrl-C have its turn
        finally:
            for environment in environments.values():
                environment.close()

    async def _episode(self, job: Job, environment: Environment) -> None:
        start = environment.reset(job.seed)
        episode_id = uuid7()
        steps: list[PlayedStep] = []
        try:
            await self._steps(job, environment, start, episode_id, steps)
        except Faulty as failure:
            self._hand_over(self._record(job, start, episode_id, steps, fault=failure.fault))
            return
        concluding = asyncio.create_task(self._conclude(job, environment, start, episode_id, steps))
        try:
            self._hand_over(await asyncio.shield(concluding))
        except asyncio.CancelledError:
            # The episode is over: when the run is stopped now, its feedback is still logged whole.
            async with asyncio.timeout(_LAST_WORDS_S):
                self.on_played(await concluding)
            raise

    async def _steps(
        self, job: Job, environment: Environment, start: Start, episode_id: str, steps: list[PlayedStep]
    ) -> None:
        """Play to the end, adding to `steps` so that what was played survives a fault."""
        policy, tags = self.policies[job.variant], self.plan.tags(job)
        past: list[Past] = []
        observation = start.observation
        while True:
            situation = Situation(
                job, episode_id, len(steps), start.mission, observation, past, environment, tags
            )
            legal = environment.legal_actions() if self.info.rule is None else None
            choice = await policy.act(situation)
            result = environment.step(choice.action if isinstance(choice.action, str) else None)
            began, ended = step_times(choice, datetime.now(UTC))
            steps.append(PlayedStep(observation, choice, result, began, ended, legal))
            past.append(Past(observation, result.action_executed, result.action_valid))
            self.breaker.something_worked()
            self.on_step()
            if result.terminated or result.truncated:
                return
            observation = result.observation

    async def _conclude(
        self, job: Job, environment: Environment, start: Start, episode_id: str, steps: list[PlayedStep]
    ) -> Played:
        # The return goes last: where only a part could be logged it is missing, and no export chooses by it.
        metrics = environment.statistics() | {RETURN_METRIC: float(sum(step.result.reward for step in steps))}
        try:
            feedback = await self.policies[job.variant].conclude(episode_id, metrics, self.plan.tags(job))
        except Faulty as failure:
            return self._record(job, start, episode_id, steps, fault=failure.fault)
        outcome = outcome_of(metrics, self.info.success, truncated=steps[-1].result.truncated)
        played = self._record(job, start, episode_id, steps, fault=None)
        return played._replace(outcome=outcome, metrics=metrics, feedback=feedback)

    def _record(
        self, job: Job, start: Start, episode_id: str, steps: list[PlayedStep], *, fault: Fault | None
    ) -> Played:
        return Played(
            job=job,
            env_id=self.plan.env_id,
            purpose=self.plan.purpose,
            run=self.plan.run,
            episode_id=episode_id,
            tags=self.plan.tags(job),
            mission=start.mission,
            initial_state_hash=start.initial_state_hash,
            steps=tuple(steps),
            outcome=Outcome.ERROR,
            metrics={},
            feedback=(),
            fault=fault,
        )

    def _hand_over(self, played: Played) -> None:
        self.on_played(played)
        self.breaker.saw(played.fault)


class _Breaker:
    """Stops a run whose service is down: every further episode would only wait and fail.

    Args:
        in_a_row: Failures of one kind, one after the other, that mean so once something had worked. Failures
            end sooner than episodes, so a few of them may well come first.
    """

    def __init__(self, in_a_row: int) -> None:
        self._limit = GIVE_UP_AT_START
        self._later_limit = max(GIVE_UP_AT_START, in_a_row)
        self._kind: FaultKind | None = None
        self._n = 0

    def something_worked(self) -> None:
        """Take note that a step was played."""
        self._limit = self._later_limit

    def saw(self, fault: Fault | None) -> None:
        """Take note of how an episode ended.

        Raises:
            ServiceError: Enough have failed in the same way.
        """
        if fault is None:
            self._kind, self._n = None, 0
            return
        self._n = self._n + 1 if fault.kind == self._kind else 1
        self._kind = fault.kind
        if self._n >= self._limit:
            raise ServiceError(
                f"{self._n} episodes in a row ended by {fault.kind}: {fault.message}",
                hint=_HINTS[fault.kind],
            )


_HINTS = {
    FaultKind.TIMEOUT: "is the model up? --timeout gives it longer",
    FaultKind.RATE_LIMIT: "lower --concurrency, or raise --retries",
    FaultKind.SERVER: "see what the model's provider reports",
    FaultKind.CONNECTION: "is the model server up? `trajkit status` shows the local one",
    FaultKind.UNREADABLE: "does the configuration's api_base point at an OpenAI-compatible API?",
    FaultKind.REFUSED: "check the model's name and its key",
    FaultKind.NOT_STORED: "is the database up? `trajkit status` shows the local one",
}
