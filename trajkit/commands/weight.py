"""Give each learned step its weight in training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from trajkit._core.output.console import Cell, Meter, count, notes, table_text
from trajkit.commands.options.group import EngineOptions, engine_of, flattened
from trajkit.commands.options.types import Columns, Option, Output, StoreLike, many
from trajkit.commands.place import goal_of, store_path
from trajkit.commands.result import Made

if TYPE_CHECKING:
    from trajkit.curation.weights.spread import Spread
    from trajkit.curation.weights.weight import WeightReport


@flattened()
def weight(
    store: StoreLike | None = None,
    *,
    scheme: Literal[
        "uniform", "return", "return-to-go", "advantage", "rloo", "grpo", "gigpo", "gae", "exponential"
    ],
    score: Annotated[str | None, Option(metavar="METRIC")] = None,
    gamma: Annotated[float | None, Option(metavar="NUMBER")] = None,
    baseline: Literal["group", "task"] | None = None,
    by: Columns = (),
    no_deviation: bool = False,
    omega: Annotated[float | None, Option(metavar="NUMBER")] = None,
    history: Annotated[int | None, Option(metavar="STATES")] = None,
    critic: Annotated[str | None, Option(metavar="METRIC")] = None,
    lam: Annotated[float | None, Option(metavar="NUMBER")] = None,
    temperature: Annotated[float | None, Option(metavar="NUMBER")] = None,
    clip: Annotated[float | None, Option(metavar="NUMBER")] = None,
    normalize: Literal["none", "task", "all"] | None = None,
    output: Output = None,
    dry_run: bool = False,
    **engine: Unpack[EngineOptions],
) -> Made:
    """Give each learned step a weight or an advantage from the rewards of its episode.

    R is the score of the episode, r_t the reward of a step, and
    G_t = r_t + gamma r_(t+1) + gamma^2 r_(t+2) + … the return of the step. A group is the attempts at one
    start; mean and std (with n - 1) are those of the group:

        uniform       w = 1
        return        w = R
        return-to-go  w = G_t
        advantage     w = R - mean(R), REINFORCE with a baseline
        rloo          w = R - the mean of the other attempts
        grpo          w = (R - mean(R)) / std(R); with --no-deviation the same as advantage
        gigpo         w = (R - mean(R)) / std(R) + omega (G_t - mean(G)) / std(G), the second mean and
                      std over the steps of the group with the same observation
        gae           w = d_t + gamma lam d_(t+1) + (gamma lam)^2 d_(t+2) + …, with the errors
                      d_t = r_t + gamma V_(t+1) - V_t of a critic V
        exponential   w = min(exp((R - mean(R)) / temperature), clip), advantage-weighted regression

    A group of one attempt or of equal scores has no signal: its weights are 0 (1 for exponential), and a note
    counts such groups.

    The effective sample size (Kish) is the number of equal weights with the same variance: by steps, and by
    episodes, whose steps are not independent. A weight of exactly 0 makes a step context only.

    Args:
        store: The store. Default: the last store written here.
        scheme: How the weight is computed.
        score: The metric R. Default: episode_return, else total_reward.
        gamma: For return-to-go, gigpo and gae: the discount, 1 for none. Default: 1 for gigpo and gae.
        baseline: For a scheme with groups: whether a group is one start, or all of a task. Default: group.
        by: Columns that make a group. Default: environment, task and seed.
        no_deviation: For grpo and gigpo: subtract the mean, but do not divide.
        omega: For gigpo: the weight of the states. Default: 1.
        history: For gigpo: also compare steps by up to this many earlier observations; longer matches
            weigh more. Default: 0.
        critic: For gae: the metric of steps that is a critic's value of the state before the step.
        lam: For gae: 0 looks one step ahead, 1 to the end. Default: 0.95.
        temperature: For exponential. Default: 1.
        clip: For exponential: the largest weight. Default: 20.
        normalize: Divide by the mean absolute weight of each task, or of all steps. Default: none.
        output: The store to write.
        dry_run: Print the distribution of the weights and write nothing.

    Raises:
        RequestError: An option does not go with the scheme.
        QueryError: There is no such metric or column.
        DataError: An episode lacks a score, a reward or the critic's value.
        StoreError: The store cannot be read, or `output` exists.

    Example:
        trajkit weight stores/goto --scheme exponential --temperature 0.1
        trajkit weight stores/goto --scheme gigpo --gamma 0.95 --history 2
    """
    from trajkit.curation.weights.weight import weight as weigh_steps

    given: dict[str, Any] = {
        "score": score,
        "gamma": gamma,
        "baseline": baseline,
        "by": many(by) or None,
        "temperature": temperature,
        "clip": clip,
        "normalize": normalize,
        "no_deviation": no_deviation or None,
        "omega": omega,
        "history": history,
        "critic": critic,
        "lam": lam,
    }
    options = {name: value for name, value in given.items() if value is not None}
    goal = None if dry_run else goal_of("weight", output)
    with Meter() as meter:
        made = weigh_steps(
            store_path(store), goal, scheme=scheme, engine=engine_of(engine, meter.show), **options
        )
    notes(made.report.notes)
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
