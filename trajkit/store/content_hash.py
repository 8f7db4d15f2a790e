"""The content hash of episodes, from the canonical lines of their rows as Arrow batches.

The lines of one episode lie side by side in a batch's buffer, so that they are hashed in one piece: there is
no loop over rows.
"""

from __future__ import annotations

import hashlib
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

LINE = "line"
"""Column of a batch that holds each row's canonical line, newline included."""

HASHES = pa.schema({"episode_id": pa.string(), "content_hash": pa.string()})


class ContentHashes:
    """One sha256 per episode, fed with the episode's own line, then its steps', then its feedback's."""

    def __init__(self) -> None:
        self._hashes: dict[str, Any] = {}

    def update(self, batch: pa.RecordBatch) -> None:
        """Feed rows, those of an episode side by side and in order.

        Args:
            batch: Has the columns `episode_id` and `line`.
        """
        if not batch.num_rows:
            return
        lines = batch.column(LINE)
        # only the first buffer, which says where nulls are, may be missing
        offset_buffer, text_buffer = cast("list[pa.Buffer]", lines.buffers()[1:])
        offsets = memoryview(offset_buffer).cast("i")[lines.offset : lines.offset + len(lines) + 1]
        text = memoryview(text_buffer)
        runs = pc.run_end_encode(batch.column("episode_id"))  # type: ignore[attr-defined]  # not in the stubs
        start = 0
        for end, episode_id in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            found = self._hashes.get(episode_id)
            if found is None:
                found = self._hashes[episode_id] = hashlib.sha256()
            found.update(text[offsets[start] : offsets[end]])
            start = end

    def table(self) -> pa.Table:
        """The hashes so far, one row per episode (`HASHES`)."""
        values = [found.hexdigest() for found in self._hashes.values()]
        return pa.table([pa.array(self._hashes, pa.string()), pa.array(values, pa.string())], schema=HASHES)
