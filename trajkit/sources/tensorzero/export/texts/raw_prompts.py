"""Recover prompts of model calls that TensorZero did not store, from their raw requests.

Such calls were made before TensorZero's fourth migration (2024). Requests in the formats of OpenAI and
Anthropic are parsed; the prompts of others stay unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa

from trajkit.formats.chat.message import learn_names, message_of
from trajkit.schema import Message, message
from trajkit.sources.tensorzero.connect.database import TensorZero
from trajkit.sources.tensorzero.connect.tables import pc, texts_of, with_column
from trajkit.sources.tensorzero.export.spool import Group, Spool
from trajkit.sources.tensorzero.export.texts.late import described, undescribed
from trajkit.store.arrow import json_text, message_value


class WithoutPrompt:
    """Finds model calls without a stored prompt as they stream past, then fills the prompts in."""

    def __init__(self) -> None:
        self._buckets: set[int] = set()

    def noting(self, calls: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same calls (described)."""
        for batch in calls:
            if not pc.all(batch.column("has_messages")).as_py():
                without = batch.filter(pc.invert(batch.column("has_messages")))
                self._buckets.update(cast("list[int]", without.column("bucket").unique().to_pylist()))
            yield batch

    def fill(self, database: TensorZero, calls: Spool) -> None:
        """Fill in the prompts of calls without one, if the request is known and in a supported format."""
        for number in sorted(self._buckets):
            table = Group(calls, [number], "row").table(calls.schema.names).drop_columns(["row"])
            without = table.filter(pc.invert(table.column("has_messages")))
            ids = texts_of(without.column("model_inference_id"))
            prompts = {
                row["model_inference_id"]: prompt
                for batch in database.raw_requests(ids)
                for row in batch.to_pylist()
                if (prompt := prompt_of(row["raw_request"])) is not None
            }
            if prompts:
                calls.replace(number, (_filled(batch, prompts) for batch in table.to_batches()))


def prompt_of(raw_request: str) -> str | None:
    """Return the messages of a request as the database would keep them, as JSON; None for other formats."""
    try:
        body = json.loads(raw_request)
    except (ValueError, RecursionError):
        return None
    sent = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(sent, list) or not sent:
        return None
    messages = [message("system", text)] if (text := _system(body.get("system"))) else []
    names: dict[str, str] = {}
    try:
        for one in sent:
            messages.append(message_of(one, names))
            learn_names(names, messages[-1])
    except ValueError:
        return None
    return _text(messages)


def _system(system: Any) -> str:
    """Return Anthropic's system prompt, which is beside the messages, as a text or as blocks of text."""
    if isinstance(system, list):
        return "\n".join(str(block.get("text", "")) for block in system if isinstance(block, dict))
    return system if isinstance(system, str) else ""


def _text(messages: list[Message]) -> str:
    return json_text([message_value(one) for one in messages])


def _filled(batch: pa.RecordBatch, prompts: dict[str, str]) -> pa.RecordBatch:
    found = [prompts.get(row_id) for row_id in texts_of(batch.column("model_inference_id"))]
    column = pc.coalesce(pa.array(found, pa.string()), batch.column("input_messages"))
    return described(undescribed(with_column(batch, "input_messages", column)))
