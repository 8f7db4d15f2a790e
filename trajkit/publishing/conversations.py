"""The configuration `sft`: rows to train on, each a conversation with its tools and where it is from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from trajkit.curation.rows.conversion import Conversion
from trajkit.curation.rows.file import convert
from trajkit.errors import NothingMatched
from trajkit.publishing.shards import BATCH_ROWS, Shard, ShardWriter, named, write_shards
from trajkit.publishing.tables import MOVED_FOLDER
from trajkit.publishing.wide import MOST_ROW_BYTES, row_bytes
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
"""The columns with messages of each format that the rows may have; the first is taken where it carries all
answers, as in `trajkit convert`."""

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
    """Rows of one split as JSON lines, on their way to Parquet."""

    split: str
    """The split."""
    store: Store
    """Where they are from."""
    made: Conversion | None
    """What was made; None when there is no row."""
    n_evaluation_left: int
    """Evaluation episodes that are in no row, since others of the split train."""


class Conversations(NamedTuple):
    """The files of one split."""

    shards: tuple[Shard, ...]
    """The rows."""
    moved: tuple[Shard, ...]
    """Rows that are too wide for the viewer, whole."""
    n_rows: int
    """How many rows fit."""
    n_moved: int
    """How many do not."""


def make_rows(splits: Mapping[str, Store], work: Path) -> list[Rows]:
    """The training rows of each split, all in the same format.

    Args:
        splits: The stores by split.
        work: Gets the lines.
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
    """The training rows of a store: every answer that its steps are weighted for, once.

    Evaluation episodes are in rows only where the store has
    no others: then the split measures and does not train.

    Args:
        store: Whose steps.
        split: Its name.
        work: Gets the lines.
        to: The format.
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
    """The fields that messages of any split have: what none has would only be null in every row."""
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


def write_conversations(rows: Rows, fields: Mapping[str, pa.DataType], folder: Path) -> Conversations:
    """Write the rows of a split as Parquet, streamed.

    Args:
        rows: The rows.
        fields: Of a message, as every split has them.
        folder: The repository's.
    """
    if rows.made is None:
        return Conversations((), (), 0, 0)
    columns: dict[str, pa.DataType] = {
        **dict.fromkeys(MESSAGE_COLUMNS[rows.made.format], pa.list_(pa.struct(list(fields.items())))),
        "tools": pa.list_(_JSON),
        "metadata": _JSON,
    }
    schema = pa.schema(columns)
    (folder / SFT).mkdir(parents=True, exist_ok=True)
    (folder / MOVED_FOLDER).mkdir(parents=True, exist_ok=True)
    with connect(memory_limit="2GB") as connection, interruptible(connection):
        connection.execute("SET arrow_large_buffer_size = false")
        with ShardWriter(folder / MOVED_FOLDER / f".{SFT}-{rows.split}", schema) as wide:
            narrow = _narrow(_paired(connection, rows, fields), wide)
            shards = write_shards(folder / SFT, rows.split, narrow, schema)
    moved = []
    if wide.n_rows:
        moved = named(folder / MOVED_FOLDER, f"{SFT}-{rows.split}", [Shard(wide.path, wide.n_rows)])
    return Conversations(tuple(shards), tuple(moved), sum(each.n_rows for each in shards), wide.n_rows)


def _narrow(batches: Iterator[pa.RecordBatch], wide: ShardWriter) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        is_wide = row_bytes(batch) > MOST_ROW_BYTES
        if is_wide.any():
            wide.add(batch.filter(pa.array(is_wide)))
            batch = batch.filter(pa.array(~is_wide))
        if batch.num_rows:
            yield batch


def _paired(connection: Any, rows: Rows, fields: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    """The rows with their metadata: both come in the order of the rows, each as a stream of its own."""
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
    """Batches of the same number of rows from two streams that have the same rows."""
    mine, other = next(left, None), next(right, None)
    while mine is not None and other is not None:
        n = min(mine.num_rows, other.num_rows)
        if n:
            yield mine.slice(0, n), other.slice(0, n)
        mine = mine.slice(n) if n < mine.num_rows else next(left, None)
        other = other.slice(n) if n < other.num_rows else next(right, None)


def _metadata(rows: Rows) -> str:
    """SQL for what is known of each row, as a JSON object."""
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
