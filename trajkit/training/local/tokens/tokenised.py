"""Tokenise weighted conversations into a file that training memory-maps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
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
from trajkit.training.local.tokens.batch import SCHEMA, TokenRows

_ROWS_PER_BATCH = 512
_MOST_NAMED = 3
_SHORTER = "--overlong drop leaves them out, --overlong trim-history removes their oldest turns"


class Limit(NamedTuple):
    """The limits of a row."""

    n_tokens: int
    """Maximum tokens per row."""
    of: str
    """The model whose context is the limit; empty if --max-length is."""
    n_vocabulary: int | None = None
    """Size of the model's vocabulary; None for no limit."""

    @classmethod
    def of_model(cls, max_length: int, sizes: Sizes, base: str) -> Limit:
        """Return the requested limit, or the model's context length if that is less."""
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


class Encoded(NamedTuple):
    """A row as tokens."""

    values: dict[str, Any]
    """Its values by column."""
    lengths: Sequence[int]
    """Tokens of each of its texts."""
    n_learned: int
    """Tokens that are learned."""
    n_endless: int
    """Completions for which the chat template renders no token that ends the turn."""


def tokenise(
    rows: Path,
    goal: Path,
    tokenizer: ChatTemplate,
    *,
    limit: Limit,
    on_progress: Callable[[int], None] = lambda n_done: None,
) -> TokenTally:
    """Tokenise a file of conversations (`trajkit.formats.trl`).

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

    def encode(row: dict[str, Any], place: str) -> Encoded:
        return _encoded(row, place, tokenizer, limit)

    with (
        replacing(goal) as temporary,
        pa.OSFile(str(temporary), "wb") as file,
        pa.ipc.new_file(file, SCHEMA) as writer,
    ):
        return write_tokens(rows, writer, SCHEMA, encode, limit, _SHORTER, on_progress)


def write_tokens(
    rows: Path,
    writer: pa.ipc.RecordBatchFileWriter | pa.ipc.RecordBatchStreamWriter,
    schema: pa.Schema,
    encode: Callable[[dict[str, Any], str], Encoded],
    limit: Limit,
    ways: str,
    on_progress: Callable[[int], None],
) -> TokenTally:
    """Write the rows of a file of JSON lines as tokens, in batches of bounded size.

    Args:
        rows: JSON lines.
        writer: Writes the batches.
        schema: Their columns.
        encode: Makes tokens of a row at a place, which errors name.
        limit: A longer text is an error.
        ways: Ways to make rows shorter.
        on_progress: Called with the number of finished rows.

    Raises:
        DataError: A row is too long.
    """
    n_rows = n_tokens = n_learned = n_endless = longest = 0
    too_long: list[str] = []
    with rows.open(encoding="utf-8") as file:
        while lines := list(islice(file, _ROWS_PER_BATCH)):
            made = []
            for line in lines:
                n_rows += 1
                found = encode(json.loads(line), f"{rows.name} line {n_rows}")
                made.append(found.values)
                most = max(found.lengths)
                if most > limit.n_tokens:
                    too_long.append(f"line {n_rows}: {most:,} tokens")
                n_tokens, longest = n_tokens + sum(found.lengths), max(longest, most)
                n_learned, n_endless = n_learned + found.n_learned, n_endless + found.n_endless
            writer.write_batch(pa.RecordBatch.from_pylist(made, schema=schema))
            on_progress(n_rows)
    if too_long:
        raise _overlong(too_long, limit, ways)
    return TokenTally(
        n_rows=n_rows, n_tokens=n_tokens, n_learned=n_learned, longest=longest, n_endless=n_endless
    )


def open_tokens(path: Path) -> TokenRows:
    """Memory-map a file that `tokenise` wrote."""
    with pa.memory_map(str(path)) as source:
        return TokenRows(pa.ipc.open_file(source).read_all())


def _encoded(row: dict[str, Any], place: str, tokenizer: ChatTemplate, limit: Limit) -> Encoded:
    try:
        rendered = tokenizer.render(row["messages"], row.get("tools"))
    except RequestError as error:
        raise RequestError(f"{place}: {error.message}", hint=error.hint) from error
    if not rendered.is_sure:
        raise RequestError(
            f"{place}: the chat template of {tokenizer.name} does not mark completions, and"
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
            f"{place}: the chat template of {tokenizer.name} gives completions no token",
            hint="mark assistant messages with {% generation %} and {% endgeneration %}",
        )
    values = {"input_ids": rendered.tokens, "weights": weights}
    return Encoded(values, [len(rendered.tokens)], int(np.count_nonzero(weights)), n_endless)


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


def _overlong(found: Sequence[str], limit: Limit, ways: str) -> DataError:
    """Return the error for rows that are too long."""
    named = "; ".join(found[:_MOST_NAMED])
    more = f"; and {len(found) - _MOST_NAMED:,} more" if len(found) > _MOST_NAMED else ""
    rows = f"{len(found):,} {'row is' if len(found) == 1 else 'rows are'}"
    most = f"{limit.n_tokens:,} tokens" + (f", the context length of {limit.of}" if limit.of else "")
    longer = "a model with a longer context" if limit.of else "--max-length allows longer rows"
    return DataError(f"{rows} longer than {most}: {named}{more}", hint=f"{longer}; {ways}")
