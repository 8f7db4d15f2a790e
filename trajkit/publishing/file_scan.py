"""Search the files to publish for secrets: their texts, and all names.

The texts of a store are searched in the store itself, where the meaning of each column is known. This module
searches the rest of its Parquet files: names of columns and metrics, and columns with trajkit's own words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trajkit._core.secrets import environment_keys
from trajkit.curation.redact import scan_texts
from trajkit.curation.redaction.column import RedactReport, text_columns
from trajkit.errors import DataError
from trajkit.store.layout import CONTENT_HASH, TABLES

_MOST_HEADER = 100_000_000
"""Maximum bytes of a safetensors header in the format."""
_NAMES = "names of files"
_SEARCHED = frozenset(column.name for table in TABLES for column in text_columns(table)) | {CONTENT_HASH.name}


def scan_files(
    folder: Path, names: Iterable[str], *, patterns: Mapping[str, str] | None = None
) -> RedactReport:
    """Search files with the rules for stores: their texts, the headers of weights, and all names.

    Args:
        folder: Folder of the files.
        names: Files that would be published.
        patterns: Further patterns to search for: names to regular expressions.

    Raises:
        RequestError: A pattern is not a regular expression.
        DataError: A file of weights is damaged.
    """
    names = sorted(names)
    named = scan_texts(
        ((_NAMES, text) for name in names for text in (name, *_names_in_file(folder / name))),
        patterns=patterns,
    )
    # a file name that is a secret itself is not shown as the place of a finding
    within = scan_texts(
        (("a file" if named.n_found else name, text) for name in names for text in _texts_of(folder / name)),
        patterns=patterns,
    )
    return RedactReport(
        found=(*named.found, *within.found), n_texts=within.n_texts, n_bytes=named.n_bytes + within.n_bytes
    )


def file_texts(folder: Path, names: Iterable[str]) -> Iterator[str]:
    """Return the texts that `scan_files` searches."""
    for name in sorted(names):
        yield from (name, *_names_in_file(folder / name), *_texts_of(folder / name))


def with_environment(patterns: Mapping[str, str]) -> dict[str, str]:
    """Add a pattern of the keys in this machine's environment, which must not be published."""
    keys = "|".join(map(re.escape, environment_keys()))
    return {**patterns, **({"key-of-this-environment": keys} if keys else {})}


def _texts_of(path: Path) -> Iterator[str]:
    """Return the text of a file; for weights, the metadata in their header."""
    if path.suffix == ".safetensors":
        if metadata := _header(path).get("__metadata__"):
            yield json.dumps(metadata, ensure_ascii=False)
    elif path.suffix != ".parquet":  # a tokenizer may be binary
        yield path.read_bytes().replace(b"\0", b"\n").decode("utf-8", "replace")


def _names_in_file(path: Path) -> Iterator[str]:
    """Return names of tensors, names of columns at any depth, and values of columns that are not texts."""
    if path.suffix == ".safetensors":
        yield from _header(path)
    elif path.suffix == ".parquet":
        with pq.ParquetFile(path) as file:
            yield from {name for field in file.schema_arrow for name in _names_in(field)}
            for field in file.schema_arrow:
                if field.name not in _SEARCHED and pa.types.is_string(field.type):
                    values: Any = file.read(columns=[field.name]).column(0).unique()
                    yield from filter(None, values.to_pylist())


def _names_in(field: Any) -> Iterator[str]:
    yield field.name
    if pa.types.is_nested(field.type):
        for place in range(field.type.num_fields):
            yield from _names_in(field.type.field(place))


def _header(path: Path) -> dict[str, Any]:
    """Read the header of a safetensors file: names of tensors, and metadata."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = file.read(size) if size <= _MOST_HEADER else b""
    try:
        value = dict(json.loads(header))
        value["__metadata__"] = dict(value.get("__metadata__") or {})
    except (ValueError, TypeError, RecursionError):
        raise DataError(f"{path.name} is damaged: it does not begin as safetensors do") from None
    return value
