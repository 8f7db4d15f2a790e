"""Read long texts from ClickHouse without their heads; the server sends length and hash of the omitted part.

Lengths cost a recent server next to nothing, and a hash costs much less than sending the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.connect import tables
from trajkit.sources.tensorzero.connect.clickhouse.clauses import as_of_of, bucket
from trajkit.sources.tensorzero.connect.clickhouse.connection import Connection
from trajkit.sources.tensorzero.connect.clickhouse.rows import Texts, Wanted, calls_query, inferences_query
from trajkit.sources.tensorzero.connect.clickhouse.wire import system_column

_LIST, _USER = '"messages":[', ',{"role":"user"'
"""Where the messages of an input begin, and where one of the user does that is not the first. Inside a JSON
text quotes are escaped."""
_BACK = f"position(reverse(input), reverse('{_USER}'))"
# from the beginning to the bracket, and then without the comma
_SHORT = f"concat(substring(input, 1, place + {len(_LIST) - 1}), right(input, back + {len(_USER) - 2}))"
_IS_LIST = f"(position(input, '{_LIST}') AS place) > 0 AND endsWith(input, ']}}')"
_MAY_BE_SHORT = f"is_list AND ({_BACK} AS back) > 0 AND isValidJSON({_SHORT} AS short)"
_N_AROUND = len(_LIST) - 1
"""Bytes of an input that are not its list of messages, besides those before `place`: this, and a brace."""

_SAID = (
    f"if(({_IS_LIST}) AS is_list, toInt64(length(input) - place - {_N_AROUND}), NULL) AS said_bytes",
    f"if(is_list, cityHash64(substring(input, place + {_N_AROUND}, said_bytes - 1)), NULL)",
)
_SHORT_INPUTS = Texts("if(is_short, short, input)", (*_SAID, f"({_MAY_BE_SHORT}) AS is_short"))
_WHOLE_INPUTS = Texts("input", (*_SAID, "false"))

_IS_HEADLESS = (
    "i.head_bytes > 0 AND length(input_messages) > i.head_bytes + 1"
    " AND substring(input_messages, i.head_bytes + 1, 1) = ','"
)
_MESSAGES = Texts(
    f"if(({_IS_HEADLESS}) AS is_headless,"
    " concat('[', substring(input_messages, i.head_bytes + 2)), input_messages)",
    (
        "toInt64(length(input_messages))",
        "if(endsWith(input_messages, ']'),"
        " cityHash64(substring(input_messages, 1, length(input_messages) - 1)), NULL)",
        "if(is_headless, i.head_bytes, NULL)",
        "if(is_headless, cityHash64(substring(input_messages, 1, i.head_bytes)), NULL)",
    ),
)


class ClickHouseHeads:
    """`tables.Heads` for ClickHouse.

    Args:
        connection: To the database.
        table: Names a table that may be too old to have every column.
    """

    def __init__(self, connection: Connection, table: Callable[[str], str]) -> None:
        self._connection = connection
        self._table = table
        # filtering out the rows whose text need not be read would copy the texts of the others
        self._eager = connection.preferring("short_circuit_function_evaluation", "'disable'")

    def prompt_bytes(self, episode_ids: pa.Table | None, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the lengths of the prompts of these episodes; None for all."""
        wanted = Wanted(episode_ids, 1, request)
        return self._connection.stream(
            "SELECT toString(inference_id) AS inference_text, toInt64(length(input_messages))"
            f" FROM {self._table('ModelInference')} WHERE inference_id IN ({wanted.inferences('id')})",
            tables.PROMPT_BYTES,
            as_of_of(request),
            chosen=episode_ids,
        )

    def inferences(
        self, episode_ids: pa.Table | None, n_buckets: int, request: ExportRequest, *, are_short: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Stream the inferences of these episodes; None for all."""
        wanted = Wanted(episode_ids, n_buckets, request)
        inputs = _SHORT_INPUTS if are_short else _WHOLE_INPUTS
        return self._connection.stream(
            inferences_query(wanted, self._table, inputs) + self._eager,
            tables.SHORT_INFERENCES,
            as_of_of(request),
            chosen=episode_ids,
        )

    def model_inferences(
        self,
        episode_ids: pa.Table | None,
        n_buckets: int,
        request: ExportRequest,
        heads: pa.Table,
        *,
        are_few: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Stream the model calls of the inferences of these episodes; None for all."""
        wanted = Wanted(episode_ids, n_buckets, request)
        ids = wanted.inferences(f"id, {bucket('episode_id', n_buckets)} AS bucket")
        with_heads = (
            f"SELECT w.id AS id, w.bucket AS bucket, h.head_bytes AS head_bytes FROM ({ids}) AS w"
            " LEFT ANY JOIN (SELECT toUUID(inference_id) AS id, head_bytes FROM heads) AS h ON w.id = h.id"
        )
        return self._connection.stream(
            calls_query(
                wanted,
                self._table,
                system=system_column(self._connection),
                messages=_MESSAGES,
                of_inferences=with_heads,
                # the primary key helps to find a few rows, and is useless for all of them
                condition=f"inference_id IN ({wanted.inferences('id')})" if are_few else "",
            )
            + self._eager,
            tables.HEADLESS_CALLS,
            as_of_of(request),
            chosen=episode_ids,
            heads=heads,
        )

    def whole_prompts(self, inference_ids: pa.Table) -> Iterator[pa.RecordBatch]:
        """Stream the prompts of the model calls of these inferences."""
        return self._connection.stream(
            "SELECT toString(inference_id) AS inference_text, toString(id), input_messages"
            " FROM ModelInference WHERE inference_id IN (SELECT toUUID(episode_id) FROM chosen)",
            tables.WHOLE_PROMPTS,
            chosen=_as_chosen(inference_ids),
        )

    def whole_inputs(self, inference_ids: pa.Table) -> Iterator[pa.RecordBatch]:
        """Stream the inputs of these inferences."""
        return self._connection.stream(
            " UNION ALL ".join(
                f"SELECT toString(id) AS id_text, input FROM {table}"
                " WHERE id IN (SELECT toUUID(episode_id) FROM chosen)"
                for table in ("JsonInference", "ChatInference")
            ),
            tables.WHOLE_INPUTS,
            chosen=_as_chosen(inference_ids),
        )


def _as_chosen(inference_ids: pa.Table) -> pa.Table:
    """The ids as a table that is sent with a query."""
    return inference_ids.rename_columns(tables.CHOSEN.names)
