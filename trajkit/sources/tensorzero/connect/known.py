"""Names and marks that every TensorZero database shares: marks of evaluation, and names a request may use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trajkit.errors import QueryError
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.export.config import ConfiguredMetric, metrics_of

# what TensorZero itself writes on evaluation traffic
EVAL_TAGS = (
    "tensorzero::evaluation_run_id",
    "tensorzero::evaluation_name",
    "tensorzero::datapoint_id",
    "tensorzero::internal",
    "tensorzero::workflow_evaluation_run_id",
    "tensorzero::dynamic_evaluation_run_id",
)
"""Tags of inferences that were made for an evaluation."""

JUDGES = "tensorzero::llm_judge::"
"""Prefix of functions that judge answers."""


def check_names(
    request: ExportRequest, names: Iterable[tuple[str, str]], metrics: Mapping[str, ConfiguredMetric]
) -> None:
    """Raise unless a request names functions, variants and metrics that are there.

    Args:
        request: The request.
        names: Every function that has inferences, with each of its variants.
        metrics: The metrics that are known.

    Raises:
        QueryError: It names another one; the hint lists those that there are.
    """
    pairs = set(names)
    functions = {function for function, _ in pairs}
    _check("function", (*request.functions, *request.train_functions), functions)
    of_functions = {
        variant for function, variant in pairs if not request.functions or function in request.functions
    }
    _check("variant", request.variants, of_functions)
    _check("metric", [condition.name for condition in request.metrics], set(metrics))


def known_metrics(
    configurations: Iterable[str], logged: Iterable[tuple[str, str]]
) -> dict[str, ConfiguredMetric]:
    """The metrics that were ever logged or configured.

    Args:
        configurations: TOML, the one used last at the end.
        logged: Name and kind of those that have feedback: what was logged says the kind.
    """
    configured: dict[str, ConfiguredMetric] = {}
    for text in configurations:
        configured.update(metrics_of(text))
    unconfigured = ConfiguredMetric(kind="float", level=None, optimize=None)
    found = dict(configured)
    for name, kind in logged:
        found[name] = configured.get(name, unconfigured)._replace(kind=kind)
    return found


def _check(what: str, asked: Iterable[str], known: set[str]) -> None:
    for name in asked:
        if name not in known:
            raise QueryError(
                f"no {what} {name!r} in this database",
                hint=f"known: {', '.join(sorted(known)) or 'none'}",
            )
