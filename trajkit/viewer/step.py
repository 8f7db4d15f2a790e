"""One step as the page shows it."""

from __future__ import annotations

from typing import Any

from trajkit.viewer.cut import Budget, message_cut, value_cut

_SHORT = (
    "function_name",
    "variant_name",
    "model_name",
    "agent_name",
    "parent_step",
    "reward",
    "terminated",
    "truncated",
    "loss_weight",
    "mask_reason",
    "latency_s",
    "cost_usd",
    "cached",
    "finish_reason",
    "started_at",
)
_LONG = (
    "observation",
    "action",
    "tools",
    "demonstration",
    "info",
    "extra",
    "legal_actions",
    "metrics",
)
_NAMES = {
    "step_index": "index",
    "inference_id": "id",
    "n_prompt_kept": "n_kept",
    "action_executed": "executed_action",
    "action_valid": "valid",
    "n_input_tokens": "input_tokens",
    "n_output_tokens": "output_tokens",
}
"""Columns that the page calls otherwise."""

COLUMNS = (*_NAMES, "messages", "completion", *_SHORT, *_LONG)
"""The columns of the layout that the page shows."""


def shown(row: dict[str, Any], budget: Budget) -> dict[str, Any]:
    """A step's row for the page; what is long is cut.

    Args:
        row: The columns of `COLUMNS`; `metrics` may be missing.
        budget: What the answer may still hold.
    """
    index, new, answer = row["step_index"], row["messages"], row["completion"]
    messages: list[dict[str, Any]] = []
    for place, message in enumerate(new or ()):
        if messages and budget.is_spent:
            break
        messages.append(message_cut(message, step=index, path=f"messages/{place}", budget=budget))
    found = {
        **{called: row[name] for name, called in _NAMES.items()},
        "new_messages": None if new is None else messages,
        "n_new_messages": None if new is None else len(new),
        "completion": None,
        **{name: row[name] for name in _SHORT},
        **{name: value_cut(row.get(name), step=index, path=name, budget=budget) for name in _LONG},
    }
    if answer is not None:
        found["completion"] = message_cut(answer, step=index, path="completion", budget=budget)
    return found
