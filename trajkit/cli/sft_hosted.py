"""`trajkit sft together` and `trajkit sft fireworks`: tune a model at a service with an API of its own."""

from __future__ import annotations

from typing import Any

import click

from trajkit.cli.hosted import hosted_options, model_option, train_hosted
from trajkit.cli.option import adding

_TOGETHER = (
    *("n_epochs", "learning_rate", "batch_size", "n_evals", "lora", "lora_r", "lora_alpha", "lora_dropout"),
    *("random_seed", "suffix"),
)
_FIREWORKS = (
    *("epochs", "learning_rate", "lora_rank", "max_context_length", "batch_size_samples"),
    "output_model",
)

together_address = click.option(
    "--base-url", metavar="URL", help="Address of the API.  [default: TOGETHER_BASE_URL, or Together's own]"
)
"""Where Together is."""
fireworks_address = adding(
    click.option(
        "--base-url",
        metavar="URL",
        help="Address of the API.  [default: FIREWORKS_BASE_URL, or Fireworks' own]",
    ),
    click.option(
        "--account",
        metavar="NAME",
        help="Whose jobs.  [default: FIREWORKS_ACCOUNT_ID, or the only account that the key is of]",
    ),
)
"""Where Fireworks is, and whose jobs."""
suffix_option = click.option(
    "--suffix", metavar="NAME", help="In the name of the tuned model.  [default: the job's name]"
)
"""Together's word for what tells tuned models apart."""
output_model_option = click.option(
    "--output-model", metavar="NAME", help="In the name of the tuned model.  [default: the job's name]"
)
"""Fireworks' word for the same."""


@click.command()
@model_option()
@together_address
@click.option("--n-epochs", type=int, help="Passes over the rows.  [default: 3]")
@click.option(
    "--learning-rate", type=float, help="At its highest.  [default: 0.0002; 0.00001 with --no-lora]"
)
@click.option("--batch-size", metavar="N|max", help="Rows in a batch.  [default: max]")
@click.option(
    "--n-evals", type=int, help="Validations on the way.  [default: one per epoch, with rows that measure]"
)
@click.option("--lora/--no-lora", default=None, help="Train an adapter, or every weight.  [default: --lora]")
@click.option("--lora-r", type=int, help="Rank of the adapter.  [default: the model's own]")
@click.option("--lora-alpha", type=int, help="The adapter is scaled by alpha / r.  [default: twice --lora-r]")
@click.option("--lora-dropout", type=float, help="Share of its inputs that a step leaves out.  [default: 0]")
@click.option("--random-seed", type=int, help="Of first weights and order.  [default: the service's own]")
@suffix_option
@hosted_options
def together(base: str | None, base_url: str | None, **asked: Any) -> int:
    """Tune a model at Together.

    It takes the last store, sets a tenth of the worlds aside to measure, and shows a plan; nothing is sent
    before you agree. The key comes from TOGETHER_API_KEY. Ctrl-C stops the waiting and not the job. The same
    data, model and recipe are never paid for twice: the job that is there is found, here or at Together.
    """
    from trajkit.commands.started import default_model
    from trajkit.training.hosted.services import connect

    service = connect("together", {} if base_url is None else {"base_url": base_url})
    return train_hosted(
        service, base or default_model("together", None), {name: asked[name] for name in _TOGETHER}, asked
    )


@click.command()
@model_option()
@fireworks_address
@click.option("--epochs", type=int, help="Passes over the rows.  [default: 3]")
@click.option("--learning-rate", type=float, help="At its highest.  [default: the service's own]")
@click.option("--lora-rank", type=int, help="Rank of the adapter.  [default: the service's own]")
@click.option(
    "--max-context-length",
    type=int,
    help="Most tokens that the training reads of a row.  [default: the service's own]",
)
@click.option("--batch-size-samples", type=int, help="Rows in a batch.  [default: the service's own]")
@output_model_option
@hosted_options
def fireworks(base: str | None, base_url: str | None, account: str | None, **asked: Any) -> int:
    """Tune a model at Fireworks.

    It takes the last store, sets a tenth of the worlds aside to measure, and shows a plan; nothing is sent
    before you agree. The key comes from FIREWORKS_API_KEY. The weight of a row is heard, whatever number it
    is: with --unit step that is the weight of its step. Ctrl-C stops the waiting and not the job. The same
    data, model and recipe are never paid for twice: the job that is there is found, here or at Fireworks.
    """
    from trajkit.commands.started import default_model
    from trajkit.training.hosted.services import connect

    settings = {"base_url": base_url, "account": account}
    service = connect("fireworks", {name: value for name, value in settings.items() if value is not None})
    return train_hosted(
        service, base or default_model("fireworks", None), {name: asked[name] for name in _FIREWORKS}, asked
    )
