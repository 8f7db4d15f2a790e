"""Take secrets and personal data out of a store: the same value becomes the same placeholder everywhere."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trajkit._files import refuse_existing
from trajkit.curate.derive import Derivation, deriving
from trajkit.curate.redact_column import Search, text_columns
from trajkit.curate.redact_report import RedactReport
from trajkit.curate.redact_shape import KINDS
from trajkit.curate.redact_text import Finder, Placeholders, word_of
from trajkit.errors import RequestError
from trajkit.schema import LineageEntry, Manifest
from trajkit.schema.base import JsonObject
from trajkit.store.engine import literal
from trajkit.store.layout import TABLES, quoted
from trajkit.store.writer import StoreWriter

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,40}")
_PLACEHOLDER = r"\[[A-Z][A-Z0-9_]*_[0-9]{1,18}\]"
_SHOWN_TO_THE_MODEL = ("messages", "tools", "completion")


class Redacted(NamedTuple):
    """The new store, and what was done."""

    manifest: Manifest | None
    """None when nothing was written."""
    entry: LineageEntry
    report: RedactReport


def scan(
    path: str | Path, *, patterns: Mapping[str, str] | None = None, skip: Sequence[str] = ()
) -> RedactReport:
    """Say what secrets and personal data stand in a store, by kind and place and never what they are.

    Args:
        path: The store, or `sample:NAME`.
        patterns: More to look for: names of kinds to regular expressions (Python's). The group `value`, else
            the first group, else the whole match is the value.
        skip: Kinds that are not looked for.

    Raises:
        RequestError: A pattern is none or has a name that cannot be, or there is no such kind.
        StoreError: The store cannot be read.
    """
    finder = _finder(patterns or {}, skip)
    with deriving(path, verifies_beside=True) as derivation:
        report = _searched(derivation, finder).report()
        derivation.verified()
        return report


def redact(
    path: str | Path,
    goal: Path | None,
    *,
    patterns: Mapping[str, str] | None = None,
    skip: Sequence[str] = (),
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

    Raises:
        RequestError: A pattern is none or has a name that cannot be, or there is no such kind.
        StoreError: `goal` exists, or a store cannot be read or written.
    """
    finder = _finder(patterns or {}, skip)
    arguments: JsonObject = {"patterns": [*sorted(patterns or {})], "skip": [*skip]}
    with deriving(path) as derivation:
        if goal is None:
            report = _searched(derivation, finder).report()
            return Redacted(None, _entry(derivation, arguments, report), report)
        refuse_existing(goal)
        search = Search(finder, Placeholders(_taken(derivation)))
        before = derivation.store.manifest
        with StoreWriter(
            goal,
            kind="redact",
            metrics=before.metrics,
            source=search.document(before.source, "manifest.source"),
            as_of=before.as_of,
            split=before.split,
        ) as writer:
            for part in derivation.parts():
                _write_part(derivation, writer, search, part)
            lineage = [_lineage(each, search) for each in before.lineage]
            report = search.report()
            manifest = writer.finish(lineage=(*lineage, _entry(derivation, arguments, report)))
        return Redacted(manifest, manifest.lineage[-1], report)


def _finder(patterns: Mapping[str, str], skip: Sequence[str]) -> Finder:
    own = {}
    for name, pattern in patterns.items():
        if not _NAME.fullmatch(name) or word_of(name) in map(word_of, KINDS):
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
    if unknown := [kind for kind in skip if kind not in KINDS]:
        raise RequestError(f"no kind {unknown[0]!r}", hint=f"kinds: {', '.join(KINDS)}")
    return Finder(own, skip)


def _entry(derivation: Derivation, arguments: JsonObject, report: RedactReport) -> LineageEntry:
    numbers: JsonObject = dict(report.n_by_kind)
    return derivation.entry(verb="redact", arguments={**arguments, "found": numbers})


def _searched(derivation: Derivation, finder: Finder) -> Search:
    """Everything is read, and nothing written."""
    search = Search(finder, Placeholders())
    manifest = derivation.store.manifest
    search.document(manifest.source, "manifest.source")
    for entry in manifest.lineage:
        _lineage(entry, search)
    for part in derivation.parts():
        for table in TABLES:
            columns = text_columns(table)
            rows = _rows(derivation, table, part, [column.name for column in columns])
            for column in columns:
                search.column(rows.column(column.name), table, column)
    return search


def _lineage(entry: LineageEntry, search: Search) -> LineageEntry:
    """An entry as it may be told: its arguments and its reasons name what people typed."""
    return LineageEntry.model_validate(search.document(entry.model_dump(mode="json"), "manifest.lineage"))


def _write_part(derivation: Derivation, writer: StoreWriter, search: Search, part: str) -> None:
    names = {}
    for table in TABLES:
        rows = _rows(derivation, table, part)
        changed = {}
        for column in text_columns(table):
            made = search.column(rows.column(column.name), table, column)
            if made is not None:
                changed[column.name] = made
        for name, values in _without_tokens(rows, changed).items():
            rows = rows.set_column(rows.schema.get_field_index(name), name, values)
        names[table] = f"trajkit_redacted_{table}"
        derivation.connection.register(names[table], rows)
    writer.add(
        derivation.connection, episodes=names["episodes"], steps=names["steps"], feedback=names["feedback"]
    )
    for name in names.values():
        derivation.connection.unregister(name)


def _rows(derivation: Derivation, table: str, part: str, names: Sequence[str] | None = None) -> pa.Table:
    """The rows of a part, with JSON as its text."""
    texts = {column.name for column in TABLES[table] if column.sql_type == "JSON"}
    chosen = names or [row[0] for row in derivation.connection.execute(f"DESCRIBE {table}").fetchall()]
    columns = [
        f"CAST({quoted(name)} AS VARCHAR) AS {quoted(name)}" if name in texts else quoted(name)
        for name in chosen
    ]
    found: pa.Table = derivation.connection.sql(
        f"SELECT {', '.join(columns)} FROM {table} {part}"
    ).to_arrow_table()
    return found


def _without_tokens(rows: pa.Table, changed: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that change: where texts did, their token ids and log probabilities are gone."""
    made = dict(changed)
    shown = [name for name in _SHOWN_TO_THE_MODEL if name in changed]
    if not shown or "prompt_token_ids" not in rows.schema.names:
        return made
    differs = {name: _differs(rows.column(name), changed[name]) for name in shown}
    any_differs = functools.reduce(np.logical_or, differs.values())
    episodes = rows.column("episode_id").combine_chunks()
    # prompts go on from step to step
    gone = {"prompt_token_ids": pc.is_in(episodes, value_set=episodes.filter(pa.array(any_differs)))}
    if "completion" in differs:
        answered = pa.array(differs["completion"])
        gone |= {"completion_token_ids": answered, "logprobs": answered}
    for name, mask in gone.items():
        column = rows.column(name).combine_chunks()
        made[name] = pc.if_else(mask, pa.scalar(None, column.type), column)
    return made


def _differs(before: pa.ChunkedArray[Any], after: pa.ChunkedArray[Any]) -> npt.NDArray[np.bool_]:
    """Row by row; what is null stays it."""
    unequal: Any = pc.not_equal(before, after)
    return np.asarray(pc.fill_null(unequal, False).to_numpy())


def _taken(derivation: Derivation) -> dict[str, int]:
    """The highest number of every kind of placeholder that an earlier pass left here."""
    taken: dict[str, int] = {}
    for table in TABLES:
        for column in text_columns(table):
            text = f"CAST({quoted(column.name)} AS VARCHAR)"
            rows = derivation.connection.execute(
                f"SELECT DISTINCT unnest(regexp_extract_all({text}, {literal(_PLACEHOLDER)}))"
                f" FROM {table} WHERE regexp_matches({text}, '_[0-9]+\\]')"
            ).fetchall()
            for (placeholder,) in rows:
                word, _, number = placeholder[1:-1].rpartition("_")
                taken[word] = max(taken.get(word, 0), int(number))
    return taken
