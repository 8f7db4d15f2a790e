"""Search the text columns of a store, each distinct text once, and count the values found."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trajkit._core.files import named_by_content
from trajkit.curation.redaction.shape import TELLING
from trajkit.curation.redaction.text import (
    MET,
    PLACEHOLDER,
    Finder,
    Placeholders,
    Span,
    has_surrogate,
    key_of,
    word_of,
)
from trajkit.schema import FileBlock, TextBlock, ThoughtBlock, ToolCallBlock, ToolResultBlock, UnknownBlock
from trajkit.schema.base import Count, JsonObject, Model, Name
from trajkit.store.layout import TABLES, Column

_TEXT_TYPES = ("VARCHAR", "JSON", "VARCHAR[]")
_BLOCKS = (TextBlock, ThoughtBlock, ToolCallBlock, ToolResultBlock, FileBlock, UnknownBlock)
# trajkit's own words, names of metrics (which are columns), and hashes
_FIXED = (
    *("purpose", "outcome", "kind", "metric_name", "finish_reason", "mask_reason"),
    *("initial_state_hash", "snapshot_hash"),
)
_SCHEMA_NAMES = frozenset({"role", "content", *(name for kind in _BLOCKS for name in kind.model_fields)})
_SCHEMA_WORDS = ("role", "type")
_MOST_ROUNDS = 5
_PROSE = ("observation", "action_executed")
_AFTER = re.compile(r"\s*:")


def text_columns(table: str) -> tuple[Column, ...]:
    """Return the columns of a table with free text."""
    return tuple(
        column for column in TABLES[table] if column.sql_type in _TEXT_TYPES and column.name not in _FIXED
    )


class Changed(NamedTuple):
    """Changed values of a column."""

    rows: npt.NDArray[np.bool_]
    """Whether each row changes."""
    values: pa.Array[Any]
    """The new values of these rows, in their order."""

    def within(self, chosen: npt.NDArray[np.bool_]) -> Changed:
        """Return the changes of some of the rows."""
        return Changed(self.rows[chosen], self.values.filter(pa.array(chosen[self.rows])))

    def applied(self, column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
        """Return the changed column."""
        places = np.arange(len(column))
        places[self.rows] = len(column) + np.arange(len(self.values))
        both: Any = pa.concat_arrays([*column.chunks, self.values])
        made: pa.Array[Any] = both.take(pa.array(places, pa.int64()))
        return made


class Search:
    """Searches columns, counts values, and replaces them by placeholders.

    Args:
        finder: Finds values in names and ids, and in prose unless `prose` is given.
        placeholders: Assigns placeholders.
        prose: Finds values in texts that people and models write; None for `finder`.
    """

    def __init__(self, finder: Finder, placeholders: Placeholders, *, prose: Finder | None = None) -> None:
        self._finder, self.placeholders = finder, placeholders
        self._prose = prose or finder
        self.findings = Findings()
        """What was found so far."""

    def column(self, values: pa.ChunkedArray[Any], table: str, column: Column) -> Changed | None:
        """Return the changes of a column; None without any."""
        place = f"{table}.{column.name}"
        if values.null_count == len(values):
            return None
        whole: Any = values.combine_chunks()  # else the search would be prepared again for each chunk
        if column.sql_type == "VARCHAR[]":
            inside = self._texts(whole.flatten(), place, column)
            return None if inside is None else _lists(whole, inside, is_sorted=table == "episodes")
        return self._texts(whole, place, column)

    def document(self, value: JsonObject, place: str) -> JsonObject:
        """Return a JSON object with placeholders."""
        return json.loads(self._alone(json.dumps(value, ensure_ascii=False), place, is_json=True))  # type: ignore[no-any-return]

    def text(self, text: str, place: str) -> str:
        """Return a text with placeholders; JSON stays JSON."""
        self.findings.n_texts += 1
        self.findings.n_bytes += len(text.encode("utf-8", "surrogatepass"))
        return self._alone(text, place, is_json=False)

    def _texts(self, values: Any, place: str, column: Column) -> Changed | None:
        self.findings.n_texts += len(values) - values.null_count
        self.findings.n_bytes += pc.sum(pc.binary_length(values)).as_py() or 0
        met = values.filter(pc.match_substring_regex(values, PLACEHOLDER))
        for text in met.unique().to_pylist():
            self.findings.meet(text)
        finder = self._prose if column.sql_type == "JSON" or column.name in _PROSE else self._finder
        may_hold = finder.may_hold(values)
        texts = values.filter(may_hold).to_pylist()  # the filter drops nulls
        numbers = Counter(texts)
        is_json = column.sql_type == "JSON"
        made = self._rewritten(numbers, place, finder, is_json=is_json, is_closed=column.is_closed)
        if not made:
            return None
        rows = np.asarray(pc.fill_null(may_hold, False).to_numpy(zero_copy_only=False)).copy()
        rows[rows] = [text in made for text in texts]
        return Changed(rows, pa.array([made[text] for text in texts if text in made], values.type))

    def _alone(self, text: str, place: str, *, is_json: bool) -> str:
        self.findings.meet(text)
        numbers = {text: 1}
        return self._rewritten(numbers, place, self._finder, is_json=is_json, is_closed=False).get(text, text)

    def _rewritten(
        self, numbers: Mapping[str, int], place: str, finder: Finder, *, is_json: bool, is_closed: bool
    ) -> dict[str, str]:
        """Return the texts that change, with placeholders; `numbers` has how often each occurs."""
        made: dict[str, str] = {}
        fixed = _is_fixed if is_closed else None
        left: Iterable[str] = numbers
        # text beside a new placeholder may match a pattern that it did not match before
        current = {text: text for text in left}
        for _ in range(_MOST_ROUNDS):
            seen = {
                leaf for text in current.values() for leaf in leaves(text, is_json=is_json, is_fixed=fixed)
            }
            found = finder.find(seen)
            if not found:
                break
            changed = {}
            for text, now in current.items():

                def count(kind: str, value: str, number: int = numbers[text]) -> None:
                    self.findings.found[kind, place, key_of(value)] += number

                new = replaced(now, found, self.placeholders, is_json=is_json, is_fixed=fixed, on_found=count)
                if new != now:
                    changed[text] = made[text] = new
            current = changed
        return made


def _lists(before: Any, inside: Changed, *, is_sorted: bool) -> Changed:
    """Return lists with changed texts. Lists of an episode are sorted: they have the names in its steps."""
    texts: Iterator[Any] = iter(inside.applied(pa.chunked_array([before.flatten()])).to_pylist())
    was = before.to_pylist()
    lists = [None if each is None else [next(texts) for _ in each] for each in was]
    if is_sorted:
        lists = [None if each is None else sorted(each) for each in lists]
    rows = np.array([one != other for one, other in zip(was, lists, strict=True)], dtype=bool)
    return Changed(rows, pa.array([lists[place] for place in np.flatnonzero(rows)], before.type))


def _is_fixed(text: str, name: str) -> bool:
    """Whether a text of messages is a name or a word of the schema."""
    return text in _SCHEMA_NAMES if not name else name in _SCHEMA_WORDS


class Part(NamedTuple):
    """A text in which values are looked for, as a part of a longer text."""

    text: str
    """The text, decoded from JSON."""
    label: str
    """The name before it and a colon, if the name tells its kind; else empty."""
    start: int
    """Start in the longer text."""
    end: int
    """End in the longer text."""
    is_json: bool
    """Whether it is a JSON string there, in quotes."""


def parts(text: str, *, is_json: bool, is_fixed: Callable[[str, str], bool] | None = None) -> Iterator[Part]:
    """Yield the texts in a text: every string of JSON, else the text itself.

    Args:
        text: The text.
        is_json: Whether it is certainly JSON; else this is tested.
        is_fixed: Whether a string of JSON with the name before it must stay; for a name itself the second
            argument is empty.
    """
    if not is_json and not _is_json(text):
        yield Part(text, "", 0, len(text), is_json=False)
        return
    label, position = "", text.find('"')
    while position >= 0:
        value, end = scanstring(text, position + 1, False)
        is_name = _AFTER.match(text, end) is not None
        if is_fixed is None or not is_fixed(value, "" if is_name else label):
            telling = f"{label}: " if label and not is_name and TELLING.search(label) else ""
            yield Part(value, telling, position, end, is_json=True)
        label = value if is_name else label
        position = text.find('"', end)


def replaced(
    text: str,
    found: Mapping[str, list[Span]],
    placeholders: Placeholders,
    *,
    is_json: bool,
    is_fixed: Callable[[str, str], bool] | None = None,
    on_found: Callable[[str, str], None] = lambda kind, value: None,
) -> str:
    """Return a text with placeholders. JSON stays JSON, with the same numbers, order and spaces.

    Args:
        text: The text.
        found: Result of `Finder.find` for the `leaves` of the text.
        placeholders: Assigns placeholders.
        is_json: Whether it is certainly JSON; else this is tested.
        is_fixed: As in `parts`.
        on_found: Gets the kind of each value, and the value.
    """
    pieces, last = [], 0
    for part in parts(text, is_json=is_json, is_fixed=is_fixed):
        if part.is_json and _is_json(part.text):
            new = replaced(part.text, found, placeholders, is_json=True, on_found=on_found)
        else:
            new = _filled(part, found.get(part.label + part.text, ()), placeholders, on_found)
        if new == part.text:
            continue
        pieces += [text[last : part.start], _written(new) if part.is_json else new]
        last = part.end
    return "".join([*pieces, text[last:]]) if pieces else text


def leaves(text: str, *, is_json: bool, is_fixed: Callable[[str, str], bool] | None = None) -> Iterator[str]:
    """Yield the texts that `replaced` looks up in `found`, with their labels, also those of JSON in texts."""
    for part in parts(text, is_json=is_json, is_fixed=is_fixed):
        if part.is_json and _is_json(part.text):
            yield from leaves(part.text, is_json=True)
        else:
            yield part.label + part.text


def _filled(
    part: Part, spans: Iterable[Span], placeholders: Placeholders, on_found: Callable[[str, str], None]
) -> str:
    pieces, last, text = [], 0, part.text
    for span in spans:
        start, end = span.start - len(part.label), span.end - len(part.label)
        if start < 0:
            continue
        on_found(span.kind, text[start:end])
        pieces += [text[last:start], placeholders.of(span.kind, text[start:end])]
        last = end
    return "".join([*pieces, text[last:]]) if pieces else text


def _written(text: str) -> str:
    """Write a text as JSON; half of a surrogate pair can only be written as an escape."""
    return json.dumps(text, ensure_ascii=has_surrogate(text))


def _is_json(text: str) -> bool:
    """Whether a text is a JSON object or list that contains strings."""
    if text[:1] not in ("{", "[", " ", "\n", "\t", "\r") or '"' not in text:
        return False
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


class Findings:
    """Values that were found, without the values themselves. Those of parts of a store add up."""

    def __init__(self) -> None:
        self.found: Counter[tuple[str, str, bytes]] = Counter()
        """Number of occurrences by kind, place and `key_of` the value, in the order of the first ones."""
        self.n_texts = self.n_bytes = 0
        self._met: dict[str, int] = {}

    def meet(self, text: str) -> None:
        """Note the placeholders that a text already has."""
        for found in MET.findall(text):
            word, _, number = found[1:-1].rpartition("_")
            self._met[word] = max(self._met.get(word, 0), int(number))

    def numbers(self) -> dict[tuple[str, bytes], int]:
        """Return the numbers of all values, in the order of `found`, after those of earlier placeholders."""
        last, numbers = dict(self._met), {}
        for kind, _, key in self.found:
            if (kind, key) not in numbers:
                word = word_of(kind)
                numbers[kind, key] = last[word] = last.get(word, 0) + 1
        return numbers

    def add(self, other: Findings) -> None:
        """Add later findings."""
        self.found.update(other.found)
        self.n_texts += other.n_texts
        self.n_bytes += other.n_bytes
        for word, number in other._met.items():
            self._met[word] = max(self._met.get(word, 0), number)

    def save(self, folder: Path) -> JsonObject:
        """Write a file in a folder, and return what `read` takes."""
        facts: JsonObject = {"n_texts": self.n_texts, "n_bytes": self.n_bytes, "met": dict(self._met)}
        rows = zip(*self.found, strict=True) if self.found else ((), (), ())
        columns = dict(zip(("kind", "place", "key"), map(list, rows), strict=True))
        return {**facts, "file": save_table({**columns, "n": list(self.found.values())}, folder)}

    @staticmethod
    def read(folder: Path, facts: Mapping[str, Any]) -> Findings:
        """Return what `save` wrote."""
        findings = Findings()
        findings.n_texts, findings.n_bytes, findings._met = facts["n_texts"], facts["n_bytes"], facts["met"]
        for row in pq.read_table(folder / facts["file"]).to_pylist():
            findings.found[row["kind"], row["place"], row["key"]] = row["n"]
        return findings

    def report(self) -> RedactReport:
        """Return the counts by kind and place."""
        n_found: Counter[tuple[str, str]] = Counter()
        n_values: Counter[tuple[str, str]] = Counter()
        for (kind, place, _), number in self.found.items():
            n_found[kind, place] += number
            n_values[kind, place] += 1
        found = [
            Found(kind=kind, place=place, n_found=number, n_values=n_values[kind, place])
            for (kind, place), number in n_found.items()
        ]
        found.sort(key=lambda each: (-each.n_found, each.kind, each.place))
        return RedactReport(found=tuple(found), n_texts=self.n_texts, n_bytes=self.n_bytes)


def save_table(columns: Mapping[str, list[Any]], folder: Path) -> str:
    """Write a table as Parquet into a folder, and return the name of the file."""
    return named_by_content(
        folder, "found.parquet", lambda path: pq.write_table(pa.table(dict(columns)), path)
    ).name


class Found(Model):
    """Values of one kind in one place."""

    kind: Name
    """Kind of value, such as `github-token`."""
    place: Name
    """Table and column, such as `steps.messages`, or `manifest.source`."""
    n_found: Count
    """Number of occurrences in all rows."""
    n_values: Count
    """Number of distinct values."""


class RedactReport(Model):
    """Counts of a search for secrets and personal data."""

    found: tuple[Found, ...]
    """By kind and place, the most frequent first; empty if nothing was found."""
    n_texts: Count
    """Texts that were read, over all columns."""
    n_bytes: Count
    """Their size in bytes of UTF-8."""

    @property
    def n_found(self) -> int:
        """Number of occurrences in all places."""
        return sum(each.n_found for each in self.found)

    @property
    def n_by_kind(self) -> dict[str, int]:
        """Number of occurrences by kind, the most frequent first."""
        numbers: dict[str, int] = {}
        for each in self.found:
            numbers[each.kind] = numbers.get(each.kind, 0) + each.n_found
        return dict(sorted(numbers.items(), key=lambda item: (-item[1], item[0])))
