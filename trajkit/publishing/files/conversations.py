"""Write the configuration `sft`: training rows, each a conversation with its tools and its origin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from trajkit.curation.rows.conversion import Conversion
from trajkit.curation.rows.file import convert
from trajkit.errors import NothingMatched
from trajkit.publishing.files.shards import BATCH_ROWS, Shard, ShardWriter, named, write_shards
from trajkit.publishing.files.tables import MOVED_FOLDER
from trajkit.publishing.files.wide import MOST_ROW_BYTES, row_bytes
from trajkit.store.dataset import Dataset
from trajkit.store.engine import connect, file_literal, interruptible, literal, scan
from trajkit.store.layout import quoted
from trajkit.store.reader import Store

SFT = "sft"
"""Name of the configuration, and of its folder."""

MESSAGE_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "trl-messages": ("messages",),
    "trl-prompt-completion": ("prompt", "completion"),
}
"""Message columns of each format that the rows may have. The first format is used if it carries all
completions, as in `trajkit convert`."""

MESSAGES, PROMPT_COMPLETION = MESSAGE_COLUMNS
_JSON = pa.json_(pa.string())
_MESSAGE: dict[str, pa.DataType] = {
    "role": pa.string(),
    "content": pa.string(),
    "reasoning_content": pa.string(),
    "tool_calls": pa.list_(_JSON),
    "name": pa.string(),
    "tool_call_id": pa.string(),
}
_ALWAYS = ("role", "content")
_ABOUT = ("env_id", "task", "seed", "purpose", "outcome", "total_reward", "variant_names")
_SPARE = 1024


class Rows(NamedTuple):
    """Training rows of one split as JSON lines, before they become Parquet."""

    split: str
    """Name of the split."""
    store: Store
    """Store that the rows are from."""
    made: Conversion | None
    """The conversion that wrote them; None when there is no row."""
    n_evaluation_left: int
    """Evaluation episodes that are left out, because the split has other episodes to train on."""


class SplitRows(NamedTuple):
    """The training rows of one split as Parquet, and the steps that became none."""

    split: str
    """Name of the split."""
    n_evaluation_left: int
    """Evaluation episodes that are in no row."""
    n_rows: int = 0
    """Rows that fit the viewer."""
    n_moved: int = 0
    """Rows that are too wide for the viewer, in separate files."""
    shards: tuple[Shard, ...] = ()
    """All files."""
    format: str | None = None
    """Format of the rows, as `trajkit convert` names it; None if there is no row."""
    left: Mapping[str, int] = {}
    """Number of steps that are in no row, by reason."""
    losses: Mapping[str, int] = {}
    """Number of values that the rows cannot carry, by kind."""


def make_rows(splits: Mapping[str, Store], work: Path) -> list[Rows]:
    """Convert each split to training rows, all in the same format.

    Args:
        splits: The stores by split.
        work: Folder for the JSON lines.
    """
    made = [_split_rows(store, split, work, MESSAGES) for split, store in splits.items()]
    formats = {rows.made.format for rows in made if rows.made is not None}
    if len(formats) < 2:
        return made
    return [
        rows
        if rows.made is None or rows.made.format == PROMPT_COMPLETION
        else _split_rows(rows.store, rows.split, work, PROMPT_COMPLETION)
        for rows in made
    ]


def _split_rows(store: Store, split: str, work: Path, to: str) -> Rows:
    """Convert a store to training rows that learn each weighted completion once.

    Evaluation episodes become rows only where the store has no other episodes.
    """
    dataset = Dataset(store)
    n_eval = dataset.where("purpose = 'eval'").n_episodes
    is_measuring = n_eval == store.manifest.counts.n_episodes
    chosen = dataset if is_measuring or not n_eval else dataset.where("purpose <> 'eval'")
    try:
        made = convert(
            chosen,
            work / f"{split}-{to}.jsonl",
            to=to,
            include_eval=is_measuring,
            skip_bad=True,
            tools="from-calls",
        )
    except NothingMatched:
        made = None
    return Rows(split, store, made, 0 if is_measuring else n_eval)


def message_fields(many: Sequence[Rows]) -> dict[str, pa.DataType]:
    """Return the message fields that any split uses; the others would be null in every row."""
    used = set(_ALWAYS)
    for rows in many:
        if rows.made is None:
            continue
        with connect() as connection, interruptible(connection):
            names = [name for name in _MESSAGE if name not in used]
            messages = f"list_concat({', '.join(MESSAGE_COLUMNS[rows.made.format])})"
            asked = ", ".join(
                f"count(list_any_value(list_transform({messages}, lambda m: m.{quoted(n)})))" for n in names
            )
            if names:
                counts = connection.execute(f"SELECT {asked} FROM {_lines(rows.made)}").fetchall()[0]
                used.update(name for name, n in zip(names, counts, strict=True) if n)
    return {name: kind for name, kind in _MESSAGE.items() if name in used}


def write_conversations(rows: Rows, fields: Mapping[str, pa.DataType], folder: Path) -> SplitRows:
    """Write the rows of a split as Parquet, streamed.

    Args:
        rows: The rows.
        fields: Fields of a message, the same for all splits.
        folder: Folder of the repository.
    """
    if rows.made is None:
        return SplitRows(rows.split, rows.n_evaluation_left)
    columns: dict[str, pa.DataType] = {
        **dict.fromkeys(MESSAGE_COLUMNS[rows.made.format], pa.list_(pa.struct(list(fields.items())))),
        "tools": pa.list_(_JSON),
        "metadata": _JSON,
    }
    schema = pa.schema(columns)
    (folder / SFT).mkdir(parents=True, exist_ok=True)
    (folder / MOVED_FOLDER).mkdir(parents=True, exist_ok=True)
    with connect() as connection, interruptible(connection):
        connection.execute("SET arrow_large_buffer_size = false")
        with ShardWriter(folder / MOVED_FOLDER / f".{SFT}-{rows.split}", schema) as wide:
            narrow = _without_wide(_paired(connection, rows, fields), wide)
            shards = write_shards(folder / SFT, rows.split, narrow, schema)
    n_rows = sum(each.n_rows for each in shards)
    if wide.n_rows:
        shards += named(folder / MOVED_FOLDER, f"{SFT}-{rows.split}", [Shard(wide.path, wide.n_rows)])
    return SplitRows(
        rows.split,
        rows.n_evaluation_left,
        n_rows,
        wide.n_rows,
        tuple(shards),
        rows.made.format,
        rows.made.left,
        rows.made.losses,
    )


def _without_wide(batches: Iterator[pa.RecordBatch], wide: ShardWriter) -> Iterator[pa.RecordBatch]:
    """Yield the rows that fit the viewer, and write the others to `wide`."""
    for batch in batches:
        is_wide = row_bytes(batch) > MOST_ROW_BYTES
        if is_wide.any():
            wide.add(batch.filter(pa.array(is_wide)))
            batch = batch.filter(pa.array(~is_wide))
        if batch.num_rows:
            yield batch


def _paired(connection: Any, rows: Rows, fields: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    """Join the rows with their metadata: two streams in the same order of rows."""
    assert rows.made is not None
    message = ", ".join(f"{quoted(name)} := m.{quoted(name)}" for name in fields)
    columns = MESSAGE_COLUMNS[rows.made.format]
    messages = ", ".join(
        f"list_transform({name}, lambda m: struct_pack({message})) AS {name}" for name in columns
    )
    texts = connection.cursor().sql(
        f"SELECT {messages}, coalesce(tools, []) AS tools FROM {_lines(rows.made)}"
    )
    about = connection.cursor().sql(_metadata(rows))
    left, right = texts.to_arrow_reader(BATCH_ROWS), about.to_arrow_reader(BATCH_ROWS)
    for mine, other in _aligned(iter(left), iter(right)):
        yield pa.RecordBatch.from_arrays(
            [*mine.columns, other.column("metadata")], names=[*columns, "tools", "metadata"]
        )


def _aligned(
    left: Iterator[pa.RecordBatch], right: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Cut two streams of the same rows into batches of equal length."""
    mine, other = next(left, None), next(right, None)
    while mine is not None and other is not None:
        n = min(mine.num_rows, other.num_rows)
        if n:
            yield mine.slice(0, n), other.slice(0, n)
        mine = mine.slice(n) if n < mine.num_rows else next(left, None)
        other = other.slice(n) if n < other.num_rows else next(right, None)


