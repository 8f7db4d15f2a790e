"""Replace secrets and personal data in a store: a value gets the same placeholder everywhere."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trajkit._core.address import readable
from trajkit._core.division import own_folder
from trajkit._core.files import refuse_existing, sha256_file
from trajkit.curation.derive import MOST_SHARDS, Derivation, deriving
from trajkit.curation.redaction.column import (
    Changed,
    Findings,
    RedactReport,
    Search,
    save_table,
    text_columns,
)
from trajkit.curation.redaction.pii import ENTITIES, PiiReader
from trajkit.curation.redaction.shape import KINDS
from trajkit.curation.redaction.text import Finder, Placeholders, word_of
from trajkit.engines.engine import Engine
from trajkit.errors import RequestError, StoreError
from trajkit.schema import LineageEntry, Manifest
from trajkit.schema.base import JsonObject
from trajkit.store.engine import connect, first_line
from trajkit.store.layout import TABLES
from trajkit.store.reader import Store, open_store
from trajkit.store.writer import StoreWriter

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,40}")
_SHOWN_TO_THE_MODEL = ("messages", "tools", "completion")
_MOST_TIMES = 10
"""Maximum tries to write a store whose placeholders have the numbers that a search in it gives."""


class Redacted(NamedTuple):
    """The new store, its lineage entry and the counts."""

    manifest: Manifest | None
    """None if nothing was written."""
    entry: LineageEntry
    report: RedactReport


Begin = Callable[..., Search]
"""Begins a search; the numbers of some values may be given."""


def scan(
    path: str | Path,
    *,
    patterns: Mapping[str, str] | None = None,
    skip: Sequence[str] = (),
    pii: str | None = None,
) -> RedactReport:
    """Report secrets and personal data of a store by kind and place, without their values.

    Args:
        path: The store, or `sample:NAME`.
        patterns: Additional patterns: names of kinds to Python regular expressions. The value is the group
            `value`, else the first group, else the whole match.
        skip: Kinds that are not looked for.
        pii: Name or folder of the spaCy model with which presidio also finds names, places and accounts;
            `none` for presidio's patterns alone, which find no names; None to do without presidio.

    Raises:
        RequestError: A pattern or its name is invalid, or a kind or the model does not exist.
        MissingExtra: `pii` is given, and presidio is not installed.
        StoreError: The store cannot be read.
    """
    begin = _sought(patterns or {}, skip, pii)
    with deriving(path, verifies_beside=True) as derivation:
        report = _searched(derivation, begin).report()
        derivation.verified()
        return report


def scan_texts(
    texts: Iterable[tuple[str, str]], *, patterns: Mapping[str, str] | None = None
) -> RedactReport:
    """Report secrets and personal data of texts outside a store; strings in JSON are searched one by one.

    Args:
        texts: Each with a name for its place.
        patterns: As in `scan`.

    Raises:
        RequestError: A pattern or its name is invalid.
    """
    search = _sought(patterns or {}, (), None)()
    for place, text in texts:
        search.text(text, place)
    return search.findings.report()


def redact(
    path: str | Path,
    goal: Path | None,
    *,
    patterns: Mapping[str, str] | None = None,
    pattern_file: Path | None = None,
    skip: Sequence[str] = (),
    pii: str | None = None,
    engine: Engine | None = None,
) -> Redacted:
    """Write a store without secrets and personal data: each value becomes a placeholder such as `[EMAIL_1]`.

    All texts are read: messages, tool calls, tags, feedback, ids, and the manifest's source and lineage. JSON
    stays valid, also inside a text: only its strings change, and numbers stay numbers. A value gets the same
    placeholder in the whole store, and a second run finds nothing. Token ids and log-probabilities of changed
    texts would reveal them, and become null.

    Args:
        path: The store, or `sample:NAME`.
        goal: The folder to write; None only counts.
        patterns: As in `scan`. The lineage contains only their names.
        pattern_file: A file of more patterns, as `read_patterns` takes it.
        skip: Kinds that stay as they are.
        pii: As in `scan`.
        engine: Searches and writes the parts of the store; None for this process.

    Raises:
        RequestError: A pattern or its name is invalid, a kind or the model does not exist, or an engine is to
            keep `patterns` in its files.
        MissingExtra: `pii` is given, and presidio is not installed.
        StoreError: `goal` exists, or a store cannot be read or written.
    """
    if engine is not None and patterns:
        raise RequestError(
            "a pattern may be secret, and --on writes the options of its shards to files",
            hint="put it into a file that the workers see: --pattern-file FILE",
        )
    own = {**(patterns or {}), **({} if pattern_file is None else read_patterns(pattern_file))}
    begin = _sought(own, skip, pii)
    arguments: JsonObject = {"pattern": dict.fromkeys(sorted(own)), "skip": [*skip]}
    if pii is not None:
        arguments["pii_model"] = Path(pii).name
    with deriving(path, engine=engine, goal=goal) as derivation:
        asked: dict[str, Any] = {"skip": [*skip], "pii": pii}
        if pattern_file is not None:
            asked |= {"pattern_file": str(pattern_file.absolute()), "sha256": sha256_file(pattern_file)}
        shards = None if engine is None else _Shards(derivation, asked)
        if goal is None:
            report = _searched(derivation, begin, shards).report()
            return Redacted(None, _entry(derivation, arguments, report), report)
        refuse_existing(goal)
        numbers = {} if shards is None else _searched(derivation, begin, shards).numbers()
        for _ in range(_MOST_TIMES):
            search = begin(numbers)
            manifest = _written(derivation, goal, search, arguments, shards)
            if manifest is not None:
                return Redacted(manifest, manifest.lineage[-1], search.findings.report())
            numbers = search.findings.numbers()
        raise RequestError(
            f"the placeholders of {path} get other numbers each time: a pattern depends on their numbers",
            hint="write patterns that do not match [WORD_1]",
        )


def read_patterns(file: Path) -> dict[str, str]:
    """Return the patterns of a file: NAME=REGEX on each line; a line that begins with # is ignored.

    Raises:
        RequestError: The file cannot be read, or a line is something else.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{file} cannot be read: {error}") from error
    patterns = {}
    for number, line in enumerate(lines, start=1):
        name, equals, pattern = line.partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not equals or not name.strip():
            raise RequestError(f"{file} line {number} is not NAME=REGEX")
        patterns[name.strip()] = pattern.strip()
    return patterns


