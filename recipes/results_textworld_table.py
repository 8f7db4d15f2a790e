"""What `recipes/results_textworld.py` writes: a table as JSON, and the same as Markdown, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trajkit.evaluation.report import report
from trajkit.evaluation.report_model import GroupResult
from trajkit.evaluation.report_object import Report

METRICS = ("success", "progression", "n_steps", "invalid")
COMPARED = METRICS[:2]
PROGRESSION = ("progression",)


class Line(NamedTuple):
    """A line of a table over all training seeds."""

    label: str
    """What it is called in the table."""
    name: str
    """What the variant is called in the evaluation: the same for all training seeds."""
    stores: Mapping[int, Path]
    """Its evaluation store by training seed."""
    decoding: str
    """How its answers were drawn."""
    baseline: str
    """The line that it is compared with; its own name for none."""


def facts(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """The lines with their numbers."""
    by_name = {line.name: line for line in lines}
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        pooled = _group(report(*line.stores.values(), metrics=PROGRESSION), line.name)
        found[line.name] = {
            "label": line.label,
            "name": line.name,
            "baseline": line.baseline,
            **{metric: _estimate(pooled, metric) for metric in METRICS},
            "success_by_seed": {
                str(seed): _estimate(_group(report(store), line.name), "success")["value"]
                for seed, store in line.stores.items()
            },
        }
    for each in found.values():
        before = found[each["baseline"]]
        one, other = by_name[before["name"]], by_name[each["name"]]
        for metric in COMPARED:
            less = None if one is other else _difference(one, other, metric, before[metric], each[metric])
            each[f"{metric}_less"] = less
    return list(found.values())


def _group(found: Report, name: str) -> GroupResult:
    return next(group for group in found.groups if group.name == name)


def _estimate(group: GroupResult, metric: str) -> dict[str, Any]:
    estimate = group.estimate(metric)
    assert estimate is not None, (group.name, metric)
    return {key: _short(getattr(estimate, key)) for key in ("value", "low", "high", "n")}


def _difference(
    one: Line, other: Line, metric: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, Any]:
    """Of pairs where both played the same worlds, else of two samples."""
    stores = dict.fromkeys([*one.stores.values(), *other.stores.values()])
    is_mixed = one.decoding != other.decoding  # a report then names the groups by it too
    names = [f"{line.name}, {line.decoding}" if is_mixed else line.name for line in (one, other)]
    for each in report(*stores, baseline=names[0], metrics=PROGRESSION).comparisons:
        if (each.candidate, each.metric, each.task) == (names[1], metric, None):
            values = {key: _short(getattr(each, key)) for key in ("difference", "low", "high")}
            return {**values, "n_pairs": each.n_pairs}
    return {**unpaired(before, after), "n_pairs": 0}


def unpaired(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The difference of two means of different worlds, its bounds made of theirs.

    R. G. Newcombe, "Interval estimation for the difference between independent proportions", Statistics in
    Medicine 17 (1998), method 10, and as Zou & Donner (2008) have it for other means.
    """
    gain = after["value"] - before["value"]
    if None in (before["low"], after["low"]):
        return {"difference": _short(gain), "low": None, "high": None}
    below = math.hypot(after["value"] - after["low"], before["high"] - before["value"])
    above = math.hypot(after["high"] - after["value"], before["value"] - before["low"])
    return {"difference": _short(gain), "low": _short(gain - below), "high": _short(gain + above)}


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def markdown(lines: Sequence[Mapping[str, Any]]) -> str:
    """The table."""
    heads = [
        "",
        "success",
        "score",
        "steps",
        "invalid",
        "success, difference",
        "score, difference",
        "by training seed",
    ]
    rows = [heads, ["---", *["---:"] * 6, "---"]]
    for line in lines:
        rows.append(
            [
                line["label"],
                _sure(line["success"]),
                _sure(line["progression"]),
                f"{line['n_steps']['value']:.1f}",
                f"{line['invalid']['value']:.3f}",
                _signed(line["success_less"]),
                _signed(line["progression_less"]),
                " ".join(f"{value:.2f}" for value in line["success_by_seed"].values()),
            ]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _sure(found: Mapping[str, Any]) -> str:
    bounds = "" if found["low"] is None else f" [{found['low']:.3f}, {found['high']:.3f}]"
    return f"{found['value']:.3f}{bounds}"


def _signed(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    bounds = "" if found["low"] is None else f" [{found['low']:+.3f}, {found['high']:+.3f}]"
    return f"{found['difference']:+.3f}{bounds}"
