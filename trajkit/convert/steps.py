"""The steps that a dataset teaches, as columns, some thousand at a time; why the others are not learned."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trajkit.convert.plain import answer_text, fragment, step_line
from trajkit.errors import StoreError
from trajkit.formats.base import PlainText
from trajkit.schema import Purpose
from trajkit.store.dataset import Dataset
from trajkit.store.engine import connect, first_line, interruptible, literal, scan
from trajkit.store.view import create_views, full_steps

_BYTES_PER_CHUNK = 24_000_000
_MOST_STEPS = 20_000
_COST_OF_CHAINS = 8
_CHOSEN = ["episode_id", "n_steps", "purpose"]
_RAW = ("n_prompt_kept", "messages", "completion", "tools")
_READ = ("episode_id", "step_index", "inference_id", "loss_weight", "mask_reason", *_RAW)

_REASON = """CASE
    WHEN loss_weight <= 0 THEN coalesce(mask_reason,
        CASE WHEN loss_weight < 0 THEN 'negative weight' ELSE 'weight 0' END)
    WHEN completion IS NULL OR completion = 'null' THEN 'no answer'
    WHEN messages IS NULL OR messages = 'null' THEN 'prompt unknown'
    END"""
_HAS_TOOLS = "coalesce(tools, '[]') NOT IN ('[]', 'null')"

# `line` is null where `reason` is not, and where Python has to write it.
_STEPS = """
    SELECT episode_id, step_index, inference_id, loss_weight, reason, line,
        {is_raw} AS is_raw, NULL::BIGINT AS n_characters, {raw}
    FROM (
        SELECT *, CASE WHEN reason IS NULL AND loss_weight = 1 AND NOT has_tools THEN {line} END AS line
        FROM (SELECT *, {reason} AS reason, {has_tools} AS has_tools FROM {steps})
    )
"""

# A run of steps is a conversation: each prompt is the one before with its answer and more. What a step adds
# to it (the answer before, then the new messages) is a piece: the prompt of a step is the pieces up to it.
_RUNS = """
    WITH given AS MATERIALIZED (
        SELECT *, {reason} AS reason, {has_tools} AS has_tools,
            completion IS NOT NULL AND completion <> 'null' AS has_answer,
            n_prompt_kept + json_array_length(messages) + CAST(completion IS NOT NULL AND completion <> 'null'
                AS BIGINT) AS n_after
        FROM {steps}
    ), placed AS (
        SELECT *, coalesce(n_prompt_kept > 0 AND n_prompt_kept = lag(n_after) OVER e, false) AS goes_on
        FROM given WINDOW e AS (PARTITION BY episode_id ORDER BY step_index)
    ), told AS (
        SELECT *, CASE WHEN goes_on THEN {later} ELSE {first} END AS new_text,
            CASE WHEN has_answer THEN {answer} END AS answer_text
        FROM placed
    ), plain AS (
        SELECT *, bool_and(coalesce(new_text IS NOT NULL AND NOT has_tools AND (goes_on OR n_prompt_kept = 0)
                AND (new_text <> '' OR goes_on) AND (answer_text IS NOT NULL OR NOT has_answer)
                AND (reason IS NOT NULL OR loss_weight = 1) AND {fits}, false))
                OVER (PARTITION BY episode_id) AS is_plain,
            sum(CAST(NOT goes_on AS BIGINT)) OVER (PARTITION BY episode_id ORDER BY step_index) AS run,
            concat_ws({between}, CASE WHEN goes_on THEN lag({marked} || answer_text || {after}) OVER e END,
                nullif(new_text, '')) AS piece
        FROM told WINDOW e AS (PARTITION BY episode_id ORDER BY step_index)
    ), sized AS (
        SELECT *, CAST(sum(length(messages) + coalesce(length(completion), 0)) OVER (
            PARTITION BY episode_id, run ORDER BY step_index) AS BIGINT) AS n_characters
        FROM plain
    ), prompts AS ({prompts}), lines AS (
        SELECT episode_id, step_index,
            text || {last} || answer_text || {tail} || chr(10) AS line
        FROM prompts JOIN plain USING (episode_id, step_index)
    )
    SELECT episode_id, step_index, inference_id, loss_weight, reason, line, NOT is_plain AS is_raw,
        n_characters, {raw}
    FROM sized LEFT JOIN lines USING (episode_id, step_index)
    ORDER BY episode_id, step_index
