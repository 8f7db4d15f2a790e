"""Define when an episode is a success: a metric compared with a number, such as `progression >= 1`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping
from typing import NamedTuple

from trajkit.errors import QueryError

_RULE = re.compile(r"\s*(?P<metric>[^\s<>=!]+)\s*(?P<operator>>=|<=|>|<|==|=)\s*(?P<value>[^\s<>=!]+)\s*")
_COMPARE = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "=": operator.eq}


class Success(NamedTuple):
    """The parts of the rule."""

    metric: str
    operator: str
    """`>=`, `<=`, `>`, `<` or `=`, as in SQL."""
    value: float

    def holds(self, metrics: Mapping[str, float]) -> bool:
        """Whether an episode with these metrics is a success.

        Raises:
            QueryError: The metric is not among them.
        """
        if self.metric not in metrics:
            raise QueryError(
                f"success depends on the metric {self.metric!r}, which was not measured",
                hint=f"measured: {', '.join(sorted(metrics)) or 'nothing'}",
            )
        return bool(_COMPARE[self.operator](metrics[self.metric], self.value))


def parse_success(text: str) -> Success:
    """Read a rule.

    Raises:
        QueryError: It is not a metric, a comparison and a finite number.
    """
    match = _RULE.fullmatch(text)
    value = finite_number(match["value"]) if match else None
    if match is None or value is None:
        raise QueryError(f"{text!r} is not METRIC OPERATOR NUMBER", hint="such as 'progression >= 1'")
    return Success(match["metric"], match["operator"].replace("==", "="), value)


def finite_number(text: str) -> float | None:
    """Parse a number; `true` is 1 and `false` 0. None when it is not a finite number."""
    if text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
