"""Look through the text columns of a store, each different text once, and count what is found."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trajkit.curation.redact_shape import TELLING
from trajkit.curation.redact_text import PLACEHOLDER, Finder, Placeholders, Span, has_surrogate
from trajkit.schema import FileBlock, TextBlock, ThoughtBlock, ToolCallBlock, ToolResultBlock, UnknownBlock
from trajkit.schema.base import Count, JsonObject, Model, Name
from trajkit.store.layout import TABLES, Column

_TEXT_TYPES = ("VARCHAR", "JSON", "VARCHAR[]")
_BLOCKS = (TextBlock, ThoughtBlock, ToolCallBlock, ToolResultBlock, FileBlock, UnknownBlock)
# words of trajkit's own, names of metrics (which are columns), and hashes
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
    """The columns of a table in which people and programs may have written anything."""
    return tuple(
        column for column in TABLES[table] if column.sql_type in _TEXT_TYPES and column.name not in _FIXED
    )


class Changed(NamedTuple):
    """What is another value in a column than before."""

    rows: npt.NDArray[np.bool_]
    """Which rows change."""
    values: pa.Array[Any]
    """What they become, in the order of the rows."""

    def within(self, chosen: npt.NDArray[np.bool_]) -> Changed:
        """The same of some of the rows."""
        return Changed(self.rows[chosen], self.values.filter(pa.array(chosen[self.rows])))

    def applied(self, column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
        """The column as it becomes."""
        places = np.arange(len(column))
        places[self.rows] = len(column) + np.arange(len(self.values))
        both: Any = pa.concat_arrays([*column.chunks, self.values])
        made: pa.Array[Any] = both.take(pa.array(places, pa.int64()))
        return made


class Search:
    """Goes through columns, counts what is there and puts placeholders in its place.

    Args:
        finder: What is looked for.
        placeholders: What stands in the place of what is found.
        prose: What is looked for where people and models write, and not in names and ids; None for the same.
    """

    def __init__(self, finder: Finder, placeholders: Placeholders, *, prose: Finder | None = None) -> None:
        self._finder, self._placeholders = finder, placeholders
        self._prose = prose or finder
        self._numbers: Counter[tuple[str, str]] = Counter()
        self._values: dict[tuple[str, str], set[str]] = {}
        self._n_texts = self._n_bytes = 0

    def column(self, values: pa.ChunkedArray[Any], table: str, column: Column) -> Changed | None:
        """A column with placeholders; None where nothing is in it."""
        place = f"{table}.{column.name}"
        if values.null_count == len(values):
            return None
        whole: Any = values.combine_chunks()  # of each chunk the search would be prepared anew
        if column.sql_type == "VARCHAR[]":
            inside = self._texts(whole.flatten(), place, column)
            return None if inside is None else _lists(whole, inside, is_sorted=table == "episodes")
        return self._texts(whole, place, column)

    def document(self, value: JsonObject, place: str) -> JsonObject:
        """A JSON object with placeholders."""
        return json.loads(self._alone(json.dumps(value, ensure_ascii=False), place, is_json=True))  # type: ignore[no-any-return]

    def text(self, text: str, place: str) -> str:
        """A text with placeholders; JSON stays JSON."""
        self._n_texts += 1
        self._n_bytes += len(text.encode("utf-8", "surrogatepass"))
        return self._alone(text, place, is_json=False)

    def clashes(self) -> dict[str, int]:
        """The highest numbers of placeholders that were there, where one may have been given again."""
        return self._placeholders.clashes()

    def report(self) -> RedactReport:
        """What was found so far."""
        found = [
            Found(kind=kind, place=place, n_found=number, n_values=len(self._values[kind, place]))
            for (kind, place), number in self._numbers.items()
        ]
        found.sort(key=lambda each: (-each.n_found, each.kind, each.place))
        return RedactReport(found=tuple(found), n_texts=self._n_texts, n_bytes=self._n_bytes)

    def _texts(self, values: Any, place: str, column: Column) -> Changed | None:
        self._n_texts += len(values) - values.null_count
        self._n_bytes += pc.sum(pc.binary_length(values)).as_py() or 0
        met = values.filter(pc.match_substring_regex(values, PLACEHOLDER))
        for text in met.unique().to_pylist():
            self._placeholders.meet(text)
        finder = self._prose if column.sql_type == "JSON" or column.name in _PROSE else self._finder
        may_hold = finder.may_hold(values)
        texts = values.filter(may_hold).to_pylist()  # a null is not among them
        numbers = Counter(texts)
        is_json = column.sql_type == "JSON"
        made = self._rewritten(numbers, place, finder, is_json=is_json, is_closed=column.is_closed)
        if not made:
            return None
        rows = np.asarray(pc.fill_null(may_hold, False).to_numpy(zero_copy_only=False)).copy()
        rows[rows] = [text in made for text in texts]
        return Changed(rows, pa.array([made[text] for text in texts if text in made], values.type))

    def _alone(self, text: str, place: str, *, is_json: bool) -> str:
        self._placeholders.meet(text)
        numbers = {text: 1}
        return self._rewritten(numbers, place, self._finder, is_json=is_json, is_closed=False).get(text, text)

    def _rewritten(
        self, numbers: Mapping[str, int], place: str, finder: Finder, *, is_json: bool, is_closed: bool
    ) -> dict[str, str]:
        """The texts that hold something, with placeholders; `numbers` says how often each is there."""
        made: dict[str, str] = {}
        fixed = _is_fixed if is_closed else None
        left: Iterable[str] = numbers
        # what stands beside a placeholder may look like something that it did not before
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
                    self._numbers[kind, place] += number
                    self._values.setdefault((kind, place), set()).add(value)

                new = replaced(
                    now, found, self._placeholders, is_json=is_json, is_fixed=fixed, on_found=count
                )
                if new != now:
                    changed[text] = made[text] = new
            current = changed
        return made


def _lists(before: Any, inside: Changed, *, is_sorted: bool) -> Changed:
    """Lists with other texts in them; those of an episode are the sorted names of its steps."""
    texts: Iterator[Any] = iter(inside.applied(pa.chunked_array([before.flatten()])).to_pylist())
    was = before.to_pylist()
    lists = [None if each is None else [next(texts) for _ in each] for each in was]
    if is_sorted:
        lists = [None if each is None else sorted(each) for each in lists]
    rows = np.array([one != other for one, other in zip(was, lists, strict=True)], dtype=bool)
    return Changed(rows, pa.array([lists[place] for place in np.flatnonzero(rows)], before.type))


def _is_fixed(text: str, name: str) -> bool:
    """Of messages: the names that the schema gives, and its words."""
    return text in _SCHEMA_NAMES if not name else name in _SCHEMA_WORDS


class Part(NamedTuple):
    """A text in which values are looked for."""

    text: str
    """As it is read."""
    label: str
    """The name before it, where that tells what it is, and a colon; else empty."""
    start: int
    """Where it stands in what it is a part of."""
    end: int
    """Where it has ended there."""
    is_json: bool
    """Whether it stands there as a text of JSON, in quotes."""


def parts(text: str, *, is_json: bool, is_fixed: Callable[[str, str], bool] | None = None) -> Iterator[Part]:
    """The texts of a text: of JSON every text in it, else itself.

    Args:
        text: As it is written.
        is_json: Whether it is JSON for sure; else it is asked.
        is_fixed: Of the texts of an object with the name before it, those that must stay as they are; of a
            name itself, with an empty name before it.
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
    """A text with placeholders. JSON stays JSON: numbers, order and spaces are as they were.

    Args:
        text: As it is written.
        found: What `Finder.find` found in its parts and in theirs, each with its label.
        placeholders: What stands in the place of a value.
        is_json: Whether it is JSON for sure; else it is asked.
        is_fixed: As `parts` takes it.
        on_found: Told the kind of each value, and the value.
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
    """The texts that `replaced` wants to be looked at, with their labels; those of JSON in texts too."""
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
    """A text in JSON; half of a surrogate pair can only be written as an escape."""
    return json.dumps(text, ensure_ascii=has_surrogate(text))


def _is_json(text: str) -> bool:
    """Whether a text is an object or a list in JSON, with texts in it."""
    if text[:1] not in ("{", "[", " ", "\n", "\t", "\r") or '"' not in text:
        return False
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


class Found(Model):
    """Values of one kind in one place."""

    kind: Name
    """What they are, such as `github-token`."""
    place: Name
    """Table and column, such as `steps.messages`, or `manifest.source`."""
    n_found: Count
    """How often, over all rows."""
    n_values: Count
    """How many different ones."""


class RedactReport(Model):
    """What a search for secrets and personal data came to."""

    found: tuple[Found, ...]
    """By kind and place, the most frequent first; none where nothing was found."""
    n_texts: Count
    """Texts that were read, over all columns."""
    n_bytes: Count
    """Their size, as UTF-8."""

    @property
    def n_found(self) -> int:
        """How many values stand in the store, over all kinds and places."""
        return sum(each.n_found for each in self.found)

    @property
    def n_by_kind(self) -> dict[str, int]:
        """The same for each kind, the most frequent first."""
        numbers: dict[str, int] = {}
        for each in self.found:
            numbers[each.kind] = numbers.get(each.kind, 0) + each.n_found
        return dict(sorted(numbers.items(), key=lambda item: (-item[1], item[0])))
