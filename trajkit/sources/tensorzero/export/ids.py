"""Convert ids of rows, which a database streams as texts or as bytes (`tables.INFERENCES_OF_BYTES`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

import pyarrow as pa


def texts_of(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> list[str]:
    """The ids of a column without nulls, as they are spelled."""
    return [str(row_id) for row_id in column.to_pylist()]


def ids_as(texts: Sequence[str], kind: pa.DataType) -> pa.Array[Any]:
    """The same as a column of a type: texts, or `pa.uuid()`."""
    if isinstance(kind, pa.UuidType):
        storage = pa.array([UUID(text).bytes for text in texts], kind.storage_type)
        return cast("pa.Array[Any]", pa.ExtensionArray.from_storage(kind, storage))
    return cast("pa.Array[Any]", pa.array(texts, kind))
