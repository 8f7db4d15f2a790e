"""Play a prepared rollout: the question about money, progress, notes, and the result."""

from __future__ import annotations

import contextlib
import functools
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajkit._core.output import console
from trajkit._core.output.console import count, plural, talk
from trajkit.commands.place import remember_store
from trajkit.commands.play.played import Rollout, heading, plan_lines
from trajkit.commands.sharding import Shards, refuse_secrets
from trajkit.errors import TrajkitError
from trajkit.schema import Outcome

if TYPE_CHECKING:
    from trajkit._core.division import Division
    from trajkit.engines.engine import Engine
    from trajkit.rollouts.gateway.rows import Checked
    from trajkit.rollouts.records.deliver import Prompts, Written
    from trajkit.rollouts.records.record import Played
    from trajkit.rollouts.records.summary import Score
    from trajkit.rollouts.session import Run, Session
    from trajkit.schema import Episode


def confirm(session: Session, *, yes: bool) -> None:
    """Show the plan and ask, when a model that costs money is about to be called.

    Raises:
        RequestError: No question can be asked, and `yes` is not given.
        Exit: The answer was no.
    """
    if not session.paid_models() or (estimate := session.estimate()).n_episodes == 0:
        return
    for text in plan_lines(session, estimate):
        talk(text)
    console.confirm(
        "Play?",
        yes=yes,
        verb="plays it",
        refused="nothing was played",
        unasked=f"this calls a model that may cost money: {', '.join(estimate.models)}",
    )


def play(run: Run, *, has_rows: bool = False, division: Division | None = None) -> Rollout:
    """Play what is missing of an opened run, write its store, and return the result.

    Args:
        run: The run, with its journal open.
        has_rows: Print a row of the result for each episode, those of earlier runs first.
        division: Play in several processes; None plays in this one.

    Raises:
        TrajkitError: The run cannot continue. Its `result` is what was played so far if rows are printed.
    """
    playing = _Playing(run, has_rows=has_rows, division=division)
    try:
        playing.play()
        written = run.write(prompts_of(run.session))
    except KeyboardInterrupt:
        talk(playing.stopped())
        raise
    except TrajkitError as error:
        if has_rows and run.table.n_ended:
            error.result = playing.result(notes=[*playing.notes()])
        raise
    notes, path = [*playing.notes()], None
    if written is not None:
        path = written.path
        notes += _notes_of_store(written)
        remember_store(path, is_evaluation=run.plan.purpose == "eval")
    try:
        rows = _check_rows(run)
    except TrajkitError as error:
        if has_rows:
            error.result = playing.result(path=path, notes=notes)
        else:
            for note in notes:
                talk(note)
        raise
    notes += _notes_of_rows(run, rows)
    return playing.result(path=path, rows=rows, notes=notes)


@contextlib.contextmanager
def shards_of(engine: Engine | None, run: Run) -> Iterator[Shards | None]:
    """The division of a run among the processes of an engine, for a block; None for this process alone.

    Raises:
        RequestError: A setting is a secret, which must not be in a file.
    """
    if engine is None:
        yield None
        return
    options = run.session.options
    settings = [
        (option, name, value)
        for option, values in (("--env-set", options.env_settings), ("--policy-set", options.policy_settings))
        for name, value in values.items()
    ]
    refuse_secrets([*settings, ("--model-url", "url", options.model_url or "")])
    folder = run.journal.path.with_name(f"tasks-{run.plan.run}")
    # what is done is in the journals: a shard that had failures is played again
    shutil.rmtree(folder, ignore_errors=True)
    with Shards(engine, "evaluate" if run.plan.purpose == "eval" else "rollout", folder) as shards:
        yield shards


