"""`trajkit tokens`: how many tokens a training file has, and what they cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trajkit._core import console
from trajkit.cli.validate import TARGETS, print_loss

if TYPE_CHECKING:
    from trajkit.formats.validation.tokens import TokenCount

_CENT = 0.01


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--model",
    required=True,
    metavar="M",
    help="What is tuned: a hosted model such as gpt-4.1-mini, or a folder or an id of one for this machine.",
)
@click.option(
    "--target",
    type=click.Choice(TARGETS),
    help="Whose rows they are; by default openai's for a hosted model that is known, else trl's.",
)
@click.option(
    "--epochs", type=click.IntRange(min=1), default=3, show_default=True, help="Passes over the file."
)
@click.option("--tokenizer", metavar="NAME", help="Count with this one, as in `trajkit validate`.")
@click.option("--max-length", type=click.IntRange(min=1), metavar="N", help="Limit of tokens in a row.")
@click.option(
    "--prices",
    "prices_file",
    type=click.Path(path_type=Path),
    help="A YAML file with prices and dates of your own, over those that trajkit knows.",
)
@click.option(
    "--measure", is_flag=True, help="Train a few steps of a model on this machine, to say how long it takes."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def tokens(
    file: Path,
    model: str,
    target: str | None,
    epochs: int,
    tokenizer: str | None,
    max_length: int | None,
    prices_file: Path | None,
    measure: bool,
    as_json: bool,
) -> None:
    """Count the tokens of FILE and say what tuning a model on it costs.

    A price that is not known is never guessed. Where a tokenizer's vocabulary is not on this machine, the
    count is an estimate, and says so.
    """
    from datetime import UTC, datetime

    from trajkit.formats.validation.prices import load_prices
    from trajkit.formats.validation.speed import trained_tokens_per_second
    from trajkit.formats.validation.tokens import count_tokens

    prices = load_prices(prices_file)
    if measure and not Path(model).is_dir():
        raise click.UsageError("--measure is for a model in a folder on this machine")
    with console.Meter() as meter:
        found = count_tokens(
            file,
            target=target or ("openai" if prices.find(model) else "trl"),
            model=model,
            prices=prices,
            n_epochs=epochs,
            tokenizer=tokenizer,
            max_length=max_length,
            measure=trained_tokens_per_second if measure else None,
            today=datetime.now(UTC).date(),
            on_progress=lambda n_done, n_total: meter.show("reading", n_done, n_total),
        )
    if as_json:
        console.result_json(found.model_dump(mode="json"))
    else:
        _print(found)


def _print(found: TokenCount) -> None:
    print_loss(found.loss.model_copy(update={"notes": ()}))
    for note in found.notes:
        console.talk(f"note: {note}")
    epochs = console.plural(found.n_epochs, "epoch")
    parts = [f"{console.count(found.n_trained_tokens)} tokens in {epochs}"]
    if found.cost_usd:
        sources = "; ".join(found.price_sources)
        cost = f"{found.cost_usd:,.2f}" if found.cost_usd >= _CENT else "less than 0.01"
        parts.append(f"{cost} USD (prices of {found.price_as_of})")
        console.talk(f"sources: {sources}")
    elif found.cost_usd is None:
        parts.append("price unknown")
    if found.seconds is not None:
        parts.append(f"about {_duration(found.seconds)} on this machine")
    console.result(f"{found.model}: {'  '.join(parts)}")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
