"""Look through the text columns of a store, each different text once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trajkit.curate.redact_report import Found, RedactReport
from trajkit.curate.redact_text import Finder, Placeholders, leaves, replaced
from trajkit.schema import FileBlock, TextBlock, ThoughtBlock, ToolCallBlock, ToolResultBlock, UnknownBlock
from trajkit.schema.base import JsonObject
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


def text_columns(table: str) -> tuple[Column, ...]:
    """The columns of a table in which people and programs may have written anything."""
    return tuple(
        column for column in TABLES[table] if column.sql_type in _TEXT_TYPES and column.name not in _FIXED
    )


class Search:
    """Goes through columns, counts what is there and puts placeholders in its place.

    Args:
        finder: What is looked for.
        placeholders: What stands in the place of what is found.
    """

    def __init__(self, finder: Finder, placeholders: Placeholders) -> None:
        self._finder, self._placeholders = finder, placeholders
        self._numbers: Counter[tuple[str, str]] = Counter()
        self._values: dict[tuple[str, str], set[str]] = {}
        self._n_texts = self._n_bytes = 0

    def column(self, values: pa.ChunkedArray[Any], table: str, column: Column) -> pa.ChunkedArray[Any] | None:
        """A column with placeholders; None where nothing is in it."""
        place = f"{table}.{column.name}"
        if column.sql_type == "VARCHAR[]":
            lists: Any = values.combine_chunks()
            inside = self._texts(pa.chunked_array([lists.flatten()]), place, column)
            return None if inside is None else _lists(lists, inside, is_sorted=table == "episodes")
        return self._texts(values, place, column)

    def document(self, value: JsonObject, place: str) -> JsonObject:
        """A JSON object with placeholders."""
        text = json.dumps(value, ensure_ascii=False)
        made = self._rewritten({text: 1}, place, is_json=True, is_closed=False)
        return json.loads(made.get(text, text))  # type: ignore[no-any-return]

    def report(self) -> RedactReport:
        """What was found so far."""
        found = [
            Found(kind=kind, place=place, n_found=number, n_values=len(self._values[kind, place]))
            for (kind, place), number in self._numbers.items()
        ]
        found.sort(key=lambda each: (-each.n_found, each.kind, each.place))
        return RedactReport(found=tuple(found), n_texts=self._n_texts, n_bytes=self._n_bytes)

    def _texts(self, values: Any, place: str, column: Column) -> pa.ChunkedArray[Any] | None:
        self._n_texts += len(values) - values.null_count
        self._n_bytes += pc.sum(pc.binary_length(values)).as_py() or 0
        may_hold = self._finder.may_hold(values)
        texts = values.filter(may_hold).to_pylist()  # a null is not among them
        made = self._rewritten(
            Counter(texts), place, is_json=column.sql_type == "JSON", is_closed=column.is_closed
        )
        if not made:
            return None
        mask = np.asarray(pc.fill_null(may_hold, False).to_numpy()).copy()
        mask[mask] = [text in made for text in texts]
        new = pa.array([made[text] for text in texts if text in made], values.type)
        changed: Any = pc.replace_with_mask(values.combine_chunks(), pa.array(mask), new)
        return pa.chunked_array([changed])

    def _rewritten(
        self, numbers: Mapping[str, int], place: str, *, is_json: bool, is_closed: bool
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
            found = self._finder.find(seen)
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


def _lists(before: Any, inside: pa.ChunkedArray[Any], *, is_sorted: bool) -> pa.ChunkedArray[Any]:
    """Lists with other texts in them; those of an episode are the sorted names of its steps."""
    texts: Iterator[Any] = iter(inside.to_pylist())
    lists = [None if each is None else [next(texts) for _ in each] for each in before.to_pylist()]
    if is_sorted:
        lists = [None if each is None else sorted(each) for each in lists]
    return pa.chunked_array([pa.array(lists, pa.list_(pa.string()))])


def _is_fixed(text: str, name: str) -> bool:
    """Of messages: the names that the schema gives, and its words."""
    return text in _SCHEMA_NAMES if not name else name in _SCHEMA_WORDS
