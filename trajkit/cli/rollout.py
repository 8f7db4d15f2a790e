"""`trajkit rollout`: play seeded episodes of an environment."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trajkit.cli.output import Cell, count, plural, result_json_line, table, talk
from trajkit.errors import TrajkitError

if TYPE_CHECKING:
    from trajkit.rollout.faults import FaultKind
    from trajkit.rollout.record import Played
    from trajkit.rollout.session import Session, Written
    from trajkit.rollout.spool import Prompts
    from trajkit.rollout.summary import Mean, Row, Score

_EPILOG = """\
It plays through the gateway at TENSORZERO_GATEWAY_URL; else through one of its own on the database at
TENSORZERO_CLICKHOUSE_URL, with --config; else on the local stack (`trajkit up`). There is no gateway process
to start: that of TensorZero 2026.6.0 lives in the command that plays. The policies expert, random and
noisy-expert need no gateway, and leave something behind only with -o.
"""


@click.command(epilog=_EPILOG)
@click.argument("env_id", metavar="ENVIRONMENT")
@click.option("--task", "tasks", multiple=True, help="A task; may be repeated.  [default: all]")
@click.option(
    "--variant", "variants", multiple=True, help="A variant of the function, or all; may be repeated."
)
@click.option(
    "--policy",
    type=click.Choice(["gateway", "expert", "random", "noisy-expert"]),
    default="gateway",
    show_default=True,
    help="Who plays.",
)
@click.option("--noise", type=click.FloatRange(0, 1), help="Share of a noisy expert's slips.  [default: 0.3]")
@click.option("--seeds", metavar="A:B", help="Seeds A to B-1 of every task.")
@click.option(
    "--episodes", type=click.IntRange(min=1), help="Seeds of every task, from --seed.  [default: 20]"
)
@click.option("--seed", type=click.IntRange(min=0), help="The first seed.  [default: 0]")
@click.option(
    "--purpose",
    type=click.Choice(["train", "eval"]),
    default="train",
    show_default=True,
    help="Marks every inference and feedback; eval episodes never train.",
)
@click.option("--history", type=click.IntRange(min=0), default=8, show_default=True, help="Steps shown back.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    default=16,
    show_default=True,
    help="Most requests in flight at once.",
)
@click.option(
    "--run-seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of what is sampled."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=180.0,
    show_default=True,
    help="Seconds to wait for one request.",
)
@click.option(
    "--retries", type=click.IntRange(min=0), default=3, show_default=True, help="After a service's failure."
)
@click.option(
    "--function", help="The gateway's function.  [default: from trajkit.toml, the only one, or act]"
)
@click.option(
    "--config", "config_file", type=click.Path(path_type=Path), help="The gateway's tensorzero.toml."
)
@click.option("-o", "--output", "store", type=click.Path(path_type=Path), help="Write a store as well.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON per episode, when it ends.")
def rollout(as_json: bool, **asked: Any) -> int:
    """Play seeded episodes of ENVIRONMENT, log them, and say how they went."""
    from trajkit.cli.rollout_progress import Progress
    from trajkit.rollout.session import Options, prepare, run
    from trajkit.rollout.summary import score, summarise

    session = prepare(Options(**{name: value for name, value in asked.items() if value not in (None, ())}))
    played_to = _Tally()
    progress = Progress(session.plan.n_episodes, _heading(session))

    def take(played: Played) -> None:
        played_to.add(played, score(played))
        progress.add(played)
        if as_json:
            result_json_line(_line(played))

    try:
        with progress:
            written = run(session, on_played=take, on_step=progress.step, prompts=_prompts(session))
    except KeyboardInterrupt:
        talk(_stopped(session, played_to.n_ended))
        raise
    except TrajkitError:
        if (
            played_to.n_ended and not as_json
        ):  # what was played is worth a table, also when no store can be written
            _print_table(summarise(played_to.scores))
        raise
    if not as_json:
        _print_table(summarise(played_to.scores))
    played_to.tell_faults()
    if written is not None:
        _tell_store(written)
    return 1 if played_to.faults else 0


class _Tally:
    """What is kept of the episodes for the end: little, whatever their number."""

    def __init__(self) -> None:
        self.scores: list[Score] = []
        self.faults: dict[FaultKind, list[str]] = {}

    def add(self, played: Played, score: Score) -> None:
        self.scores.append(score)
        if played.fault is not None:
            self.faults.setdefault(played.fault.kind, []).append(played.fault.message)

    @property
    def n_ended(self) -> int:
        return sum(not score.is_error for score in self.scores)

    def tell_faults(self) -> None:
        for kind, messages in self.faults.items():
            episodes = plural(len(messages), "episode")
            talk(f"{episodes} ended by an error, without feedback: {kind}: {messages[0]}")


def _heading(session: Session) -> str:
    plan = session.plan
    where = f" through the gateway ({session.venue.name})" if session.venue else ""
    tasks, variants = ", ".join(plan.tasks), ", ".join(plan.variants)
    return (
        f"{plural(plan.n_episodes, 'episode')} of {plan.env_id} for {plan.purpose.value}{where}: {tasks}; "
        f"{variants}; seeds {plan.seed_start}:{plan.seed_stop}"
    )


def _stopped(session: Session, n_ended: int) -> str:
    logged = " and logged" if session.venue else ""
    store = "; no store was written" if session.options.store else ""
    finished = f"{count(n_ended)} of {plural(session.plan.n_episodes, 'episode')} finished{logged}"
    return f"{finished}; the others have no feedback{store}"


def _prompts(session: Session) -> Prompts | None:
    """Who knows the exact prompts: the database behind the gateway, where its address is known."""
    database = session.venue.clickhouse_url if session.venue else None
    if database is None or session.options.store is None:
        return None
    from trajkit.sources.tensorzero.prompts import rendered_prompts

    return functools.partial(rendered_prompts, database.get_secret_value())


def _line(played: Played) -> dict[str, Any]:
    return {
        "variant": played.job.variant,
        "task": played.job.task,
        "seed": played.job.seed,
        "outcome": played.outcome.value,
        **{name: played.metrics.get(name) for name in ("episode_return", *played.metrics)},
        "n_steps": len(played.steps),
        "n_input_tokens": played.n_input_tokens,
        "n_output_tokens": played.n_output_tokens,
        "n_invalid_answers": played.n_invalid,
        "mission": played.mission,
        "episode_id": played.episode_id,
        "purpose": played.purpose.value,
        "run": played.run,
        "error": played.fault and f"{played.fault.kind}: {played.fault.message}",
    }


_COLUMNS = (
    Cell("variant"),
    Cell("task"),
    *(
        Cell(heading, is_number=True)
        for heading in (
            "episodes",
            "success",
            "return",
            "length",
            "input tokens",
            "output tokens",
            "invalid",
            "errors",
        )
    ),
)


def _print_table(rows: Sequence[Row]) -> None:
    """Means ± standard errors, of the episodes that were played to their end."""
    table(_COLUMNS, [_cells(row) for row in rows])


def _cells(row: Row) -> list[str]:
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
    ]


def _mean(mean: Mean | None, digits: int) -> str:
    if mean is None:
        return "-"
    error = "" if mean.standard_error is None else f" ± {mean.standard_error:,.{digits}f}"
    return f"{mean.mean:,.{digits}f}{error}"


def _tell_store(written: Written) -> None:
    from trajkit._settings import remember

    if written.n_without_prompt:
        talk(
            f"{plural(written.n_without_prompt, 'inference')} without its prompt in the store: "
            "the gateway's database does not hold exactly one model call for it"
        )
    counts = written.manifest.counts
    talk(f"{written.path}  {plural(counts.n_episodes, 'episode')}  {plural(counts.n_steps, 'step')}")
    remember("last_store", {"path": str(written.path.absolute())})
