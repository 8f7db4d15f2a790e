"""Run a prepared rollout: play the missing episodes, log them, and write a store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from pydantic import JsonValue

import trajkit
from trajkit._core.process.loop import run_to_end
from trajkit.errors import TrajkitError
from trajkit.rollouts.cast import Cast
from trajkit.rollouts.faults import Fault, FaultKind
from trajkit.rollouts.gateway.rows import Checked, Stored, check_rows, mark_abandoned
from trajkit.rollouts.options import PolicyKind
from trajkit.rollouts.preparation import Session, prepare
from trajkit.rollouts.records.deliver import KIND, Prompts, Written, refuse_other, write_store
from trajkit.rollouts.records.journal import Journal, open_journal
from trajkit.rollouts.records.record import RETURN_METRIC, Played, to_episode
from trajkit.rollouts.records.summary import Table, score
from trajkit.rollouts.running.calling import Caller
from trajkit.rollouts.running.limits import Budget, LimitReached
from trajkit.rollouts.running.runner import play
from trajkit.schema import FeedbackKind, Left, LineageEntry, Metric, MetricLevel

__all__ = ["Run", "Session", "open_run", "prepare", "run"]

_MARKING_S = 30.0
_LAST_MARKING_S = 5.0
"""Time limit for marking abandoned episodes while the run is being stopped."""


class Run:
    """A session with an open journal, ready to play the missing episodes.

    Args:
        session: From `prepare`.
        journal: Its journal.
    """

    def __init__(self, session: Session, journal: Journal) -> None:
        self.session = session
        self.journal = journal
        self.plan = session.plan.model_copy(update={"run": journal.run})
        self.n_before = journal.n_done
        """Episodes that were finished before."""
        self.table = Table()
        """All finished episodes, and those that ended by an error in this run."""
        for one in journal.scores():
            self.table.add(one)
        self.reached: LimitReached | None = None
        """The limit that stopped the run."""
        self.serving: Callable[[], NamedTuple] | None = None
        """Describes the use of this run's model server; None when unknown."""
        self._has_played = False
        self.budget = Budget(session.options.limits, session.prices)
        self.caller = Caller(
            concurrency=self.plan.concurrency,
            timeout_s=self.plan.timeout_s,
            retries=self.plan.retries,
            budget=self.budget,
        )

    @property
    def n_left(self) -> int:
        """Episodes that are still to be played."""
        return self.plan.n_episodes - self.journal.n_done

    def play(
        self, *, on_played: Callable[[Played], None], on_step: Callable[[], None] = lambda: None
    ) -> None:
        """Play the missing episodes. After Ctrl-C, unfinished episodes are abandoned and the rest are kept.

        Args:
            on_played: Called with each episode when it ends.
            on_step: Called after each step.

        Raises:
            ServiceError: The gateway, its database or the model is down.
            RequestError: The gateway refuses every request of this kind.
            RolloutError: The environment or the agent fails every time.
            StoreError: The journal cannot be written.
        """
        run_to_end(self._play(on_played, on_step))

    async def _play(self, on_played: Callable[[Played], None], on_step: Callable[[], None]) -> None:
        session = self.session
        async with contextlib.AsyncExitStack() as stack:
            cast = Cast(session, self.plan, self.caller, stack)
            if self.n_left == 0:
                await self._mark_only(cast)
                return
            policies = await cast.policies()

            def stepped() -> None:
                self._has_played = True
                on_step()

            try:
                self.reached = await play(
                    self.plan,
                    policies,
                    on_played=lambda played: self._take(played, on_played),
                    on_step=stepped,
                    on_begun=self.journal.begin,
                    is_done=self.journal.is_done,
                    budget=self.budget,
                )
            except BaseException as error:
                await self._leave(cast, error)
                raise
            if self.reached is not None:
                self.journal.abandon_open(f"stopped by {self.reached.option}", str(self.reached))
            await self._mark(cast, _MARKING_S)

    def _take(self, played: Played, on_played: Callable[[Played], None]) -> None:
        """Write an episode to the journal before it is reported."""
        if played.fault is None:
            episode = to_episode(played)
            if self.session.prices is not None:
                episode = self.session.prices.priced(episode)
            self.journal.finish(played.job, episode, score(played))
        else:
            self.journal.abandon(played.episode_id, played.fault.kind.value, played.fault.message)
            if not self._may_have_rows(played, played.fault):
                self.journal.mark(played.episode_id)  # the database has no rows to mark
        self.table.add(score(played))
        on_played(played)

    def _may_have_rows(self, played: Played, fault: Fault) -> bool:
        """Check whether the database may have rows of an episode that ended by a fault."""
        return self.session.venue is not None and (bool(played.answers()) or fault.kind in self._unsure)

    @property
    def _unsure(self) -> set[FaultKind]:
        """Failures after which it is unknown whether the gateway wrote the rows."""
        unsure = {FaultKind.TIMEOUT, FaultKind.EPISODE_TIMEOUT, FaultKind.NOT_STORED}
        if self.session.venue is not None and self.session.venue.gateway_url is not None:
            unsure.add(FaultKind.CONNECTION)  # a gateway in this process has no connection to lose
        return unsure

    async def _leave(self, cast: Cast, error: BaseException) -> None:
        """Abandon unfinished episodes of a run that ends by an error or by Ctrl-C."""
        is_stopped = isinstance(error, asyncio.CancelledError)
        with contextlib.suppress(TrajkitError):  # a full disk would hide the first error
            before = set(self.journal.unmarked)
            self.journal.abandon_open("stopped", "the run was stopped" if is_stopped else "the run failed")
            if not (is_stopped or self._has_played or self._unsure & set(self.caller.faults)):
                for episode_id in self.journal.unmarked.keys() - before:
                    self.journal.mark(episode_id)  # no request was ever answered
            await self._mark(cast, _LAST_MARKING_S)

    async def _mark(self, cast: Cast, limit_s: float) -> None:
        if self.journal.unmarked and (gateway := cast.opened_gateway) is not None:
            await mark_abandoned(gateway, self.caller, self.journal, limit_s=limit_s)

    async def _mark_only(self, cast: Cast) -> None:
        """Mark the abandoned episodes that an earlier run left unmarked, when all episodes are finished."""
        if self.session.options.kind == PolicyKind.GATEWAY and self.journal.unmarked:
            with contextlib.suppress(TrajkitError):
                await cast.gateway()
                await self._mark(cast, _MARKING_S)

    def check_rows(self, stored: Stored) -> Checked:
        """Compare the finished episodes with the gateway's database."""
        return check_rows(self.journal.episodes(), stored)

    def write(self, prompts: Prompts | None = None) -> Written | None:
        """Write the store from the journal; None when no store was requested, or no episode is finished.

        Args:
            prompts: Looks up exact prompts; None leaves them unknown.

        Raises:
            StoreError: It cannot be written.
        """
        goal = self.session.options.store
        if goal is None or self.journal.n_done == 0:
            return None
        source: dict[str, JsonValue] = {"kind": KIND, "env_id": self.plan.env_id, "run": self.plan.run}
        if self.session.venue is not None:
            source["gateway"] = self.session.venue.name
        source |= self.session.remarks
        return write_store(
            self.journal,
            goal,
            source=source,
            entry=self._entry(),
            metrics=[_metric(self.session, name) for name in self.session.metrics],
            prompts=prompts,
        )

    def _entry(self) -> LineageEntry:
        journal = self.journal
        arguments = {**self.session.arguments, "run": self.plan.run, "concurrency": self.plan.concurrency}
        if journal.n_hidden:
            arguments["n_keys_hidden"] = journal.n_hidden
        arguments.pop("gateway", None)  # it has folders of this machine; the source has its name
        return LineageEntry(
            verb=KIND,
            arguments=arguments,
            n_episodes_in=journal.n_done + journal.abandoned.total(),
            n_episodes_out=journal.n_done,
            n_steps_in=journal.n_steps,
            n_steps_out=journal.n_steps,
            left=tuple(
                Left(reason=f"abandoned: {reason}", n_episodes=n)
                for reason, n in sorted(journal.abandoned.items())
            ),
            done_at=datetime.now(UTC),
            trajkit_version=trajkit.__version__,
        )


@contextlib.contextmanager
def open_run(session: Session) -> Iterator[Run]:
    """Open the journal of a session for the time of a block.

    Raises:
        RolloutError: Another process already plays this run.
        StoreError: The journal is damaged or cannot be written, or `-o` names something else.
    """
    options = session.options
    with open_journal(session.plan, session.arguments, begin_anew=options.new_run) as journal:
        if options.store is not None:
            refuse_other(options.store, journal.run)
        yield Run(session, journal)


def run(
    session: Session,
    *,
    on_played: Callable[[Played], None],
    on_step: Callable[[], None] = lambda: None,
    prompts: Prompts | None = None,
) -> Written | None:
    """Play the missing episodes of a session, and write its store; see `Run.play` and `Run.write`."""
    with open_run(session) as opened:
        opened.play(on_played=on_played, on_step=on_step)
        return opened.write(prompts)


def _metric(session: Session, name: str) -> Metric:
    declared = session.venue.names.metrics.get(name) if session.venue and session.venue.names else None
    if declared is not None:
        optimize: str | None = declared.optimize
    else:
        optimize = "max" if name == RETURN_METRIC else None
    return Metric(name=name, level=MetricLevel.EPISODE, kind=FeedbackKind.FLOAT, optimize=optimize)
