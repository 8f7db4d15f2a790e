"""Write the tables of `recipes/results.py` as JSON and Markdown, with the intervals of a report."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from trajkit.evaluation.report import report

BASE = "base"
METRIC = "episode_return"


class Model(NamedTuple):
    """One line of a table, for one training seed."""

    label: str
    """Its name in the table."""
    name: str
    """The variant's name in the evaluation: the same for all training seeds."""
    model: str
    """Its name in trajkit: a job, or the base."""
    n_learned: int | None = None
    """The number of answers that it learned; None for the base."""
    n_played: int = 0
    """Episodes that were played for it; 0 if the table does not show them."""
    controls: tuple[str, ...] = ()
    """The lines that it is also compared with."""


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
    """The lines of a table: every model at temperature 1, then at its best temperature if one was chosen.

    Args:
        by_seed: The models of each training seed, the base first, in the same order.
        stores: Their evaluations.
        temperatures: The best temperature of each by name; empty if none was chosen.
    """
    models, found = by_seed[0], report(*stores)
    compared = dict.fromkeys([BASE, *(name for model in models for name in model.controls)])
    names = {(group.variant, group.decoding): group.name for group in found.groups}
    baselines = [name for (variant, _), name in names.items() if variant in compared]
    found = report(*stores, baseline=baselines, across_decodings=True)
    groups = {group.name: group for group in found.groups}
    differences = {
        (each.baseline, each.candidate): each
        for each in found.comparisons
        if each.metric == METRIC and each.task is None
    }
    made = []
    for chosen in filter(None, ({model.name: "1" for model in models}, temperatures)):
        name_of = {name: names[name, f"temperature={value}"] for name, value in chosen.items()}
        for place, model in enumerate(models):
            group = groups[name_of[model.name]]
            trained = [each[place] for each in by_seed if each[place].n_learned is not None]
            against = (BASE, *model.controls) if trained else ()
            made.append(
                {
                    "label": model.label,
                    "temperature": chosen[model.name],
                    "n_models": max(1, len(trained)),
                    "n_played": round(mean(each.n_played for each in trained)) if trained else 0,
                    "n_learned": round(mean(each.n_learned or 0 for each in trained)) if trained else 0,
                    "episode_return": _numbers(group.estimate(METRIC), "value"),
                    "success": _numbers(group.estimate("success"), "value"),
                    **{
                        f"less_{name}": _numbers(differences[name_of[name], group.name], "difference")
                        if name in against
                        else None
                        for name in compared
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
    """The table. A column without a value is left out."""
    others = [name for name in found[0] if name.startswith("less_")]
    rows = [
        {
            "temperature": line["temperature"],
            "episodes": f"{line['n_played']:,}" if line.get("n_played") else "",
            "answers": f"{line['n_learned']:,}" if line["n_learned"] else "",
            "return": _bounded(line["episode_return"]),
            **{f"return {name.replace('_', ' ')}": _bounded(line[name], "+") for name in others},
            "success": _bounded(line["success"]),
            **{f"return, `{task}`": f"{each['value']:.3f}" for task, each in line["return_by_task"].items()},
        }
        for line in found
    ]
    heads = [head for head in rows[0] if any(row[head] for row in rows)]
    cells = [
        ["", *heads],
        ["---", *("---:" for _ in heads)],
        *([line["label"], *map(row.get, heads)] for line, row in zip(found, rows, strict=True)),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


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
