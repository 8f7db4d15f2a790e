"""What a search finds in the files that are about to be published: in their texts, and in every name.

The texts of a store are searched in the store itself, where its columns tell what they are. Of its Parquet
files the rest is searched here: names of columns and metrics, and columns that hold words of trajkit's own.
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
from trajkit.curation.redact_column import RedactReport, text_columns
from trajkit.errors import DataError
from trajkit.store.layout import CONTENT_HASH, TABLES

_MOST_HEADER = 100_000_000
"""Bytes of what stands in front of weights; the format allows no more."""
_NAMES = "names of files"
_SEARCHED = frozenset(column.name for table in TABLES for column in text_columns(table)) | {CONTENT_HASH.name}


def scan_files(
    folder: Path, names: Iterable[str], *, patterns: Mapping[str, str] | None = None
) -> RedactReport:
    """Search files as stores are searched: their texts, what is said in front of weights, and all names.

    Args:
        folder: Has the files.
        names: Those that would be published.
        patterns: More that must not be published: names to regular expressions.

    Raises:
        RequestError: A pattern is none.
        DataError: A file of weights is damaged.
    """
    names = sorted(names)
    named = scan_texts(
        ((_NAMES, text) for name in names for text in (name, *_names_in_file(folder / name))),
        patterns=patterns,
    )
    # a name that is a secret itself is not told as a place
    within = scan_texts(
        (("a file" if named.n_found else name, text) for name in names for text in _texts_of(folder / name)),
        patterns=patterns,
    )
    return RedactReport(
        found=(*named.found, *within.found), n_texts=within.n_texts, n_bytes=named.n_bytes + within.n_bytes
    )


def file_texts(folder: Path, names: Iterable[str]) -> Iterator[str]:
    """The texts that `scan_files` searches."""
    for name in sorted(names):
        yield from (name, *_names_in_file(folder / name), *_texts_of(folder / name))


def with_environment(patterns: Mapping[str, str]) -> dict[str, str]:
    """Patterns, and the keys of this machine's environment: none of them may be in anything that is sent."""
    keys = "|".join(map(re.escape, environment_keys()))
    return {**patterns, **({"key-of-this-environment": keys} if keys else {})}


def _texts_of(path: Path) -> Iterator[str]:
    """The text of a file; of weights what is said in front of them."""
    if path.suffix == ".safetensors":
        if said := _header(path).get("__metadata__"):
            yield json.dumps(said, ensure_ascii=False)
    elif path.suffix != ".parquet":  # a tokenizer may be binary
        yield path.read_bytes().replace(b"\0", b"\n").decode("utf-8", "replace")


def _names_in_file(path: Path) -> Iterator[str]:
    """Names of tensors, or of columns at any depth, and words in columns that are not searched as texts."""
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
    """What stands in front of the tensors of a file of safetensors: their names, and what else was said."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = file.read(size) if size <= _MOST_HEADER else b""
    try:
        value = dict(json.loads(header))
        value["__metadata__"] = dict(value.get("__metadata__") or {})
    except (ValueError, TypeError, RecursionError):
        raise DataError(f"{path.name} is damaged: it does not begin as safetensors do") from None
    return value
