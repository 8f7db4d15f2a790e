"""Steps built from TensorZero's own shapes, exported and read back: what most tests of shapes need."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

from tests.sources.row_database import Row, RowDatabase, row_id, spelled
from trajkit.schema import Message, Transition
from trajkit.sources.request import ExportRequest, Tally
from trajkit.sources.tensorzero.export.export import export
from trajkit.store.dataset import open_dataset

EPISODE = row_id(0)
USER = [{"role": "user", "content": [{"type": "text", "text": "go"}]}]


class Steps:
    """The steps of one episode, each an inference with its model calls."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.inferences: list[Row] = []
        self.calls: list[Row] = []

    def json(self, raw: str | None = '{"action":"go"}', parsed: Any = ..., **row: Any) -> str:
        """A step of a JSON function."""
        output = {"raw": raw, "parsed": {"action": "go"} if parsed is ... else parsed}
        return self._add({"function_type": "json", "function_name": "act", "output": spelled(output)}, row)

    def chat(self, output: Any, **row: Any) -> str:
        """A step of a chat function."""
        text = output if isinstance(output, str | bytes) else spelled(output)
        return self._add({"function_type": "chat", "function_name": "talk", "output": text}, row)

    def call(self, inference_id: str, *, messages: Any = USER, said: Any = (), **row: Any) -> str:
        """A model call of a step; `said` is its output."""
        call_id = row_id(next(self._numbers))
        text = messages if isinstance(messages, str | bytes | None) else spelled(messages)
        known = {
            "model_inference_id": call_id,
            "inference_id": inference_id,
            "model_name": "m",
            "model_provider_name": "p",
            "input_messages": text,
            "output": said if isinstance(said, str | bytes | None) else spelled(list(said)),
        }
        self.calls.append(known | row)
        return call_id

    def _add(self, known: Row, row: Row) -> str:
        inference_id = row_id(next(self._numbers))
        messages = row.pop("messages", USER)
        calls = row.pop("calls", 1)
        given = {"inference_id": inference_id, "episode_id": EPISODE, "variant_name": "v", "tags": "{}"}
        self.inferences.append(given | {"input": spelled({"messages": USER})} | known | row)
        for _ in range(calls):
            self.call(inference_id, messages=messages)
        return inference_id

    def export(self, database: RowDatabase | None = None, **options: Any) -> tuple[Tally, list[Transition]]:
        """The tally, and the steps as the store has them."""
        with tempfile.TemporaryDirectory() as folder:
            goal = Path(folder) / "store"
            source = database or RowDatabase(self.inferences, self.calls)
            tally, _ = export(source, ExportRequest(**options), goal)
            (episode,) = open_dataset(goal)
        prompts = list(episode.prompts())
        return tally, [
            step.model_copy(update={"messages": prompt, "n_prompt_kept": 0})
            for step, prompt in zip(episode.steps, prompts, strict=True)
        ]


def plain(message: Message | None) -> list[dict[str, Any]]:
    """The blocks of a message as JSON, without what is null."""
    assert message is not None
    return [block.model_dump(mode="json", exclude_none=True) for block in message.content]
