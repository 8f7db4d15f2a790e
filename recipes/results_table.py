"""What `recipes/results.py` writes: a table as JSON and as Markdown, with the intervals of a report."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trajkit.evaluation.report import report
from trajkit.training.job import TuneJob

BASE = "base"
METRIC = "episode_return"


class Model(NamedTuple):
    """One line of a table, for one training seed."""

    label: str
    """What it is called in the table."""
    name: str
    """What the variant is called in the evaluation: the same for all training seeds."""
    model: str
    """What trajkit calls it: a job, or the base."""
    job: TuneJob | None = None
    """How it was trained; None of the base."""
    control: str | None = None
    """The line that it is also compared with."""


def best_temperatures(stores: Sequence[Path]) -> dict[str, str]:
    """The temperature of each variant with the highest mean return."""
    best: dict[str, tuple[float, str]] = {}
    for group in report(*stores).groups:
        found = (group.estimate(METRIC).value, str(group.decoding).removeprefix("temperature="))
        best[group.variant] = max(found, best.get(group.variant, found))
    return {name: temperature for name, (_, temperature) in best.items()}


def lines(
    by_seed: Sequence[Sequence[Model]], stores: Sequence[Path], temperatures: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The lines of a table: every model at temperature 1, then every model at its best temperature.

    Args:
        by_seed: The models of each training seed, the base first, in the same order.
        stores: Their evaluations.
        temperatures: The best temperature of each by name.
    """
    models, found = by_seed[0], report(*stores)
    names = {(group.variant, group.decoding): group.name for group in found.groups}
    baselines = [
        name for (variant, _), name in names.items() if variant in {BASE, *(one.control for one in models)}
    ]
    found = report(*stores, baseline=baselines, across_decodings=True)
    groups = {group.name: group for group in found.groups}
    differences = {
        (each.baseline, each.candidate): each
        for each in found.comparisons
        if each.metric == METRIC and each.task is None
    }
    made = []
    for chosen in ({model.name: "1" for model in models}, temperatures):
        name_of = {name: names[name, f"temperature={value}"] for name, value in chosen.items()}
        for place, model in enumerate(models):
            group = groups[name_of[model.name]]
            jobs = [each[place].job for each in by_seed if each[place].job]
            against = {"base": BASE if jobs else None, "control": model.control}
            made.append(
                {
                    "label": model.label,
                    "temperature": chosen[model.name],
                    "n_models": max(1, len(jobs)),
                    "n_learned": round(sum(job.train.n_learned for job in jobs) / len(jobs)) if jobs else 0,
                    "episode_return": _numbers(group.estimate(METRIC), "value"),
                    "success": _numbers(group.estimate("success"), "value"),
                    **{
                        f"less_{key}": name and _numbers(differences[name_of[name], group.name], "difference")
                        for key, name in against.items()
                    },
                    "return_by_task": {
                        task.partition("/")[2]: _numbers(group.estimate(METRIC, task), "value")
                        for task in (found.tasks if len(found.tasks) > 1 else ())
                    },
                }
            )
    return made


def _numbers(found: Any, name: str) -> dict[str, float | None]:
    """A value and its interval."""
    values = {key: getattr(found, key) for key in (name, "low", "high")}
    return {key: None if value is None else round(value, 4) for key, value in values.items()}


def markdown(found: Sequence[Mapping[str, Any]]) -> str:
    """The table."""
    tasks = list(found[0]["return_by_task"])
    heads = ["", "temperature", "answers", "return", "return less base", "return less control", "success"]
    rows = [[*heads, *(f"return, `{task}`" for task in tasks)], ["---", *["---:"] * (6 + len(tasks))]]
    for line in found:
        rows.append(
            [
                line["label"],
                line["temperature"],
                f"{line['n_learned']:,}" if line["n_learned"] else "",
                *(_bounded(line["episode_return"]), _bounded(line["less_base"], "+")),
                *(_bounded(line["less_control"], "+"), _bounded(line["success"])),
                *(f"{each['value']:.3f}" for each in line["return_by_task"].values()),
            ]
        )
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _bounded(found: Mapping[str, Any] | None, sign: str = "") -> str:
    if found is None:
        return ""
    value, low, high = found.values()
    return f"{value:{sign}.3f}" + ("" if low is None else f" [{low:{sign}.3f}, {high:{sign}.3f}]")


def placed(page: str, name: str, text: str) -> str:
    """A page with a table in its place, between `<!-- table NAME -->` and `<!-- end -->`."""
    start = f"<!-- table {name} -->\n"
    found, n = re.subn(
        rf"{re.escape(start)}.*?<!-- end -->",
        lambda match: f"{start}{text}<!-- end -->",
        page,
        flags=re.DOTALL,
    )
    if n != 1:
        raise SystemExit(f"the page has {n} places for the table {name}, not 1")
    return found
