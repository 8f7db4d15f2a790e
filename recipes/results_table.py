"""What `recipes/results.py` writes: a table as JSON, and the same as Markdown, with intervals."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trajkit.evaluation.report import report
from trajkit.evaluation.report_object import Report

BASE = "base"


class Model(NamedTuple):
    """One line of a table, for one training seed."""

    label: str
    """What it is called in the table."""
    name: str
    """What the variant is called in the evaluation: the same for all training seeds."""
    model: str
    """What trajkit calls it: a job, or the base."""
    control: str | None = None
    """The line that it is also compared with."""


class Line(NamedTuple):
    """A line of a table over all training seeds."""

    model: Model
    n_episodes: int
    """Episodes in the training store, on average over the training seeds; 0 of the base."""
    n_learned: int
    """Answers that were learned, in the same way."""


def facts(
    found: Sequence[Line], stores: Mapping[int, Sequence[Path]], tasks: Sequence[str]
) -> list[dict[str, Any]]:
    """The lines of a table.

    Args:
        found: The lines, the base first.
        stores: Evaluation stores by training seed.
        tasks: What was played.
    """
    controls = [line.model.control for line in found if line.model.control]
    everything = [store for each in stores.values() for store in each]
    pooled = report(*everything, baseline=[BASE, *dict.fromkeys(controls)])
    alone = {seed: report(*each) for seed, each in stores.items()}
    return [
        {
            "label": line.model.label,
            "name": line.model.name,
            "n_episodes": line.n_episodes,
            "n_learned": line.n_learned,
            "success": _estimate(pooled, line.model.name, "success"),
            "episode_return": _estimate(pooled, line.model.name, "episode_return"),
            "less_before": _difference(pooled, BASE, line.model.name),
            "less_control": _difference(pooled, line.model.control, line.model.name),
            "control": line.model.control,
            "success_by_seed": {
                str(seed): _estimate(one, line.model.name, "success")["value"] for seed, one in alone.items()
            },
            "success_by_task": {
                task: _estimate(pooled, line.model.name, "success", f"babyai/{task}") for task in tasks
            },
        }
        for line in found
    ]


def _estimate(found: Report, name: str, metric: str, task: str | None = None) -> dict[str, Any]:
    group = next(group for group in found.groups if group.name == name)
    estimate = group.estimate(metric, task)
    assert estimate is not None, (name, metric, task)
    return {key: _short(getattr(estimate, key)) for key in ("value", "low", "high", "n")}


def _difference(found: Report, baseline: str | None, candidate: str) -> dict[str, Any] | None:
    """Of success, over all tasks."""
    for each in found.comparisons:
        if (each.baseline, each.candidate, each.metric, each.task) == (baseline, candidate, "success", None):
            return {key: _short(getattr(each, key)) for key in ("difference", "low", "high", "n_pairs")}
    return None


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def markdown(lines: Sequence[Mapping[str, Any]]) -> str:
    """The table, and success task by task."""
    heads = ["", "episodes", "answers", "return", "success"]
    heads += ["success less before", "less random", "by training seed"]
    rows = [heads, ["---", *["---:"] * 6, "---"]]
    for line in lines:
        size = [f"{line[name]:,}" if line["n_learned"] else "" for name in ("n_episodes", "n_learned")]
        rows.append(
            [
                line["label"],
                *size,
                _bounded(line["episode_return"]),
                _bounded(line["success"]),
                _signed(line["less_before"]),
                _signed(line["less_control"]),
                " ".join(f"{value:.2f}" for value in line["success_by_seed"].values()),
            ]
        )
    tasks = list(lines[0]["success_by_task"])
    by_task = [["success by task", *(f"`{task}`" for task in tasks)], ["---", *["---:"] * len(tasks)]]
    for line in lines:
        each = line["success_by_task"].values()
        by_task.append([line["label"], *(f"{one['value']:.3f}" for one in each)])
    return f"{_written(rows)}\n\n{_written(by_task)}\n"


def _bounded(found: Mapping[str, Any]) -> str:
    bounds = "" if found["low"] is None else f" [{found['low']:.3f}, {found['high']:.3f}]"
    return f"{found['value']:.3f}{bounds}"


def _signed(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    bounds = "" if found["low"] is None else f" [{found['low']:+.3f}, {found['high']:+.3f}]"
    return f"{found['difference']:+.3f}{bounds}"


def _written(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


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
