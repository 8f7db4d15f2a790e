"""Read long texts from ClickHouse without their heads; the server sends length and hash of the omitted part.

Lengths cost a recent server next to nothing, and a hash costs much less than sending the text.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.connect import tables
from trajkit.sources.tensorzero.connect.clickhouse.dialect import ClickHouse
from trajkit.sources.tensorzero.connect.dialect import columns
from trajkit.sources.tensorzero.connect.wide import Wanted, system_sent

_LIST, _USER = '"messages":[', ',{"role":"user"'
"""The beginnings of the messages of an input, and of a user message that is not the first. Inside a JSON
text quotes are escaped."""
_BACK = f"position(reverse(input), reverse('{_USER}'))"
# from the beginning to the bracket, and then without the comma
_SHORT = f"concat(substring(input, 1, place + {len(_LIST) - 1}), right(input, back + {len(_USER) - 2}))"
_IS_LIST = f"(position(input, '{_LIST}') AS place) > 0 AND endsWith(input, ']}}')"
_MAY_BE_SHORT = f"is_list AND ({_BACK} AS back) > 0 AND isValidJSON({_SHORT} AS short)"
_N_AROUND = len(_LIST) - 1
"""Bytes of an input that are not its list of messages, besides those before `place`: this, and a brace."""

_SAID = (
    f"if(({_IS_LIST}) AS is_list, (toInt64(length(input) - place - {_N_AROUND}) AS said_bytes), NULL)",
    f"if(is_list, cityHash64(substring(input, place + {_N_AROUND}, said_bytes - 1)), NULL)",
)
_SHORT_INPUT = f"if(({_MAY_BE_SHORT}) AS is_short, short, input)", (*_SAID, "is_short")
_WHOLE_INPUT = "input", (*_SAID, "false")

_IS_HEADLESS = (
    "i.head_bytes > 0 AND length(input_messages) > i.head_bytes + 1"
    " AND substring(input_messages, i.head_bytes + 1, 1) = ','"
)
_MESSAGES = (
    f"if(({_IS_HEADLESS}) AS is_headless,"
    " concat('[', substring(input_messages, i.head_bytes + 2)), input_messages)"
)
_OF_MESSAGES = (
    "toInt64(length(input_messages))",
    "if(endsWith(input_messages, ']'),"
    " cityHash64(substring(input_messages, 1, length(input_messages) - 1)), NULL)",
    "if(is_headless, i.head_bytes, NULL)",
    "if(is_headless, cityHash64(substring(input_messages, 1, i.head_bytes)), NULL)",
)


class Heads:
    """The rows of ClickHouse without the heads of their long texts, if those are known from another row.

    The hashes have 64 bits, are equal for equal bytes, and have no meaning outside one export.

    Args:
        dialect: On a connection to the database.
    """

    def __init__(self, dialect: ClickHouse) -> None:
        self._dialect = dialect
        # filtering out the rows whose text need not be read would copy the texts of the others
        self._eager = dialect.connection.preferring("short_circuit_function_evaluation", "'disable'")

    def prompt_bytes(self, episode_ids: pa.Table | None, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream `PROMPT_BYTES` of the model calls of these episodes; None for all."""
        wanted = Wanted(self._dialect, episode_ids, 1, request)
        selected = columns(tables.PROMPT_BYTES, "toString(inference_id)", "toInt64(length(input_messages))")
        return self._dialect.stream(
            f"SELECT {selected} FROM {self._dialect.table('model_inference')}"
            f" WHERE inference_id IN ({wanted.ids()})",
            tables.PROMPT_BYTES,
            chosen=episode_ids,
        )

    def inferences(
        self, episode_ids: pa.Table | None, n_buckets: int, request: ExportRequest, *, are_short: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Stream `SHORT_INFERENCES` of these episodes (None for all), or all with their whole input."""
        wanted = Wanted(self._dialect, episode_ids, n_buckets, request, id_of=self._dialect.text)
        sql = wanted.inferences(tables.SHORT_INFERENCES, *(_SHORT_INPUT if are_short else _WHOLE_INPUT))
        return self._dialect.stream(sql + self._eager, tables.SHORT_INFERENCES, chosen=episode_ids)

    def model_inferences(
        self,
        episode_ids: pa.Table | None,
        n_buckets: int,
        request: ExportRequest,
        heads: pa.Table,
        *,
        are_few: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Stream `HEADLESS_CALLS` of these episodes (None for all), without these heads (`HEADS`)."""
        wanted = Wanted(self._dialect, episode_ids, n_buckets, request, id_of=self._dialect.text)
        # the primary key helps to find a few rows, and is useless for all of them
        source = self._dialect.table("model_inference")
        sql = wanted.calls(
            system_sent(self._dialect),
            tables.HEADLESS_CALLS,
            _MESSAGES,
            _OF_MESSAGES,
            of_inferences="SELECT w.of_inference AS of_inference, w.bucket AS bucket, head_bytes"
            f" FROM ({wanted.ids_with_buckets()}) AS w LEFT ANY JOIN"
            " (SELECT toUUID(inference_id) AS id, head_bytes FROM heads) AS h ON w.of_inference = h.id",
            source=f"(SELECT * FROM {source} WHERE inference_id IN ({wanted.ids()}))" if are_few else source,
        )
        return self._dialect.connection.stream(
            sql + self._eager, tables.HEADLESS_CALLS, chosen=episode_ids, heads=heads
        )

    def whole_prompts(self, inference_ids: pa.Table) -> Iterator[pa.RecordBatch]:
        """Stream `WHOLE_PROMPTS` of the model calls of these inferences."""
        selected = columns(tables.WHOLE_PROMPTS, "toString(inference_id)", "toString(id)", "input_messages")
        return self._dialect.stream(
            f"SELECT {selected} FROM ModelInference WHERE inference_id IN ({self._dialect.chosen})",
            tables.WHOLE_PROMPTS,
            chosen=inference_ids,
        )

    def whole_inputs(self, inference_ids: pa.Table) -> Iterator[pa.RecordBatch]:
        """Stream `WHOLE_INPUTS` of these inferences."""
        return self._dialect.stream(
            " UNION ALL ".join(
                f"SELECT {columns(tables.WHOLE_INPUTS, 'toString(id)', 'input')} FROM {table}"
                f" WHERE id IN ({self._dialect.chosen})"
                for table in ("JsonInference", "ChatInference")
            ),
            tables.WHOLE_INPUTS,
            chosen=inference_ids,
        )
