"""Conversations with weights as rows of tokens with weights, in a file that training maps into memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from trajkit._core.files import replacing
from trajkit.errors import DataError, RequestError
from trajkit.formats.tokenizer import ChatTemplate
from trajkit.schema import Model
from trajkit.training.local.base_model import Sizes
from trajkit.training.local.batch import SCHEMA

_ROWS_PER_BATCH = 512
_MOST_NAMED = 3
_SHORTER = "--overlong drop leaves them out, --overlong trim-history cuts their oldest turns"


class TokenFile(NamedTuple):
    """Rows of tokens."""

    table: pa.Table
    """`SCHEMA`, mapped."""
    lengths: np.ndarray[Any, np.dtype[np.int64]]
    """Tokens of each row."""


class Limit(NamedTuple):
    """What a row may be."""

    n_tokens: int
    """Most tokens of it."""
    of: str
    """Who says so, where it is not --max-length; else empty."""
    n_vocabulary: int | None = None
    """Different tokens that the model knows; None for any."""

    @classmethod
    def of_model(cls, max_length: int, sizes: Sizes, base: str) -> Limit:
        """What was asked for, or what a model can read where that is less."""
        if sizes.n_positions is not None and sizes.n_positions < max_length:
            return cls(sizes.n_positions, base, sizes.n_vocabulary)
        return cls(max_length, "", sizes.n_vocabulary)


class TokenTally(Model):
    """What became of the rows of a file."""

    n_rows: int
    """Rows of it."""
    n_tokens: int
    """Their tokens."""
    n_learned: int
    """Those whose weight is not 0."""
    longest: int
    """Tokens of the longest row."""
    n_endless: int
    """Learned answers after which the chat template writes no token that ends a turn: none is learned."""


def tokenise(
    rows: Path,
    goal: Path,
    tokenizer: ChatTemplate,
    *,
    limit: Limit,
    on_progress: Callable[[int], None] = lambda n_done: None,
) -> TokenTally:
    """Write a file of rows of tokens from a file of conversations (`trajkit.formats.weighted`).

    Args:
        rows: JSON lines.
        goal: The file that exists afterwards: Arrow, `SCHEMA`.
        tokenizer: The model's own.
        limit: A longer row is an error: nothing is ever cut off.
        on_progress: Told how many rows are done.

    Raises:
        DataError: A row is too long, or teaches no token.
        RequestError: The chat template cannot write a row, or it is not sure what of it is an answer, or the
            tokenizer is another model's.
    """
    tally = {"n_rows": 0, "n_tokens": 0, "n_learned": 0, "longest": 0, "n_endless": 0}
    too_long: list[str] = []
    with replacing(goal) as temporary, pa.OSFile(str(temporary), "wb") as file:
        with pa.ipc.new_file(file, SCHEMA) as writer:
            for batch in batches(rows):
                tokens, weights = [], []
                for number, row in batch:
                    found = _row(row, number, rows, tokenizer, limit)
                    if len(found.tokens) > limit.n_tokens:
                        too_long.append(f"line {number}: {len(found.tokens):,} tokens")
                    tokens.append(found.tokens)
                    weights.append(found.weights)
                    tally["n_rows"] += 1
                    tally["n_tokens"] += len(found.tokens)
                    tally["n_endless"] += found.n_endless
                    tally["n_learned"] += int(np.count_nonzero(found.weights))
                    tally["longest"] = max(tally["longest"], len(found.tokens))
                writer.write_batch(pa.record_batch([tokens, weights], schema=SCHEMA))
                on_progress(tally["n_rows"])
        if too_long:
            raise overlong(too_long, limit, _SHORTER)
    return TokenTally(**tally)


def open_tokens(path: Path) -> TokenFile:
    """Map a file that `tokenise` wrote: its rows are read when they are wanted."""
    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    column = table.column("input_ids")
    lengths = [np.diff(chunk.offsets.to_numpy()) for chunk in column.chunks]  # type: ignore[attr-defined]
    return TokenFile(table, np.concatenate(lengths) if lengths else np.zeros(0, dtype=np.int64))


class _Tokens(NamedTuple):
    tokens: Sequence[int]
    weights: Any
    n_endless: int


def _row(row: dict[str, Any], number: int, path: Path, tokenizer: ChatTemplate, limit: Limit) -> _Tokens:
    try:
        rendered = tokenizer.render(row["messages"], row.get("tools"))
    except RequestError as error:
        raise RequestError(f"{path.name} line {number}: {error.message}", hint=error.hint) from error
    if not rendered.is_sure:
        raise RequestError(
            f"{path.name} line {number}: the chat template of {tokenizer.name} does not mark its answers, and"
            " writes them in another way once the conversation goes on",
            hint="--unit step, whose rows have one answer; or --chat-template with one that marks them",
        )
    refuse_unknown(rendered.tokens, tokenizer, limit)
    weights = np.zeros(rendered.n_tokens, dtype=np.float32)
    n_endless = 0
    for (start, end), weight in zip(rendered.spans, row["weights"], strict=True):
        has_end = bool(tokenizer.stops & set(rendered.tokens[start:end]))
        if not has_end and rendered.tokens[end : end + 1] and rendered.tokens[end] in tokenizer.stops:
            has_end, end = True, end + 1  # templates mark an answer and forget what ends it
        n_endless += bool(weight) and not has_end
        weights[start:end] = weight
    if not weights.any():
        raise DataError(
            f"{path.name} line {number}: the chat template of {tokenizer.name} gives its answers no token",
            hint="mark what the assistant says with {% generation %} and {% endgeneration %}",
        )
    return _Tokens(rendered.tokens, weights, n_endless)


def batches(rows: Path) -> Iterator[list[tuple[int, dict[str, Any]]]]:
    """The rows of a file of JSON lines, each with the number of its line; a bounded number at a time."""
    with rows.open(encoding="utf-8") as file:
        numbered = ((number, json.loads(line)) for number, line in enumerate(file, start=1))
        while batch := list(islice(numbered, _ROWS_PER_BATCH)):
            yield batch


def refuse_unknown(tokens: Iterable[int], tokenizer: ChatTemplate, limit: Limit) -> None:
    """Refuse tokens that the model does not know.

    Raises:
        RequestError: There is one.
    """
    highest = max(tokens)
    if limit.n_vocabulary is not None and highest >= limit.n_vocabulary:
        raise RequestError(
            f"the tokenizer {tokenizer.name} says token {highest:,}, and the model knows"
            f" {limit.n_vocabulary:,}",
            hint="take the tokenizer that the model was made with",
        )


def overlong(found: Sequence[str], limit: Limit, ways: str) -> DataError:
    """The error for rows that are too long.

    Args:
        found: Each of them, with its length.
        limit: What they may have.
        ways: What makes rows shorter.
    """
    named = "; ".join(found[:_MOST_NAMED])
    more = f"; and {len(found) - _MOST_NAMED:,} more" if len(found) > _MOST_NAMED else ""
    rows = f"{len(found):,} {'row is' if len(found) == 1 else 'rows are'}"
    most = f"{limit.n_tokens:,} tokens" + (f", which is all that {limit.of} can read" if limit.of else "")
    longer = "a model with a longer context" if limit.of else "--max-length allows longer rows"
    return DataError(f"{rows} longer than {most}: {named}{more}", hint=f"{longer}; {ways}")