def _sought(patterns: Mapping[str, str], skip: Sequence[str], pii: str | None) -> Begin:
    kinds = KINDS if pii is None else (*KINDS, *ENTITIES)
    own = {}
    for name, pattern in patterns.items():
        if not _NAME.fullmatch(name) or word_of(name) in map(word_of, kinds):
            raise RequestError(
                f"a pattern cannot be called {name!r}",
                hint="letters, digits, _ and -, and not the name of a built-in kind",
            )
        try:
            own[name] = re.compile(pattern)
        except re.error as error:  # the pattern itself may be a secret
            raise RequestError(f"the pattern {name} is not a regular expression: {error.msg}") from None
        if own[name].match(""):
            raise RequestError(f"the pattern {name} matches empty text", hint="use + instead of *")
    if unknown := [kind for kind in skip if kind not in kinds]:
        raise RequestError(f"no kind {unknown[0]!r}", hint=f"kinds: {', '.join(kinds)}")
    finder = Finder(own, skip)
    prose = finder if pii is None else Finder(own, skip, reader=PiiReader(pii, skip))
    return lambda numbers=None: Search(finder, Placeholders(numbers), prose=prose)


def _entry(derivation: Derivation, arguments: JsonObject, report: RedactReport) -> LineageEntry:
    numbers: JsonObject = dict(report.n_by_kind)
    return derivation.entry(verb="redact", arguments={**arguments, "result": {"found": numbers}})


def _searched(derivation: Derivation, begin: Begin, shards: _Shards | None = None) -> Findings:
    """Search the whole store without writing."""
    search = begin()
    manifest = derivation.store.manifest
    search.document(manifest.source, "manifest.source")
    if shards is not None:
        shards.search(search)
    else:
        for part in part_names(derivation.store):
            search_part(derivation.store, part, search)
    for entry in manifest.lineage:
        _lineage(entry, search)
    return search.findings


def _written(
    derivation: Derivation, goal: Path, search: Search, arguments: JsonObject, shards: _Shards | None
) -> Manifest | None:
    """Write the new store; None, and no store, if the values turn out to have other numbers.

    An earlier placeholder may have the number of a new one, and a pattern of a user may match another text
    beside another placeholder.
    """
    before = derivation.store.manifest
    with StoreWriter(
        goal,
        kind="redact",
        metrics=before.metrics,
        source=search.document(before.source, "manifest.source"),
        as_of=before.as_of,
        split=before.split,
    ) as writer:
        if shards is not None:
            shards.write(search, writer)
        else:
            for part in part_names(derivation.store):
                redact_part(derivation.store, part, search, writer, derivation.connection)
        lineage = [_lineage(each, search) for each in before.lineage]
        if search.placeholders.numbers != search.findings.numbers():
            return None
        entry = _entry(derivation, arguments, search.findings.report())
        return writer.finish(lineage=(*lineage, entry), connection=derivation.connection)


