"""A small HTTP server that speaks the calls of TensorZero's client: a gateway that somebody else runs.

The real gateway of 2026.6.0 for Python has no HTTP API of TensorZero's. This one answers `/inference` and
`/feedback` as the reference says, always with the same action, and writes the rows into a real ClickHouse. On
request it loses rows in silence, as asynchronous writes do, or dies and comes back. Not part of the product.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from tests.rollouts.loopback import Reply, Server
from trajkit._core.ids import uuid7

Ask = Callable[[str], Any]


class HttpGateway(Server):
    """A gateway at an address of its own.

    Args:
        ask: Runs SQL on the database; None keeps no rows.
        loses: Whether a row is lost, by its kind (`inference` or `feedback`) and its number from 1.
        answer_s: Seconds that an answer takes.
    """

    at_get = {"status": "ok", "version": "2026.6.0", "gateway": "ok", "clickhouse": "ok"}

    def __init__(
        self,
        ask: Ask | None,
        *,
        loses: Callable[[str, int], bool] = lambda kind, number: False,
        answer_s: float = 0.0,
    ) -> None:
        self.ask, self.loses, self.answer_s = ask, loses, answer_s
        self.n = {"inference": 0, "feedback": 0}
        self.lost: list[tuple[str, str]] = []
        super().__init__(lambda body, n: Reply(getattr(self, self.asked[n].path.rpartition("/")[2])(body)))
        self.url = self.url.removesuffix("/v1")

    def inference(self, asked: dict[str, Any]) -> dict[str, Any]:
        time.sleep(self.answer_s)
        inference_id = uuid7()
        raw = json.dumps({"thinking": "", "action": "turn left"})
        self._keep(
            "inference",
            asked["episode_id"],
            "JsonInference (id, function_name, variant_name, episode_id, input, output, output_schema,"
            " inference_params, processing_time_ms, tags)",
            [
                inference_id, asked["function_name"], asked["variant_name"], asked["episode_id"],
                json.dumps(asked["input"]), json.dumps({"raw": raw, "parsed": json.loads(raw)}), "{}", "{}",
                1, asked["tags"],
            ],
        )  # fmt: skip
        return {
            "inference_id": inference_id,
            "episode_id": asked["episode_id"],
            "variant_name": asked["variant_name"],
            "output": {"raw": raw, "parsed": json.loads(raw)},
            "usage": {"input_tokens": 10, "output_tokens": 5},
            "finish_reason": "stop",
        }

    def feedback(self, asked: dict[str, Any]) -> dict[str, Any]:
        feedback_id = uuid7()
        values = [feedback_id, asked["episode_id"]]
        if asked["metric_name"] == "comment":
            table = "CommentFeedback (id, target_id, target_type, value, tags)"
            values += ["episode", asked["value"], asked["tags"]]
        else:
            table = "FloatMetricFeedback (id, target_id, metric_name, value, tags)"
            values += [asked["metric_name"], asked["value"], asked["tags"]]
        self._keep("feedback", asked["episode_id"], table, values)
        return {"feedback_id": feedback_id}

    def _keep(self, kind: str, episode_id: str, table: str, values: list[Any]) -> None:
        with self.lock:
            self.n[kind] += 1
            is_lost = self.loses(kind, self.n[kind])
            if is_lost:
                self.lost.append((kind, episode_id))
        if self.ask is not None and not is_lost:
            self.ask(f"INSERT INTO tensorzero.{table} VALUES ({', '.join(map(_sql, values))})")


def _sql(value: Any) -> str:
    if isinstance(value, dict):
        pairs = [part for item in value.items() for part in item]
        return f"map({', '.join(map(_sql, pairs))})"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return repr(value)
