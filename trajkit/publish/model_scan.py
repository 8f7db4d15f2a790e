"""What a search finds in the texts of a model: card, settings, tokenizer, what is said of weights."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from trajkit.curate.redact import scan_texts
from trajkit.curate.redact_report import RedactReport
from trajkit.errors import DataError

_WEIGHTS = ".safetensors"
_MOST_HEADER = 100_000_000
"""Bytes; the format allows no more."""


def scan_model(
    folder: Path, names: Iterable[str], *, patterns: Mapping[str, str] | None = None
) -> RedactReport:
    """Search the files of a model as stores are searched; of weights the metadata in front of them.

    Args:
        folder: Has the files.
        names: Those that would be published.
        patterns: More that must not be published: names to regular expressions.

    Raises:
        RequestError: A pattern is none.
        DataError: A file of weights is damaged.
    """
    return scan_texts(
        ((name, text) for name in sorted(names) for text in _texts(folder / name)), patterns=patterns
    )


def model_texts(folder: Path, names: Iterable[str]) -> Iterator[str]:
    """The texts that `scan_model` searches."""
    for name in sorted(names):
        yield from _texts(folder / name)


def _texts(path: Path) -> Iterator[str]:
    if path.suffix == _WEIGHTS:
        if metadata := _metadata(path):
            yield json.dumps(metadata, ensure_ascii=False)
        return
    data = path.read_bytes()
    if b"\0" not in data:  # a tokenizer may be binary
        yield data.decode("utf-8", "replace")


def _metadata(path: Path) -> dict[str, str]:
    """What a file of safetensors says of itself, before its tensors."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = file.read(size) if size <= _MOST_HEADER else b""
    try:
        value = json.loads(header)
        return dict(value.get("__metadata__") or {})
    except (ValueError, AttributeError, TypeError):
        raise DataError(f"{path.name} is damaged: it does not begin as safetensors do") from None