class _Shards:
    """Searches and writes the parts of a store by an engine.

    All parts are searched first: a value's number depends on the parts before it. Then the parts in which
    something was found are searched again and written. What goes from process to process is hashes and
    counts, never a value.

    Args:
        derivation: The store and the engine.
        asked: What the finders depend on.
    """

    def __init__(self, derivation: Derivation, asked: Mapping[str, Any]) -> None:
        self._derivation = derivation
        self._common = {**asked, **derivation.task}
        self._parts = part_names(derivation.store)
        self._findings: dict[str, Findings] = {}

    def search(self, search: Search) -> None:
        """Search all parts."""
        self._map(search_parts, self._parts, search)

    def write(self, search: Search, writer: StoreWriter) -> None:
        """Write all parts with the placeholders of a search."""
        folder = self._derivation.folder
        numbers = search.placeholders.numbers
        kinds, keys = [kind for kind, _ in numbers], [key for _, key in numbers]
        rows: dict[str, list[Any]] = {"kind": kinds, "key": keys, "number": list(numbers.values())}
        changed = [part for part in self._parts if self._findings[part].found]
        for part in self._parts:
            if part not in changed:
                writer.copy(self._derivation.store, part)
        for name in self._map(redact_parts, changed, search, numbers=save_table(rows, folder)):
            writer.copy(open_store(folder / name), is_linked=True)

    def _map(
        self, function: Callable[[Any], dict[str, Any]], parts: Sequence[str], search: Search, **facts: str
    ) -> list[str]:
        """Call a function with some of the parts at a time, and return the stores that it wrote.

        What was found in any part, now or before, is added to a search.
        """
        engine, folder = self._derivation.engine, self._derivation.folder
        assert engine is not None
        size = math.ceil(len(parts) / MOST_SHARDS)
        groups = [list(parts[at : at + size]) for at in range(0, len(parts), size)] if parts else []
        items = [{**self._common, **facts, "parts": group} for group in groups]
        results = dict(engine.map(function, items, what="redact", folder=folder)) if items else {}
        for index, group in enumerate(groups):
            for part, found in zip(group, results[index]["findings"], strict=True):
                self._findings[part] = Findings.read(folder, found)
        for part in self._parts:
            search.findings.add(self._findings[part])
        return [results[index]["store"] for index in range(len(groups)) if "store" in results[index]]


def search_parts(item: dict[str, Any]) -> dict[str, Any]:
    """Search some parts of a store: a task of an engine."""
    store, begin, findings = open_store(item["store"]), _sought_by(item), []
    for part in item["parts"]:
        search = begin()
        search_part(store, part, search)
        findings.append(search.findings.save(Path(item["folder"])))
    return {"findings": findings}


def redact_parts(item: dict[str, Any]) -> dict[str, Any]:
    """Write some parts of a store into a new store, and return its name: a task of an engine."""
    store, begin, findings = open_store(item["store"]), _sought_by(item), []
    folder = Path(item["folder"])
    rows = pq.read_table(folder / item["numbers"]).to_pylist()
    numbers = {(row["kind"], row["key"]): row["number"] for row in rows}
    goal = own_folder(folder, "shard") / "store"
    with (
        connect(threads=1) as connection,
        StoreWriter(goal, kind="redact", metrics=store.manifest.metrics) as writer,
    ):
        for part in item["parts"]:
            search = begin(numbers)
            redact_part(store, part, search, writer, connection)
            findings.append(search.findings.save(folder))
        writer.finish(connection=connection)
    return {"findings": findings, "store": str(goal.relative_to(folder))}


def _sought_by(item: Mapping[str, Any]) -> Begin:
    """Return the start of the search of an engine's task."""
    file = item.get("pattern_file")
    return _known_sought(file, item.get("sha256"), tuple(item["skip"]), item["pii"])


@functools.cache  # a language model takes seconds to load, and a process runs many tasks
def _known_sought(file: str | None, _sha256: str | None, skip: tuple[str, ...], pii: str | None) -> Begin:
    return _sought({} if file is None else read_patterns(Path(file)), skip, pii)


def _lineage(entry: LineageEntry, search: Search) -> LineageEntry:
    """Redact a lineage entry: its arguments and reasons contain what users typed."""
    return LineageEntry.model_validate(search.document(entry.model_dump(mode="json"), "manifest.lineage"))


def part_names(store: Store) -> list[str]:
    """Return the names of a store's parts, in order; equal names in several tables hold the same episodes."""
    return sorted({PurePath(part.path).name for part in store.manifest.parts})


