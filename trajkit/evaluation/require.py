"""Requirements on a comparison as expressions: `success.low > 0`, `success[goto].difference >= 0.05`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from trajkit.errors import QueryError, TrajkitError
from trajkit.evaluation.estimates.compare import Comparison
from trajkit.evaluation.reports.model import ReportData

_FIELDS = (
    "difference",
    "low",
    "high",
    "baseline_value",
    "candidate_value",
    "standard_error",
    "n_pairs",
    "p_value",
)
_TESTS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_FORM = re.compile(
    r"\s*(?P<metric>[^\s.\[\]<>=]+)\s*(?:\[(?P<where>[^\]]*)\])?\s*\.\s*(?P<field>\w+)\s*"
    r"(?P<test>>=|<=|>|<)\s*(?P<value>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*"
)
_HINT = (
    "MEASURE[TASK].FIELD > NUMBER, such as 'success.low > 0' or 'success[task=goto, candidate=tuned].low > 0'"
)
_DECODING = "decoding"
_KEYS = ("task", "candidate", "baseline", _DECODING)


class NotHeld(TrajkitError):
    """A report does not meet a requirement."""


class Requirement(NamedTuple):
    """One parsed requirement."""

    text: str
    metric: str
    where: Mapping[str, str]
    """Values of `task`, `candidate`, `baseline` and `decoding`; without a task, all tasks together."""
    field: str
    test: str
    value: float

    def of(self, report: ReportData) -> list[Comparison]:
        """Return the comparisons that the requirement applies to.

        Raises:
            QueryError: It applies to none.
        """
        ways = {group.name: group.decoding or "config" for group in report.groups}
        found = [each for each in report.comparisons if self._is_about(each, ways)]
        if found:
            return found
        if not report.comparisons:
            raise QueryError(
                f"--require {self.text!r}: there is only one variant, so there is no comparison",
                hint="name the stores of two variants",
            )
        known = {
            "measure": sorted({each.metric for each in report.comparisons}),
            **{
                key: sorted({getattr(each, key) or "" for each in report.comparisons} - {""})
                for key in _KEYS
                if key != _DECODING
            },
            _DECODING: sorted(set(ways.values())) if len(set(ways.values())) > 1 else [],
        }
        listed = "; ".join(f"{key}: {', '.join(names)}" for key, names in known.items() if names)
        raise QueryError(f"--require {self.text!r} matches no comparison of this report", hint=listed)

    def holds(self, comparison: Comparison) -> bool:
        """Check whether a comparison meets the requirement; False if the value is unknown."""
        value = getattr(comparison, self.field)
        return value is not None and _TESTS[self.test](value, self.value)

    def _is_about(self, each: Comparison, ways: Mapping[str, str]) -> bool:
        task = self.where.get("task")
        is_task = task is each.task  # both None
        if each.task is not None:  # a typed name is `goto` or `babyai/goto`
            is_task = task in (each.task, each.task.partition("/")[2])
        sides = ((each.candidate, "candidate"), (each.baseline, "baseline"))
        others = all(
            self.where.get(key, name) in (name, name.removesuffix(f", {ways.get(name)}"))
            for name, key in sides
        )
        is_way = self.where.get(_DECODING) in (None, ways.get(each.candidate))
        return each.metric == self.metric and is_task and others and is_way


def requirement(text: str) -> Requirement:
    """Parse a requirement.

    Raises:
        QueryError: The text is not a requirement.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise QueryError(f"--require {text!r} is not a requirement", hint=_HINT)
    if match["field"] not in _FIELDS:
        raise QueryError(
            f"--require {text!r}: a comparison has no field {match['field']!r}",
            hint=f"fields: {', '.join(_FIELDS)}",
        )
    where = _where(text, match["where"] or "")
    return Requirement(
        text.strip(), match["metric"], where, match["field"], match["test"], float(match["value"])
    )


def require(report: ReportData, wanted: Sequence[Requirement]) -> None:
    """Check that every comparison meets its requirements.

    Args:
        report: The report.
        wanted: The parsed requirements.

    Raises:
        NotHeld: A comparison does not meet one; the message names the comparison and its value.
        QueryError: A requirement matches no comparison of the report.
    """
    found = [(each, one) for each in wanted for one in each.of(report)]
    for each, one in found:
        if not each.holds(one):
            value = getattr(one, each.field)
            task = "" if one.task is None else f" of {one.task}"
            said = "unknown" if value is None else f"{value:.4g}"
            raise NotHeld(
                f"{each.text!r} does not hold: {each.field} is {said} for {one.metric}{task}, "
                f"{one.candidate} against {one.baseline}, {one.n_pairs:,} pairs",
                hint=one.note if value is None else None,
                result=report,
            )


def _where(text: str, inside: str) -> dict[str, str]:
    """Parse `goto` or `task=goto, candidate=tuned`; a decoding may contain commas."""
    found: dict[str, str] = {}
    for piece in filter(None, (piece.strip() for piece in inside.split(","))):
        key, is_named, name = (part.strip() for part in piece.partition("="))
        if is_named and key not in _KEYS and list(found)[-1:] == [_DECODING]:
            found[_DECODING] += f",{piece}"
            continue
        if not is_named:
            key, name = "task", key
        if key not in _KEYS or key in found or not name:
            raise QueryError(f"--require {text!r}: {piece!r} is not a condition", hint=_HINT)
        found[key] = name
    return found
