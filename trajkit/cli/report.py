"""`trajkit report`: how variants did on held-out seeds, and how they differ."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trajkit._core import console
from trajkit.cli.derived import columns_given
from trajkit.cli.option import confidence_option, runs_option
from trajkit.commands.place import last_evaluation
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.evaluation.report_model import ReportData, Unaliased
    from trajkit.evaluation.report_text import Table

_EPILOG = """\
Tasks weigh the same, and a world (environment, task and seed) counts once, however often it was tried.
Success has Wilson's interval, other means the bootstrap's within tasks. Differences are taken pair by pair,
over the worlds that both played. Where any episode was played for evaluation, the others are left out.

Where answers were drawn in several ways, variants are compared within each: --baseline A is then A with every
decoding. One that is alone with its decoding is compared with the others, if --baseline names it.

--require takes MEASURE.FIELD, one of >, >=, <, <=, and a number. Fields are difference, low, high,
baseline_value, candidate_value, standard_error, n_pairs and p_value of every comparison over all tasks;
MEASURE[goto].FIELD is about one task, MEASURE[candidate=tuned, baseline=base].FIELD about one pair, and
decoding=greedy about answers that were drawn so. Measures are success, episode_return (or total_reward),
n_steps, n_output_tokens, n_input_tokens, invalid and cost_usd.

What a tuned variant learned from is found by its name, or its model's, among the jobs under --runs and their
ledger; with several sizes there is a learning curve.
"""


@click.command(epilog=_EPILOG)
@click.argument("stores", metavar="[STORE|NAME=STORE]...", nargs=-1)
@click.option(
    "-o",
    "--output",
    "goal",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Write a page, Markdown, JSON, and every chart as PNG and SVG.",
)
@click.option(
    "--baseline",
    "baselines",
    multiple=True,
    metavar="NAME",
    help="The variant that the others are compared with; may be repeated.  [default: the first]",
)
@click.option(
    "--across-decodings", is_flag=True, help="Compare also answers that were drawn in different ways."
)
@click.option(
    "--require",
    "required",
    multiple=True,
    metavar="EXPRESSION",
    help="Exit 1 unless it holds, such as 'success.low > 0'; may be repeated.",
)
@click.option(
    "--trained-on",
    "trained_on",
    multiple=True,
    metavar="STORE",
    help="What was learned: also report the worlds alone that read like none of it; may be repeated.",
)
@click.option(
    "--trained",
    "trained",
    multiple=True,
    metavar="NAME=JOB",
    help="The job, or the model, that a variant is of, where its name does not say; may be repeated.",
)
@click.option(
    "--metric", "metrics", multiple=True, callback=columns_given, metavar="NAME", help="A further metric."
)
@confidence_option
@click.option(
    "--resamples",
    type=click.IntRange(min=100),
    default=10_000,
    show_default=True,
    help="Of the bootstrap.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the bootstrap.")
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print report.json.")
def report(
    stores: tuple[str, ...],
    goal: Path | None,
    baselines: tuple[str, ...],
    across_decodings: bool,
    required: tuple[str, ...],
    trained_on: tuple[str, ...],
    trained: tuple[str, ...],
    metrics: tuple[str, ...],
    confidence: float,
    resamples: int,
    seed: int,
    runs_folder: Path,
    as_json: bool,
) -> None:
    """Compare the variants in evaluation stores; without one, in the last that was played here.

    NAME=STORE says what the episodes of a store are called, such as before=stores/a after=stores/b.

    \b
    trajkit report stores/evaluation -o report --baseline base --require 'success.low > 0'
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit._core.files import refuse_existing
    from trajkit.commands.report import trainings
    from trajkit.evaluation.report import report as report_of
    from trajkit.evaluation.require import require, requirement

    wanted = [requirement(text) for text in required]
    if goal is not None:
        refuse_existing(goal)
    found = report_of(
        *(stores or (last_evaluation(console.talk),)),
        baseline=baselines,
        across_decodings=across_decodings,
        trained_on=trained_on,
        trainings=trainings(runs_folder, _named(trained)),
        metrics=metrics,
        confidence=confidence,
        resamples=resamples,
        seed=seed,
    )
    for one in wanted:
        one.of(found)  # a requirement about nothing is wrong before anything is written
    files = [] if goal is None else found.save(goal)
    if as_json:
        console.result_json(found.model_dump(mode="json"))
    else:
        _print(found)
    if goal is not None:
        console.talk(f"{goal}  {console.plural(len(files), 'file')}: {goal / 'report.html'} is the page")
    elif not as_json:
        console.talk("-o FOLDER writes a page with charts, Markdown and JSON")
    require(found, wanted)
    for each in wanted:
        console.talk(f"holds: {each.text}")


def _named(trained: tuple[str, ...]) -> dict[str, str]:
    """The job of a variant, by the variant's name."""
    named: dict[str, str] = {}
    for text in trained:
        name, mark, model = text.partition("=")
        if not (mark and name and model):
            raise RequestError(f"--trained {text!r} is not NAME=JOB", hint="such as --trained tuned=my-job")
        named[name] = model
    return named


def _print(found: ReportData) -> None:
    from trajkit.evaluation.report_text import (
        difference_table,
        group_table,
        learning_table,
        notes,
        outcome_table,
        per_success_table,
        regression_table,
        said_of,
    )

    console.result(said_of(found))
    for table in (
        group_table(found),
        difference_table(found.comparisons),
        regression_table(found.regressions),
        learning_table(found),
        outcome_table(found.groups),
        per_success_table(found.groups),
    ):
        _table(table)
    if found.unaliased is not None:
        _unaliased(found, found.unaliased)
    for text in (*found.notes, *notes(found.comparisons)):
        console.talk(f"note: {text}")


def _unaliased(found: ReportData, rest: Unaliased) -> None:
    from trajkit.evaluation.report_text import difference_table, group_table

    console.result()
    others = "; the others alone:" if rest.n_aliased and rest.groups else ""
    console.result(f"aliased text: {rest.n_aliased:,} of {rest.n_worlds:,} worlds{others}")
    for text in rest.leaks:
        console.talk(f"leak: {text}")
    if others:
        _table(group_table(found, rest.groups))
        _table(difference_table(rest.comparisons))


def _table(table: Table) -> None:
    """A table after an empty line; nothing where it has no rows."""
    if not table.rows:
        return
    console.result()
    cells = [
        console.Cell(heading, is_number=place >= table.n_text) for place, heading in enumerate(table.headings)
    ]
    console.table(cells, table.rows)
