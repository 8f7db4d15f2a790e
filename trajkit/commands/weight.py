"""Give each learned step its weight in training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from trajkit._core.console import Cell, count, table_text, talk
from trajkit.commands.options import Columns, Option, Output, StoreLike, many
from trajkit.commands.place import goal_of, store_path
from trajkit.commands.result import Made

if TYPE_CHECKING:
    from trajkit.curation.spread import Spread
    from trajkit.curation.weight import WeightReport


def weight(
    store: StoreLike | None = None,
    *,
    scheme: Literal["uniform", "return", "return-to-go", "advantage", "exponential"],
    score: Annotated[str | None, Option(metavar="METRIC")] = None,
    gamma: Annotated[float | None, Option(metavar="NUMBER")] = None,
    baseline: Literal["group", "task"] | None = None,
    by: Columns = (),
    temperature: Annotated[float | None, Option(metavar="NUMBER")] = None,
    clip: Annotated[float | None, Option(metavar="NUMBER")] = None,
    normalize: Literal["none", "task", "all"] | None = None,
    output: Output = None,
    dry_run: bool = False,
) -> Made:
    """Give each learned step a weight from the score of its episode.

    R is the score of the episode:

        uniform       w = 1
        return        w = R
        return-to-go  w = r_t + gamma r_(t+1) + gamma^2 r_(t+2) + …, the rewards from the step on
        advantage     w = R - mean(R) of the group
        exponential   w = min(exp((R - mean(R)) / temperature), clip), advantage-weighted regression

    The effective sample size (Kish) is the number of equal weights with the same variance: by steps, and by
    episodes, whose steps are not independent. A weight of exactly 0 makes a step context only.

    Args:
        store: The store. Default: the last store that was written here.
        scheme: How the weight is computed.
        score: The metric R. Default: episode_return, else total_reward.
        gamma: For return-to-go: the discount, 1 for none.
        baseline: For advantage and exponential: the episodes whose mean is subtracted. Default: group.
        by: Columns that make a group. Default: environment, task and seed.
        temperature: For exponential. Default: 1.
        clip: For exponential: the largest weight. Default: 20.
        normalize: Divide by the mean absolute weight of each task, or of all steps. Default: none.
        output: The store to write.
        dry_run: Print the distribution of the weights and write nothing.

    Raises:
        RequestError: An option does not go with the scheme.
        QueryError: There is no such metric or column.
        StoreError: The store cannot be read, or `output` exists.

    Example:
        trajkit weight stores/goto --scheme exponential --temperature 0.1
    """
    from trajkit.curation.weight import weight as weigh_steps

    given: dict[str, Any] = {
        "score": score,
        "gamma": gamma,
        "baseline": baseline,
        "by": many(by) or None,
        "temperature": temperature,
        "clip": clip,
        "normalize": normalize,
    }
    options = {name: value for name, value in given.items() if value is not None}
    goal = None if dry_run else goal_of("weight", output)
    made = weigh_steps(store_path(store), goal, scheme=scheme, **options)
    for note in made.report.notes:
        talk(f"note: {note}")
    more = {"report": made.report.model_dump(mode="json")}
    return Made(made.entry, goal, made.manifest, made.report, more, head=_table(made.report)).kept()


def _table(report: WeightReport) -> str:
    headings = ("steps", "of weight 0", "below 0", "min", "1/4", "median", "3/4", "max", "mean")
    effective = ("effective steps", "effective episodes")
    spreads = [*report.tasks, report.all] if len(report.tasks) > 1 else [report.all]
    return table_text(
        [Cell("weights"), *(Cell(heading, is_number=True) for heading in (*headings, *effective))],
        [_row(spread) for spread in spreads],
    )


def _row(spread: Spread) -> tuple[str, ...]:
    numbers = (
        spread.least,
        spread.quarter,
        spread.median,
        spread.three_quarters,
        spread.most,
        spread.mean,
    )
    return (
        "all" if spread.task is None else spread.task,
        *(count(number) for number in (spread.n_steps, spread.n_zero, spread.n_negative)),
        *(f"{number:.4g}" for number in numbers),
        f"{spread.n_effective_steps:,.1f} of {spread.n_steps:,}",
        f"{spread.n_effective_episodes:,.1f} of {spread.n_episodes:,}",
    )
