"""Tokenise weighted conversations into a file that training memory-maps."""

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
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.schema import Model
from trajkit.training.local.base_model import Sizes
from trajkit.training.local.tokens.batch import SCHEMA

_ROWS_PER_BATCH = 512
_MOST_NAMED = 3
_SHORTER = "--overlong drop leaves them out, --overlong trim-history removes their oldest turns"


class TokenFile(NamedTuple):
    """Tokenised rows."""

    table: pa.Table
    """Rows in the form of `SCHEMA`, memory-mapped."""
    lengths: np.ndarray[Any, np.dtype[np.int64]]
    """Tokens of each row."""


class Limit(NamedTuple):
    """The limits of a row."""

    n_tokens: int
    """Most tokens of a row."""
    of: str
    """The model whose context is the limit; empty where --max-length is."""
    n_vocabulary: int | None = None
    """Size of the model's vocabulary; None for no limit."""

    @classmethod
    def of_model(cls, max_length: int, sizes: Sizes, base: str) -> Limit:
        """Return the requested limit, or the model's context length where that is less."""
        if sizes.n_positions is not None and sizes.n_positions < max_length:
            return cls(sizes.n_positions, base, sizes.n_vocabulary)
        return cls(max_length, "", sizes.n_vocabulary)


class TokenTally(Model):
    """The counts of a tokenised file."""

    n_rows: int
    """Rows."""
    n_tokens: int
    """Tokens of all rows."""
    n_learned: int
    """Tokens whose weight is not 0."""
    longest: int
    """Tokens of the longest row."""
    n_endless: int
    """Learned completions for which the chat template renders no token that ends the turn."""


def tokenise(
    rows: Path,
    goal: Path,
    tokenizer: ChatTemplate,
    *,
    limit: Limit,
    on_progress: Callable[[int], None] = lambda n_done: None,
) -> TokenTally:
    """Tokenise a file of conversations (`trajkit.formats.weighted`).

    Args:
        rows: JSON lines.
        goal: The new file: Arrow in the form of `SCHEMA`.
        tokenizer: The model's tokenizer.
        limit: A longer row is an error; nothing is cut.
        on_progress: Called with the number of finished rows.

    Raises:
        DataError: A row is too long, or trains no token.
        RequestError: The chat template cannot render a row or does not mark its completions, or the tokenizer
            does not belong to the model.
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
    """Memory-map a file that `tokenise` wrote."""
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
            f"{path.name} line {number}: the chat template of {tokenizer.name} does not mark completions, and"
            " renders them differently once the conversation continues",
            hint="use --unit step, whose rows have one completion, or a --chat-template that marks them",
        )
    refuse_unknown(rendered.tokens, tokenizer, limit)
    weights = np.zeros(rendered.n_tokens, dtype=np.float32)
    n_endless = 0
    for (start, end), weight in zip(rendered.spans, row["weights"], strict=True):
        has_end = bool(tokenizer.stops & set(rendered.tokens[start:end]))
        if not has_end and rendered.tokens[end : end + 1] and rendered.tokens[end] in tokenizer.stops:
            has_end, end = True, end + 1  # some templates leave the end token out of the mark
        n_endless += bool(weight) and not has_end
        weights[start:end] = weight
    if not weights.any():
        raise DataError(
            f"{path.name} line {number}: the chat template of {tokenizer.name} gives completions no token",
            hint="mark assistant messages with {% generation %} and {% endgeneration %}",
        )
    return _Tokens(rendered.tokens, weights, n_endless)


def batches(rows: Path) -> Iterator[list[tuple[int, dict[str, Any]]]]:
    """Yield the rows of a file of JSON lines with their line numbers, in batches of bounded size."""
    with rows.open(encoding="utf-8") as file:
        numbered = ((number, json.loads(line)) for number, line in enumerate(file, start=1))
        while batch := list(islice(numbered, _ROWS_PER_BATCH)):
            yield batch


def refuse_unknown(tokens: Iterable[int], tokenizer: ChatTemplate, limit: Limit) -> None:
    """Refuse tokens outside the model's vocabulary.

    Raises:
        RequestError: There is one.
    """
    highest = max(tokens)
    if limit.n_vocabulary is not None and highest >= limit.n_vocabulary:
        raise RequestError(
            f"the tokenizer {tokenizer.name} gives token {highest:,}, and the model's vocabulary has"
            f" {limit.n_vocabulary:,}",
            hint="use the model's own tokenizer",
        )


def overlong(found: Sequence[str], limit: Limit, ways: str) -> DataError:
    """Return the error for rows that are too long.

    Args:
        found: The places of the rows, with their lengths.
        limit: The limit of a row.
        ways: Ways to make rows shorter.
    """
    named = "; ".join(found[:_MOST_NAMED])
    more = f"; and {len(found) - _MOST_NAMED:,} more" if len(found) > _MOST_NAMED else ""
    rows = f"{len(found):,} {'row is' if len(found) == 1 else 'rows are'}"
    most = f"{limit.n_tokens:,} tokens" + (f", the context length of {limit.of}" if limit.of else "")
    longer = "a model with a longer context" if limit.of else "--max-length allows longer rows"
    return DataError(f"{rows} longer than {most}: {named}{more}", hint=f"{longer}; {ways}")
