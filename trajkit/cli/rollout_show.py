"""A rollout as it is seen: progress, a table or lines of JSON, and what there is to say at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trajkit._core.console import Cell, count, plural, result_json_line, table, talk
from trajkit.cli.rollout_plan import heading
from trajkit.cli.rollout_progress import Progress
from trajkit.errors import TrajkitError

if TYPE_CHECKING:
    from trajkit.rollouts.deliver import Written
    from trajkit.rollouts.record import Played
    from trajkit.rollouts.session import Run, Session
    from trajkit.rollouts.summary import Mean, Row, Score
    from trajkit.schema import Episode

STOPPED_BY_A_LIMIT = 5
"""Exit code of a run that --max-calls, --max-cost-usd or --max-minutes ended."""


class Show:
    """Plays a run where somebody watches.

    Args:
        session: What is played.
        run: With its journal open.
        quiet: Say nothing but results and errors.
        as_json: Print a line per episode instead of the table.
        has_result: Print either at all; not where the command has a result of its own.
    """

    def __init__(
        self, session: Session, run: Run, *, quiet: bool, as_json: bool = False, has_result: bool = True
    ) -> None:
        self._session = session
        self._run = run
        self._has_result = has_result
        self._as_json = as_json
        self._say: Callable[[str], None] = (lambda text: None) if quiet else talk
        self._is_quiet = quiet
        self._n_faults: Counter[str] = Counter()
        self._first_messages: dict[str, str] = {}
        self._has_told_silence = False

    def play(self) -> int:
        """Play what is missing, and print; the exit code."""
        run = self._run
        if self._as_json:
            for score, episode in run.journal.finished():
                result_json_line(_line(episode, score, None))
        try:
            self._play()
        except KeyboardInterrupt:
            talk(self._stopped())
            raise
        except TrajkitError:
            if run.table.n_ended:  # what was played is worth a table, also when the rest could not be
                self._print_table()
            raise
        self._print_table()
        self._tell()
        from trajkit.commands.rollout import prompts_of

        written = run.write(prompts_of(self._session))
        if written is not None:
            self._tell_store(written)
        is_complete = self._check_rows()
        if run.reached is not None:
            return STOPPED_BY_A_LIMIT
        return 1 if self._n_faults or not is_complete else 0

    def _play(self) -> None:
        from trajkit.rollouts.options import PolicyKind

        run = self._run
        if run.n_left == 0:
            self._say(
                f"all {plural(run.plan.n_episodes, 'episode')} of this run are done "
                f"(journal at {run.journal.path}); --new-run plays them anew"
            )
            run.play(on_played=self._take)
            return
        text = heading(self._session)
        if run.n_before:
            text += f"; {count(run.n_before)} done before"
        has_bar = self._session.options.kind != PolicyKind.HUMAN
        with Progress(
            run.plan.n_episodes, text, n_before=run.n_before, is_quiet=self._is_quiet, has_bar=has_bar
        ) as progress:

            def take(played: Played) -> None:
                self._take(played)
                progress.add(played)

            run.play(on_played=take, on_step=progress.step)

    def _take(self, played: Played) -> None:
        from trajkit.rollouts.record import to_episode
        from trajkit.rollouts.summary import score

        if played.fault is not None:
            kind = played.fault.kind.value
            self._n_faults[kind] += 1
            self._first_messages.setdefault(kind, played.fault.message)
        elif not self._has_told_silence and _is_silent(played, self._session):
            self._has_told_silence = True
            self._say(
                "this agent asked no model through turn.chat or turn.inference: its steps have no prompt and "
                "no answer, so no training file can be made of them (docs/agents.md)"
            )
        if self._as_json:
            error = None if played.fault is None else played.fault.message
            result_json_line(_line(to_episode(played), score(played), error))

    def _stopped(self) -> str:
        run = self._run
        logged = " and logged" if self._session.function_name else ""
        store = "; no store was written" if self._session.options.store else ""
        finished = f"{count(run.journal.n_done)} of {plural(run.plan.n_episodes, 'episode')} finished{logged}"
        return f"{finished}; the others have no feedback{store}; the same command plays the rest"

    def _print_table(self) -> None:
        if self._has_result and not self._as_json:
            plan = self._run.plan
            print_table(self._run.table.rows([*plan.variants, *plan.tasks]))

    def _tell(self) -> None:
        """What is not in the table."""
        run = self._run
        for kind, n in self._n_faults.items():
            said = f"{kind}: {self._first_messages[kind]}"
            self._say(f"{plural(n, 'episode')} ended by an error, without feedback: {said}")
        n_passed = run.caller.faults.total() - self._n_faults.total()
        if n_passed > 0:
            kinds = ", ".join(f"{kind} {count(n)}" for kind, n in run.caller.faults.most_common())
            self._say(f"requests that failed: {kinds}; {count(n_passed)} of them passed when sent again")
        if run.journal.n_hidden:
            self._say(f"answers repeated a key {plural(run.journal.n_hidden, 'time')}: it is hidden there")
        if run.caller.throttle.lowest < run.plan.concurrency:
            self._say(f"a service asked for fewer requests: down to {run.caller.throttle.lowest} at once")
        self._tell_spending()
        if run.reached is not None:
            done = f"{count(run.journal.n_done)} of {plural(run.plan.n_episodes, 'episode')} are done"
            self._say(f"{run.reached}; {done}; the same command plays the rest")
        elif self._n_faults:
            self._say("the same command plays them again")
        if run.journal.unmarked and self._session.function_name:
            episodes = plural(len(run.journal.unmarked), "abandoned episode")
            self._say(f"{episodes} could not be marked in the database yet; the same command tries again")

    def _tell_spending(self) -> None:
        budget = self._run.budget
        is_priced = budget.prices is not None or budget.cost_usd > 0
        if not budget.n_calls or not (is_priced or any(budget.limits)):
            return
        tokens = f"{count(budget.n_input_tokens)} tokens in, {count(budget.n_output_tokens)} out"
        unmetered = f" ({plural(budget.n_unmetered, 'answer')} not metered)" if budget.n_unmetered else ""
        money = f"  {budget.cost_usd:,.4f} USD" if is_priced else ""
        self._say(f"{plural(budget.n_calls, 'call')}  {tokens}{unmetered}{money}")

    def _tell_store(self, written: Written) -> None:
        from trajkit.commands.place import remember_store

        if written.n_without_prompt:
            self._say(
                f"{plural(written.n_without_prompt, 'inference')} without its prompt in the store: "
                "the gateway's database does not hold exactly one model call for it"
            )
        counts = written.manifest.counts
        self._say(f"{written.path}  {plural(counts.n_episodes, 'episode')}  {plural(counts.n_steps, 'step')}")
        remember_store(written.path, is_evaluation=self._run.plan.purpose == "eval")

    def _check_rows(self) -> bool:
        """Whether a gateway that somebody else runs has kept every row, where its database can be asked."""
        venue = self._session.venue
        if venue is None or venue.gateway_url is None or self._run.journal.n_done == 0:
            return True
        if venue.clickhouse_url is None:
            self._say("rows were not counted: TENSORZERO_CLICKHOUSE_URL does not say where the database is")
            return True
        from trajkit.commands.rollout import rows_of

        checked = rows_of(self._run)
        assert checked is not None  # the database is known
        missing, extra = checked
        for one in missing:
            rows = f"{plural(one.n_inferences, 'inference')} and {count(one.n_feedback)} feedback"
            talk(f"missing in the database: {rows} of episode {one.episode_id}")
        for episode_id in extra:
            talk(
                f"more in the database than was played: episode {episode_id} has an answer that was lost on "
                "its way, and was asked for again"
            )
        if missing:
            talk(
                f"{plural(len(missing), 'episode')} of {count(self._run.journal.n_done)} lost rows; "
                "the gateway must run with observability.async_writes = false"
            )
        else:
            self._say(f"every row of {plural(self._run.journal.n_done, 'episode')} is in the database")
        return not missing


def _is_silent(played: Played, session: Session) -> bool:
    """Whether somebody's own agent played to learn from, and nothing is known of what a model told it."""
    from trajkit.rollouts.options import PolicyKind

    is_own = session.options.kind == PolicyKind.MODULE and session.plan.purpose == "train"
    return is_own and not played.answers()