class _Playing:
    """A run while it is played, with its progress."""

    def __init__(self, run: Run, *, has_rows: bool, division: Division | None) -> None:
        self._run, self._session, self._has_rows = run, run.session, has_rows
        self._division = division
        self._faults: dict[str, Counter[str]] = {}
        """How often each message was the reason of an error, by its kind."""
        self._meter = console.Meter()
        self._n_ended = self._n_steps = self._n_successes = 0
        self._began = time.monotonic()
        self._has_told_silence = False
        self._use: NamedTuple | None = None
        """How the model server was used."""

    def play(self) -> None:
        from trajkit.rollouts.options import PolicyKind

        run = self._run
        if self._has_rows:
            for score, episode in run.journal.finished():
                console.result_row(_row(episode, score, None))
        if run.n_left == 0:
            talk(
                f"all {plural(run.plan.n_episodes, 'episode')} of this run are done "
                f"(journal at {run.journal.path}); --new-run plays them again"
            )
            run.play(on_played=self._take)
            return
        before = f"; {count(run.n_before)} done before" if run.n_before else ""
        talk(heading(self._session) + before)
        try:
            if self._division is not None:
                self._play_shards(self._division)
            elif self._session.options.kind == PolicyKind.HUMAN:  # types into the terminal
                run.play(on_played=self._take, on_step=self._step)
            else:
                with self._meter:
                    run.play(on_played=self._take, on_step=self._step)
        finally:
            if run.serving is not None:
                self._use = run.serving()
            done = f"{count(run.n_before + self._n_ended)} of {plural(run.plan.n_episodes, 'episode')}"
            seconds = time.monotonic() - self._began
            talk(f"{done}  {plural(self._n_steps, 'step')}  {self._so_far()}  {seconds:,.1f} s")

    def _play_shards(self, division: Division) -> None:
        from trajkit.rollouts.shards import play_shards

        def done(score: Score, episode: Episode) -> None:
            self._count(score, episode, None)

        play_shards(self._run, division, on_done=done, on_failed=self._count)

    def _count(self, score: Score, episode: Episode, message: str | None) -> None:
        """Take an episode that another process has played."""
        self._n_ended += 1
        self._n_steps += episode.n_steps
        self._n_successes += score.is_success
        if message is not None:
            self._faults.setdefault(str(score.error), Counter())[message] += 1
        elif all(step.completion is None for step in episode.steps):
            self._tell_silence()
        if self._has_rows:
            console.result_row(_row(episode, score, message))

    def _step(self) -> None:
        self._n_steps += 1
        if self._n_steps % 10 == 0:
            self._show()

    def _take(self, played: Played) -> None:
        from trajkit.rollouts.records.record import to_episode
        from trajkit.rollouts.records.summary import score

        self._n_ended += 1
        self._n_successes += played.outcome == Outcome.SUCCESS
        if played.fault is not None:
            self._faults.setdefault(played.fault.kind.value, Counter())[played.fault.message] += 1
        elif not played.answers():
            self._tell_silence()
        if self._has_rows:
            error = None if played.fault is None else played.fault.message
            console.result_row(_row(to_episode(played), score(played), error))
        self._show()

    def _tell_silence(self) -> None:
        if not self._has_told_silence and (why := _silence(self._session)) is not None:
            self._has_told_silence = True
            self._meter.say(why)

    def _show(self) -> None:
        run = self._run
        self._meter.show(self._so_far(), run.n_before + self._n_ended, run.plan.n_episodes)

    def _so_far(self) -> str:
        rate = self._n_steps / max(time.monotonic() - self._began, 1e-9)
        parts = [plural(self._n_successes, "success", "successes"), plural(self._n_errors, "error")]
        return "  ".join([*parts, f"{rate:,.0f} steps/s"])

    @property
    def _n_errors(self) -> int:
        return sum(messages.total() for messages in self._faults.values())

    def stopped(self) -> str:
        run = self._run
        logged = " and logged" if self._session.function_name else ""
        store = "; no store was written" if self._session.options.store else ""
        finished = f"{count(run.journal.n_done)} of {plural(run.plan.n_episodes, 'episode')} finished{logged}"
        return f"{finished}; the others have no feedback{store}; the same command plays the rest"

    def result(
        self, *, path: Path | None = None, rows: Checked | None = None, notes: Sequence[str] = ()
    ) -> Rollout:
        run, plan = self._run, self._run.plan
        return Rollout(
            self._session._replace(plan=plan),
            rows=tuple(run.table.rows([*plan.variants, *plan.tasks])),
            n_done=run.journal.n_done,
            errors=tuple(f"{kind}: {text}" for kind, texts in self._faults.items() for text in texts),
            reached=None if run.reached is None else str(run.reached),
            rows_checked=rows,
            path=path,
            use=self._use,
            notes=tuple(notes),
        )

    def notes(self) -> Iterator[str]:
        """What is not in the table."""
        run = self._run
        for kind, messages in self._faults.items():
            ended = f"{plural(messages.total(), 'episode')} ended in an error, without feedback"
            yield f"{ended}: {kind}: {next(iter(messages))}"
        n_passed = run.caller.faults.total() - self._n_errors
        if n_passed > 0:
            kinds = ", ".join(f"{kind} {count(n)}" for kind, n in run.caller.faults.most_common())
            yield f"requests that failed: {kinds}; {count(n_passed)} of them passed when sent again"
        if run.journal.n_hidden:
            yield f"answers repeated a key {plural(run.journal.n_hidden, 'time')}: it is hidden there"
        if run.caller.throttle.lowest < run.plan.concurrency:
            yield f"a service asked for fewer requests: down to {run.caller.throttle.lowest} at once"
        yield from self._spending()
        if self._use is not None:
            yield str(self._use)
        if run.reached is not None:
            done = f"{count(run.journal.n_done)} of {plural(run.plan.n_episodes, 'episode')} are done"
            yield f"{run.reached}; {done}; the same command plays the rest"
        elif self._faults:
            yield "the same command plays them again"
        if run.journal.unmarked and self._session.function_name:
            episodes = plural(len(run.journal.unmarked), "abandoned episode")
            yield f"{episodes} could not be marked in the database yet; the same command tries again"

    def _spending(self) -> Iterator[str]:
        budget = self._run.budget
        is_priced = budget.prices is not None or budget.cost_usd > 0
        if not budget.n_calls or not (is_priced or any(budget.limits)):
            return
        tokens = f"{count(budget.n_input_tokens)} tokens in, {count(budget.n_output_tokens)} out"
        unmetered = f" ({plural(budget.n_unmetered, 'answer')} not metered)" if budget.n_unmetered else ""
        money = f"  {budget.cost_usd:,.4f} USD" if is_priced else ""
        yield f"{plural(budget.n_calls, 'call')}  {tokens}{unmetered}{money}"


