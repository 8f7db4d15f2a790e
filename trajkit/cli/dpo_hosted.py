"""`trajkit dpo together` and `trajkit dpo fireworks`: preferences at a service with an API of its own."""

from __future__ import annotations

from typing import Any

import click

from trajkit.cli import training
from trajkit.cli.hosted import model_option, pair_options, pay_options, train_hosted
from trajkit.cli.option import thoughts_option
from trajkit.cli.preference import LAST_PAIRS
from trajkit.cli.sft_hosted import fireworks_address, output_model_option, suffix_option, together_address

_TOGETHER = ("n_epochs", "learning_rate", "batch_size", "lora_r", "dpo_beta", "random_seed", "suffix")
_FIREWORKS = ("epochs", "learning_rate", "lora_rank", "beta", "output_model")

_rate = click.option("--learning-rate", type=float, help="At its highest; for the default see `trajkit sft`.")


@click.command()
@pair_options
@model_option()
@together_address
@click.option("--n-epochs", type=int, help="Passes over the pairs.  [default: 3]")
@_rate
@click.option("--batch-size", metavar="N|max", help="Pairs in a batch.  [default: max]")
@click.option("--lora-r", type=int, help="Rank of the adapter.  [default: the model's own]")
@click.option(
    "--dpo-beta",
    type=float,
    help="The higher, the nearer it stays to the model.  [default: the service's own]",
)
@click.option("--random-seed", type=int, help="Of first weights and order.  [default: the service's own]")
@suffix_option
@thoughts_option
@pay_options
def together(base: str | None, base_url: str | None, **asked: Any) -> int:
    """Tune a model on pairs at Together: the better answer wins.

    The pairs are those of `trajkit pairs`; of a pair with several turns the first answers that differ are
    learned. The plan comes first, and nothing is sent before you agree. Keys and jobs are as with
    `trajkit sft together`.
    """
    from trajkit.commands.started import default_model
    from trajkit.training.hosted.services import connect

    service = connect("together", {} if base_url is None else {"base_url": base_url})
    given = {name: asked[name] for name in _TOGETHER}
    return train_hosted(service, base or default_model("together", None), given, asked, method="dpo")


@click.command()
@training.train_option("PAIRS", LAST_PAIRS)
@model_option()
@fireworks_address
@click.option("--epochs", type=int, help="Passes over the pairs.  [default: 3]")
@_rate
@click.option("--lora-rank", type=int, help="Rank of the adapter.  [default: the service's own]")
@click.option(
    "--beta", type=float, help="The higher, the nearer it stays to the model.  [default: the service's own]"
)
@output_model_option
@thoughts_option
@pay_options
def fireworks(base: str | None, base_url: str | None, account: str | None, **asked: Any) -> int:
    """Tune a model on pairs at Fireworks: the better answer wins.

    The pairs are those of `trajkit pairs`, all of them: Fireworks measures no pairs on the way. Of a pair
    with several turns the first answers that differ are learned. The plan comes first, and nothing is sent
    before you agree. Keys and jobs are as with `trajkit sft fireworks`.
    """
    from trajkit.commands.started import default_model
    from trajkit.training.hosted.services import connect

    settings = {"base_url": base_url, "account": account}
    service = connect("fireworks", {name: value for name, value in settings.items() if value is not None})
    given = {name: asked[name] for name in _FIREWORKS}
    everything = {**asked, "val": None, "val_fraction": 0.0}
    return train_hosted(service, base or default_model("fireworks", None), given, everything, method="dpo")
