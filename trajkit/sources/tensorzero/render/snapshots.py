"""Choose the configuration that renders a prompt: its row's, else the newest with the variant, or a file."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from trajkit.errors import ConfigError, QueryError
from trajkit.sources.tensorzero.render.config import Configuration, from_snapshot
from trajkit.sources.tensorzero.render.engine import Engine
from trajkit.sources.tensorzero.render.files import from_file
from trajkit.sources.tensorzero.render.prompt import Renderer


class TemplateSource:
    """The configurations that prompts can be rendered with.

    Args:
        snapshots: Those that the database holds (`tables.SNAPSHOTS`), the one used last at the end.
        file: A `tensorzero.toml` that replaces all of them; None for none.

    Raises:
        ConfigError: The file cannot be used.
    """

    def __init__(self, snapshots: Iterable[pa.RecordBatch], file: Path | None) -> None:
        self._file = None if file is None else _Opened(from_file(file))
        self._rows = {} if file is not None else dict(_rows(snapshots))
        self._opened: dict[str, _Opened | None] = {}
        self._renderers: dict[tuple[str | None, str, str], Renderer | None] = {}

    def check(self, functions: Iterable[str], variant: str) -> None:
        """Raise unless each function has the variant in a configuration, and templates that can be read.

        Raises:
            QueryError: A function does not have the variant.
            ConfigError: The variant has no templates of its own, or one of them is missing.
        """
        if self._file is None and not self._rows:
            raise QueryError(
                "the database holds no configuration, so its templates are unknown",
                hint="--config names the gateway's tensorzero.toml",
            )
        for function in functions:
            if self.renderer(None, function, variant) is None:
                known = sorted(
                    {name for one in self._newest_first() for name in one.declared.variants(function)}
                )
                raise QueryError(
                    f"function {function!r} has no variant {variant!r} to render its prompts with",
                    hint=f"it has {', '.join(known)}" if known else "--config names its tensorzero.toml",
                )

    def renderer(self, snapshot_hash: str | None, function: str, variant: str) -> Renderer | None:
        """The renderer of a function's prompts; None when no configuration declares that variant.

        The configuration is that of the row, or, if it lacks the variant, the newest one with it.

        Raises:
            ConfigError: The variant has no templates of its own, or one of them is missing.
        """
        key = (snapshot_hash, function, variant)
        if key not in self._renderers:
            self._renderers[key] = self._make(snapshot_hash, function, variant)
        return self._renderers[key]

    def _make(self, snapshot_hash: str | None, function: str, variant: str) -> Renderer | None:
        own = None if snapshot_hash is None or self._file is not None else self._open(snapshot_hash)
        if own is not None and variant in own.declared.variants(function):
            return Renderer(own.engine, own.declared.variant(function, variant))
        if snapshot_hash is not None:
            return self.renderer(None, function, variant)
        for one in self._newest_first():
            if variant in one.declared.variants(function):
                return Renderer(one.engine, one.declared.variant(function, variant))
        return None

    def _newest_first(self) -> Iterator[_Opened]:
        if self._file is not None:
            yield self._file
        for snapshot_hash in reversed(self._rows):
            if (opened := self._open(snapshot_hash)) is not None:
                yield opened

    def _open(self, snapshot_hash: str) -> _Opened | None:
        if snapshot_hash not in self._opened:
            row = self._rows.get(snapshot_hash)
            self._opened[snapshot_hash] = None if row is None else _opened(snapshot_hash, row)
        return self._opened[snapshot_hash]


class _Opened:
    """A configuration and the engine that renders its templates."""

    def __init__(self, declared: Configuration) -> None:
        self.declared = declared

    @functools.cached_property
    def engine(self) -> Engine:
        return Engine(self.declared.load)


class _Packed(NamedTuple):
    """A snapshot as it waits: a configuration is some 100 kB, most of it the same in each."""

    config: bytes
    templates: dict[str, str]


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, _Packed]]:
    for batch in batches:
        for row in batch.to_pylist():
            config = zlib.compress(row["config"].encode())
            yield row["snapshot_hash"], _Packed(config, dict(row["templates"] or ()))


def _opened(snapshot_hash: str, row: _Packed) -> _Opened | None:
    """Return a snapshot; None when it cannot be read, which does not fail an export."""
    text = zlib.decompress(row.config).decode()
    try:
        return _Opened(from_snapshot(f"configuration {snapshot_hash[:12]}", text, row.templates))
    except ConfigError:
        return None