def _metadata(rows: Rows) -> str:
    """Return SQL for the metadata of each row, as a JSON object."""
    assert rows.made is not None
    assert rows.made.provenance is not None
    episodes = scan(rows.store.parts("episodes"))
    has_metrics = any(metric.level == "episode" for metric in rows.store.manifest.metrics)
    about = ", ".join(f"{quoted(name)} := any_value(e.{quoted(name)})" for name in _ABOUT)
    metrics = ", metrics := any_value(e.metrics)" if has_metrics else ""
    return (
        f"SELECT CAST(to_json(struct_pack(episode_id := any_value(p.episode_id), "
        "steps := list(p.step_index ORDER BY p.step_index), "
        f"weights := list(p.weight ORDER BY p.step_index), {about}{metrics})) AS VARCHAR) AS metadata "
        f"FROM {scan([rows.made.provenance])} AS p JOIN {episodes} AS e USING (episode_id) "
        'WHERE p."row" IS NOT NULL GROUP BY p."row" ORDER BY p."row"'
    )


def _lines(made: Conversion) -> str:
    kinds = ", ".join(f'"{name}" {"JSON[]" if name == "tool_calls" else "VARCHAR"}' for name in _MESSAGE)
    messages = ", ".join(f"{name}: {literal(f'STRUCT({kinds})[]')}" for name in MESSAGE_COLUMNS[made.format])
    return (
        f"read_json({file_literal(made.data)}, format = 'newline_delimited', "
        f"columns = {{{messages}, tools: 'JSON[]'}}, "
        f"maximum_object_size = {_longest(made.data) + _SPARE})"
    )


def _longest(path: Path) -> int:
    with path.open("rb") as file:
        return max((len(line) for line in file), default=0)
