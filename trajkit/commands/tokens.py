"""Count the tokens of a training file, and report the cost of tuning a model on it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

from trajkit._core.address import place_of
from trajkit._core.output.console import Meter, notes, talk
from trajkit.commands.options.group import EngineOptions, engine_of, flattened
from trajkit.commands.options.types import Count, DataFile, File, Option
from trajkit.commands.place import path_or_none
from trajkit.commands.sharding import shards_here, state_of
from trajkit.commands.validate import Target
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.formats.validation.tokens import TokenCount


@flattened()
def tokens(
    file: DataFile,
    *,
    model: Annotated[str, Option(metavar="M")],
    target: Target | None = None,
    epochs: Annotated[int, Option(least=1)] = 3,
    tokenizer: Annotated[str | None, Option(metavar="NAME")] = None,
    max_length: Count | None = None,
    prices: File = None,
    measure: bool = False,
    **engine: Unpack[EngineOptions],
) -> TokenCount:
    """Count the tokens of a training file, and report the cost of tuning a model on it.

    An unknown price is never guessed. If the vocabulary of a tokenizer is not on this machine, the count is
    an estimate, and marked as such.

    Args:
        file: JSON lines or Parquet.
        model: The model to tune: a hosted model such as gpt-4.1-mini, or a folder or an id of a local one.
        target: The service or the trainer of the rows. Default: openai for a known hosted model, else trl.
        epochs: Passes over the file.
        tokenizer: The tokenizer that counts, as in `trajkit validate`.
        max_length: Limit of tokens in a row.
        prices: A YAML file with your own prices and dates, which override those of trajkit.
        measure: Train a few steps of a model on this machine, to estimate the time.

    Raises:
        RequestError: `measure` is given for a model that is not in a folder.
        DataError: The file cannot be read.

    Example:
        trajkit tokens train.jsonl --model gpt-4.1-mini
    """
    from datetime import UTC, datetime

    from trajkit.formats.validation.prices import load_prices
    from trajkit.formats.validation.tokens import count_tokens, trained_tokens_per_second

    known = load_prices(path_or_none(prices))
    if measure and not Path(model).is_dir():
        raise RequestError("--measure is for a model in a folder on this machine")
    runs = engine_of(engine)
    with contextlib.ExitStack() as stack:
        shards = (
            None
            if runs is None
            else stack.enter_context(shards_here(runs, "tokens", reads=state_of(place_of(file))))
        )
        meter = stack.enter_context(Meter())
        found = count_tokens(
            place_of(file),
            target=target or ("openai" if known.find(model) else "trl"),
            model=model,
            prices=known,
            n_epochs=epochs,
            tokenizer=tokenizer,
            max_length=max_length,
            measure=trained_tokens_per_second if measure else None,
            today=datetime.now(UTC).date(),
            on_progress=lambda n_done, n_total: meter.show("reading", n_done, n_total),
            division=shards,
        )
    notes(found.notes)
    if found.cost_usd:
        talk(f"sources: {'; '.join(found.price_sources)}")
    return found