def _line(episode: Episode, score: Score, message: str | None) -> dict[str, Any]:
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


_NUMBERS = ("episodes", "success", "return", "length", "input tokens", "output tokens", "invalid", "errors")


def print_table(rows: list[Row]) -> None:
    """Means ± standard errors, of the episodes that were played to their end; errors by kind."""
    kinds = list(dict.fromkeys(kind for row in rows for kind in row.errors))
    columns = [Cell("variant"), Cell("task")]
    columns += [Cell(name, is_number=True) for name in (*_NUMBERS, *kinds)]
    table(columns, [_cells(row, kinds) for row in rows])


def _cells(row: Row, kinds: list[str]) -> list[str]:
    return [
        row.variant,
        row.task,
        count(row.n_episodes),
        _mean(row.success, 3),
        _mean(row.total_reward, 3),
        _mean(row.length, 1),
        _mean(row.n_input_tokens, 0),
        _mean(row.n_output_tokens, 0),
        count(row.n_invalid),
        count(row.n_errors),
        *(count(row.errors.get(kind, 0)) for kind in kinds),
    ]


def _mean(mean: Mean | None, digits: int) -> str:
    if mean is None:
        return "-"
    error = "" if mean.standard_error is None else f" ± {mean.standard_error:,.{digits}f}"
    return f"{mean.mean:,.{digits}f}{error}"