def search_part(store: Store, part: str, search: Search) -> None:
    """Search all texts of a part and count.

    Raises:
        StoreError: A file cannot be read.
    """
    for table in TABLES:
        columns = text_columns(table)
        rows = _rows(store, table, part, [column.name for column in columns])
        for column in columns:
            search.column(rows.column(column.name), table, column)


def redact_part(
    store: Store, part: str, search: Search, writer: StoreWriter, connection: duckdb.DuckDBPyConnection
) -> None:
    """Write a part with placeholders. Only episodes that change are hashed again.

    Raises:
        StoreError: A file cannot be read or written.
    """
    rows = {table: _rows(store, table, part) for table in TABLES}
    changes = {table: _changes(rows[table], table, search) for table in TABLES}
    if not any(changes.values()):
        writer.copy(store, part)
        return
    episodes = _episodes(rows, changes)
    kept = {}
    names = {table: f"trajkit_redacted_{table}" for table in TABLES}
    for table, before in rows.items():
        chosen = _is_in(before.column("episode_id"), episodes)  # by the old id
        kept[table] = before.filter(pa.array(~chosen))
        mine = {name: changed.within(chosen) for name, changed in changes[table].items()}
        connection.register(names[table], _changed(before.filter(pa.array(chosen)), mine))
    writer.keep(kept)
    writer.add(connection, episodes=names["episodes"], steps=names["steps"], feedback=names["feedback"])
    for name in names.values():
        connection.unregister(name)


def _rows(store: Store, table: str, part: str, names: list[str] | None = None) -> pa.Table:
    """Return the rows of a part in order, with JSON as text; no rows if the table has no such part."""
    path = store.path / table / part
    try:
        if not path.is_file():
            path = store.parts(table)[0]  # for the columns
            rows = pq.read_schema(readable(path)).empty_table()
            rows = rows if names is None else rows.select(names)
        else:
            rows = pq.read_table(readable(path), columns=names, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path} could not be read: {first_line(error)}") from error
    for place, field in enumerate(rows.schema):
        if isinstance(field.type, pa.BaseExtensionType):
            chunks: Any = rows.column(place).chunks
            texts: Any = [chunk.storage for chunk in chunks]
            kind: Any = field.type.storage_type  # a table without rows has no chunks with a type
            rows = rows.set_column(place, field.name, pa.chunked_array(texts, kind))
    return rows


def _changes(rows: pa.Table, table: str, search: Search) -> dict[str, Changed]:
    found = {
        column.name: search.column(rows.column(column.name), table, column) for column in text_columns(table)
    }
    return {name: changed for name, changed in found.items() if changed is not None}


def _episodes(rows: Mapping[str, pa.Table], changes: Mapping[str, Mapping[str, Changed]]) -> pa.Array[Any]:
    """Return the old ids of the episodes in which anything changes."""
    found = [
        rows[table].column("episode_id").filter(pa.array(_any(changed.values()))).combine_chunks()
        for table, changed in changes.items()
        if changed
    ]
    return pa.concat_arrays(found).unique()


def _changed(rows: pa.Table, changes: Mapping[str, Changed]) -> pa.Table:
    made = {name: changed.applied(rows.column(name)) for name, changed in changes.items()}
    for name, values in {**made, **_without_tokens(rows, changes)}.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, values)
    return rows


def _without_tokens(rows: pa.Table, changes: Mapping[str, Changed]) -> dict[str, Any]:
    """Return columns of token ids and log-probabilities, null for changed texts, which they would reveal."""
    shown = [changes[name] for name in _SHOWN_TO_THE_MODEL if name in changes]
    if not shown or "prompt_token_ids" not in rows.schema.names:
        return {}
    episodes = rows.column("episode_id")
    # a prompt contains the earlier steps
    gone = {"prompt_token_ids": _is_in(episodes, episodes.filter(pa.array(_any(shown))).unique())}
    if "completion" in changes:
        answered = changes["completion"].rows
        gone |= {"completion_token_ids": answered, "logprobs": answered}
    made: dict[str, Any] = {}
    for name, mask in gone.items():
        column = rows.column(name).combine_chunks()
        made[name] = pc.if_else(pa.array(mask), pa.scalar(None, column.type), column)
    return made


def _any(changes: Iterable[Changed]) -> npt.NDArray[np.bool_]:
    return functools.reduce(np.logical_or, (each.rows for each in changes))


def _is_in(values: pa.ChunkedArray[Any], chosen: Any) -> npt.NDArray[np.bool_]:
    found: Any = pc.is_in(values, value_set=chosen)
    return np.asarray(found.to_numpy())
