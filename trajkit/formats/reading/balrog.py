"""Read runs of BALROG: a CSV file with actions and rewards, and a JSON file with the score and the seed.

The CSV file has neither the prompts nor the raw answers, so these steps can be counted, compared and
replayed, but not learned. Its column `Observation` comes after the action of its row: here it is the
observation of the next step, and the observation of the first step is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from trajkit.formats.reading.document import BadDocument, Reading, episode_of, shown
from trajkit.schema import Outcome
from trajkit.schema.base import JsonObject

COLUMNS = ("Step", "Action", "Observation", "Reward", "Done")
"""Columns of a run; there may be more, in any order."""
_SCORES = ("progression", "episode_return")


def is_run(value: Any) -> bool:
    """Whether a JSON value is the score of a run."""
    return isinstance(value, dict) and {"task", "action_frequency", "num_steps"} <= value.keys()


def read_run(log: JsonObject, rows: Sequence[dict[str, str]], env_id: str | None) -> Reading:
    """Return the episode of a run.

    Args:
        log: The JSON file.
        rows: The rows of the CSV file, by column.
        env_id: The environment, known only from the folder's name.

    Raises:
        BadDocument: A value is invalid, or the two files are not of one run.
    """
    if not is_run(log):
        raise BadDocument("not the score of a run", value=shown(sorted(log)))
    if log.get("num_steps") != len(rows):
        raise BadDocument(f"the CSV file has {len(rows)} rows", "num_steps", shown(log.get("num_steps")))
    client = log.get("client") or {}
    model = client.get("model_id") if isinstance(client, dict) else None
    steps = [_step(row, index, model) for index, row in enumerate(rows)]
    for step, row in zip(steps[1:], rows, strict=False):
        step["observation"] = row["Observation"]
    if steps:
        steps[-1]["info"] = {"after": rows[-1]["Observation"]}
        steps[-1]["truncated"] = not steps[-1]["terminated"]
    metrics = {name: _number(log[name], name) for name in _SCORES if log.get(name) is not None}
    agent = log.get("agent")
    fields = {
        "episode_id": "unnamed",
        "source": "balrog",
        "env_id": env_id,
        "task": str(log["task"]),
        "seed": log.get("seed"),
        "metrics": metrics,
        "outcome": _outcome(metrics, steps),
        "total_reward": math.fsum(step["reward"] for step in steps) if steps else None,
        "tags": {"agent": str(agent["type"])} if isinstance(agent, dict) and agent.get("type") else {},
        "origin": {
            "balrog": {
                name: log[name]
                for name in ("input_tokens", "output_tokens", "failed_candidates", "process_num", "agent")
                if log.get(name) is not None
            }
        },
        "steps": steps,
    }
    return Reading((episode_of(fields),), is_named=False)


def _step(row: dict[str, str], index: int, model: Any) -> dict[str, Any]:
    where = f"rows.{index}"
    if row["Step"] != str(index):
        raise BadDocument(f"not {index}", f"{where}.Step", shown(row["Step"]))
    if row["Done"] not in ("True", "False"):
        raise BadDocument("neither True nor False", f"{where}.Done", shown(row["Done"]))
    reasoning = row.get("Reasoning")
    return {
        "step_index": index,
        "action": row["Action"],
        "action_executed": row["Action"],
        "reward": _number(row["Reward"], f"{where}.Reward"),
        "terminated": row["Done"] == "True",
        "truncated": False,
        "model_name": model,
        "extra": {"reasoning": reasoning} if reasoning else None,
    }


def _outcome(metrics: dict[str, float], steps: Sequence[dict[str, Any]]) -> Outcome:
    if metrics.get("progression", 0.0) >= 1:
        return Outcome.SUCCESS
    if steps and steps[-1]["truncated"]:
        return Outcome.TRUNCATED
    return Outcome.FAILURE if "progression" in metrics else Outcome.UNKNOWN


def _number(value: Any, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise BadDocument("not a number", where, shown(value))
    return number