def _silence(session: Session) -> str | None:
    """The note for a user's agent that called no model in its turns; else None."""
    from trajkit.rollouts.options import PolicyKind

    if session.options.kind != PolicyKind.MODULE:
        return None
    if session.players:
        return "this agent called no model through turn.chat: it plays the same with every model"
    if session.plan.purpose != "train":
        return None
    return (
        "this agent called no model through turn.chat or turn.inference: its steps have no prompt and "
        "no answer, so no training file can be made of them (docs/agents.md)"
    )


def _row(episode: Episode, score: Score, message: str | None) -> dict[str, Any]:
    """An episode as a line of `--json`."""
    origin = episode.origin or {}
    return {
        "variant": score.variant,
        "task": episode.task,
        "seed": episode.seed,
        "outcome": episode.outcome.value,
        **{name: episode.metrics.get(name) for name in ("episode_return", *episode.metrics)},
        "n_steps": score.n_steps,
        "n_input_tokens": score.n_input_tokens,
        "n_output_tokens": score.n_output_tokens,
        "n_invalid_answers": score.n_invalid,
        "mission": origin.get("mission"),
        "episode_id": episode.episode_id,
        "purpose": episode.purpose.value,
        "run": origin.get("run"),
        "error": message and f"{score.error}: {message}",
        "error_kind": score.error,
    }


def _notes_of_store(written: Written) -> Iterator[str]:
    if written.n_without_prompt:
        yield (
            f"{plural(written.n_without_prompt, 'inference')} without its prompt in the store: "
            "the gateway's database does not hold exactly one model call for it"
        )
    counts = written.manifest.counts
    yield f"{written.path}  {plural(counts.n_episodes, 'episode')}  {plural(counts.n_steps, 'step')}"


def prompts_of(session: Session) -> Prompts | None:
    """The source of the exact prompts: the database behind the gateway, if its address is known."""
    database = session.venue.clickhouse_url if session.venue else None
    if database is None or session.options.store is None:
        return None
    from trajkit.sources.tensorzero.export.prompts import rendered_prompts

    return functools.partial(rendered_prompts, database.get_secret_value())


def _check_rows(run: Run) -> Checked | None:
    """What the user's own gateway has stored; None if its database is not known, or is the local one."""
    venue = run.session.venue
    if venue is None or venue.gateway_url is None or venue.clickhouse_url is None or run.journal.n_done == 0:
        return None
    from trajkit.sources.tensorzero.export.prompts import stored_rows

    return run.check_rows(functools.partial(stored_rows, venue.clickhouse_url.get_secret_value()))


def _notes_of_rows(run: Run, checked: Checked | None) -> Iterator[str]:
    venue = run.session.venue
    if venue is None or venue.gateway_url is None or run.journal.n_done == 0:
        return
    if checked is None:
        yield "rows were not counted: TENSORZERO_CLICKHOUSE_URL does not say where the database is"
        return
    for one in checked.missing:
        rows = f"{plural(one.n_inferences, 'inference')} and {count(one.n_feedback)} feedback"
        yield f"missing in the database: {rows} of episode {one.episode_id}"
    for episode_id in checked.extra:
        yield (
            f"more in the database than was played: episode {episode_id} has an answer that was lost on "
            "its way, and was requested again"
        )
    if not checked.missing:
        yield f"every row of {plural(run.journal.n_done, 'episode')} is in the database"
