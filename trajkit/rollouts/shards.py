"""Play a rollout in several processes: each plays one shard of the plan and keeps its own journal.

The process that started the rollout has the journal of the whole run. It copies the journals of the shards
into that journal; the store, the table and the remaining episodes are then the same as with one process.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from trajkit._core.division import Division
from trajkit._core.lock import locked
from trajkit.environments.quiet import kept_stdout
from trajkit.errors import RequestError
from trajkit.rollouts.faults import FaultKind
from trajkit.rollouts.options import Options, PolicyKind
from trajkit.rollouts.plan import Shard
from trajkit.rollouts.preparation import prepare
from trajkit.rollouts.records.journal import KILLED, Journal, find_journals, open_journal
from trajkit.rollouts.records.record import Played, to_episode
from trajkit.rollouts.records.summary import Score, score
from trajkit.rollouts.running.limits import LimitReached
from trajkit.rollouts.session import Run
from trajkit.schema import Episode


class Task(NamedTuple):
    """One shard of a run."""

    options: Options
    """The options of the whole run, with this shard's part of its limits."""
    shard: Shard
    """The episodes of this shard."""
    run: str
    """Identity of the run."""
    journal: Path
    """The journal of the whole run, whose episodes are not played again."""
    folder: Path
    """The folder of this shard's journal."""


class Failure(NamedTuple):
    """An episode that ended without a result."""

    score: Score
    episode: str
    """The episode as JSON, as far as it was played."""
    message: str
    """Why it ended."""


class Facts(NamedTuple):
    """The facts about a shard that are not in its journal."""

    failures: tuple[Failure, ...]
    """Episodes that ended without a result."""
    faults: Counter[FaultKind]
    """Failed requests by kind, including those that a retry resolved."""
    lowest: int | None
    """Lowest limit on requests in flight that a service caused; None if it caused none."""
    spent: tuple[int, int, int, int, float]
    """Calls, tokens of prompts, tokens of answers, answers without token counts, and US dollars."""
    reached: tuple[str, str] | None
    """The option and the text of the limit that stopped the shard; None if none did."""


def play_shards(
    run: Run,
    division: Division,
    *,
    on_done: Callable[[Score, Episode], None],
    on_failed: Callable[[Score, Episode, str], None],
) -> None:
    """Play the missing episodes of a run in several processes.

    Args:
        run: The run, with the journal of the whole.
        division: The processes.
        on_done: Called with each episode that is finished, after all shards ended.
        on_failed: Called with each episode that ended without a result, and the reason.

    Raises:
        RequestError: A person plays, or a limit is too small to be divided.
    """
    options = run.session.options
    if options.kind == PolicyKind.HUMAN:
        raise RequestError("a person plays at one terminal: leave --on out")
    folder = run.journal.path.parent.absolute() / f"shards-{run.plan.run}"
    _absorb(run, folder, on_done)
    if run.n_left:
        tasks = [
            Task(
                options=_part(options, run, division.n),
                shard=Shard(number, division.n),
                run=run.plan.run,
                journal=run.journal.path.absolute(),
                folder=folder / f"{number}-of-{division.n}",
            )
            for number in range(1, division.n + 1)
        ]
        try:
            for facts in division.map(play_shard, tasks):
                _take(run, facts, on_failed)
        finally:
            _absorb(run, folder, on_done)
    if not run.n_left:
        shutil.rmtree(folder, ignore_errors=True)


def play_shard(task: Task) -> Facts:
    """Play the missing episodes of one shard; those that an earlier attempt finished are not played again."""
    session = prepare(task.options)
    plan = session.plan.model_copy(update={"shard": task.shard, "run": task.run})
    session = session._replace(plan=plan)
    failures: list[Failure] = []

    def take(played: Played) -> None:
        if played.fault is not None:
            episode = to_episode(played).model_dump_json()
            failures.append(Failure(score(played), episode, played.fault.message))

    with open_journal(plan, session.arguments, folder=task.folder) as journal, kept_stdout():
        journal.leave_out(Journal(task.journal, session.plan.model_copy(update={"shard": Shard(1, 1)})))
        run = Run(session, journal)
        run.play(on_played=take)
    budget, throttle, reached = run.budget, run.caller.throttle, run.reached
    return Facts(
        tuple(failures),
        run.caller.faults,
        throttle.lowest if throttle.lowest < throttle.most else None,
        (budget.n_calls, budget.n_input_tokens, budget.n_output_tokens, budget.n_unmetered, budget.cost_usd),
        None if reached is None else (reached.option, reached.reached),
    )


def _part(options: Options, run: Run, n: int) -> Options:
    """Return the options of a shard; the limits of all shards add up to those of the run."""
    calls = None if options.max_calls is None else options.max_calls // n
    if calls == 0:
        raise RequestError(f"--max-calls {options.max_calls} cannot be divided among {n} shards")
    return options.model_copy(
        update={
            "max_calls": calls,
            "max_cost_usd": None if options.max_cost_usd is None else options.max_cost_usd / n,
            "concurrency": max(1, run.plan.concurrency // n),
            "store": None,
            "new_run": False,
        }
    )


def _take(run: Run, facts: Facts, on_failed: Callable[[Score, Episode, str], None]) -> None:
    """Add the facts about a shard to those of the run."""
    for failure in facts.failures:
        run.table.add(failure.score)
        on_failed(failure.score, Episode.model_validate_json(failure.episode), failure.message)
    run.caller.faults.update(facts.faults)
    if facts.lowest is not None:
        run.caller.throttle.lowest = min(run.caller.throttle.lowest, facts.lowest)
    budget = run.budget
    budget.n_calls += facts.spent[0]
    budget.n_input_tokens += facts.spent[1]
    budget.n_output_tokens += facts.spent[2]
    budget.n_unmetered += facts.spent[3]
    budget.cost_usd += facts.spent[4]
    if facts.reached is not None:
        run.reached = LimitReached(*facts.reached)


def _absorb(run: Run, folder: Path, on_done: Callable[[Score, Episode], None]) -> None:
    """Copy the finished episodes of the shards, also of earlier attempts, into the journal of the run."""
    for path in sorted(folder.glob("*-of-*")):
        for shard in _closed(path, run):
            for found, text in run.journal.absorb(shard):
                run.table.add(found)
                on_done(found, Episode.model_validate_json(text))


def _closed(folder: Path, run: Run) -> Iterator[Journal]:
    """Yield the journals of a shard; an episode that a killed process left open is abandoned."""
    with locked(folder / "lock") as holder:
        for journal in find_journals(folder, run.plan):
            if holder is None:
                journal.abandon_open(KILLED, "the shard was killed while it was played")
                journal.close()
            yield journal