"""
_EACH_PROMPT = """
    SELECT episode_id, step_index, text FROM (
        SELECT episode_id, step_index, reason, string_agg(piece, {between}) OVER (
            PARTITION BY episode_id, run ORDER BY step_index ROWS UNBOUNDED PRECEDING) AS text
        FROM plain WHERE is_plain
    ) WHERE reason IS NULL
"""
_LAST_PROMPT = """
    SELECT episode_id, last_step AS step_index, string_agg(piece, {between} ORDER BY step_index) AS text
    FROM (
        SELECT *, max(step_index) FILTER (reason IS NULL) OVER (PARTITION BY episode_id, run) AS last_step
        FROM plain WHERE is_plain
    ) WHERE step_index <= last_step GROUP BY episode_id, run, last_step
"""


class Chunk(NamedTuple):
    """Some episodes of one part, whole."""

    part: Path
    """The file that has their steps."""
    lowest_id: str
    """Smallest of their ids."""
    highest_id: str
    """Largest of their ids."""
    is_chained: bool
    """Some prompt keeps messages of the one before."""


class Steps:
    """The steps of the episodes that a dataset's verbs choose. Use as a context manager.

    Args:
        dataset: Chooses the episodes.

    Raises:
        StoreError: A part is missing or changed.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._store = dataset.store
        # No text of the user's runs in this connection: the dataset applies the filters in its own.
        chosen = pa.Table.from_batches(
            [batch.select(_CHOSEN) for batch in dataset.arrow("episodes")],
            schema=pa.schema([(name, pa.int64() if name == "n_steps" else pa.string()) for name in _CHOSEN]),
        )
        self.connection = connect()
        """Has the views of the store, and the table `chosen`."""
        self.connection.execute("SET arrow_large_buffer_size = true")
        create_views(self.connection, self._store)
        self.connection.register("ids", chosen)
        self.connection.execute("CREATE TABLE chosen AS SELECT * FROM ids")
        self.connection.unregister("ids")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()

    @property
    def n_episodes(self) -> int:
        """How many episodes are chosen."""
        return self._number("SELECT count(*) FROM chosen")

    @property
    def n_steps(self) -> int:
        """How many steps they have."""
        return self._number("SELECT CAST(coalesce(sum(n_steps), 0) AS BIGINT) FROM chosen")

    @property
    def n_evaluation(self) -> int:
        """How many of them were played for evaluation."""
        return self._number(f"SELECT count(*) FROM chosen WHERE purpose = '{Purpose.EVAL}'")

    def chunks(self) -> Iterator[Chunk]:
        """The chosen episodes, part by part as they lie, so that each file is read once."""
        for part in self._store.parts("steps"):
            with self._reading():
                found = self.connection.execute(
                    f"SELECT episode_id, count(*), max(n_prompt_kept) > 0 FROM {scan([part])} "
                    "SEMI JOIN chosen USING (episode_id) GROUP BY episode_id ORDER BY episode_id"
                ).fetchall()
            yield from _cut(part, found, _bytes_per_step(part))

    def rows(self, chunk: Chunk, plain: PlainText | None, *, merges: bool) -> pa.Table:
        """The steps of a chunk by episode and position.

        Args:
            chunk: Which episodes.
            plain: How the format writes rows of plain text; None where Python writes all.
            merges: A row has all answers of a conversation that are learned, else one.

        Returns:
            Columns `episode_id, step_index, inference_id, loss_weight, reason, line, is_raw, n_characters`,
            and
            those of the store that Python needs where `is_raw`. `reason` says why a step is not learned. A
            line (with its line break) stands at the last step that it teaches. `n_characters` is the size of
            the conversation up to the step, null where no rows are merged.

        Raises:
            StoreError: The parts cannot be read.
        """
        steps = self._of(chunk)
        if plain is None:
            sql = _each_step("NULL::VARCHAR", "true", steps)
        elif not merges and not chunk.is_chained:
            line = step_line(plain, "messages", "completion")
            sql = _each_step(line, "(reason IS NULL AND line IS NULL)", steps)
        else:
            sql = _runs(plain, steps, merges=merges)
        return self._read(sql, chunk)

    def table(self, chunk: Chunk, columns: Sequence[str]) -> pa.Table:
        """Rows of a table of steps, by episode and position: `episode_id`, and a `line` with its line break.

        Args:
            chunk: Which episodes.
            columns: SQL expressions with their names, over `s` (`steps_full`) and `e` (`episodes`).
        """
        steps = f"(SELECT * FROM steps WHERE {_within(chunk)})"
        source = full_steps(steps) if chunk.is_chained else f"SELECT *, messages AS prompt FROM {steps}"
        sql = (
            f"SELECT s.episode_id, CAST(to_json(struct_pack({', '.join(columns)})) AS VARCHAR) || chr(10) "
            f"AS line, s.step_index FROM ({source}) s JOIN episodes e USING (episode_id) "
            "ORDER BY s.episode_id, s.step_index"
        )
        return self._read(sql, chunk)

    def _of(self, chunk: Chunk) -> str:
        texts = ("messages", "completion", "tools")
        names = ", ".join(f"CAST({name} AS VARCHAR) AS {name}" if name in texts else name for name in _READ)
        return f"(SELECT {names} FROM {scan([chunk.part])} WHERE {_within(chunk)})"

    def _read(self, sql: str, chunk: Chunk) -> pa.Table:
        values = {"lowest": chunk.lowest_id, "highest": chunk.highest_id}
        with self._reading():
            return _ordered(self.connection.sql(sql, params=values).to_arrow_table())

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            with interruptible(self.connection):
                yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise StoreError(f"{self._store.path} could not be read: {first_line(error)}") from error

    def _number(self, sql: str) -> int:
        (number,) = self.connection.execute(sql).fetchall()[0]
        return int(number)


