"""Play the episodes of a plan concurrently; a service's failure becomes a record, and the rest continues."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping

from trajkit.environments import typed_environment
from trajkit.environments.base import Environment, EnvironmentInfo
from trajkit.errors import RequestError, RolloutError, ServiceError
from trajkit.rollouts.faults import Fault, FaultKind, Faulty
from trajkit.rollouts.plan import Job, Plan
from trajkit.rollouts.policies import Policy
from trajkit.rollouts.records.record import Played
from trajkit.rollouts.running.attempt import Attempt
from trajkit.rollouts.running.limits import Budget, LimitReached

GIVE_UP_AT_START = 5
"""If no step ever worked and this many episodes failed in the same way, the service is down."""

_LAST_WORDS_S = 5.0
"""Seconds that a stopped run waits for feedback that is being logged."""


class Pool:
    """Lends environments by task, and creates new ones only where none is free.

    Args:
        make: Creates an environment for a task.
        most: Maximum number of open environments; at least as many as are lent at once.
    """

    def __init__(self, make: Callable[[str], Environment], most: int) -> None:
        self._make = make
        self._most = most
        self._idle: dict[str, list[Environment]] = {}
        self.n_open = 0

    @contextlib.contextmanager
    def lent(self, task: str) -> Iterator[Environment]:
        """Lend an environment for the time of a block; it is closed if the block raises."""
        environment = self._take(task)
        try:
            yield environment
        except BaseException:
            self._close(environment)
            raise
        self._idle.setdefault(task, []).append(environment)

    def close(self) -> None:
        """Close the free environments."""
        for waiting in self._idle.values():
            while waiting:
                self._close(waiting.pop())

    def _take(self, task: str) -> Environment:
        if waiting := self._idle.get(task):
            return waiting.pop()
        if self.n_open >= self._most:
            self._close(next(waiting for waiting in self._idle.values() if waiting).pop())
        environment = self._make(task)
        self.n_open += 1
        return environment

    def _close(self, environment: Environment) -> None:
        self.n_open -= 1
        environment.close()


async def play(
    plan: Plan,
    policies: Mapping[str, Policy],
    *,
    on_played: Callable[[Played], None],
    on_step: Callable[[], None] = lambda: None,
    on_begun: Callable[[Job, str], None] = lambda job, episode_id: None,
    is_done: Callable[[Job], bool] = lambda job: False,
    budget: Budget | None = None,
    pool: Pool | None = None,
) -> LimitReached | None:
    """Play every episode of a plan. Each episode is handed over when it ends.

    Episodes begin in the plan's order, as many at a time as requests may be in flight. They end in any
    order.

    Args:
        plan: The plan.
        policies: The policies, by the names in `plan.variants`.
        on_played: Called with each episode that was played to its end or to a fault.
        on_step: Called after each step.
        on_begun: Called with each episode and its id before its first request.
        is_done: Whether an episode was played before and is to be skipped.
        budget: The limits of the run; None for no limit.
        pool: Lends the environments and stays open; None for a pool of this run.

    Returns:
        The limit that stopped the run; None when every episode was played. Interrupted episodes are not
        handed over.

    Raises:
        RequestError: A variant has no policy, or the environment or a task is unknown.
        ServiceError: A service is down: the first episodes, or very many in a row, failed in the same way.
        RolloutError: The environment or the agent fails in this way.

    Example:
        >>> import asyncio
        >>> from trajkit.rollouts.policies import Expert
        >>> plan = Plan(env_id="babyai", tasks=("goto",), variants=("expert",), seeds="0:3")
        >>> played = []
        >>> asyncio.run(play(plan, {"expert": Expert()}, on_played=played.append))
        >>> [episode.metrics["progression"] for episode in played]
        [1.0, 1.0, 1.0]
    """
    info = typed_environment(plan.env_id, plan.env_settings)
    if unknown := [task for task in plan.tasks if task not in info.tasks]:
        raise RequestError(f"no task {unknown[0]!r} in {plan.env_id}", hint=f"tasks: {', '.join(info.tasks)}")
    if missing := [variant for variant in plan.variants if variant not in policies]:
        raise RequestError(f"no policy is given for variant {missing[0]!r}")
    jobs = (job for job in plan.jobs() if not is_done(job))
    n_workers = min(plan.concurrency, plan.n_jobs)
    lends, breaker = pool or Pool(info.make, n_workers), _Breaker(2 * plan.concurrency)
    run = _Run(plan, policies, info, jobs, budget or Budget(), lends, breaker, on_played, on_step, on_begun)
    workers = [asyncio.create_task(run.work()) for _ in range(n_workers)]
    try:
        await asyncio.gather(*workers)
    except asyncio.CancelledError:
        raise  # the workers are already cancelled; a second time would interrupt their cleanup
    except BaseException:
        for worker in workers:
            worker.cancel()
        raise
    finally:
        await asyncio.gather(*workers, return_exceptions=True)
        if pool is None:
            lends.close()
    return run.reached


@dataclasses.dataclass
class _Run:
    """One run of a plan: the workers share the list of remaining jobs."""

    plan: Plan
    policies: Mapping[str, Policy]
    info: EnvironmentInfo
    jobs: Iterator[Job]
    budget: Budget
    pool: Pool
    breaker: _Breaker
    on_played: Callable[[Played], None]
    on_step: Callable[[], None]
    on_begun: Callable[[Job, str], None]
    reached: LimitReached | None = None

    async def work(self) -> None:
        """Play episodes until none is left or a limit is reached; those of other workers continue."""
        while self.reached is None and (job := next(self.jobs, None)) is not None:
            try:
                self.budget.check_time()
                await self._episode(job)
            except LimitReached as limit:
                self.reached = limit
            await asyncio.sleep(0)  # a scripted policy never awaits: let Ctrl-C be handled

    async def _episode(self, job: Job) -> None:
        attempt = Attempt(self.plan, self.info, self.policies[job.variant], job)
        try:
            with self.pool.lent(job.task) as environment:
                attempt.begin(environment)
                self.on_begun(job, attempt.episode_id)
                await attempt.play(self.budget, self._stepped)
            # the environment is already free: a scripted policy never needs a second one
            played = await self._conclude(attempt)
        except Faulty as failure:
            played = attempt.failed(failure)
        finally:
            await attempt.leave()
        self.on_played(played)
        self.breaker.saw(played.fault)

    async def _conclude(self, attempt: Attempt) -> Played:
        concluding = asyncio.create_task(attempt.conclude())
        try:
            return await asyncio.shield(concluding)
        except asyncio.CancelledError:
            # the episode is over: even if the run is stopped now, its feedback is logged completely
            async with asyncio.timeout(_LAST_WORDS_S):
                self.on_played(await concluding)
            raise

    def _stepped(self) -> None:
        self.breaker.something_worked()
        self.on_step()


class _Breaker:
    """Stops a run whose service is down: every further episode would only wait and fail.

    Args:
        in_a_row: Consecutive failures of one kind that stop the run once a step had worked. Failures
            end sooner than episodes, so a few of them may come first.
    """

    def __init__(self, in_a_row: int) -> None:
        self._limit = GIVE_UP_AT_START
        self._later_limit = max(GIVE_UP_AT_START, in_a_row)
        self._kind: FaultKind | None = None
        self._n = 0

    def something_worked(self) -> None:
        """Record that a step was played."""
        self._limit = self._later_limit

    def saw(self, fault: Fault | None) -> None:
        """Record the end of an episode.

        Raises:
            ServiceError: Too many have failed in the same way, by a service.
            RolloutError: Too many have failed in the same way, by the environment or the agent.
        """
        if fault is None:
            self._kind, self._n = None, 0
            return
        self._n = self._n + 1 if fault.kind == self._kind else 1
        self._kind = fault.kind
        if self._n >= self._limit:
            is_ours = fault.kind in _NO_SERVICE
            raise (RolloutError if is_ours else ServiceError)(
                f"{self._n} episodes in a row ended by {fault.kind}: {fault.message}",
                hint=_HINTS[fault.kind],
            )


_NO_SERVICE = (FaultKind.ENVIRONMENT, FaultKind.AGENT, FaultKind.EPISODE_TIMEOUT, FaultKind.CLOCK)

_HINTS = {
    FaultKind.TIMEOUT: "check that the model is up; --timeout allows more time",
    FaultKind.RATE_LIMIT: "lower --concurrency, or raise --retries",
    FaultKind.SERVER: "see what the model's provider reports",
    FaultKind.CONNECTION: "check that the model server is up: `trajkit status` shows the local one",
    FaultKind.UNREADABLE: "check that the configuration's api_base is an OpenAI-compatible API",
    FaultKind.REFUSED: "check the model's name and its key",
    FaultKind.NOT_STORED: "check that the database is up: `trajkit status` shows the local one",
    FaultKind.ENVIRONMENT: "`trajkit check-env` shows what is wrong with an environment",
    FaultKind.AGENT: "fix the agent's own code",
    FaultKind.EPISODE_TIMEOUT: "--episode-timeout allows more time, --max-steps ends it sooner",
    FaultKind.CLOCK: "the clock of the gateway's machine must not be set back",
}
