"""Take secrets and personal data out of a store: the same value becomes the same placeholder everywhere."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trajkit._core.files import refuse_existing
from trajkit.curation.derive import Derivation, deriving
from trajkit.curation.redact_column import Changed, RedactReport, Search, text_columns
from trajkit.curation.redact_pii import ENTITIES, PiiReader
from trajkit.curation.redact_shape import KINDS
from trajkit.curation.redact_text import Finder, Placeholders, word_of
from trajkit.errors import RequestError, StoreError
from trajkit.schema import LineageEntry, Manifest
from trajkit.schema.base import JsonObject
from trajkit.store.engine import first_line
from trajkit.store.layout import TABLES
from trajkit.store.reader import Store
from trajkit.store.writer import StoreWriter

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,40}")
_SHOWN_TO_THE_MODEL = ("messages", "tools", "completion")


class Redacted(NamedTuple):
    """The new store, and what was done."""

    manifest: Manifest | None
    """None when nothing was written."""
    entry: LineageEntry
    report: RedactReport


class Sought(NamedTuple):
    """What is looked for."""

    finder: Finder
    """Everywhere."""
    prose: Finder
    """Where people and models write."""

    def search(self, taken: Mapping[str, int] | None = None) -> Search:
        """A search for it that has found nothing yet."""
        return Search(self.finder, Placeholders(taken), prose=self.prose)


def scan(
    path: str | Path,
    *,
    patterns: Mapping[str, str] | None = None,
    skip: Sequence[str] = (),
    pii: str | None = None,
) -> RedactReport:
    """Say what secrets and personal data stand in a store, by kind and place and never what they are.

    Args:
        path: The store, or `sample:NAME`.
        patterns: More to look for: names of kinds to regular expressions (Python's). The group `value`, else
            the first group, else the whole match is the value.
        skip: Kinds that are not looked for.
        pii: Name or folder of the spaCy model with which presidio looks for names, places and accounts too;
            `none` for its patterns alone, which know no names; None to do without presidio.

    Raises:
        RequestError: A pattern is none or has a name that cannot be, or there is no such kind or model.
        MissingExtra: `pii` is asked for, and presidio is not installed.
        StoreError: The store cannot be read.
    """
    sought = _sought(patterns or {}, skip, pii)
    with deriving(path, verifies_beside=True) as derivation:
        report = _searched(derivation, sought).report()
        derivation.verified()
        return report


def scan_texts(
    texts: Iterable[tuple[str, str]], *, patterns: Mapping[str, str] | None = None
) -> RedactReport:
    """The same for texts that are in no store; JSON is walked.

    Args:
        texts: Each with what to call its place.
        patterns: As `scan` takes them.

    Raises:
        RequestError: A pattern is none or has a name that cannot be.
    """
    search = _sought(patterns or {}, (), None).search()
    for place, text in texts:
        search.text(text, place)
    return search.report()


def redact(
    path: str | Path,
    goal: Path | None,
    *,
    patterns: Mapping[str, str] | None = None,
    skip: Sequence[str] = (),
    pii: str | None = None,
) -> Redacted:
    """Write a store without secrets and personal data: each value becomes a placeholder such as `[EMAIL_1]`.

    All texts are read: messages, tool calls, tags, feedback, ids, and what the manifest says of the source.
    JSON is walked, also where it stands in a text, and only its texts change: it stays valid, and a number
    stays a number. The same value gets the same placeholder in the whole store, and a second pass finds
    nothing. Token ids and log probabilities of texts that changed would give them away, and become null.

    Args:
        path: The store, or `sample:NAME`.
        goal: The folder that exists afterwards; None to count and write nothing.
        patterns: As `scan` takes them. The lineage has their names alone.
        skip: Kinds that stay as they are.
        pii: As `scan` takes it.

    Raises:
        RequestError: A pattern is none or has a name that cannot be, or there is no such kind or model.
        MissingExtra: `pii` is asked for, and presidio is not installed.
        StoreError: `goal` exists, or a store cannot be read or written.
    """
    sought = _sought(patterns or {}, skip, pii)
    arguments: JsonObject = {"patterns": [*sorted(patterns or {})], "skip": [*skip]}
    if pii is not None:
        arguments["pii"] = Path(pii).name
    with deriving(path) as derivation:
        if goal is None:
            report = _searched(derivation, sought).report()
            return Redacted(None, _entry(derivation, arguments, report), report)
        refuse_existing(goal)
        taken: dict[str, int] = {}
        while True:
            search = sought.search(taken)
            manifest = _written(derivation, goal, search, arguments)
            if manifest is not None:
                return Redacted(manifest, manifest.lineage[-1], search.report())
            taken = search.clashes()


def _sought(patterns: Mapping[str, str], skip: Sequence[str], pii: str | None) -> Sought:
    kinds = KINDS if pii is None else (*KINDS, *ENTITIES)
    own = {}
    for name, pattern in patterns.items():
        if not _NAME.fullmatch(name) or word_of(name) in map(word_of, kinds):
            raise RequestError(
                f"a pattern cannot be called {name!r}",
                hint="letters, digits, _ and -, and no kind that there is already",
            )
        try:
            own[name] = re.compile(pattern)
        except re.error as error:  # what the pattern is may be a secret itself
            raise RequestError(f"the pattern {name} is no regular expression: {error.msg}") from None
        if own[name].match(""):
            raise RequestError(f"the pattern {name} fits no text at all", hint="+ in the place of *")
    if unknown := [kind for kind in skip if kind not in kinds]:
        raise RequestError(f"no kind {unknown[0]!r}", hint=f"kinds: {', '.join(kinds)}")
    finder = Finder(own, skip)
    return Sought(finder, finder if pii is None else Finder(own, skip, reader=PiiReader(pii, skip)))


def _entry(derivation: Derivation, arguments: JsonObject, report: RedactReport) -> LineageEntry:
    numbers: JsonObject = dict(report.n_by_kind)
    return derivation.entry(verb="redact", arguments={**arguments, "found": numbers})


def _searched(derivation: Derivation, sought: Sought) -> Search:
    """Everything is read, and nothing written."""
    search = sought.search()
    manifest = derivation.store.manifest
    search.document(manifest.source, "manifest.source")
    for entry in manifest.lineage:
        _lineage(entry, search)
    for part in part_names(derivation.store):
        search_part(derivation.store, part, search)
    return search


def _written(derivation: Derivation, goal: Path, search: Search, arguments: JsonObject) -> Manifest | None:
    """The new store; None, and nothing is left, where a value got a placeholder that was there already."""
    before = derivation.store.manifest
    with StoreWriter(
        goal,
        kind="redact",
        metrics=before.metrics,
        source=search.document(before.source, "manifest.source"),
        as_of=before.as_of,
        split=before.split,
    ) as writer:
        for part in part_names(derivation.store):
            redact_part(derivation.store, part, search, writer, derivation.connection)
        lineage = [_lineage(each, search) for each in before.lineage]
        if search.clashes():
            return None
        return writer.finish(lineage=(*lineage, _entry(derivation, arguments, search.report())))


def _lineage(entry: LineageEntry, search: Search) -> LineageEntry:
    """An entry as it may be told: its arguments and its reasons name what people typed."""
    return LineageEntry.model_validate(search.document(entry.model_dump(mode="json"), "manifest.lineage"))


def part_names(store: Store) -> list[str]:
    """The names of its parts, in order; files of one name in several tables hold the same episodes."""
    return sorted({PurePath(part.path).name for part in store.manifest.parts})


def search_part(store: Store, part: str, search: Search) -> None:
    """Look through all texts of a part and count.

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
    """Write a part without what is found in it. Only episodes that change are hashed again.

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
        chosen = _is_in(before.column("episode_id"), episodes)  # by the id that it had
        kept[table] = before.filter(pa.array(~chosen))
        mine = {name: changed.within(chosen) for name, changed in changes[table].items()}
        connection.register(names[table], _changed(before.filter(pa.array(chosen)), mine))
    writer.keep(kept)
    writer.add(connection, episodes=names["episodes"], steps=names["steps"], feedback=names["feedback"])
    for name in names.values():
        connection.unregister(name)


def _rows(store: Store, table: str, part: str, names: list[str] | None = None) -> pa.Table:
    """The rows of a part, in their order, with JSON as its text; none where the table has no such part."""
    path = store.path / table / part
    try:
        if not path.is_file():
            path = store.parts(table)[0]  # for the columns
            rows = pq.read_schema(path).empty_table()
            rows = rows if names is None else rows.select(names)
        else:
            rows = pq.read_table(path, columns=names, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path} could not be read: {first_line(error)}") from error
    for place, field in enumerate(rows.schema):
        if isinstance(field.type, pa.BaseExtensionType):
            chunks: Any = rows.column(place).chunks
            texts: Any = [chunk.storage for chunk in chunks]
            kind: Any = field.type.storage_type  # a table without rows has no chunks to tell
            rows = rows.set_column(place, field.name, pa.chunked_array(texts, kind))
    return rows


def _changes(rows: pa.Table, table: str, search: Search) -> dict[str, Changed]:
    found = {
        column.name: search.column(rows.column(column.name), table, column) for column in text_columns(table)
    }
    return {name: changed for name, changed in found.items() if changed is not None}


def _episodes(rows: Mapping[str, pa.Table], changes: Mapping[str, Mapping[str, Changed]]) -> pa.Array[Any]:
    """The episodes in which anything changes, by their old ids."""
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
    """Token ids and log probabilities, which would give the texts away: where those changed they are gone."""
    shown = [changes[name] for name in _SHOWN_TO_THE_MODEL if name in changes]
    if not shown or "prompt_token_ids" not in rows.schema.names:
        return {}
    episodes = rows.column("episode_id")
    # prompts go on from step to step
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