def _ordered(table: pa.Table) -> pa.Table:
    """The table by episode and step, as a part lies: sorting the texts would cost as much as making them."""
    order = pc.sort_indices(table, [("episode_id", "ascending"), ("step_index", "ascending")])
    in_order: bool = pc.all(pc.equal(order, pa.array(range(len(order)), pa.uint64()))).as_py()
    return table if in_order else table.take(order)


def _each_step(line: str, is_raw: str, steps: str) -> str:
    return _STEPS.format(
        line=line, is_raw=is_raw, reason=_REASON, has_tools=_HAS_TOOLS, steps=steps, raw=_raw(is_raw)
    )


def _bytes_per_step(part: Path) -> float:
    """How much text a step of a part has on average."""
    with pq.ParquetFile(part) as file:
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    n_bytes = sum(
        column.total_uncompressed_size
        for group in groups
        for column in (group.column(i) for i in range(group.num_columns))
        if column.path_in_schema in _RAW
    )
    return n_bytes / max(1, sum(group.num_rows for group in groups))


def _cut(part: Path, found: Sequence[tuple[str, int, bool]], n_bytes: float) -> Iterator[Chunk]:
    """Episodes of a part in runs that fit into memory; of chains fewer, as their prompts are long."""
    most = min(_MOST_STEPS, _BYTES_PER_CHUNK / max(1.0, n_bytes))
    run: list[tuple[str, int, bool]] = []
    n_steps = 0
    for episode in found:
        run.append(episode)
        n_steps += episode[1] * (_COST_OF_CHAINS if episode[2] else 1)
        if n_steps >= most:
            yield _chunk(part, run)
            run, n_steps = [], 0
    if run:
        yield _chunk(part, run)


def _chunk(part: Path, run: Sequence[tuple[str, int, bool]]) -> Chunk:
    return Chunk(part, run[0][0], run[-1][0], any(is_chained for _, _, is_chained in run))


def _within(chunk: Chunk) -> str:
    # the bounds let DuckDB skip the row groups that cannot hold these episodes
    return "episode_id BETWEEN $lowest AND $highest AND episode_id IN (SELECT episode_id FROM chosen)"


def _raw(condition: str) -> str:
    return ", ".join(f"CASE WHEN {condition} THEN {name} END AS {name}" for name in _RAW)


def _runs(plain: PlainText, steps: str, *, merges: bool) -> str:
    has_context = "assistant" in plain.before
    context, learned = literal(plain.before.get("assistant", "")), literal(plain.learned)
    fits = ["true"]
    if not has_context:  # an answer that is only context would be learned
        fits.append("(reason IS NULL OR NOT has_answer)" if merges else "NOT goes_on")
    if plain.alternates:
        fits.append("has_answer AND new_text <> ''")
    between = literal(plain.between)
    return _RUNS.format(
        steps=steps,
        reason=_REASON,
        has_tools=_HAS_TOOLS,
        first=fragment(plain, "messages", is_first=True),
        later=fragment(plain, "messages", is_first=False),
        answer=answer_text(plain, "completion"),
        fits=" AND ".join(fits),
        between=between,
        marked=f"CASE WHEN reason IS NULL THEN {learned} ELSE {context} END" if merges else context,
        after=literal(plain.after),
        prompts=(_LAST_PROMPT if merges else _EACH_PROMPT).format(between=between),
        last=literal(plain.last),
        tail=literal(plain.tail),
        raw=_raw("NOT is_plain"),
    )
